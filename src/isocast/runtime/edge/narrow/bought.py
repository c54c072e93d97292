"""What a customer of narrow stripes that are sold has bought: which it can read, until when, and the renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from isocast.runtime.edge.narrow.choosing import Chosen
from isocast.runtime.edge.narrow.stripe_keys import period_instant, stripe_opener
from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.roster_files import load_roster
from isocast.runtime.market.subscription import Subscription, subscription_of
from isocast.security.keys import SecretKey
from isocast.security.stripe_seals import StripeOpener, stripe_request_key
from isocast.security.subscriptions import period_of, stripe_service
from isocast.terms.errors import ConfigurationError, IsocastError
from isocast.terms.instants import SECOND, second_text

__all__ = ["BoughtStripes", "bought_stripes"]

_LOOK_NS = SECOND
"""Between two looks at the package."""
_OVER_NS = 2 * SECOND
"""Of two clocks: what was paid for is over when it is over for both."""


class BoughtStripes:
    """One customer's package, as far as it is of narrow stripes."""

    def __init__(self, market: Market, subscription: Subscription, told: Callable[[str], None]) -> None:
        """`told` when something is over, and when a renewal cannot be read."""
        self.opener: StripeOpener = stripe_opener(market, subscription.keys, load_roster(market).market)
        self._market = market
        self._subscription = subscription
        self._told = told
        self._looked_at = 0
        self._over: set[int] = set()
        """Stripes of which it was said that they are paid for no longer."""

    def readable(self, chosen: Chosen) -> Chosen:
        """The stripes of a choice that were bought; ConfigurationError if none was."""
        keys = self._subscription.keys
        missing = [stripe for stripe in chosen.stripes if not keys.has(stripe_service(stripe.number))]
        if not missing:
            return chosen
        names = ", ".join(stripe_service(stripe.number) for stripe in missing)
        if len(missing) == len(chosen.stripes):
            rule = f"has none of {names}: buy one of them, or choose stripes that were bought"
            raise ConfigurationError(str(self._subscription.path), "package", rule)
        self._told(f"{self._subscription.path} has no {names}: only the others are heard")
        return replace(chosen, stripes=tuple([stripe for stripe in chosen.stripes if stripe not in missing]))

    def request_key(self, stripe: int, now: int) -> SecretKey | None:
        """What a request for repairs is tagged with; None if nothing is paid for now."""
        period = period_of(period_instant(self._market, now), self.opener.length_ns)
        return stripe_request_key(self._subscription.keys, stripe, period)

    async def watch(self, chosen: Chosen, now: int) -> bool:
        """Read a package that was renewed, and say what is over; whether there was a new one."""
        if abs(now - self._looked_at) < _LOOK_NS:
            return False
        self._looked_at = now
        renewed = self._subscription.is_replaced and await self._renew()
        self._tell(chosen, now)
        return renewed

    async def _renew(self) -> bool:
        try:
            await asyncio.to_thread(self._subscription.refresh)
        except (IsocastError, OSError) as reason:
            self._told(f"{self._subscription.path}: {reason}; what was bought before still counts")
            return False
        return True

    def _tell(self, chosen: Chosen, now: int) -> None:
        keys, instant = self._subscription.keys, period_instant(self._market, now - _OVER_NS)
        newest = {stripe.number: keys.newest(stripe_service(stripe.number)) for stripe in chosen.stripes}
        over = {number: last.ends for number, last in newest.items() if last is not None and last.ends <= instant}
        for number in sorted(over.keys() - self._over):
            until = second_text(over[number])
            self._told(
                f"stripe {number} was paid for until {until}: isocast subscribe renews it; nothing later is read"
            )
        self._over = set(over)


def bought_stripes(
    market: Market, seat: NodePlan, subscription: Subscription | None, told: Callable[[str], None]
) -> BoughtStripes | None:
    """By the package that is given, or the seat's own in the keys directory; None where stripes are in the clear."""
    if not market.seals_stripes:
        return None
    return BoughtStripes(market, subscription or subscription_of(market, seat), told)
