"""Small simulated worlds for the paper's sentences: a few lines of scenario, and what an observer saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from isocast.checks.facts import Fact
from isocast.simulation.original import OriginalParameters, OriginalResult, run_original
from isocast.simulation.scenario import scenario_from_mapping
from isocast.simulation.timed import TimedRun
from isocast.terms.ids import NodeId
from isocast.terms.instants import from_seconds
from isocast.wire.packets import Data, Token

__all__ = ["Seen", "lost_by", "original", "world"]

_F = TypeVar("_F", bound=Fact)


@dataclass(frozen=True)
class Seen:
    """A finished run, and its facts in order."""

    run: TimedRun
    facts: list[Fact]

    def of(self, kind: type[_F]) -> list[_F]:
        """The facts of one kind."""
        return [fact for fact in self.facts if isinstance(fact, kind)]


def world(before: Callable[[TimedRun], None] = lambda _run: None, /, **keys: object) -> Seen:
    """Run a scenario of the timed protocol to its end; nothing may be violated."""
    facts: list[Fact] = []
    scenario = scenario_from_mapping(keys)
    run = TimedRun(scenario, scenario.seed, transcript=facts.append)
    before(run)
    run.run()
    violations = run.violations()
    assert violations == []
    return Seen(run, facts)


def lost_by(losses: dict[tuple[NodeId, int], set[NodeId]]) -> Callable[[TimedRun], None]:
    """Note which receivers do not get which message; a token counts as message t of nobody."""

    def watch(run: TimedRun) -> None:
        count = run.recorder.losses.lost

        def lost(to: NodeId, burst: tuple[object, ...]) -> None:
            count(to, burst)
            for packet in burst:
                if isinstance(packet, Data):
                    losses.setdefault((packet.sender, packet.number), set()).add(to)
                elif isinstance(packet, Token) and to in run.world.sites:
                    losses.setdefault((0, packet.token_number), set()).add(to)

        run.world.network.lost_hook = lost

    return watch


def original(rate: float, messages: int, *, receivers: int = 10, loss: float = 0.0, seed: int = 1) -> OriginalResult:
    """The event-driven protocol with the figures' timers, at a rate of arrivals."""
    return run_original(
        OriginalParameters(
            seed=seed,
            receivers=receivers,
            messages=messages,
            loss=loss,
            tree=False,
            one_way_delay_ns=from_seconds(0.05),
            jitter_ns=0,
            arrival_rate=rate,
            token_ack_ns=from_seconds(1),
            token_resend_ns=from_seconds(1.2),
            source_resend_ns=from_seconds(60),
            nack_resend_ns=from_seconds(0.25),
            retries_max=3,
        )
    )
