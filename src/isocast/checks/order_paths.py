"""T6 and T8: what becomes of each order, and in which order a trader's own stand.

T6: the reports of an order are a legal path, from its entry to its end.

    entered --> refused
            --> working --> traded, cancelled in part, replaced, any number of times --> filled, cancelled or expired

What is left of an order is counted from its own reports alone: its total, less what traded and what was cancelled. Who
has nothing left has ended, and is not heard of again; nobody trades, cancels or expires more than is left; a new total
is never below what is filled. All or nothing is all or nothing in one event. A sealed bid forfeits once at most, and
not when it was revealed.

T8: an account numbers what it enters, and the numbers rise. So an entry that stands in the sequence behind a later one
of its own account has been overtaken; one that comes twice has not, and is T5's. That nearness is worth no more than it
must be cannot be said from one token: `studies.entry` counts it over many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from isocast.checks.floor_acts import FloorAct, FloorMoment, FloorSaid, FloorTranscript, FloorWrong

__all__ = ["KeptOrder", "OrderPaths"]

_ENTERING = ("order", "lot", "commit", "bid", "take")


@dataclass(slots=True)
class _Path:
    """One order, offer, lot, bid or TAKE that has not ended."""

    kind: str
    account: int
    total: int
    filled: int = 0
    is_all: bool = False
    is_revealed: bool = False
    lot: int = -1
    """Of a sealed bid."""

    @property
    def left(self) -> int:
        return self.total - self.filled


class OrderPaths:
    """Follows every order of a floor through its reports."""

    def __init__(self) -> None:
        """Nothing has been entered."""
        self._paths: dict[int, _Path] = {}
        self._bids: dict[tuple[int, int], _Path] = {}
        """Sealed bids by account and id: an id of theirs may be another account's order."""

    def step(self, transcript: FloorTranscript) -> Iterator[FloorWrong]:
        """The next token."""
        for act in transcript.acts:
            for text in self._act(act):
                yield FloorWrong("T6", transcript.token, text)

    def _act(self, act: FloorAct) -> Iterator[str]:
        if act.kind in _ENTERING and not act.is_refused:
            yield from self._enter(act)
        elif act.kind == "reveal" and not act.is_refused:
            bid = self._bids.get((act.fields["account"], act.fields["id"]))
            if bid is None:
                yield f"bid {act.fields['id']} is revealed, which was not committed"
            else:
                bid.is_revealed = True
        refused = 0
        for said in act.reports:
            refused += said.kind == "refused"
            yield from self._said(act, said)
        if refused > 1:
            yield f"{act.kind} {act.fields.get('id')} is refused {refused} times"
        if act.kind == "order" and act.fields.get("is_all") and not act.is_refused:
            yield from self._whole(act)
        self._drop_passing(act)

    def _enter(self, act: FloorAct) -> Iterator[str]:
        number, account = act.fields["id"], act.fields["account"]
        if act.kind == "commit":
            lot = act.fields["lot"]
            for key in [key for key, bid in self._bids.items() if (key[0], bid.lot) == (account, lot)]:
                del self._bids[key]
            self._bids[account, number] = _Path("commit", account, 0, lot=lot)
            return
        if number in self._paths:
            yield f"{act.kind} {number} is entered, and another of that id works"
        total, is_all = act.fields["quantity"], bool(act.fields.get("is_all"))
        self._paths[number] = _Path(act.kind, account, total, is_all=is_all)

    def _drop_passing(self, act: FloorAct) -> None:
        """A Dutch bid and a TAKE live for their event alone, sealed bids as long as their lot."""
        if act.kind in {"bid", "take"}:
            self._paths.pop(act.fields["id"], None)
        if self._bids and act.moment is FloorMoment.BEGIN:
            self._bids = {key: bid for key, bid in self._bids.items() if bid.lot in self._paths}

    def _whole(self, act: FloorAct) -> Iterator[str]:
        number = act.fields["id"]
        filled = sum(
            said.fields["quantity"]
            for said in act.reports
            if said.kind == "trade" and number in {said.fields["buy"], said.fields["sell"]}
        )
        if filled not in {0, act.fields["quantity"]}:
            yield f"order {number} of {act.fields['quantity']}, all or nothing, trades {filled}"
        if number in self._paths:
            yield f"order {number}, all or nothing, still works after its event"

    def _said(self, act: FloorAct, said: FloorSaid) -> Iterator[str]:
        fields = said.fields
        match said.kind:
            case "trade":
                bid = self._won(fields)
                for number in (fields["buy"], fields["sell"]):
                    if bid is None or number == fields["sell"]:
                        yield from self._fill(number, fields)
            case "refused":
                if fields["id"] != act.fields.get("id"):
                    yield f"{fields['id']} is refused, which is not what was entered"
            case "replaced":
                yield from self._replaced(fields)
            case "cancelled" | "expired" | "unsold":
                yield from self._end(act, said)
            case "forfeited":
                yield from self._forfeited(fields)
            case _:
                pass

    def _fill(self, number: int, trade: Mapping[str, Any]) -> Iterator[str]:
        path = self._paths.get(number)
        if path is None:
            yield f"order {number} trades in {trade['number']}, and does not work"
            return
        path.filled += trade["quantity"]
        if path.left < 0 or trade["quantity"] <= 0:
            yield f"order {number} trades {trade['quantity']} in {trade['number']}, of {path.total}: {path.left} left"
        if path.left <= 0:
            del self._paths[number]

    def _won(self, trade: Mapping[str, Any]) -> _Path | None:
        """The revealed bid that takes a lot by this trade, and so ends."""
        for key, bid in self._bids.items():
            if (key[1], bid.lot) == (trade["buy"], trade["sell"]) and bid.is_revealed:
                return self._bids.pop(key)
        return None

    def _replaced(self, fields: Mapping[str, Any]) -> Iterator[str]:
        path = self._paths.get(fields["id"])
        if path is None:
            yield f"order {fields['id']} is replaced, and does not work"
            return
        if fields["total"] < path.filled:
            yield f"order {fields['id']} has the new total {fields['total']}, and {path.filled} are filled"
        path.total = fields["total"]
        if path.left <= 0:
            del self._paths[fields["id"]]

    def _end(self, act: FloorAct, said: FloorSaid) -> Iterator[str]:
        number, quantity = said.fields["id"], said.fields["quantity"]
        if act.kind == "cancel" and self._bids.pop((act.fields["account"], number), None) is not None:
            return
        path = self._paths.get(number)
        if path is None:
            yield f"order {number} is {said.kind}, and does not work"
            return
        if quantity > path.left or quantity <= 0 or (said.kind != "cancelled" and quantity != path.left):
            yield f"order {number}: {quantity} are {said.kind}, of {path.left} left"
        path.total -= quantity
        if path.left <= 0 or said.kind != "cancelled":
            del self._paths[number]

    def _forfeited(self, fields: Mapping[str, Any]) -> Iterator[str]:
        for key, bid in self._bids.items():
            if key[1] == fields["id"] and not bid.is_revealed:
                del self._bids[key]
                return
        yield f"bid {fields['id']} forfeits, and none of that id is unrevealed"


# ---- T8: every trader's order is kept


_SEEN_MAX: Final = 4_096
"""Ids that are remembered of each account, to tell one that comes twice from one that was overtaken."""


class KeptOrder:
    """Follows the numbers of every account of one floor."""

    def __init__(self) -> None:
        """Nobody has entered anything."""
        self._seen: dict[int, dict[int, None]] = {}
        self._highest: dict[int, int] = {}
        self._forgotten: dict[int, int] = {}

    def step(self, transcript: FloorTranscript) -> Iterator[FloorWrong]:
        """The next token."""
        for act in transcript.acts:
            if act.kind in _ENTERING:
                text = self._enter(act.fields["account"], act.fields["id"])
                if text:
                    yield FloorWrong("T8", transcript.token, text)

    def _enter(self, account: int, number: int) -> str:
        seen = self._seen.setdefault(account, {})
        if number in seen:
            return ""
        seen[number] = None
        if len(seen) > _SEEN_MAX:
            oldest = next(iter(seen))
            del seen[oldest]
            self._forgotten[account] = max(oldest, self._forgotten.get(account, -1))
        highest = self._highest.get(account, -1)
        self._highest[account] = max(number, highest)
        if self._forgotten.get(account, -1) < number < highest:
            return f"entry {number} of account {account} stands behind its entry {highest}"
        return ""
