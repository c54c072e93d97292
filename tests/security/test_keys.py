"""Derived keys: one for each purpose and node, cached, and never shown."""

import copy
import pickle
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.security.keys import KEY_BYTES, CoreKeyring, EdgeKeyring, Purpose, SecretKey, derive
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import other_id, server_id, source_id
from isocast.wire.codec import decode, encode
from isocast.wire.frame import Keys
from isocast.wire.packets import Pending

RAW = bytes(range(32))
CORE, EDGE, FLOOR = SecretKey(RAW), SecretKey(bytes(32)), SecretKey(b"\7" * 32)
MEMBERS = (1, 2, server_id(1), other_id(1))


def ring() -> CoreKeyring:
    return CoreKeyring(CORE, MEMBERS, {3: FLOOR})


def test_a_derived_key_is_keyed_blake2b_of_node_and_part() -> None:
    name = (5).to_bytes(8, "big") + (2).to_bytes(8, "big")
    assert derive(RAW, Purpose.SEAL, 5, 2) == blake2b(name, digest_size=32, key=RAW, person=b"isocast seal").digest()


def test_known_answers() -> None:
    """Another implementation must derive the same, for ever: a change here is another wire version."""
    assert derive(RAW, Purpose.TAG, 1).hex() == "3a02612fbeeb6282766639092be8ed16ec7e4293430ceeb88ecb5d1ffd8aa066"
    assert (
        derive(RAW, Purpose.SEAL, source_id(3, 0), 1).hex()
        == "5633d3a37944cb02571c675c434736431d244effb12424230fb95fa6295b1354"
    )
    assert derive(RAW, Purpose.DOOR, 0).hex() == "9fba7379f4e3398f897c61456571e4506f058effaa3589f6c8c12b8013b02401"
    assert CORE.fingerprint == "fd341bf6"


NODES = st.integers(min_value=0, max_value=2**64 - 1)
PARTS = st.integers(min_value=0, max_value=2**16 - 1)


@given(st.lists(st.tuples(st.sampled_from(Purpose), NODES, PARTS), unique=True, min_size=2, max_size=20))
def test_no_two_purposes_nodes_or_parts_share_a_key(uses: list[tuple[Purpose, int, int]]) -> None:
    assert len({derive(RAW, *use) for use in uses}) == len(uses)


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_has_32_bytes(length: int) -> None:
    with pytest.raises(LocalProtocolError, match=f"32 bytes, not {length}"):
        SecretKey(bytes(length))


# ---- keyrings


def test_nodes_of_the_core_have_a_key_of_their_own_from_the_core_key() -> None:
    keys = [ring()[node] for node in MEMBERS]
    assert keys == [derive(RAW, Purpose.TAG, node) for node in MEMBERS]
    assert len(set(keys)) == len(MEMBERS)


def test_a_source_has_its_key_from_its_own_file_one_for_each_incarnation() -> None:
    keys = ring()
    assert keys[source_id(3, 1)] == derive(b"\7" * 32, Purpose.TAG, source_id(3, 1))
    assert keys[source_id(3, 1)] != keys[source_id(3, 2)]
    assert len(keys[source_id(3, 1)]) == KEY_BYTES


@pytest.mark.parametrize("stranger", [0, 3, 65_535, server_id(2), other_id(2), source_id(4, 1), source_id(2**31, 1)])
def test_a_stranger_is_a_key_error_and_leaves_no_trace(stranger: int) -> None:
    keys = ring()
    with pytest.raises(KeyError):
        keys[stranger]
    assert stranger not in keys
    assert keys.get(stranger) is None
    assert list(keys) == list(MEMBERS)


def test_get_and_in_know_whom_the_brackets_know() -> None:
    keys = ring()
    assert keys.get(source_id(3, 9)) == derive(b"\7" * 32, Purpose.TAG, source_id(3, 9))
    assert source_id(3, 8) in ring()
    assert 1 in keys
    text: object = "1"
    assert text not in keys


def test_invented_incarnations_do_not_fill_the_memory() -> None:
    keys = ring()
    for incarnation in range(1, 10_000):
        keys[source_id(3, incarnation)]
    assert len(keys) <= len(MEMBERS) + 8
    assert keys[source_id(3, 1)] == derive(b"\7" * 32, Purpose.TAG, source_id(3, 1))


def test_the_second_look_is_a_plain_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ring()
    first = keys[source_id(3, 1)]
    monkeypatch.setattr(SecretKey, "derive", lambda *_: pytest.fail("derived again"))
    assert keys[source_id(3, 1)] is first
    assert keys[1] is keys[1]


def test_the_edge_knows_its_members_only() -> None:
    keys = EdgeKeyring(EDGE, (1, other_id(2)))
    assert keys[other_id(2)] == derive(bytes(32), Purpose.TAG, other_id(2))
    assert keys[1] != ring()[1]
    with pytest.raises(KeyError):
        keys[source_id(3, 1)]


def test_without_a_secret_nobody_is_known() -> None:
    assert not EdgeKeyring(None, (1, 2))
    assert source_id(3, 1) in CoreKeyring(None, (1, 2), {3: FLOOR})


def test_a_keyring_is_what_the_codec_takes() -> None:
    keys: Keys = ring()
    packet = Pending(0, (1, server_id(1)), 2, 7)  # type: ignore[arg-type]
    assert decode(encode(packet, keys), ring()) == packet


# ---- nothing shows


SECRETS: list[Callable[[], Any]] = [lambda: CORE, ring, lambda: EdgeKeyring(EDGE, (1,))]


@pytest.mark.parametrize("make", SECRETS)
def test_no_text_of_a_secret_holds_a_key(make: Callable[[], Any]) -> None:
    secret = make()
    hidden = [RAW, bytes(32), b"\7" * 32, derive(RAW, Purpose.TAG, 1), derive(bytes(32), Purpose.TAG, 1)]
    for text in (repr(secret), str(secret), f"{secret}", f"{[secret]}"):
        assert not any(key.hex() in text or repr(key)[2:-1] in text for key in hidden)


@pytest.mark.parametrize("make", SECRETS)
@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_neither_pickled_nor_copied(make: Callable[[], Any], act: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="not pickled or copied"):
        act(make())


def test_secrets_compare_by_value_and_cannot_be_hashed() -> None:
    assert SecretKey(RAW) == CORE
    assert CORE != EDGE
    assert CORE != RAW
    with pytest.raises(TypeError):
        hash(CORE)
