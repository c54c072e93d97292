"""What is sealed or signed beside the lines: narrow stripes, blocks at doors, payloads, identities, core keys.

Each way raises RemoteProtocolError for what it refuses, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from struct import Struct

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.security.package_samples import MARKET, REGION
from tests.security.rosters import ROOT, a_roster, identity, next_roster
from tests.wire.door_samples import DOOR_SAMPLES
from tests.wire.hostile_messages import Way
from tests.wire.test_stripe_proofs import GOLDEN

from isocast.feeds.mold import request
from isocast.runtime.edge.narrow.archive import proof_request, read_proof_request
from isocast.security.chains import ChainOpener, ChainSealer
from isocast.security.door_identities import DoorWord, EphemeralKey, encode_word, read_word
from isocast.security.door_seals import DoorOpener, DoorSealer
from isocast.security.group_keys import former_core_keys, open_core_key, seal_core_key, wants_core_key
from isocast.security.keys import SecretKey
from isocast.security.line_seals import BoughtKeys, RegionKeys
from isocast.security.sealing import Generations, Opener, Sealer
from isocast.security.stripe_seals import StripeOpener, StripeSealer
from isocast.security.subscriptions import HISTORY, line_key, service_key, stripe_service
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError, RosterError
from isocast.terms.ids import Label, source_id
from isocast.terms.instants import SECOND
from isocast.wire.door import DoorKind, Sealed, Snapshot, decode_message, encode_message
from isocast.wire.limits import SIGNATURE_BYTES
from isocast.wire.stripe_proofs import proof_root, read_stripe_proof, write_stripe_proof

__all__ = ["IDENTITY_WAYS", "SEAL_WAYS", "identity_seeds", "seal_seeds"]

# Narrow stripes -----------------------------------------------------------------------------------

_LONDON, _STRIPE = 1, 3
_PERIOD_NS, _PERIOD = 60 * SECOND, 1_000
_BOUGHT = service_key(REGION, stripe_service(_STRIPE), _PERIOD, _PERIOD_NS)
_STRIPE_OPENER = StripeOpener(BoughtKeys([_BOUGHT]), MARKET, _PERIOD_NS)
_STRIPE_CIPHER = AESGCM(line_key(_BOUGHT.key, MARKET, stripe_service(_STRIPE), _STRIPE, _LONDON))
_STRIPE_HEAD = Struct(">4sQII").pack(b"ICSS", _LONDON, _STRIPE, _PERIOD)


def _stripe_proof(data: bytes) -> None:
    proof = read_stripe_proof(data)
    proof_root(proof)
    assert write_stripe_proof(proof) == data


def _proof_request(data: bytes) -> None:
    wanted = read_proof_request(data)
    assert proof_request(wanted.session, wanted.sequence, wanted.count) == data


def _sold_stripe(data: bytes) -> None:
    """As it comes."""
    _STRIPE_OPENER.open(data)


def _sealed_stripe(data: bytes) -> None:
    """Anything under the right key."""
    sealed = _STRIPE_HEAD + bytes(12) + _STRIPE_CIPHER.encrypt(bytes(12), data, _STRIPE_HEAD)
    assert _STRIPE_OPENER.open(sealed).raw == data
    _stripe_proof(data)


# What doors give to whoever bought it --------------------------------------------------------------

_HISTORY = service_key(REGION, HISTORY, _PERIOD, _PERIOD_NS)
_DOOR_OPENER = DoorOpener(BoughtKeys([_HISTORY]), MARKET, 0, _LONDON)


def _sold_block(data: bytes) -> None:
    message = decode_message(data)
    if not isinstance(message, Sealed):
        raise RemoteProtocolError("nothing is sealed")
    _DOOR_OPENER.open(message)


# Payloads of a source that lies --------------------------------------------------------------------

_SECRET = SecretKey(bytes(range(32)))
_FLOOR = source_id(1, 7)
_LABEL = Label(_FLOOR, 5)
_LINK_BYTES = 32


def _payload(data: bytes) -> None:
    _OPENER.open(0, _LABEL, data)


def _chained(data: bytes) -> None:
    """A link that somebody disclosed, and the payload."""
    link, sealed = data[:_LINK_BYTES], data[_LINK_BYTES:]
    fits = _CHAIN_OPENER.fits(_LABEL, link, sealed)
    _CHAIN_OPENER.open(_LABEL, link, sealed)
    assert fits, "what opens is committed to"


def _named(data: bytes) -> None:
    """A payload whose salt names a generation: what is heard has a key, and what opens was heard."""
    heard = _LATER_OPENER.knows(0, _LABEL, data)
    _LATER_OPENER.open(0, _LABEL, data)
    assert heard, "what opens is of a generation that is known"


_OPENER, _CHAIN_OPENER = Opener({1: _SECRET}), ChainOpener({1: _SECRET}, 0)
_LATER = Generations((SecretKey(bytes(32)),), SecretKey(bytes(range(32))))
_LATER_OPENER = Opener({1: _SECRET}, _LATER)

SEAL_WAYS: tuple[Way, ...] = (
    _stripe_proof,
    _proof_request,
    _sold_stripe,
    _sealed_stripe,
    _sold_block,
    _payload,
    _chained,
    _named,
)


def seal_seeds() -> list[bytes]:
    """Inputs that are accepted."""
    proof = write_stripe_proof(GOLDEN)
    region = RegionKeys(REGION, _PERIOD_NS)
    stripe = StripeSealer(region, MARKET, _LONDON, b"draw", 0).seal(_STRIPE, _PERIOD * _PERIOD_NS, proof)
    given = DOOR_SAMPLES[DoorKind.SNAPSHOT]
    assert isinstance(given, Snapshot)
    sold = DoorSealer(region, MARKET, 0, _LONDON, bytes).seal(given, _PERIOD * _PERIOD_NS)
    payload = Sealer(_SECRET, 1, bytes(16)).seal(0, _LABEL, b"something that nobody may know")
    chain = ChainSealer(_SECRET, bytes(32), _FLOOR, 0, bytes(16), {})
    chained = chain.seal(0, _LABEL, b"something that nobody may know")
    ((_, link),) = chain.links(_LABEL.number, _LABEL.number)
    asked = proof_request(b"2410040001", 7, 3)
    assert asked.endswith(request(b"2410040001", 7, 3))
    named = Sealer(_SECRET, 1, bytes(16), _LATER).seal(0, _LABEL, b"something that nobody may know")
    said = (proof, asked, stripe, proof, encode_message(sold), payload, link + chained, named)
    return [bytes((way,)) + data for way, data in enumerate(said)]


# Identities at doors, and the core key in a roster --------------------------------------------------

_OWN, _EPHEMERAL = bytes(range(32)), bytes(range(32, 64))
_FIRST = seal_core_key(a_roster(), ROOT, _OWN)
_SEALED = seal_core_key(wants_core_key(next_roster(_FIRST), _FIRST), ROOT, _EPHEMERAL)
_READER = identity("london")
_CORE, _BEFORE = open_core_key(_SEALED, _READER), open_core_key(_FIRST, _READER)


def _word(data: bytes) -> None:
    word = read_word(data)
    assert encode_word(word) == data


def _agreed(data: bytes) -> None:
    """Any ephemeral key: what comes of it is a key, and nobody's own."""
    key = EphemeralKey(_OWN).agree(data[:32].ljust(32, b"\0"), _EPHEMERAL)
    assert len(key) == len(_EPHEMERAL)
    assert key != _EPHEMERAL


def _core_part(data: bytes) -> None:
    """A part for London, and the ephemeral key that is said to have sealed it."""
    first, *others = _SEALED.members
    part, ephemeral = data[:48].ljust(48, b"\0"), data[48:80].ljust(32, b"\0")
    hostile = replace(_SEALED, members=(replace(first, sealed_core=part), *others), ephemeral=ephemeral)
    found = open_core_key(hostile, _READER)
    assert found == _CORE, "nothing else opens"


def _core_keys_before(data: bytes) -> None:
    """What a roster hands on of the core keys before its own."""
    assert _CORE is not None
    try:
        hostile = replace(_SEALED, former=data)
    except LocalProtocolError as reason:
        raise RosterError(str(reason)) from None  # As the reader of a roster tells it.
    assert former_core_keys(hostile, _CORE) == ((_BEFORE,) if data else ()), "nothing else opens"


IDENTITY_WAYS: tuple[Way, ...] = (_word, _word, _agreed, _core_part, _core_keys_before)


def identity_seeds() -> list[bytes]:
    """Inputs that are accepted."""
    public = EphemeralKey(_EPHEMERAL).public
    words = DoorWord(public), DoorWord(public, bytes(SIGNATURE_BYTES))
    part = _SEALED.members[0].sealed_core + _SEALED.ephemeral
    before = b"\4" + _SEALED.former
    return [*[b"\0" + encode_word(word) for word in words], b"\2" + public, b"\3" + part, before]
