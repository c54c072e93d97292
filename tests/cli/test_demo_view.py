"""Frames of the demo from canned statuses and journals, and what it says at its end."""

import io
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tests.trials.demo.canned import FLOOR, NOW, PUBLISHED, canned_market, status_of, write_journals
from tests.trials.demo.canned_trading import CannedTrading, finished, trading_market

from isocast.cli.demo_run import next_steps, summary_lines
from isocast.cli.demo_trading import floor_words
from isocast.cli.demo_view import frame, phase, state_of
from isocast.cli.live_view import picture
from isocast.orders.needs import Side
from isocast.runtime.market.model import Market
from isocast.runtime.operate.supervisor import ChildState
from isocast.runtime.watch.status import NodeStatus, StatusAnswer, Target
from isocast.terms.instants import SECOND
from isocast.terms.market import Mic
from isocast.trials.demo.cast import Tone
from isocast.trials.demo.floor_record import FloorRecord
from isocast.trials.demo.show import Show, ShowPhase, ShowSettings
from isocast.trials.demo.summary import Summary, read_proof, sum_up
from isocast.trials.demo.trading_summary import judge_trading
from isocast.trials.evidence import journal_of

ROOT = Path(__file__).parents[2]
SIZES = ((150, 50), (96, 36), (80, 24), (40, 10), (8, 2))
RING = ("new-york", "london", "mumbai", "hong-kong", "tokyo")


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return canned_market(tmp_path)


def answer(show: Show, *statuses: NodeStatus) -> None:
    """As if everybody had just been asked."""
    found = {plan.name: status_of(show.market, plan.name) for plan in show.market.nodes}
    for name, status in (found | {status.name: status for status in statuses}).items():
        show.watch.answers[name] = StatusAnswer(Target("127.0.0.1", 7780, name), status)
        show.watch.ledger.enter(status)
        show.watch._see_ring(status)  # noqa: SLF001


def beginning(market: Market) -> Show:
    show = Show(market, ShowSettings(30.0, 7))
    show.began_at = NOW - 2 * SECOND
    return show


def playing(market: Market) -> Show:
    """In peace: every process runs, and five tokens are out."""
    show = beginning(market)
    show.phase, show.opened_at = ShowPhase.PLAYING, NOW
    show.children = {plan.name: ChildState.READY for plan in market.nodes}
    show.feeds[0].events = PUBLISHED
    write_journals(market)
    answer(show)
    with show.watch:
        show.watch.follow_journals()
    return show


def killed(market: Market) -> Show:
    """Tokyo is down, and the others have not noticed yet."""
    show = playing(market)
    show.story.victim, show.story.token_number, show.story.killed_at = "tokyo", 5, NOW + SECOND
    show.children["tokyo"] = ChildState.PAUSING
    show.watch.answers["tokyo"] = StatusAnswer(Target("127.0.0.1", 7780, "tokyo"), None, "Connection refused")
    show.note(Tone.TROUBLE, "kill -9 1: Tokyo dies")
    return show


def at_token(show: Show, token_number: int) -> int:
    ring = show.watch.ring
    assert ring is not None
    return ring.instant(token_number) + ring.period_ns // 2


def drawn(show: Show, now: int, width: int = 100, height: int = 40) -> list[str]:
    out = io.StringIO()
    console = Console(
        file=out, width=width, height=height, color_system=None, force_terminal=True, legacy_windows=False
    )
    console.print(frame(show, width, height, now))
    return out.getvalue().splitlines()


# ---- frames


@pytest.mark.parametrize("width, height", [(100, 40), (80, 24)])
def test_a_frame_shows_every_city_the_token_floors_and_customers(width: int, height: int, market: Market) -> None:
    show = playing(market)
    lines = drawn(show, at_token(show, 3), width, height)
    text = "\n".join(lines)
    for plan in market.receivers:
        assert plan.place is not None
        assert f" {plan.place.name} " in text
        assert plan.place.code in text
    assert re.search(r"Mumbai +◆ token ", text), "token 3 is Mumbai's"
    assert re.search(r"token +3, epoch 1.1", text)
    assert re.search(r"next +Hong Kong 0\.4 s", text)
    assert re.search(r"released +20 messages", text)
    for name in ("XNYS", "bank", "fund", "ticker"):
        assert name in text
    assert not [line for line in lines[:-9] if "…" in line], "nothing but the log may be cut"


@pytest.mark.parametrize("make", [beginning, playing, killed])
def test_any_size_of_terminal_is_drawn(make: object, market: Market) -> None:
    assert callable(make)
    show = make(market)
    for width, height in SIZES:
        lines = drawn(show, NOW + SECOND, width, height)
        assert len(lines) <= height
        assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width, height", SIZES)
def test_what_is_still_empty_is_blank(width: int, height: int, market: Market) -> None:
    """For an empty part rich would draw the name of the layout."""
    show = beginning(market)
    assert not show.notes
    assert "Layout" not in "".join(drawn(show, NOW, width, height))


def test_the_frame_follows_the_story(market: Market) -> None:
    assert "17 processes start, 0 are ready" in "\n".join(drawn(beginning(market), NOW))
    show = killed(market)
    now = at_token(show, 5)
    text = "\n".join(drawn(show, now))
    assert "token 5 is missing, Tokyo down: the ring re-forms" in text
    assert re.search(r"Tokyo +✖ down ", text)
    assert "kill -9 1: Tokyo dies" in text
    assert re.search(r"next +a ballot", text)
    show.story.reformed_at = now
    assert phase(show) == ("Tokyo down, the others go on", "bold yellow")
    show.story.started_at = now
    assert phase(show)[0] == "Tokyo outside the ring, catching up"
    show.story.whole_at = now
    assert phase(show)[0] == "2 % of all packets get lost"
    show.phase = ShowPhase.SETTLING
    assert "last messages" in phase(show)[0]


def test_a_city_has_a_state_for_everything_that_can_befall_it(market: Market) -> None:
    show = playing(market)
    now = at_token(show, 1)
    tokyo, seoul = market.node("tokyo"), market.node("seoul")
    assert state_of(show, market.node("new-york"), now) == "token"
    assert state_of(show, tokyo, now) == "ring"
    assert state_of(show, seoul, now) == "ring"
    answer(show, status_of(market, "tokyo", gauges={"mode": "sealed"}), status_of(market, "seoul", ready=False))
    assert state_of(show, tokyo, now) == "ballot"
    assert state_of(show, seoul, now) == "outside"
    answer(show, status_of(market, "tokyo", gauges={"mode": "catchup"}))
    assert state_of(show, tokyo, now) == "outside"
    show.children["tokyo"] = ChildState.PAUSING
    assert state_of(show, tokyo, now) == "down"
    assert state_of(beginning(market), tokyo, now) == "start"


def test_a_node_that_is_only_busy_is_not_drawn_as_dead(market: Market) -> None:
    show = playing(market)
    show.watch.answers["london"] = StatusAnswer(Target("127.0.0.1", 7780, "london"), None, "no answer within 1.5 s")
    assert state_of(show, market.node("london"), at_token(show, 1)) == "ring"


def test_a_market_that_has_stopped_stands_still(market: Market) -> None:
    show = playing(market)
    show.phase, show.stopped_at = ShowPhase.JUDGING, at_token(show, 3)
    then, later = (drawn(show, at_token(show, token)) for token in (3, 9))
    assert then[0] != later[0], "the time goes on"
    assert then[1:] == later[1:]


# ---- traders


@pytest.fixture
def trading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CannedTrading]:
    """Two trades of XISO, of which the first is confirmed; journals are written."""
    made = CannedTrading(trading_market(tmp_path_factory.mktemp("trading")))
    made.trade()
    made.order("London", Side.BUY, 10, 99)
    made.step()
    made.write()
    yield made
    made.close()


def trading_show(trading: CannedTrading) -> Show:
    show = Show(trading.market, ShowSettings(30.0, 7))
    show.began_at, show.opened_at, show.phase = NOW - 2 * SECOND, NOW, ShowPhase.PLAYING
    with show.watch:
        show.watch.follow_journals()
    return show


@pytest.mark.parametrize("width, height", [(120, 40), (100, 40)])
def test_a_roomy_frame_has_a_panel_of_the_floor(width: int, height: int, trading: CannedTrading) -> None:
    text = "\n".join(drawn(trading_show(trading), NOW, width, height))
    assert "The floor XISO 2 trades, 1 confirmed, 4 orders, 1 rest" in text
    assert re.search(r"ISO +99\.00 +– +60 at 100\.00 +London 2 ", text)
    assert re.search(r"CAST +– +– +New York 1 ", text)
    assert re.search(r"RING .*Tokyo 1 ", text)
    assert "What happens" in text


def test_a_small_frame_has_a_line_of_the_floor(trading: CannedTrading) -> None:
    text = "\n".join(drawn(trading_show(trading), NOW, 80, 24))
    assert "XISO 2 trades, 1 confirmed, 4 orders  ISO 100.00  ISO 99.00/–" in text


def test_any_size_of_terminal_is_drawn_with_a_floor(trading: CannedTrading) -> None:
    before = Show(trading.market, ShowSettings(30.0, 7))
    for show in (before, trading_show(trading)):
        for width, height in SIZES:
            lines = drawn(show, NOW, width, height)
            assert len(lines) <= height
            assert max(map(len, lines)) <= width
            assert "Layout" not in "".join(lines)


def test_where_there_is_no_terminal_a_line_says_how_far_the_floor_is(trading: CannedTrading) -> None:
    floor = trading_show(trading).watch.floor
    assert floor is not None
    assert floor_words(floor) == "XISO 2 trades, 1 confirmed, 4 orders, 1 rest"
    assert floor_words(FloorRecord("XISO")) == "XISO opens"


def test_the_summary_says_what_the_traders_did(trading: CannedTrading, market: Market) -> None:
    trading.sequence.confirm()
    trading.follow()
    for plan in trading.market.receivers:
        shutil.rmtree(journal_of(trading.market, plan.name))
    trading.write()
    found = finished(judge_trading(trading.market, is_complete=True))
    text = "\n".join(summary_lines(summed_up(market).with_trading(replace(found, agreed={**found.agreed, "tokyo": 5}))))
    assert "traders     London 2, New York 1, Tokyo 1: 4 orders through two gateways, 0 cancels, none refused" in text
    assert "trades      2 trades on XISO, worth 10,000.00 USD: 2 confirmed, none busted\n" in text
    assert re.search(r"tentative at the release of its token: .* after its order was accepted", text)
    assert "confirmed 0.00 s median, 0.00 s p99, after that release, at token t+2: then all hold its report" in text
    assert "clearing    4 legs of trades settled, each once; between the gateways: zero, of every asset" in text
    assert "reserved: 990.0990 USD" in text
    assert "from 7 of 7 journals: every trade recomputed, and as reported" in text
    assert "; Tokyo, back again, up to token 5" in text
    assert "WRONG" not in text
    assert max(map(len, text.splitlines())) <= 112


def test_what_is_wrong_with_trading_makes_the_demo_fail(trading: CannedTrading, market: Market) -> None:
    judged = finished(judge_trading(trading.market, is_complete=True))
    found = replace(judged, faults=("london-gateway: money is missing",))
    summary = summed_up(market).with_trading(found)
    assert summary.faults == ("london-gateway: money is missing",)
    assert "WRONG       london-gateway: money is missing" in "\n".join(summary_lines(summary))
    told = summary.as_json()["trading"]
    assert isinstance(told, dict)
    assert (told["trades"], told["confirmed"]) == (2, 1)


def test_without_packages_nobody_trades_and_the_summary_says_which(market: Market) -> None:
    text = "\n".join(summary_lines(summed_up(market), ["sqlalchemy"]))
    assert "traders     none, without sqlalchemy: pip install 'isocast[accounts,websocket]'" in text


# ---- the summary


def summed_up(market: Market, published: int = PUBLISHED) -> Summary:
    show = killed(market)
    story = show.story
    story.killed_at, story.reformed_at, story.whole_at = NOW + 20 * SECOND, NOW + 21 * SECOND, NOW + 25 * SECOND
    promised = {FLOOR.mic: published}
    return sum_up(
        market,
        read_proof(market, promised),
        show.watch.ledger,
        show.story,
        seconds=30.0,
        rings=3,
        published=promised,
    )


def test_the_summary_says_what_the_journals_prove(market: Market) -> None:
    text = "\n".join(summary_lines(summed_up(market)))
    assert "messages    20 in one sequence with 60 events of 60 published" in text
    assert re.search(r"latency +1\.388 s submit to release, formula 1\.553 s: 0\.89 of it", text)
    assert re.search(r"skew +6\.0 ms median, 6\.0 ms p99, 6\.0 ms at most between receivers, message by message", text)
    assert "20 of 20 messages within 2ε = 10 ms\n" in text
    assert re.search(r"left out: 28 of 140 releases, made while a ring formed", text), "of the latency"
    assert "Tokyo killed before its token 5: ring without it after 1.0 s, on the ring again after 5.0 s" in text
    assert "bank, Chicago, complete: 20 messages, gaps: none" in text
    assert "gaps        none" in text
    assert "early       none" in text
    assert "WRONG" not in text
    assert max(map(len, text.splitlines())) <= 112


def test_events_of_the_markets_own_floor_are_no_fault(market: Market) -> None:
    """A trade of XISO that is on the tape was published by nobody's feed."""
    summary = summed_up(market)
    more = replace(summary, events=summary.events + 2, by_floor={**summary.by_floor, Mic("XISO"): 2})
    text = "\n".join(summary_lines(more))
    assert "messages    20 in one sequence with 62 events, of which floors published 60" in text
    assert "XISO 2, XNYS 60; the same in the journals" in text
    assert "WRONG" not in text


def test_the_summary_says_what_was_wrong(market: Market) -> None:
    summary = summed_up(market, PUBLISHED + 1)
    text = "\n".join(summary_lines(summary))
    assert "WRONG       XNYS: 1 of 61 events are in no journal, the first is number 61" in text
    assert summary.as_json()["faults"] == ["XNYS: 1 of 61 events are in no journal, the first is number 61 (L1)"]


def test_a_node_that_counted_an_early_release_is_believed(market: Market) -> None:
    show = playing(market)
    show.watch.ledger.enter(status_of(market, "tokyo", at_ns=NOW + 1, totals={"early_releases_total": 2.0}))
    summary = sum_up(
        market,
        read_proof(market),
        show.watch.ledger,
        show.story,
        seconds=1.0,
        rings=1,
        published={},
    )
    assert summary.faults == ("2 messages went out before their instant, as their nodes say",)


def test_a_kept_market_comes_with_commands_that_exist(market: Market) -> None:
    lines = list(next_steps(market))
    for command in ("journal verify", "journal cat", "up", "top", "listen", "publish"):
        assert [line for line in lines if f"isocast {command} " in line], command


# ---- the picture


def test_the_picture_asks_no_other_server(market: Market) -> None:
    show = playing(market)
    made = picture(frame(show, 100, 40, at_token(show, 2)), 100, 40, "isocast demo")
    for text in (made, (ROOT / "docs" / "assets" / "demo.svg").read_text(encoding="utf-8")):
        assert set(re.findall(r"\w+://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}, "a namespace, not an address"
        assert "@font-face" not in text
        assert "url(#" in text
        assert "url(h" not in text


def test_the_picture_of_the_pages_has_the_tables() -> None:
    text = (ROOT / "docs" / "assets" / "demo.svg").read_text(encoding="utf-8").replace("&#160;", " ")
    assert re.search(r"tables: [0-9,]+ events, [0-9.]+ s behind", text)


def test_the_readme_shows_the_picture() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "](docs/assets/demo.svg)" in text
    assert "<!--" not in text
