"""The FIX session as a machine: bytes and instants go in, effects come out, and nothing here reads a clock or a socket.

A session outlives its connections: its two numbers go on where they were. As acceptor it begins with a Logon whose
sender is known already (`log_on`; `logon_fault` says what a Logon lacks, and whoever owns the connection asks for the
password), as initiator with a Logon of our own (`begin`). From then on each frame is, in this order, decoded (garbled
ones are ignored), looked up in the dictionary, checked for its sender and time, and put in its place in the sequence:
what is too high waits until the gap before it is filled.

The law of the numbers: `next_in` rises by one for each message that is processed in its place, and by a gap fill or a
reset; `next_out` by one for each message sent for the first time. Only Reset (Forget) lowers them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from isocast.runtime.accounts.fix.dictionary import (
    ADMIN,
    APPLICATION,
    COMP_ID,
    FAULT_TEXTS,
    INVALID_TYPE,
    MISSING,
    OUT_OF_RANGE,
    SENDING_TIME,
    Fault,
    fault_of,
)
from isocast.runtime.accounts.fix.messages import BEGIN_STRING, Field, Message, decode, encode, instant_of, utc_text

__all__ = [
    "HEARTBEAT_S_MAX",
    "LATENCY_NS_MAX",
    "WAITING_MAX",
    "Close",
    "Deliver",
    "Effect",
    "Forget",
    "Keep",
    "Resend",
    "Send",
    "Session",
    "logon_fault",
]

LATENCY_NS_MAX: Final = 120_000_000_000
"""How far SendingTime may be from our clock."""
HEARTBEAT_S_MAX: Final = 3_600
WAITING_MAX: Final = 256
"""Messages that wait for a gap to be filled, at most 16 KiB each. What is beyond is asked for again afterwards."""
LOGON_NS: Final = 10_000_000_000
"""For the other side to answer our Logon."""
LOGOUT_NS: Final = 2_000_000_000
"""For the other side to answer our Logout."""
_TEST_TEXT: Final = "TEST"
_TEST_TENTHS, _DEAD_TENTHS = 12, 24
"""Of HeartBtInt without a message: we ask, and we close."""
_REVERSED: Final = {115: 128, 128: 115, 116: 129, 129: 116, 144: 145, 145: 144}
_TIMED: Final = frozenset((SENDING_TIME, COMP_ID, INVALID_TYPE))
"""SessionRejectReasons that name no tag."""
_HEARTBEAT, _TEST_REQUEST, _RESEND_REQUEST, _REJECT, _SEQUENCE_RESET, _LOGOUT, _LOGON = "012345A"
_BUSINESS_REJECT: Final = "j"


@dataclass(frozen=True, slots=True)
class Send:
    """Write these bytes, once everything before it is durable."""

    frame: bytes


@dataclass(frozen=True, slots=True)
class Keep:
    """Make an application message durable: it may be asked for again."""

    number: int
    frame: bytes
    report: int
    """The number of the account's report that it tells; 0: none."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Both numbers begin again at 1, and what was kept is of no use any more."""


@dataclass(frozen=True, slots=True)
class Resend:
    """Read what was kept of these numbers, both included, and send it by `resent` and `gap_filled`."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """An application message in its place."""

    message: Message


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection after what was sent."""

    reason: str


Effect: TypeAlias = Send | Keep | Forget | Resend | Deliver | Close


def logon_fault(message: Message | None, ours: str, now: int) -> str | None:
    """Why the first message of a connection is not a Logon that can be considered; None if it can.

    Whoever sends another is closed without a byte, so this is for our own log alone.
    """
    if message is None:
        return "the first message is garbled"
    if message.begin != BEGIN_STRING:
        return f"not {BEGIN_STRING}"
    if message.kind != _LOGON:
        return "the first message is no Logon"
    fault = fault_of(message)
    if fault is not None:
        return f"Logon: {FAULT_TEXTS[fault.reason]}" + ("" if fault.tag is None else f" ({fault.tag})")
    if message.first[56] != ours:
        return "another TargetCompID"
    if _is_out_of_time(message, now):
        return "SendingTime is more than 120 s from this machine's clock"
    if (trouble := _logon_value_fault(message)) is not None:
        return f"EncryptMethod (98) is not 0, or HeartBtInt (108) not within 0 and {HEARTBEAT_S_MAX}: {trouble.tag}"
    return None


def _logon_value_fault(message: Message) -> Fault | None:
    if message.first[98] != "0":
        return Fault(OUT_OF_RANGE, 98)
    return None if 0 <= int(message.first[108]) <= HEARTBEAT_S_MAX else Fault(OUT_OF_RANGE, 108)


def _is_out_of_time(message: Message, now: int) -> bool:
    sent = instant_of(message.first[52])
    return sent is None or abs(now - sent) > LATENCY_NS_MAX


class Session:
    """One side of a session, between its Logon and the end of the connection."""

    def __init__(
        self, ours: str, theirs: str, next_in: int = 1, next_out: int = 1, *, takes: frozenset[str] = APPLICATION
    ) -> None:
        """`ours` and `theirs` are the CompIDs; the numbers are those that the store kept; `takes` is delivered."""
        self.next_in = next_in
        self.next_out = next_out
        self.is_open = False
        self.garbled = 0
        self._ours = ours
        self._theirs = theirs
        self._takes = takes
        self._awaits_logon = False
        """We have logged on, and wait for the answer."""
        self._waiting: dict[int, Message] = {}
        self._asked_to = 0
        """The gap that was asked for ends here; it is filled when `next_in` is beyond it."""
        self._interval_ns = 0
        self._sent_at = 0
        self._heard_at = 0
        self._is_testing = False
        self._leaves_at: int | None = None
        """When we stop to wait for the answer to our Logout."""
        self._effects: list[Effect] = []

    # ---- inputs

    def log_on(self, message: Message, now: int) -> tuple[Effect, ...]:
        """A Logon without fault, of a sender who proved who it is."""
        self.is_open = True
        self._heard_at = now
        if message.number < self.next_in and message.first.get(141) != "Y":
            self._end_too_low(message, now)
        else:
            self._on_logon(message, now)
        self._go_on(now)
        return self._taken()

    def begin(
        self, heartbeat_s: int, credentials: Iterable[Field] = (), *, now: int, resets: bool = False
    ) -> tuple[Effect, ...]:
        """We are the initiator, and log on; with `resets` both sides are asked to begin again at 1."""
        self.is_open = self._awaits_logon = True
        self._heard_at = now
        self._interval_ns = heartbeat_s * 1_000_000_000
        if resets:
            self.next_in = self.next_out = 1
            self._effects.append(Forget())
        body = [(98, "0"), (108, str(heartbeat_s)), *([(141, "Y")] if resets else []), *credentials]
        self._say(_LOGON, body, now)
        return self._taken()

    @property
    def is_logged_on(self) -> bool:
        """Whether both sides have."""
        return self.is_open and not self._awaits_logon

    def receive(self, frame: bytes, now: int) -> tuple[Effect, ...]:
        """One frame of the stream."""
        message = decode(frame)
        if message is None:
            self.garbled += 1
            return ()
        if not self.is_open:
            return ()
        self._heard_at = now
        self._is_testing = False
        self._enter(message, now)
        self._go_on(now)
        return self._taken()

    def tick(self, now: int) -> tuple[Effect, ...]:
        """The deadline has come."""
        if not self.is_open:
            return ()
        if self._leaves_at is not None and now >= self._leaves_at:
            self._close("no answer to our Logout")
        elif self._awaits_logon:
            if now >= self._heard_at + LOGON_NS:
                self._close("no answer to our Logon")
        elif self._interval_ns and now >= self._heard_at + self._share(_DEAD_TENTHS):
            self._close("nothing heard for 2.4 heartbeats")
        elif self._interval_ns and not self._is_testing and now >= self._heard_at + self._share(_TEST_TENTHS):
            self._is_testing = True
            self._say(_TEST_REQUEST, [(112, _TEST_TEXT)], now)
        elif self._interval_ns and not self._is_testing and now >= self._sent_at + self._interval_ns:
            self._say(_HEARTBEAT, [], now)
        return self._taken()

    def next_deadline(self) -> int | None:
        """When to call `tick`; None: never."""
        if not self.is_open:
            return None
        due = [] if self._leaves_at is None else [self._leaves_at]
        if self._awaits_logon:
            due.append(self._heard_at + LOGON_NS)
        elif self._interval_ns:
            due.append(self._heard_at + self._share(_DEAD_TENTHS))
            if not self._is_testing:
                due += [self._heard_at + self._share(_TEST_TENTHS), self._sent_at + self._interval_ns]
        return min(due, default=None)

    def took(self, now: int) -> None:
        """We had to wait for a slow reader, and it took something: a sign of life.

        Nothing was read meanwhile, so that its heartbeats wait, too. A long resend must not end in a timeout, after
        which the same resend would begin again.
        """
        self._heard_at = max(self._heard_at, now)

    def send(
        self, kind: str, body: Iterable[Field], now: int, report: int = 0, *, is_again: bool = False
    ) -> tuple[Effect, ...]:
        """An application message of ours; nothing once the session is over.

        `is_again` says that it may have been sent under another number (PossResend, 97): the other side looks at its
        id.
        """
        if not self.is_open:
            return ()
        self._say(kind, body, now, routes=[(97, "Y")] if is_again else (), report=report)
        return self._taken()

    def log_out(self, text: str, now: int) -> tuple[Effect, ...]:
        """We leave, and wait a moment for the answer."""
        if self.is_open and self._leaves_at is None:
            self._log_out(text, now)
        return self._taken()

    # ---- resending

    def resent(self, first: int, kept: Iterable[tuple[int, bytes]], now: int) -> tuple[int, tuple[Effect, ...]]:
        """Send kept messages of ascending numbers again, with gap fills between; the number that is next."""
        for number, frame in kept:
            message = decode(frame)
            if message is None:
                continue
            self._fill(first, number, now)
            header = [(tag, value) for tag, value in message.fields if tag in {34, 49, 56, 97} or tag in _REVERSED]
            body = [(tag, value) for tag, value in message.fields if tag not in {8, 9, 10, 34, 35, 49, 52, 56, 97}]
            body = [field for field in body if field[0] not in _REVERSED]
            again = [*header, (43, "Y"), (52, utc_text(now)), (122, message.first[52])]
            self._emit(encode(message.kind, again, body), now)
            first = number + 1
        return first, self._taken()

    def gap_filled(self, first: int, end: int, now: int) -> tuple[Effect, ...]:
        """Nothing was kept of the numbers from `first` to before `end`: they were ours alone to say."""
        self._fill(first, end, now)
        return self._taken()

    def _fill(self, first: int, end: int, now: int) -> None:
        if first < end:
            time = utc_text(now)
            header = [(34, str(first)), (43, "Y"), (49, self._ours), (52, time), (56, self._theirs), (122, time)]
            self._emit(encode(_SEQUENCE_RESET, header, [(36, str(end)), (123, "Y")]), now)

    # ---- a message that arrived

    def _enter(self, message: Message, now: int) -> None:
        if message.begin != BEGIN_STRING:
            self._log_out("Incorrect BeginString", now)
            return
        if self._awaits_logon and message.kind not in (_LOGON, _LOGOUT):
            self._close("the first message is no Logon")
            return
        if self._leaves_at is not None and message.kind not in (_LOGOUT, _RESEND_REQUEST):
            return  # We said that we leave: what is not counted is asked for after the next Logon.
        if message.number < 0:
            self._log_out("Received message without MsgSeqNum", now)
            self._close("a message without MsgSeqNum")
            return
        fault = fault_of(message)
        if fault is not None:
            self._reject(message, fault, now)
            return
        self._dispatch(message, now)

    def _go_on(self, now: int) -> None:
        """What waited for a gap that is filled now."""
        while self.is_open and (message := self._waiting.pop(self.next_in, None)) is not None:
            if message.kind in (_LOGON, _RESEND_REQUEST):  # Answered when it came.
                self.next_in += 1
            else:
                self._take(message, now)
        if self._waiting and min(self._waiting) < self.next_in:
            self._waiting = {number: kept for number, kept in self._waiting.items() if number >= self.next_in}

    def _dispatch(self, message: Message, now: int) -> None:
        if self._is_trusted(message, now):
            self._take(message, now)

    def _take(self, message: Message, now: int) -> None:
        match message.kind:
            case "A":
                self._on_logon(message, now)
            case "5":
                self._on_logout(message, now)
            case "2":
                self._on_resend_request(message, now)
            case "4":
                self._on_sequence_reset(message, now)
            case _ if self._is_next(message, now):
                self.next_in += 1
                self._process(message, now)
            case _:
                pass

    def _process(self, message: Message, now: int) -> None:
        """A message in its place."""
        if message.kind == _TEST_REQUEST:
            self._say(_HEARTBEAT, [(112, message.first[112])], now)
        elif message.kind in self._takes:
            self._effects.append(Deliver(message))
        elif message.kind not in ADMIN and message.kind != _BUSINESS_REJECT:  # Two that refuse refusals never end.
            body = [(45, message.first[34]), (58, "Unsupported Message Type"), (372, message.kind), (380, "3")]
            self._say(_BUSINESS_REJECT, body, now, routes=_reversed_routes(message))

    def _is_trusted(self, message: Message, now: int) -> bool:
        """The time and the CompIDs are right; if not it is told, and we leave."""
        if _is_out_of_time(message, now):
            self._reject(message, Fault(SENDING_TIME), now)
        elif message.first[49] != self._theirs or message.first[56] != self._ours:
            self._reject(message, Fault(COMP_ID), now)
        else:
            return True
        self._log_out("", now)
        return False

    def _is_next(self, message: Message, now: int) -> bool:
        """It is this message's turn. What is too high waits, what is too low is a duplicate or the end."""
        if message.number > self.next_in:
            self._too_high(message, now)
        elif message.number < self.next_in:
            self._too_low(message, now)
        return message.number == self.next_in

    def _too_high(self, message: Message, now: int) -> None:
        if len(self._waiting) < WAITING_MAX:
            self._waiting[message.number] = message
        if self._asked_to < self.next_in:
            self._asked_to = message.number - 1
            self._say(_RESEND_REQUEST, [(7, str(self.next_in)), (16, "0")], now)

    def _too_low(self, message: Message, now: int) -> None:
        if not message.is_possible_duplicate:
            self._end_too_low(message, now)
        elif message.kind == _SEQUENCE_RESET:
            pass
        elif 122 not in message.first:  # noqa: PLR2004 - OrigSendingTime
            self._reject(message, Fault(MISSING, 122), now)
        elif (instant_of(message.first[122]) or 0) > (instant_of(message.first[52]) or 0):
            self._reject(message, Fault(SENDING_TIME), now)
            self._log_out("", now)

    def _end_too_low(self, message: Message, now: int) -> None:
        text = f"MsgSeqNum too low, expecting {self.next_in} but received {message.number}"
        self._log_out(text, now)
        self._close(text)

    def _on_logon(self, message: Message, now: int) -> None:
        """The first one, or one in the session: with ResetSeqNumFlag (141) both sides begin again."""
        trouble = _logon_value_fault(message)
        if trouble is not None:
            self._reject(message, trouble, now)
            return
        resets = message.first.get(141) == "Y"
        if self._awaits_logon:
            self._on_logon_answer(message, now, resets=resets)
            return
        if resets:
            self.next_in = self.next_out = 1
            self._asked_to = 0
            self._waiting.clear()
            self._effects.append(Forget())
        elif message.number < self.next_in:
            self._too_low(message, now)
            return
        self._interval_ns = int(message.first[108]) * 1_000_000_000
        ours = self.next_out
        answer = [(98, "0"), (108, message.first[108])]
        self._say(_LOGON, [*answer, (141, "Y")] if resets else answer, now)
        if message.number > self.next_in:
            self._too_high(message, now)
        else:
            self.next_in += 1
        self._on_next_expected(int(message.first.get(789, ours)), ours, now)

    def _on_logon_answer(self, message: Message, now: int, *, resets: bool) -> None:
        """The acceptor is here. One that begins again by itself asks for what it lacks of ours by its numbers."""
        if resets:
            self.next_in = 1
        if message.number < self.next_in:
            self._end_too_low(message, now)
            return
        self._awaits_logon = False
        if message.number > self.next_in:
            self._too_high(message, now)
        else:
            self.next_in += 1

    def _on_next_expected(self, wanted: int, ours: int, now: int) -> None:
        """NextExpectedMsgSeqNum (789): what they lack before our Logon is sent without being asked for."""
        if wanted < ours:
            self._effects.append(Resend(max(wanted, 1), ours - 1))
        elif wanted > ours:
            text = f"NextExpectedMsgSeqNum too high, expecting {ours} but received {wanted}"
            self._log_out(text, now)
            self._close(text)

    def _on_logout(self, message: Message, now: int) -> None:
        if self._leaves_at is None:
            self._say(_LOGOUT, [], now)
        if message.number == self.next_in:
            self.next_in += 1
        text = message.first.get(58, "")
        self._close(f"Logout: {text}" if text else "Logout")

    def _on_resend_request(self, message: Message, now: int) -> None:
        """Served whatever its own number: the other side may lack what it needs to number it well."""
        first, last = max(1, int(message.first[7])), int(message.first[16])
        newest = self.next_out - 1
        last = newest if last == 0 else min(last, newest)
        if first <= last:
            self._effects.append(Resend(first, last))
        if message.number == self.next_in:
            self.next_in += 1
        elif message.number > self.next_in:
            self._too_high(message, now)

    def _on_sequence_reset(self, message: Message, now: int) -> None:
        is_gap_fill = message.first.get(123) == "Y"
        if is_gap_fill and not self._is_next(message, now):
            return
        wanted = int(message.first[36])
        if wanted < self.next_in:
            self._reject(message, Fault(OUT_OF_RANGE), now)
        else:
            self.next_in = wanted

    # ---- what is said

    def _reject(self, message: Message, fault: Fault, now: int) -> None:
        body = [(45, message.first[34]), (58, FAULT_TEXTS[fault.reason])]
        if fault.tag is not None and fault.reason not in _TIMED:
            body.append((371, str(fault.tag)))
        body += [(372, message.kind)] if message.kind else []
        body.append((373, str(fault.reason)))
        if message.number == self.next_in and message.kind != _SEQUENCE_RESET:
            self.next_in += 1
        self._say(_REJECT, body, now, routes=_reversed_routes(message))

    def _log_out(self, text: str, now: int) -> None:
        if self._leaves_at is None:
            self._say(_LOGOUT, [(58, text)] if text else [], now)
            self._leaves_at = now + LOGOUT_NS

    def _say(
        self, kind: str, body: Iterable[Field], now: int, *, routes: Iterable[Field] = (), report: int = 0
    ) -> None:
        """A new message of ours, with the next number."""
        number = self.next_out
        self.next_out += 1
        header = [(34, str(number)), (49, self._ours), (52, utc_text(now)), (56, self._theirs), *routes]
        frame = encode(kind, header, body)
        if kind not in ADMIN:
            self._effects.append(Keep(number, frame, report))
        self._emit(frame, now)

    def _emit(self, frame: bytes, now: int) -> None:
        self._sent_at = now
        self._effects.append(Send(frame))

    def _close(self, reason: str) -> None:
        if self.is_open:
            self.is_open = False
            self._effects.append(Close(reason))

    def _share(self, tenths: int) -> int:
        return self._interval_ns * tenths // 10

    def _taken(self) -> tuple[Effect, ...]:
        effects = tuple(self._effects)
        self._effects.clear()
        return effects


def _reversed_routes(message: Message) -> list[Field]:
    """Where a reject goes: back the way that the message came."""
    return [(back, message.first[tag]) for tag, back in _REVERSED.items() if message.first.get(tag)]
