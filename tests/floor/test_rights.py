"""Which source may say what to a floor, and what anybody could do to a floor that does not ask."""

import numpy as np
import pytest
from tests.floor.cases import SYMBOL
from tests.floor.rings import CODE, OPEN, Ring

from isocast.floor.arbiter import ArbiterStopped
from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import (
    AuctionKind,
    Bid,
    Cancel,
    Directory,
    Event,
    Lot,
    Order,
    Phase,
    Schedule,
    Status,
    Take,
    Wake,
)
from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.floor.rights import FloorRights, SourceRights
from isocast.terms.ids import GATEWAY_SHIFT, source_id
from isocast.terms.market import EventKind, Side
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.opaque import OpaqueMessage, cut_opaque, read_opaque_or_none

OWN, OFFICE, EAST, WEST, STRANGER = (source_id(number, 0) for number in range(1, 6))
BOUND = FloorRights(CODE, frozenset({OWN}), frozenset({OFFICE}), {EAST: 1, WEST: 2})
UNBOUND = FloorRights(CODE, frozenset({OWN}))
MINE, YOURS = 1 << GATEWAY_SHIFT | 16, 2 << GATEWAY_SHIFT | 16
REPORT = encode_report(FloorReport(1, bytes(32), 0))


def block(*messages: OpaqueMessage) -> bytes:
    (found,) = cut_opaque(messages, 1_200)
    return found


def said(*events: Event) -> bytes:
    return block(*[OpaqueMessage(floor_topic(CODE), encode_event(event)) for event in events])


def refusal(rights: FloorRights, source: int, payload: bytes) -> str:
    return SourceRights([rights]).refusal(source, payload)


def entered(account: int) -> list[Event]:
    return [
        Order(account << 32 | 1, account, SYMBOL, Side.BUY, 1, 1),
        Cancel(account << 32 | 1, account),
        Lot(account << 32 | 2, account, SYMBOL, AuctionKind.DUTCH, 1, 1, start=2, step=1),
        Bid(account << 32 | 3, account, 1, 1, 1),
        Take(account << 32 | 4, account, 1, 1),
    ]


@pytest.mark.parametrize("rights", [BOUND, UNBOUND])
def test_reports_come_through_the_floors_own_sources_alone(rights: FloorRights) -> None:
    told = block(OpaqueMessage(report_topic(CODE), REPORT, (3).to_bytes(8)))
    assert not refusal(rights, OWN, told)
    assert not refusal(rights, OWN + 7, told), "in whatever incarnation"
    for source in (OFFICE, EAST, STRANGER):
        assert refusal(rights, source, told) == f"reports of the floor {CODE}"


def test_what_an_operator_says_comes_through_his_sources() -> None:
    for event in (Directory(SYMBOL), Status(None, Phase.HALTED), Status(SYMBOL, Phase.OPEN), Schedule(()), Wake()):
        assert not refusal(BOUND, OWN, said(event))
        assert not refusal(BOUND, OFFICE, said(event))
        assert not refusal(UNBOUND, OWN, said(event))
        for source in (EAST, STRANGER):
            assert "operator" in refusal(BOUND, source, said(event))
            assert "operator" in refusal(UNBOUND, source, said(event))


def test_orders_come_through_the_source_of_their_accounts_gateway() -> None:
    for mine, yours in zip(entered(MINE), entered(YOURS), strict=True):
        assert not refusal(BOUND, EAST, said(mine))
        assert not refusal(BOUND, WEST, said(yours))
        assert refusal(BOUND, EAST, said(yours)) == f"orders of accounts of gateway 2 on the floor {CODE}"
        for source in (OWN, OFFICE, STRANGER):
            assert "gateway 1" in refusal(BOUND, source, said(mine))


def test_without_gateways_every_source_carries_every_account() -> None:
    for event in (*entered(MINE), *entered(YOURS)):
        assert not refusal(UNBOUND, STRANGER, said(event))


def test_one_message_that_may_not_be_there_voids_its_block() -> None:
    assert refusal(BOUND, EAST, said(*entered(MINE), *entered(YOURS)[:1]))
    assert not refusal(BOUND, EAST, said(*entered(MINE)))


def test_bytes_that_are_no_event_are_refused_to_strangers_alone() -> None:
    junk = block(OpaqueMessage(floor_topic(CODE), b"junk"))
    assert not refusal(BOUND, EAST, junk)
    assert not refusal(UNBOUND, STRANGER, junk)
    assert refusal(BOUND, STRANGER, junk)
    for payload in (b"", b"\xf0", b"\xf0\x01\xff\xff", b"anything", bytes(48)):
        assert not refusal(BOUND, STRANGER, payload)


def test_topics_and_codes_of_others_are_everybodys() -> None:
    others = [OpaqueMessage(topic, REPORT) for topic in ("floor/YYYY/report", "floor/XISO/tick", "news")]
    assert not refusal(BOUND, STRANGER, block(*others))
    events = np.zeros(3, EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, b"XNYS", b"XISO"
    assert not refusal(BOUND, STRANGER, events.tobytes())


def test_nobody_else_prints_trades_under_the_floors_code() -> None:
    events = np.zeros(3, EVENT_DTYPE)
    events["kind"], events["floor"], events["symbol"] = EventKind.TRADE, [b"XNYS", b"XISO", b"XNYS"], b"ISO"
    assert refusal(UNBOUND, STRANGER, events.tobytes()) == f"market events of the floor {CODE}"
    assert not refusal(UNBOUND, OWN, events.tobytes())


# ---- attacks


def released(rights: SourceRights | None, source: int, payload: bytes) -> list[OpaqueMessage]:
    """What receivers make of a block: nothing, where its source may not send it."""
    if rights is not None and rights.refusal(source, payload):
        return []
    return list(read_opaque_or_none(payload) or ())


def attacked(rights: SourceRights | None) -> Ring:
    """Somebody at another source reports a false state in the name of three sites, before any site has reported."""
    ring = Ring()
    ring.issue(OPEN)
    token = ring.trade(reports=False)
    lie = encode_report(FloorReport(token, bytes(32), 0))
    forged = block(*[OpaqueMessage(report_topic(CODE), lie, site.to_bytes(8)) for site in (1, 2, 3)])
    heard = released(rights, EAST, forged)
    ring.issue(foreign=[(one.topic, one.payload, int.from_bytes(one.key)) for one in heard])
    ring.idle(12)
    return ring


def test_forged_votes_stop_honest_arbiters_where_nobody_asks_for_their_source() -> None:
    ring = attacked(None)
    assert all(site.of(ArbiterStopped) for site in ring.sites.values())
    assert not any(site.confirmed for site in ring.sites.values())


def test_forged_votes_do_nothing_where_they_are_void() -> None:
    ring = attacked(SourceRights([UNBOUND]))
    assert not any(site.of(ArbiterStopped) for site in ring.sites.values())
    assert all(list(site.confirmed) == [1] for site in ring.sites.values())


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_forged_halt_stops_the_floor_only_where_it_is_not_void(is_checked: bool) -> None:  # noqa: FBT001
    ring = Ring()
    ring.issue(OPEN)
    rights = SourceRights([UNBOUND]) if is_checked else None
    heard = released(rights, EAST, said(Status(None, Phase.HALTED)))
    ring.issue(foreign=[(one.topic, one.payload, None) for one in heard])
    phases = {site.arbiter.floor.floor.symbols[SYMBOL].phase for site in ring.sites.values()}
    assert phases == {Phase.OPEN if is_checked else Phase.HALTED}


def test_a_forged_cancel_takes_nobodys_order_away() -> None:
    ring = Ring()
    ring.issue(OPEN)
    ring.issue(entered(MINE)[0])
    heard = released(SourceRights([BOUND]), WEST, said(Cancel(MINE << 32 | 1, MINE)))
    ring.issue(foreign=[(one.topic, one.payload, None) for one in heard])
    assert list(ring.sites[1].arbiter.floor.floor.orders) == [MINE << 32 | 1]
