"""`isocast node`: run one process of a market."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from isocast.cli.options import Config, Flag
from isocast.cli.render import line
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market, NodePlan

__all__ = ["node", "node_of", "processes_of"]

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
    config: Config = None,
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
    from isocast.runtime.market.file import load_market
    from isocast.runtime.market.finding import find_market
    from isocast.runtime.market.founding import found_node, insist_on_past, join_node
    from isocast.runtime.market.model import Impairment

    market = load_market(find_market(config, running=False))
    plan = node_of(market, name)
    if new and join:
        raise ConfigurationError(
            market.file, name, "--new founds a market, --join enters one that runs: say one of them"
        )
    if join:
        join_node(market, name)
    elif new or declare:
        found_node(market, name)
    if declare:
        line(f"{name} is declared {'to join' if join else 'new'}, in {market.directory_of(name)}")
        return 0
    if not new and not join:
        insist_on_past(market, plan)
    if without_impairment:
        market = replace(market, impairment=Impairment())
    return _run(market, plan, "debug" if verbose else "warning" if quiet else "info", as_json=log_json or None)


def _run(market: Market, plan: NodePlan, level: str, *, as_json: bool | None) -> int:
    import gc

    gc.disable()  # Nothing that is imported is garbage, and looking for it is a tenth of the start.
    from isocast.runtime.hosts.process import run_node
    from isocast.runtime.market.finding import is_running
    from isocast.runtime.watch.logs import configure_logs

    gc.enable()
    logs = configure_logs(node=plan.name, role=plan.role.value, as_json=as_json, level=level)
    try:
        with is_running(market.file):
            return shutdown.run(run_node(market, plan, logs.tell_suppressed))
    finally:
        logs.tell_suppressed(ending=True)


def processes_of(market: Market, name: str, stripe: int | None = None) -> tuple[NodePlan, ...]:
    """The processes of a node in all its stripes, or in one; of NAME.s1 that one alone."""
    found = market.processes_of(name) or (node_of(market, name),)
    if stripe is not None:
        found = tuple(plan for plan in found if plan.stripe == stripe)
        if not found:
            raise ConfigurationError(market.file, f"nodes.{name}.stripes", f"it has no process in stripe {stripe}")
    return found


def node_of(market: Market, name: str) -> NodePlan:
    """The node of that name; ConfigurationError, with the nearest name, if there is none."""
    from isocast.terms.quantities import suggestion

    plan = market.by_name.get(name)
    if plan is None:
        hint = suggestion(name, market.by_name) or f"; there are {', '.join(market.by_name)}"
        raise ConfigurationError(market.file, f"nodes.{name}", f"there is no such node{hint}")
    return plan
