"""S1 to S4: what is released, at every site and over all restarts.

The first site to release a stretch of the sequence makes the reference, which is checked message by message;
every other site's stretch is compared with it. In the simulator all sites share the message objects, so that
comparison is a walk over pointers.

Where rings without a majority are allowed, sites may part: the sequences with two contents are counted.

Where S1 is not promised (a gate that a partition can split), each site is a reference of its own, and a site
whose log was cut back is held to S4 alone.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from isocast.checks.facts import (
    Crashed,
    Installed,
    Law,
    Released,
    Replaced,
    Report,
    Restarted,
    Strayed,
    Submitted,
    label,
)
from isocast.checks.view import WINDOW_TOKENS, View, trim
from isocast.terms.ids import NodeId, describe, is_source
from isocast.terms.instants import NEVER
from isocast.wire.packets import Data

__all__ = ["Agreement"]

WINDOW_MESSAGES = 1 << 16
"""Messages of the reference that are kept for a site that lags."""
_PRUNE_EVERY = 64
_SUBMISSIONS_MAX = 1 << 16
"""Submissions of one source that are kept where every site is checked by itself."""
_SKIPPED_MAX = 1 << 10


class _Chunk(NamedTuple):
    first_sequence: int
    messages: tuple[Data, ...]
    token_number: int
    site: NodeId
    earliest: int
    """When the oldest of its messages was submitted."""


class _Order:
    """S2 (no message twice), S3 and S4 along one sequence."""

    def __init__(self, submissions: dict[NodeId, dict[int, Submitted]], report: Report, *, forget: bool) -> None:
        """`forget`: a submission that was found need not be found again."""
        self.last: dict[NodeId, int] = {}
        self._skipped: dict[tuple[NodeId, int], None] = {}
        self._submissions = submissions
        self._report = report
        self._forget = forget

    def take(self, fact: Released, first_sequence: int, messages: tuple[Data, ...], *, ordered: bool = True) -> int:
        """Check the next stretch; when its oldest message was submitted. `ordered`: S2 and S3 count."""
        last, submissions, earliest = self.last, self._submissions, NEVER
        for place, message in enumerate(messages):
            source, number = message.sender, message.number
            fresh = number == last.get(source, 0) + 1
            if fresh:
                last[source] = number
            elif ordered:
                fresh = self._disorder(fact, first_sequence + place, source, number)
            own = submissions.get(source)
            known = None if own is None else own.pop(number, None) if self._forget else own.get(number)
            if known is not None and known.digest == message.digest:
                earliest = min(earliest, known.at)
            elif known is not None or (fresh and not self._too_old(message)):
                self._stranger(fact, first_sequence + place, message, known)
        return earliest

    def _disorder(self, fact: Released, sequence: int, source: NodeId, number: int) -> bool:
        """Report; whether the message is at least a new one."""
        last = self.last.get(source, 0)
        where = (
            f"{describe(fact.site)} released {label(source, number)} as sequence {sequence} (token {fact.token_number})"
        )
        if number > last:
            self._report("S3", fact.at, f"{where}, but of {describe(source)} only {last} messages came before it")
            self.last[source] = number
            for gap in range(max(last + 1, number - _SKIPPED_MAX), number):
                self._skipped[source, gap] = None
            return True
        if (source, number) in self._skipped:
            del self._skipped[source, number]
            self._report("S3", fact.at, f"{where}, after {label(source, last)}")
            return True
        self._report("S2", fact.at, f"{where}, and it had been released before")
        return False

    def _stranger(self, fact: Released, sequence: int, message: Data, known: Submitted | None) -> None:
        where = f"{describe(fact.site)} released {label(message.sender, message.number)} as sequence {sequence}"
        if known is not None:
            was, now = known.digest.hex()[:8], message.digest.hex()[:8]
            self._report("S4", fact.at, f"{where} with content {now}, but what was submitted is {was}")
        else:
            self._report("S4", fact.at, f"{where}, which nobody submitted")

    def _too_old(self, message: Data) -> bool:
        """Whether the submission may have been dropped from memory."""
        return not self._forget and message.number < min(self._submissions.get(message.sender, ()), default=0)


class Agreement:
    """Watches releases against one another and against what was submitted."""

    def __init__(self, law: Law, view: View, report: Report) -> None:
        """Nothing is released yet."""
        self._agree = law.agreement
        self._may_diverge = law.may_diverge
        self._first: dict[int, Data] = {}
        self._divergent: dict[int, None] = {}
        self._view = view
        self._report = report
        self._submissions: dict[NodeId, dict[int, Submitted]] = {}
        self._contents: dict[tuple[NodeId, int], bytes] = {}
        self._excused: dict[NodeId, None] = {}
        self._order = _Order(self._submissions, report, forget=True)
        self._own: dict[NodeId, _Order] = {}
        self._strayed: dict[NodeId, None] = {}
        self._next_sequence: dict[NodeId, int] = dict.fromkeys((*law.universe, *law.parents), 1)
        self._chunks: dict[int, _Chunk] = {}
        self._firsts: list[int] = []
        self._reference_next = 1
        self._kept_messages = 0
        self._pruned_to = 1

    # What the facts say -------------------------------------------------------------------------

    def on_submitted(self, fact: Submitted) -> None:
        """Remember what a source promised; a client that repeats itself changes nothing."""
        content = self._contents.setdefault((fact.source, fact.number), fact.digest)
        if content != fact.digest:
            was, now = content.hex()[:8], fact.digest.hex()[:8]
            text = f"{label(fact.source, fact.number)} is {now}, but was {was} before: a number is used once"
            self._report("S4", fact.at, text)
        trim(self._contents, _SUBMISSIONS_MAX)
        own = self._submissions.get(fact.source)
        if own is None:
            own = self._submissions[fact.source] = {}
        if self._agree:
            if fact.number > self._order.last.get(fact.source, 0):
                own.setdefault(fact.number, fact)
        else:
            own.setdefault(fact.number, fact)
            if len(own) > _SUBMISSIONS_MAX:
                del own[next(iter(own))]

    def on_released(self, fact: Released) -> None:
        """Check one stretch of one site's sequence."""
        if not self._agree:
            self._take_alone(fact)
            return
        self._check_contiguous(fact)
        first, messages = fact.first_sequence, fact.messages
        if first < self._reference_next:
            known = self._chunks.get(first)
            if known is not None and known.messages == messages:
                return
            fresh = first + len(messages) - self._reference_next
            self._compare(fact, messages if fresh <= 0 else messages[:-fresh])
            if fresh <= 0:
                return
            first, messages = self._reference_next, messages[-fresh:]
        self._extend(fact, first, messages)

    def on_installed(self, fact: Installed) -> None:
        """Where S1 is not promised, a site may lose what it has released, be it an empty token, and stand alone."""
        if not self._agree and fact.keep < self._view.site(fact.site).held:
            self._strayed[fact.site] = None

    def on_replaced(self, fact: Replaced) -> None:
        """A site that took a checkpoint over goes on behind it, and nowhere before what it had released."""
        expected = self._next_sequence.get(fact.site, 1)
        self._next_sequence[fact.site] = max(expected, fact.next_sequence)
        if not self._agree:
            self._strayed[fact.site] = None

    def on_strayed(self, fact: Strayed) -> None:
        """A site lost what it had released: never where S1 is promised."""
        if self._agree:
            last = fact.next_sequence - 1
            text = f"{describe(fact.site)} released {fact.first_sequence}..{last}; epoch {fact.epoch} has others there"
            self._report("S1", fact.at, text)
        else:
            self._strayed[fact.site] = None

    def on_crashed(self, fact: Crashed) -> None:
        """A source that is down owes nothing for now."""
        if is_source(fact.node):
            self._excused[fact.node] = None

    def on_restarted(self, fact: Restarted) -> None:
        """A source that still has its outbox owes what is in it."""
        if is_source(fact.node) and fact.disk_kept:
            self._excused.pop(fact.node, None)

    # Comparing ----------------------------------------------------------------------------------

    def _check_contiguous(self, fact: Released) -> None:
        first = fact.first_sequence
        expected = self._next_sequence.get(fact.site)
        if expected is not None and first != expected:
            what = "again from" if first < expected else "onwards from"
            where = f"{what} sequence {first} (token {fact.token_number})"
            self._report("S2", fact.at, f"{describe(fact.site)} released {where} after {expected - 1}")
        self._next_sequence[fact.site] = first + len(fact.messages)

    def _take_alone(self, fact: Released) -> None:
        ordered = fact.site not in self._strayed
        if self._may_diverge:
            self._count_divergent(fact)
        if ordered or fact.first_sequence < self._next_sequence.get(fact.site, 1):
            self._check_contiguous(fact)
        self._next_sequence[fact.site] = fact.first_sequence + len(fact.messages)
        own = self._own.get(fact.site)
        if own is None:
            own = self._own[fact.site] = _Order(self._submissions, self._report, forget=False)
        own.take(fact, fact.first_sequence, fact.messages, ordered=ordered)

    def _count_divergent(self, fact: Released) -> None:
        """Sequences at which two sites have released two messages."""
        for sequence, message in enumerate(fact.messages, fact.first_sequence):
            known = self._first.setdefault(sequence, message)
            if known is not message and not _same(known, message) and sequence not in self._divergent:
                self._divergent[sequence] = None
        trim(self._first, WINDOW_MESSAGES)

    @property
    def divergent(self) -> int:
        """Sequences with two contents; only counted where rings without a majority are allowed."""
        return len(self._divergent)

    def _extend(self, fact: Released, first: int, messages: tuple[Data, ...]) -> None:
        earliest = self._order.take(fact, first, messages)
        self._chunks[first] = _Chunk(first, messages, fact.token_number, fact.site, earliest)
        self._firsts.append(first)
        self._kept_messages += len(messages)
        self._reference_next = first + len(messages)
        if len(self._firsts) % _PRUNE_EVERY == 0:
            self._prune(fact.token_number)

    def _compare(self, fact: Released, messages: tuple[Data, ...]) -> None:
        """Message by message, wherever the stretches of two sites begin and end."""
        sequence = fact.first_sequence
        place = bisect_right(self._firsts, sequence) - 1
        for message in messages:
            while place + 1 < len(self._firsts) and self._firsts[place + 1] <= sequence:
                place += 1
            chunk = self._chunks[self._firsts[place]] if place >= 0 else None
            if chunk is not None and sequence - chunk.first_sequence < len(chunk.messages):
                other = chunk.messages[sequence - chunk.first_sequence]
                if message is not other and not _same(message, other):
                    self._disagree(fact, sequence, message, chunk, other)
                    return
            sequence += 1

    def _disagree(self, fact: Released, sequence: int, message: Data, chunk: _Chunk, other: Data) -> None:
        here, there = label(message.sender, message.number), label(other.sender, other.number)
        if here == there:
            here += f" with content {message.digest.hex()[:8]}"
            there += f" with content {other.digest.hex()[:8]}"
        text = (
            f"sequence {sequence} is {here} at {describe(fact.site)} (token {fact.token_number}, epoch {fact.epoch})"
            f" and {there} at {describe(chunk.site)} (token {chunk.token_number})"
        )
        self._report("S1", fact.at, text)

    def _prune(self, newest_token: int) -> None:
        """Forget what every site has released, and what is too far behind."""
        lowest = min(self._next_sequence.values(), default=1)
        dropped = 0
        for first in self._firsts:
            chunk = self._chunks[first]
            passed = first + len(chunk.messages) <= lowest
            old = chunk.token_number < newest_token - WINDOW_TOKENS or self._kept_messages > WINDOW_MESSAGES
            if not passed and not old:
                break
            if not passed:
                self._pruned_to = first + len(chunk.messages)
            del self._chunks[first]
            self._kept_messages -= len(chunk.messages)
            dropped += 1
        del self._firsts[:dropped]

    # For L1 -------------------------------------------------------------------------------------

    def owed(self, due: int) -> str | None:
        """The oldest submission before `due` that no site has released; only where S1 is promised."""
        if not self._agree:
            return None
        waiting = [
            fact
            for source, own in self._submissions.items()
            if source not in self._excused
            for fact in own.values()
            if fact.at < due
        ]
        if not waiting:
            return None
        oldest = min(waiting)
        return (
            f"{label(oldest.source, oldest.number)}, submitted at {oldest.at / 1e9:.6f} s, and {len(waiting) - 1} more"
        )

    def missing(self, site: NodeId, due: int) -> str | None:
        """What was submitted before `due` and is not released at a site, though it should be."""
        if not self._agree:
            return self._missing_alone(site, due)
        reached = self._next_sequence.get(site, 1)
        if reached < self._pruned_to:
            return f"everything from sequence {reached} on; others are beyond {self._pruned_to}"
        for chunk in self._chunks.values():
            end = chunk.first_sequence + len(chunk.messages)
            if chunk.earliest < due and reached < end:
                return f"sequences {max(reached, chunk.first_sequence)} to {end - 1} (token {chunk.token_number})"
        return None

    def _missing_alone(self, site: NodeId, due: int) -> str | None:
        if site in self._strayed:
            return None
        own = self._own.get(site)
        for source, submitted in self._submissions.items():
            last = own.last.get(source, 0) if own else 0
            for fact in submitted.values():
                if fact.at < due and fact.number > last and source not in self._excused:
                    return label(source, fact.number)
        return None


def _same(one: Data, other: Data) -> bool:
    """The same message; a source that sends it again may have a new base and a new epoch by then."""
    return one.sender == other.sender and one.number == other.number and one.payload == other.payload
