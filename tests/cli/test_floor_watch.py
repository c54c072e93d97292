"""`isocast floor watch`: what is shown of a floor that is followed; the command itself runs in tests/interop."""

import io
from pathlib import Path

from rich.console import Console
from tests.floor.keys import KEY
from tests.runtime.disk.test_floor_journal import computed, kept_beside, written

from isocast.cli.floor_watch import FloorScreen, floor_frame, screen_of
from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.events import Directory, Event, Order, Phase
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.reporting import FloorReport, encode_report, report_topic
from isocast.floor.state import state_hash
from isocast.runtime.client.received import ReceivedMessage
from isocast.runtime.disk.journal_reader import JournalReader
from isocast.terms.market import Side

CODE = "XISO"
OPEN = Directory("ISO", tick=100, phase=Phase.OPEN, reference=100_000)
TOKENS: list[list[Event]] = [
    [OPEN],
    [Order(1, 1, "ISO", Side.SELL, 100, 100_200), Order(2, 1, "ISO", Side.SELL, 50, 100_300)],
    [Order(3, 2, "ISO", Side.BUY, 60, 100_200), Order(4, 2, "ISO", Side.BUY, 7, 99_900)],
]


def heard(topic: str, payload: bytes, token: int, sequence: int) -> ReceivedMessage:
    return ReceivedMessage(topic, b"", payload, 0, sequence, 0, token, 0, 0, token=token, shuffle_key=KEY)


def watched() -> tuple[FloorScreen, list[dict[str, object]], FloorReport]:
    """A screen that has heard three tokens and a tick, its rows, and the report of the third token."""
    screen, other, rows, sequence = FloorScreen(CODE), FloorFollower(CODE), [], 0
    report = FloorReport(0, bytes(32), 0)
    for token, events in enumerate(TOKENS, 1):
        payloads = [encode_event(event) for event in events]
        for payload in payloads:
            sequence += 1
            rows += screen.take(heard(floor_topic(CODE), payload, token, sequence))
        step = other.follow(token, token, [FloorMessage(1, floor_topic(CODE), payload, KEY) for payload in payloads])
        assert step is not None
        report = FloorReport(token, step.state_hash(), 1, step.trades)
    rows += screen.take(heard(f"{floor_topic(CODE)}/tick", b"tick", 4, sequence + 1))
    return screen, rows, report


def drawn(screen: FloorScreen, symbol: str | None = None, height: int = 24) -> str:
    console = Console(width=80, height=height, file=io.StringIO(), record=True)
    console.print(floor_frame(screen, symbol, 80, height))
    return console.export_text()


def test_trades_are_told_when_they_are_made_and_when_they_are_final() -> None:
    screen, rows, report = watched()
    made = {
        "trade": 1,
        "state": "tentative",
        "token": 3,
        "symbol": "ISO",
        "price": "10.0200",
        "quantity": 60,
        "buy": 3,
        "sell": 1,
    }
    assert rows == [made]
    told = screen.take(heard(report_topic(CODE), encode_report(report), 5, 9))
    assert told == [made | {"state": "confirmed", "token": 5}]
    assert [one.state for one in screen.trades] == ["confirmed"]


def test_a_report_that_differs_is_told_and_believed_in_nothing() -> None:
    screen, _, report = watched()
    told = screen.take(heard(report_topic(CODE), encode_report(report._replace(state=b"?" * 32)), 5, 9))
    assert told == [{"differs": 3}]
    assert "1 report differ" in drawn(screen)
    assert [one.state for one in screen.trades] == ["tentative"]


def test_the_ladder_has_the_best_prices_and_what_they_show() -> None:
    screen, _, _ = watched()
    buys, sells = screen.levels("ISO", 5)
    assert [tuple(level) for level in buys] == [("9.9900", 7, 1)]
    assert [tuple(level) for level in sells] == [("10.0200", 40, 1), ("10.0300", 50, 1)]
    text = drawn(screen)
    assert "ISO: open, last 10.0200" in text
    assert "token 3, 1 trade, 0 confirmed" in text
    assert "9.9900" in text
    assert "tentative" in text


def test_it_fits_any_terminal_and_says_what_is_missing() -> None:
    screen, _, _ = watched()
    for height in (5, 12, 60):
        assert "XISO" in drawn(screen, height=height)
    assert "nothing trades here yet" in drawn(FloorScreen(CODE))
    assert "nothing trades here yet" in drawn(screen, "CAST")


def test_a_call_shows_what_its_auction_would_do() -> None:
    screen, rows = FloorScreen(CODE), []
    tokens: list[list[Event]] = [
        [OPEN._replace(phase=Phase.PRE_OPEN)],
        [Order(1, 1, "ISO", Side.SELL, 100, 100_200), Order(2, 2, "ISO", Side.BUY, 160, 100_400)],
    ]
    for token, events in enumerate(tokens, 1):
        for event in events:
            rows += screen.take(heard(floor_topic(CODE), encode_event(event), token, token))
    assert not rows
    assert "pre-open, last 10.0000, nothing would trade" in drawn(screen)
    rows = screen.take(heard(f"{floor_topic(CODE)}/tick", b"tick", 3, 3))
    assert rows == [{"indicative": "ISO", "token": 2, "price": "10.0400", "volume": 100, "surplus": 60}]
    assert "would trade 100 at 10.0400, 60 bought too" in drawn(screen)


def test_a_screen_that_begins_with_a_kept_state_comes_to_the_same_floor(tmp_path: Path) -> None:
    journal = written(tmp_path / "journal", computed())
    whole, first = screen_of(CODE, journal)
    assert (whole.begun_at, first) == (0, 1), "nothing is kept"
    kept_beside(journal)
    screen, first = screen_of(CODE, journal)
    assert screen.begun_at == 6
    told: list[list[object]] = []
    for shown, since in ((whole, 1), (screen, first)):
        messages = [
            heard(one.topic, one.payload, header.token_number, sequence)._replace(instant_ns=header.instant)
            for header, _, sequence, _, one in JournalReader(journal).opaque_messages(since)
        ]
        # The packet before shares its token with the kept state: whoever hears it again takes nothing of it.
        again = [heard(floor_topic(CODE), b"", 6, since - 1)] if since > 1 else []
        messages += [heard(f"{floor_topic(CODE)}/tick", b"tick", 99, 99)]
        told.append([row["trade"] for message in [*again, *messages] for row in shown.take(message) if "trade" in row])
    assert told == [[1, 2, 3], [3]]
    assert state_hash(screen.follower.follower.floor) == state_hash(whole.follower.follower.floor)
    assert screen.differing == 0
