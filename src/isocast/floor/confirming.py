"""What somebody who has only the sequence knows of a floor's trades: tentative, then confirmed.

A customer or a gateway sees neither who owns a token nor what is stable. It applies the floor's messages itself: what
trades is **tentative**. An arbiter's report that says "confirmed up to trade N" is believed if the state that it names
is the one that the follower has after the same token: then trades up to N are **confirmed**. A report that differs is
an alarm, and nothing in it is believed. What was confirmed in an earlier token may be **corrected** by two operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Final, NamedTuple, TypeAlias

from isocast.floor.corrections import Corrections, Judged, correction_topic
from isocast.floor.events import Trade
from isocast.floor.following import FloorFollower, FloorMessage, FloorStep
from isocast.floor.reporting import FloorReport, decode_report, joined, report_topic
from isocast.floor.snapshot import fold, unfold
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NodeId

__all__ = [
    "RESULTS_KEPT",
    "Comparison",
    "ConfirmationFollower",
    "Confirmed",
    "Corrected",
    "News",
    "OwnResult",
    "ReportDiffers",
    "ReportParts",
    "Tentative",
]

RESULTS_KEPT: Final = 256
"""Steps with a report whose state is remembered, to compare reports that come late: two cycles of the largest ring."""
_PARTS_WAITING: Final = 64
"""Reports of which some parts are missing: each site has one or two, and what a liar begins ends somewhere."""


# Comparing a report ------------------------------------------------------------------------------------------------


class Comparison(Enum):
    """What a report of a token is to somebody with a result of its own."""

    EQUAL = auto()
    """The same state and the same trades."""
    BRIEF = auto()
    """The same state, without the trades of the token: a word about what is confirmed, and no report of the token."""
    DIFFERENT = auto()


class OwnResult(NamedTuple):
    """What a step with a report came to, here."""

    token: int
    state: bytes
    trades: tuple[Trade, ...]

    @classmethod
    def of(cls, step: FloorStep) -> OwnResult:
        """Of a step that has just been made."""
        return cls(step.token, step.state_hash(), step.trades)

    @property
    def last(self) -> int:
        """The number of its last trade; 0: it made none."""
        return self.trades[-1].number if self.trades else 0

    def compare(self, report: FloorReport) -> Comparison:
        """What a whole report of the same token is to this result."""
        if report.state != self.state:
            return Comparison.DIFFERENT
        if report.trades == self.trades:
            return Comparison.EQUAL
        return Comparison.DIFFERENT if report.trades else Comparison.BRIEF


class ReportParts:
    """Puts reports together from parts that come in different messages, even in different tokens."""

    def __init__(self) -> None:
        """Nothing waits."""
        self._waiting: dict[tuple[Any, ...], dict[int, FloorReport]] = {}
        self.undecodable = 0
        """Messages of the report's topic that are no report; since this program started."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self, payload: bytes, site: NodeId | None) -> FloorReport | None:
        """One message: the whole report where its last part has come."""
        try:
            part = decode_report(payload)
        except RemoteProtocolError:
            self.undecodable += 1
            return None
        if part.parts == 1:
            return part
        key = (site, part.token, part.state, part.confirmed, part.parts)
        parts = self._waiting.setdefault(key, {})
        parts.setdefault(part.part, part)
        if len(parts) == part.parts:
            del self._waiting[key]
            return joined([parts[place] for place in range(part.parts)])
        if len(self._waiting) > _PARTS_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return None

    def rows(self) -> list[Any]:
        """What waits."""
        return [[site, [[_report_row(part) for part in parts.values()]]] for (site, *_), parts in self._waiting.items()]

    @classmethod
    def from_rows(cls, rows: Iterable[Any]) -> ReportParts:
        """What waited."""
        found = cls()
        for site, [parts] in rows:
            for row in parts:
                part = _read_report(row)
                key = (site, part.token, part.state, part.confirmed, part.parts)
                found._waiting.setdefault(key, {})[part.part] = part
        return found


def _report_row(report: FloorReport) -> list[Any]:
    trades = [list(trade) for trade in report.trades]
    return [report.token, report.state.hex(), report.confirmed, trades, report.part, report.parts]


def _read_report(row: list[Any]) -> FloorReport:
    token, state, confirmed, trades, part, parts = row
    return FloorReport(token, bytes.fromhex(state), confirmed, tuple([Trade(*one) for one in trades]), part, parts)


# Following ---------------------------------------------------------------------------------------------------------


class Tentative(NamedTuple):
    """A token of the floor is over: its trades are tentative, and all else that it says holds."""

    step: FloorStep


class Confirmed(NamedTuple):
    """These trades can no longer be lost; none before them is open."""

    trades: tuple[Trade, ...]
    token: int
    """That carried the report which says so."""


class ReportDiffers(NamedTuple):
    """An alarm: a report names another state or other trades than this follower has. Nothing in it is believed."""

    token: int
    """Which it is about."""
    own: bytes
    """The state here; empty where no report was due."""
    other: bytes


class Corrected(NamedTuple):
    """Two operators correct a confirmed trade; or would, if there were no fault in what they sent."""

    judged: Judged
    token: int
    """That carries it."""


News: TypeAlias = Tentative | Confirmed | ReportDiffers | Corrected


class ConfirmationFollower:
    """A floor followed from the sequence, with what is confirmed of its trades."""

    def __init__(self, follower: FloorFollower) -> None:
        """Behind a follower, with nothing confirmed of what it will hear."""
        self.follower = follower
        self.topic = report_topic(follower.code)
        self.confirmed = follower.floor.next_trade - 1
        """Trades up to this number are; what was before the follower began is not asked."""
        self.parts = ReportParts()
        self._results: dict[int, OwnResult] = {}
        self._forgotten = follower.floor.token
        """Steps up to this token are no longer compared."""
        self._open: dict[int, Trade] = {}
        """Tentative trades by number."""
        self.corrections = Corrections()
        self._correction_topic = correction_topic(follower.code)
        self._before = 0, self.confirmed
        """The newest token that was heard of, and up to which trade all were confirmed before it."""

    @property
    def tentative(self) -> tuple[Trade, ...]:
        """Trades that are not confirmed, in order."""
        return tuple(self._open.values())

    def hear(self, token: int, instant: int, message: FloorMessage) -> list[News]:
        """The next message of the sequence, of whatever topic."""
        news = self._stepped(self.follower.hear(token, instant, message))
        if token > self._before[0]:
            self._before = token, self.confirmed
        if message.topic == self._correction_topic:
            judged = self.corrections.hear(message.payload, self.follower.floor, self._before[1], instant)
            news += [] if judged is None else [Corrected(judged, token)]
        elif message.topic == self.topic:
            report = self.parts.take(message.payload, message.site)
            if report is not None:
                news += self._reported(report, token)
        return news

    def finish(self) -> list[News]:
        """The token that has begun is over."""
        return self._stepped(self.follower.finish())

    def _stepped(self, step: FloorStep | None) -> list[News]:
        if step is None:
            return []
        if step.is_reported:
            self._results[step.token] = OwnResult.of(step)
            self._open |= {trade.number: trade for trade in step.trades}
            while len(self._results) > RESULTS_KEPT:
                self._forgotten = next(iter(self._results))
                del self._results[self._forgotten]
        return [Tentative(step)]

    def _reported(self, report: FloorReport, token: int) -> list[News]:
        own = self._results.get(report.token)
        if own is None:
            old = report.token <= self._forgotten
            return [] if old else [ReportDiffers(report.token, b"", report.state)]
        if own.compare(report) is Comparison.DIFFERENT:
            return [ReportDiffers(report.token, own.state, report.state)]
        confirmed = [trade for number, trade in self._open.items() if number <= report.confirmed]
        if not confirmed:
            return []
        for trade in confirmed:
            del self._open[trade.number]
        self.confirmed = confirmed[-1].number
        return [Confirmed(tuple(confirmed), token)]

    # Restart ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """All that it goes on from, as canonical bytes."""
        results = [
            [one.token, one.state.hex(), [list(trade) for trade in one.trades]] for one in self._results.values()
        ]
        return fold(
            {
                "follower": self.follower.rows(),
                "confirmed": self.confirmed,
                "parts": self.parts.rows(),
                "results": results,
                "forgotten": self._forgotten,
                "open": [list(trade) for trade in self._open.values()],
                "before": list(self._before),
                "corrections": self.corrections.rows(),
            }
        )

    @classmethod
    def restored(cls, snapshot: bytes) -> ConfirmationFollower:
        """As it was; RemoteProtocolError for bytes that are no snapshot of it."""
        rows = unfold(snapshot)
        try:
            found = cls(FloorFollower.from_rows(rows["follower"]))
            found.confirmed, found._forgotten = rows["confirmed"], rows["forgotten"]
            found.parts = ReportParts.from_rows(rows["parts"])
            for token, state, trades in rows["results"]:
                found._results[token] = OwnResult(token, bytes.fromhex(state), tuple([Trade(*one) for one in trades]))
            found._open = {trade.number: trade for trade in (Trade(*row) for row in rows["open"])}
            if "corrections" in rows:
                found._before = rows["before"][0], rows["before"][1]
                found.corrections = Corrections.from_rows(rows["corrections"])
            else:
                found._before = 0, found.confirmed
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            raise RemoteProtocolError("a snapshot of a floor with rows of another version") from reason
        return found
