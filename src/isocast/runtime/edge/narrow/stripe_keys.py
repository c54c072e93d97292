"""What narrow stripes are signed, checked, sealed and opened with: from the market's file, its keys and its roster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from secrets import token_bytes
from time import time_ns

from isocast.runtime.market.key_files import MarketKeys, load_keys
from isocast.runtime.market.model import Market, NodePlan, SocketFilter
from isocast.runtime.market.roster_files import KeysCounting, NewsReader, load_book
from isocast.runtime.net.filters import Filter, stripe_filter
from isocast.security.line_seals import PeriodKeys, RegionKeys
from isocast.security.roster import RosterBook
from isocast.security.signing import IdentitySigner, RosterVerifier
from isocast.security.stripe_seals import STRIPE_SEAL_BYTES, STRIPE_SEAL_MAGIC, StripeOpener, StripeSealer
from isocast.security.subscriptions import period_of
from isocast.striping.plan import EdgeStripe
from isocast.striping.proving import StripeProofCheck, StripeProver
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND

__all__ = [
    "SenderKeys",
    "cores_of",
    "period_instant",
    "proof_check",
    "proof_ns",
    "seal_bytes",
    "stripe_guard",
    "stripe_opener",
]

_SALT_BYTES = 16
_DRAWN_BYTES = 4
_LOOK_NS = 5 * SECOND
"""Between two looks for a new roster."""
_WAIT_PROOFS = 4
"""Proofs that may pass before a packet without one is given up."""


def proof_ns(market: Market) -> int:
    """Between two proofs of a stripe; 0 where nobody signs."""
    edge = market.edge
    if edge is None or not market.security.signatures:
        return 0
    return max(edge.prove_every_ns, market.timing.token_period_ns)


def seal_bytes(market: Market) -> int:
    """Around each datagram of a stripe; 0 where stripes are in the clear."""
    return STRIPE_SEAL_BYTES if market.seals_stripes else 0


def period_instant(market: Market, instant: int) -> int:
    """The T_t that decides the period of what a stripe sends at an instant."""
    delay_ns = 0 if market.edge is None else market.edge.delay_ns
    return max(instant - market.timing.release_delay_ns - delay_ns, 0)


def stripe_guard(market: Market, senders: Iterable[str]) -> Filter | None:
    """What the kernel lets through to a socket on which these addresses send stripes."""
    magic = STRIPE_SEAL_MAGIC if market.seals_stripes else b""
    match market.network.filter:
        case SocketFilter.ADDRESSES:
            return stripe_filter(senders, magic)
        case SocketFilter.FRAMES:
            return stripe_filter((), magic)
        case SocketFilter.OFF:
            return None


def cores_of(stripes: Iterable[EdgeStripe]) -> Mapping[int, int]:
    """Of each narrow stripe, the stripe of the core that it is cut from."""
    return {stripe.number: stripe.core for stripe in stripes}


class SenderKeys:
    """Of a receiver's edge, or a retransmit server: it signs and seals as its node, under the newest roster."""

    def __init__(self, market: Market, plan: NodePlan, keys: MarketKeys | None = None) -> None:
        """Reads the node's keys, if it needs any and is not given them."""
        self._market, self._plan = market, plan
        needs = market.security.signatures or market.seals_stripes
        found = (keys or load_keys(market, plan)) if needs else None
        self._keys = found
        self._looked_at = 0
        self.prover = self._prover()
        self.sealer = self._sealer()

    @property
    def book(self) -> RosterBook | None:
        """Who is who; None where nobody signs."""
        return None if self._keys is None else self._keys.book

    @property
    def region(self) -> RegionKeys | None:
        """Every key of every stripe; None where stripes are in the clear."""
        if self._keys is None or self._keys.region is None or not self._market.seals_stripes:
            return None
        return RegionKeys(self._keys.region, self._market.subscriptions.period_ns)

    def _prover(self) -> StripeProver | None:
        signer = self._signer()
        if signer is None or self.book is None:
            return None
        plan = self._plan
        drawn = token_bytes(_SALT_BYTES)
        return StripeProver(signer, plan.node, self.book.newest.market, plan.stripe, drawn, self.period_at)

    def period_at(self, due: int) -> int:
        """The period of what is due at an instant; always the same where nothing is sold."""
        if not self._market.seals_stripes:
            return 0
        return period_of(period_instant(self._market, due), self._market.subscriptions.period_ns)

    def _signer(self) -> IdentitySigner | None:
        keys = self._keys
        if keys is None or keys.identity is None or keys.book is None:
            return None
        return IdentitySigner(keys.identity, keys.book.newest.market, keys.book, keys.followers)

    def _sealer(self) -> StripeSealer | None:
        region, book = self.region, self.book
        if region is None or book is None:
            return None
        return StripeSealer(region, book.newest.market, self._plan.node, token_bytes(_DRAWN_BYTES), time_ns())

    def refresh(self, now: int) -> str:
        """Now and then: sign with the key that the newest roster lists; returns why that cannot be."""
        if self.prover is None or abs(now - self._looked_at) < _LOOK_NS:
            return ""
        self._looked_at = now
        try:
            book = load_book(self._market)
            if self.book is None or book.newest.serial <= self.book.newest.serial:
                return ""
            self._keys = load_keys(self._market, self._plan)
        except (ConfigurationError, OSError) as reason:
            return str(reason)
        signer = self._signer()
        if signer is not None:
            self.prover.signer = signer
        return ""


def proof_check(
    market: Market, stripes: Iterable[EdgeStripe], book: RosterBook | None = None
) -> StripeProofCheck | None:
    """By what a customer, or a retransmit server, judges stripes; None where nobody signs."""
    if not market.security.signatures:
        return None
    known = book or load_book(market, time_ns())
    reader = NewsReader(market, known, KeysCounting.TWO_NEWEST, looks_unasked=True)
    verifier = RosterVerifier(known.newest.market, reader)
    return StripeProofCheck(known.newest.market, verifier, cores_of(stripes), _WAIT_PROOFS * proof_ns(market))


def stripe_opener(market: Market, keys: PeriodKeys, roster_market: bytes) -> StripeOpener:
    """What opens the stripes that were paid for; `roster_market` as signatures name the market."""
    return StripeOpener(keys, roster_market, market.subscriptions.period_ns)
