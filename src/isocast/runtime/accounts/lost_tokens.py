"""Tokens that a reformation cut off after a gateway had applied them: what they did to its orders is taken back.

Under the timed gate, or with a forced ring, a token that is not stable can be lost. Whoever hears the sequence again
notices: a token is gone, or carries something else. Nothing that it did was settled or freed (settlement 14), so the
orders are as they were before it, with all that is reserved for them; the sequence will decide them again
(settlement 8).
"""

from __future__ import annotations

from isocast.orders.desk import OrderStatus, ReportKind, TradeReport
from isocast.runtime.accounts.floor_view import TokenOutcome
from isocast.runtime.accounts.order_store import Due, Image, Work
from isocast.runtime.accounts.posting import execute
from isocast.terms.errors import LocalProtocolError

__all__ = ["take_back_lost"]


def take_back_lost(work: Work, floor: str, outcome: TokenOutcome, followed: int) -> None:
    """Take back what was applied and is not in the sequence any more, now that this token follows another."""
    known = [token for token in work.past if followed < token <= outcome.token]
    last = work.position.token
    if known and known[0] < outcome.token:
        gone = known[0]
    elif work.position.stable_token < outcome.token <= last and (
        not known or work.past[outcome.token].digest != outcome.digest
    ):
        gone = outcome.token
    else:
        return
    _take_back(work, floor, gone - 1, outcome.instant)
    work.position = work.position._replace(token=gone - 1)


def _take_back(work: Work, floor: str, after: int, instant: int) -> None:
    """All tokens behind this one are gone: their trades are void, their orders as they were."""
    execute(work.connection, "DELETE FROM floor_snapshots WHERE floor = ? AND token > ?", (floor, after))
    for number, (image, changes) in work.lose(after).items():
        order = work.order(number)
        if order is None:
            continue
        was, reserved = order.image(), order.reserved
        order.put_back(image, changes)
        void = [due for due in was.dues if due.trade and not due.version and due.token > after]
        report = order.life.report(ReportKind.RESTORED, instant)
        _tell_void(work, report, void, was)
        if not void and was[:8] != image[:8]:
            work.tell(report)
        more = order.reserved - reserved
        if more > 0:
            raise LocalProtocolError(f"order {number} needs {more:,} more than was kept for it")
        order.add_due(after, -more)


def _tell_void(work: Work, report: TradeReport, void: list[Due], was: Image) -> None:
    """A word about every trade that is void, the newest first."""
    filled, value = was.filled, was.filled_value
    for due in reversed(void):
        filled, value = filled - due.quantity, value - due.quantity * due.price
        total = max(report.quantity, filled)
        work.tell(
            report._replace(
                kind=ReportKind.BUSTED,
                status=report.status if filled == report.filled else OrderStatus.PART_FILLED,
                quantity=total,
                filled=filled,
                filled_value=value,
                left=total - filled,
                trade=due.trade,
                last_quantity=due.quantity,
                last_price=due.price,
            )
        )
