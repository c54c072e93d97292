"""One node of a market, run as the command line wishes; without the parser of commands, which no node needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from isocast.cli.render import line
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from isocast.runtime.market.model import Market, NodePlan

__all__ = ["NodeWish", "node_of", "plain_node", "processes_of", "start_node"]

_FLAGS = ("new", "join", "declare", "without_impairment", "log_json", "quiet", "verbose")


class NodeWish(NamedTuple):
    """What `isocast node` was asked for; its help explains each."""

    config: Path | None
    name: str
    new: bool = False
    join: bool = False
    declare: bool = False
    without_impairment: bool = False
    log_json: bool = False
    quiet: bool = False
    verbose: bool = False


def plain_node(words: Sequence[str]) -> NodeWish | None:
    """The wish of `--config FILE --name NAME` and flags, as supervisors write it; None for any other words.

    It spares every process of a market the parser of all commands.
    """
    from pathlib import Path

    match words:
        case ["--config", config, "--name", name, *rest] if not name.startswith("-"):
            flags = {word.removeprefix("--").replace("-", "_") for word in rest if word.startswith("--")}
            if len(flags) == len(rest) and flags.issubset(_FLAGS):
                return NodeWish(Path(config), name, **dict.fromkeys(sorted(flags), True))
    return None


def start_node(wish: NodeWish) -> int:
    """Run it until it is told to stop; the exit code."""
    from dataclasses import replace

    from isocast.runtime.market.file import open_market
    from isocast.runtime.market.founding import found_node, insist_on_past, join_node
    from isocast.runtime.market.model import Impairment

    name = wish.name
    market = open_market(wish.config, running=False)
    plan = node_of(market, name)
    if wish.new and wish.join:
        raise ConfigurationError(
            market.file, name, "--new founds a market, --join enters one that runs: say one of them"
        )
    if wish.join:
        join_node(market, name)
    elif wish.new or wish.declare:
        found_node(market, name)
    if wish.declare:
        line(f"{name} is declared {'to join' if wish.join else 'new'}, in {market.directory_of(name)}")
        return 0
    if not wish.new and not wish.join:
        insist_on_past(market, plan)
    if wish.without_impairment:
        market = replace(market, impairment=Impairment())
    level = "debug" if wish.verbose else "warning" if wish.quiet else "info"
    return _run(market, plan, level, as_json=wish.log_json or None)


def _run(market: Market, plan: NodePlan, level: str, *, as_json: bool | None) -> int:
    import gc

    gc.disable()  # Nothing that is imported is garbage, and looking for it is a tenth of the start.
    from isocast.runtime.watch.plain_structlog import import_structlog

    import_structlog()
    from isocast.runtime.hosts.process import run_node
    from isocast.runtime.market.finding import is_running
    from isocast.runtime.watch.logs import configure_logs

    gc.enable()
    logs = configure_logs(node=plan.name, role=plan.role.value, as_json=as_json, level=level)
    try:
        with is_running(market.file) as end:
            shutdown.at_forced_end(end)
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
