"""One site's part in planned changes: who shall be on the ring, and what an operator asked for (protocol §5).

Planned changes travel the same path as failures. Whoever shall leave the ring is named to the servers with reason
LEAVING, again and again while it is there; whoever may come in says OUTSIDE. A change of U is a control entry in this
site's next token, one at a time; what became of it is told by `ControlSettled`.
"""

from __future__ import annotations

from isocast.ring.effects import ControlOutcome, ControlSettled, ReceiverEffect, RingSuspected
from isocast.ring.ledger import CHANGES, UNIVERSE_MIN, Ledger
from isocast.ring.notary import Notary
from isocast.ring.orders import is_within
from isocast.ring.release import Certificates
from isocast.ring.settings import Schedule
from isocast.terms.ids import NodeId
from isocast.wire.limits import MAX_CONTROL_ENTRIES
from isocast.wire.orders import ORDERED, force_entry, order_number
from isocast.wire.packets import ControlEntry, ControlKind, NewRing, Suspicion, Token

__all__ = ["Membership", "forced_rightly"]


def forced_rightly(token: Token, ring: NewRing) -> bool:
    """Whether a token forces U if it must, as its ring says, and only then: it is the first of a forced ring."""
    forced = [entry for entry in token.control if entry.kind is ControlKind.FORCE_UNIVERSE]
    if ring.forced and token.token_number == ring.first_token:
        return forced == [force_entry(ring.ballot.server, ring.universe, ring.order)]
    return not forced


class Membership:
    """What a site wants for itself, sees of others, and was asked to put into the sequence."""

    changes_max = 1
    """Of U, in one token."""

    def __init__(
        self,
        site: NodeId,
        ledger: Ledger,
        certificates: Certificates,
        out: list[ReceiverEffect],
        notary: Notary | None = None,
        stripe: int = 0,
    ) -> None:
        """A site that starts wants to be on the ring. What became of an entry is told in `out`.

        `notary` judges what an operator ordered for this stripe.
        """
        self._notary = notary or Notary()
        self._stripe = stripe
        self.leaving = False
        """Whether an operator wants this site off the ring."""
        self.waiting: list[ControlEntry] = []
        """Entries of the network's own that wait for this site's token."""
        self._site = site
        self._ledger = ledger
        self._certificates = certificates
        self._out = out
        self._issued: dict[int, tuple[ControlEntry, ...]] = {}
        """By token: what this site put into the sequence, and no majority has certified yet."""

    # The ring -----------------------------------------------------------------------------------

    def complaints(self, schedule: Schedule, token_number: int) -> list[RingSuspected]:
        """Who shall be off the ring and is on it; or that this site may come in."""
        universe = frozenset(self.universe())
        gone = [site for site in schedule.ring if site not in universe]
        if self._site not in schedule.ring:
            outside = self._site in self._ledger.universe and not self.leaving
            return [RingSuspected(token_number, self._site, Suspicion.OUTSIDE)] if outside else []
        if self.leaving and self._site not in gone:
            gone.append(self._site)
        return [RingSuspected(token_number, site, Suspicion.LEAVING) for site in gone]

    def universe(self) -> tuple[NodeId, ...]:
        """U as far as it is certified."""
        return self._ledger.uncertified_change(self._certificates.certified)[1]

    # The sequence -------------------------------------------------------------------------------

    def request(self, entry: ControlEntry, ring: NewRing | None) -> None:
        """Put an entry into this site's next token, or say why not."""
        if entry.kind is ControlKind.FORCE_UNIVERSE:
            self._out.append(ControlSettled(entry, ControlOutcome.NOT_HERE))
        elif ring is not None and self._site not in ring.ring:
            self._out.append(ControlSettled(entry, ControlOutcome.OFF_RING))
        elif entry not in self.waiting:
            if not self._is_ordered(entry):
                self._out.append(ControlSettled(entry, ControlOutcome.NOT_ORDERED))
                return
            self.waiting.append(entry)
            self.waiting.sort(key=order_number)

    def _is_ordered(self, entry: ControlEntry) -> bool:
        """Nobody else would take a token that carries what no operator ordered."""
        return entry.kind not in ORDERED or self._notary.is_ordered(entry, self._stripe, self._ledger.held + 1)

    def entries(self, ring: NewRing, token_number: int, instant: int = 0) -> tuple[ControlEntry, ...]:
        """What this site's token carries: U changes by one site, only on top of a certified token of this epoch.

        Orders count in their numbers' order, so one that has to wait holds up those after it.
        """
        self._drop_stale(instant)
        chosen: list[ControlEntry] = []
        if ring.forced and token_number == ring.first_token:
            chosen.append(force_entry(ring.ballot.server, ring.universe, ring.order))
        settled, changes, held_up = self.settled(ring), 0, False
        for entry in self.waiting[:MAX_CONTROL_ENTRIES]:
            if entry.kind in CHANGES:
                outcome = self._needless(entry, self._ledger.universe) if settled else None
                if outcome is not None:
                    self._out.append(ControlSettled(entry, outcome))
                    self.waiting.remove(entry)
                    continue
                if not settled or ring.uncertified or changes == self.changes_max:
                    held_up = True
                    continue
                changes += 1
            if entry.order and held_up:
                continue
            chosen.append(entry)
        for entry in chosen:
            if entry in self.waiting:
                self.waiting.remove(entry)
        if chosen:
            self._issued[token_number] = tuple(chosen)
        return tuple(chosen)

    def _drop_stale(self, instant: int) -> None:
        """An order that a newer one overtook, or whose time is over, counts no more: it takes another."""
        last = self._ledger.head.order
        stale = [entry for entry in self.waiting if entry.order and not is_within(entry, last, instant)]
        for entry in stale:
            self.waiting.remove(entry)
            self._out.append(ControlSettled(entry, ControlOutcome.STALE))

    def settled(self, ring: NewRing) -> bool:
        """Whether U is what a majority has certified, in this epoch: only then may it change."""
        certified = self._certificates.certified
        return certified >= ring.first_token and not self._ledger.uncertified_change(certified)[0]

    @staticmethod
    def _needless(entry: ControlEntry, universe: tuple[NodeId, ...]) -> ControlOutcome | None:
        """Why a change would change nothing."""
        if (entry.kind is ControlKind.ADD_SITE) == (entry.subject in universe):
            return ControlOutcome.ALREADY
        if entry.kind is ControlKind.REMOVE_SITE and len(universe) <= UNIVERSE_MIN:
            return ControlOutcome.TOO_FEW
        return None

    def certified(self) -> None:
        """Say what is done."""
        while self._issued and (number := min(self._issued)) <= self._certificates.certified:
            for entry in self._issued.pop(number):
                if entry.kind is not ControlKind.FORCE_UNIVERSE:
                    self._out.append(ControlSettled(entry, ControlOutcome.DONE))

    def cut_back(self, token: Token) -> None:
        """A token of this site's is no longer part of the log: what an operator asked for must not be lost with it."""
        self._issued.pop(token.token_number, None)
        self.waiting.extend([entry for entry in token.control if entry.kind is not ControlKind.FORCE_UNIVERSE])

    def enter(self, ring: NewRing) -> None:
        """On a ring that this site is not on, what waits for its token waits in vain: another must be asked."""
        if self._site not in ring.ring:
            self._out.extend([ControlSettled(entry, ControlOutcome.OFF_RING) for entry in self.waiting])
            self.waiting.clear()
