"""Packages for tests: a market with its office, a buyer, and guesses that cost next to nothing."""

from isocast.security.identities import Identity, market_of
from isocast.security.keys import SecretKey
from isocast.security.packages import Mask, Stretching, mask_of, seal_package
from isocast.security.subscriptions import ServiceKey, service_key

__all__ = [
    "BUYER",
    "CHEAP",
    "DAY",
    "ISSUED",
    "MARKET",
    "OFFICE",
    "REGION",
    "ROOT",
    "SALT",
    "SECRET",
    "cheap_mask",
    "keys_of",
    "package",
]

CHEAP = Stretching(memory_kib=8, passes=1, lanes=1)
"""What argon2id takes at least."""
DAY = 86_400 * 10**9
ROOT = Identity(bytes(range(32)))
OFFICE = Identity(bytes(range(1, 33)))
MARKET = market_of("demo", ROOT.public)
REGION = SecretKey(bytes(range(2, 34)))
SECRET = bytes(range(16))
SALT = bytes(range(100, 116))
BUYER = "Bank of Öland"
ISSUED = 20_000 * DAY + 7


def keys_of(*services: str, first: int = 20_000, periods: int = 2) -> tuple[ServiceKey, ...]:
    return tuple(
        service_key(REGION, service, period, DAY)
        for period in range(first, first + periods)
        for service in sorted(services)
    )


def cheap_mask(secret: bytes = SECRET) -> Mask:
    return mask_of(secret, SALT, CHEAP)


def package(
    keys: tuple[ServiceKey, ...] = (), buyer: str = BUYER, secret: bytes = SECRET, issued: int = ISSUED, number: int = 5
) -> bytes:
    return seal_package(
        OFFICE,
        cheap_mask(secret),
        market=MARKET,
        market_name="demo",
        buyer=buyer,
        keys=keys or keys_of("base", "repair"),
        number=number,
        issued=issued,
        nonce=bytes(12),
    )
