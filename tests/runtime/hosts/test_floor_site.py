"""A floor at a receiver: it follows the journal whatever happens to the site, and says what it cannot."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.floor.keys import key_in_order

from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Directory, Event, Order, Phase, Trade
from isocast.floor.reporting import FloorReport, decode_report, encode_report, report_topic
from isocast.floor.state import state_hash
from isocast.runtime.disk.journal import Journal
from isocast.runtime.hosts.floor_site import FloorSite, site_key
from isocast.runtime.market.floors import FloorTable
from isocast.runtime.watch.counters import NodeCounters
from isocast.runtime.watch.logs import get_log
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.market import Side
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.opaque import OpaqueMessage, cut_opaque
from isocast.wire.packets import payload_digest

CODE = "XISO"
TABLE = FloorTable(CODE, "USD", ("xiso",), 0, 0, ())
OWN, OTHER = 1, 2
EPOCH = Epoch(1, server_id(1))
OPEN = Directory("ISO", phase=Phase.OPEN)
SELL = Order(1 << 32 | 1, 1, "ISO", Side.SELL, 100, 1_002)
BUY = Order(2 << 32 | 1, 2, "ISO", Side.BUY, 60, 1_005)


class Site:
    """A receiver's journal, its log as far as a floor sees it, and the floor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.alarms: list[str] = []
        self.seconds = [0.0]
        """What the next looks at the clock say; the last one for ever."""
        self.journal = Journal.open(folder / "journal", 0, OWN)
        self.receiver: Any = SimpleNamespace(
            releaser=SimpleNamespace(released=0, next_sequence=1), ledger=SimpleNamespace(universe=(1, 2, 3))
        )
        self.begin()

    def begin(self) -> None:
        """The process starts, or starts again."""
        self.counters = NodeCounters()
        context: Any = SimpleNamespace(
            plan=SimpleNamespace(node=OWN, number=1),
            directory=self.folder,
            counters=self.counters,
            alarm=lambda code, *_: self.alarms.append(code),
            log=get_log(),
            market=SimpleNamespace(name_of=str),
        )
        opened: Any = lambda entry, count: entry.messages[:count]  # noqa: E731
        self.floor = FloorSite(context, TABLE, self.folder / "journal", opened, self.clock)
        self.floor.replay()

    def clock(self) -> float:
        return self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]

    def token(
        self, *events: Event | bytes | FloorReport, owner: int = OTHER, stable: int = 0, heard: bool = True
    ) -> None:
        """The next token, released here; without `heard` it came from elsewhere."""
        releaser = self.receiver.releaser
        number = releaser.released + 1
        payloads = cut_opaque([message(event) for event in events], 200) if events else []
        key = self.key(*events)
        if payloads:
            first = releaser.next_sequence
            rows = [(source_id(1, 1), first + place, payload_digest(raw), raw) for place, raw in enumerate(payloads)]
            instant = 1_000 * number
            self.journal.append(
                ReleasedBlock(EPOCH, number, len(rows), 0, first, instant, instant, instant, 0, key, rows)
            )
            releaser.next_sequence += len(rows)
        if heard:
            self.complete(number, releaser.next_sequence - len(payloads), payloads, key, owner, stable)
        releaser.released = number
        self.floor.settle(self.receiver)

    @staticmethod
    def key(*events: Event | bytes | FloorReport) -> bytes:
        return key_in_order(floor_topic(CODE), [message(event)[:2] for event in events])

    def complete(
        self, number: int, first: int, payloads: Sequence[bytes], key: bytes, owner: int = OTHER, stable: int = 0
    ) -> None:
        """A token is in the log."""
        token = SimpleNamespace(
            token_number=number, instant=1_000 * number, stable=stable, sender=owner, first_sequence=first
        )
        entry: Any = SimpleNamespace(token=token, messages=tuple(payloads), shuffle_key=key)
        self.floor.completed(entry, 3)

    def cut(self, keep: int, first: int) -> None:
        """A ring begins behind a token: what went out from a sequence on stays out, and is not in its log."""
        self.receiver.releaser.released = keep
        self.floor.cut(keep, first)
        self.again = first

    def token_again(self, *events: Event | bytes | FloorReport, owner: int = OTHER, stable: int = 0) -> None:
        """The ring's token in the place of one that was lost: of its messages, what is new goes out."""
        releaser = self.receiver.releaser
        number = releaser.released + 1
        payloads = cut_opaque([message(event) for event in events], 80) if events else []
        key = self.key(*events)
        self.complete(number, self.again, payloads, key, owner, stable)
        rows = [(source_id(1, 1), self.again + place, payload_digest(raw), raw) for place, raw in enumerate(payloads)]
        self.again += len(payloads)
        new = [row for row in rows if row[1] >= releaser.next_sequence]
        if new:
            instant, place = 1_000 * number, len(rows) - len(new)
            block = (len(rows), place, new[0][1], instant, instant, instant, 0, key, new)
            self.journal.append(ReleasedBlock(Epoch(2, server_id(1)), number, *block))
            releaser.next_sequence = self.again
        releaser.released = number
        self.floor.settle(self.receiver)

    @property
    def state(self) -> tuple[int, bytes]:
        return self.floor.arbiter.token, state_hash(self.floor.arbiter.floor.floor)

    @property
    def published(self) -> list[FloorReport]:
        """What waits for a source."""
        waiting = list(self.floor._waiting._queue)  # type: ignore[attr-defined]  # noqa: SLF001
        return [decode_report(one.payload) for _, messages in waiting for one in messages]


def message(event: Event | bytes | FloorReport) -> OpaqueMessage:
    if isinstance(event, FloorReport):
        return OpaqueMessage(report_topic(CODE), encode_report(event), site_key(OTHER))
    return OpaqueMessage(floor_topic(CODE), event if isinstance(event, bytes) else encode_event(event))


def test_the_owner_of_a_token_reports_its_trades_and_nobody_else_does(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.token(OPEN)
    site.token(SELL)
    site.token(BUY, owner=OWN)
    (report,) = site.published
    assert [(trade.price, trade.quantity) for trade in report.trades] == [(1_002, 60)]
    assert report.state == site.state[1]
    assert site.counters.floor_trades == 1
    other = Site(tmp_path / "other")
    for events in ((OPEN,), (SELL,), (BUY,)):
        other.token(*events)
    assert other.published == []
    assert other.state == site.state


def test_a_trade_is_confirmed_once_every_member_has_its_report(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for events in ((OPEN,), (SELL,)):
        site.token(*events)
    site.token(BUY, owner=OWN)
    site.token(*site.published)
    assert site.counters.floor_trades_confirmed == 0
    site.token(stable=3)
    assert site.counters.floor_trades_confirmed == 0, "the report is in token 4"
    site.token(stable=4)
    assert site.counters.floor_trades_confirmed == 1


def test_a_restart_goes_on_where_the_journal_is_with_and_without_a_kept_state(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.token(OPEN)
    site.token(SELL)
    site.token(BUY, owner=OWN)
    site.token(*site.published)
    for _ in range(5):
        site.token(stable=5)
    site.floor.tick()
    assert (tmp_path / f"floor-{CODE}.state").stat().st_mode & 0o077 == 0
    site.token(b"no event", BUY._replace(id=BUY.id + 1, quantity=10))
    before = site.state
    site.begin()
    assert site.state == before
    assert site.published == [], "what others have taken over long ago is not published again"
    (tmp_path / f"floor-{CODE}.state").unlink()
    site.begin()
    assert site.state == before
    assert site.alarms == []


def test_a_state_that_takes_long_to_keep_is_kept_less_often(tmp_path: Path) -> None:
    site, kept = Site(tmp_path), tmp_path / f"floor-{CODE}.state"
    site.token(OPEN)
    site.token(SELL)
    site.token(BUY, owner=OWN)
    site.token(*site.published)
    site.token(stable=5)
    site.seconds = [0.0, 1.0]
    site.floor.tick()
    first = kept.read_bytes()
    site.token(BUY._replace(id=BUY.id + 1, quantity=10), owner=OWN)
    site.token(*site.published)
    site.token(stable=9)
    assert site.floor.arbiter.snapshot() != first
    site.seconds = [19.0]
    site.floor.tick()
    assert kept.read_bytes() == first, "a second of every twenty, and no more"
    site.seconds = [20.0]
    site.floor.tick()
    assert kept.read_bytes() == site.floor.arbiter.snapshot()


def test_a_damaged_state_is_told_and_computed_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for events in ((OPEN,), (SELL,), (BUY,)):
        site.token(*events)
    before = site.state
    (tmp_path / f"floor-{CODE}.state").write_bytes(b"damaged")
    site.begin()
    assert site.alarms == [f"floor-{CODE}-state"]
    assert site.state == before


def test_a_token_whose_messages_are_not_in_the_journal_yet_waits_for_them(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.token(OPEN)
    site.receiver.releaser.next_sequence += 1
    site.token(heard=False)
    assert site.floor.arbiter.token == 1
    site.receiver.releaser.next_sequence -= 1
    site.receiver.releaser.released -= 1
    site.token(SELL, heard=False)
    assert site.floor.arbiter.token == 2
    assert len(site.floor.arbiter.floor.floor.orders) == 1


def test_a_gap_in_the_journal_stops_the_floor_here_and_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.token(OPEN)
    before = site.state
    rows = [(source_id(1, 1), 9, payload_digest(b"x"), b"x")]
    site.journal.append(ReleasedBlock(EPOCH, 7, 1, 0, 9, 7_000, 7_000, 7_000, 0, bytes(16), rows, fetched=True))
    site.receiver.releaser.released, site.receiver.releaser.next_sequence = 7, 10
    for _ in range(2):
        site.floor.settle(site.receiver)
    assert site.alarms == [f"floor-{CODE}-behind"]
    assert site.state == before
    assert site.floor.has_stopped


# What a reformation cuts off ----------------------------------------------------------------------------------------

LATER = BUY._replace(id=2 << 32 | 9, quantity=10)
DEAR = Order(3 << 32 | 1, 3, "ISO", Side.BUY, 30, 1_010)


def lost(site: Site) -> None:
    """Tokens 3 and 4 were released here, with a trade in 3 and an order in 4; the ring begins behind token 2."""
    site.token(OPEN)
    site.token(SELL)
    site.token(BUY)
    site.token(LATER)
    assert site.counters.floor_trades == 2
    site.cut(2, 3)


def test_trades_of_tokens_that_are_cut_off_are_void_and_the_floor_goes_on_by_the_rings_log(tmp_path: Path) -> None:
    site, other = Site(tmp_path / "site"), Site(tmp_path / "other")
    lost(site)
    assert site.counters.floor_trades_busted == 2
    assert site.state[0] == 2
    tokens: tuple[tuple[Event, ...], ...] = ((DEAR,), (), (BUY, LATER), (SELL._replace(id=SELL.id + 1),))
    for place, events in enumerate(tokens):
        site.token_again(*events, owner=OWN if place == 2 else OTHER)
    other.token(OPEN)
    other.token(SELL)
    for events in tokens:
        other.token(*events)
    assert site.state == other.state
    assert site.alarms == []
    reported = [[trade.number for trade in report.trades] for report in site.published]
    assert reported == [[2, 3]], "trades of the ring, numbered by its sequence"
    assert not site.floor.has_stopped


def test_a_restart_reads_the_rings_messages_in_the_place_of_the_lost_ones(tmp_path: Path) -> None:
    site = Site(tmp_path)
    lost(site)
    for events in ((DEAR,), (BUY,), (LATER,)):
        site.token_again(*events)
    before = site.state
    site.begin()
    assert site.state == before
    assert (tmp_path / f"floor-{CODE}.cuts").exists()
    site.token_again(SELL._replace(id=SELL.id + 1))
    other = Site(tmp_path / "other")
    for event in (OPEN, SELL, DEAR, BUY, LATER, SELL._replace(id=SELL.id + 1)):
        other.token(event)
    assert site.state == other.state
    assert site.alarms == []


def test_the_record_of_what_was_lost_goes_with_the_state_that_is_behind_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    lost(site)
    for events in ((DEAR,), (LATER,)):
        site.token_again(*events)
    site.token(BUY._replace(id=BUY.id + 20, quantity=5), owner=OWN)
    site.token(*site.published, FloorReport(3, *told(site, 3)), FloorReport(4, *told(site, 4)))
    site.token(stable=6)
    site.token(stable=6)
    site.floor.tick()
    assert not (tmp_path / f"floor-{CODE}.cuts").exists()
    before = site.state
    site.begin()
    assert site.state[1] == before[1]
    assert site.alarms == []


def told(site: Site, token: int) -> tuple[bytes, int, tuple[Trade, ...]]:
    """What an arbiter would say of a token."""
    record = site.floor.arbiter._now.records[token]  # noqa: SLF001
    return record.result.state, 0, record.result.trades


def test_a_site_that_was_away_when_the_lost_part_was_decided_again_says_that_it_cannot_go_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    lost(site)
    site.begin()
    site.receiver.releaser.released = 3
    site.floor.settle(site.receiver)
    assert site.alarms == [f"floor-{CODE}-behind"]
    assert site.floor.has_stopped


def test_a_log_that_was_replaced_behind_what_went_out_here_stops_the_floor(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.token(OPEN)
    site.floor.strayed()
    assert site.alarms == [f"floor-{CODE}-behind"]


def test_a_record_of_what_was_lost_that_is_damaged_stops_the_floor(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.token(OPEN)
    for damaged in (b"no json", b"[1]", b'{"keep": 1}'):
        (tmp_path / f"floor-{CODE}.cuts").write_bytes(damaged)
        site.alarms = []
        site.begin()
        assert site.alarms == [f"floor-{CODE}-behind"]
        assert site.floor.has_stopped
