"""A gateway and a source that lack one rule each, to show that deaths at their steps are seen where it matters.

A process that names its steps lacks the rule that ISOCAST_WITHOUT names in its environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from secrets import token_bytes
from threading import Event
from typing import Any, Final

from sqlalchemy import Connection

from isocast.orders.desk import TradeReport
from isocast.ring.effects import Multicast, Record
from isocast.runtime.accounts import desk, order_store, trading
from isocast.runtime.accounts.posting import execute
from isocast.runtime.disk import outbox_store
from isocast.runtime.hosts import driver, source
from isocast.wire.opaque import OpaqueMessage

__all__ = ["RULES", "WITHOUT", "mutate"]

WITHOUT: Final = "ISOCAST_WITHOUT"
_LATE_S: Final = 1.0
_TURNS: Final = 20
"""Of an event loop, in which an answer gets out."""


def _put(owner: object, name: str, made: object) -> None:
    """In the place of a function of the product."""
    setattr(owner, name, made)


def _marked_with_its_order() -> None:
    """A batch is marked as published in the transaction that makes it."""
    put = order_store.put_in_outbox

    def marked(connection: Connection, payloads: Sequence[bytes]) -> order_store.Batch:
        batch = put(connection, payloads)
        execute(connection, "UPDATE outbox SET published = TRUE WHERE batch = ?", (batch.number,))
        return batch

    _put(order_store, "put_in_outbox", marked)


def _noted_before_it_is_published() -> None:
    """A batch counts as published when it is about to be: the next transaction marks it."""
    publish = desk.GatewayDesk._publish_one  # noqa: SLF001

    async def noted(self: desk.GatewayDesk, messages: Sequence[OpaqueMessage], key: bytes) -> None:
        self.books.note_published(self.books.waiting[0].number)
        await publish(self, messages, key)

    _put(desk.GatewayDesk, "_publish_one", noted)


def _another_key_for_a_repetition() -> None:
    """A batch that is published again after a start has a new key."""
    read = order_store.read_batches

    def renamed(connection: Connection, after: int) -> list[order_store.Batch]:
        return [batch._replace(key=token_bytes(16)) for batch in read(connection, after)]

    _put(trading, "read_batches", renamed)


def _answered_before_the_commit() -> None:
    """Traders hear of their orders, and then it is committed."""
    commit = desk.GatewayDesk._commit  # noqa: SLF001

    async def early(self: desk.GatewayDesk, some: list[Any]) -> None:
        loop, books = asyncio.get_running_loop(), self.books
        judge, reached = books._answer, books.reached  # noqa: SLF001
        told: list[TradeReport] = []
        out = Event()

        def noting(*values: Any) -> tuple[TradeReport, bool | int]:  # noqa: ANN401 - as it is given
            answer = judge(*values)
            told.append(answer[0])
            return answer

        def give(turns: int) -> None:
            if turns == _TURNS:
                for call in some:
                    call.answered.set_result([told.pop(0) for _ in call.asked])
            if turns:
                loop.call_soon(give, turns - 1)
            else:
                out.set()

        def telling(step: str) -> None:
            if step == "written":
                loop.call_soon_threadsafe(give, _TURNS)
                out.wait()
            reached(step)

        _put(books, "_answer", noting)
        books.reached = telling
        await commit(self, some)
        _put(books, "_answer", judge)
        books.reached = reached

    _put(desk.GatewayDesk, "_commit", early)


def _position_before_what_it_brings() -> None:
    """How far the sequence was applied is one transaction, and what came of it the next."""
    write = order_store.Work.write

    def twice(work: order_store.Work) -> None:
        if work.position != work._memory.position:  # noqa: SLF001
            work._write_position()  # noqa: SLF001
            work._write_past()  # noqa: SLF001
            work._memory.past = work.past  # noqa: SLF001
            work.connection.exec_driver_sql("COMMIT")
            work.connection.exec_driver_sql("BEGIN IMMEDIATE")
        write(work)

    _put(order_store.Work, "write", twice)


def _sent_before_it_is_written() -> None:
    """A source sends a message, and writes it into its outbox then."""
    perform = driver.Driver._perform  # noqa: SLF001

    def early(self: driver.Driver[Any, Any], effects: Sequence[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Multicast):
                self.channels.multicast(effect.packet)
        self.channels.flush()
        perform(self, effects)

    _put(driver.Driver, "_perform", early)


def _acknowledged_before_it_is_written() -> None:
    """A source writes into its outbox when it has time."""
    persist = source.SourceHost.persist

    def late(self: source.SourceHost, records: list[Record]) -> None:
        asyncio.get_running_loop().call_later(_LATE_S, persist, self, records)

    _put(source.SourceHost, "persist", late)


def _keys_forgotten_by_a_start() -> None:
    """A source that starts again knows its messages, and not their keys."""
    check = outbox_store.Outbox.check

    def forgetting(self: outbox_store.Outbox, *values: Any) -> None:  # noqa: ANN401 - as it is given
        check(self, *values)
        self.state.keys.clear()

    _put(outbox_store.Outbox, "check", forgetting)


RULES: Final[dict[str, Callable[[], None]]] = {
    "gateway: a batch is marked once it is published": _marked_with_its_order,
    "gateway: a batch counts as published once it is": _noted_before_it_is_published,
    "gateway: a batch is repeated under its key": _another_key_for_a_repetition,
    "gateway: an answer comes after the commit": _answered_before_the_commit,
    "gateway: a token is applied in one transaction": _position_before_what_it_brings,
    "source: a message is sent once it is written": _sent_before_it_is_written,
    "source: a batch is acknowledged once it is written": _acknowledged_before_it_is_written,
    "source: a key is known for ever": _keys_forgotten_by_a_start,
}


def mutate(rule: str) -> None:
    """Take a rule away from this process; none: nothing."""
    if rule:
        RULES[rule]()
