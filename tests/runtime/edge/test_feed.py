"""The clear edge feed as a function of the sequence: the same numbers everywhere, through restarts and days."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.itch_writer import OTHER_DAY, ItchWriter
from isocast.feeds.mold import MoldRequest, SessionEnd, parse_packet, session_name
from isocast.feeds.outcomes import FeedLog
from isocast.feeds.release_stamps import read_release
from isocast.floor.events import Trade
from isocast.floor.printing import prints
from isocast.runtime.edge import feed as edge_feed
from isocast.runtime.edge.feed import (
    DayArchive,
    EdgeBlock,
    EdgeFeed,
    read_checkpoint,
    write_checkpoint,
)
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

DAY_NS = 86_400 * 10**9
MIDNIGHT = 20_000 * DAY_NS
"""2024-10-04, in UTC."""
NOON = MIDNIGHT + DAY_NS // 2
SYMBOLS = [b"AAA", b"BBB", b"CCC"]


def message(number: int, *, release: int = 0, quotes: bool = False) -> tuple[int, int, EventArray]:
    """Message `number` of a sequence: three trades, a halt now and then, quotes if wanted."""
    release = release or NOON + number * 10**9
    events = np.zeros(5 if quotes else 3, EVENT_DTYPE)
    events["kind"] = EventKind.TRADE
    events["floor"] = [b"XNYS", b"XLON", b"XNYS", b"XNYS", b"XNYS"][: len(events)]
    events["symbol"] = [SYMBOLS[(number + place) % 3] for place in range(len(events))]
    events["price"], events["quantity"] = 10_000 + number, 100
    events["id"] = np.arange(len(events)) + 10 * number
    events["time"] = release - 5_000 + np.arange(len(events), dtype=np.uint64)
    events["kind"][3:] = EventKind.QUOTE
    if number % 4 == 0:
        events["kind"][1], events["reference"][1] = EventKind.STATUS, MarketStatus.HALTED
        events["price"][1] = events["quantity"][1] = events["id"][1] = 0
    return number, release, events


def give(feed: EdgeFeed, messages: Iterable[tuple[int, int, EventArray]]) -> list[EdgeBlock | SessionEnd]:
    return [made for one in messages for made in feed.take(*one)]


def blocks(made: Iterable[EdgeBlock | SessionEnd]) -> list[EdgeBlock]:
    return [one for one in made if isinstance(one, EdgeBlock)]


def packets(made: Iterable[EdgeBlock | SessionEnd]) -> list[bytes]:
    return [packet for block in blocks(made) for packet in block.packets()]


def decoded(made: Iterable[EdgeBlock | SessionEnd]) -> EventArray:
    """By our own decoder, as a stranger would."""
    decoder = ItchDecoder(Mic("XNAS"), MIDNIGHT, FeedLog("edge"))
    return np.concatenate([*decoder.blocks([block.framed for block in blocks(made)])])


def test_numbers_follow_one_another_and_every_trade_is_there(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path)
    sequence = [message(number) for number in range(1, 30)]
    made = give(feed, sequence)
    following = 1
    for packet, block in zip(packets(made), blocks(made), strict=True):
        parsed = parse_packet(packet)
        assert (parsed.session, parsed.sequence) == (b"2410040000", following)
        release, exactly = read_release(parsed.body, parsed.sequence, NOON)
        assert abs(block.release - release) < exactly
        following += parsed.count
    feed.close()
    wanted = np.concatenate([events for _, _, events in sequence])
    got = decoded(made)
    got = got[np.isin(got["kind"], (EventKind.TRADE, EventKind.STATUS))]
    assert got.tobytes() == wanted.tobytes()


def with_orders(number: int) -> tuple[int, int, EventArray]:
    """An order, the execution of one of 20 messages before, and the cancellation of one of 30 messages before."""
    sequence, release, events = message(number, quotes=True)
    book = np.zeros(3, EVENT_DTYPE)
    book["kind"] = [EventKind.ORDER, EventKind.EXECUTION, EventKind.CANCEL]
    book["floor"], book["symbol"] = b"XNYS", SYMBOLS[number % 2]
    book["id"] = [1_000 + number, 980 + number, 970 + number]
    book["price"], book["quantity"], book["side"] = 50_000 + number // 40, [100, 40, 0], 1
    book["time"] = events["time"][-1]
    return sequence, release, np.concatenate([events, book])


@pytest.mark.parametrize("every", [1, 7, 4_096])
def test_two_gateways_give_the_same_whatever_interrupts_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(edge_feed, "CHECKPOINT_EVERY", every)
    sequence = [with_orders(number) for number in range(1, 60)]
    first = EdgeFeed(tmp_path / "one")
    whole = packets(give(first, sequence))
    first.close()
    again: list[bytes] = []
    at = 0
    for stop in (1, 2, 17, 40, 59):
        second = EdgeFeed(tmp_path / "two")
        second.restore()
        assert second.next_sequence in (0, at + 1)
        again += packets(give(second, sequence[max(at - 3, 0) : stop]))
        second.close()
        at = stop
    assert again == whole


def test_a_crash_between_two_files_leaves_nothing_behind(tmp_path: Path) -> None:
    """Killed after a session's files and before the core's index: the message is written again, with its numbers."""
    feed = EdgeFeed(tmp_path / "whole")
    wanted = packets(give(feed, [message(1), message(2), message(3)]))
    feed.close()
    feed = EdgeFeed(tmp_path / "cut")
    give(feed, [message(1), message(2)])
    feed.close()
    folder = tmp_path / "cut" / "2024-10-04"
    index = (folder / "core.index").read_bytes()
    (folder / "core.index").write_bytes(index[: len(index) // 2 + 5])
    feed = EdgeFeed(tmp_path / "cut")
    feed.restore()
    assert feed.next_sequence == 2
    rest = packets(give(feed, [message(2), message(3)]))
    feed.close()
    assert rest == wanted[1:]


# ---- restarts from checkpoints


def test_a_restart_writes_again_what_came_since_the_checkpoint_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_feed, "CHECKPOINT_EVERY", 10)
    monkeypatch.setattr(edge_feed, "_STEP", 1)
    feed = EdgeFeed(tmp_path)
    give(feed, [with_orders(number) for number in range(1, 96)])
    left_out, running = {**feed.left_out}, feed.running
    feed.close()
    again = EdgeFeed(tmp_path)
    assert list(again.restoring()) == [(done, 5) for done in range(1, 6)]
    assert (again.next_sequence, again.running) == (96, running)
    left_out.pop("ITCH has no quotes")
    assert again.left_out == left_out
    again.close()


def test_what_trades_say_besides_is_counted_through_restarts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ITCH has no place for sale conditions and sides of trades: an official close is sent like any other trade."""
    monkeypatch.setattr(edge_feed, "CHECKPOINT_EVERY", 10)

    def marked(number: int) -> tuple[int, int, EventArray]:
        sequence, release, events = message(number)
        events["flags"][0] = EventFlag.UNPRINTED | EventFlag.CLOSING
        events["side"][2], events["reference"][2] = Side.SELL, number
        return sequence, release, events

    feed = EdgeFeed(tmp_path)
    give(feed, [marked(number) for number in range(1, 26)])
    feed.close()
    again = EdgeFeed(tmp_path)
    again.restore()
    give(again, [marked(number) for number in range(26, 31)])
    names = ("the flag unprinted", "the flag closing", "the side of a trade", "the reference of a trade")
    assert again.written_without == dict.fromkeys(names, 30)
    again.close()


def test_a_large_book_is_kept_less_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint costs as much as it has rows."""
    monkeypatch.setattr(edge_feed, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(edge_feed, "_ROWS_A_MESSAGE", 1)
    written: list[int] = []
    monkeypatch.setattr(edge_feed, "write_checkpoint", lambda _, checkpoint: written.append(checkpoint.messages))
    feed = EdgeFeed(tmp_path)
    give(feed, [with_orders(number) for number in range(1, 100)])
    feed.close()
    assert written[0] == 2
    assert len(written) < 10


@pytest.mark.parametrize("damage", ["bytes", "another day's", "archive cut"])
def test_a_checkpoint_that_does_not_fit_costs_time_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setattr(edge_feed, "CHECKPOINT_EVERY", 10)
    sequence = [with_orders(number) for number in range(1, 40)]
    feed = EdgeFeed(tmp_path)
    whole = packets(give(feed, sequence))
    feed.close()
    folder = tmp_path / "2024-10-04"
    path = folder / "core.checkpoint"
    raw = path.read_bytes()
    cut = len(sequence)
    if damage == "bytes":
        path.write_bytes(raw[:-100] + bytes(100))
    elif damage == "another day's":
        kept = read_checkpoint(path)
        assert kept is not None
        write_checkpoint(path, kept._replace(next_sequence=kept.next_sequence + 1))
    else:
        cut = 12
        index = folder / "core.index"
        index.write_bytes(index.read_bytes()[: cut * 32])
    again = EdgeFeed(tmp_path)
    assert list(again.restoring())[-1] == (cut, cut)
    assert "the whole day was written again instead" in again.notes[0]
    rest = packets(give(again, sequence))
    assert whole[len(whole) - len(rest) :] == rest
    assert again.next_sequence == len(sequence) + 1
    again.close()


def test_a_plan_that_was_changed_is_refused_though_a_checkpoint_has_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_feed, "CHECKPOINT_EVERY", 1)
    feed = EdgeFeed(tmp_path, (7, 40), lambda symbols: np.where(symbols == b"AAA", 7, 40).astype(np.uint32))
    give(feed, [message(number) for number in range(1, 5)])
    feed.close()
    other = EdgeFeed(tmp_path, (7, 40), lambda symbols: np.where(symbols == b"BBB", 7, 40).astype(np.uint32))
    with pytest.raises(FeedError, match="AAA was in stripe 7 and is not any more: was the plan changed"):
        other.restore()
    other.close()


def test_a_checkpoint_has_all_that_a_writer_remembers() -> None:
    """Whoever teaches the writer more has to teach its checkpoint: a state that is left out gives other bytes."""
    writer = ItchWriter(0, FeedLog("edge"))
    settings = {"_day", "_keep_hour", "_name_floors", "_tell_flags"}
    assert set(vars(writer)) - settings == {"log", "locates", "_orders", "_introduced"}
    assert set(vars(writer.locates)) == {"numbers", "_taken", "_least", "_highest"}


def test_a_session_that_does_not_fit_the_sequence_is_refused(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path)
    give(feed, [message(1), message(2)])
    feed.close()
    file = tmp_path / "2024-10-04" / "2410040000.itch"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(bytes(raw))
    feed = EdgeFeed(tmp_path)
    with pytest.raises(FeedError, match="differs from what message 2 of the sequence gives"):
        feed.restore()
    feed.close()
    file.write_bytes(bytes(raw[:-1]))
    feed = EdgeFeed(tmp_path)
    with pytest.raises(FeedError, match="is cut"):
        feed.restore()
    feed.close()


def test_a_day_ends_with_the_first_message_of_the_next(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path)
    late = message(1, release=MIDNIGHT + DAY_NS - 1)
    early = message(2, release=MIDNIGHT + DAY_NS)
    made = give(feed, [late, early])
    first, end, second = made
    assert isinstance(first, EdgeBlock)
    assert isinstance(second, EdgeBlock)
    assert end == SessionEnd(0, "2410040000", first.first + first.count)
    assert (second.session, second.first) == ("2410050000", 1)
    assert feed.left_out[OTHER_DAY] == 3, "5 µs before midnight by the floor's clock"
    assert feed.answer(MoldRequest(b"2410040000", 1, 1)), "yesterday is still answered"
    feed.close()


def test_what_is_not_known_from_its_beginning_is_not_sent(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path)
    assert give(feed, [message(7), message(8)]) == []
    assert feed.is_waiting
    assert feed.missed == 2
    tomorrow = [message(number, release=NOON + DAY_NS + number) for number in (9, 10)]
    assert blocks(give(feed, tomorrow))[0].first == 1
    assert not feed.is_waiting
    after_a_hole = give(feed, [message(12, release=NOON + DAY_NS + 12)])
    assert after_a_hole == []
    assert feed.running == []
    assert feed.is_waiting
    feed.close()


def test_messages_without_events_have_their_place(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path)
    feed.pass_over(1)
    give(feed, [message(2)])
    feed.pass_over(3)
    assert len(blocks(give(feed, [message(4)]))) == 1
    assert not feed.is_waiting
    feed.close()


def test_narrow_stripes_have_numbers_of_their_own(tmp_path: Path) -> None:
    def split(symbols: np.ndarray[tuple[int], np.dtype[np.bytes_]]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        return np.where(symbols == b"AAA", 7, 40).astype(np.uint32)

    feed = EdgeFeed(tmp_path, (7, 40), split)
    sequence = [message(number) for number in range(1, 20)]
    mark = np.zeros(1, EVENT_DTYPE)
    mark["kind"], mark["floor"], mark["reference"], mark["time"] = EventKind.MARK, b"XNYS", ord("M"), NOON
    made = give(feed, [*sequence, (20, NOON + 10**11, mark)])
    for stripe, name in ((7, "2410040007"), (40, "2410040014")):
        own = [block for block in blocks(made) if block.stripe == stripe]
        assert {block.session for block in own} == {name}
        numbers = [number for block in own for number in range(block.first, block.first + block.count)]
        assert numbers == list(range(1, len(numbers) + 1))
        got = decoded(own)
        traded = got[got["kind"] == EventKind.TRADE]
        assert set((traded["symbol"] == b"AAA").tolist()) == {stripe == 7}
        assert (got["kind"] == EventKind.MARK).sum() == 1, "what is of a whole floor is on every stripe"
    feed.close()


def test_requests_are_answered_as_they_were_sent(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path)
    sent = packets(give(feed, [message(number) for number in range(1, 9)]))
    for packet in sent:
        parsed = parse_packet(packet)
        assert feed.answer(MoldRequest(b"2410040000", parsed.sequence, 100)) == packet
        one = parse_packet(feed.answer(MoldRequest(b"2410040000", parsed.sequence + parsed.count - 1, 1)))
        assert one.body == parsed.body[parsed.places[-1] :]
    last = parse_packet(sent[-1])
    for session, number in ((b"2410040000", last.sequence + last.count), (b"2410040000", 0), (b"2410050000", 1)):
        assert feed.answer(MoldRequest(session, number, 1)) == b""
    feed.close()


def test_old_days_are_forgotten(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path, keep_days=2)
    give(feed, [message(number, release=NOON + number * DAY_NS) for number in range(1, 7)])
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["2024-10-08", "2024-10-09", "2024-10-10"]
    assert not feed.answer(MoldRequest(b"2410050000", 1, 1))
    assert feed.answer(MoldRequest(b"2410080000", 1, 1))
    feed.close()


def test_names_of_sessions() -> None:
    assert session_name(date(2026, 11, 5), 36 * 36 + 35) == "261105010Z"
    with pytest.raises(ConfigurationError, match="to fit the name of its session"):
        session_name(date(2026, 11, 5), 36**4)


def test_what_itch_cannot_say_is_counted(tmp_path: Path) -> None:
    feed = EdgeFeed(tmp_path)
    made = give(feed, [message(1, quotes=True)])
    assert feed.left_out == {"ITCH has no quotes": 2}
    assert (decoded(made)["kind"] == EventKind.QUOTE).sum() == 0
    feed.close()


def test_a_day_is_opened_as_far_as_its_index_counts(tmp_path: Path) -> None:
    archive = DayArchive(tmp_path, date(2024, 10, 4))
    assert archive.next_sequence == 0
    assert list(archive.messages()) == []
    archive.close()


@pytest.mark.parametrize("day", [date(2026, 1, 15), date(2026, 3, 8), date(2026, 7, 1), date(2026, 11, 1)])
def test_a_trade_of_a_summer_morning_is_told_at_its_hour_in_every_season(tmp_path: Path, day: date) -> None:
    """Half past nine in New York, replayed in winter, in summer, and on days on which clocks change."""
    zone = ZoneInfo("America/New_York")
    summer = round(datetime(2012, 6, 21, 9, 30, tzinfo=zone).timestamp()) * 10**9
    release = round(datetime(day.year, day.month, day.day, 12, tzinfo=zone).timestamp()) * 10**9
    feed = EdgeFeed(tmp_path, zone="America/New_York")
    for number in (1, 2):
        _, _, events = message(number)
        events["time"] = [summer, release, summer + 1]
        made = blocks(feed.take(number, release, events))
        trades = [each for block in made for each in messages_of(block.framed) if each[:1] == b"P"]
        clocks = [int.from_bytes(each[5:11]) for each in trades]
        assert clocks == [34_200 * 10**9, 43_200 * 10**9, 34_200 * 10**9 + 1]
    feed.close()


def messages_of(framed: bytes) -> list[bytes]:
    found = []
    while framed:
        size = int.from_bytes(framed[:2])
        found.append(framed[2 : 2 + size])
        framed = framed[2 + size :]
    return found


def test_a_trade_of_a_floor_of_the_market_that_is_in_the_sequence_twice_is_sent_once(tmp_path: Path) -> None:
    def trade(sequence: int, number: int) -> tuple[int, int, EventArray]:
        events = prints("XISO", NOON, [Trade(number, "ISO", 10_000, 5, 1, 2)])
        return sequence, NOON + sequence * 10**9, events

    feed = EdgeFeed(tmp_path, floors=["XISO"])
    made = give(feed, [message(1), trade(2, 7), trade(3, 8), trade(4, 7), trade(5, 8)])
    feed.close()
    again = EdgeFeed(tmp_path, floors=["XISO"])
    again.restore()
    assert again.next_sequence == 4, "from where it hears on"
    made += give(again, [trade(4, 7), trade(5, 8), trade(6, 8), trade(7, 9), trade(8, 7), message(9)])
    again.close()
    got = decoded(made)
    assert got["id"][(got["floor"] == b"XISO") & (got["kind"] == EventKind.TRADE)].tolist() == [7, 8, 9]
