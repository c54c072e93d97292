"""What a customer follows: the stripes of its symbols, or as many as its line can take (§4.4, §7.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from isocast.striping.plan import EdgeStripe, StripePlan
from isocast.striping.rates import rate_text
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import SYMBOL_BYTES, Symbol

__all__ = ["Choice", "choose_stripes", "stripes_for"]

_NAMED = 5
"""Stripes that a message lists."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The stripes of one customer, in the order of their numbers."""

    stripes: tuple[EdgeStripe, ...]
    line_rate: int | None = None
    """Bits a second of the customer's line, if it said."""
    unnamed: tuple[str, ...] = ()
    """Symbols that were asked for and that no stripe names: they would come on a spare stripe."""

    @property
    def rate(self) -> int:
        """Bits a second of all stripes together."""
        return sum(stripe.rate for stripe in self.stripes)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The stripes by number."""
        return tuple(stripe.number for stripe in self.stripes)

    @property
    def symbols(self) -> int:
        """How many symbols they carry."""
        return sum(len(stripe.symbols) for stripe in self.stripes)


def stripes_for(plan: StripePlan, symbols: Iterable[str], core: int | None = None) -> Choice:
    """The stripes on which some symbols travel. ConfigurationError for what is no symbol."""
    names = []
    for symbol in symbols:
        try:
            names.append(Symbol(symbol))
        except LocalProtocolError as reason:
            raise ConfigurationError("customer", "symbols", str(reason)) from None
    numbers = plan.stripes_of(np.array(names, f"S{SYMBOL_BYTES}"), core).tolist()
    chosen = tuple(plan.by_number[number] for number in sorted(set(numbers)))
    unnamed = [str(name) for name, number in zip(names, numbers, strict=True) if plan.by_number[number].spare]
    return Choice(chosen, None, tuple(unnamed))


def choose_stripes(
    plan: StripePlan, line_rate: int, symbols: Iterable[str] = (), preferred: Sequence[int] = ()
) -> Choice:
    """Stripes that fit a line: those of the symbols, all of them; without symbols, the preferred, then the others.

    ConfigurationError says what does not fit, and what would.
    """
    wanted = stripes_for(plan, symbols)
    if wanted.stripes:
        if wanted.rate > line_rate:
            raise ConfigurationError("customer", "rate", _too_much(wanted, line_rate))
        return Choice(wanted.stripes, line_rate, wanted.unnamed)
    for number in preferred:
        if number not in plan.by_number:
            raise ConfigurationError("customer", "stripes", f"the plan has no stripe {number}")
    # Stripes that name symbols come before spare ones, which are mostly silent.
    others = sorted([s for s in plan.stripes if s.number not in preferred], key=lambda s: (s.spare, s.number))
    chosen, left = [], line_rate
    for stripe in [*[plan.by_number[number] for number in dict.fromkeys(preferred)], *others]:
        if stripe.rate <= left:
            chosen.append(stripe)
            left -= stripe.rate
    if not chosen:
        least = min(plan.stripes, key=lambda stripe: stripe.rate)
        rule = (
            f"no stripe fits {rate_text(line_rate)}: the narrowest, {least.name}, has {rate_text(least.rate)}; "
            "plan narrower stripes (isocast plan stripes --rate)"
        )
        raise ConfigurationError("customer", "rate", rule)
    return Choice(tuple(sorted(chosen, key=lambda stripe: stripe.number)), line_rate)


def _too_much(wanted: Choice, line_rate: int) -> str:
    named = ", ".join(f"{stripe.name} {rate_text(stripe.rate)}" for stripe in wanted.stripes[:_NAMED])
    more = len(wanted.stripes) - _NAMED
    listed = named + (f" and {more} more" if more > 0 else "")
    fit, left = 0, line_rate
    for rate in sorted(stripe.rate for stripe in wanted.stripes):
        if rate > left:
            break
        fit, left = fit + 1, left - rate
    return (
        f"the symbols are on {len(wanted.stripes)} stripes of {rate_text(wanted.rate)} together ({listed}); "
        f"a line of {rate_text(line_rate)} takes {fit or 'none'} of them: choose fewer symbols"
    )
