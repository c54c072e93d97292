"""A plan adjusted to a new history: symbols stay where they are unless a stripe has become too busy (§4.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from isocast.striping.history import History
from isocast.striping.kinship import Kinship
from isocast.striping.loads import Limits, Load, limits_for
from isocast.striping.making import DrawnStripe, MadePlan, MakingSettings, Move, Tell, draw_stripes, name_stripes
from isocast.striping.plan import EdgeStripe, StripePlan

__all__ = ["adjust_plan"]

_TRIES = 4
"""Stripes that a symbol without a place is offered to before it gets a new one."""


def adjust_plan(
    before: StripePlan,
    history: History,
    settings: MakingSettings,
    sectors: Mapping[str, str] | None = None,
    tell: Tell = lambda _: None,
) -> MadePlan:
    """The next version of a plan, with few moves.

    A stripe keeps its number, name and rate. It gives symbols away when its peak leaves less than half the head-room,
    and takes new ones while all of the head-room is left. A symbol never leaves its core stripe: its events would lose
    their order.
    """
    return _Adjustment(before, history, settings, sectors or {}).made(tell)


class _Adjustment:
    """One run."""

    def __init__(
        self, before: StripePlan, history: History, settings: MakingSettings, sectors: Mapping[str, str]
    ) -> None:
        self._before, self._history, self._settings, self._sectors = before, history, settings, sectors
        self._names = [name.decode("ascii") for name in history.names.tolist()]
        self._place_of = {name: place for place, name in enumerate(self._names)}
        self._load = Load(history)
        self._kinship = Kinship(history)
        self._symbols: dict[int, set[str]] = {stripe.number: set(stripe.symbols) for stripe in before.stripes}
        self._conflated: set[int] = set()
        self._core_of = {symbol: stripe.core for stripe in before.stripes for symbol in stripe.symbols}

    def made(self, tell: Tell) -> MadePlan:
        before = self._before
        home = {symbol: stripe.number for stripe in before.stripes for symbol in stripe.symbols}
        homeless = [place for name, place in self._place_of.items() if name not in home]
        for stripe in before.stripes:
            if not stripe.spare:
                homeless += self._evict(stripe)
        tell(len(self._names) - len(homeless))
        homeless = self._settle(sorted(homeless))
        new = self._new_stripes(homeless, tell)
        kept = [
            replace(stripe, symbols=tuple(self._symbols[stripe.number]), conflated=stripe.number in self._conflated)
            for stripe in before.stripes
        ]
        plan = StripePlan(before.version + 1, (*kept, *new), self._history.token_period_ns)
        moves = [
            Move(symbol, home.get(symbol), stripe.number)
            for stripe in plan.stripes
            for symbol in stripe.symbols
            if home.get(symbol) != stripe.number
        ]
        oversized = [symbol for stripe in plan.stripes if stripe.conflated for symbol in stripe.symbols]
        return MadePlan(plan, tuple(sorted(moves, key=lambda move: move.symbol)), tuple(oversized))

    def _limits(self, rate: int, headroom: float) -> Limits:
        settings = self._settings
        return limits_for(rate, self._history.token_period_ns, headroom, settings.patience, settings.sizes)

    def _fill(self, stripe: EdgeStripe) -> list[int]:
        """Load what a stripe carries of the history."""
        self._load.clear()
        names = sorted(self._symbols[stripe.number])
        places = [self._place_of[name] for name in names if name in self._place_of]
        for place in places:
            self._load.add(place)
        return places

    def _evict(self, stripe: EdgeStripe) -> list[int]:
        """Symbols that must leave: at the worst moment the busiest first, so that few move."""
        places = self._fill(stripe)
        limits = self._limits(stripe.rate, self._settings.headroom / 2)
        leaving = []
        while len(places) > 1 and not self._load.fits(self._own_limits(places, limits)):
            window = self._load.worst(limits)
            shares = [self._load.share_in(place, window) for place in places]
            place = places.pop(shares.index(max(shares)))
            self._load.remove(place)
            self._symbols[stripe.number].discard(self._names[place])
            leaving.append(place)
        if len(places) == 1 and not self._load.fits(limits.raised(limits.whole)):
            self._conflated.add(stripe.number)
        return leaving

    def _own_limits(self, places: list[int], limits: Limits) -> Limits:
        """A symbol that alone needs the head-room is no reason to move."""
        window = int(self._load.prices.argmax())
        return limits.raised(max(self._load.share_in(place, window) for place in places))

    def _settle(self, homeless: list[int]) -> list[int]:
        """Offer each symbol to the stripes whose symbols are nearest to it; what nobody can take is returned."""
        stripes = [stripe for stripe in self._before.stripes if not stripe.spare]
        stripes = [stripe for stripe in stripes if stripe.number not in self._conflated]
        if not homeless or not stripes:
            return homeless
        wanted = np.array(homeless)
        scores = np.full((len(stripes), len(homeless)), -1.0, np.float32)
        for row, stripe in enumerate(stripes):
            members = [self._place_of[name] for name in stripe.symbols if name in self._place_of]
            if members:
                scores[row] = self._kinship.to(np.array(members), wanted)
                sectors = {self._sectors.get(name) for name in stripe.symbols}
                # A sector that is shared outweighs any correlation.
                scores[row] += [2.0 * (self._sectors.get(self._names[place], "") in sectors) for place in homeless]
        ranked = np.argsort(-scores, axis=0, kind="stable")[:_TRIES]
        placed: set[int] = set()
        for row, stripe in enumerate(stripes):
            offered = [homeless[column] for column in np.flatnonzero((ranked == row).any(axis=0)).tolist()]
            offered = [place for place in offered if place not in placed]
            # A symbol does not go back to where there was no room for it, nor to another core stripe.
            offered = [place for place in offered if self._names[place] not in stripe.symbols]
            offered = [place for place in offered if self._core_of.get(self._names[place], stripe.core) == stripe.core]
            if offered:
                self._fill(stripe)
                limits = self._limits(stripe.rate, self._settings.headroom)
                for place in offered:
                    if self._load.add_if_fits(place, limits):
                        self._symbols[stripe.number].add(self._names[place])
                        placed.add(place)
        return [place for place in homeless if place not in placed]

    def _new_stripes(self, homeless: list[int], tell: Tell) -> list[EdgeStripe]:
        """Stripes for what found no place; strangers come to the core stripe that has least."""
        before, history, settings = self._before, self._history, self._settings
        sector_of = [self._sectors.get(name, "") for name in self._names]
        limits = self._limits(settings.rate, settings.headroom)
        weights = {core: sum(len(s.symbols) for s in before.of_core(core)) for core in before.cores}
        least = min(weights, key=lambda core: (weights[core], core))
        drawn: list[DrawnStripe] = []
        for core in before.cores:
            own = [place for place in homeless if self._core_of.get(self._names[place], least) == core]
            if own:
                found = draw_stripes(history, np.array(own), sector_of, limits, 1, self._kinship, lambda _: None)
                for stripe in found:
                    stripe.core = core
                drawn += found
        tell(len(self._names))
        names = name_stripes(history, drawn, {stripe.name for stripe in before.stripes})
        first = max(stripe.number for stripe in before.stripes) + 1
        return [
            EdgeStripe(
                number,
                stripe.core,
                name,
                settings.rate,
                tuple(self._names[place] for place in stripe.symbols),
                conflated=stripe.oversized,
            )
            for number, (stripe, name) in enumerate(zip(drawn, names, strict=True), first)
        ]
