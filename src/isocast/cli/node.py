"""`isocast node` and `isocast up`: run one process of a market, or all of them on this machine."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from isocast.cli.render import note
from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from isocast.runtime.market import Market
    from isocast.runtime.supervisor import Child, Supervisor

__all__ = ["node", "up"]

Config = Annotated[Path, Parameter(name=["--config", "-c"])]


def node(
    *,
    config: Config,
    name: Annotated[str, Parameter(name=["--name", "-n"])],
    new: Annotated[bool, Parameter(name="--new", negative="")] = False,
    without_impairment: Annotated[bool, Parameter(negative="")] = False,
    log_json: Annotated[bool, Parameter(negative="")] = False,
    verbose: Annotated[bool, Parameter(name=["--verbose", "-v"], negative="")] = False,
) -> int:
    """Run one node of a market: whatever role its table gives it (Figure 2).

    It runs until SIGTERM or Ctrl-C. What it promised is on its disk; start it again and it goes on.

    Example: isocast node --config market.toml --name london

    Parameters
    ----------
    config
        The market's file; every process of the market reads the same.
    name
        Which of its nodes this process is.
    new
        This node has never run before: let it begin with an empty disk. Refused if it has.
    without_impairment
        Delay and lose no packets, whatever the file says for a demo: a lab does that itself.
    log_json
        Log lines as JSON, also on a terminal.
    verbose
        Log more.
    """
    from isocast.runtime.founding import found_node
    from isocast.runtime.logs import configure_logs
    from isocast.runtime.market import Impairment
    from isocast.runtime.market_file import load_market
    from isocast.runtime.process import run_node

    market = load_market(config)
    plan = market.by_name.get(name)
    if plan is None:
        raise ConfigurationError(str(config), f"nodes.{name}", f"no such node; there are {', '.join(market.by_name)}")
    logs = configure_logs(
        node=name, role=plan.role.value, as_json=log_json or None, level="debug" if verbose else "info"
    )
    if new:
        found_node(market, name)
    if without_impairment:
        market = replace(market, impairment=Impairment())
    try:
        asyncio.run(run_node(market, plan, logs.tell_suppressed))
    finally:
        logs.tell_suppressed(ending=True)
    return 0


def up(
    *,
    config: Config,
    only: Annotated[list[str] | None, Parameter(name="--only", consume_multiple=True)] = None,
    seconds: Annotated[float, Parameter(name="--seconds")] = 0.0,
    logs: Annotated[Path | None, Parameter(name="--logs")] = None,
) -> int:
    """Start every node of a market on this machine, watch them, and start again what dies.

    SIGTERM or Ctrl-C stops all of them in order.

    Example: isocast up --config market.toml --logs logs/

    Parameters
    ----------
    config
        The market's file.
    only
        Start these nodes alone: on each of several machines its own.
    seconds
        Stop by itself after so long; 0 never.
    logs
        A directory with one log file for each node, instead of all lines here.
    """
    from isocast.runtime.founding import found_market
    from isocast.runtime.market_file import load_market

    market = load_market(config)
    names = list(market.by_name) if only is None else only
    for name in names:
        if name not in market.by_name:
            raise ConfigurationError(str(config), f"nodes.{name}", "no such node")
    if found_market(market):
        note(f"{market.name}: a new market, in {market.data_directory}")
    if logs is not None:
        logs.mkdir(parents=True, exist_ok=True)
    return asyncio.run(_up(config, market, names, seconds, logs))


async def _up(config: Path, market: Market, names: list[str], seconds: float, logs: Path | None) -> int:
    from isocast.runtime.supervisor import ChildState, Supervisor, node_command

    def told(child: Child) -> None:
        text = {
            ChildState.STARTING: f"starts (pid {child.pid})" if child.pid else "starts",
            ChildState.READY: "is ready",
            ChildState.PAUSING: f"ended with {child.exit_code}; it is started again",
            ChildState.REFUSED: "refuses its input; see its last line",
            ChildState.STOPPED: "has stopped",
        }[child.state]
        note(f"{market.name}: {child.name} {text}")

    supervisor = Supervisor(told, log_directory=logs)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    refused = False
    try:
        for name in names:
            await supervisor.start(name, node_command(config, name))
        waiting = asyncio.create_task(_all_ready(supervisor, market.name))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds or None)
        waiting.cancel()
        refused = any(child.state is ChildState.REFUSED for child in supervisor.children.values())
    finally:
        await supervisor.stop_all()
    return 1 if refused else 0


async def _all_ready(supervisor: Supervisor, name: str) -> None:
    await asyncio.gather(*[child.ready.wait() for child in supervisor.children.values()])
    note(f"{name}: all {len(supervisor.children)} nodes are ready")
