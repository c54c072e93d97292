"""What a sink has published, on disk: a batch is written down before its first message goes out.

So a batch that is repeated after a crash is the batch that was written down, message for message and key for key,
whatever the query computes the second time; and a source takes a key once. A source remembers a bounded number of keys:
the count of messages that are certainly in its outbox says from where on a repeat has to ask.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isocast.runtime.client.publisher import Publisher
from isocast.runtime.client.replay_messages import cut_messages
from isocast.terms.errors import ConfigurationError
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = ["PublishLog", "Published", "StripeMessage", "ordered", "stripe_messages"]

_MARK = "isocast-publish"
_STATE = "published.json"
_AT_ONCE = 256
"""Messages handed over together."""
_SAVE_EVERY = 4_096
"""Messages between two savings: a sixteenth of what a source remembers."""
_NONE = -1


@dataclass(slots=True)
class Published:
    """How far a sink is; the content of its file."""

    identity: str
    """Of this sink's keys; made with the directory."""
    query: str = ""
    """Whose batches they are, if that is known."""
    batch: int = _NONE
    """The newest batch of which all is in the outbox."""
    under_way: int = _NONE
    """The batch that is being published."""
    messages: int = 0
    """Of it, those that are certainly in the outbox."""
    per_message: int = 0
    """Events that travel together, by which it was cut."""
    total_messages: int = 0
    total_events: int = 0
    repeated: int = 0
    """Messages that the source had already."""


class PublishLog:
    """The directory of one sink."""

    def __init__(self, directory: Path) -> None:
        """Nothing is read or written yet."""
        self._directory = directory

    @contextmanager
    def opened(self, query: str = "") -> Iterator[Published]:
        """The state, while nobody else publishes from here; ConfigurationError when somebody does, or did."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as reason:
            raise ConfigurationError(str(self._directory), "progress", f"cannot be used: {reason.strerror}") from reason
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            state = self._load()
            if query and state.query not in {"", query}:
                rule = "belongs to another checkpoint, whose batches have the same numbers; give each its own"
                raise ConfigurationError(str(self._directory), "progress", rule)
            state.query = query or state.query
            yield state
        except BlockingIOError as reason:
            rule = "another query publishes from here; give each a directory of its own"
            raise ConfigurationError(str(self._directory), "progress", rule) from reason
        finally:
            os.close(lock)

    def begin(self, state: Published, batch: int, events: EventArray, door: Publisher) -> EventArray:
        """The events of a batch: those that were written down for it before, or these, written down now.

        ConfigurationError for a symbol of a stripe in which the source is not: what is written down must be possible.
        """
        file = self._file(batch)
        if state.under_way == batch and file.exists():
            return np.frombuffer(file.read_bytes(), EVENT_DTYPE)
        if state.under_way not in {_NONE, batch}:
            rule = (
                f"batch {state.under_way} was begun here and never finished, and the query goes on with {batch}: give"
                " it the checkpoint that it was begun with"
            )
            raise ConfigurationError(str(self._directory), "progress", rule)
        _insist_on_stripes(events, door)
        self._sweep()
        _write(file, events.tobytes())
        state.under_way, state.messages, state.per_message = batch, 0, door.events_per_message
        self.save(state)
        return events

    async def publish(self, state: Published, door: Publisher, events: EventArray) -> None:
        """Every message of the batch under way that is not certainly in the outbox."""
        prefix = bytes.fromhex(state.identity) + state.under_way.to_bytes(8)
        cut = stripe_messages(events, door, state.per_message)
        saved = state.messages
        while state.messages < len(cut):
            some = cut[state.messages : state.messages + _AT_ONCE]
            parts: dict[int, list[tuple[bytes, bytes]]] = {}
            for message in some:
                key = prefix + message.place.to_bytes(8)
                parts.setdefault(message.stripe, []).append((key, message.events.tobytes()))
            before = door.repeated
            await door.publish_parts(parts)
            state.messages += len(some)
            state.repeated += door.repeated - before
            if state.messages - saved >= _SAVE_EVERY:
                self.save(state)
                saved = state.messages

    def end(self, state: Published, events: EventArray) -> None:
        """All of the batch is in the outbox."""
        done = state.under_way
        state.batch, state.under_way = done, _NONE
        state.total_messages += state.messages
        state.total_events += len(events)
        state.messages = 0
        self.save(state)
        self._file(done).unlink(missing_ok=True)

    def save(self, state: Published) -> None:
        """Write the state down in one step."""
        _write(self._directory / _STATE, json.dumps({"what": _MARK, **asdict(state)}).encode() + b"\n")

    def _load(self) -> Published:
        file = self._directory / _STATE
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content.pop("what") != _MARK:
                raise ValueError("it is another file")  # noqa: TRY301 - told like every other reason
            return Published(**content)
        except FileNotFoundError:
            state = Published(token_hex(16))
            self.save(state)
            return state
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as reason:
            rule = f"cannot be read ({reason}); mend it: without it what was published may be published again"
            raise ConfigurationError(str(file), "progress", rule) from reason

    def _sweep(self) -> None:
        """Batches that were finished by somebody who died before he removed them."""
        for file in self._directory.glob("batch-*.events"):
            file.unlink(missing_ok=True)

    def _file(self, batch: int) -> Path:
        return self._directory / f"batch-{batch:020}.events"


class StripeMessage(NamedTuple):
    """Events that are published together."""

    due: int
    """Time of the last of them."""
    stripe: int
    place: int
    """Among the messages of the batch in its stripe, from 0."""
    events: EventArray


def stripe_messages(events: EventArray, door: Publisher, per_message: int) -> list[StripeMessage]:
    """A batch as messages, each stripe's cut on its own, in the order of time: always the same for the same events."""
    found = [
        StripeMessage(due, stripe, place, part)
        for stripe, own in _parts(events, door).items()
        for place, (due, part) in enumerate(cut_messages([own], per_message))
    ]
    return sorted(found, key=lambda message: message[:3])


def _parts(events: EventArray, door: Publisher) -> dict[int, EventArray]:
    """The events of each stripe; a market of one stripe has them as they are."""
    if len(door.routes.stripes) == 1:
        return dict.fromkeys(door.lanes, events)
    return door.routes.split(events, door.lanes)


def _insist_on_stripes(events: EventArray, door: Publisher) -> None:
    for stripe, part in _parts(events, door).items():
        if stripe not in door.lanes:
            symbol = part["symbol"][0].decode("ascii", "replace")
            rule = f"{symbol} travels in stripe {stripe}, where {door.name} does not publish"
            raise ConfigurationError("format isocast", "source", rule)


def _write(file: Path, content: bytes) -> None:
    """All of it or nothing, and on the disk when this returns."""
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as target:
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        part.replace(file)
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as reason:
        raise ConfigurationError(str(file), "progress", f"cannot be written: {reason.strerror}") from reason


def ordered(rows: Sequence[tuple[bytes, bytes]], keys: int) -> EventArray:
    """Events of all tasks in one order: by their keys, then by what they say; how tasks were cut makes no difference.

    Each task gives records, and for each record `keys` numbers of 64 bits.
    """
    events = np.frombuffer(b"".join([record for record, _ in rows]), EVENT_DTYPE)
    order = np.frombuffer(b"".join([order for _, order in rows]), np.int64).reshape(-1, keys)
    words = events.view(np.uint64).reshape(-1, EVENT_BYTES // 8)
    columns: list[npt.NDArray[Any]] = [words[:, place] for place in reversed(range(words.shape[1]))]
    columns += [order[:, place] for place in reversed(range(keys))]
    return events[np.lexsort(columns)] if len(events) else events
