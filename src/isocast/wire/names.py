"""Full names of instruments as records of the directory, and scales of many symbols at once.

A DIRECTORY record without a side says that a symbol exists. The two behind it with the sides BUY and SELL have the
first and second 24 bytes of the instrument's full name, UTF-8 with zeros at the end, where price, quantity, reference
and id are. They are the newest of their own keys, so every snapshot of a market has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from isocast.terms.errors import LocalProtocolError
from isocast.terms.instruments import CODE_MARK, MAX_NAME, PLAIN, Instrument, has_name, scale_of
from isocast.terms.market import EventFlag, EventKind, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

__all__ = ["InstrumentNames", "are_coded", "are_names", "decimals_of", "name_events"]

_PART_BYTES = MAX_NAME // 2
_SIDES = (Side.BUY, Side.SELL)
_CODE_MARK = ord(CODE_MARK)
_NAMED = np.dtype([("price", "<i8"), ("quantity", "<u4"), ("reference", "<u4"), ("id", "<u8")])


def are_coded(symbols: npt.NDArray[np.bytes_]) -> npt.NDArray[np.bool_]:
    """Which symbols begin as codes do; `scale_of` says whether they are."""
    first: npt.NDArray[np.uint8] = np.ascontiguousarray(symbols).view(np.uint8)[:: symbols.dtype.itemsize]
    found: npt.NDArray[np.bool_] = first == _CODE_MARK
    return found


def decimals_of(symbols: npt.NDArray[np.bytes_]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The decimals of the prices and of the quantities of each."""
    prices, quantities = np.full(len(symbols), PLAIN.price, np.int64), np.zeros(len(symbols), np.int64)
    coded = np.flatnonzero(are_coded(symbols))
    if len(coded):
        names, places = np.unique(symbols[coded], return_inverse=True)
        scales = np.array([scale_of(name.decode("ascii")) for name in names.tolist()])[places]
        prices[coded], quantities[coded] = scales[:, 0], scales[:, 1]
    return prices, quantities


def are_names(events: EventArray) -> npt.NDArray[np.bool_]:
    """Which events are parts of full names."""
    found: npt.NDArray[np.bool_] = (events["kind"] == EventKind.DIRECTORY) & (events["side"] != Side.NONE)
    return found


def name_events(instruments: Iterable[Instrument]) -> EventArray:
    """The directory records of instruments; what has a code has its full name with it."""
    parts: list[EventArray] = [np.empty(0, EVENT_DTYPE)]
    for one in instruments:
        records = np.zeros(1 if one.symbol == one.name else 1 + len(_SIDES), EVENT_DTYPE)
        records["kind"], records["floor"] = EventKind.DIRECTORY, one.floor.encode("ascii")
        records["symbol"], records["flags"] = one.symbol.encode("ascii"), int(EventFlag.LINKED)
        records["flags"][-1] = 0
        if len(records) > 1:
            raw = one.name.encode().ljust(MAX_NAME, b"\0")
            for place, side in enumerate(_SIDES, 1):
                words = np.frombuffer(raw[(place - 1) * _PART_BYTES : place * _PART_BYTES], _NAMED)[0]
                records["side"][place] = side
                for field in _NAMED.names or ():
                    records[field][place] = words[field]
        parts.append(records)
    return np.concatenate(parts)


class InstrumentNames:
    """What is known of a market's directory: full names by floor and symbol, and back."""

    def __init__(self) -> None:
        """Nothing is known."""
        self.refused = 0
        """Records that claim a name which their symbol cannot have."""
        self._parts: dict[tuple[bytes, bytes], dict[int, bytes]] = {}
        self._known: dict[tuple[str, str], Instrument] = {}
        self._by_name: dict[tuple[str, str], Instrument] = {}

    def __len__(self) -> int:
        """How many full names are known."""
        return len(self._known)

    def __iter__(self) -> Iterator[Instrument]:
        """By floor and name."""
        return iter(sorted(self._known.values(), key=lambda one: (one.floor, one.name, one.symbol)))

    def add(self, instrument: Instrument) -> None:
        """What has a code; LocalProtocolError if that is another's already: five characters of a hash may be equal."""
        if instrument.symbol == instrument.name:
            return
        key = instrument.floor, str(instrument.symbol)
        other = self._known.get(key)
        if other is not None and other.name != instrument.name:
            rule = f"has the same symbol as {other.name}: give one of them another number of decimals"
            raise LocalProtocolError(f"instrument {instrument.name} {rule}")
        self._known[key] = self._by_name[instrument.floor, instrument.name] = instrument

    def merge(self, others: InstrumentNames) -> None:
        """Learn what others know; what is known here stays as it is."""
        for key, one in others._known.items():
            self._known.setdefault(key, one)
            self._by_name.setdefault((one.floor, one.name), one)

    def take(self, events: EventArray) -> None:
        """Learn the names in some events; what is no name of its symbol is counted and left alone."""
        chosen = events[are_names(events)]
        for record in chosen:
            key = record["floor"].item(), record["symbol"].item()
            words = np.zeros(1, _NAMED)
            for field in _NAMED.names or ():
                words[field] = record[field]
            parts = self._parts.setdefault(key, {})
            parts[int(record["side"])] = words.tobytes()
            if len(parts) == len(_SIDES):
                self._learn(key, parts)

    def _learn(self, key: tuple[bytes, bytes], parts: dict[int, bytes]) -> None:
        floor, symbol = key[0].decode("ascii"), key[1].decode("ascii")
        try:
            name = b"".join([parts[side] for side in _SIDES]).rstrip(b"\0").decode()
            instrument = Instrument(floor, name, *scale_of(symbol))
        except (UnicodeDecodeError, LocalProtocolError):
            self.refused += 1
            return
        if not has_name(symbol, name):
            self.refused += 1
            return
        self._known[floor, symbol] = self._by_name[floor, name] = instrument

    def name_of(self, floor: str, symbol: str) -> str:
        """The full name, or the symbol where none is known."""
        known = self._known.get((floor, symbol))
        return symbol if known is None else known.name

    def names_of(self, symbol: str) -> str:
        """The full name on whichever floor; the symbol where none is known."""
        return next((one.name for (_, code), one in self._known.items() if code == symbol), symbol)

    def symbol_of(self, floor: str, name: str) -> str | None:
        """The symbol under which a name of a floor travels; None if that is not known."""
        known = self._by_name.get((floor, name))
        return None if known is None else str(known.symbol)

    def symbols_of(self, name: str) -> tuple[str, ...]:
        """The symbols of a name on all floors."""
        return tuple(dict.fromkeys(str(one.symbol) for (_, called), one in self._by_name.items() if called == name))
