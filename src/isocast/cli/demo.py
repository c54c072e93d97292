"""`isocast demo`: a whole market of real processes on this machine, live in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Flag, Seed

__all__ = ["demo"]

_EXAMPLES = """Examples:

    isocast demo

    isocast demo --seconds 60 --loss 0.05

    isocast demo --headless --seed 42 --keep /tmp/market

    isocast demo --no-lake --no-traders

Exit code: 0 no gap, nothing early and every account right, 1 something was wrong, and it says what. Without Spark, or
when Spark fails, the demo says so and judges without it. Ctrl-C ends the demo at once, whatever it does, and nothing is
left behind; when the market is over and only tables are missing, the summary comes without them.
"""

demo = App(name="demo", help_epilogue=_EXAMPLES)


@demo.default
def _demo(
    *,
    seconds: Annotated[float, Parameter(validator=Number(gte=5, lte=3600))] = 30.0,
    headless: Flag = False,
    seed: Seed = 7,
    loss: Annotated[float, Parameter(validator=Number(gte=0, lte=0.2))] = 0.02,
    keep: Path | None = None,
    lake: Annotated[bool, Parameter(negative="--no-lake")] = True,
    traders: Annotated[bool, Parameter(negative="--no-traders")] = True,
    json: Flag = False,
) -> int:
    """Run a whole market on this machine, live: 21 processes that talk by UDP multicast on loopback, without privilege.

    Receivers in seven cities, with the delays between them, and lost packets; floors that publish trades and quotes;
    customers of both grades. The receivers run a trading floor together, at which traders in three cities trade through
    two gateways. Half-way the city whose token is due is killed by kill -9, the ring re-forms, and it comes back. Spark
    follows the journals into tables, at low priority. At the end the journals of all are read, and the gateways' books,
    and say what they prove; so do the tables: bars, skew, trades, and an audit's verdict.

    Parameters
    ----------
    seconds
        How long the floors publish.
    headless
        Print lines instead of a live view, as happens anyway where there is no terminal.
    seed
        Of what the floors publish and of the losses.
    loss
        Share of the packets that get lost, for each receiver of a packet alone.
    keep
        Leave the market in this new directory, and say how to go on with it; without it nothing is left.
    lake
        Fill tables by Spark beside the market; --no-lake leaves them out.
    traders
        Trade on a floor of the market's own; --no-traders spares a small machine four processes.
    json
        Print the summary as one JSON object and nothing else.
    """
    from isocast.cli.demo_run import DemoOptions, run_demo

    return run_demo(DemoOptions(seconds, seed, loss, keep, headless=headless, as_json=json, lake=lake, traders=traders))
