"""A process of the product that names its steps in a file, and kills itself by SIGKILL at the one that is armed.

    python -m tests.interop.stepping FOLDER trading-gateway run --config market.toml ...

A step is a point before or after something that lasts or that others see: a commit of a gateway, a frame between a
gateway and a source, an answer or a report to a trader, a write of a source's outbox, a datagram with a message. Each
goes into FOLDER/steps, by a name that is the same in every run: what happens, a colon, and what it is about, such as
`before the commit: accepted rest`. FOLDER/armed names one, after the numbers of the processes that it ends (0: this
one), how many times, and how often it is passed before that; then the file is gone.

The product is wrapped from outside. It knows nothing of this.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from threading import Lock, local
from typing import Any, Final

from sqlalchemy.engine.default import DefaultDialect
from tests.interop.step_mutants import WITHOUT, mutate

from isocast.cli.main import main as isocast
from isocast.floor.codec import decode_event
from isocast.floor.events import Cancel, Order, Replace, Take
from isocast.ring.effects import OutboxAppended, OutboxFreed, Record
from isocast.runtime.accounts import order_store, trading, watching
from isocast.runtime.disk import outbox_store, store
from isocast.runtime.net import channels, door, http
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.door import Accepted, DoorMessage, Publish
from isocast.wire.opaque import read_opaque_or_none
from isocast.wire.packets import Data, Packet

__all__ = ["ARMED", "STEPS", "Frames", "Steps", "said", "watch_commits"]

STEPS: Final = "steps"
ARMED: Final = "armed"


def said(payload: bytes) -> list[str]:
    """What a message of a gateway says, event by event; identities and numbers of a run are left out."""
    found = []
    for message in read_opaque_or_none(payload) or ():
        topic = message.topic.partition("/")[0]
        event = None
        with suppress(RemoteProtocolError):
            event = decode_event(message.payload) if topic == "floor" else None
        match event:
            case Order():
                found.append(f"{'offer' if event.is_offer else 'order'} to {event.side.name.lower()} {event.quantity}")
            case Replace():
                found.append(f"replace by {event.quantity}")
            case Cancel():
                found.append(f"cancel {event.quantity or 'all'}")
            case Take():
                found.append(f"take {event.quantity}")
            case _:
                found.append(topic)
    return found


class Steps:
    """Where this process stands."""

    def __init__(self, folder: Path) -> None:
        self._log = os.open(folder / STEPS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._armed = folder / ARMED
        self._turn = Lock()
        """The event loop and the writer of a gateway meet here."""

    def reach(self, what: str, subjects: Iterable[str]) -> None:
        """One step, or as many as happen together: each is named by what it is about."""
        for subject in dict.fromkeys(subjects):
            with self._turn:
                self._reach(f"{what}: {subject}")

    def _reach(self, name: str) -> None:
        os.write(self._log, f"{name}\n".encode())
        try:
            pids, times, passes, armed = self._armed.read_text(encoding="utf-8").split(" ", 3)
        except FileNotFoundError:
            return
        if armed != name:
            return
        if int(passes):
            self._armed.write_text(f"{pids} {times} {int(passes) - 1} {name}", encoding="utf-8")
            return
        if int(times) > 1:
            self._armed.write_text(f"{pids} {int(times) - 1} 0 {name}", encoding="utf-8")
        else:
            self._armed.unlink()
        # This one is the last.
        for pid in sorted(map(int, pids.split(",")), reverse=True):
            os.kill(pid or os.getpid(), signal.SIGKILL)


def _replace(owner: object, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put something around a function of the product."""
    inner = getattr(owner, name)
    setattr(owner, name, wraps(inner)(make(inner)))


# What a gateway does ------------------------------------------------------------------------------------------------


def _told(kind: object, client_id: object) -> str:
    """Of a report: the part of a client id that says which round it is of is left out."""
    return f"{kind} {str(client_id).rpartition('.')[2]}"


def watch_commits(steps: Steps) -> None:
    """Of transactions that write: what they tell traders, or what they have for the sequence."""
    writing = local()

    def write(inner: Callable[[order_store.Work], None]) -> Callable[[order_store.Work], None]:
        def named(work: order_store.Work) -> None:
            subjects = [_told(report.kind, report.client_id) for report, _ in work.reports]
            writing.subjects = subjects or (["events"] if work.events else ["a token or a look"])
            inner(work)

        return named

    def opening(inner: Callable[..., object]) -> Callable[..., object]:
        def named(*values: object) -> object:
            writing.subjects = ["taking over"]
            return inner(*values)

        return named

    def committing(inner: Callable[..., None]) -> Callable[..., None]:
        def named(*values: object) -> None:
            subjects, writing.subjects = getattr(writing, "subjects", ()), ()
            steps.reach("before the commit", subjects)
            inner(*values)
            steps.reach("after the commit", subjects)

        return named

    _replace(order_store.Work, "write", write)
    _replace(trading.TradingBooks, "open", opening)
    _replace(DefaultDialect, "do_commit", committing)


def watch_answers(steps: Steps) -> None:
    """Answers to requests of traders, and reports on their way to them."""

    def writing(inner: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def named(server: http.HttpServer, answer: bytes, *more: object) -> None:
            subjects = _answered(answer)
            steps.reach("before the answer", subjects)
            await inner(server, answer, *more)
            steps.reach("after the answer", subjects)

        return named

    telling: list[str] = []

    def fields(inner: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def named(report: Any) -> dict[str, Any]:  # noqa: ANN401 - as `report_fields`
            telling.append(_told(report.kind, report.client_id))
            steps.reach("before the report", telling[-1:])
            return inner(report)

        return named

    def flushing(inner: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def named(*values: object) -> None:
            told = telling.copy()
            telling.clear()
            await inner(*values)
            steps.reach("after the report", told)

        return named

    _replace(http.HttpServer, "_write", writing)
    _replace(watching, "report_fields", fields)
    _replace(watching.Watcher, "_flush", flushing)


def _answered(answer: bytes) -> list[str]:
    """Of an answer that says what became of requests; of any other nothing."""
    try:
        body = json.loads(answer.partition(b"\r\n\r\n")[2])
    except ValueError:
        return []
    if not isinstance(body, dict):
        return []
    if "cancelled" in body:
        return ["cancel-all"]
    parts = body.get("results", [body])
    reports = [part.get("report", part) for part in parts if isinstance(part, dict)]
    return [_told(one["kind"], one["client_id"]) for one in reports if "client_id" in one and "kind" in one]


# What passes between a gateway and its source -----------------------------------------------------------------------


class Frames:
    """Messages through a source's door, at either end, by what they say."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.by_key: dict[bytes, list[str]] = {}
        """What was said under a key."""
        self._last: dict[int, list[str]] = {}
        """On a connection, by its identity."""

    def watch(self) -> None:
        """From now on."""
        _replace(door.Visit, "send", self._sending)
        _replace(door.Visit, "receive", self._receiving)

    def _sending(self, inner: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def named(visit: door.Visit, message: DoorMessage) -> None:
            what, subjects = "", list[str]()
            if isinstance(message, Publish):
                what, subjects = "the frame to the source", self._note(visit, message)
            elif isinstance(message, Accepted):
                what, subjects = "the acknowledgement to the gateway", self._last.get(id(visit), [])
            self._steps.reach(f"before {what}", subjects)
            await inner(visit, message)
            self._steps.reach(f"after {what}", subjects)

        return named

    def _receiving(self, inner: Callable[..., Awaitable[DoorMessage | None]]) -> Callable[..., object]:
        async def named(visit: door.Visit) -> DoorMessage | None:
            message = await inner(visit)
            if isinstance(message, Publish):
                self._steps.reach("after hearing the gateway", self._note(visit, message))
            elif isinstance(message, Accepted):
                self._steps.reach("after hearing the acknowledgement", self._last.get(id(visit), []))
            return message

        return named

    def _note(self, visit: door.Visit, message: Publish) -> list[str]:
        subjects = []
        for key, payload in message.batches:
            self.by_key[key] = said(payload)
            subjects += self.by_key[key]
        self._last[id(visit)] = subjects
        return subjects


# What a source does -------------------------------------------------------------------------------------------------


def watch_outbox(steps: Steps, frames: Frames) -> None:
    """Its writes, their high-water mark, and datagrams with its messages."""
    writing: list[str] = []
    by_number: dict[int, list[str]] = {}
    """What was appended in this life, and is not freed."""
    sending: list[str] = []

    def subjects_of(records: Sequence[Record]) -> list[str]:
        found = []
        for record in records:
            if isinstance(record, OutboxAppended):
                by_number[record.number] = frames.by_key.get(record.key, ["another life's"])
                found += by_number[record.number]
            elif isinstance(record, OutboxFreed):
                freed = [number for number in sorted(by_number) if number < record.base]
                found += [f"freeing {subject}" for number in freed for subject in by_number.pop(number)]
        return found

    def appending(inner: Callable[..., None]) -> Callable[..., None]:
        def named(outbox: outbox_store.OutboxStore, records: Sequence[Record]) -> None:
            writing[:] = subjects_of(records)
            inner(outbox, records)
            steps.reach("after the outbox's mark", writing)
            writing.clear()

        return named

    def around(inner: Callable[..., object], what: str) -> Callable[..., object]:
        def named(*values: object) -> object:
            subjects = writing or ["its own state"]
            steps.reach(f"before {what}", subjects)
            done = inner(*values)
            steps.reach(f"after {what}", subjects)
            return done

        return named

    def queueing(inner: Callable[..., None]) -> Callable[..., None]:
        def named(self: channels.Channels, packet: Packet) -> None:
            if isinstance(packet, Data):
                sending.extend(by_number.get(packet.number, ["another life's"]))
            inner(self, packet)

        return named

    def flushing(inner: Callable[..., None]) -> Callable[..., None]:
        def named(self: channels.Channels) -> None:
            subjects = sending.copy()
            sending.clear()
            steps.reach("before the datagram", subjects)
            inner(self)
            steps.reach("after the datagram", subjects)

        return named

    _replace(outbox_store.OutboxStore, "append_many", appending)
    _replace(store, "write_all", lambda inner: around(inner, "the outbox's write"))
    _replace(os, "fdatasync", lambda inner: around(inner, "the outbox's sync"))
    _replace(channels.Channels, "multicast", queueing)
    _replace(channels.Channels, "flush", flushing)


def main(arguments: Sequence[str]) -> int:
    """Run a command of the product, stepping."""
    folder, *words = arguments
    mutate(os.environ.get(WITHOUT, ""))
    steps = Steps(Path(folder))
    frames = Frames(steps)
    frames.watch()
    if words[0] == "node":
        watch_outbox(steps, frames)
    else:
        watch_commits(steps)
        watch_answers(steps)
    return isocast(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
