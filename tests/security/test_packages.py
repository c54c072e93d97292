"""Packages: keys for whoever has the secret, his name for everybody, and nothing else for anybody."""

import copy
import pickle
from struct import pack_into

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.hostile_packages import PACKAGE_WAYS, examine_package, package_seeds
from tests.security.package_samples import (
    BUYER,
    CHEAP,
    DAY,
    ISSUED,
    MARKET,
    OFFICE,
    ROOT,
    SALT,
    SECRET,
    cheap_mask,
    keys_of,
    package,
)
from tests.wire.mutations import mutated

from isocast.security import packages
from isocast.security.identities import Identity, market_of, statement
from isocast.security.packages import (
    KEYS_MAX,
    STRETCHING,
    TEST_CARDS,
    Package,
    Stretching,
    card_secret,
    mask_of,
    open_package,
    read_label,
    read_secret,
    write_secret,
)
from isocast.security.subscriptions import ServiceKey
from isocast.terms.errors import LocalProtocolError, PackageError
from isocast.wire.signing import SignedKind


def opened(raw: bytes, secret: bytes = SECRET, now: int = ISSUED, buyer: str | None = None) -> Package:
    return open_package(raw, secret, MARKET, OFFICE.public, now, buyer=buyer, least=CHEAP)


def resigned(raw: bytes, at: int, form: str, *values: object) -> bytes:
    """The package with other bytes, by an office that signs anything."""
    changed = bytearray(raw[:-64])
    pack_into(form, changed, at, *values)
    return bytes(changed) + OFFICE.sign(statement(SignedKind.PACKAGE, MARKET, bytes(changed)))


# ---- what is bought is what is opened


def test_a_package_gives_the_keys_that_were_sealed_in_it() -> None:
    """§6: "who may receive the broadcast"."""
    keys = keys_of("base", "repair", "stripe:3", "history")
    got = opened(package(keys[::-1]))
    assert got.keys == tuple(sorted(keys, key=lambda key: (key.period, key.service)))
    assert (got.label.begins, got.label.ends) == (20_000 * DAY, 20_002 * DAY)


def test_a_package_names_its_buyer_in_the_clear() -> None:
    raw = package()
    assert BUYER.encode() in raw
    label = read_label(raw)
    assert (label.buyer, label.market_name, label.number) == (BUYER, "demo", 5)


def test_another_name_on_the_label_makes_it_no_package() -> None:
    raw = package()
    changed = raw.replace(BUYER.encode(), "Bank of Åland".encode())
    assert len(changed) == len(raw)
    with pytest.raises(PackageError, match="damaged"):
        opened(changed)


def test_no_key_is_in_the_clear_and_none_in_its_repr() -> None:
    raw = package()
    got = opened(raw)
    for key in got.keys:
        assert key.key not in raw
        assert key.key.hex() not in repr(got)
        assert repr(key.key)[2:-1] not in repr(got)
    assert cheap_mask().key.hex() not in repr(cheap_mask())
    for taken in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="not pickled or copied"):
            taken(cheap_mask())


def test_packages_of_one_buyer_share_no_key_even_with_one_nonce() -> None:
    keys = keys_of("base")
    first, second = package(keys, number=1), package(keys, number=2)
    at = len(first) - 64 - 16 - (2 + 2 * (5 + 56))
    assert first[at:-80] != second[at:-80]


# ---- whoever has no right opens nothing


def test_a_wrong_secret_opens_nothing() -> None:
    with pytest.raises(PackageError, match=f"the secret does not open the package of {BUYER}: type it again"):
        opened(package(), bytes(16))


def test_the_secret_of_another_buyer_opens_nothing() -> None:
    with pytest.raises(PackageError, match="the secret does not open the package of Other"):
        opened(package(buyer="Other", secret=bytes(16)))


def test_a_package_of_another_is_called_so() -> None:
    with pytest.raises(PackageError, match="the package is Other's, not Bank of Öland's: fetch your own"):
        opened(package(buyer="Other"), buyer=BUYER)
    assert opened(package(), buyer=BUYER).buyer == BUYER


@given(st.data())
def test_a_changed_bit_anywhere_opens_nothing(data: st.DataObject) -> None:
    raw = bytearray(package())
    place = data.draw(st.integers(0, 8 * len(raw) - 1))
    raw[place // 8] ^= 1 << place % 8
    with pytest.raises(PackageError):
        opened(bytes(raw))


def test_a_cut_or_longer_package_opens_nothing() -> None:
    raw = package()
    for changed in [*(raw[:size] for size in range(len(raw))), raw + b"\0", raw + raw]:
        with pytest.raises(PackageError):
            opened(changed)


def test_a_package_of_another_market_is_refused_by_name() -> None:
    with pytest.raises(PackageError, match="is for another market, demo: give the file of that market"):
        open_package(package(), SECRET, market_of("other", ROOT.public), OFFICE.public, ISSUED, least=CHEAP)


def test_an_office_that_the_roster_does_not_list_signs_nothing() -> None:
    with pytest.raises(PackageError, match="not from the box office of the roster: get the newest roster"):
        open_package(package(), SECRET, MARKET, Identity(bytes(32)).public, ISSUED, least=CHEAP)


def test_whoever_names_the_office_and_has_not_its_key_signs_nothing() -> None:
    """A market's or an office's name is as public as a buyer's."""
    raw = package()
    mad = Identity(bytes(32))
    forged = raw[:-64] + mad.sign(statement(SignedKind.PACKAGE, MARKET, raw[:-64]))
    with pytest.raises(PackageError, match="damaged"):
        opened(forged)


COSTS_AT = len(b"isocast package 1\n") + 2 * 32 + 4 * 8 + 16


# ---- time


def test_an_expired_package_says_how_to_renew() -> None:
    ends = 20_002 * DAY
    assert opened(package(), now=ends - 1).keys
    with pytest.raises(PackageError, match="has expired: renew it by isocast subscribe --renew"):
        opened(package(), now=ends)


def test_a_clock_before_the_packages_time_is_to_be_set() -> None:
    assert opened(package(), now=ISSUED - 60 * 10**9).keys
    with pytest.raises(PackageError, match="set the clock"):
        opened(package(), now=ISSUED - 3_600 * 10**9)


# ---- what a guess costs


def test_the_product_takes_256_mebibytes_three_passes_and_nothing_cheaper() -> None:
    """A cheap package would let whoever has a copy try secrets quickly, and is not believed."""
    assert Stretching(262_144, 3, 1) == STRETCHING
    with pytest.raises(PackageError, match="damaged"):
        open_package(package(), SECRET, MARKET, OFFICE.public, ISSUED)


@pytest.mark.parametrize(
    "costs",
    [
        (2**32 - 1, 1, 1),
        (1_024 * 1_024 + 1, 1, 1),
        (8, 255, 1),
        (8, 1, 255),
        (31, 1, 4),
        (7, 1, 1),
        (8, 0, 1),
        (8, 1, 0),
    ],
)
def test_a_hostile_file_asks_for_no_more_than_the_bounds(
    costs: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = resigned(package(), COSTS_AT, ">IBB", *costs)
    monkeypatch.setattr(packages, "Argon2id", None)  # Refused before anything is computed.
    with pytest.raises(PackageError, match="damaged"):
        opened(raw)


def test_the_secret_is_stretched_whatever_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer comes sooner than another: neither for a wrong secret nor for a damaged or foreign package."""
    asked: list[bytes] = []

    def counting(secret: bytes, salt: bytes, stretching: Stretching) -> packages.Mask:
        asked.append(secret)
        return mask_of(secret, salt, stretching)

    raw = package()
    bad = raw[:-1] + bytes((raw[-1] ^ 1,))
    monkeypatch.setattr(packages, "mask_of", counting)
    for stage, (whole, secret, market) in enumerate(
        [(raw, bytes(16), MARKET), (bad, SECRET, MARKET), (raw, SECRET, bytes(32)), (bad, bytes(16), bytes(32))]
    ):
        with pytest.raises(PackageError):
            open_package(whole, secret, market, OFFICE.public, ISSUED, least=CHEAP)
        assert len(asked) == stage + 1


# ---- secrets as people type them


@given(st.binary(min_size=16, max_size=16))
def test_a_secret_is_read_as_it_was_written_however_it_is_spaced(secret: bytes) -> None:
    text = write_secret(secret)
    assert len(text.split("-")) == 7
    for typed in (text, text.lower(), text.replace("-", ""), f" {text.replace('-', ' ')} ", text.replace("0", "o")):
        assert read_secret(typed) == secret


def test_a_slip_of_one_letter_is_told_before_anything_is_tried() -> None:
    """One in 4,096 would pass; this secret's are all found."""
    text = write_secret(SECRET)
    for at, letter in enumerate(text):
        other = "7" if letter != "7" else "8"
        if letter != "-":
            with pytest.raises(PackageError) as caught:
                read_secret(text[:at] + other + text[at + 1 :])
            assert text not in str(caught.value)


@pytest.mark.parametrize("text", ["", "abc", "U" * 28, "0" * 27, "0" * 29, "é" * 28, "0" * 10_000])
def test_what_is_no_secret_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(PackageError) as caught:
        read_secret(text)
    assert not text or text not in str(caught.value)


def test_a_test_card_masks_a_package_as_the_paper_has_it() -> None:
    """§6 masks keys with a credit card number; here for demonstration."""
    secret = card_secret("4242 4242 4242 4242")
    assert opened(package(secret=secret), secret).keys
    for number in TEST_CARDS:
        digits = [int(digit) for digit in number[::-1]]
        assert (
            sum(digit if place % 2 == 0 else sum(divmod(2 * digit, 10)) for place, digit in enumerate(digits)) % 10 == 0
        )


@pytest.mark.parametrize("number", ["4000000000000002", "", "42424242424242420", "x" * 16])
def test_no_other_number_is_taken_nor_shown(number: str) -> None:
    with pytest.raises(PackageError, match="only test numbers") as caught:
        card_secret(number)
    assert not number or number not in str(caught.value)


# ---- what is refused when it is made


def test_what_no_package_can_say_is_refused_when_it_is_made() -> None:
    with pytest.raises(LocalProtocolError, match="1 to 64 bytes of printable text"):
        package(buyer="a\nb")
    for name in ("", " a", "x" * 65, "\u202eevil", "e\u0301"):
        with pytest.raises(LocalProtocolError, match="1 to 64 bytes"):
            package(buyer=name)
    key = keys_of("base", periods=1)
    with pytest.raises(LocalProtocolError, match="one key for a service"):
        package(key + key)
    with pytest.raises(LocalProtocolError, match="keys"):
        package(tuple(replace_period(key[0], n) for n in range(KEYS_MAX + 1)))
    with pytest.raises(LocalProtocolError, match="16 bytes"):
        mask_of(SECRET, SALT[1:], CHEAP)


def replace_period(key: ServiceKey, period: int) -> ServiceKey:
    return key._replace(period=period)


def test_the_largest_package_fits() -> None:
    names = [f"stripe:{4_294_967_295 - n}" for n in range(KEYS_MAX)]
    raw = package(keys_of(*names, periods=1))
    assert len(raw) < packages.PACKAGE_BYTES_MAX
    assert len(opened(raw).keys) == KEYS_MAX


# ---- hostile bytes


def test_every_way_in_accepts_its_seed() -> None:
    seeds = package_seeds()
    assert {seed[0] for seed in seeds} == set(range(len(PACKAGE_WAYS)))
    assert all(map(examine_package, seeds))


@pytest.mark.parametrize("seed", range(4))
def test_hostile_bytes_are_refused_in_one_way(seed: int) -> None:
    """Whatever comes, only RemoteProtocolError comes out, and what is accepted has one spelling."""
    accepted = sum(map(examine_package, mutated(package_seeds(), 1_000, seed)))
    assert accepted < 1_000


@given(st.binary(max_size=600))
def test_any_bytes_are_refused_in_one_way(data: bytes) -> None:
    examine_package(data)
