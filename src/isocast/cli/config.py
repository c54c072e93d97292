"""`isocast config`: check a market file, write one to start from, explain its keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.render import line, note, show_json, show_table, showed_whole
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market

__all__ = ["app"]

app = App(
    name="config",
    help="Describe a market: one TOML file that every process of it reads.",
    help_epilogue="Start with:\n\n    isocast config example --out market.toml\n",
)

_Flag: TypeAlias = Annotated[bool, Parameter(negative="")]
_BAD_INPUT = 2


@app.command(
    help_epilogue="""Examples:

    isocast config check market.toml

    isocast config check market.toml --json

Exit code: 0 sound, 2 not: then each fault is a line that names file, key and rule. Warnings change nothing about it.
"""
)
def check(file: Path, /, *, json: _Flag = False) -> int:
    """Check a market file and show what follows from it: nodes, groups, times with their formulas, warnings.

    Parameters
    ----------
    file
        The market's TOML file.
    json
        Print one JSON object instead of tables; faults are in it too.
    """
    from isocast.cli.market_picture import faults_as_json, market_as_json, show_market
    from isocast.runtime.market.file import read_market

    reading = read_market(file)
    faults, warnings = reading.faults, reading.warnings
    if reading.market is not None:
        faults = _plan_faults(reading.market)
    if reading.market is None or faults:
        if json:
            show_json(faults_as_json(faults))
        for fault in faults:
            note(f"isocast: {fault}")
        return _BAD_INPUT
    if reading.market.edge is not None:
        from isocast.runtime.edge.narrow.checking import edge_advice

        warnings = (*warnings, *edge_advice(reading.market))
    if json:
        show_json(market_as_json(reading.market, warnings))
    else:
        show_market(reading.market, warnings)
    return 0


def _plan_faults(market: Market) -> tuple[ConfigurationError, ...]:
    """What is wrong with the plans of core and edge: they are files of their own."""
    from isocast.runtime.market.routes import core_routes

    try:
        core_routes(market)
        if market.edge is not None:
            from isocast.runtime.edge.narrow.checking import check_edge

            check_edge(market)
    except ConfigurationError as fault:
        return (fault,)
    return ()


@app.command(
    help_epilogue="""Examples:

    isocast config example

    isocast config example --out market.toml

    isocast config example --cities London,Paris,Frankfurt --loss 0.01 --out europe.toml
"""
)
def example(
    *,
    out: Path | None = None,
    cities: str | None = None,
    loss: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.0,
    seed: Annotated[int, Parameter(validator=Number(gte=0, lt=2**63))] = 1,
) -> int:
    """Write a commented market file that runs on this machine as it is; the delays between its cities are injected.

    Parameters
    ----------
    out
        The file to write, which must not exist; standard output if left out.
    cities
        Where primary receivers are, separated by commas; five cities of the world if left out.
    loss
        Share of packets that get lost.
    seed
        What the losses are a function of.
    """
    from isocast.runtime.market.example import EXAMPLE_CITIES, example_text

    chosen = EXAMPLE_CITIES if cities is None else [name.strip() for name in cities.split(",")]
    text = example_text(chosen, loss=loss, seed=seed)
    if out is None:
        line(text.rstrip("\n"))
        return 0
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(str(out), "--out", "exists already, and is not overwritten: choose another") from None
    except OSError as error:
        raise ConfigurationError(str(out), "--out", f"cannot be written: {error.strerror}") from error
    note(f"Wrote {out}. Next: isocast config check {out}; isocast keys init --config {out}")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast config keys

    isocast config keys --markdown > docs/reference/config.md
"""
)
def keys(*, json: _Flag = False, markdown: _Flag = False) -> int:
    """List and explain the keys of a market file, and the timing profiles.

    Parameters
    ----------
    json
        Print one JSON object instead of tables.
    markdown
        Print the reference page.
    """
    from isocast.cli.config_page import PROFILE_HEADERS, config_page, key_rows, keys_as_json, profile_rows
    from isocast.runtime.market.keys import SETTINGS
    from isocast.runtime.market.node_keys import NODE_TABLE

    if showed_whole(keys_as_json if json else None, config_page if markdown else None):
        return 0
    for table in (*SETTINGS, NODE_TABLE):
        title = f"[{table.name}]" if table.name else "At the top of the file"
        show_table(title, ("key", "value", "default", "meaning"), key_rows(table))
    show_table("Timing profiles", PROFILE_HEADERS, profile_rows())
    return 0
