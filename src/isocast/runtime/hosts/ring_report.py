"""What a receiver tells people of changes that are more than a new ring: of U, by force, and two stories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isocast.ring.effects import ControlOutcome, ControlSettled, Diverged, UniverseForced
from isocast.ring.universe import CHANGES
from isocast.runtime.hosts.context import Context
from isocast.runtime.market.left_out import LeftOut
from isocast.terms.ids import NodeId
from isocast.terms.instants import NEVER, SECOND

__all__ = ["RingReport"]

_ANSWER_NS = 5 * SECOND
"""A market that runs answers sooner: tokens come every period, and checkpoints take a second."""


class RingReport:
    """Logs, alarms and counts; and what became of an operator's requests."""

    def __init__(self, context: Context) -> None:
        """Nothing has happened yet."""
        self._context = context
        self.outcomes: dict[tuple[str, int], ControlOutcome] = {}
        """By kind and subject: what became of the newest request."""
        self.left_out = LeftOut(context.directory)
        self._alone_since = NEVER
        self._told_alone = False
        self.performers: dict[type, Callable[[Any, int], None]] = {
            ControlSettled: self._settled,
            UniverseForced: self._forced,
            Diverged: self._diverged,
        }

    def tick(self, universe: Sequence[NodeId], now: int) -> None:
        """Who joins a market that does not run waits for ever: say so, once, and not before it could have answered."""
        self._alone_since = NEVER if universe else min(self._alone_since, now)
        if now - self._alone_since > _ANSWER_NS and not self._told_alone:
            self._told_alone = True
            self._context.alarm(
                "join-waits",
                "this site joins a market that does not answer: it knows no other receiver's log, and waits",
                "start the market's other nodes; a market that has never run begins with --new, not with --join",
            )

    def _settled(self, effect: ControlSettled, _: int) -> None:
        entry = effect.entry
        is_site = entry.kind in CHANGES
        name = self._context.market.name_of(entry.subject) if is_site else str(entry.subject)
        self.outcomes[entry.kind.name, entry.subject] = effect.outcome
        self._context.log.info("an operator's entry", kind=entry.kind.name, name=name, outcome=effect.outcome.value)

    def _forced(self, effect: UniverseForced, _: int) -> None:
        self.left_out.note(effect.left_out)
        names = ", ".join([self._context.market.name_of(site) for site in effect.universe])
        self._context.alarm(
            "forced",
            f"U is {names} by an operator's word alone, from token {effect.token_number} on",
            "whoever was left out must never run again under its number",
        )

    def _diverged(self, effect: Diverged, _: int) -> None:
        self._context.counters.divergences += 1
        self._context.counters.sequences_diverged += effect.next_sequence - effect.first_sequence
        self._context.alarm(
            "diverged",
            f"sequences {effect.first_sequence} to {effect.next_sequence - 1} went out here, and the ring of epoch"
            f" {effect.epoch} has others: customers may have heard two stories",
            'compare the journals; the policy "majority" cannot lead here',
        )
