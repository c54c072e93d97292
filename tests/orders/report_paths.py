"""Whether the reports that a trader hears of an order are a legal path (T6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from isocast.orders.desk import OrderStatus, ReportKind, TradeReport

__all__ = ["path_faults"]

_ASKED: Final = (
    ReportKind.CANCEL_PENDING,
    ReportKind.REPLACE_PENDING,
    ReportKind.REVEAL_PENDING,
    ReportKind.REVEALED,
    ReportKind.CHANGE_REFUSED,
    ReportKind.CORRECTED,
    ReportKind.STATUS,
)
_S = OrderStatus
_LIVE: Final = (_S.PENDING, _S.WORKING, _S.PART_FILLED)
_VOID: Final = {ReportKind.BUSTED: _LIVE, ReportKind.RESTORED: _LIVE}
_WORKS: Final = {
    ReportKind.TRADED: (_S.PART_FILLED, _S.FILLED),
    ReportKind.CANCELLED: (_S.CANCELLED,),
    ReportKind.EXPIRED: (_S.EXPIRED,),
}
_LEGAL: Final[dict[OrderStatus | None, dict[ReportKind, tuple[OrderStatus, ...]]]] = {
    None: {ReportKind.ACCEPTED: (_S.PENDING,), ReportKind.REFUSED: (_S.REFUSED,)},
    _S.PENDING: {ReportKind.WORKING: (_S.WORKING,), ReportKind.REFUSED: (_S.REFUSED,)},
    _S.WORKING: {**_WORKS, **_VOID, ReportKind.REPLACED: (_S.WORKING,)},
    _S.PART_FILLED: {
        **_WORKS,
        **_VOID,
        ReportKind.REPLACED: (_S.PART_FILLED, _S.FILLED),
        ReportKind.CONFIRMED: (_S.PART_FILLED,),
    },
    _S.FILLED: {**_VOID, ReportKind.CONFIRMED: (_S.FILLED,)},
    _S.CANCELLED: {**_VOID, ReportKind.CONFIRMED: (_S.CANCELLED,)},
    _S.EXPIRED: {**_VOID, ReportKind.CONFIRMED: (_S.EXPIRED,)},
    _S.REFUSED: {ReportKind.RESTORED: (_S.PENDING,)},
}
"""From where an order may go by which report to where. What was only asked changes nothing, from anywhere."""


def path_faults(reports: Iterable[TradeReport]) -> Iterator[str]:
    """What is wrong with the reports of one order, in the order in which they were told (property T6)."""
    status: OrderStatus | None = None
    filled = value = 0
    open_trades: dict[int, int] = {}
    for report in reports:
        where = f"order {report.order}, report {report.number} ({report.kind})"
        if report.kind in _ASKED and status is not None:
            allowed: tuple[OrderStatus, ...] = (status,)
        else:
            allowed = _LEGAL[status].get(report.kind, ())
        if report.status not in allowed:
            yield f"{where}: from {status or 'nothing'} to {report.status}"
        if report.kind is ReportKind.TRADED:
            filled += report.last_quantity
            value += report.last_quantity * report.last_price
            open_trades[report.trade] = open_trades.get(report.trade, 0) + 1
        elif report.kind in (ReportKind.CONFIRMED, ReportKind.BUSTED):
            open_trades[report.trade] = open_trades.get(report.trade, 0) - 1
            if open_trades[report.trade] < 0:
                yield f"{where}: trade {report.trade} was not told before, or twice"
        if report.kind is ReportKind.BUSTED:
            filled -= report.last_quantity
            value -= report.last_quantity * report.last_price
        if (report.filled, report.filled_value) != (filled, value):
            yield f"{where}: {report.filled} filled for {report.filled_value}, its trades say {filled} for {value}"
        left = 0 if report.status.is_final else report.quantity - report.filled
        if report.left != left:
            yield f"{where}: {report.left} left of {report.quantity}, {report.filled} filled"
        status = report.status
