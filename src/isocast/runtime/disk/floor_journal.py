"""A floor recomputed from a journal: its book and its trades at any token, and whether its arbiters said the same.

A journal holds the sequence, and the floor is a function of it: nobody has to be asked, and nobody to be believed. What
an arbiter has reported of a token is compared with what that token gives here.

A long day need not be computed from its first message. Beside its journal a site keeps the last state that all agree
on; whoever only wants to know how the floor stands begins there, if the sequence itself vouches for it: a report that
an arbiter published behind that token names the hash of this very state. What nobody vouches for is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from isocast.checks.floor_acts import FloorWrong
from isocast.checks.floors import FloorJudges
from isocast.floor.arbiter import Standing
from isocast.floor.codec import floor_topic
from isocast.floor.confirming import Comparison, ConfirmationFollower, News, OwnResult, ReportParts, Tentative
from isocast.floor.corrections import correction_topic, decode_correction, signature_fault
from isocast.floor.events import Trade
from isocast.floor.following import FloorFollower, FloorMessage, FloorStep
from isocast.floor.machine import Floor
from isocast.floor.reporting import FloorReport, report_topic, reported_state
from isocast.floor.snapshot import unfold
from isocast.floor.state import state_hash
from isocast.floor.transcripts import transcript_of_step
from isocast.runtime.disk.journal_reader import JournalReader
from isocast.runtime.market.floors import floor_state_file
from isocast.security.roster import Roster, RosterRole
from isocast.terms.errors import JournalError, LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId

__all__ = [
    "FloorDifference",
    "FloorVerdict",
    "JournalFloor",
    "Reach",
    "SteppedTrade",
    "UnsignedCorrection",
    "floors_of",
    "kept_floors",
]

_RESULTS_KEPT: Final = 100_000
"""Tokens whose result is remembered for reports that come late: some 30 MB, and hours of a busy floor."""
_BREACHES_KEPT: Final = 100
_FLOOR_TOPIC: Final = "floor/"

Reach = Callable[[int], None]
"""Told how many sequences have been read."""


class SteppedTrade(NamedTuple):
    """A trade, and the token that made it."""

    token: int
    instant: int
    trade: Trade
    state: str = "tentative"
    """tentative, confirmed, corrected or void."""
    right: Trade | None = None
    """As it was corrected; None: it was not."""


class FloorDifference(NamedTuple):
    """Where a report and the sequence do not agree."""

    token: int
    """Of the floor, which the report is about."""
    sequence: int
    """Of the message that carries the report."""
    what: str
    here: str
    reported: str


class UnsignedCorrection(NamedTuple):
    """A correction that no two operators of the rosters at hand signed."""

    trade: int
    version: int
    token: int
    sequence: int
    fault: str


@dataclass(slots=True)
class FloorVerdict:
    """What came of comparing a floor's reports with its sequence."""

    floor: str
    steps: int = 0
    events: int = 0
    undecodable: int = 0
    trades: int = 0
    volume: int = 0
    reports: int = 0
    """Whole reports that were compared."""
    equal: int = 0
    """With state and trades."""
    brief: int = 0
    """With the state alone."""
    too_old: int = 0
    unreported: int = 0
    """Tokens with trades of which no report says the trades; the newest may still be under way."""
    first_unreported: int | None = None
    unreadable: int = 0
    """Messages of the reports' topic that are none, or parts whose others are missing."""
    confirmed: int = 0
    """Trades up to this number, as reports say that agree."""
    differences: list[FloorDifference] = field(default_factory=list)
    breaches: list[FloorWrong] = field(default_factory=list)
    """The first breaches of T4, T6 and T7 in what is computed here."""
    corrections: int = 0
    """Of confirmed trades, that the sequence has."""
    signed: int = 0
    """Of these, how many two operators of a roster signed; 0 where there is no roster to tell by."""
    unsigned: list[UnsignedCorrection] = field(default_factory=list)
    token: int = 0
    state: str = ""
    """The hash of the floor's state at the end."""

    @property
    def is_equal(self) -> bool:
        """Whether no report says anything else than the sequence, no rule is broken in it, and nothing is unsigned."""
        return not self.differences and not self.breaches and not self.unsigned

    @property
    def unchecked(self) -> int:
        """Corrections whose signatures nobody looked at here."""
        return self.corrections - self.signed - len(self.unsigned)


def _messages(
    where: Path, reach: Reach | None, first_sequence: int = 0
) -> Iterator[tuple[int, int, NodeId, FloorMessage]]:
    """The opaque messages of a journal from a sequence on: token, instant, source, message."""
    for header, source, sequence, _, message in JournalReader(where).opaque_messages(first_sequence):
        if reach is not None:
            reach(header.next_sequence)
        heard = FloorMessage(sequence, message.topic, message.payload, header.shuffle_key)
        yield header.token_number, header.instant, source, heard


def floors_of(where: Path) -> list[str]:
    """The floors that have messages in a journal, most first."""
    found: Counter[str] = Counter()
    for _, _, _, message in _messages(where, None):
        code = message.topic.removeprefix(_FLOOR_TOPIC)
        if code != message.topic and "/" not in code:
            found[code] += 1
    return [code for code, _ in found.most_common()]


def kept_floors(where: Path) -> list[str]:
    """The floors whose state is kept beside a journal."""
    pattern = floor_state_file(where.parent, "*").name
    head, _, tail = pattern.partition("*")
    return sorted(path.name.removeprefix(head).removesuffix(tail) for path in where.parent.glob(pattern))


def _kept_state(where: Path, code: str, last_token: int | None) -> Standing | None:
    """The state that is kept beside a journal, if it is not behind a token and the sequence vouches for it."""
    try:
        kept = Standing.from_rows(unfold(floor_state_file(where.parent, code).read_bytes()), 0, FloorFollower, 1)
    except (OSError, RemoteProtocolError):
        return None
    floor = kept.follower.floor
    if kept.code != code or (last_token is not None and floor.token > last_token):
        return None
    for _, _, _, message in _messages(where, None, kept.follower.sequence + 1):
        said = reported_state(code, floor.token, message.topic, message.payload)
        if said is not None:
            return kept if said == state_hash(floor) else None
    return None


class JournalFloor:
    """A floor as a journal tells it."""

    def __init__(self, where: Path, code: str, *, is_whole: bool = True, last_token: int | None = None) -> None:
        """Of the floor with this code; JournalError for a journal that does not begin with the sequence.

        Where not all of it is wanted, but how it stands at the end or after `last_token`, it begins with the state
        that is kept beside the journal, if the sequence vouches for that.
        """
        self._where = where
        self.code = code
        self._topics = frozenset({floor_topic(code), report_topic(code), correction_topic(code)})
        self._kept = None if is_whole else _kept_state(where, code, last_token)
        self._follower = FloorFollower(code) if self._kept is None else self._kept.follower
        self.begun_at = self.floor.token
        """The token behind which it is computed here; 0: from the first message on."""
        span = JournalReader(where).span()
        if span is None:
            raise JournalError(str(where), "is empty: there is no floor in it")
        self.first_sequence, self.next_sequence = span
        if self.first_sequence > self._follower.sequence + 1:
            rule = f"begins with sequence {self.first_sequence:,}: a floor is computed from the first; fetch the rest"
            raise JournalError(str(where), rule)

    @property
    def floor(self) -> Floor:
        """As far as it has been read."""
        return self._follower.floor

    def steps(self, last_token: int | None = None, reach: Reach | None = None) -> Iterator[FloorStep]:
        """The floor's tokens one after the other, up to one, that included; not one of which a part is missing."""
        for *_, step in self._heard(last_token, reach):
            if step is not None:
                yield step

    def trades(
        self,
        last_token: int | None = None,
        reach: Reach | None = None,
        *,
        limit: int | None = None,
        symbol: str | None = None,
    ) -> list[SteppedTrade]:
        """Trades in order, the first so many, of a symbol or of all; and how they stand at the end."""
        found: list[SteppedTrade] = []
        followed = self.followed()
        for followed, step in self.confirmations(reach, last_token):  # noqa: B007 - as it is at the end
            made = [one for one in step.trades if symbol in {None, one.symbol}] if step is not None else []
            room = len(made) if limit is None else limit - len(found)
            if step is not None:
                found += [SteppedTrade(step.token, step.instant, trade) for trade in made[:room]]
        return [_standing(one, followed) for one in found]

    def confirmations(
        self, reach: Reach | None = None, last_token: int | None = None
    ) -> Iterator[tuple[ConfirmationFollower, FloorStep | None]]:
        """The floor with what is confirmed and corrected, at the beginning and after each message, with a step made."""
        followed = self.followed()
        yield followed, None
        for token, instant, _, message in self._behind(reach):
            if last_token is not None and token > last_token:
                break
            if message.topic not in self._topics:
                continue
            try:
                news = followed.hear(token, instant, message)
            except LocalProtocolError as reason:
                raise JournalError(str(self._where), f"sequence {message.sequence:,}: {reason}") from reason
            yield followed, _step_in(news)
        if self._is_over():
            yield followed, _step_in(followed.finish())

    def followed(self) -> ConfirmationFollower:
        """The floor where it is computed from, before anything is read."""
        followed = ConfirmationFollower(self._follower)
        if self._kept is not None:
            followed.confirmed, followed.corrections = self._kept.told, self._kept.corrections
        return followed

    def _behind(self, reach: Reach | None) -> Iterator[tuple[int, int, NodeId, FloorMessage]]:
        """The messages that are not in the state that it begins with."""
        for one in _messages(self._where, reach, self._follower.sequence + 1):
            if one[-1].sequence >= self.next_sequence:
                return  # Written since; a token that is not over here may be by now.
            if one[0] > self.begun_at:
                yield one

    def _heard(
        self, last_token: int | None, reach: Reach | None
    ) -> Iterator[tuple[int, int, NodeId | None, FloorMessage | None, FloorStep | None]]:
        """Each message of the floor with its token, instant and source, and the step that it ends.

        At the end the last step, without a message.
        """
        for token, instant, source, message in self._behind(reach):
            if last_token is not None and token > last_token:
                break
            if message.topic not in self._topics:
                continue
            try:
                step = self._follower.hear(token, instant, message)
            except LocalProtocolError as reason:
                raise JournalError(str(self._where), f"sequence {message.sequence:,}: {reason}") from reason
            yield token, instant, source, message, step
        yield 0, 0, None, None, self._follower.finish() if self._is_over() else None

    def _is_over(self) -> bool:
        """Whether the journal has all of the token that has begun: a part of its events would enter in another order.

        A site's journal says how many messages a token has; where a line was written down, a later token tells.
        """
        token = self._follower.open_token
        blocks = JournalReader(self._where).blocks(self._follower.sequence, self.next_sequence - 1)
        headers = (block.header for block in blocks)
        return token is not None and any(header.token_number > token or header.ends_token for header in headers)

    def verify(self, reach: Reach | None = None, rosters: Sequence[Roster] = ()) -> FloorVerdict:
        """Compute every trade again, compare it with what the floor's arbiters have reported, and judge all of it.

        With the rosters of its market, the signatures of corrections are checked again. When a roster came into force
        is not in a journal: one under which both signatures count is enough.
        """
        verdict = FloorVerdict(self.code)
        comparing = _Comparing(verdict)
        reports, corrections = report_topic(self.code), correction_topic(self.code)
        for token, instant, source, message, step in self._heard(None, reach):
            if step is not None:
                comparing.step(step)
            if message is None:
                continue
            if message.topic == reports:
                comparing.report(message, source)
            elif message.topic == corrections:
                _check_signatures(verdict, rosters, token, instant, message)
            else:
                verdict.events += 1
        comparing.end()
        verdict.undecodable += self._follower.undecodable
        verdict.token, verdict.state = self.floor.token, state_hash(self.floor).hex()
        return verdict


def _check_signatures(
    verdict: FloorVerdict, rosters: Sequence[Roster], token: int, instant: int, message: FloorMessage
) -> None:
    """Who signed a correction, by whichever roster knows them."""
    try:
        found = decode_correction(message.payload)
    except RemoteProtocolError:
        verdict.undecodable += 1
        return
    verdict.corrections += 1
    faults = []
    for roster in rosters:
        members = [(one.signer, roster.member(one.signer)) for one in found.signatures]
        operators = {node for node, one in members if one is not None and one.role is RosterRole.OPERATOR}
        keys = {node: roster.public_of(node, now_ns=instant) for node in operators}
        faults.append(signature_fault(found, verdict.floor, roster.market, keys.get))
    if "" in faults:
        verdict.signed += 1
    elif faults:
        one = found.trade.number, found.version, token, message.sequence, faults[-1]
        verdict.unsigned.append(UnsignedCorrection(*one))


def _standing(one: SteppedTrade, followed: ConfirmationFollower) -> SteppedTrade:
    known = followed.corrections.standing.get(one.trade.number)
    if known is not None:
        return one._replace(state="void" if known.is_void else "corrected", right=known.corrected)
    return one._replace(state="confirmed" if one.trade.number <= followed.confirmed else "tentative")


def _step_in(news: Iterable[News]) -> FloorStep | None:
    return next((one.step for one in news if isinstance(one, Tentative)), None)


class _Comparing:
    """Reports against results."""

    def __init__(self, verdict: FloorVerdict) -> None:
        self._verdict = verdict
        self._judges = FloorJudges(honest=False)
        self._results: dict[int, OwnResult] = {}
        self._waiting: dict[int, None] = {}
        """Tokens with trades that no report has told yet."""
        self._forgotten = 0
        self._parts = ReportParts()

    def step(self, step: FloorStep) -> None:
        verdict = self._verdict
        verdict.steps += 1
        verdict.trades += len(step.trades)
        verdict.volume += sum(trade.quantity for trade in step.trades)
        verdict.breaches += self._judges.step(transcript_of_step(step))[: _BREACHES_KEPT - len(verdict.breaches)]
        if not step.is_reported:
            return
        self._results[step.token] = OwnResult.of(step)
        if step.trades:
            self._waiting[step.token] = None
        if len(self._results) > _RESULTS_KEPT:
            self._forgotten = next(iter(self._results))
            del self._results[self._forgotten]

    def report(self, message: FloorMessage, source: NodeId | None) -> None:
        verdict = self._verdict
        before = bool(self._parts)
        report = self._parts.take(message.payload, source)
        if report is None:
            verdict.unreadable += not self._parts and not before
            return
        verdict.reports += 1
        own = self._results.get(report.token)
        if own is None and report.token <= self._forgotten:
            verdict.too_old += 1
            return
        compared = Comparison.DIFFERENT if own is None else own.compare(report)
        if compared is Comparison.DIFFERENT:
            verdict.differences.append(_difference(own, report, message.sequence))
            return
        verdict.confirmed = max(verdict.confirmed, report.confirmed)
        if compared is Comparison.EQUAL:
            verdict.equal += 1
            self._waiting.pop(report.token, None)
        else:
            verdict.brief += 1

    def end(self) -> None:
        self._verdict.unreported = len(self._waiting)
        self._verdict.first_unreported = next(iter(self._waiting), None)


def _difference(own: OwnResult | None, report: FloorReport, sequence: int) -> FloorDifference:
    """The first thing in which a report differs."""
    if own is None:
        said = _count(report.trades)
        return FloorDifference(report.token, sequence, "token", "nothing to report, or no such token", said)
    for here, reported in zip(own.trades, report.trades, strict=False):
        if here != reported:
            return FloorDifference(report.token, sequence, f"trade {here.number}", _said(here), _said(reported))
    if len(own.trades) != len(report.trades) and report.trades:
        return FloorDifference(report.token, sequence, "trades", _count(own.trades), _count(report.trades))
    return FloorDifference(report.token, sequence, "state", own.state.hex(), report.state.hex())


def _count(trades: tuple[Trade, ...]) -> str:
    return f"{len(trades)} trades" if len(trades) != 1 else "1 trade"


def _said(trade: Trade) -> str:
    return (
        f"number {trade.number}, {trade.symbol}: {trade.quantity} at {trade.price}, buy {trade.buy}, sell {trade.sell}"
    )
