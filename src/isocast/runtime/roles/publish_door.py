"""The door of a source, primary or secondary: floors come in with batches and leave with labels.

A batch whose key is known gets its old label, and whoever sent it is told that it was no news.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from isocast.ring.effects import PublishAccepted, PublishRejected
from isocast.runtime.door import Door, Visit
from isocast.runtime.roles.context import Context
from isocast.terms.errors import IsocastError
from isocast.terms.ids import Label
from isocast.wire.door import Accepted, Publish, Refused
from isocast.wire.limits import EVENT_BYTES

__all__ = ["Batches", "PublishDoor", "PublishError", "SourceStopsError"]

Batches: TypeAlias = Sequence[tuple[bytes, bytes]]
"""(key, payload) of each."""


class PublishError(IsocastError):
    """A batch that no source can take, and why."""


class SourceStopsError(PublishError):
    """The source ends before it took a batch: nothing is wrong with the batch, and the next life takes it."""


class PublishDoor(Door):
    """Serves floors, and keeps what the machine answered to each key until it is handed out."""

    def __init__(
        self,
        context: Context,
        publish: Callable[[Batches], Awaitable[tuple[Label, ...]]],
        next_number: Callable[[], int],
        room: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`publish` returns when all batches are in the outbox; `next_number` is the outbox's.

        `room` returns once another request may be taken; left out, that is always.
        """
        super().__init__(context.publish_door_key, self._serve_floor, self._tell_trouble)
        self.answers: dict[bytes, PublishAccepted | PublishRejected] = {}
        self._context = context
        self._publish = publish
        self._next_number = next_number
        self._room = room

    def note(self, effect: PublishAccepted | PublishRejected) -> None:
        """What the machine answered."""
        self.answers[effect.key] = effect
        if isinstance(effect, PublishAccepted):
            self._context.counters.publishes_accepted += 1
        else:
            self._context.counters.publishes_rejected += 1

    async def _serve_floor(self, guest: Visit) -> None:
        while (message := await guest.receive()) is not None:
            if not isinstance(message, Publish):
                await guest.send(Refused("this door takes batches to publish; ask a retransmit server for ranges"))
                continue
            if self._room is not None:
                await self._room()
            first_new = self._next_number()
            try:
                labels = await self._publish(message.batches)
            except SourceStopsError:
                # A refusal would be final; whoever is hung up on comes again, with the same keys.
                return
            except PublishError as reason:
                await guest.send(Refused(str(reason)))
                continue
            pairs = zip(labels, message.batches, strict=True)
            new = [len(payload) for label, (_, payload) in pairs if label.number >= first_new]
            self._context.counters.events_published += sum(new) // EVENT_BYTES
            await guest.send(Accepted(labels, len(labels) - len(new)))

    def _tell_trouble(self, name: str, text: str) -> None:
        self._context.alarm(f"visitor-{name}", f"{name}: {text}", "check its key file, and that it reads its answers")
