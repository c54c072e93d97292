"""What an order's later messages leave out: its price, side and owner, from the message that entered it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from isocast.feeds.itch_block import MessageBlock, by_code
from isocast.feeds.itch_layout import NAMES, Indices
from isocast.feeds.itch_orders import OrderTable
from isocast.feeds.outcomes import Fault
from isocast.terms.market import EventFlag, EventKind, Side

__all__ = ["OrderBook"]

_SIDE_OF = by_code({"B": Side.BUY, "S": Side.SELL})
_U32 = (1 << 32) - 1
_OF_AN_ORDER = ("E", "C", "X", "D", "U")
_LOW_BITS = "match numbers above 32 bits: executions carry their low bits"


class OrderBook:
    """Fills the events of A, F, E, C, X, D and U."""

    def __init__(self) -> None:
        """No order stands."""
        self.orders = OrderTable()

    def fill(self, block: MessageBlock) -> None:
        """Enter everything, look everything up, then forget what has gone."""
        for name in ("A", "F"):
            if name in block.records:
                self._enter(block, name)
        if "U" in block.records:
            self._replace(block)
        present = [name for name in _OF_AN_ORDER if name in block.records]
        if not present:
            return
        numbers = np.concatenate([block.order_keys(name) for name in present])
        slots = np.split(self.orders.find(numbers), np.cumsum([len(block.records[name]) for name in present])[:-1])
        for name, found in zip(present, slots, strict=True):
            if name in ("X", "D"):
                self._cancel(block, name, found)
            elif name in ("E", "C"):
                self._execute(block, name, found)
        for name, found in zip(present, slots, strict=True):
            known = found >= 0
            if name in ("D", "U"):
                self.orders.drop(found[known])
            else:
                self.orders.shrink(found[known], block.records[name]["shares"][known])

    def _enter(self, block: MessageBlock, name: str) -> None:
        records, to = block.of(name)
        sides = _SIDE_OF[records["side"]]
        block.refuse(name, sides == 0, Fault.BAD_VALUE, "an order whose side is neither B nor S")
        owners = records["owner"].astype(np.uint32) if name == "F" else np.zeros(len(records), np.uint32)
        prices, shares = records["price"].astype(np.uint32), records["shares"].astype(np.uint32)
        events = block.events
        events["side"][to] = sides
        events["price"][to] = prices
        events["quantity"][to] = shares
        events["id"][to] = records["order"]
        if name == "F":
            events["reference"][to] = owners
        stood = self.orders.enter(block.order_keys(name), prices, sides, owners, shares)
        self._note_reuse(block, name, "order", stood)

    def _replace(self, block: MessageBlock) -> None:
        """A new order takes side and owner of the old one: within a block, of the first one of its chain."""
        records, to = block.of("U")
        old, new = block.order_keys("U"), block.order_keys("U", "new_order")
        slots = self.orders.find(old[_first_of_chain(old, new)])
        known = slots >= 0
        block.refuse("U", ~known, Fault.UNKNOWN_ORDER, f"{NAMES['U']}: an order that was not entered")
        sides = np.where(known, self.orders.side[slots], 0)
        owners = np.where(known, self.orders.owner[slots], 0)
        events, second = block.events, to + 1
        events["flags"][to] = EventFlag.LINKED
        events["reference"][to] = owners
        events["id"][to] = records["order"]
        events["kind"][second] = EventKind.ORDER
        events["side"][second] = sides
        events["price"][second] = records["price"]
        events["quantity"][second] = records["shares"]
        events["reference"][second] = owners
        events["id"][second] = records["new_order"]
        stood = np.zeros(len(records), np.bool_)
        stood[known] = self.orders.enter(
            new[known], records["price"][known], sides[known], owners[known], records["shares"][known]
        )
        self._note_reuse(block, "U", "new_order", stood)

    def _cancel(self, block: MessageBlock, name: str, slots: Indices) -> None:
        records, to = block.of(name)
        known = slots >= 0
        unknown = block.chosen[name][~known]
        if len(unknown):
            # The message says all that a CANCEL has: it is worth having even when nobody knows the order.
            what = f"{NAMES[name]}: an order that was not entered"
            block.log.fault(Fault.UNKNOWN_ORDER, int(block.where[unknown[0]]), what, len(unknown))
        block.events["id"][to] = records["order"]
        block.events["reference"][to] = np.where(known, self.orders.owner[slots], 0)
        if name == "X":
            block.refuse(name, records["shares"] == 0, Fault.BAD_VALUE, "a cancel of no shares")
            block.events["quantity"][to] = records["shares"]

    def _execute(self, block: MessageBlock, name: str, slots: Indices) -> None:
        records, to = block.of(name)
        known = slots >= 0
        events = block.events
        events["id"][to] = records["order"]
        events["side"][to] = np.where(known, self.orders.side[slots], 0)
        events["quantity"][to] = records["shares"]
        matches = records["match"].astype(np.uint64)
        events["reference"][to] = matches & np.uint64(_U32)
        if int(matches.max()) > _U32 and _LOW_BITS not in block.log.notes:
            block.log.notes.append(_LOW_BITS)
        if name == "C":
            # A print with its price is worth having even when nobody knows the order.
            events["price"][to] = records["price"]
            events["flags"][to] = np.where(records["printable"] == ord("N"), int(EventFlag.UNPRINTED), 0)
        else:
            events["price"][to] = np.where(known, self.orders.price[slots], 0)
            block.refuse(name, ~known, Fault.UNKNOWN_ORDER, f"{NAMES[name]}: an order that was not entered")

    @staticmethod
    def _note_reuse(block: MessageBlock, name: str, field: str, stood: npt.NDArray[np.bool_]) -> None:
        again = np.flatnonzero(stood)
        if len(again):
            number = int(block.records[name][field][again[0]])
            where = int(block.where[block.chosen[name][again[0]]])
            block.log.fault(Fault.REUSED_ORDER, where, f"order {number} stands already", len(again))


def _first_of_chain(old: npt.NDArray[np.uint64], new: npt.NDArray[np.uint64]) -> Indices:
    """For each replacement the first one of its chain within the block, doubling the stride with each step."""
    by_new = np.argsort(new, kind="stable")
    at = np.minimum(np.searchsorted(new[by_new], old), len(new) - 1)
    parent = np.where(new[by_new[at]] == old, by_new[at], np.arange(len(new)))
    for _ in range(len(new).bit_length()):
        further = parent[parent]
        if np.array_equal(further, parent):
            break
        parent = further
    return parent
