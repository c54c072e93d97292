"""S16, F6, and S1, S2, S4, S12, S14 and L5 of narrow stripes: their senders, and the customers who hear them.

S1   all senders make the same packet under one number, and customers get what they made
S2   a sender makes each number once and sends it once, restarts included; a complete customer's numbers are contiguous
S4   a customer gets nothing that no sender made, and waits for nothing that no sender made
S12  no packet leaves before what it carries may be released
S14  what a complete customer leaves out, no sender that it can ask has
S16  a stripe carries what was released of its symbols, in order and each once; only a price that a newer one of its
     symbol follows may be missing
F6   a stripe's IP bytes in any token period are within its budget, by its sender's clock
L5   in the end the newest price of each symbol, and everything else, is on its stripe, and complete customers have it
L6   the same, where the customer was down meanwhile

Where rings may diverge nothing is compared.
"""

from __future__ import annotations

from collections import deque

from isocast.checks.facts import (
    EndOfRun,
    Law,
    Released,
    Report,
    Restarted,
    StripeArchived,
    StripeDatagramSent,
    StripeDelivered,
    StripeLeftOut,
)
from isocast.terms.ids import NodeId, describe
from isocast.terms.market import EventKind
from isocast.wire.limits import EVENT_BYTES

__all__ = ["NarrowChecker"]

_SYMBOL = slice(8, 16)
_CARRIED = (EventKind.TRADE, EventKind.STATUS)


def _events(payload: bytes) -> list[bytes]:
    events = [payload[at : at + EVENT_BYTES] for at in range(0, len(payload), EVENT_BYTES)]
    return [event for event in events if event[0] in _CARRIED]


def _content(event: bytes) -> tuple[int, bytes]:
    """What a stripe must say of an event: its kind, and a trade's id or a status."""
    return event[0], event[-8:] if event[0] == EventKind.TRADE else event[28:32]


class _Symbol:
    """What was released of one symbol, and how far its stripe is."""

    def __init__(self) -> None:
        self.released: list[tuple[tuple[int, bytes], int]] = []
        """Content, and the instant before which it may not leave."""
        self.carried = 0

    @property
    def left(self) -> list[tuple[int, bytes]]:
        """What the stripe has not carried."""
        return [content for content, _ in self.released[self.carried :]]


class _Customer:
    """What one customer got of a session."""

    def __init__(self) -> None:
        self.following = 0
        self.left_out: list[tuple[int, int]] = []

    def reach(self, number: int) -> int:
        """The first number from here on that was not left out: runs may follow one another."""
        for first, last in sorted(self.left_out):
            if first <= number <= last:
                number = last + 1
        return number


class NarrowChecker:
    """Watches senders and customers of narrow stripes."""

    def __init__(self, law: Law, report: Report) -> None:
        """Nothing was made."""
        self._law = law
        self._report = report
        self._symbols: dict[bytes, _Symbol] = {}
        self._next_sequence = 1
        self._made: dict[tuple[bytes, int], bytes] = {}
        """The messages of each session, by number."""
        self._next: dict[bytes, int] = {}
        """The number that nobody has made."""
        self._ready: dict[tuple[bytes, int], int] = {}
        """When the packet that begins with a number may leave at the earliest."""
        self._archived: dict[tuple[NodeId, bytes], int] = {}
        self._sent: dict[tuple[NodeId, bytes], dict[int, None]] = {}
        self._recent: dict[tuple[NodeId, int], deque[tuple[int, int]]] = {}
        self._customers: dict[tuple[NodeId, bytes], _Customer] = {}
        self._returned: dict[NodeId, None] = {}

    def on_released(self, fact: Released) -> None:
        """What nobody released before is what the stripes must carry."""
        due = fact.instant + self._law.timing.release_delay_ns
        for sequence, message in enumerate(fact.messages, fact.first_sequence):
            if sequence != self._next_sequence:
                continue
            self._next_sequence += 1
            for event in _events(message.payload):
                self._symbols.setdefault(event[_SYMBOL], _Symbol()).released.append((_content(event), due))

    # Senders ------------------------------------------------------------------------------------

    def on_archived(self, fact: StripeArchived) -> None:
        """A sender made a packet."""
        who, session = describe(fact.node), fact.session
        expected = self._archived.get((fact.node, session), 1)
        if fact.number < expected:
            self._report("S2", fact.at, f"{who} makes number {fact.number} of stripe {fact.stripe} again")
        self._archived[fact.node, session] = max(expected, fact.number + len(fact.messages))
        if not self._law.agreement:
            return
        for number, message in enumerate(fact.messages, fact.number):
            if self._made.setdefault((session, number), message) != message:
                self._report("S1", fact.at, f"{who} makes another number {number} of stripe {fact.stripe} than others")
                return
        if fact.number == self._next.get(session, 1):
            self._next[session] = fact.number + len(fact.messages)
            self._carry(fact)

    def _carry(self, fact: StripeArchived) -> None:
        """The next packet of a stripe: its events must be the next ones of their symbols."""
        ready = 0
        for event in _events(fact.events or b""):
            name = event[_SYMBOL]
            symbol, text = self._symbols.setdefault(name, _Symbol()), name.rstrip(b"\0").decode("ascii")
            if self._law.stripes.get(name, self._law.stripes.get(b"")) != fact.stripe:
                self._report("S16", fact.at, f"{text} is on stripe {fact.stripe}, which is not its own")
                return
            left, content = symbol.left, _content(event)
            if content not in left:
                what = f"stripe {fact.stripe} carries an event of {text} in number {fact.number}"
                self._report("S16", fact.at, f"{what} that was not released, or not behind the one before")
                return
            place = left.index(content)
            if any(missing[0] != EventKind.TRADE for missing in left[:place]):
                self._report("S16", fact.at, f"stripe {fact.stripe} leaves out an event of {text} that is no price")
                return
            if place and not any(newer[0] == EventKind.TRADE for newer in left[place:]):
                self._report("S16", fact.at, f"stripe {fact.stripe} leaves out the newest price of {text}")
                return
            ready = max(ready, symbol.released[symbol.carried + place][1])
            symbol.carried += place + 1
        self._ready[fact.session, fact.number] = ready

    def on_sent(self, fact: StripeDatagramSent) -> None:
        """A datagram left: once, in time, and within the budget."""
        who = describe(fact.node)
        if fact.count:
            sent = self._sent.setdefault((fact.node, fact.session), {})
            if fact.number in sent:
                self._report("S2", fact.at, f"{who} sends number {fact.number} of stripe {fact.stripe} again")
            sent[fact.number] = None
            if fact.clock < self._ready.get((fact.session, fact.number), 0):
                text = f"{who} sends number {fact.number} of stripe {fact.stripe} before it may be released"
                self._report("S12", fact.at, text)
        recent = self._recent.setdefault((fact.node, fact.stripe), deque())
        while recent and recent[0][0] + self._law.timing.token_period_ns <= fact.clock:
            recent.popleft()
        recent.append((fact.clock, fact.ip_bytes))
        total = sum([size for _, size in recent])
        if total > fact.budget:
            text = f"{who} sends {total} IP bytes of stripe {fact.stripe} in a token period, more than {fact.budget}"
            self._report("F6", fact.at, text)

    # Customers ----------------------------------------------------------------------------------

    def on_delivered(self, fact: StripeDelivered) -> None:
        """Messages of a stripe, as a customer gets them."""
        who, known = describe(fact.node), self._customers.setdefault((fact.node, fact.session), _Customer())
        begins = known.following or (1 if fact.node in self._law.narrow_complete else fact.first)
        if not begins <= fact.first <= known.reach(begins):
            text = f"{who} goes on with number {fact.first} of stripe {fact.stripe}, and {begins} is next"
            self._report("S2", fact.at, text)
        for number, message in enumerate(fact.messages, fact.first):
            made = self._made.get((fact.session, number))
            if not self._law.agreement:
                continue
            if made is None:
                self._report("S4", fact.at, f"{who} has number {number} of stripe {fact.stripe}, which nobody made")
                return
            if made != message:
                self._report("S1", fact.at, f"{who} has another number {number} of stripe {fact.stripe} than was made")
                return
        known.following = fact.first + len(fact.messages)

    def on_left_out(self, fact: StripeLeftOut) -> None:
        """A customer goes on without some messages."""
        known = self._customers.setdefault((fact.node, fact.session), _Customer())
        known.left_out.append((fact.first, fact.last))
        if self._law.agreement and (fact.session, fact.last) not in self._made:
            text = f"{describe(fact.node)} gives up number {fact.last} of stripe {fact.stripe}, which nobody made"
            self._report("S4", fact.at, text)
        if fact.kept:
            text = f"{describe(fact.node)} leaves out numbers {fact.first}..{fact.last} of stripe {fact.stripe}"
            self._report("S14", fact.at, f"{text}, and a sender that it can ask has them")

    def on_restarted(self, fact: Restarted) -> None:
        """A customer remembers nothing; a sender does, unless it lost its disk."""
        self._returned[fact.node] = None
        for key in [key for key in self._customers if key[0] == fact.node]:
            del self._customers[key]
        if not fact.disk_kept:
            for known in (self._archived, self._sent):
                for key in [key for key in known if key[0] == fact.node]:
                    known.pop(key)

    # At the end ---------------------------------------------------------------------------------

    def finish(self, end: EndOfRun) -> None:
        """Customers that run at the end must have everything."""
        if not self._law.agreement or not any(node in self._law.stripe_senders for node in end.edge):
            return
        for name, symbol in self._symbols.items():
            left = symbol.left
            if left:
                text = name.rstrip(b"\0").decode("ascii")
                self._report("L5", end.now, f"no stripe carries the last {len(left)} events of {text}")
                break
        for node in end.edge:
            if node in self._law.narrow_complete:
                self._finish_customer(node, end.now)

    def _finish_customer(self, node: NodeId, now: int) -> None:
        name = "L6" if node in self._returned else "L5"
        for session, following in self._next.items():
            known = self._customers.get((node, session), _Customer())
            told = max([last + 1 for _, last in known.left_out], default=1)
            if max(known.following, told) < following:
                text = f"{describe(node)} has nothing from number {max(known.following, 1)} of session"
                self._report(name, now, f"{text} {session.decode('ascii')} on; {following - 1} were made")
