"""`isocast demo`: a simulated world, live in the terminal."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

__all__ = ["demo"]

_EXAMPLES = """Examples:

    isocast demo

    isocast demo --sites 24 --loss 0.05 --speed 2

    isocast demo --headless --seed 42

Exit code: 0 safe, 1 a checker found a violation. Ctrl-C ends the demo with its summary.
"""

demo = App(name="demo", help_epilogue=_EXAMPLES)


@demo.default
def _demo(
    *,
    seconds: Annotated[float | None, Parameter(validator=Number(gte=5, lte=3600))] = None,
    speed: Annotated[float | None, Parameter(validator=Number(gt=0, lte=1000))] = None,
    headless: Annotated[bool, Parameter(negative="")] = False,
    seed: Annotated[int | None, Parameter(validator=Number(gte=0, lt=2**63))] = None,
    loss: Annotated[float | None, Parameter(validator=Number(gte=0, lte=0.2))] = None,
    sites: Annotated[int | None, Parameter(validator=Number(gte=3, lte=24))] = None,
) -> int:
    """Show a simulated market live: cities, token, losses, repairs, releases and their skew.

    Ten cities order what traders in London and Sydney send. It is quiet at first; then packets get lost; then the city
    whose token is due crashes, the ring re-forms without it, and it comes back. The machines are the protocol's own,
    and the checkers watch.

    Parameters
    ----------
    seconds
        About how long it takes, in the market's time; 30 if left out. The story is stretched to fit.
    speed
        Seconds of the market for each second on the wall; 1 if left out, and without a live view as fast as it goes.
    headless
        Print lines instead of a live view, as happens anyway where there is no terminal.
    seed
        The seed, if not the story's own. The same seed gives the same run.
    loss
        Share of the packets that get lost when it is no longer quiet; 0.02 if left out.
    sites
        Cities on the ring, 3 to 24; 10 if left out.
    """
    from isocast.cli.live import DemoOptions, run_demo

    return run_demo(DemoOptions(seconds, speed, headless, seed, loss, sites))
