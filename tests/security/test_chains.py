"""Seals whose keys hang on a chain: known answers, what a link opens, and what a restart or a backup may do (§6)."""

import copy
import pickle
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocast.ring.disclosures import CHAIN_LENGTH, links
from isocast.security.chains import ChainOpener, ChainSealer
from isocast.security.keys import Purpose, SecretKey, derive
from isocast.security.sealing import Generations, Opener, seal_with
from isocast.terms.errors import ForgeryError, LocalProtocolError
from isocast.terms.ids import Label, source_id
from isocast.wire.limits import SEAL_BYTES
from isocast.wire.packets import Disclosure

RAW = bytes(range(32))
SECRET = SecretKey(RAW)
SOURCE = source_id(3, 7)
SEED = bytes(range(32, 64))
SALT, OTHER_SALT = bytes(range(16)), bytes(range(16, 32))
PAYLOAD = b"48 bytes of an event, and whatever else there is"
GOLDEN = Path(__file__).parent / "golden" / "chained.hex"
OPENER = ChainOpener({3: SECRET}, 1)


def sealer(salt: bytes = SALT, held: dict[int, bytes] | None = None, seed: bytes = SEED) -> ChainSealer:
    return ChainSealer(SECRET, seed, SOURCE, 1, salt, held or {})


def seal(machine: ChainSealer, *numbers: int) -> dict[int, bytes]:
    return {number: machine.seal(1, Label(SOURCE, number), PAYLOAD) for number in numbers}


def opened(shown: list[tuple[int, bytes]], sealed: dict[int, bytes]) -> set[int]:
    """Which messages the shown links open, walking as far back as they lead."""
    walks = [links(Disclosure(SOURCE, *one), 1) for one in shown]
    found = [(number, walk[number]) for number in sealed for walk in walks if number in walk]
    return {number for number, link in found if OPENER.fits((SOURCE, number), link, sealed[number])}


def test_a_link_opens_its_message_and_those_before_it_and_none_behind_it() -> None:
    machine = sealer()
    sealed = seal(machine, 1, 2, 3, 4)
    [(number, link)] = machine.links(1, 3)
    assert number == 3
    assert opened([(3, link)], sealed) == {1, 2, 3}
    got = OPENER.open((SOURCE, 3), link, sealed[3])
    assert got.payload == PAYLOAD
    assert seal_with(got.key, got.salt, 1, (SOURCE, 3), PAYLOAD) == sealed[3]
    assert len(sealed[3]) == len(PAYLOAD) + SEAL_BYTES


def test_the_known_answer() -> None:
    """Another implementation must seal the same: a change here is another wire version."""
    machine = sealer()
    [sealed] = seal(machine, 5).values()
    [(_, link)] = machine.links(5, 5)
    assert (link + sealed).hex() == "".join(GOLDEN.read_text(encoding="ascii").split())


def test_a_seal_key_is_made_of_the_link_and_the_base_key() -> None:
    base = derive(RAW, Purpose.SEAL, source_id(3, 0), 1)
    root = SALT + SOURCE.to_bytes(8) + (1).to_bytes(2) + (0).to_bytes(8)
    link = blake2b(root, digest_size=32, key=SEED).digest()
    for _ in range(CHAIN_LENGTH - 5):
        link = blake2b(link, digest_size=32, person=b"isocast chain").digest()
    machine = sealer()
    sealed = seal(machine, 5)[5]
    assert machine.links(5, 5) == [(5, link)]
    label = SOURCE.to_bytes(8) + (5).to_bytes(8)
    key = blake2b(base + SALT + label, digest_size=32, key=link).digest()
    assert seal_with(key, SALT, 1, (SOURCE, 5), PAYLOAD) == sealed


def test_a_generation_is_a_chain_of_its_own_and_its_link_opens_nothing_for_a_receiver_that_was_removed() -> None:
    new, generations = SecretKey(bytes([2]) * 32), Generations()
    machine = ChainSealer(SECRET, SEED, SOURCE, 1, SALT, {}, generations)
    sealed = seal(machine, 1, 2)
    generations.turn((), new)
    sealed |= seal(machine, 3, 4)
    shown = machine.links(1, 4)
    assert [number for number, _ in shown] == [2, 4], "no link of the new chain leads into the old one"
    remaining, removed = (ChainOpener({3: SECRET}, 1, Generations((), key)) for key in (new, None))
    old_walk, new_walk = [links(Disclosure(SOURCE, *one), 1) for one in shown]
    for number, payload in sealed.items():
        label, link = (SOURCE, number), (old_walk if number < 3 else new_walk)[number]
        assert remaining.knows(1, label, payload)
        assert remaining.open(label, link, payload).payload == PAYLOAD
        assert removed.fits(label, link, payload) == (number < 3)
    assert not remaining.fits((SOURCE, 2), new_walk[2], sealed[2])
    stale = ChainOpener({3: SECRET}, 1, Generations((), SecretKey(bytes(32))))
    assert not stale.knows(1, (SOURCE, 4), sealed[4])
    assert not removed.knows(1, (SOURCE, 4), sealed[4]), "whoever has no roster's core key yet does not hear it either"


def test_a_start_after_a_change_has_the_links_of_what_its_outbox_holds_from_before() -> None:
    old, new = (Generations((), SecretKey(bytes([number]) * 32)) for number in (1, 2))
    before = ChainSealer(SECRET, SEED, SOURCE, 1, SALT, {}, old)
    held = seal(before, 1, 2)
    after = ChainSealer(SECRET, SEED, SOURCE, 1, OTHER_SALT, held, new)
    assert after.links(1, 2) == before.links(1, 2)


def test_a_receiver_without_the_link_opens_nothing_and_a_link_without_the_key_neither() -> None:
    machine = sealer()
    sealed = seal(machine, 1)[1]
    with pytest.raises(ForgeryError, match="the seal is broken"):
        Opener({3: SECRET}).open(1, (SOURCE, 1), sealed)
    with pytest.raises(ForgeryError, match="is void: no key was disclosed in time"):
        OPENER.open((SOURCE, 1), b"", sealed)
    [(_, link)] = machine.links(1, 1)
    assert not ChainOpener({3: SecretKey(bytes(32))}, 1).fits((SOURCE, 1), link, sealed)
    assert not ChainOpener({4: SECRET}, 1).fits((SOURCE, 1), link, sealed)
    assert not ChainOpener({3: SECRET}, 2).fits((SOURCE, 1), link, sealed)
    assert not OPENER.fits((SOURCE, 2), link, sealed)


def test_each_chain_has_a_link_of_its_own() -> None:
    machine = sealer()
    numbers = (CHAIN_LENGTH - 1, CHAIN_LENGTH, CHAIN_LENGTH + 1, CHAIN_LENGTH + 2)
    sealed = seal(machine, *numbers)
    shown = machine.links(CHAIN_LENGTH - 1, CHAIN_LENGTH + 1)
    assert [number for number, _ in shown] == [CHAIN_LENGTH, CHAIN_LENGTH + 1]
    assert opened(shown[:1], sealed) == set(numbers[:2])
    assert opened(shown, sealed) == set(numbers[:3])


def test_a_source_that_starts_again_discloses_what_it_sent_before_and_hangs_the_rest_on_new_chains() -> None:
    first = sealer()
    held = seal(first, 1, 2, 3)
    again = sealer(OTHER_SALT, held)
    later = seal(again, 4, 5)
    shown = again.links(1, 4)
    assert [number for number, _ in shown] == [3, 4]
    assert opened(shown, held | later) == {1, 2, 3, 4}
    assert opened(first.links(1, 3), later) == set(), "what was shown before opens nothing that is made later"


def test_a_source_set_back_to_a_backup_seals_numbers_again_on_links_that_nobody_has_seen() -> None:
    lost = sealer()
    seal(lost, *range(1, 10))
    shown = lost.links(1, 9)
    restored = sealer(OTHER_SALT, {1: b"\0" * 80})
    again = seal(restored, *range(2, 10))
    assert opened(shown, again) == set()


def test_links_whose_salt_the_outbox_does_not_know_are_not_made_up() -> None:
    held = seal(sealer(), 5, 6)
    again = sealer(OTHER_SALT, held)
    assert [number for number, _ in again.links(1, 6)] == [6]
    assert again.links(1, 4) == []
    assert sealer().links(1, 100) == []


def test_another_seed_makes_other_links() -> None:
    one, other = sealer(), sealer(seed=bytes(32))
    seal(one, 1)
    seal(other, 1)
    assert one.links(1, 1) != other.links(1, 1)


def test_a_number_is_sealed_once_by_its_own_source() -> None:
    machine = sealer(OTHER_SALT, seal(sealer(), 1, 2))
    with pytest.raises(LocalProtocolError, match="a seal is made once"):
        machine.seal(1, Label(SOURCE, 2), PAYLOAD)
    with pytest.raises(LocalProtocolError, match="does not seal for"):
        machine.seal(2, Label(SOURCE, 3), PAYLOAD)
    with pytest.raises(LocalProtocolError, match="does not seal for"):
        machine.seal(1, Label(source_id(3, 8), 3), PAYLOAD)
    with pytest.raises(LocalProtocolError, match="a salt has 16 bytes and a seed 32"):
        sealer(SALT[1:])
    with pytest.raises(LocalProtocolError, match="a salt has 16 bytes and a seed 32"):
        sealer(seed=SEED[1:])


@given(st.binary(max_size=100), st.binary(max_size=40))
def test_bytes_of_strangers_open_nothing_and_raise_nothing(sealed: bytes, link: bytes) -> None:
    assert not OPENER.fits((SOURCE, 1), link + b"\1" * (32 - min(len(link), 32)), sealed)


def test_no_secret_is_shown_or_copied() -> None:
    for secret in (sealer(), OPENER):
        assert SEED.hex() not in repr(secret)
        with pytest.raises(TypeError):
            pickle.dumps(secret)
        with pytest.raises(TypeError):
            copy.copy(secret)
