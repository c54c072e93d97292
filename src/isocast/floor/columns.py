"""The events of a token as columns, straight from their bytes, in the order in which they enter.

Most tokens of a busy floor have nothing but orders, cancels and replaces, and most of those are plain: the fields of
all of them are read at once. What is not plain is decoded by itself (`floor.codec`), which alone decides whether bytes
are an event. Nothing here depends on a floor until the columns are applied, so that several floors can apply the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from isocast.floor.arrays import EVENT_DTYPE, ArrayKind, match
from isocast.floor.codec import decode_event, is_cancel, is_order, symbol_of
from isocast.floor.events import Cancel, Event, Order, Replace
from isocast.floor.fast import AS_IT_IS, FastFloor, Told
from isocast.terms.entry import EntryRule, entry_order
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.market import Side

__all__ = ["TokenColumns", "read_columns"]

_ROW: Final = np.dtype([*EVENT_DTYPE.descr, ("deadline", "<i8")])
_COMMON: Final = ("id", "account", "quantity")
_ORDER: Final = np.dtype(
    [
        ("kind", "u1"),
        ("id", "<u8"),
        ("account", "<u4"),
        ("owner", "<u4"),
        ("side", "u1"),
        ("bits", "<u2"),
        ("quantity", "<i8"),
        ("price", "<i8"),
        ("length", "u1"),
    ]
)
"""The bytes of an order up to its symbol, of which the last is the length."""
_CANCEL: Final = np.dtype([("kind", "u1"), ("id", "<u8"), ("account", "<u4"), ("quantity", "<i8")])
_IMMEDIATE, _DAY, _DEADLINE = 2, 16, 128
_PLAIN: Final = _IMMEDIATE | _DAY | _DEADLINE
"""Bits of an order that may be set in a plain one."""
_HEAD, _TAIL = _ORDER.itemsize, 8
_FAR: Final = (1 << 63) - 1
"""The deadline of an order without one."""
_NOWHERE: Final = (1 << 32) - 1
"""The symbol of an order that is not plain: it goes the readable way, as one of a symbol that is not listed."""


class TokenColumns:
    """The orders, cancels and replaces of a token, in the order in which they enter."""

    __slots__ = ("_kept", "_names", "_payloads", "_rows", "places", "strange")

    def __init__(
        self,
        rows: npt.NDArray[Any],
        names: list[str],
        payloads: list[bytes],
        places: list[int],
        kept: list[int],
        strange: int,
    ) -> None:
        """`names`: of symbols, by the number that an order has; `kept`: which of the token's messages are events."""
        self._rows, self._names, self._payloads, self._kept = rows, names, payloads, kept
        self.places = places
        """Of each event among those of its token, in the order of the sequence."""
        self.strange = strange
        """Messages that are no event."""

    @property
    def ids(self) -> list[int]:
        """Of the events."""
        found: list[int] = self._rows["id"].tolist()
        return found

    def of_events(self, of_messages: Sequence[int]) -> Sequence[int]:
        """What belongs to the token's messages, without that of messages that are no event."""
        return [of_messages[place] for place in self._kept] if self.strange else of_messages

    def event(self, index: int) -> Event:
        """One of them as an object."""
        return decode_event(self._payloads[index])

    def apply(self, floor: FastFloor) -> Told:
        """Give them to a floor, in a token that has begun: what came of them."""
        rows = self._rows.copy()
        listed = {name: place for place, name in enumerate(floor.symbols)}
        places = np.array([*(listed.get(name, _NOWHERE) for name in self._names), _NOWHERE], np.uint32)
        is_late = rows["deadline"] < floor.at
        rows["symbol"] = np.where(is_late, _NOWHERE, places[np.minimum(rows["symbol"], len(self._names))])
        return match(floor, rows, self.event)


def read_columns(payloads: Sequence[bytes], shuffle_key: bytes) -> TokenColumns | None:
    """A token's messages, given in the order of the sequence; None where some are events of another kind."""
    rows = np.zeros(len(payloads), _ROW)
    rows["deadline"] = _FAR
    names: dict[bytes, str | None] = {}
    orders = [place for place, payload in enumerate(payloads) if len(payload) > _HEAD and is_order(payload)]
    cancels = [
        place for place, payload in enumerate(payloads) if len(payload) == _CANCEL.itemsize and is_cancel(payload)
    ]
    is_read = np.zeros(len(payloads), np.bool_)
    if orders:
        _read_orders(rows, is_read, payloads, orders, names)
    if cancels:
        fields = np.frombuffer(b"".join([payloads[place] for place in cancels]), _CANCEL)
        rows["kind"][cancels] = ArrayKind.CANCEL
        for name in _COMMON:
            rows[name][cancels] = fields[name]
        is_read[cancels] = True
    is_event = is_read.copy()
    for place in np.flatnonzero(~is_read).tolist():
        with suppress(RemoteProtocolError):
            event = decode_event(payloads[place])
            if not isinstance(event, Order | Cancel | Replace):
                return None
            _put(rows[place], event)
            is_event[place] = True
    kept = np.flatnonzero(is_event)
    order = entry_order(rows["account"][kept].tolist(), shuffle_key, EntryRule.SHUFFLE)
    entering = kept[np.array(order, np.intp)]
    chosen = [payloads[place] for place in entering.tolist()]
    symbols = [name or "" for name in names.values()]
    return TokenColumns(rows[entering], symbols, chosen, order, kept.tolist(), len(payloads) - len(kept))


def _read_orders(
    rows: npt.NDArray[Any],
    is_read: npt.NDArray[np.bool_],
    payloads: Sequence[bytes],
    orders: list[int],
    names: dict[bytes, str | None],
) -> None:
    """Put the plain ones of what seem to be orders into their rows; of all others nothing is said."""
    chosen = [payloads[place] for place in orders]
    fields = np.frombuffer(b"".join([payload[:_HEAD] for payload in chosen]), _ORDER)
    ends = np.frombuffer(b"".join([payload[-_TAIL:] for payload in chosen]), "<i8")
    symbols = [payload[_HEAD : _HEAD + payload[_HEAD - 1]] for payload in chosen]
    numbers: dict[bytes, int] = {}
    for raw in dict.fromkeys(symbols):
        numbers[raw] = len(names)
        names[raw] = None
        with suppress(RemoteProtocolError):
            names[raw] = symbol_of(raw)
    symbol = np.array([numbers[raw] for raw in symbols], np.uint32)
    is_named = np.array([name is not None for name in names.values()])[symbol]
    bits, size = fields["bits"], np.array([len(payload) for payload in chosen])
    has_deadline = (bits & _DEADLINE) != 0
    is_plain = is_named & ((bits & ~np.uint16(_PLAIN)) == 0)
    is_plain &= (fields["side"] == Side.BUY) | (fields["side"] == Side.SELL)
    is_plain &= size == _HEAD + fields["length"].astype(np.intp) + _TAIL * has_deadline
    into = np.array(orders, np.intp)[is_plain]
    for name in (*_COMMON, "owner", "side", "price"):
        rows[name][into] = fields[name][is_plain]
    rows["symbol"][into] = symbol[is_plain]
    rows["immediate"][into] = (bits[is_plain] & _IMMEDIATE) != 0
    rows["day"][into] = (bits[is_plain] & _DAY) != 0
    rows["deadline"][into] = np.where(has_deadline, ends, _FAR)[is_plain]
    is_read[into] = True


def _put(row: Any, event: Order | Cancel | Replace) -> None:  # noqa: ANN401 - a record of numpy's
    """An event that was decoded; whatever its row cannot say makes it one that goes the readable way."""
    row["id"], row["account"] = event.id, event.account
    if isinstance(event, Order):
        row["symbol"], row["quantity"], row["side"] = _NOWHERE, event.quantity, event.side
    elif isinstance(event, Cancel):
        row["kind"], row["quantity"] = ArrayKind.CANCEL, event.quantity
    else:
        row["kind"] = ArrayKind.REPLACE
        given = AS_IT_IS if event.quantity is None else event.quantity, AS_IT_IS if event.price is None else event.price
        is_plain = event.trigger is None and AS_IT_IS not in (event.quantity, event.price)
        row["quantity"], row["price"] = given if is_plain else (0, 0)
