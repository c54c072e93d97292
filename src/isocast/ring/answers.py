"""One aggregated request, and what answers it (protocol §2 and §3).

A site that has the token names the messages it lacks. A site without the token cannot know what it lacks: it
names what it holds, and whoever has the token sends the difference. Either way one request and its answers
recover both.

A request is small and its answer may be megabytes, so a request that somebody recorded and repeats must not be
answered again and again: `Answered` bounds what anybody gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from isocast.ring.ledger import LogEntry
from isocast.terms.ids import NodeId
from isocast.wire.limits import HOLDING_BYTES, MAX_HOLDING_BITS, MAX_UDP, MAX_WHOLE_TOKEN
from isocast.wire.packets import Holding, Nack, Repairable, Token, TokenPart
from isocast.wire.token_body import split_token, token_body

__all__ = ["ANSWERS_MAX", "Answered", "answers_to", "as_packets", "holdings"]

ANSWERS_MAX = 4_096
"""Repairs for one request: 4,096 of 1,472 bytes are 6 MB, half a second of 100 Mb/s; the next request goes on."""
_BITMAP_BYTES = MAX_UDP - 1_024
"""For all holdings of one NACK; the rest is frame, fixed fields and the map of parts."""


class Answered:
    """What was answered in the present half of a retry interval, and with how many packets.

    A site asks for the same again after a whole interval, so it is never one that waits in vain.
    """

    def __init__(self, retry_ns: int) -> None:
        """`retry_ns`: between two requests of one site for the same."""
        self._span_ns = max(retry_ns // 2, 1)
        self._span = 0
        self._requests: set[tuple[int, ...]] = set()
        self._packets: dict[NodeId, int] = {}

    def admits(self, site: NodeId, request: tuple[int, ...], now: int) -> bool:
        """Whether to answer: not the same twice, and nobody without end."""
        span = now // self._span_ns
        if span != self._span:
            self._span = span
            self._requests.clear()
            self._packets.clear()
        asked = (site, *request)
        if asked in self._requests or self._packets.get(site, 0) >= ANSWERS_MAX:
            return False
        self._requests.add(asked)
        return True

    def count(self, site: NodeId, packets: int) -> None:
        """So many packets went to a site."""
        self._packets[site] = self._packets.get(site, 0) + packets


def holdings(labels: Iterable[tuple[NodeId, int]]) -> tuple[Holding, ...]:
    """Labels as bitmaps per source, as many as fit one NACK; the next attempt names the rest."""
    numbers: dict[NodeId, list[int]] = {}
    for source, number in labels:
        numbers.setdefault(source, []).append(number)
    named: list[Holding] = []
    budget = _BITMAP_BYTES
    for source, unsorted in numbers.items():
        for holding in _bitmaps(source, sorted(unsorted)):
            budget -= HOLDING_BYTES + (holding.bitmap.bit_length() + 7) // 8
            if budget < 0:
                return tuple(named)
            named.append(holding)
    return tuple(named)


def _bitmaps(source: NodeId, numbers: list[int]) -> list[Holding]:
    """Ascending numbers of one source, in as few bitmaps as their length allows."""
    found: list[Holding] = []
    first, bitmap = numbers[0], 0
    for number in numbers:
        if number - first >= MAX_HOLDING_BITS:
            found.append(Holding(source, first, bitmap))
            first, bitmap = number, 0
        bitmap |= 1 << (number - first)
    found.append(Holding(source, first, bitmap))
    return found


def _named(listed: tuple[Holding, ...]) -> Mapping[tuple[NodeId, int], None]:
    return {
        (holding.source, holding.first + bit): None
        for holding in listed
        for bit in range(holding.bitmap.bit_length())
        if holding.bitmap >> bit & 1
    }


def as_packets(token: Token) -> tuple[Token | TokenPart, ...]:
    """A token as it travels: whole, or in parts when it is too large for a datagram."""
    return (token,) if len(token_body(token)) <= MAX_WHOLE_TOKEN else split_token(token)


def answers_to(nack: Nack, entry: LogEntry) -> list[Repairable]:
    """What the asking site lacks of a token, one packet each."""
    named = _named(nack.listed)
    answers: list[Repairable] = []
    if nack.has_token:
        answers.extend([m for m in entry.messages if (m.sender, m.number) in named])
        return answers[:ANSWERS_MAX]
    parts = enumerate(as_packets(entry.token))
    answers.extend([packet for place, packet in parts if not nack.parts_held >> place & 1])
    answers.extend([m for m in entry.messages if (m.sender, m.number) not in named])
    return answers[:ANSWERS_MAX]
