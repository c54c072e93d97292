"""Sealed payloads: known answers, no key twice, and nothing opens that was touched."""

import copy
import pickle
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from isocast.security import sealing
from isocast.security.keys import Purpose, SecretKey, derive
from isocast.security.sealing import (
    CHANGES_HEARD,
    CHANGES_REPAIRED,
    CHANGES_SENT,
    COMMITMENT_BYTES,
    SALT_BYTES,
    SEAL_TAG_BYTES,
    Generations,
    Opened,
    Opener,
    Sealer,
    seal_with,
)
from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, StrangerError
from isocast.terms.ids import NO_EPOCH, Label, source_id
from isocast.wire.limits import SEAL_BYTES
from isocast.wire.packets import Data

RAW = bytes(range(32))
SECRET = SecretKey(RAW)
SOURCE = source_id(3, 0x01020304)
LABEL = Label(SOURCE, 0x1122334455667788)
PAYLOAD = b"48 bytes of an event, and whatever else there is"
SALT = bytes(range(100, 116))
GOLDEN = Path(__file__).parent / "golden" / "sealed.hex"


def sealed(payload: bytes = PAYLOAD, stripe: int = 1, label: Label = LABEL) -> bytes:
    return Sealer(SECRET, label.source >> 32, SALT).seal(stripe, label, payload)


def opener() -> Opener:
    return Opener({3: SECRET})


def test_what_is_sealed_is_opened() -> None:
    opened = opener().open(1, LABEL, sealed())
    assert opened.payload == PAYLOAD
    assert seal_with(opened.key, opened.salt, 1, LABEL, PAYLOAD) == sealed()


def test_the_known_answer() -> None:
    """Another implementation must seal the same, for ever: a change here is another wire version."""
    assert sealed().hex() == "".join(GOLDEN.read_text(encoding="ascii").split())


def test_a_seal_is_gcm_under_a_key_of_the_message_that_it_commits_to() -> None:
    base = derive(RAW, Purpose.SEAL, source_id(3, 0), 1)
    label = bytes.fromhex("00000003010203041122334455667788")
    key = blake2b(SALT + label, digest_size=32, key=base).digest()
    commitment = blake2b(key, digest_size=32, person=b"isocast commit").digest()
    nonce = bytes.fromhex("010203041122334455667788")
    associated = bytes.fromhex("000100000003010203041122334455667788")
    assert sealed()[:48] == SALT + commitment
    assert AESGCM(key).decrypt(nonce, sealed()[48:], associated) == PAYLOAD


def test_a_seal_takes_the_room_that_is_kept_for_it() -> None:
    assert len(sealed()) == len(PAYLOAD) + SEAL_BYTES
    assert SEAL_BYTES == SALT_BYTES + COMMITMENT_BYTES + SEAL_TAG_BYTES
    assert sealed(b"") != b""
    assert opener().open(1, LABEL, sealed(b"")).payload == b""


def test_a_start_without_a_salt_seals_nothing() -> None:
    with pytest.raises(LocalProtocolError, match="a salt has 16 bytes, not 15"):
        Sealer(SECRET, 3, SALT[1:])


def test_a_seal_commits_to_its_key() -> None:
    """Who makes a payload could else choose it so that two keys open it, to two contents."""
    other = Sealer(SECRET, 3, bytes(16)).seal(1, LABEL, PAYLOAD)
    mixed = sealed()[:16] + other[16:48] + sealed()[48:]
    with pytest.raises(ForgeryError, match="the seal is broken"):
        opener().open(1, LABEL, mixed)


# ---- many at once


def test_many_are_opened_as_each_would_be_and_what_is_wrong_is_told() -> None:
    here, source = opener(), Sealer(SECRET, 3, SALT)
    good = {number: source.seal(1, Label(SOURCE, number), b"%d" % number) for number in range(1, 6)}
    wrong = {6: b"", 7: good[1], 8: good[2][:-1] + bytes((good[2][-1] ^ 1,)), 9: good[3][:60], 10: bytes(200)}
    messages = [Data(1, NO_EPOCH, SOURCE, number, 1, raw) for number, raw in sorted((good | wrong).items())]
    messages.insert(3, Data(1, NO_EPOCH, source_id(4, 1), 1, 1, good[1]))
    told: list[Data] = []
    found = here.open_all(1, messages, lambda message, _: told.append(message))
    assert [message.label for message in told] == [(source_id(4, 1), 1), *[(SOURCE, number) for number in wrong]]
    expected = []
    for message in messages:
        try:
            expected.append(opener().open(1, message.label, message.payload))
        except RemoteProtocolError:
            expected.append(Opened(b"", b"", b""))
    assert found == expected
    assert [one.payload for one in found if one.key] == [b"1", b"2", b"3", b"4", b"5"]
    assert here.open_all(1, messages[:3], lambda *_: told.append(messages[0])) == expected[:3]


def test_many_are_opened_by_the_generations_that_are_known_then() -> None:
    generations = Generations((), NEW)
    here = Opener({3: SECRET}, generations)
    for changes, key in enumerate((NEW, NEWEST), 1):
        generations.turn((key,), key)
        messages = [Data(1, NO_EPOCH, SOURCE, number, 1, sealed_by(key, number)) for number in (1, 2, 3)]
        assert [one.payload for one in here.open_all(1, messages, never)] == [PAYLOAD] * 3, changes


def never(message: Data, reason: RemoteProtocolError) -> None:
    raise AssertionError(message) from reason


# ---- keys


class Recorder:
    """In place of AES-GCM: every (key, nonce) it was given."""

    used: list[tuple[bytes, bytes]]

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, nonce: bytes, payload: bytes, _: bytes) -> bytes:
        Recorder.used.append((self._key, nonce))
        return payload


LABELS = st.tuples(
    st.integers(min_value=0, max_value=2**16 - 1),
    st.integers(min_value=1, max_value=2**32 - 1),
    st.integers(min_value=0, max_value=2**32 - 1),
    st.integers(min_value=0, max_value=2**64 - 1),
)


@given(st.lists(LABELS, unique=True, min_size=1, max_size=30))
def test_no_two_labels_meet_under_one_key(labels: list[tuple[int, int, int, int]]) -> None:
    """Even where all sources were given the same file."""
    Recorder.used = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealing, "AESGCM", Recorder)
        sealers: dict[int, Sealer] = {}
        for stripe, source, incarnation, number in sorted(labels, key=lambda label: label[3]):
            sealer = sealers.setdefault(source, Sealer(SECRET, source, SALT))
            sealer.seal(stripe, Label(source_id(source, incarnation), number), b"")
    assert len({key for key, _ in Recorder.used}) == len(labels)


def test_a_number_is_sealed_once() -> None:
    sealer = Sealer(SECRET, 3, SALT)
    sealer.seal(0, Label(SOURCE, 5), b"one")
    for number in (5, 4):
        with pytest.raises(LocalProtocolError, match="a seal is made once"):
            sealer.seal(0, Label(SOURCE, number), b"another")
    sealer.seal(0, Label(SOURCE, 6), b"next")
    sealer.seal(1, Label(SOURCE, 5), b"another stripe")
    sealer.seal(0, Label(source_id(3, 9), 5), b"another incarnation")


def test_a_source_seals_for_itself_only() -> None:
    with pytest.raises(LocalProtocolError, match="source 3 does not seal for source 4"):
        Sealer(SECRET, 3, SALT).seal(0, Label(source_id(4, 1), 1), b"")


# ---- forgeries


def test_every_byte_counts() -> None:
    frame = sealed()
    for place in range(len(frame)):
        for bit in (1, 0x80):
            touched = bytearray(frame)
            touched[place] ^= bit
            with pytest.raises(ForgeryError, match="the seal is broken"):
                opener().open(1, LABEL, bytes(touched))


@pytest.mark.parametrize("length", [0, 1, 15, 16, 48, 63, 80])
def test_a_piece_of_a_seal_is_none(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        opener().open(1, LABEL, sealed()[:length])


@pytest.mark.parametrize(
    "stripe, label",
    [
        (0, LABEL),
        (1, Label(LABEL.source, LABEL.number + 1)),
        (1, Label(source_id(3, 1), LABEL.number)),
        (1, Label(source_id(2, 0x01020304), LABEL.number)),
    ],
)
def test_a_payload_opens_under_its_own_label_only(stripe: int, label: Label) -> None:
    with pytest.raises(ForgeryError):
        Opener({2: SECRET, 3: SECRET}).open(stripe, label, sealed())


def test_another_sources_key_opens_nothing() -> None:
    with pytest.raises(ForgeryError):
        Opener({3: SecretKey(bytes(32))}).open(1, LABEL, sealed())


def test_a_stranger_is_refused() -> None:
    with pytest.raises(StrangerError, match="no key of source 4"):
        opener().open(1, Label(source_id(4, 1), 1), sealed())


@given(st.binary(max_size=200))
def test_hostile_bytes_raise_one_error(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        opener().open(1, LABEL, frame)


# ---- generations


OLD, NEW, NEWEST = (SecretKey(bytes([number]) * 32) for number in (1, 2, 3))


def sealed_by(generation: SecretKey | None, number: int = 5) -> bytes:
    return Sealer(SECRET, 3, SALT, Generations((), generation)).seal(1, Label(SOURCE, number), PAYLOAD)


def test_a_seal_of_a_generation_is_made_of_the_core_key_too_and_names_it() -> None:
    base = derive(RAW, Purpose.SEAL, source_id(3, 0), 1)
    added = derive(bytes([2]) * 32, Purpose.SEAL_GENERATION, source_id(3, 0), 1)
    base = blake2b(base, digest_size=32, key=added, person=b"isocast seal gen").digest()
    name = derive(bytes([2]) * 32, Purpose.SEAL_GENERATION, 0)[:4]
    label = SOURCE.to_bytes(8, "big") + (5).to_bytes(8, "big")
    key = blake2b(name + SALT[4:] + label, digest_size=32, key=base).digest()
    assert sealed_by(NEW)[:16] == name + SALT[4:]
    assert sealed_by(NEW) == seal_with(key, name + SALT[4:], 1, Label(SOURCE, 5), PAYLOAD)
    assert sealed_by(None)[:16] == bytes(4) + SALT[4:]


def test_a_receiver_that_was_removed_opens_nothing_that_is_sealed_after_the_change() -> None:
    """It has the source's key, and every core key but the newest."""
    removed = Opener({3: SECRET}, Generations((OLD, NEW), NEW))
    assert removed.open(1, Label(SOURCE, 5), sealed_by(NEW)).payload == PAYLOAD
    for other in (removed, opener()):
        with pytest.raises(ForgeryError, match="the seal is broken"):
            other.open(1, Label(SOURCE, 5), sealed_by(NEWEST))


def test_the_newest_core_key_alone_opens_nothing() -> None:
    with pytest.raises(ForgeryError):
        Opener({3: NEWEST}, Generations((), NEWEST)).open(1, Label(SOURCE, 5), sealed_by(NEWEST))


@pytest.mark.parametrize("generation", [None, OLD, NEW, NEWEST])
def test_what_was_sealed_before_a_change_opens_after_it(generation: SecretKey | None) -> None:
    here = Opener({3: SECRET}, Generations((NEW, OLD), NEWEST))
    assert here.knows(1, Label(SOURCE, 5), sealed_by(generation))
    assert here.open(1, Label(SOURCE, 5), sealed_by(generation)).payload == PAYLOAD


def test_a_source_that_turns_seals_by_the_new_generation_and_an_opener_follows() -> None:
    generations = Generations()
    here, source = Opener({3: SECRET}, generations), Sealer(SECRET, 3, SALT, generations)
    for number, key in enumerate((None, NEW, NEWEST), start=1):
        generations.turn((OLD, NEW), key)
        assert source.seal(1, Label(SOURCE, number), PAYLOAD) == sealed_by(key, number)
        assert here.open(1, Label(SOURCE, number), sealed_by(key, number)).payload == PAYLOAD


def test_a_generation_that_is_not_known_here_is_not_heard() -> None:
    """Else a source could have sites that know the next roster, and those that do not yet, find different things."""
    generations = Generations((), OLD)
    here = Opener({3: SECRET}, generations)
    assert not here.knows(1, Label(SOURCE, 5), sealed_by(NEW))
    assert not here.knows(1, Label(SOURCE, 5), b"")
    assert not here.knows(1, Label(source_id(4, 1), 5), sealed_by(NEW))
    generations.turn((OLD,), NEW)
    assert here.knows(1, Label(SOURCE, 5), sealed_by(NEW))


@pytest.mark.parametrize("changes", range(10))
def test_what_was_heard_opens_whatever_rosters_come_before_its_release(changes: int) -> None:
    generations = Generations((), OLD)
    here = Opener({3: SECRET}, generations)
    assert here.knows(1, Label(SOURCE, 5), sealed_by(OLD))
    core = [OLD]
    for number in range(changes):
        core.insert(0, SecretKey(bytes([100 + number]) * 32))
        generations.turn(core[:7], core[0])
    assert here.open(1, Label(SOURCE, 5), sealed_by(OLD)).payload == PAYLOAD
    assert not here.lacks(1, Label(SOURCE, 5), sealed_by(OLD))


def test_what_a_source_begins_to_send_is_heard_by_whoever_is_a_roster_ahead_and_repaired_by_whoever_is_two() -> None:
    core = [SecretKey(bytes([100 + number]) * 32) for number in range(10)]
    sealed = sealed_by(core[-1])

    def heard(newest: int, changes: int) -> bool:
        known = core[newest : newest + 7]
        return Opener({3: SECRET}, Generations(known, known[0])).knows(1, Label(SOURCE, 5), sealed, changes)

    source = [place for place in range(10) if heard(place, CHANGES_SENT)]
    hears = [place for place in range(10) if heard(place, CHANGES_HEARD)]
    repairs = [place for place in range(10) if heard(place, CHANGES_REPAIRED)]
    assert source == [5, 6, 7, 8, 9]
    assert hears == [4, *source]
    assert repairs == [3, *hears]


def test_what_was_never_known_is_told_from_what_was_sealed_wrongly() -> None:
    here, label = Opener({3: SECRET}, Generations((NEW,), NEW, past=(OLD,))), Label(SOURCE, 5)
    assert here.lacks(1, label, sealed_by(NEWEST))
    assert not any(here.lacks(1, label, sealed) for sealed in (sealed_by(NEW), sealed_by(OLD), sealed_by(None)))
    assert here.open(1, label, sealed_by(OLD)).payload == PAYLOAD
    assert not here.knows(1, label, sealed_by(OLD)), "it opens what is here, and nobody sends it any more"
    assert not opener().lacks(1, LABEL, sealed()), "without rosters there is one generation"


def test_a_source_that_lies_ends_no_site() -> None:
    """Under a name that nobody knows, and tied to a key of the first generation: all hear it, and find nothing."""
    here, label = Opener({3: SECRET}, Generations((NEW,), NEW)), Label(SOURCE, 5)
    broken = mixed(OLD, NEWEST)[:-1] + b"!"
    assert here.knows(1, label, broken)
    with pytest.raises(ForgeryError):
        here.open(1, label, broken)
    assert not here.lacks(1, label, broken)


def mixed(generation: SecretKey, named: SecretKey) -> bytes:
    """What a source that lies may send: a seal of one generation under the name of another; OLD is the first."""
    name = Generations((), named).salt(SALT)
    base = sealing.base_key(SECRET, 3, 1, None if generation is OLD else generation)
    label = SOURCE.to_bytes(8, "big") + (5).to_bytes(8, "big")
    return seal_with(blake2b(name + label, digest_size=32, key=base).digest(), name, 1, Label(SOURCE, 5), PAYLOAD)


@pytest.mark.parametrize("sealed", [sealed_by(NEW), sealed_by(NEWEST), mixed(OLD, NEW), mixed(NEW, NEWEST)])
def test_sites_that_know_other_rosters_never_find_different_things(sealed: bytes) -> None:
    """A site that hears a message releases what all others release that hear it."""
    found = set()
    for known in ((), (NEW,), (NEW, NEWEST)):
        here = Opener({3: SECRET}, Generations(known))
        if here.knows(1, Label(SOURCE, 5), sealed):
            try:
                found.add(here.open(1, Label(SOURCE, 5), sealed).payload)
            except ForgeryError:
                found.add(b"nothing")
    assert len(found) == 1


def test_a_seal_that_names_no_generation_is_of_the_first() -> None:
    """As versions made it that knew no generations; the outbox of a source may hold some."""
    here = Opener({3: SECRET}, Generations((), NEW))
    assert here.knows(1, LABEL, sealed())
    assert here.open(1, LABEL, sealed()).payload == PAYLOAD
    assert not here.knows(1, Label(SOURCE, 9), sealed()), "it commits to no key of the first"


def test_where_nobody_names_generations_whatever_comes_is_heard() -> None:
    """Without rosters there is one generation, and every site finds the same."""
    assert opener().knows(1, LABEL, b"")
    assert opener().knows(1, LABEL, sealed_by(NEW))


def test_an_opener_remembers_a_bounded_number_of_salts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "_SALTS_KEPT", 3)
    here = opener()
    for number in range(10):
        salted = Sealer(SECRET, 3, bytes([number]) * 16).seal(1, LABEL, PAYLOAD)
        assert here.open(1, LABEL, salted).payload == PAYLOAD
        assert len(here._keyed) <= 3  # noqa: SLF001


# ---- nothing shows


def test_generations_show_no_key_and_are_not_copied() -> None:
    generations = Generations((OLD,), SECRET)
    assert RAW.hex() not in repr(generations)
    with pytest.raises(TypeError, match="not pickled or copied"):
        copy.deepcopy(generations)


@pytest.mark.parametrize("make", [lambda: Sealer(SECRET, 3, SALT), opener], ids=["sealer", "opener"])
def test_neither_shows_a_key_nor_is_copied(make: Any) -> None:  # noqa: ANN401  # either
    thing = make()
    thing.seal(0, Label(SOURCE, 1), b"") if isinstance(thing, Sealer) else thing.open(1, LABEL, sealed())
    for text in (repr(thing), str(thing)):
        assert RAW.hex() not in text
        assert repr(RAW)[2:-1] not in text
        assert "SecretKey" not in text
    for act in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="not pickled or copied"):
            act(thing)


def test_an_error_shows_neither_key_nor_payload() -> None:
    with pytest.raises(ForgeryError) as caught:
        opener().open(1, LABEL, PAYLOAD * 2)
    assert PAYLOAD.decode() not in str(caught.value)
    assert caught.value.__cause__ is None
