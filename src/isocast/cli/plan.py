"""`isocast plan`: what follows from a network's figures, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from isocast.cli.coverage_options import EXAMPLE, CoverageOptions
from isocast.cli.render import line, show_json, show_table, working
from isocast.cli.stripe_options import StripeOptions
from isocast.cli.timing_plan import TimingOptions, make_plan
from isocast.cli.world_options import EXAMPLE as WORLD_EXAMPLE
from isocast.cli.world_options import WorldOptions

__all__ = ["app"]

app = App(
    name="plan",
    help="Plan a network: derived times with their formulas, scopes and addresses with their map, stripes, the planet.",
    help_epilogue=(
        "Start with:\n\n    isocast plan timing\n\n    isocast plan coverage --example\n\n"
        "    isocast plan stripes day.parquet\n\n    isocast plan world --example\n"
    ),
)

_DEFAULTS = TimingOptions()
_COVERAGE_DEFAULTS = CoverageOptions()
_STRIPE_DEFAULTS = StripeOptions()
_WORLD_DEFAULTS = WorldOptions()
_EXAMPLES = """Examples:

The paper's figures, τ_t = 2.775 s:

    isocast plan timing

A local network, release behind a majority:

    isocast plan timing --detect 0.005 --process 0.001 --retries 4 --gate majority --clock-error 0.0001

Two layers of ten, and who may ask when:

    isocast plan timing --layers 10,10 --secondary-detect 0.1 --nack-sets 4 --json

Three layers, each of which adds its recovery to the one release delay:

    isocast plan timing --layers 3 --receivers 5
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


_COVERAGE_EXAMPLES = """Examples:

A world to start from, its plan, and a map of it:

    isocast plan coverage --example > world.toml

    isocast plan coverage world.toml --svg map.svg --out plan.json

London fails; as little as possible changes, and no address is used again before it has drained:

    isocast plan coverage world.toml --from plan.json --without London --out next.json

10,000 receivers on the land of the earth, against the hexagonal grid:

    isocast plan coverage worlds/land-10000.toml --png land.png --rows 10
"""


@app.command(help_epilogue=_COVERAGE_EXAMPLES)
def coverage(world: Path | None = None, /, *, options: CoverageOptions = _COVERAGE_DEFAULTS) -> int:
    """Choose scopes so that every customer hears two sources, and addresses so that no two overlap (§4.3).

    Parameters
    ----------
    world
        TOML file with receivers, customers, paths and rules.
    """
    if options.example:
        line(EXAMPLE.rstrip())
        return 0
    from isocast.cli.coverage_plan import run_coverage, show, write_files

    run = run_coverage(world, options)
    with working("Drawing", quiet=options.json):
        write_files(run, options)
    show(run, options)
    return 1 if options.strict and run.report.coverage.short else 0


_STRIPE_EXAMPLES = """Examples:

A synthetic day, and stripes of 56 kb/s for it:

    isocast feed generate day.parquet

    isocast plan stripes day.parquet --rate 56k --out stripes.toml

Does the plan hold on another, busier day?

    isocast feed generate --trades 150000 busy.parquet

    isocast plan stripes --from stripes.toml --check busy.parquet

The next version, with few moves; sectors from a table with the columns symbol and sector:

    isocast plan stripes day.parquet busy.parquet --from stripes.toml --sectors sectors.csv --out next.toml
"""


@app.command(help_epilogue=_STRIPE_EXAMPLES)
def stripes(*history: Path, options: StripeOptions = _STRIPE_DEFAULTS) -> int:
    """Put related stocks together in narrow stripes, each under its bit-rate at its peak (§4.4).

    Exit code: 0 the plan holds, 1 it does not hold on the day of --check, 2 bad input.

    Parameters
    ----------
    history
        Days to plan from: feeds of any format that `isocast feed show` reads, directories of journals, or tables of
        text with the columns symbol, time and count.
    """
    from isocast.cli.stripe_plan import run_stripes, show_stripes, write_pictures, write_plan

    run = run_stripes(history, options)
    write_plan(run, options)
    with working("Drawing", quiet=options.json):
        write_pictures(run, options)
    show_stripes(run, options)
    return 0 if run.holds else 1


_WORLD_EXAMPLES = """Examples:

A planet to start from, its figures, and their picture:

    isocast plan world --example > planet.toml

    isocast plan world planet.toml --png planet.png

10,000 receivers and ten million customers; a minute or two on two cores:

    isocast plan world worlds/planet.toml --svg world.svg --figures

The same bits by Spark, on this machine or on a cluster:

    isocast plan world worlds/planet.toml --customers 1000000 --engine spark --master spark://HOST:7077
"""


@app.command(help_epilogue=_WORLD_EXAMPLES)
def world(world: Path | None = None, /, *, options: WorldOptions = _WORLD_DEFAULTS) -> int:
    """Deliver to a whole planet of receivers and customers, by arrays, beside the protocol's formulas (§3, §4, §5.2).

    Exit code: 0 fine, 1 with --strict if a figure is not what its formula says, 2 bad input.

    Parameters
    ----------
    world
        TOML file of a planet, such as worlds/planet.toml.
    """
    if options.example:
        line(WORLD_EXAMPLE.rstrip())
        return 0
    from isocast.cli.world_plan import run_world, show_world, write_pictures

    run = run_world(world, options)
    with working("Drawing", quiet=options.json):
        write_pictures(run, options)
    show_world(run, options)
    return 1 if options.strict and not run.sound else 0
