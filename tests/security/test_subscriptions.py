"""Keys of what is sold: one for each service and period, and one for each sender of it."""

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.security.keys import Purpose, SecretKey, derive
from isocast.security.subscriptions import (
    BASE,
    DAY_NS,
    HISTORY,
    MAX_EDGE_STRIPE,
    REPAIR,
    check_service,
    line_key,
    period_of,
    service_key,
    stripe_of,
    stripe_service,
)
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import other_id

RAW = bytes(range(32))
REGION = SecretKey(RAW)
MARKET = bytes(reversed(range(32)))
NOON = 20_000 * DAY_NS + DAY_NS // 2


def test_a_period_covers_its_first_instant_and_not_its_last() -> None:
    assert period_of(NOON, DAY_NS) == 20_000
    assert period_of(20_000 * DAY_NS, DAY_NS) == 20_000
    assert period_of(20_000 * DAY_NS - 1, DAY_NS) == 19_999
    key = service_key(REGION, BASE, 20_000, DAY_NS)
    assert (key.begins, key.ends) == (20_000 * DAY_NS, 20_001 * DAY_NS)


def test_known_answers() -> None:
    """Whoever sells and whoever seals derive the same, for ever: a change here is another version."""
    sold = service_key(REGION, "stripe:7", 20_000, DAY_NS)
    of_period = derive(RAW, Purpose.PERIOD, 20_000, DAY_NS)
    assert sold.key == blake2b(b"stripe:7", digest_size=32, key=of_period, person=b"isocast service").digest()
    named = MARKET + (7).to_bytes(4, "big") + other_id(1).to_bytes(8, "big") + b"stripe:7"
    sealed = line_key(sold.key, MARKET, "stripe:7", 7, other_id(1))
    assert sealed == blake2b(named, digest_size=32, key=sold.key, person=b"isocast line").digest()
    assert sold.key.hex() == "accdfe3553f1f5ea9e052d7c35e52129c55eb85f5fd04c631294cd6f9e8b71d4"
    assert sealed.hex() == "3695477447e075d246848762f579beed7e60a71e5f9127a60167d335be2457ae"


SERVICES = st.sampled_from([BASE, REPAIR, HISTORY]) | st.integers(0, MAX_EDGE_STRIPE).map(stripe_service)
USES = st.tuples(SERVICES, st.integers(0, 2**16), st.integers(1, DAY_NS))


@given(st.lists(USES, unique=True, min_size=2, max_size=20))
def test_no_two_services_periods_or_lengths_share_a_key(uses: list[tuple[str, int, int]]) -> None:
    assert len({service_key(REGION, *use).key for use in uses}) == len(uses)


LINES = st.tuples(
    st.binary(min_size=32, max_size=32), SERVICES, st.integers(0, MAX_EDGE_STRIPE), st.integers(0, 2**64 - 1)
)


@given(st.lists(LINES, unique=True, min_size=2, max_size=20))
def test_no_two_markets_services_stripes_or_senders_share_a_key(lines: list[tuple[bytes, str, int, int]]) -> None:
    assert len({line_key(RAW, *line) for line in lines}) == len(lines)


@pytest.mark.parametrize(
    "name", ["", "Base", "stripe", "stripe:", "stripe:07", "stripe:-1", "stripe:4294967296", "all"]
)
def test_another_service_does_not_exist(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="no service: base, repair, history or stripe:N"):
        check_service(name)


def test_a_stripe_is_found_in_its_service() -> None:
    assert [stripe_of(name) for name in (BASE, REPAIR, HISTORY, "stripe:0", "stripe:12")] == [None, None, None, 0, 12]


def test_a_key_is_never_shown() -> None:
    sold = service_key(REGION, BASE, 20_000, DAY_NS)
    assert sold.key.hex() not in repr(sold)
    assert repr(sold.key) not in f"{sold}"
    assert "base, period 20000" in repr(sold)


def test_what_cannot_be_is_refused() -> None:
    for period, length in ((-1, DAY_NS), (1, 0), (2**40, DAY_NS)):
        with pytest.raises(LocalProtocolError, match="there is no period"):
            service_key(REGION, BASE, period, length)
    with pytest.raises(LocalProtocolError, match="no period of"):
        period_of(-1, DAY_NS)
    with pytest.raises(LocalProtocolError, match="both have 32"):
        line_key(RAW, b"short", BASE, 0, 1)
    with pytest.raises(LocalProtocolError, match="edge stripe 4294967296 is beyond"):
        line_key(RAW, MARKET, BASE, 2**32, 1)
