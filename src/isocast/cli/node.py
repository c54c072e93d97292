"""`isocast node`: run one process of a market."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from isocast.cli.node_run import NodeWish, start_node
from isocast.cli.options import Flag, MarketFile

__all__ = ["node"]

_EXAMPLES = """Examples:

    isocast node --config market.toml --name london --new

    isocast node --config market.toml --name london

    isocast node --config market.toml --name london --declare

    isocast node --config market.toml --name dublin --join

The first start of a node says --new or --join, or follows --declare; later ones must not. Exit code 2 means that its
input is bad, 3 that the machine refused something (a port, the disk) and that it may be started again.
"""

node = App(name="node", help_epilogue=_EXAMPLES)


@node.default
def _node(  # noqa: PLR0913  # how it begins, and how much it says
    *,
    config: MarketFile = None,
    name: Annotated[str, Parameter(name=["--name", "-n"])],
    new: Annotated[bool, Parameter(name="--new", negative="")] = False,
    join: Annotated[bool, Parameter(name="--join", negative="")] = False,
    declare: Annotated[bool, Parameter(name="--declare", negative="")] = False,
    without_impairment: Flag = False,
    log_json: Flag = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="")] = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False,
) -> int:
    """Run one node of a market: whatever role its table gives it (Figure 2).

    It runs until SIGTERM or Ctrl-C. What it promised is on its disk; start it again and it goes on.

    Parameters
    ----------
    config
        The market's file; every process of the market reads the same.
    name
        Which of its processes this is: a node by its name, and in another stripe than the first as NAME.s1.
    new
        This node has never run before: let it begin with an empty disk. Refused if it has.
    join
        This node has never run before, and the market has: let it take over what the others have.
    declare
        Say the same and end, for a node whose first start will be systemd's.
    without_impairment
        Delay and lose no packets, whatever the file says for a demo: a lab does that itself.
    log_json
        Log lines as JSON, also on a terminal.
    quiet
        Log warnings and errors only.
    verbose
        Log more.
    """
    return start_node(
        NodeWish(
            config,
            name,
            new=new,
            join=join,
            declare=declare,
            without_impairment=without_impairment,
            log_json=log_json,
            quiet=quiet,
            verbose=verbose,
        )
    )
