"""Lines of a tape: each symbol on each floor, numbered in the order in which they appear in the sequence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from isocast.ticker.keys import Indices, KeyTable, Words
from isocast.ticker.records import (
    FLOOR_DTYPE,
    LINE_DTYPE,
    NO_ASK,
    NO_BID,
    NO_ROW,
    SYMBOL_DTYPE,
    Records,
    RecordTable,
)

__all__ = ["LINES_MAX", "Lines", "floor_name", "symbol_name"]

LINES_MAX = 1 << 20
"""A quarter of a gigabyte: all listings of the world are a tenth of it; a floor that invents symbols ends here."""

_PAIR = np.dtype([("symbol", "<u8"), ("floor", "<u8")])


def symbol_name(word: int) -> str:
    """The text in the eight bytes of a symbol."""
    return word.to_bytes(8, "little").rstrip(b"\0").decode("ascii")


def floor_name(word: int) -> str:
    """The text in the four bytes of a floor."""
    return word.to_bytes(4, "little").rstrip(b"\0").decode("ascii")


class Lines:
    """Every line, symbol and floor that was met."""

    def __init__(self) -> None:
        """Nothing was met."""
        self._lines = RecordTable(LINE_DTYPE)
        self._symbols = RecordTable(SYMBOL_DTYPE)
        self._floors = RecordTable(FLOOR_DTYPE)
        self._keys = KeyTable()
        self._symbol_numbers: dict[int, int] = {}
        self._floor_numbers: dict[int, int] = {}
        self._grouped: tuple[Indices, Indices] | None = None

    @property
    def all(self) -> Records:
        """The lines, valid until another is met."""
        return self._lines.all

    @property
    def symbols(self) -> Records:
        """The symbols, valid until another is met."""
        return self._symbols.all

    @property
    def floors(self) -> Records:
        """The floors, valid until another is met."""
        return self._floors.all

    def __len__(self) -> int:
        """How many lines there are."""
        return len(self._lines)

    def numbers(self, symbols: Words, floors: Words) -> Indices:
        """The line of each event; new ones are made. -1 where there is no symbol, or no room for another line."""
        found = self._keys.find(symbols, floors)
        missing = np.flatnonzero((found < 0) & (symbols != 0))
        if len(missing):
            pairs = np.empty(len(missing), _PAIR)
            pairs["symbol"], pairs["floor"] = symbols[missing], floors[missing]
            _, places = np.unique(pairs, return_index=True)
            self._add(pairs[np.sort(places)[: LINES_MAX - len(self)]])
            found[missing] = self._keys.find(symbols[missing], floors[missing])
        return found

    def symbol_number(self, word: int) -> int:
        """The number of a symbol; -1 if it was not met."""
        return self._symbol_numbers.get(word, -1)

    def floor_number(self, word: int) -> int:
        """The number of a floor, which is made if it is new."""
        number = self._floor_numbers.get(word)
        if number is None:
            number = self._floor_numbers[word] = len(self._floors)
            self._floors.extend(1)["floor"] = word
        return number

    def knows_floors(self, words: Iterable[int]) -> bool:
        """Whether all of these were met."""
        return self._floor_numbers.keys() >= set(words)

    def of_symbols(self, symbols: Indices) -> tuple[Indices, Indices]:
        """The lines of some symbols one after the other, each symbol's in their ranks, and where each symbol starts."""
        order, starts = self._groups()
        counts = self.symbols["lines"][symbols].astype(np.int64)
        ends = np.cumsum(counts)
        begins = ends - counts
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts[symbols] - begins, counts)
        return order[places], begins

    def restore(self, lines: Records, symbols: Records, floors: Records) -> None:
        """Take everything over from a snapshot."""
        self._lines.replace(lines)
        self._symbols.replace(symbols)
        self._floors.replace(floors)
        self._symbol_numbers = {word: number for number, word in enumerate(symbols["symbol"].tolist())}
        self._floor_numbers = {word: number for number, word in enumerate(floors["floor"].tolist())}
        self._keys = KeyTable()
        self._keys.put(lines["symbol"].astype(np.uint64), lines["floor"].astype(np.uint64), np.arange(len(lines)))
        self._grouped = None

    def _add(self, pairs: npt.NDArray[np.void]) -> None:
        first = len(self._lines)
        rows = self._lines.extend(len(pairs))
        rows["symbol"], rows["floor"] = pairs["symbol"], pairs["floor"]
        rows["first_row"] = rows["last_row"] = NO_ROW
        rows["high"], rows["low"] = NO_BID, NO_ASK
        numbers = [self._symbol_rank(word) for word in pairs["symbol"].tolist()]
        rows["symbol_number"] = [number for number, _ in numbers]
        rows["rank"] = [rank for _, rank in numbers]
        rows["floor_number"] = [self.floor_number(word) for word in pairs["floor"].tolist()]
        self._keys.put(pairs["symbol"].copy(), pairs["floor"].copy(), np.arange(first, first + len(pairs)))
        self._grouped = None

    def _symbol_rank(self, word: int) -> tuple[int, int]:
        """The number of a symbol, and which of its lines the new one is."""
        number = self._symbol_numbers.get(word)
        if number is None:
            number = self._symbol_numbers[word] = len(self._symbols)
            self._symbols.extend(1)["symbol"] = word
        rank = int(self.symbols["lines"][number])
        self.symbols["lines"][number] = rank + 1
        return number, rank

    def _groups(self) -> tuple[Indices, Indices]:
        """All lines by symbol, and where each symbol starts."""
        if self._grouped is None:
            order = np.argsort(self.all["symbol_number"], kind="stable")
            counts = self.symbols["lines"].astype(np.int64)
            self._grouped = order, np.cumsum(counts) - counts
        return self._grouped

    def of_floors(self, words: Iterable[int]) -> npt.NDArray[np.bool_]:
        """Which lines are of these floors."""
        return np.isin(self.all["floor"], np.array(list(words), np.uint32))
