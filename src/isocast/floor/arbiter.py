"""The arbiter of a floor at one primary receiver (§7.3): it reports, takes over, confirms, and notices differences.

Its law, with t the token of some trades, m the size of the ring that issued t, and r the first token that carries a
report of t which equals the site's own result:

    tentative   when t is released
    reported    by owner(t) when t is released; for u = t+m+1, t+m+2, … while no token up to u has the report, by
                owner(u) when u is released. A report is due for a step that made trades and for every 100th step
    confirmed   at the first released token, of any epoch, whose `stable` is at least r, and never before the trade of
                the number before: every member of a ring holds the trades and their report
    announced   by the report that the owner of that token owes anyway, or by one without trades; if no token carries
                such a word, by other owners as above. A word without trades is never confirmed itself: reports end
    printed     as market events, for the tape: by the owner of that token when it is released, and by other owners as
                above while some of the trades of t are not in the sequence
    corrected   by two operators' correction in a token behind the one that says that the trade is confirmed; printed as
                a trade is, once every member of a ring holds that token
    woken       when a token is released whose instant makes something due, and which has nothing of the floor: its
                owner publishes a message that says no more than that, others as above while the floor has not moved
    busted      when a reformation cuts t off: the state goes back to what the remaining tokens say
    differing   a report that differs from the site's own result is an alarm and counts for nothing. Then every site
                publishes its own result of t, and a site that differs from a majority of U stops. Where no majority
                agrees, owners halt the floor

Everything but the alarm is a function of the tokens, so it is the same at every site and after a replay. Two states are
kept: one at the newest token, and one at the last step that is agreed and stable, with the tokens between them. A cut,
a restart and a site that has stopped go on from the second: nothing is copied for every token.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from isocast.floor.codec import encode_event
from isocast.floor.columns import TokenColumns
from isocast.floor.confirming import RESULTS_KEPT, Comparison, OwnResult, ReportParts
from isocast.floor.corrections import Correction, Corrections, correction_topic, decode_correction, encode_correction
from isocast.floor.events import Phase, Status, Trade, Wake
from isocast.floor.following import FloorFollower, FloorMessage, FloorStep
from isocast.floor.printing import amend_key, amended, amends, is_printable, print_key, printed, prints, tape_topic
from isocast.floor.reporting import FloorReport, cut_report, encode_report, report_topic
from isocast.floor.snapshot import fold, unfold
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.terms.market import EventKind
from isocast.wire.events import EventArray

__all__ = [
    "RETAINED_MAX",
    "Arbiter",
    "ArbiterEffect",
    "ArbiterInput",
    "ArbiterStopped",
    "FloorDiverged",
    "PublishHalt",
    "PublishPrints",
    "PublishReport",
    "PublishWake",
    "Standing",
    "StepRecord",
    "Stepped",
    "TokenReleased",
    "TradesBusted",
    "TradesConfirmed",
    "Truncated",
]

RETAINED_MAX: Final = 4_096
"""Tokens kept since the last agreed step: at one a second, an hour without a single agreed report."""
_KEY_BYTES: Final = 16
_UNPRINTED_MAX: Final = 16 * RESULTS_KEPT
"""Steps that are kept for their prints: beyond it nobody takes them, and the oldest are not on the tape."""
_PRINTS_MAX: Final = 64
"""Batches of prints that one token's owner publishes: what is left is the next owner's."""
_MOST: Final = 1_024
"""Bytes of one part of a report: with topic and head it fits the smallest message of a market."""


# What happens ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenReleased:
    """A token was released at this site, with or without messages. Tokens come one after the other, none left out."""

    token: int
    instant: int
    """T_t."""
    stable: int
    """As the token says: every member of the ring that issued it holds everything up to there."""
    ring_size: int
    """Of the ring that issued it."""
    universe: tuple[NodeId, ...] = ()
    """U: whose majority decides between different results."""
    messages: tuple[FloorMessage, ...] = ()
    """In the order of the sequence; those of other topics may be left out."""
    is_own: bool = False
    """Whether this site issued it."""
    is_replay: bool = False
    """Read from the journal after a restart: nothing of it is published, others have taken over long ago or will.

    Steps and confirmations are told again: the driver takes each trade once, by its number.
    """


@dataclass(frozen=True, slots=True)
class Truncated:
    """A reformation cut the log: of what was released here, everything behind this token is gone."""

    token: int


ArbiterInput: TypeAlias = TokenReleased | Truncated


# What is asked of the driver ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublishReport:
    """Publish these parts on the floor's report topic, through this site's own source, as one batch under this key.

    The key is a function of the floor and of what is reported: publishing it again changes nothing.
    """

    key: bytes
    parts: tuple[FloorReport, ...]


@dataclass(frozen=True, slots=True)
class PublishHalt:
    """No majority of U agrees on the floor's state: publish this event on the floor's topic. It halts every symbol."""

    key: bytes
    payload: bytes
    token: int
    """On whose state they differ."""


@dataclass(frozen=True, slots=True)
class PublishPrints:
    """Publish these confirmed trades of one token as market events (`floor.printing`), as one batch under this key."""

    key: bytes
    instant: int
    """T_t of their token."""
    trades: tuple[Trade, ...]
    amended: tuple[Correction, ...] = ()
    """Instead of trades, corrections of some that were printed."""


@dataclass(frozen=True, slots=True)
class PublishWake:
    """An instant has come and nobody writes to the floor: publish this event on its topic."""

    key: bytes
    payload: bytes


@dataclass(frozen=True, slots=True)
class Stepped:
    """The floor has made a step: its trades are tentative."""

    step: FloorStep


@dataclass(frozen=True, slots=True)
class TradesConfirmed:
    """These trades cannot be lost any more, and none before them is open."""

    trades: tuple[Trade, ...]
    token: int
    """At whose release they became so: the same at every site."""
    reported: int
    """The newest token among those that carry their reports."""


@dataclass(frozen=True, slots=True)
class TradesBusted:
    """A reformation cut these tentative trades off: they are void. Their orders will be in the sequence again."""

    trades: tuple[Trade, ...]
    token: int
    """Behind which everything is gone."""


@dataclass(frozen=True, slots=True)
class FloorDiverged:
    """An alarm: a report names another state, or other trades, than this site has after the same token."""

    token: int
    own: bytes
    """Empty where no report was due here."""
    other: bytes
    site: NodeId | None = None
    """Who says so."""


@dataclass(frozen=True, slots=True)
class ArbiterStopped:
    """This site reports and confirms no more: a majority has another state, or a confirmed trade was cut off.

    The driver makes a new arbiter from `Arbiter.snapshot`, the last state that was agreed, and replays its journal.
    """

    token: int
    own: bytes
    other: bytes
    reason: str


ArbiterEffect: TypeAlias = (
    PublishReport
    | PublishHalt
    | PublishPrints
    | PublishWake
    | Stepped
    | TradesConfirmed
    | TradesBusted
    | FloorDiverged
    | ArbiterStopped
)


# What is known of one step with a report ---------------------------------------------------------------------------


@dataclass(slots=True)
class StepRecord:
    """A step whose report is due; or, without an own result, one of which only others say that it is."""

    result: OwnResult
    ring_size: int
    instant: int = 0
    """T_t of the step."""
    unprinted: dict[int, None] = field(default_factory=dict)
    """Numbers of its trades that the sequence does not have as market events."""
    confirmed_at: int = 0
    """The token at whose release its trades were confirmed; 0: not here, or before a cut."""
    reported: int = 0
    """r: the first token that carries an equal report; 0: none does."""
    votes: dict[NodeId, bytes] = field(default_factory=dict)
    """What each site says of the state after the step: its first word counts."""
    disputed: int = 0
    """The first token that carries a report which differs, of a site that is known; 0: none does."""
    is_settled: bool = False
    """A majority of U agrees with this site after a dispute."""
    has_voted: bool = False
    """This site has published its result because of a dispute; as what follows, local and in no snapshot."""
    has_halted: bool = False

    @property
    def is_own(self) -> bool:
        """Whether this site has a result."""
        return bool(self.result.state)

    @property
    def is_agreed(self) -> bool:
        """Whether an equal report is in the sequence, and nobody objects whom a majority has not overruled."""
        return self.reported > 0 and (not self.disputed or self.is_settled)

    def is_fought_over(self, token: int) -> bool:
        """Whether sites still have time to say whom they agree with: three cycles from the first difference on."""
        return self.disputed > 0 and not self.is_settled and token <= self.disputed + 3 * (self.ring_size + 1)

    def rows(self) -> list[Any]:
        """All but what is local."""
        token, state, trades = self.result
        votes = [[site, vote.hex()] for site, vote in self.votes.items()]
        own = [token, state.hex(), [list(trade) for trade in trades]]
        printing = [self.instant, list(self.unprinted), self.confirmed_at]
        return [own, self.ring_size, printing, self.reported, votes, self.disputed, self.is_settled]

    @classmethod
    def from_rows(cls, rows: list[Any]) -> StepRecord:
        """As it was."""
        (token, state, trades), size, (instant, unprinted, at), reported, votes, disputed, is_settled = rows
        result = OwnResult(token, bytes.fromhex(state), tuple([Trade(*one) for one in trades]))
        found = {site: bytes.fromhex(vote) for site, vote in votes}
        return cls(result, size, instant, dict.fromkeys(unprinted), at, reported, found, disputed, is_settled)


@dataclass(slots=True)
class _Amendment:
    """A correction that counts, and that the tape does not have."""

    correction: Correction
    token: int
    """That carries it."""
    instant: int
    """T_t of that."""
    ring_size: int
    stable_at: int = 0
    """The first token that says that every member of a ring holds it; 0: none has."""

    def rows(self) -> list[Any]:
        raw = encode_correction(self.correction._replace(signatures=()))
        return [raw.hex(), self.token, self.instant, self.ring_size, self.stable_at]

    @classmethod
    def from_rows(cls, rows: list[Any]) -> _Amendment:
        return cls(decode_correction(bytes.fromhex(rows[0])), *rows[1:])


def _by_number(events: EventArray) -> dict[int, bytes]:
    """Prints of trades, as they are in the sequence; names of symbols are none."""
    whole, size = events.tobytes(), events.itemsize
    numbers = enumerate(zip(events["kind"].tolist(), events["id"].tolist(), strict=True))
    return {number: whole[at * size : (at + 1) * size] for at, (kind, number) in numbers if kind == EventKind.TRADE}


class Known(NamedTuple):
    """What was worked out of a token before: the same again for a state that follows."""

    result: OwnResult | None = None
    """Of its step, if a report of that is due."""
    columns: TokenColumns | None = None
    """Its events, where they were given to the floor at once."""


_NOTHING_KNOWN: Final = Known()


class Standing:
    """The floor and all that the tokens so far say about its reports."""

    def __init__(self, code: str, site: NodeId, follower: FloorFollower, token: int, most: int) -> None:
        """Behind a token, with nothing reported of what comes."""
        self.code = code
        self.site = site
        self.follower = follower
        self.token = token
        """The newest that was applied."""
        self.most = most
        self.topic = report_topic(code)
        self.tape_topic = tape_topic(code)
        self.parts = ReportParts()
        self.records: dict[int, StepRecord] = {}
        """By token, in order; of those that are done the newest few."""
        self.forgotten = token
        """Reports of tokens up to this one are no longer compared."""
        self.confirmed = follower.floor.next_trade - 1
        self.word: OwnResult | None = None
        """The result with the last trade that is confirmed: a word about it names its state."""
        self.announced = self.confirmed
        """Up to which trade the sequence itself says that it is confirmed."""
        self.unannounced: deque[tuple[int, int, int]] = deque()
        """Up to which trade, at which token it was confirmed, ring size: while no report in the sequence says so."""
        self.told = self.confirmed
        """The same, by the sequence alone: what customers and gateways know, whoever computes it."""
        self.correction_topic = correction_topic(code)
        self.corrections = Corrections()
        self.amendments: dict[tuple[int, int], _Amendment] = {}
        """By trade and version."""
        self.stopped = False
        self.due = 0, 0
        """The instant that waits for a token of the floor, and the first token at or behind it; 0: none does."""

    # One token -------------------------------------------------------------------------------------------------

    def apply(self, event: TokenReleased, known: Known = _NOTHING_KNOWN) -> tuple[list[ArbiterEffect], Known]:
        """All that a token brings; and what need not be worked out again for it."""
        self.token = event.token
        effects: list[ArbiterEffect] = []
        for message in event.messages:
            if message.topic == self.correction_topic:
                self._on_correction(message.payload, event)
        step = self.follower.follow(event.token, event.instant, event.messages, known.columns)
        result = None
        if step is not None:
            effects.append(Stepped(step))
            if step.is_reported:
                result = known.result or OwnResult.of(step)
                unprinted = dict.fromkeys([trade.number for trade in step.trades if is_printable(trade)])
                self.records[event.token] = StepRecord(result, event.ring_size, event.instant, unprinted)
        found = Known(result, None if step is None else step.columns)
        for message in event.messages:
            if message.topic == self.topic:
                report = self.parts.take(message.payload, message.site)
                if report is not None:
                    effects += self._on_report(report, message.site, event)
            elif message.topic == self.tape_topic:
                self._on_prints(message.payload)
        if self.stopped:
            return effects, found
        self._note_due(event)
        effects += self._confirm(event)
        for amendment in self.amendments.values():
            if not amendment.stable_at and self.is_stable(amendment.token, event.stable):
                amendment.stable_at = event.token
        for record in self.records.values():
            if record.is_fought_over(event.token) and not self.stopped:
                effects += self._judge(record, event)
        if not self.stopped:
            effects += self._publish(event)
        self._forget(event.stable)
        return effects, found

    def is_due(self, instant: int) -> bool:
        """Whether a token of this instant would change something by itself."""
        due = self.follower.floor.next_due
        return due is not None and instant >= due

    def _note_due(self, event: TokenReleased) -> None:
        due = self.follower.floor.next_due
        if due is None or event.instant < due:
            self.due = 0, 0
        elif self.due[0] != due:
            self.due = due, event.token

    @property
    def is_quiet(self) -> bool:
        """Whether a token without messages of the floor would change nothing."""
        is_waiting = self.unannounced or self.parts or self.amendments
        return not (is_waiting or any(self._is_owed(record) for record in self.records.values()))

    def _is_owed(self, record: StepRecord) -> bool:
        is_waiting = record.is_own and (not record.reported or self._is_open(record) or bool(record.unprinted))
        return is_waiting or record.is_fought_over(self.token + 1)

    def _is_open(self, record: StepRecord) -> bool:
        return record.result.last > self.confirmed

    # Reports that are in the sequence --------------------------------------------------------------------------

    def _on_report(self, report: FloorReport, site: NodeId | None, event: TokenReleased) -> list[ArbiterEffect]:
        record = self.records.get(report.token)
        if record is None:
            if report.token <= self.forgotten:
                return []
            record = self.records[report.token] = StepRecord(OwnResult(report.token, b"", ()), event.ring_size)
            self.records = dict(sorted(self.records.items()))
        comparison = record.result.compare(report)
        if site is not None and comparison is not Comparison.BRIEF:
            record.votes.setdefault(site, report.state)
        if comparison is Comparison.DIFFERENT:
            if site is not None and not record.disputed:
                record.disputed = event.token
            return [FloorDiverged(report.token, record.result.state, report.state, site)]
        if comparison is Comparison.EQUAL and not record.reported:
            record.reported = event.token
        self.told = max(self.told, min(report.confirmed, self.follower.floor.next_trade - 1))
        self.announced = max(self.announced, min(report.confirmed, self.confirmed))
        while self.unannounced and self.unannounced[0][0] <= self.announced:
            self.unannounced.popleft()
        return []

    def _on_prints(self, payload: bytes) -> None:
        """Market events of the floor: what says the same as a trade here has printed it."""
        found = _by_number(printed(self.code, payload))
        low, high = min(found, default=0), max(found, default=0)
        for record in self.records.values():
            # Numbers rise from record to record: most have none of these.
            if not record.unprinted or record.result.last < low or record.result.trades[0].number > high:
                continue
            trades = [trade for trade in record.result.trades if trade.number in found]
            own = _by_number(prints(self.code, record.instant, trades))
            for number in [number for number in record.unprinted if number in own and own[number] == found[number]]:
                del record.unprinted[number]
        for event in amended(self.code, payload) if self.amendments else ():
            for key, amendment in list(self.amendments.items()):
                said = amends(self.code, amendment.instant, [amendment.correction])
                if len(said) and said[-1] == event:
                    del self.amendments[key]

    # Corrections -----------------------------------------------------------------------------------------------

    def _on_correction(self, payload: bytes, event: TokenReleased) -> None:
        """Two operators correct a trade; who they are was judged at release."""
        judged = self.corrections.hear(payload, self.follower.floor, self.told, event.instant)
        if judged is None or judged.fault is not None or not is_printable(judged.correction.trade):
            return
        one = judged.correction
        self.amendments[one.trade.number, one.version] = _Amendment(one, event.token, event.instant, event.ring_size)
        while len(self.amendments) > _UNPRINTED_MAX:
            del self.amendments[next(iter(self.amendments))]

    # Confirmation ----------------------------------------------------------------------------------------------

    def _confirm(self, event: TokenReleased) -> list[ArbiterEffect]:
        """In the order of the trades: one that waits holds up all that follow."""
        trades: list[Trade] = []
        reported = 0
        for record in self.records.values():
            if not self._is_open(record):
                continue
            if not self.is_stable(record.reported, event.stable):
                break
            reported = max(reported, record.reported)
            trades += record.result.trades
            record.confirmed_at = event.token
            self.confirmed = record.result.last
            self.word = record.result
        if not trades:
            return []
        self.unannounced.append((self.confirmed, event.token, event.ring_size))
        return [TradesConfirmed(tuple(trades), event.token, reported)]

    def is_stable(self, reported: int, stable: int) -> bool:
        """Whether every member of a ring holds the report."""
        return 0 < reported <= stable

    # Differences -----------------------------------------------------------------------------------------------

    def _judge(self, record: StepRecord, event: TokenReleased) -> list[ArbiterEffect]:
        """A result is disputed: say one's own, and look whether a majority of U has decided."""
        effects: list[ArbiterEffect] = []
        own = record.result
        if record.is_own and not record.has_voted and self.site not in record.votes:
            record.has_voted = not event.is_replay
            effects += self._report(record, event)
        counted = Counter([vote for site, vote in record.votes.items() if site in event.universe])
        state, most = counted.most_common(1)[0] if counted else (b"", 0)
        if most > len(event.universe) // 2:
            record.is_settled = state == own.state
            if not record.is_settled:
                self.stopped = True
                effects.append(ArbiterStopped(own.token, own.state, state, "a majority has another state"))
        elif self._may_halt(record, event):
            record.has_halted = True
            payload = encode_event(Status(None, Phase.HALTED))
            effects.append(PublishHalt(self._key(b"halt", own.token, b""), payload, own.token))
        return effects

    @staticmethod
    def _may_halt(record: StepRecord, event: TokenReleased) -> bool:
        """Whoever runs has had two cycles to say what it has: in the third, its owners halt the floor."""
        is_time = event.token > record.disputed + 2 * (record.ring_size + 1)
        return is_time and event.is_own and not event.is_replay and record.is_own and not record.has_halted

    # Publishing ------------------------------------------------------------------------------------------------

    def _publish(self, event: TokenReleased) -> list[ArbiterEffect]:
        """What the owner of this token owes: its own report, those that others owe, what is confirmed, prints."""
        if not event.is_own:
            return []
        return [*self._publish_reports(event), *self._publish_prints(event), *self._publish_wake(event)]

    def _publish_wake(self, event: TokenReleased) -> list[ArbiterEffect]:
        due, since = self.due
        if not due or event.is_replay or not (event.token == since or event.token > since + event.ring_size):
            return []
        return [PublishWake(self._key(b"wake", due, b""), encode_event(Wake()))]

    def _publish_prints(self, event: TokenReleased) -> list[ArbiterEffect]:
        """Confirmed trades that the sequence does not have as market events; the oldest first, so many at a time."""
        if event.is_replay:
            return []
        due = [
            record
            for record in self.records.values()
            if record.unprinted
            and not self._is_open(record)
            and (event.token == record.confirmed_at or event.token > record.confirmed_at + record.ring_size)
        ]
        found: list[ArbiterEffect] = [
            PublishPrints(print_key(self.code, record.result.trades), record.instant, record.result.trades)
            for record in due[:_PRINTS_MAX]
        ]
        stable = [one for one in self.amendments.values() if one.stable_at]
        owed = [one for one in stable if event.token == one.stable_at or event.token > one.stable_at + one.ring_size]
        return found + [
            PublishPrints(amend_key(self.code, one.correction), one.instant, (), (one.correction,))
            for one in owed[:_PRINTS_MAX]
        ]

    def _publish_reports(self, event: TokenReleased) -> list[ArbiterEffect]:
        effects: list[ArbiterEffect] = []
        for token, record in self.records.items():
            late = event.token > token + record.ring_size
            if record.is_own and not record.reported and (late or token == event.token):
                effects += self._report(record, event)
        if not effects:
            for _, token, size in self.unannounced:
                if token == event.token or event.token > token + size:
                    return self._announce(event)
        return effects

    def _report(self, record: StepRecord, event: TokenReleased) -> list[ArbiterEffect]:
        if event.is_replay:
            return []
        token, state, trades = record.result
        parts = cut_report(FloorReport(token, state, self.confirmed, trades), self.most)
        content = b"".join([encode_report(part._replace(confirmed=0)) for part in parts])
        return [PublishReport(self._key(b"report", token, content), tuple(parts))]

    def _announce(self, event: TokenReleased) -> list[ArbiterEffect]:
        """Only what is confirmed, beside a state that everybody has compared already."""
        if self.word is None or event.is_replay:
            return []
        report = FloorReport(self.word.token, self.word.state, self.confirmed)
        return [PublishReport(self._key(b"confirmed", self.confirmed, report.state), (report,))]

    def _key(self, kind: bytes, number: int, content: bytes) -> bytes:
        fields = b"%b %b %d %b" % (kind, self.code.encode(), number, content)
        return blake2b(fields, digest_size=_KEY_BYTES, person=b"isocast report").digest()

    def _forget(self, stable: int) -> None:
        """Let the oldest results go that nothing waits for."""
        while len(self.records) > RESULTS_KEPT:
            token, record = next(iter(self.records.items()))
            if self._is_open(record) or (record.is_own and not self.is_stable(record.reported, stable)):
                return
            if record.unprinted and len(self.records) <= _UNPRINTED_MAX:
                return
            self.forgotten = token
            del self.records[token]

    # Restart ---------------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, Any]:
        """All but what is local: the same at every site."""
        word = self.word
        return {
            "code": self.code,
            "token": self.token,
            "follower": self.follower.rows(),
            "parts": self.parts.rows(),
            "records": [record.rows() for record in self.records.values()],
            "forgotten": self.forgotten,
            "confirmed": self.confirmed,
            "word": None if word is None else [word.token, word.state.hex(), [list(trade) for trade in word.trades]],
            "announced": self.announced,
            "unannounced": [list(one) for one in self.unannounced],
            "told": self.told,
            "corrections": self.corrections.rows(),
            "amendments": [one.rows() for one in self.amendments.values()],
        }

    @classmethod
    def from_rows(cls, rows: dict[str, Any], site: NodeId, follower: type[FloorFollower], most: int) -> Standing:
        """As it was, at this site or another; RemoteProtocolError for rows that are none."""
        try:
            found = cls(rows["code"], site, follower.from_rows(rows["follower"]), rows["token"], most)
            found.parts = ReportParts.from_rows(rows["parts"])
            records = [StepRecord.from_rows(row) for row in rows["records"]]
            found.records = {record.result.token: record for record in records}
            found.forgotten, found.confirmed, found.announced = rows["forgotten"], rows["confirmed"], rows["announced"]
            if rows["word"] is not None:
                token, state, trades = rows["word"]
                found.word = OwnResult(token, bytes.fromhex(state), tuple([Trade(*one) for one in trades]))
            found.unannounced = deque([(up_to, token, size) for up_to, token, size in rows["unannounced"]])
            found.told = rows.get("told", found.announced)
            found.corrections = Corrections.from_rows(rows.get("corrections", [0, []]))
            waiting = [_Amendment.from_rows(row) for row in rows.get("amendments", ())]
            found.amendments = {(one.correction.trade.number, one.correction.version): one for one in waiting}
        except (KeyError, TypeError, ValueError, AttributeError) as reason:
            raise RemoteProtocolError("a snapshot of an arbiter with rows of another version") from reason
        return found


# The machine -------------------------------------------------------------------------------------------------------


class Arbiter:
    """The arbiter of one floor at one primary receiver."""

    follower_class = FloorFollower
    standing_class = Standing

    def __init__(
        self, code: str, site: NodeId, snapshot: bytes | None = None, *, after: int = 0, most: int = _MOST
    ) -> None:
        """A floor that has heard nothing, behind token `after`; or as a snapshot says, of this site or another.

        Parts of a report take at most `most` bytes. RemoteProtocolError for bytes that are no snapshot of this floor.
        """
        self.code = code
        self.site = site
        self._most = most
        self._now, self._agreed = (
            self._fresh(after) if snapshot is None else self._standing(unfold(snapshot)) for _ in range(2)
        )
        if self._now.code != code:
            raise RemoteProtocolError(f"a snapshot of floor {self._now.code}, not of {code}")
        # The second is at the last step that is agreed and stable.
        self._between: deque[tuple[TokenReleased, Known]] = deque()
        """Tokens behind that step which are not without effect, with what is known of them."""

    def _fresh(self, after: int) -> Standing:
        return self.standing_class(self.code, self.site, self.follower_class(self.code), after, self._most)

    def _standing(self, rows: dict[str, Any]) -> Standing:
        return self.standing_class.from_rows(rows, self.site, self.follower_class, self._most)

    # What it knows ---------------------------------------------------------------------------------------------

    @property
    def token(self) -> int:
        """The newest token that was applied."""
        return self._now.token

    @property
    def floor(self) -> FloorFollower:
        """The floor as of that token."""
        return self._now.follower

    @property
    def confirmed(self) -> int:
        """All trades up to this number are confirmed."""
        return self._now.confirmed

    @property
    def unprinted(self) -> int:
        """Trades and corrections that the sequence does not have as market events, confirmed or not."""
        return sum([len(record.unprinted) for record in self._now.records.values()]) + len(self._now.amendments)

    @property
    def has_stopped(self) -> bool:
        """Whether it reports and confirms no more."""
        return self._now.stopped

    @property
    def agreed_token(self) -> int:
        """The token of the last agreed state: a replay goes on behind it."""
        return self._agreed.token

    @property
    def agreed_sequence(self) -> int:
        """Of the newest message of the floor in that state."""
        return self._agreed.follower.sequence

    @property
    def retained(self) -> int:
        """How many tokens are kept for a cut."""
        return len(self._between)

    # One step --------------------------------------------------------------------------------------------------

    def step(self, event: ArbiterInput) -> tuple[ArbiterEffect, ...]:
        """Take what happened. LocalProtocolError for a token that is not the next."""
        match event:
            case TokenReleased():
                return tuple(self._on_released(event))
            case Truncated():
                return tuple(self._on_truncated(event))
            case _:
                assert_never(event)

    def _on_released(self, event: TokenReleased) -> list[ArbiterEffect]:
        now = self._now
        if event.token != now.token + 1:
            raise LocalProtocolError(
                f"token {event.token} behind token {now.token}: a floor needs every token; replay the journal from"
                f" token {self._agreed.token + 1}, or take another site's snapshot"
            )
        topics = now.follower.topic, now.topic, now.correction_topic
        is_heard = any(message.topic in topics for message in event.messages)
        is_idle = now.is_quiet and not is_heard and not now.is_due(event.instant)
        if is_idle:
            now.token = event.token
            return []
        effects, known = now.apply(event)
        if not now.stopped:
            self._between.append((event, known))
            self._agree(event.stable)
        return effects

    def _agree(self, stable: int) -> None:
        """Move the second state up to the last step that is agreed, itself and its report stable."""
        last = 0
        for token, record in self._now.records.items():
            if token <= self._agreed.token or not record.is_own:
                continue
            if not (record.is_agreed and self._now.is_stable(record.reported, stable)):
                break
            last = token
        while self._between and (self._between[0][0].token <= last or len(self._between) > RETAINED_MAX):
            event, known = self._between.popleft()
            self._agreed.apply(event, known)

    # A reformation ---------------------------------------------------------------------------------------------

    def _on_truncated(self, event: Truncated) -> list[ArbiterEffect]:
        """Go back to what the remaining tokens say; nothing that was confirmed is taken back."""
        before = self._now
        if event.token >= before.token:
            return []
        if event.token < self._agreed.token:
            before.stopped = True
            reason = f"the log was cut back to token {event.token}, below token {self._agreed.token}, which was stable"
            return [ArbiterStopped(event.token, b"", b"", reason)]
        while self._between and self._between[-1][0].token > event.token:
            self._between.pop()
        now = self._now = self._standing(self._agreed.rows())
        for one, known in self._between:
            now.apply(one, known)
        now.token = event.token
        gone = [trade for token, record in before.records.items() if token > event.token
                for trade in record.result.trades]  # fmt: skip
        effects: list[ArbiterEffect] = [TradesBusted(tuple(gone), event.token)] if gone else []
        if before.confirmed > now.confirmed:
            # What is confirmed stays so, though the tokens that showed it are gone: others shall hear of it again.
            now.confirmed, now.word = before.confirmed, before.word
            now.unannounced.append((now.confirmed, event.token, 1))
        if gone and gone[0].number <= before.confirmed:
            now.stopped = True
            reason = f"trade {gone[0].number} was confirmed, and the log was cut back to token {event.token}"
            effects.append(ArbiterStopped(event.token, b"", b"", reason))
        now.stopped |= before.stopped
        return effects

    # Restart ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The last agreed state, as canonical bytes: the same at every site that has agreed to the same step.

        A restart, a site that has stopped, and one whose log begins behind another's checkpoint replay from
        `agreed_token` + 1 on.
        """
        return fold(self._agreed.rows())
