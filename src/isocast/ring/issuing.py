"""The owner's part: at T_t acknowledge what waits, commit to a nonce and reveal one (§5; protocol §2, §3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isocast.ring.disclosures import DisclosureBook
from isocast.ring.effects import RingSuspected
from isocast.ring.ledger import Ledger, LogEntry
from isocast.ring.membership import Membership
from isocast.ring.notary import Notary
from isocast.ring.release import GroupReports, possession_floor
from isocast.ring.settings import OrderRule, RingSettings, Schedule
from isocast.ring.token import choose, grants, nonce, runs_of
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import NEVER
from isocast.wire.packets import Data, NewRing, Suspicion, Token, short_digest_of

__all__ = ["Issuer"]


class Issuer:
    """Issues this site's tokens, and checks that other owners reveal what they committed to."""

    def __init__(
        self,
        site: NodeId,
        settings: RingSettings,
        secret: bytes,
        ledger: Ledger,
        membership: Membership,
        reports: GroupReports,
        notary: Notary,
        disclosures: DisclosureBook | None = None,
    ) -> None:
        """Outside any ring. A token continues `ledger`, and carries what the others give it."""
        self._disclosures = disclosures
        self._notary = notary
        self.site = site
        self.slot: int | None = None
        """This site's next token."""
        self._settings = settings
        self._timing = settings.timing
        self._secret = secret
        self._ledger = ledger
        self._membership = membership
        self._reports = reports
        self._ring: NewRing | None = None
        self._schedule: Schedule | None = None
        self._commits: dict[NodeId, bytes] = {}

    def enter(self, ring: NewRing, schedule: Schedule) -> None:
        """A new epoch: the first cycle's nonces were committed in the JOINs."""
        self._ring, self._schedule = ring, schedule
        self._commits = dict(zip(ring.ring, ring.commits, strict=True))
        self._resume()

    def take_over(self) -> None:
        """The log goes on behind another site's checkpoint."""
        self._resume()
        self.forget_unseen()

    def _resume(self) -> None:
        """The next slot is our first behind the tokens that are held: all that were issued are."""
        if self._schedule is not None:
            self.slot = self._schedule.next_slot(self.site, self._ledger.held + 1)

    def commit_for(self, ballot: object) -> bytes:
        """What this site commits to when it joins a ballot."""
        return short_digest_of(nonce(self._secret, ballot, 0))

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
        return commit is None or commit == short_digest_of(token.reveal)

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

    def forget_unseen(self) -> None:
        """What was committed in tokens that this site does not have is not known to it."""
        schedule, ledger = self._schedule, self._ledger
        if schedule is None:
            return
        for owner in schedule.ring:
            last = (schedule.next_slot(owner, ledger.held + 1) or 0) - schedule.size
            if last >= schedule.first_token and last not in ledger.entries:
                self._commits.pop(owner, None)

    def next_deadline(self, now: int) -> int:
        """T_t of our slot, and while we lack something T_t+P, when we give it up."""
        if self.slot is None or self._schedule is None:
            return NEVER
        instant = self._schedule.instant(self.slot)
        if now < instant or self._ledger.held == self.slot - 1:
            return instant
        return instant + self._timing.process_ns + 1

    def due(self, now: int) -> LogEntry | RingSuspected | None:
        """The token, if its instant has come and the rules allow it; a suspicion of ourselves if they do not."""
        slot, schedule, ring = self.slot, self._schedule, self._ring
        if slot is None or schedule is None or ring is None or now < schedule.instant(slot):
            return None
        late = now > schedule.instant(slot) + self._timing.process_ns
        if self.may_issue(slot, late=late):
            return self._entry(ring, slot, schedule, now)
        if not late:
            return None
        # A site that was away has missed more slots than this one: say so once. If it is the clock that is ahead, the
        # slots that are skipped here are still to come: `set_back` takes them up again.
        self.slot = schedule.next_slot(self.site, max(slot + 1, schedule.last_due(now - self._timing.process_ns)))
        reason = Suspicion.BEHIND if self._ledger.held != slot - 1 else Suspicion.LATE
        return RingSuspected(slot, self.site, reason)

    def set_back(self) -> None:
        """The clock was set back: slots that it seemed to have missed may be still to come."""
        self._resume()

    def may_issue(self, slot: int, *, late: bool) -> bool:
        """Only complete up to t-1, and on time: a late owner's token would race the others' suspicion."""
        return self._ledger.held == slot - 1 and not late

    def stamp(self, slot: int, schedule: Schedule, now: int) -> int:  # noqa: ARG002
        """T_t: the scheduled instant, however late the token is sent."""
        return schedule.instant(slot)

    def reveal(self, epoch: object, place: int) -> bytes:
        """The nonce that this site committed to for its token of that place in the epoch."""
        return nonce(self._secret, epoch, place)

    def batch(self) -> list[Data]:
        """Everything that waits and may be acknowledged, in order of arrival."""
        return choose(self._ledger.waiting, self._ledger.next_number, self._settings.batch_max)

    def _entry(self, ring: NewRing, slot: int, schedule: Schedule, now: int) -> LogEntry:
        ledger, reports = self._ledger, self._reports
        chosen = self.batch()
        runs, interleave = runs_of(chosen)
        if self._settings.order is OrderRule.SHUFFLE:
            interleave = ()
        demand: dict[NodeId, int] = {}
        if len(ledger.waiting) > self._settings.batch_max:
            for source, _ in ledger.waiting:
                demand[source] = demand.get(source, 0) + 1
        place = (slot - schedule.first_token) // schedule.size
        everywhere = min(possession_floor(slot, schedule), reports.floor_with_own(self.site, schedule))
        token = Token(
            self._settings.stripe,
            ring.ballot,
            self.site,
            slot,
            self.stamp(slot, schedule, now),
            ledger.head.next_sequence,
            runs,
            interleave,
            self._membership.entries(ring, slot, schedule.instant(slot)),
            short_digest_of(nonce(self._secret, ring.ballot, place + 1)),
            self.reveal(ring.ballot, place),
            self._known_stable() if ring.uncertified else max(everywhere, self._known_stable()),
            reports.own,
            grants(demand, self._settings.batch_max),
            ledger.digest,
            disclosures=() if self._disclosures is None else self._disclosures.due(slot),
        )
        return ledger.entry(self._notary.sign(token), ledger.waiting, ledger.head.reveal)

    def _known_stable(self) -> int:
        """What everybody held before this epoch: this site has let it go, and the log says that it was stable.

        A disk keeps less than memory: what it let go was released, and a site that is away may still lack it.
        """
        ledger = self._ledger
        newest = ledger.entries.get(ledger.held)
        return 0 if newest is None else min(ledger.collected, newest.token.stable)
