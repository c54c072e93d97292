"""Sealed narrow stripes: who paid for a stripe and a period reads that, and nothing else."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.security.keys import SecretKey
from isocast.security.line_seals import BoughtKeys, RegionKeys
from isocast.security.stripe_seals import STRIPE_SEAL_BYTES, StripeOpener, StripeSealer
from isocast.security.subscriptions import service_key, stripe_service
from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, UnpaidError
from isocast.terms.instants import SECOND

REGION = SecretKey(bytes(range(32)))
MARKET = b"m" * 32
P = 60 * SECOND
PERIOD = 1_000
RAW = b"a packet of MoldUDP64"


def sealer(sender: int = 7) -> StripeSealer:
    return StripeSealer(RegionKeys(REGION, P), MARKET, sender, b"draw", 1)


def opener(*periods: int, stripe: int = 3) -> StripeOpener:
    keys = [service_key(REGION, stripe_service(stripe), period, P) for period in periods]
    return StripeOpener(BoughtKeys(keys), MARKET, P)


def test_a_package_opens_exactly_its_stripe_and_periods() -> None:
    own, bought = sealer(), opener(PERIOD, PERIOD + 1)
    for instant in (PERIOD * P, (PERIOD + 2) * P - 1):
        raw = own.seal(3, instant, RAW)
        assert len(raw) == len(RAW) + STRIPE_SEAL_BYTES
        assert RAW not in raw
        assert bought.open(raw)[:2] == (7, 3)
        assert bought.open(raw).raw == RAW
    for stripe, instant in ((4, PERIOD * P), (3, (PERIOD + 2) * P), (3, PERIOD * P - 1)):
        with pytest.raises(UnpaidError):
            bought.open(own.seal(stripe, instant, RAW))


def test_no_byte_of_a_sealed_packet_can_be_changed() -> None:
    raw, bought = sealer().seal(3, PERIOD * P, RAW), opener(PERIOD)
    for place in range(len(raw)):
        with pytest.raises((ForgeryError, UnpaidError, RemoteProtocolError)):
            bought.open(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])


def test_the_same_packet_is_never_sealed_alike_and_a_sealer_is_not_copied() -> None:
    own = sealer()
    assert own.seal(3, PERIOD * P, RAW) != own.seal(3, PERIOD * P, RAW)
    with pytest.raises(TypeError):
        pickle.dumps(own)
    with pytest.raises(LocalProtocolError):
        StripeSealer(RegionKeys(REGION, P), MARKET, 7, b"long drawn", 1)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda raw: b"ICSS" + raw))
def test_rubbish_is_refused(raw: bytes) -> None:
    with pytest.raises((RemoteProtocolError, UnpaidError, ForgeryError)):
        opener(PERIOD).open(raw)
