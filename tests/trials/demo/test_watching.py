"""Watching: what nodes say and journals hold becomes rings, figures and lines, each told once."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.trials.demo.canned import NOW, canned_market, status_of, write_journals

from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.watch.status import Alarm, NodeStatus, StatusAnswer, Target
from isocast.trials.demo import watching
from isocast.trials.demo.cast import Tone
from isocast.trials.demo.watching import MarketWatch, WatchedRing

RING = ("new-york", "london", "mumbai", "hong-kong", "tokyo")


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return canned_market(tmp_path)


class Seen:
    """A watch whose nodes say what a test wants."""

    def __init__(self, market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
        self.market = market
        self.notes: list[tuple[Tone, str]] = []
        self.watch = MarketWatch(market, lambda tone, text: self.notes.append((tone, text)))
        self._statuses: dict[str, NodeStatus] = {}
        monkeypatch.setattr(watching, "poll", self._poll)

    async def _poll(self, targets: Sequence[Target], *, seconds: float) -> list[StatusAnswer]:
        assert seconds > 0
        return [StatusAnswer(target, self._statuses.get(target.name), "Connection refused") for target in targets]

    def look(self, *statuses: NodeStatus) -> list[str]:
        """Everybody in peace but these; the new lines."""
        self._statuses = {plan.name: status_of(self.market, plan.name) for plan in self.market.nodes}
        self._statuses |= {status.name: status for status in statuses}
        return self._told()

    def look_at_nobody(self) -> list[str]:
        self._statuses = {}
        return self._told()

    def _told(self) -> list[str]:
        before = len(self.notes)
        asyncio.run(self.watch.look())
        return [text for _, text in self.notes[before:]]


def test_a_ring_is_told_once_and_its_timetable_is_known(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(market, monkeypatch)
    assert seen.look() == ["The ring forms, epoch 1.1: all 5 cities"]
    assert seen.look() == []
    ring = seen.watch.ring
    assert ring is not None
    period = market.timing.token_period_ns
    start = NOW + period
    assert ring == WatchedRing("1.1", RING, 1, start, period)
    assert [ring.token_at(at) for at in (start - 2 * period, start - 1, start, start + 7 * period)] == [0, 0, 1, 8]
    assert [ring.owner(token) for token in (1, 5, 6)] == ["new-york", "tokyo", "new-york"]
    assert ring.instant(3) == start + 2 * period


def test_a_ring_without_one_is_told_and_is_not_whole(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(market, monkeypatch)
    seen.look()
    assert seen.watch.is_whole()
    gauges = {"epoch": "10.2", "ring": RING[:4], "ring_first_token": 12, "ring_start_ns": NOW}
    others = [status_of(market, name, gauges=gauges) for name in RING[:4]]
    assert seen.look(*others) == ["The ring re-forms, epoch 10.2: 4 without Tokyo"]
    assert not seen.watch.is_whole()
    assert seen.watch.ring is seen.watch.rings["10.2"], "10.2 is newer than 9.1, whatever the letters say"
    older = gauges | {"epoch": "9.1", "ring": RING}
    assert seen.look(*others, status_of(market, "tokyo", gauges=older)) == []


def test_a_node_that_does_not_answer_says_nothing_and_is_remembered(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(market, monkeypatch)
    seen.look()
    seen.look_at_nobody()
    assert seen.watch.status("tokyo") is None
    assert seen.watch.ledger.newest("tokyo") is not None
    assert seen.watch.next_sequence(market.node("tokyo")) is None
    assert not seen.watch.is_whole()


def test_counts_of_a_process_that_died_are_kept(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(market, monkeypatch)
    seen.look(status_of(market, "tokyo", pid=1, totals={"nacks_sent_total": 5.0}))
    seen.look(status_of(market, "tokyo", pid=1, totals={"nacks_sent_total": 7.0}))
    seen.look(status_of(market, "tokyo", pid=2, at_ns=NOW + 1, totals={"nacks_sent_total": 2.0}))
    assert seen.watch.ledger.total("nacks_sent_total") == 9
    assert seen.watch.ledger.total("nacks_sent_total", ["london"]) == 0


def test_suspicions_are_told_in_few_words_and_once_for_all(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(market, monkeypatch)
    seen.look()

    def alarm(code: str, text: str) -> tuple[Alarm, ...]:
        return (Alarm(code, text, "look at it", 1, NOW, NOW),)

    lost = alarm("suspect-unrecovered-tokyo", "tokyo is suspected (unrecovered) at token 9")
    behind = alarm("suspect-behind-london", "london is suspected (behind) at token 10")
    silent = alarm("silent-tokyo", "the line of tokyo is silent for 900 ms")
    told = seen.look(
        status_of(market, "new-york", alarms=lost),
        status_of(market, "mumbai", alarms=lost),
        status_of(market, "london", alarms=behind),
        status_of(market, "fund", alarms=silent),
    )
    assert told == [
        "New York suspects Tokyo: token 9 unrecovered",
        "London cannot send token 10: behind",
        "fund: the line of tokyo is silent for 900 ms",
    ]
    assert seen.notes[-1][0] is Tone.TROUBLE
    assert seen.look(status_of(market, "fund", alarms=silent)) == []


def test_losses_and_repairs_are_seen_where_they_happen(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(market, monkeypatch)
    seen.look()
    at = NOW + 3 * market.timing.token_period_ns  # Token 3, which Mumbai sends.
    totals = {"injected_losses_total": 4.0, "repairs_received_total": 3.0}
    told = seen.look(
        status_of(market, "london", at_ns=at, totals=totals), status_of(market, "seoul", at_ns=at, totals=totals)
    )
    assert told == ["8 packets lost, 6 repaired"]
    assert seen.watch.losses == {"london": at, "seoul": at}
    assert list(seen.watch.repairs) == [(at, "mumbai", "london"), (at, "tokyo", "seoul")]


def test_releases_are_read_from_the_journals(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(market, monkeypatch)
    write_journals(market)
    with seen.watch:
        told = seen.look()
        assert told[-1] == "Token 5: 4 messages out in 7 cities within 6.0 ms"
        assert seen.look() == []
    assert len(seen.watch.recent) == 5


def test_people_call_receivers_by_their_cities(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen(market, monkeypatch)
    assert seen.watch.title("hong-kong") == "Hong Kong"
    assert seen.watch.title("bank") == "bank"
    assert {plan.role for plan in market.receivers} == {NodeRole.PRIMARY_RECEIVER, NodeRole.SECONDARY_RECEIVER}
