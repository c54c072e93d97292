"""Which stripe of the core a symbol travels in, and events taken apart by it."""

from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.routing import CoreRoutes, heard_once
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import EventFlag
from isocast.wire.events import EVENT_DTYPE, EventArray, events_view
from isocast.wire.opaque import OpaqueMessage, cut_opaque

PLAN = StripePlan(
    1,
    (
        EdgeStripe(1, 0, "spare 0", 56_000, spare=True),
        EdgeStripe(2, 0, "tech", 56_000, ("AAPL", "MSFT")),
        EdgeStripe(3, 4, "spare 4", 56_000, spare=True),
        EdgeStripe(4, 4, "banks", 56_000, ("C", "JPM")),
    ),
)
SYMBOLS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", max_size=8)


def events_of(*symbols: str) -> EventArray:
    events = np.zeros(len(symbols), EVENT_DTYPE)
    events["kind"], events["floor"] = 1, b"XNYS"
    events["symbol"] = [symbol.encode() for symbol in symbols]
    events["id"] = np.arange(1, len(symbols) + 1)
    return events


def ids(events: EventArray) -> list[int]:
    return [int(number) for number in events["id"]]


def test_without_a_plan_a_hash_of_the_name_decides_for_ever() -> None:
    routes = CoreRoutes([0, 3, 9])
    for symbol in ("AAPL", "MSFT", "BRK.A", "Z"):
        place = int.from_bytes(blake2b(symbol.encode(), digest_size=8).digest()) % 3
        assert routes.stripe_of(symbol) == (0, 3, 9)[place]
    # Written down, since a floor that computed otherwise would lose the order of its symbols.
    assert [CoreRoutes([0, 1]).stripe_of(symbol) for symbol in ("ISO", "CAST", "IBM", "VOD")] == [1, 0, 0, 1]


def test_a_plan_decides_for_what_it_names_and_its_first_core_stripe_has_the_rest() -> None:
    routes = CoreRoutes([0, 4], PLAN)
    assert [routes.stripe_of(symbol) for symbol in ("AAPL", "JPM", "C", "NEW")] == [0, 4, 4, 0]


def test_a_plan_of_other_stripes_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"stripe 4 is not in ring\.stripes \(0, 1\)"):
        CoreRoutes([0, 1], PLAN)


@given(st.lists(SYMBOLS, max_size=40), st.integers(2, 5))
def test_every_event_is_in_the_stripe_of_its_symbol_and_everybodys_in_all(symbols: list[str], number: int) -> None:
    routes, events = CoreRoutes(range(number)), events_of(*symbols)
    parts = routes.split(events)
    everybodys = [place + 1 for place, symbol in enumerate(symbols) if not symbol]
    for stripe in range(number):
        own = [place + 1 for place, symbol in enumerate(symbols) if symbol and routes.stripe_of(symbol) == stripe]
        part = parts.get(stripe, events[:0])
        assert ids(part) == sorted(own + everybodys)
        events_view(part.tobytes())
    heard = [part if (kept := heard_once(part, s, parts.keys())) is None else part[kept] for s, part in parts.items()]
    together = sorted([record.tobytes() for part in heard for record in part])
    assert together == sorted(record.tobytes() for record in events), "each event once, as it was published"


def test_one_stripe_has_everything_as_it_is() -> None:
    events = events_of("A", "", "B")
    (part,) = CoreRoutes([5]).split(events).values()
    assert part is not events
    assert part.tobytes() == events.tobytes()
    assert CoreRoutes([5]).split(events[:0]) == {}


def test_a_source_of_some_stripes_announces_itself_there_alone() -> None:
    parts = CoreRoutes([0, 1, 2]).split(events_of(""), [1, 2])
    assert sorted(parts) == [1, 2]
    assert not parts[1]["flags"][0]
    assert parts[2]["flags"][0] == EventFlag.COPIED


def test_who_hears_one_stripe_gets_its_copies_and_a_mark_on_a_symbol_means_nothing() -> None:
    events = events_of("", "A")
    events["flags"] = EventFlag.COPIED
    assert heard_once(events, 1, [1]) is None
    assert heard_once(events, 1, [1, 2]) is None
    kept = heard_once(events, 2, [1, 2])
    assert kept is not None
    assert kept.tolist() == [False, True]


def test_symbols_of_another_stripe_are_found() -> None:
    routes = CoreRoutes([0, 1])
    payloads = [b"no events", events_of("CAST", "", "IBM").tobytes(), events_of("IBM", "ISO").tobytes()]
    assert list(routes.strangers(0, payloads)) == [("ISO", 1)]
    assert list(routes.strangers(0, payloads[:2])) == []


# ---- a symbol never changes its stripe


def plan(**symbols: tuple[str, ...]) -> StripePlan:
    named = [EdgeStripe(9, 0, "n0", 56_000, symbols["zero"]), EdgeStripe(8, 4, "n4", 56_000, symbols["four"])]
    spare = [stripe for stripe in PLAN.stripes if stripe.spare]
    return StripePlan(2, (*spare, *[stripe for stripe in named if stripe.symbols]))


@pytest.mark.parametrize(
    "now, moved",
    [
        (CoreRoutes([0, 4], PLAN), ""),
        (CoreRoutes([0, 4], plan(zero=("AAPL", "MSFT", "NEW"), four=("C", "JPM"))), ""),
        (CoreRoutes([0, 4], plan(zero=("AAPL",), four=("C", "JPM"))), ""),
        (CoreRoutes([0, 4], plan(zero=("C",), four=("JPM",))), "C travelled in stripe 4"),
        (CoreRoutes([0, 4], plan(zero=("AAPL",), four=("C", "JPM", "NEW"))), "NEW travelled in stripe 0"),
        (CoreRoutes([0, 4], plan(zero=("AAPL",), four=("C",))), "JPM travelled in stripe 4, and the plan names it no"),
        (CoreRoutes([0, 4, 5], PLAN), "the market's stripes were 0, 4 and are 0, 4, 5"),
        (CoreRoutes([0, 4]), "split by a stripe plan, or by a hash"),
    ],
)
def test_what_would_move_a_symbol_is_named(now: CoreRoutes, moved: str) -> None:
    said = now.moved(CoreRoutes([0, 4], PLAN).record())
    assert moved in said
    assert bool(said) == bool(moved)


def test_a_topic_travels_in_one_stripe_by_a_hash_of_its_name() -> None:
    routes = CoreRoutes([0, 1])
    # Written down: a floor that computed otherwise would lose the order of its topics.
    assert [routes.stripe_of_topic(topic) for topic in ("quiz", "auction", "quiz.buzzer", "lottery")] == [0, 0, 0, 1]
    assert [CoreRoutes([0, 4], PLAN).stripe_of_topic(topic) for topic in ("quiz", "lottery")] == [0, 4]
    messages = [OpaqueMessage(topic, bytes([number])) for number, topic in enumerate(("quiz", "lottery", "quiz"))]
    parts = routes.split_topics(messages, (0, 1))
    assert {stripe: [one.payload for one in some] for stripe, some in parts.items()} == {0: [b"\0", b"\2"], 1: [b"\1"]}
    with pytest.raises(LocalProtocolError, match="topic quiz travels in stripe 0, where this source does not"):
        routes.split_topics(messages, (1,))
    [block] = cut_opaque([OpaqueMessage("quiz", b"")], 1_296)
    assert list(routes.strangers(0, [block, b"\xf0 strange"])) == []
    assert list(routes.strangers(1, [block])) == [("quiz", 0)]
