"""S16, F6, L5, and S1, S2, S4, S12 and S14 of narrow stripes."""

from __future__ import annotations

from dataclasses import replace

from tests.checks.traces import E1, LAW, SOURCE, EdgeTrace

from isocast.checks.facts import (
    Released,
    Restarted,
    StripeArchived,
    StripeDatagramSent,
    StripeDelivered,
    StripeLeftOut,
)
from isocast.checks.narrow import NarrowChecker
from isocast.simulation.edge import event_payload
from isocast.simulation.layers import narrow_id, stripe_sender_id
from isocast.terms.ids import NO_EPOCH, NodeId
from isocast.wire.packets import Data

ONE, OTHER, CUSTOMER = stripe_sender_id(1), stripe_sender_id(2), narrow_id(1)
PERIOD, READY = LAW.timing.token_period_ns, LAW.timing.release_delay_ns
SESSION = b"7001010001"
STRIPED = replace(
    LAW,
    stripe_senders=frozenset([ONE, OTHER]),
    narrow_complete=frozenset([CUSTOMER]),
    stripes={b"A0".ljust(8, b"\0"): 1, b"": 2},
)
TRADES = (5, 10, 15, 20)
"""Keys of trades of A0."""


class Trace(EdgeTrace[NarrowChecker]):
    """Feeds the checker; trades of A0 are released, one in each message."""

    def __init__(self, *keys: int) -> None:
        super().__init__(STRIPED, NarrowChecker)
        messages = tuple([Data(0, E1, SOURCE, key, 1, trade(key)) for key in keys or TRADES])
        self.checker.on_released(Released(0, 1, E1, 1, 0, 1, messages, 0, clock_kept=True, uncertified=False))

    def made(self, number: int, *keys: int, node: NodeId = ONE, stripe: int = 1) -> None:
        messages = tuple([b"%d" % key for key in keys])
        events = b"".join(map(trade, keys))
        self.checker.on_archived(StripeArchived(0, node, stripe, SESSION, number, messages, events))

    def sent(self, number: int, clock: int = READY, size: int = 100) -> None:
        self.checker.on_sent(StripeDatagramSent(0, ONE, clock, 1, SESSION, number, 1, size, 250))

    def got(self, first: int, *keys: int) -> None:
        messages = tuple([b"%d" % key for key in keys])
        self.checker.on_delivered(StripeDelivered(0, CUSTOMER, 1, SESSION, first, messages))


def trade(key: int) -> bytes:
    return event_payload(key, 48, traded=True)


def test_a_stripe_that_carries_everything_breaks_nothing() -> None:
    trace = Trace()
    for node in (ONE, OTHER):
        trace.made(1, 5, 10, node=node)
        trace.made(3, 15, 20, node=node)
    trace.sent(1)
    trace.sent(3)
    trace.got(1, 5, 10, 15)
    trace.got(4, 20)
    assert trace.ended(ONE, CUSTOMER) == []


def test_an_older_price_may_be_missing_and_the_newest_not() -> None:
    trace = Trace()
    trace.made(1, 5, 20)
    assert trace.ended(ONE) == []
    trace = Trace()
    trace.made(1, 5, 15)
    assert trace.ended(ONE) == ["L5"]


def test_an_event_out_of_order_twice_or_on_another_stripe() -> None:
    for keys in ((10, 5), (5, 5), (5, 25)):
        trace = Trace()
        trace.made(1, *keys)
        assert trace.found == ["S16"]
    trace = Trace()
    trace.made(1, 5, stripe=2)
    assert trace.found == ["S16"]


def test_two_contents_of_a_number_and_a_number_made_again() -> None:
    trace = Trace()
    trace.made(1, 5, 10)
    trace.made(1, 5, 15, node=OTHER)
    trace.made(1, 5, 10)
    assert trace.found == ["S1", "S2"]


def test_a_packet_that_leaves_early_twice_or_beside_too_many() -> None:
    trace = Trace()
    trace.made(1, 5)
    trace.sent(1, READY - 1)
    trace.sent(1, READY + PERIOD)
    assert trace.found == ["S12", "S2"]
    trace.sent(2, READY + PERIOD + 1)
    trace.sent(3, READY + 2 * PERIOD)
    assert trace.found == ["S12", "S2"]
    trace.sent(4, READY + 2 * PERIOD)
    assert trace.found == ["S12", "S2", "F6"]


def test_a_sender_without_its_disk_makes_its_numbers_again() -> None:
    trace = Trace()
    trace.made(1, 5)
    trace.checker.on_restarted(Restarted(0, ONE, disk_kept=False, promised=NO_EPOCH, accepted=NO_EPOCH, held=0))
    trace.made(1, 5)
    assert trace.found == []


def test_what_a_customer_gets_is_what_was_made_from_the_first_number_on() -> None:
    trace = Trace()
    trace.made(1, 5, 10, 15, 20)
    trace.got(2, 10)
    trace.got(3, 16)
    trace.got(4, 20, 25)
    assert trace.found == ["S2", "S1", "S2", "S4"]


def test_what_a_customer_leaves_out() -> None:
    trace = Trace()
    trace.made(1, 5, 10, 15, 20)
    trace.checker.on_left_out(StripeLeftOut(0, CUSTOMER, 1, SESSION, 1, 2, kept=False))
    trace.got(3, 15, 20)
    assert trace.ended(ONE, CUSTOMER) == []
    trace.checker.on_left_out(StripeLeftOut(0, CUSTOMER, 1, SESSION, 4, 4, kept=True))
    assert trace.found == ["S14"]
    trace.checker.on_left_out(StripeLeftOut(0, CUSTOMER, 1, SESSION, 5, 9, kept=False))
    assert trace.found == ["S14", "S4"], "it believed somebody who announced what nobody made"


def test_a_customer_leaves_out_one_run_after_the_other() -> None:
    """Told of separately, and one gap in the end. Swarm seed 4822."""
    trace = Trace()
    trace.made(1, 5, 10, 15, 20)
    for first, last in ((1, 1), (2, 3)):
        trace.checker.on_left_out(StripeLeftOut(0, CUSTOMER, 1, SESSION, first, last, kept=False))
    trace.got(4, 20)
    assert trace.found == []


def test_a_customer_that_lacks_the_last_numbers() -> None:
    trace = Trace()
    trace.made(1, 5, 10, 15, 20)
    trace.got(1, 5)
    assert trace.ended(ONE, CUSTOMER) == ["L5"]
    trace = Trace()
    trace.made(1, 5, 10, 15, 20)
    trace.checker.on_restarted(Restarted(0, CUSTOMER, disk_kept=True, promised=NO_EPOCH, accepted=NO_EPOCH, held=0))
    assert trace.ended(ONE, CUSTOMER) == ["L6"]
