"""`isocast keys`: make a market's key files, and check them. No command ever shows a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App

from isocast.cli.options import Config, Flag
from isocast.cli.render import line, show_json, show_table
from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.runtime.market.key_files import KeyFile
    from isocast.runtime.market.model import Market, NodePlan

__all__ = ["app"]

app = App(
    name="keys",
    help="Make and check the key files of a market.",
    help_epilogue="Start with:\n\n    isocast keys init --config market.toml\n",
)

_WRONG = 1
_NAMES_SHOWN = 6


@app.command(
    help_epilogue="""Examples:

    isocast keys init --config market.toml

Run it once, on one machine, and copy to each other machine the files that its nodes need: `isocast keys check` tells
which.
"""
)
def init(*, config: Config = None, json: Flag = False) -> int:
    """Make the keys directory (0700) and every key file that is missing (0600). A file that exists is never touched.

    Parameters
    ----------
    config
        The market's TOML file.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market
    from isocast.runtime.market.key_files import init_keys

    market = load_market(find_market(config, running=False))
    files = init_keys(market)
    made = sum(file.made for file in files)
    if json:
        show_json(_as_json(market, files))
        return 0
    rows = [(file.name, "made" if file.made else "kept: it exists", _shortened(file.nodes)) for file in files]
    show_table(f"Keys in {market.keys_directory}", ("file", "", "needed by"), rows)
    line(f"{made} made, {len(files) - made} kept.")
    return 0


@app.command(
    help_epilogue="""Examples:

    isocast keys check --config market.toml

    isocast keys check --config market.toml --node london

Equal fingerprints on two machines mean equal keys. Exit code: 0 fine, 1 something is wrong, 2 bad input.
"""
)
def check(*, config: Config = None, node: str | None = None, json: Flag = False) -> int:
    """Check the key files: there, whole, and readable by their owner alone.

    Parameters
    ----------
    config
        The market's TOML file.
    node
        Only the files that this node needs.
    json
        Print one JSON object instead of a table.
    """
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market
    from isocast.runtime.market.key_files import check_keys

    market = load_market(find_market(config, running=False))
    files = check_keys(market, None if node is None else _plan(market, node))
    faults = sum(bool(file.fault) for file in files)
    if json:
        show_json(_as_json(market, files))
    else:
        rows = [(file.name, file.fingerprint or "–", file.fault or "fine", _shortened(file.nodes)) for file in files]
        show_table(f"Keys in {market.keys_directory}", ("file", "fingerprint", "", "needed by"), rows)
        line(f"{counted(len(files), 'file')}, {faults or 'none'} with a fault.")
    return _WRONG if faults else 0


def _plan(market: Market, name: str) -> NodePlan:
    from isocast.terms.quantities import suggestion

    if name not in market.by_name:
        rule = f'there is no node "{name}" in {market.file}{suggestion(name, market.by_name)}'
        raise ConfigurationError("command line", "--node", rule)
    return market.node(name)


def _as_json(market: Market, files: Sequence[KeyFile]) -> dict[str, object]:
    return {
        "directory": str(market.keys_directory),
        "files": [
            {
                "name": file.name,
                "made": file.made,
                "fault": file.fault,
                "fingerprint": file.fingerprint,
                "nodes": list(file.nodes),
            }
            for file in files
        ],
    }


def _shortened(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {rest} others" if rest > 0 else "")
