"""Puts a market on the stage: its file, its keys, its processes; kills one and lets it come back; strikes the set.

Every node is a process of its own, started as `isocast node` is and supervised as `isocast up` does it. A nursery
starts them, so that all of them stand after a few seconds, on two cores too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from isocast.runtime.market.file import load_market
from isocast.runtime.market.founding import found_market
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.market.model import Market
from isocast.runtime.operate.nursery import Nursery
from isocast.runtime.operate.supervisor import Child, ChildState, Life, Supervisor, node_command
from isocast.terms.errors import NodeFailedError
from isocast.trials.demo.cast import DemoNetwork, actors, market_text
from isocast.trials.demo.trading import GATEWAYS

__all__ = ["DemoStage", "new_nursery", "prepare", "set_stage"]

_PATIENCE_S = 90.0
"""Until everybody is ready: a loaded machine takes ten seconds."""
_FAILURES = 3
"""Lives that a node may end by itself before it is ready."""
_MODULES = (
    "isocast.runtime.hosts.process",
    "isocast.runtime.hosts.customer",
    "isocast.runtime.hosts.receiver",
    "isocast.runtime.hosts.reformation",
    "isocast.runtime.hosts.retransmit",
    "isocast.runtime.hosts.secondary_source",
    "isocast.runtime.hosts.source",
)
"""What nodes import."""


_TRADING_MODULES = ("isocast.runtime.accounts.ways_in", "isocast.cli.trading_gateway")
"""What gateways import beyond that."""


def set_stage(directory: Path, place: DemoNetwork, *, loss: float, seed: int, traders: bool = False) -> Market:
    """The market file with its keys, every node declared new; with traders, the books of their gateways, too."""
    market = prepare(directory, market_text(place, loss=loss, seed=seed, traders=traders))
    if traders:
        from isocast.trials.demo.books import found_books  # noqa: PLC0415 - its packages belong to an extra

        found_books(market, GATEWAYS)
    return market


def new_nursery(commands: Sequence[str] = ()) -> Nursery:
    """One that has imported what nodes need, and `commands`."""
    return Nursery((*commands, *_MODULES))


def prepare(directory: Path, text: str) -> Market:
    """A market whose file says this, with its keys, every node declared new."""
    file = directory / "market.toml"
    file.write_text(text, encoding="utf-8")
    market = load_market(file)
    init_keys(market)
    found_market(market)
    (directory / "logs").mkdir(exist_ok=True)
    return market


class DemoStage:
    """The processes of a market, in an `async with` block; on the way out all of them end."""

    def __init__(
        self,
        market: Market,
        told: Callable[[Child], None],
        *,
        commands: Sequence[str] = (),
        nursery: Nursery | None = None,
    ) -> None:
        """`told` hears of every change of a process; `commands` are further modules that nodes import.

        A `nursery` that is given serves several stages, and stays open.
        """
        self.market = market
        self._file = Path(market.file)
        self._told = told
        self._changed = asyncio.Event()
        self._held: dict[str, asyncio.Event] = {}
        self._opened = AsyncExitStack()
        self._is_shared = nursery is not None
        self._gateways = _gateway_commands(market)
        self._nursery = nursery or new_nursery((*commands, *(_TRADING_MODULES if self._gateways else ())))
        self._supervisor = Supervisor(self._on_change, log_directory=self._file.parent / "logs", launch=self._launch)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opened:
            if not self._is_shared:
                await opened.enter_async_context(self._nursery)
            opened.push_async_callback(self._supervisor.stop_all)
            opened.callback(self._let_all)
            for plan in actors(self.market):
                await self._supervisor.start(plan.name, node_command(self._file, plan.name))
            for name, command in self._gateways.items():
                await self._supervisor.start(name, command)
            self._opened = opened.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    @property
    def children(self) -> Mapping[str, Child]:
        """The processes by the names of their nodes."""
        return self._supervisor.children

    @property
    def gateways(self) -> tuple[str, ...]:
        """The processes that are no nodes of the ring's market, but trade in it."""
        return tuple(self._gateways)

    async def all_ready(self) -> None:
        """Wait until every node can do its work; NodeFailedError that says why one cannot.

        Gateways are ready later: they hear the sequence first.
        """
        nodes = [child for name, child in self.children.items() if name not in self._gateways]
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while not all(child.ready.is_set() for child in nodes):
                    self._changed.clear()
                    await self._changed.wait()
                    self._insist()
        except TimeoutError:
            waiting = [child for child in nodes if not child.ready.is_set()]
            reasons = "; ".join([f"{child.name}: {child.status or 'says nothing'}" for child in waiting[:3]])
            more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""  # noqa: PLR2004
            raise NodeFailedError(
                f"{len(waiting)} of {len(nodes)} nodes are not ready after {_PATIENCE_S:.0f} s"
                f" ({reasons}{more}); `isocast doctor` checks multicast, buffers and clock of this machine"
            ) from None

    async def gateways_ready(self) -> None:
        """Wait until every gateway takes orders; NodeFailedError that says why one never will."""
        while not all(self.children[name].ready.is_set() for name in self._gateways):
            self._changed.clear()
            await self._changed.wait()
            self._insist()

    async def stop_gateways(self) -> None:
        """End them in order: from then on nobody publishes an order."""
        await asyncio.gather(*[self._supervisor.stop(name) for name in self._gateways])

    def kill(self, name: str) -> int | None:
        """End a node by SIGKILL, and let it stay down until `let` says otherwise; the number of its process."""
        pid = self.children[name].pid
        self.hold(name)
        self._supervisor.kill(name)
        return pid

    def hold(self, name: str) -> None:
        """Once a node has ended, let it stay down until `let` says otherwise."""
        self._held.setdefault(name, asyncio.Event())

    def let(self, name: str) -> None:
        """Let a node that was killed be started again."""
        held = self._held.pop(name, None)
        if held is not None:
            held.set()

    def _let_all(self) -> None:
        for name in list(self._held):
            self.let(name)

    async def _launch(self, command: Sequence[str], environment: Mapping[str, str], output: Path | None) -> Life:
        name = command[command.index("--name") + 1] if "--name" in command else ""
        held = self._held.get(name)
        if held is not None:
            await held.wait()
        return await self._nursery.launch(command, environment, output)

    def _on_change(self, child: Child) -> None:
        self._changed.set()
        self._told(child)

    def _insist(self) -> None:
        """A node that cannot start is not waited for."""
        for child in self.children.values():
            failing = child.state is ChildState.PAUSING and child.starts >= _FAILURES
            if child.state is ChildState.REFUSED or (failing and not child.ready.is_set()):
                raise NodeFailedError(f"{child.name} does not start: {_why(child)}")


def _gateway_commands(market: Market) -> dict[str, tuple[str, ...]]:
    """How the gateways of a market with the show's floor are started, by name."""
    if not market.floors or any(gateway.name not in market.by_name for gateway in GATEWAYS):
        return {}
    from isocast.trials.demo.books import gateway_command  # noqa: PLC0415 - its packages belong to an extra

    return {gateway.name: gateway_command(market, gateway) for gateway in GATEWAYS}


def _why(child: Child) -> str:
    return child.last_line().removeprefix("isocast: ") or f"its exit code is {child.exit_code}"
