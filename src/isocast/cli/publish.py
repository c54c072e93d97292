"""`isocast publish`: put events or opaque messages, of a file or of standard input, into the sequence of a market."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.options import Config, Flag
from isocast.cli.render import Progress, line, note, show_json
from isocast.runtime.operate import shutdown
from isocast.terms.errors import ConfigurationError, FeedError, LocalProtocolError
from isocast.terms.quantities import counted

if TYPE_CHECKING:
    from isocast.cli.event_rows import RowReader
    from isocast.cli.publish_opaque import MessageReader, PayloadForm
    from isocast.runtime.client.message_cutter import MessageCutter
    from isocast.runtime.client.publisher import Publisher, SourceDoor
    from isocast.runtime.market.model import Market
    from isocast.striping.routing import CoreRoutes
    from isocast.terms.ids import Label
    from isocast.wire.events import EventArray
    from isocast.wire.opaque import OpaqueMessage

__all__ = ["publish"]

_EXAMPLES = """Examples:

    isocast publish --config market.toml --source london-floor trades.csv

    isocast publish --config market.toml --source london-floor --key-prefix monday trades.jsonl

    echo '{"kind": "trade", "floor": "XLON", "symbol": "VOD", "price": "72.5", "quantity": 100}' |
    isocast publish --config market.toml --source london-floor

    isocast publish --config market.toml --source london-floor --topic quiz.buzzer answers.txt

JSON lines and CSV have the columns kind, floor, symbol, side, price, quantity, id, reference, flags and time_ns. Kind
and floor must be there; the rest is zero if left out, and the time is now. A symbol may be the full name of an
instrument: one of more than eight characters is looked up in the directory of the market. Exit code: 0 all of it is in
the source's outbox, 1 the source does not answer, 2 bad input.

With --topic, input is opaque messages: each line is the payload of one; with --format json each line is an object with
payload or payload_base64, and perhaps topic, key or key_base64; with --format raw all of it is one payload.
"""

_Format: TypeAlias = Literal["auto", "json", "csv", "lines", "raw"]

_CHUNK_BYTES = 1 << 18
_AT_ONCE = 256
"""Messages handed over together."""
_PREFIX_MAX = 40
"""Of the 64 bytes of a key: 8 are the message's number and 16 say what is in it."""
_DIGEST_BYTES = 16
_PATIENCE_S = 2.0
"""What takes longer shows how far it has come."""
_STDIN = "standard input"
_DASH = Path("-")
_PARQUET_MAGIC = b"PAR1"
_FAILED = 1


publish = App(name="publish", help_epilogue=_EXAMPLES)


@publish.default
def _command(  # noqa: PLR0913 - what, where, how it is written, and whether it may be repeated
    file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    config: Config = None,
    source: Annotated[str | None, Parameter(name=["--source", "-s"])] = None,
    form: Annotated[_Format, Parameter(name="--format")] = "auto",
    topic: str | None = None,
    message_key: str | None = None,
    key_prefix: str = "",
    patience: Annotated[float, Parameter(validator=Number(gte=0))] = 60.0,
    json: Flag = False,
) -> int:
    """Publish events or opaque messages at a source of a running market: a file, or standard input as it comes.

    Returns when everything is in the source's outbox, on its disk: from then on it will be in the sequence, whatever
    dies. A file is checked before anything of it is published; a bad row is named by its line and column. From
    standard input, rows before a bad one are published, and the message says how many.

    Parameters
    ----------
    file
        Events as JSON lines, CSV with a header or records of 48 bytes, also compressed, or a Parquet file; standard
        input if left out, or if it is -.
    source
        The primary or secondary source at whose door to publish: of several stripes, each event at that of its symbol.
        The only one of the market if left out.
    form
        How the events are written; auto looks at the first bytes, and with --topic it is lines.
    topic
        Send opaque messages of this topic instead of events.
    message_key
        The key of each opaque message, of at most 64 bytes.
    key_prefix
        Makes a repeat harmless: the same events under the same prefix are published once.
    patience
        Seconds for which the source may be down before this gives up.
    json
        Print one JSON object instead of a sentence.
    """
    from isocast.runtime.client.message_cutter import FULL, MessageCutter
    from isocast.runtime.client.publisher import Publisher
    from isocast.runtime.market.file import open_market
    from isocast.runtime.net.door import DoorError

    prefix = _prefix(key_prefix)
    market = open_market(config)
    source = source or _only_source(market)
    door = Publisher(market, source, patience_s=patience)
    began = monotonic()
    lanes = {stripe: MessageCutter(door.events_per_message, FULL) for stripe in door.lanes}
    sent = _Sent(prefix, door.events_per_message, door.routes, lanes)
    subject = _subject(topic, message_key, form)
    sought = _Input(None if file == _DASH else file, form, _Directory(market.file))
    try:
        shutdown.run(_publish(door, sought, sent, subject, repeatable=bool(key_prefix), quiet=json))
    except DoorError as reason:
        note(f"isocast: {reason}; {sent.amount} went out before")
        return _FAILED
    sent.repeated = door.repeated
    _report(source, sent, monotonic() - began, json=json)
    if not sent.messages:
        where = _STDIN if sought.path is None else str(sought.path)
        note(f"isocast: {where} has no {'message' if subject else 'event'}: nothing was published")
    return 0


def _only_source(market: Market) -> str:
    names = list(dict.fromkeys([plan.origin for plan in market.nodes if plan.role.is_source]))
    if len(names) != 1:
        rule = f"is missing: {market.name} has {', '.join(names) or 'no source'}"
        raise ConfigurationError("command line", "--source", rule)
    return names[0]


def _prefix(text: str) -> bytes:
    prefix = text.encode()
    if len(prefix) > _PREFIX_MAX:
        rule = f"has {len(prefix)} bytes: at most {_PREFIX_MAX}"
        raise ConfigurationError("command line", "--key-prefix", rule)
    return prefix or token_bytes(_DIGEST_BYTES)


def _report(source: str, sent: _Sent, seconds: float, *, json: bool) -> None:
    if json:
        show_json(
            {
                "source": source,
                "events": sent.events,
                "opaque_messages": sent.opaque,
                "messages": sent.messages,
                "repeated_messages": sent.repeated,
                "seconds": round(seconds, 6),
                "first_label": _label(sent.first),
                "last_label": _label(sent.last),
            }
        )
        return
    if not sent.messages:
        return
    if sent.repeated == sent.messages:
        held = counted(sent.messages, "message")
        line(f"Nothing new for {source}: it had all {held} already, under the same keys; none was published again.")
        return
    rate = f", {(sent.events + sent.opaque) / seconds:,.0f} a second" if seconds > 1 else ""
    amount = f"{sent.amount} in {counted(sent.messages, 'message')}"
    known = f"; {counted(sent.repeated, 'message')} of them it had already" if sent.repeated else ""
    line(f"Published {amount} at {source} in {seconds:.2f} s{rate}: all of it is in its outbox{known}.")


def _label(label: Label | None) -> dict[str, int] | None:
    return None if label is None else {"source": label.source, "number": label.number}


# ---- cutting messages


@dataclass(slots=True)
class _Sent:
    """What was published, and the events that wait to fill a message.

    A message's key says its place in the input and what is in it: the same events at the same place are one message,
    and a file that was changed loses nothing to the keys of an earlier run.
    """

    prefix: bytes
    per_message: int
    routes: CoreRoutes
    lanes: dict[int, MessageCutter]
    """What waits, by stripe of the core."""
    places: Counter[int] = field(default_factory=Counter)
    """Messages cut so far, by stripe of the core."""
    events: int = 0
    opaque: int = 0
    messages: int = 0
    repeated: int = 0
    """Messages that the source had before."""
    first: Label | None = None
    last: Label | None = None

    @property
    def amount(self) -> str:
        """For people."""
        return counted(self.opaque, "opaque message") if self.opaque else counted(self.events, "event")

    @property
    def waiting_events(self) -> int:
        """Events that are not published yet."""
        return sum(lane.waiting for lane in self.lanes.values())

    def add(self, events: EventArray) -> None:
        """Events that follow all before."""
        try:
            parts = self.routes.split(events, self.lanes)
        except LocalProtocolError as reason:
            raise ConfigurationError("command line", "--source", str(reason)) from None
        for stripe, part in parts.items():
            self.lanes[stripe].put(part)

    def cut(self, stripe: int, *, rest: bool) -> list[tuple[bytes, bytes]]:
        """(key, records) of the full messages of a stripe; with `rest` of all that wait."""
        return [self._message(stripe, records) for _, records in self.lanes[stripe].cut(None if rest else 0)]

    def _message(self, stripe: int, records: bytes) -> tuple[bytes, bytes]:
        import numpy as np

        from isocast.runtime.client.publisher import stamped
        from isocast.wire.events import EVENT_DTYPE

        # The present time is no part of the key: a repeat has another one.
        digest = blake2b(records, digest_size=_DIGEST_BYTES).digest()
        key = self.prefix + self.places[stripe].to_bytes(8) + digest
        self.places[stripe] += 1
        events = np.frombuffer(records, EVENT_DTYPE)
        return key, records if events["time"].all() else stamped(events, time_ns()).tobytes()

    def accepted(self, labels: Sequence[Label], events: int, opaque: int = 0) -> None:
        """The source has them."""
        self.opaque += opaque
        if labels:
            self.first = self.first or labels[0]
            self.last = labels[-1]
        self.messages += len(labels)
        self.events += events


# ---- what comes


class _Directory:
    """Full names of instruments, asked of the market when the first of them occurs."""

    def __init__(self, market: str) -> None:
        self._market = market
        self._names: dict[tuple[str, str], str] | None = None

    def __call__(self, floor: str, name: str) -> str | None:
        """The symbol of a name on a floor; None if the directory has none."""
        if self._names is None:
            from isocast.runtime.client.blocking import connect

            with connect(self._market) as market:
                self._names = {(one.floor, one.name): str(one.symbol) for one in market.instruments()}
        return self._names.get((floor, name))


@dataclass(frozen=True, slots=True)
class _Input:
    """Where events come from, how they are written, and what knows full names."""

    path: Path | None
    form: _Format
    directory: _Directory

    def reader(self, start: bytes) -> RowReader:
        """For what begins so."""
        from isocast.cli.event_rows import RowFormat, RowReader, guess_format

        name = "" if self.path is None else self.path.name
        return RowReader(guess_format(start, name) if self.form == "auto" else RowFormat(self.form), self.directory)


# ---- the way in


async def _publish(
    door: Publisher,
    sought: _Input,
    sent: _Sent,
    subject: _Subject | None,
    *,
    repeatable: bool,
    quiet: bool,
) -> None:
    total, path = 0, sought.path
    if path is not None:
        total = _checked(path, sought) if subject is None else _checked_opaque(door, path, subject)
    waiting = asyncio.create_task(_tell_waiting(door))
    try:
        async with door:
            waiting.cancel()
            with ExitStack() as stack:
                if subject is not None:
                    await _opaque(door, path, subject, sent, repeatable=repeatable)
                elif path is None:
                    await _stream(door, sought, sent, repeatable=repeatable)
                else:
                    await _file(door, path, sought, sent, _Patient(stack, total, quiet=quiet))
    finally:
        waiting.cancel()


async def _tell_waiting(door: Publisher) -> None:
    await asyncio.sleep(_PATIENCE_S)
    note(f"isocast: {door.name} does not answer at {door.address} yet: is it up? Waiting for it.")


async def _send(door: Publisher, sent: _Sent, *, rest: bool) -> None:
    async def send(stripe: int, lane: SourceDoor) -> None:
        messages = sent.cut(stripe, rest=rest)
        for at in range(0, len(messages), _AT_ONCE):
            some = messages[at : at + _AT_ONCE]
            labels = await lane.publish_messages(some)
            sent.accepted(labels, sum(_originals(records) for _, records in some))

    await asyncio.gather(*[send(stripe, lane) for stripe, lane in door.lanes.items()])


def _originals(records: bytes) -> int:
    """Events of a message that no other stripe counts."""
    import numpy as np

    from isocast.terms.market import EventFlag
    from isocast.wire.events import EVENT_DTYPE

    flags = np.frombuffer(records, EVENT_DTYPE)["flags"]
    return int(np.count_nonzero(flags & int(EventFlag.COPIED) == 0))


def _checked(path: Path, sought: _Input) -> int:
    """How many events a file has; ConfigurationError for a bad row, before anything is published."""
    return sum(len(events) for events in _events_of(path, sought, "nothing was published"))


async def _file(door: Publisher, path: Path, sought: _Input, sent: _Sent, patient: _Patient) -> None:
    for events in _events_of(path, sought, "it changed while it was read"):
        sent.add(events)
        if sent.waiting_events >= _AT_ONCE * sent.per_message:
            await _send(door, sent, rest=False)
            patient.reach(sent.events)
    await _send(door, sent, rest=True)


def _events_of(path: Path, sought: _Input, consequence: str) -> Iterator[EventArray]:
    from isocast.cli.event_rows import RowFault

    reader: RowReader | None = None
    try:
        for content in _contents(path):
            if reader is None and content.startswith(_PARQUET_MAGIC):
                yield from _parquet_events(path, consequence)
                return
            reader = reader or sought.reader(content)
            yield from reader.events(content)
        yield from reader.end() if reader is not None else ()
    except RowFault as fault:
        raise _bad_row(str(path), fault.line, fault.column, f"{fault.rule}; {consequence}") from fault


def _parquet_events(path: Path, consequence: str) -> Iterator[EventArray]:
    from isocast.runtime.client.feed_files import FeedFile, FeedOptions

    try:
        yield from FeedFile(path, FeedOptions(strict=True)).blocks()
    except FeedError as reason:
        raise FeedError(reason.file, f"{reason.rule}; {consequence}") from reason


def _contents(path: Path) -> Iterator[bytes]:
    """What is in a file, out of what it is compressed with."""
    from isocast.feeds.compressed import expand
    from isocast.feeds.outcomes import FeedLog

    try:
        with path.open("rb") as file:
            chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
            yield from expand(chunks, FeedLog(str(path), strict=True), at_most=_CHUNK_BYTES)
    except OSError as reason:
        raise ConfigurationError(str(path), "file", f"cannot be read: {reason.strerror}") from reason


def _bad_row(file: str, number: int, column: str, rule: str) -> ConfigurationError:
    return ConfigurationError(file, f"line {number}{f', {column}' if column else ''}", rule)


async def _stream(door: Publisher, sought: _Input, sent: _Sent, *, repeatable: bool) -> None:
    """Publish as it comes. Where a repeat shall be harmless, messages are cut at fixed places: only full ones go."""
    from isocast.cli.event_rows import RowFault

    reader: RowReader | None = None
    try:
        async for content in _standard_input():
            reader = reader or sought.reader(content)
            for events in reader.events(content):
                sent.add(events)
            await _send(door, sent, rest=not repeatable)
        for events in reader.end() if reader is not None else ():
            sent.add(events)
    except RowFault as fault:
        await _send(door, sent, rest=not repeatable)
        rule = f"{fault.rule}; {_published(sent)}"
        raise _bad_row(_STDIN, fault.line, fault.column, rule) from fault
    await _send(door, sent, rest=True)


def _published(sent: _Sent) -> str:
    return f"published: the first {sent.amount}, and nothing after" if sent.messages else "nothing was published"


# ---- opaque messages


@dataclass(frozen=True, slots=True)
class _Subject:
    """What opaque messages have that do not say it themselves, and how they are written."""

    topic: str
    key: bytes
    form: PayloadForm

    def reader(self, door: Publisher) -> MessageReader:
        from isocast.cli.publish_opaque import MessageReader

        return MessageReader(self.form, self.topic, self.key, door.block_bytes)


def _subject(topic: str | None, key: str | None, form: _Format) -> _Subject | None:
    """None for events; ConfigurationError for what cannot be."""
    if topic is None:
        if key is not None or form == "lines":
            option = "--message-key" if key is not None else "--format"
            raise ConfigurationError("command line", option, "is for opaque messages: give a --topic")
        return None
    from isocast.cli.publish_opaque import PayloadForm
    from isocast.wire.opaque import MAX_MESSAGE_KEY, check_topic

    try:
        check_topic(topic)
    except LocalProtocolError as reason:
        raise ConfigurationError("command line", "--topic", str(reason)) from None
    whose = (key or "").encode()
    if len(whose) > MAX_MESSAGE_KEY:
        rule = f"has {len(whose)} bytes: at most {MAX_MESSAGE_KEY}"
        raise ConfigurationError("command line", "--message-key", rule)
    if form == "csv":
        raise ConfigurationError("command line", "--format", "csv is for events: lines, json or raw")
    return _Subject(topic, whose, PayloadForm.LINES if form == "auto" else PayloadForm(form))


def _checked_opaque(door: Publisher, path: Path, subject: _Subject) -> int:
    """How many messages a file has; ConfigurationError for a bad one, before anything is sent."""
    return sum(len(some) for some in _messages_of(door, path, subject, "nothing was published"))


def _messages_of(door: Publisher, path: Path, subject: _Subject, consequence: str) -> Iterator[list[OpaqueMessage]]:
    from isocast.cli.event_rows import RowFault

    reader = subject.reader(door)
    try:
        for content in _contents(path):
            yield list(reader.messages(content))
        yield list(reader.end())
    except RowFault as fault:
        raise _bad_row(str(path), fault.line, fault.column, f"{fault.rule}; {consequence}") from fault


async def _opaque(door: Publisher, path: Path | None, subject: _Subject, sent: _Sent, *, repeatable: bool) -> None:
    """Send as it comes."""
    from isocast.cli.event_rows import RowFault
    from isocast.cli.publish_opaque import KeyedBlocks

    blocks = {stripe: KeyedBlocks(sent.prefix, door.block_bytes, repeatable=repeatable) for stripe in door.lanes}

    async def send(messages: Iterable[OpaqueMessage]) -> None:
        try:
            split = door.routes.split_topics(messages, door.lanes)
        except LocalProtocolError as reason:
            raise ConfigurationError("command line", "--source", str(reason)) from None
        for stripe, some in split.items():
            keyed = blocks[stripe].cut(some, time_ns)
            sent.accepted(await door.publish_parts({stripe: keyed}), 0, len(some))

    if path is not None:
        for messages in _messages_of(door, path, subject, "it changed while it was read"):
            await send(messages)
        return
    reader = subject.reader(door)
    try:
        async for content in _standard_input():
            await _send_until_fault(reader.messages(content), send)
        await _send_until_fault(reader.end(), send)
    except RowFault as fault:
        rule = f"{fault.rule}; {_published(sent)}"
        raise _bad_row(_STDIN, fault.line, fault.column, rule) from fault


async def _send_until_fault(
    messages: Iterator[OpaqueMessage], send: Callable[[list[OpaqueMessage]], Awaitable[None]]
) -> None:
    """What comes before a bad line is sent."""
    good: list[OpaqueMessage] = []
    try:
        good.extend(messages)
    finally:
        await send(good)


async def _standard_input() -> AsyncIterator[bytes]:
    """What there is, as soon as it is there; a thread that waits for input would outlive an interruption."""
    if sys.stdin is None:
        raise ConfigurationError(_STDIN, "input", "is closed: name a file, or send events through a pipe")
    descriptor = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    waits = True
    try:
        loop.add_reader(descriptor, ready.set)
    except PermissionError:
        waits = False  # The kernel's word for what never waits: files, and /dev/null.
    try:
        while True:
            if waits:
                ready.clear()
                await ready.wait()
            content = os.read(descriptor, _CHUNK_BYTES)
            if not content:
                return
            yield content
    finally:
        if waits:
            loop.remove_reader(descriptor)


class _Patient:
    """Progress, from the moment on when it has taken two seconds."""

    def __init__(self, stack: ExitStack, total: int, *, quiet: bool) -> None:
        self._stack = stack
        self._total = total
        self._quiet = quiet
        self._began = monotonic()
        self._shown: Progress | None = None

    def reach(self, done: int) -> None:
        if self._shown is None and monotonic() - self._began >= _PATIENCE_S:
            self._shown = self._stack.enter_context(Progress("events", self._total, quiet=self._quiet))
        if self._shown is not None:
            self._shown.reach(done)
