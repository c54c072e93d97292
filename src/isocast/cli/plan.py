"""`isocast plan`: what follows from a network's figures, before anything runs."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from isocast.cli.render import line, show_json, show_table
from isocast.cli.timing_plan import TimingOptions, make_plan

__all__ = ["app"]

app = App(
    name="plan",
    help="Plan a network: derived times with their formulas.",
    help_epilogue="Start with:\n\n    isocast plan timing\n",
)

_DEFAULTS = TimingOptions()
_EXAMPLES = """Examples:

The paper's figures, τ_t = 2.775 s:

    isocast plan timing

A local network, release behind a majority:

    isocast plan timing --detect 0.005 --process 0.001 --retries 4 --gate majority --clock-error 0.0001

Two layers of ten, and who may ask when:

    isocast plan timing --layers 10,10 --secondary-detect 0.1 --nack-sets 4 --json
"""


@app.command(help_epilogue=_EXAMPLES)
def timing(*, options: TimingOptions = _DEFAULTS, json: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Derive all times of a ring, with the formula of each in symbols and in numbers (§5.1).

    Times are in seconds. What is left out takes the paper's value.

    Parameters
    ----------
    json
        Print one JSON object instead of tables.
    """
    plan = make_plan(options)
    if json:
        show_json(plan.as_json())
        return 0
    show_table("Given", ("", "symbol", "value"), plan.given_rows())
    show_table("Derived", ("", "symbol", "formula", "in numbers", "value"), plan.derived_rows())
    title = "Sets that ask for what is missing of a token t that site 0 sent (§5.2)"
    show_table(title, ("set", "from", "sites"), plan.set_rows())
    line("A derived time is the shortest that the protocol allows, unless it was given.")
    return 0
