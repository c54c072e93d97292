"""T7: no sealed bid can be read before its close.

Before the close the sequence holds of a bid its ceiling and a commitment, BLAKE2b-256 of price, nonce, account and lot:
whoever does not have the 16 bytes of the nonce cannot tell one price from another. So that this means something, the
floor must not ask for more: it takes a bid by its commitment alone, before the close, and opens it from the close on
and not later than its window, only by what was committed to, and not above its ceiling. Commitments are computed here
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

from isocast.checks.floor_acts import FloorAct, FloorTranscript, FloorWrong

__all__ = ["SealedBids"]

_NONCE_BYTES = 16


class _Committed(NamedTuple):
    id: int
    ceiling: int
    digest: bytes


@dataclass(slots=True)
class _Lot:
    closes_at: int
    ends_at: int
    bids: dict[int, _Committed] = field(default_factory=dict)
    """By account."""


class SealedBids:
    """Follows the sealed lots of one floor."""

    def __init__(self) -> None:
        """None is open."""
        self._lots: dict[int, _Lot] = {}

    def step(self, transcript: FloorTranscript) -> Iterator[FloorWrong]:
        """The next token."""
        self._lots = {number: lot for number, lot in self._lots.items() if transcript.instant < lot.ends_at}
        for act in transcript.acts:
            for text in () if act.is_refused else self._act(act, transcript.instant):
                yield FloorWrong("T7", transcript.token, text, "second price")

    def _act(self, act: FloorAct, instant: int) -> Iterator[str]:
        fields = act.fields
        if act.kind == "lot" and fields["auction"] == "second-price":
            self._lots[fields["id"]] = _Lot(fields["closes_at"], fields["closes_at"] + fields["window_ns"])
        elif act.kind == "commit":
            lot = self._lots.get(fields["lot"])
            if lot is None or instant >= lot.closes_at:
                yield f"bid {fields['id']} is taken when the bids of lot {fields['lot']} may be open"
            else:
                lot.bids[fields["account"]] = _Committed(fields["id"], fields["ceiling"], fields["digest"])
        elif act.kind == "reveal":
            yield from self._revealed(fields, instant)

    def _revealed(self, fields: Mapping[str, Any], instant: int) -> Iterator[str]:
        account = fields["account"]
        for number, lot in self._lots.items():
            bid = lot.bids.get(account)
            if bid is None or bid.id != fields["id"]:
                continue
            if instant < lot.closes_at:
                yield f"bid {bid.id} of lot {number} is opened before the close"
            if fields["price"] > bid.ceiling:
                yield f"bid {bid.id} of lot {number} opens above its ceiling"
            if _commitment(fields["price"], fields["nonce"], account, number) != bid.digest:
                yield f"bid {bid.id} of lot {number} opens to what was not committed"
            return
        yield f"bid {fields['id']} is opened, which nobody committed to, or whose window is over"


def _commitment(price: int, nonce: bytes, account: int, lot: int) -> bytes:
    if len(nonce) != _NONCE_BYTES:
        return b""
    text = price.to_bytes(8, "little", signed=True) + nonce + account.to_bytes(4, "little") + lot.to_bytes(8, "little")
    return blake2b(text, digest_size=32).digest()
