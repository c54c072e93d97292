"""The door of a source: floors come in with batches and leave with labels; and what happens when its outbox is gone.

A batch whose key is known gets its old label, and whoever sent it is told that it was no news.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from isocast.ring.effects import PublishAccepted, PublishRejected
from isocast.runtime.disk.outbox_store import OutboxStore
from isocast.runtime.hosts.order_checks import listed_now
from isocast.runtime.hosts.process import Context
from isocast.runtime.net.door import Door, Visit
from isocast.terms.errors import IsocastError, StoreGone
from isocast.terms.ids import Label
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted
from isocast.wire.door import Accepted, Publish, Refused
from isocast.wire.opaque import count_events

if TYPE_CHECKING:
    from isocast.striping.routing import CoreRoutes

__all__ = ["KeyedBatches", "OutboxGuard", "PublishDoor", "PublishError", "SourceStopsError", "tell_outbox"]


KeyedBatches: TypeAlias = Sequence[tuple[bytes, bytes]]
"""(key, payload) of each."""


class PublishError(IsocastError):
    """A batch that no source can take, and why."""


class SourceStopsError(PublishError):
    """The source ends before it took a batch: nothing is wrong with the batch, and the next life takes it."""


def tell_outbox(context: Context, store: OutboxStore) -> None:
    """Say what became of the incarnation before, if it did not end well."""
    left = len(store.in_doubt)
    if store.loss:
        context.alarm(
            "outbox-short",
            f"messages that this source had accepted are missing: {store.loss}; it begins a new incarnation, no number"
            f" is used again, and the old one has {counted(left, 'message')} left",
            "compare what the floor published with isocast journal cat at a receiver; publish again what is missing",
        )
    elif left:
        context.alarm(
            "in-doubt",
            f"the machine went down with {counted(left, 'message')} in the outbox: each may be in the"
            " sequence or not, and none is sent again",
            "look for them with isocast journal cat at a receiver; publish again what is missing",
        )


class PublishDoor(Door):
    """Serves floors, and keeps what the machine answered to each key until it is handed out."""

    def __init__(
        self,
        context: Context,
        publish: Callable[[KeyedBatches], Awaitable[tuple[Label, ...]]],
        next_number: Callable[[], int],
        room: Callable[[], Awaitable[None]] | None = None,
        routes: CoreRoutes | None = None,
    ) -> None:
        """`publish` returns when all batches are in the outbox; `next_number` is the outbox's.

        `room` returns once another request may be taken; left out, that is always. With `routes`, symbols of other
        stripes are refused.
        """
        super().__init__(context.publish_door_key, self._serve_floor, self._tell_trouble, context.tls, context.doorway)
        self.answers: dict[bytes, PublishAccepted | PublishRejected] = {}
        self._context = context
        self._publish = publish
        self._next_number = next_number
        self._room = room
        self._routes = routes

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
            foreign = self._foreign(message.batches)
            if foreign:
                await guest.send(Refused(foreign))
                continue
            if self._room is not None:
                await self._room()
            first_new = self._next_number()
            try:
                labels = await self._publish(message.batches)
            except SourceStopsError:
                # A refusal would be final; a client that is disconnected comes again, with the same keys.
                return
            except PublishError as reason:
                await guest.send(Refused(str(reason)))
                continue
            pairs = zip(labels, message.batches, strict=True)
            new = [payload for label, (_, payload) in pairs if label.number >= first_new]
            self._context.counters.events_published += count_events(new)
            await guest.send(Accepted(labels, len(labels) - len(new)))

    def _foreign(self, batches: KeyedBatches) -> str:
        """Why a batch is not for this source, or not for this stripe; empty if all are."""
        refusal = self._unrightful(batches)
        if refusal or self._routes is None:
            return refusal
        return self._strange(self._routes, batches)

    def _unrightful(self, batches: KeyedBatches) -> str:
        """What these batches have that this source may not send: receivers would leave it out."""
        rights = self._context.market.source_rights
        if rights is None:
            return ""
        market, plan = self._context.market, self._context.plan
        while plan.parent in market.by_name:
            plan = market.node(plan.parent)  # What comes through a secondary source is its primary source's.
        listed = listed_now(self._context.keys.book, self._context.clock.now())
        found = next(filter(None, [rights.refusal(plan.node, payload, listed) for _, payload in batches]), "")
        return found and f"{found} must not come through {plan.name}: see [floor] of the market file for who may"

    def _strange(self, routes: CoreRoutes, batches: KeyedBatches) -> str:
        """Why a batch is not for this stripe; empty if all are."""
        stripe, market = self._context.plan.stripe, self._context.market
        for symbol, home in routes.strangers(stripe, [payload for _, payload in batches]):
            there = (market.whole or market).processes_of(self._context.plan.origin)
            names = [plan.name for plan in there if plan.stripe == home] or ["no process of this source"]
            return f"{symbol} travels in stripe {home} and this is stripe {stripe}: publish it at {names[0]}"
        return ""

    def _tell_trouble(self, name: str, text: str) -> None:
        self._context.alarm(f"visitor-{name}", f"{name}: {text}", "check its key file, and that it reads its answers")


# ---- What a source does when its outbox vanishes under it: it takes nothing more, and brings what it took to safety.
#
# Everything that it accepted and that is not stable yet is in memory still. So it goes on sending until the ring, or a
# secondary source's parent, has all of it, or nobody takes it any more; then the process ends with the reason. The next
# start finds no outbox, or another one, and begins a new incarnation.


PATIENCE_NS = 30 * SECOND
"""For a ring that is being re-formed; after that the messages are named as lost."""


class OutboxGuard:
    """Looks after the outbox of one source, about once a second."""

    def __init__(self, context: Context, store: OutboxStore, owed: Callable[[], int]) -> None:
        """`owed` says how many accepted messages are nowhere else yet."""
        self.gone: StoreGone | None = None
        """Why nothing is taken any more."""
        self._context = context
        self._store = store
        self._owed = owed
        self._since = 0

    def insist(self) -> None:
        """PublishError if nothing may be accepted."""
        if self.gone is not None:
            raise PublishError(f"this source accepts no batches: {self.gone}")

    def tick(self, now: int) -> bool:
        """Look; whether the outbox was just found gone. StoreGone once there is nothing left to bring to safety."""
        if self.gone is None:
            try:
                self._store.check()
            except StoreGone as reason:
                self.gone, self._since = reason, now
                owed = self._owed()
                self._context.alarm(
                    "disk-gone",
                    f"{reason}; {owed} accepted messages are being brought to safety",
                    "see the how-to 'operate': find out who removed the data; publish at another source meanwhile",
                )
            return self.gone is not None
        owed = self._owed()
        if not owed:
            raise self.gone
        if not 0 <= now - self._since < PATIENCE_NS:
            lost = f"{owed} accepted messages are lost: publish them again"
            raise StoreGone(self.gone.file, f"{self.gone.rule}; {lost}")
        return False
