"""The owner's part: at T_t acknowledge what waits, commit to a nonce and reveal one (§5; protocol §2, §3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from isocast.ring.effects import RingSuspected
from isocast.ring.ledger import LogEntry
from isocast.ring.release import groups_floor, possession_floor
from isocast.ring.settings import OrderRule, RingSettings, Schedule
from isocast.ring.token import choose, grants, nonce, runs_of
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Data, NewRing, Suspicion, Token, digest_of

if TYPE_CHECKING:
    from isocast.ring.receiver import Receiver

__all__ = ["Issuer"]


class Issuer:
    """Issues this site's tokens, and checks that other owners reveal what they committed to."""

    def __init__(self, site: NodeId, settings: RingSettings, secret: bytes) -> None:
        """Outside any ring."""
        self.site = site
        self.slot: int | None = None
        """This site's next token."""
        self._settings = settings
        self._timing = settings.timing
        self._secret = secret
        self._schedule: Schedule | None = None
        self._commits: dict[NodeId, bytes] = {}

    def enter(self, ring: NewRing, schedule: Schedule, held: int) -> None:
        """A new epoch: the first cycle's nonces were committed in the JOINs."""
        self._schedule = schedule
        self._commits = dict(zip(ring.ring, ring.commits, strict=True))
        self.slot = schedule.next_slot(self.site, held + 1)

    def commit_for(self, ballot: object) -> bytes:
        """What this site commits to when it joins a ballot."""
        return digest_of(nonce(self._secret, ballot, 0))

    def saw(self, token: Token) -> None:
        """A token became part of the log: its owner's next nonce is committed."""
        self._commits[token.sender] = token.commit
        if self.slot is not None and self._schedule is not None and token.token_number >= self.slot:
            self.slot = self._schedule.next_slot(self.site, token.token_number + 1)

    def honest(self, token: Token) -> bool:
        """Whether the owner reveals the nonce that it committed to one cycle before.

        A site that took a checkpoint over knows no commits of the cycle before it; everybody else has looked.
        """
        if self._settings.order is not OrderRule.SHUFFLE:
            return True
        return self._keeps_word(token, self._commits)

    @staticmethod
    def _keeps_word(token: Token, commits: Mapping[NodeId, bytes]) -> bool:
        commit = commits.get(token.sender)
        return commit is None or commit == digest_of(token.reveal)

    def liar(self, tokens: Iterable[Token], epoch: Epoch) -> NodeId | None:
        """Who is not honest in what is to continue this site's log of an epoch; None if nobody is known to lie."""
        if self._settings.order is not OrderRule.SHUFFLE:
            return None
        commits = dict(self._commits)
        for token in tokens:
            if token.epoch != epoch:
                break
            if not self._keeps_word(token, commits):
                return token.sender
            commits[token.sender] = token.commit
        return None

    def unknown(self, owner: NodeId) -> None:
        """This site does not have the token in which an owner committed to its next nonce."""
        self._commits.pop(owner, None)

    def next_deadline(self, held: int, now: int) -> int:
        """T_t of our slot, and while we lack something T_t+P, when we give it up."""
        if self.slot is None or self._schedule is None:
            return NEVER
        instant = self._schedule.instant(self.slot)
        if now < instant or held == self.slot - 1:
            return instant
        return instant + self._timing.process_ns + 1

    def due(self, receiver: Receiver, now: int) -> LogEntry | RingSuspected | None:
        """The token, if its instant has come and the rules allow it; a suspicion of ourselves if they do not."""
        slot, schedule = self.slot, self._schedule
        if slot is None or schedule is None or now < schedule.instant(slot):
            return None
        late = now > schedule.instant(slot) + self._timing.process_ns
        ring = receiver.ring
        if ring is not None and self.may_issue(receiver, slot, late=late):
            return self._entry(receiver, ring, slot, schedule, now)
        if not late:
            return None
        # A site that was away has missed more slots than this one: say so once. If it is the clock that is ahead, the
        # slots that are skipped here are still to come: `set_back` takes them up again.
        self.slot = schedule.next_slot(self.site, max(slot + 1, schedule.last_due(now - self._timing.process_ns)))
        reason = Suspicion.BEHIND if receiver.held != slot - 1 else Suspicion.LATE
        return RingSuspected(slot, self.site, reason)

    def set_back(self, held: int) -> None:
        """The clock was set back: slots that it seemed to have missed may be still to come.

        Whatever was issued is held, so the next slot is the first of ours that is not.
        """
        if self._schedule is not None:
            self.slot = self._schedule.next_slot(self.site, held + 1)

    def may_issue(self, receiver: Receiver, slot: int, *, late: bool) -> bool:
        """Only complete up to t-1, and on time: a late owner's token would race the others' suspicion."""
        return receiver.held == slot - 1 and not late

    def stamp(self, slot: int, schedule: Schedule, now: int) -> int:  # noqa: ARG002
        """T_t: the scheduled instant, the same whoever sends and however late."""
        return schedule.instant(slot)

    def reveal(self, epoch: object, place: int) -> bytes:
        """The nonce that this site committed to for its token of that place in the epoch."""
        return nonce(self._secret, epoch, place)

    def batch(self, receiver: Receiver) -> list[Data]:
        """Everything that waits and may be acknowledged, in order of arrival."""
        return choose(receiver.ledger.waiting, receiver.ledger.next_number, self._settings.batch_max)

    def _entry(self, receiver: Receiver, ring: NewRing, slot: int, schedule: Schedule, now: int) -> LogEntry:
        ledger = receiver.ledger
        chosen = self.batch(receiver)
        runs, interleave = runs_of(chosen)
        if self._settings.order is OrderRule.SHUFFLE:
            interleave = ()
        demand: dict[NodeId, int] = {}
        if len(ledger.waiting) > self._settings.batch_max:
            for source, _ in ledger.waiting:
                demand[source] = demand.get(source, 0) + 1
        place = (slot - schedule.first_token) // schedule.size
        secstable = receiver.group_floor
        everywhere = min(
            possession_floor(slot, schedule), groups_floor({**receiver.reports, self.site: secstable}, schedule)
        )
        token = Token(
            self._settings.stripe,
            receiver.accepted,
            self.site,
            slot,
            self.stamp(slot, schedule, now),
            ledger.head.next_sequence,
            runs,
            interleave,
            receiver.membership.entries(receiver, ring, slot),
            digest_of(nonce(self._secret, receiver.accepted, place + 1)),
            self.reveal(receiver.accepted, place),
            ledger.collected if ring.uncertified else max(everywhere, ledger.collected),
            secstable,
            grants(demand, self._settings.batch_max),
            ledger.digest,
        )
        return ledger.entry(token, ledger.waiting, ledger.head.reveal)
