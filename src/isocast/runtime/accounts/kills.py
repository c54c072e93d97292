"""Kill switches and controls as tables have them.

A kill is a block for whoever it stops, and a CANCEL for every order of his that lives: in one transaction (settlement
24), of the gateway itself or of an operator's command beside it. A gateway that runs sees the block with its next
transaction, and publishes the cancels with it.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from isocast.floor.codec import encode_event
from isocast.floor.events import Cancel
from isocast.orders.controls import DEFAULT_LIMITS, Block, BlockScope, Limits
from isocast.orders.desk import OrderStatus
from isocast.runtime.accounts.order_store import order_id, put_in_outbox
from isocast.runtime.accounts.posting import execute, rows_of

__all__ = ["blocks_in", "kill_in", "lift_in", "limits_in", "set_limits_in"]

_LIVE: Final = tuple(status.value for status in OrderStatus if not status.is_final)


def blocks_in(connection: Connection) -> list[Block]:
    """All kill switches that are on."""
    query = "SELECT scope, account, owner, reason FROM kills ORDER BY scope, account, owner"
    return [Block(BlockScope(scope), *rest) for scope, *rest in rows_of(connection, query)]


def kill_in(connection: Connection, block: Block, now: int) -> int:
    """Set a block, and put a CANCEL for every live order that it stops into the outbox: how many."""
    execute(
        connection,
        "INSERT INTO kills (scope, account, owner, reason, at_ns) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (scope, account, owner) DO UPDATE SET reason = excluded.reason",
        (*block[:3], block.reason, now),
    )
    places = ", ".join("?" * len(_LIVE))
    query = f"SELECT account, number, owner FROM orders WHERE is_open AND status IN ({places}) ORDER BY account, number"  # noqa: S608 - places for values
    live = [row for row in rows_of(connection, query, _LIVE) if block.stops(row[0], row[2])]
    if live:
        put_in_outbox(
            connection, [encode_event(Cancel(order_id(account, number), account)) for account, number, _ in live]
        )
    return len(live)


def lift_in(connection: Connection, block: Block) -> bool:
    """Lift a block; False where there is none."""
    gone = "DELETE FROM kills WHERE scope = ? AND account = ? AND owner = ?"
    return execute(connection, gone, tuple(block[:3])).rowcount > 0


def limits_in(connection: Connection, account: int) -> Limits:
    """What an account may do before the market."""
    query = "SELECT quantity, value, collar_bp, rate, open_orders FROM controls WHERE account = ?"
    return next((Limits(*row) for row in rows_of(connection, query, (account,))), DEFAULT_LIMITS)


def set_limits_in(connection: Connection, account: int, limits: Limits) -> None:
    """Give an account limits of its own."""
    execute(
        connection,
        "INSERT INTO controls (account, quantity, value, collar_bp, rate, open_orders) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (account) DO UPDATE SET quantity = excluded.quantity, value = excluded.value,"
        " collar_bp = excluded.collar_bp, rate = excluded.rate, open_orders = excluded.open_orders",
        (account, *limits),
    )
