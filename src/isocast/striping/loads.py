"""What a set of symbols weighs at its peak: sliding windows over a history, added to symbol by symbol."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isocast.striping.history import WINDOW, History
from isocast.striping.rates import budget_bytes
from isocast.striping.sizes import PACKET_BYTES, PacketSizes
from isocast.terms.errors import ConfigurationError

__all__ = ["Load", "StripeLimits", "limits_for"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StripeLimits:
    """Bytes of messages that a stripe may have in a token period."""

    whole: int
    """What the rate allows, packets' headers and a heartbeat taken off."""
    prices: int
    """The same with head-room: what may not wait."""
    everything: int
    """With announcements, which may take some token periods more."""

    def raised(self, prices: int) -> StripeLimits:
        """The same for a stripe that has used its head-room already, but not more than the rate."""
        return StripeLimits(self.whole, min(max(self.prices, prices), self.whole), self.everything)


def limits_for(rate: int, token_period_ns: int, headroom: float, patience: int, sizes: PacketSizes) -> StripeLimits:
    """The limits of a bit-rate; ConfigurationError if it is less than one packet in a token period."""
    budget = budget_bytes(rate, token_period_ns) - PACKET_BYTES
    whole = sizes.body_room(budget)
    if whole <= 0:
        least = sizes.least_budget + PACKET_BYTES
        rule = f"{rate} b/s are {budget + PACKET_BYTES} bytes in a token period; one packet needs {least}"
        raise ConfigurationError("command line", "--rate", rule)
    # One period less than patience allows: prices go on while announcements are worked off.
    return StripeLimits(whole, int(whole / (1 + headroom)), whole * max(patience, 1))


class Load:
    """The windows of one stripe, as its symbols come and go."""

    def __init__(self, history: History) -> None:
        """Only what concerns whole floors."""
        self._history = history
        self._floor_wide = np.zeros(history.length, np.int64)
        reach = (history.floor_wide_slices[:, None] + np.arange(WINDOW)).ravel()
        np.add.at(self._floor_wide, reach, np.repeat(history.floor_wide, WINDOW))
        self.prices: Integers = np.zeros(history.length, np.int64)
        self.everything: Integers = self._floor_wide.copy()

    def clear(self) -> None:
        """Back to the beginning."""
        self.prices[:] = 0
        self.everything[:] = self._floor_wide

    def windows(self, symbol: int) -> tuple[Integers, Integers, Integers]:
        """Of one symbol: where its windows are, what is in them that may not wait, and everything."""
        rows = self._history.rows_of(symbol)
        slices = self._history.slices[rows]
        # Windows gain what enters and lose what leaves: two changes for each row, added up in order.
        edges = np.concatenate([slices, slices + WINDOW])
        order = np.argsort(edges, kind="stable")
        edges = edges[order]
        own, whole = self._history.prices[rows], self._history.everything[rows]
        prices = np.cumsum(np.concatenate([own, -own])[order])
        everything = np.cumsum(np.concatenate([whole, -whole])[order])
        lengths = np.diff(edges)
        lengths[everything[:-1] == 0] = 0
        where = np.repeat(edges[:-1] - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))
        return where, np.repeat(prices[:-1], lengths), np.repeat(everything[:-1], lengths)

    def peak_with(self, symbol: int) -> int:
        """What the busiest window of a symbol would hold that may not wait."""
        where, prices, _ = self.windows(symbol)
        return int((prices + self.prices[where]).max())

    def add_if_fits(self, symbol: int, limits: StripeLimits) -> bool:
        """Add a symbol unless a window would exceed a limit."""
        where, prices, everything = self.windows(symbol)
        prices += self.prices[where]
        everything += self.everything[where]
        if prices.max() > limits.prices or everything.max() > limits.everything:
            return False
        self.prices[where], self.everything[where] = prices, everything
        return True

    def add_all_if_fit(self, symbols: list[int], limits: StripeLimits) -> bool:
        """Add some symbols, or none of them."""
        for place, symbol in enumerate(symbols):
            if not self.add_if_fits(symbol, limits):
                for added in symbols[:place]:
                    self.remove(added)
                return False
        return True

    def add(self, symbol: int) -> None:
        """Add a symbol, whatever comes of it."""
        where, prices, everything = self.windows(symbol)
        self.prices[where] += prices
        self.everything[where] += everything

    def remove(self, symbol: int) -> None:
        """Take a symbol away."""
        where, prices, everything = self.windows(symbol)
        self.prices[where] -= prices
        self.everything[where] -= everything

    def fits(self, limits: StripeLimits) -> bool:
        """Whether no window exceeds a limit."""
        return bool(self.prices.max() <= limits.prices and self.everything.max() <= limits.everything)

    def worst(self, limits: StripeLimits) -> int:
        """The window that is nearest to its limit, or furthest beyond."""
        by_prices, by_all = int(self.prices.argmax()), int(self.everything.argmax())
        share_all = int(self.everything[by_all]) * limits.prices
        return by_prices if int(self.prices[by_prices]) * limits.everything >= share_all else by_all

    def share_in(self, symbol: int, window: int) -> int:
        """Bytes of a symbol in one window."""
        rows = self._history.rows_of(symbol)
        slices = self._history.slices[rows]
        start, stop = np.searchsorted(slices, [window - WINDOW + 1, window + 1]).tolist()
        return int(self._history.everything[rows][start:stop].sum())
