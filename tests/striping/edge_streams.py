"""Streams for the edge: tokens of random events, cut into parts, and what their packets must be like."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from isocast.striping.edge import EdgeSettings, EdgeStriper
from isocast.striping.edge_queue import EdgePacket
from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.released import ReleasedPart
from isocast.terms.instants import MILLISECOND
from isocast.terms.market import EventFlag, EventKind
from isocast.wire.events import EVENT_DTYPE, EventArray, are_events
from isocast.wire.limits import EVENT_BYTES

PERIOD = 100 * MILLISECOND
DELAY = 130 * MILLISECOND
SETTINGS = EdgeSettings(PERIOD, DELAY)
KINDS = (EventKind.QUOTE, EventKind.QUOTE, EventKind.QUOTE, EventKind.TRADE, EventKind.TRADE, EventKind.ORDER,
         EventKind.STATUS, EventKind.CORRECTION, EventKind.TRADE_CANCEL, EventKind.CANCEL)  # fmt: skip
SYMBOLS = tuple(f"S{number}" for number in range(12))
RATE = 64_000
"""800 bytes in a token period."""


def plan_of(version: int, *groups: Sequence[str], rate: int = RATE, first: int = 1) -> StripePlan:
    """A stripe for each group, and a spare one with the number 99."""
    stripes = [EdgeStripe(number, 0, f"group-{number}", rate, tuple(g)) for number, g in enumerate(groups, first)]
    return StripePlan(version, (*stripes, EdgeStripe(99, 0, "spare", rate, spare=True)), PERIOD)


PLAN = plan_of(1, SYMBOLS[:5], SYMBOLS[5:9])
"""S9 to S11 are on the spare stripe."""


def part_of_payloads(
    token_number: int, instant: int, token_count: int, place: int, first_sequence: int, payloads: Sequence[bytes]
) -> ReleasedPart:
    """Messages as a release gives them; one that is no market events has its place and no events."""
    sound = [payload if are_events(payload) else b"" for payload in payloads]
    counts = np.array([len(payload) // EVENT_BYTES for payload in sound], np.int64)
    events = np.frombuffer(b"".join(sound), EVENT_DTYPE)
    return ReleasedPart(token_number, instant, token_count, place, first_sequence, events, counts)


def random_events(random: np.random.Generator, count: int, marks: float = 0.01) -> EventArray:
    """Quotes and trades mostly, orders and announcements between them, and now and then a mark of a whole floor."""
    events = np.zeros(count, EVENT_DTYPE)
    events["kind"] = random.choice([int(kind) for kind in KINDS], count)
    events["symbol"] = random.choice(np.array(SYMBOLS, "S8"), count)
    events["floor"] = random.choice(np.array(["XNYS", "XLON"], "S4"), count)
    events["side"] = random.integers(1, 3, count)
    events["price"] = random.integers(1, 10**6, count)
    events["id"] = np.arange(count)
    events["flags"] = np.where(random.random(count) < 0.1, int(EventFlag.AUCTION), 0)
    whole_floor = random.random(count) < marks
    events["kind"][whole_floor], events["symbol"][whole_floor] = EventKind.MARK, b""
    return events


def random_tokens(seed: int, tokens: int, busy: float) -> list[ReleasedPart]:
    """Whole tokens, some empty; `busy` events in each, in the mean."""
    random = np.random.default_rng(seed)
    made: list[ReleasedPart] = []
    sequence, instant = 1, 10**18
    for number in range(1, tokens + 1):
        counts = random.integers(0, 6, random.poisson(busy / 2.5)) if random.random() < 0.9 else np.empty(0, np.int64)
        counts = counts.astype(np.int64)
        events = random_events(random, int(counts.sum()))
        made.append(ReleasedPart(number, instant, len(counts), 0, sequence, events, counts))
        sequence += len(counts)
        # A new ring may begin between two beats of the old one.
        instant += PERIOD + (int(random.integers(0, PERIOD)) if random.random() < 0.05 else 0)
    return made


def cut(part: ReleasedPart, places: Iterable[int]) -> list[ReleasedPart]:
    """A token in several parts; its entries come with the first."""
    edges = sorted({0, len(part.counts), *[place for place in places if 0 < place < len(part.counts)]})
    events_at = np.concatenate([[0], np.cumsum(part.counts)])
    pairs = list(pairwise(edges)) or [(0, 0)]
    return [
        ReleasedPart(
            part.token_number,
            part.instant,
            part.token_count,
            start,
            part.first_sequence + start,
            part.events[events_at[start] : events_at[stop]],
            part.counts[start:stop],
            part.control if start == 0 else (),
        )
        for start, stop in pairs
    ]


def run(striper: EdgeStriper, parts: Iterable[ReleasedPart]) -> list[EdgePacket]:
    return [packet for part in parts for packet in striper.step(part)]


def told(packets: Iterable[EdgePacket]) -> list[tuple[object, ...]]:
    """Packets as plain values, comparable."""
    return [
        (*packet[:5], packet.events.tobytes(), tuple(packet.sequences.tolist()))
        for packet in sorted(packets, key=lambda packet: (packet.stripe, packet.number))
    ]


def by_stripe(packets: Iterable[EdgePacket]) -> dict[int, list[EdgePacket]]:
    found: dict[int, list[EdgePacket]] = defaultdict(list)
    for packet in packets:
        found[packet.stripe].append(packet)
    return dict(found)


def insist_on_contiguous_numbers(packets: Iterable[EdgePacket], first: int = 1) -> None:
    for own in by_stripe(packets).values():
        expected = first
        for packet in own:
            assert packet.number == expected
            assert packet.count > 0
            expected += packet.count


def insist_on_rate(packets: Iterable[EdgePacket], budget: int, period: int = PERIOD) -> None:
    """No half-open span of a period, wherever it begins, has more IP bytes than the budget."""
    for own in by_stripe(packets).values():
        dues = np.array([packet.due for packet in own])
        assert (np.diff(dues) >= 0).all()
        sums = np.concatenate([[0], np.cumsum([packet.ip_bytes for packet in own])])
        ends = np.searchsorted(dues, dues + period, side="left")
        assert (sums[ends] - sums[: len(dues)]).max() <= budget
