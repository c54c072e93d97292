"""§7.3 with real processes: orders, trades at every receiver, reports, confirmation, and a dead arbiter."""

from collections.abc import Iterator, Sequence

import pytest
from tests.interop.places import QUICK, new_market, own_place
from tests.interop.released import ReleasedMessage
from tests.interop.stage import Stage

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Cancel, Event, Order, Trade
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.printing import printed
from isocast.floor.reporting import FloorReport, decode_report, report_topic
from isocast.runtime.client.publisher import Publisher
from isocast.runtime.operate.floor_change import find_floor, opening, publish_events
from isocast.terms.market import Side
from isocast.ticker.tape import Tape
from isocast.wire.opaque import OpaqueMessage, read_opaque_or_none

CODE = "XISO"
NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "east": {"role": "primary-source"},
    "west": {"role": "primary-source"},
    "xiso": {"role": "primary-source"},
    "spare": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
}
JUNK = b"junk"
RECEIVERS = ("london", "paris", "tokyo")
FLOOR = """
[floor.XISO]
sources = ["xiso", "spare"]

[[floor.XISO.symbols]]
symbol = "ISO"
"""

pytestmark = pytest.mark.xdist_group("floor")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with own_place() as place:
        market = new_market(tmp_path_factory.mktemp("floor"), place, NODES, timing=QUICK, more=FLOOR)
        with Stage(market) as stage:
            stage.until_whole()
            stage.call(publish_events(market, find_floor(market, None), opening(find_floor(market, CODE))))
            yield stage


def publish(stage: Stage, source: str, *events: Event) -> None:
    """A gateway's orders, through its source."""

    async def send() -> None:
        async with Publisher(stage.market, source) as publisher:
            await publisher.send([OpaqueMessage(floor_topic(CODE), encode_event(event)) for event in events])

    stage.call(send())


def order(account: int, number: int, side: Side, quantity: int, price: int) -> Order:
    return Order(account << 32 | number, account, "ISO", side, quantity, price)


def heard(messages: Sequence[ReleasedMessage]) -> list[tuple[ReleasedMessage, OpaqueMessage]]:
    return [(message, one) for message in messages for one in read_opaque_or_none(message.payload) or ()]


def reports(stage: Stage, name: str) -> list[FloorReport]:
    """What arbiters said, in the sequence as a site released it."""
    found = [one.payload for _, one in heard(stage.watches[name].look()) if one.topic == report_topic(CODE)]
    return [decode_report(payload) for payload in found if payload != JUNK]


def trades(stage: Stage, name: str) -> list[Trade]:
    """What anybody computes from a site's journal."""
    follower = FloorFollower(CODE)
    found: list[Trade] = []
    for message, one in heard(stage.watches[name].look()):
        event = FloorMessage(message.sequence, *one[:2], message.shuffle_key)
        step = follower.hear(message.token_number, message.instant, event)
        found += step.trades if step is not None else ()
    step = follower.finish()
    return found + list(step.trades if step is not None else ())


def until_confirmed(stage: Stage, trade: int, *names: str) -> None:
    def confirmed() -> bool:
        return all(max([one.confirmed for one in reports(stage, name)], default=0) >= trade for name in names)

    stage.until(confirmed, f"trade {trade} is confirmed at {', '.join(names)}")


def on_tape(stage: Stage, name: str) -> list[tuple[int, int, int]]:
    """Number, price and quantity of the floor's trades, as whoever reads the tape from a site's journal has them."""
    tape = Tape()
    for message in stage.watches[name].look():
        tape.take(printed(CODE, message.payload))
    return sorted([(int(row["id"]), int(row["price"]), int(row["quantity"])) for row in tape.trades.all])


def until_printed(stage: Stage, *names: str) -> None:
    """Until each trade is on the tape at each of these sites: once, and as everybody computes it."""
    made = [(trade.number, trade.price, trade.quantity) for trade in trades(stage, names[0])]
    stage.until(lambda: all(len(on_tape(stage, name)) >= len(made) for name in names), f"{len(made)} are printed")
    for name in names:
        assert on_tape(stage, name) == made


def check_agreement(stage: Stage, receivers: Sequence[str] = RECEIVERS) -> None:
    """Every journal gives the same trades, and every report says what anybody computes."""
    whole = {name: trades(stage, name) for name in receivers}
    longest = max(whole.values(), key=len)
    assert all(one == longest[: len(one)] for one in whole.values())
    by_number = {trade.number: trade for trade in longest}
    assert sorted(by_number) == list(range(1, len(longest) + 1))
    for name in receivers:
        for report in reports(stage, name):
            assert all(by_number[trade.number] == trade for trade in report.trades)


def test_an_order_becomes_a_trade_a_report_and_a_confirmed_trade(stage: Stage) -> None:
    before = len(trades(stage, "london"))
    publish(stage, "east", order(1, 1, Side.SELL, 100, 100_200))
    publish(stage, "west", order(2, 1, Side.BUY, 60, 100_500))
    until_confirmed(stage, before + 1, *RECEIVERS)
    (trade,) = trades(stage, "tokyo")[before:]
    assert trade[1:4] in (("ISO", 100_200, 60), ("ISO", 100_500, 60)), "whichever was there first sets the price"
    assert (trade.buy >> 32, trade.sell >> 32) == (2, 1)
    check_agreement(stage)
    until_printed(stage, *RECEIVERS)
    stage.until(
        lambda: all(
            status.totals["floor_trades_confirmed_total"] >= 1 for status in stage.all_statuses(*RECEIVERS).values()
        ),
        "every site has counted it",
    )


def test_garbage_on_the_topic_changes_nothing(stage: Stage) -> None:
    before = len(trades(stage, "london"))

    async def send() -> None:
        async with Publisher(stage.market, "east") as publisher:
            await publisher.send([OpaqueMessage(floor_topic(CODE), junk) for junk in (b"", b"\xff" * 30, b"\x03")])
        async with Publisher(stage.market, "xiso") as publisher:
            await publisher.send([OpaqueMessage(report_topic(CODE), JUNK)])

    stage.call(send())
    publish(stage, "east", order(3, 1, Side.SELL, 10, 99_000))
    publish(stage, "west", order(4, 1, Side.BUY, 10, 110_000))
    until_confirmed(stage, before + 1, *RECEIVERS)
    check_agreement(stage)


def test_a_dead_arbiter_loses_no_trade_and_comes_back_to_the_same_floor(stage: Stage) -> None:
    """Trades go on while one of three is away; when it returns it computes what it missed."""
    count = len(trades(stage, "london"))
    publish(stage, "east", order(5, 1, Side.SELL, 500, 90_000))
    with stage.away("paris"):
        stage.kill("paris")
        for number in range(1, 6):
            publish(stage, "west", order(6, number, Side.BUY, 10, 120_000))
        others = [name for name in RECEIVERS if name != "paris"]
        stage.until(lambda: len(trades(stage, "london")) >= count + 5, "they trade")
        until_confirmed(stage, count + 5, *others)
    stage.until_ready("paris")
    stage.until_whole()
    publish(stage, "east", Cancel(5 << 32 | 1, 5))
    publish(stage, "west", order(6, 9, Side.BUY, 10, 80_000))
    publish(stage, "east", order(5, 9, Side.SELL, 10, 80_000))
    total = count + 6
    stage.until(lambda: len(trades(stage, "paris")) >= total, "paris has everything")
    until_confirmed(stage, total, *RECEIVERS)
    check_agreement(stage)
    until_printed(stage, *RECEIVERS)
    statuses = stage.all_statuses(*RECEIVERS)
    assert not [alarm for status in statuses.values() for alarm in status.alarms if alarm.code.startswith("floor-")]


def test_a_source_that_is_gone_keeps_no_report_back(stage: Stage) -> None:
    before = len(trades(stage, "london"))
    with stage.away("xiso"):
        stage.kill("xiso")
        publish(stage, "east", order(7, 1, Side.SELL, 10, 100_000))
        publish(stage, "west", order(8, 1, Side.BUY, 10, 100_000))
        stage.until(lambda: len(trades(stage, "london")) > before, "they trade")
        until_confirmed(stage, len(trades(stage, "london")), *RECEIVERS)
        until_printed(stage, *RECEIVERS)
    check_agreement(stage)
    until_printed(stage, *RECEIVERS)
