"""An attack: a source is started from a backup of its outbox, in the same incarnation, and gives a number again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.ring.makers import settings

from isocast.ring.effects import Multicast, Persist
from isocast.ring.inputs import PublishRequested
from isocast.ring.source import PrimarySource, Seal
from isocast.runtime.disk.outbox_store import OutboxStore, open_outbox_store
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.market.model import StoreSettings
from isocast.security.keys import Purpose, SecretKey, derive
from isocast.security.sealing import SALT_BYTES, SEAL_TAG_BYTES, Opener, Sealer
from isocast.terms.ids import Label, source_id
from isocast.wire.limits import SEAL_BYTES
from isocast.wire.packets import Data

RAW = bytes(range(32))
FIRST = b"sell 100 at 17.25, the floor's first word"
SECOND = b"sell 900 at 16.00, said after the restore"


def label_as_nonce(stripe: int, label: Label, payload: bytes) -> bytes:
    """A test build: one key for all messages of a source, and the label for a nonce."""
    cipher = AESGCM(derive(RAW, Purpose.SEAL, source_id(1, 0), stripe))
    return cipher.encrypt((label.source % 2**32).to_bytes(4) + label.number.to_bytes(8), payload, b"")


def salted() -> Seal:
    """As a source's process does at each start."""
    return Sealer(SecretKey(RAW), 1, os.urandom(SALT_BYTES)).seal


def opened(directory: Path) -> OutboxStore:
    identity = StoreIdentity("market", "floor", source_id(1, 0))
    return open_outbox_store(directory, identity, settings=StoreSettings())


def published(directory: Path, payload: bytes, seal: Seal) -> Data:
    """Start on this outbox, publish once, and end."""
    with opened(directory) as store:
        machine = PrimarySource(source_id(1, store.incarnation), settings(), store.state, seal)
        effects = machine.step(PublishRequested(payload[:8], payload), 0)
        store.append_many([effect.record for effect in effects if isinstance(effect, Persist)])
        [sent] = [effect.packet for effect in effects if isinstance(effect, Multicast)]
    assert isinstance(sent, Data)
    return sent


def twice(tmp_path: Path, seals: tuple[Seal, Seal]) -> tuple[Data, Data]:
    """What goes out under one label before and after the backup is put back."""
    with opened(tmp_path / "outbox"):
        pass
    shutil.copytree(tmp_path / "outbox", tmp_path / "backup")
    before = published(tmp_path / "outbox", FIRST, seals[0])
    shutil.rmtree(tmp_path / "outbox")
    shutil.copytree(tmp_path / "backup", tmp_path / "outbox")
    after = published(tmp_path / "outbox", SECOND, seals[1])
    assert (before.sender, before.number) == (after.sender, after.number), "the attack needs one label for both"
    return before, after


def difference(first: bytes, second: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(first, second, strict=True))


def test_with_one_key_for_all_messages_an_eavesdropper_reads_the_difference(tmp_path: Path) -> None:
    before, after = twice(tmp_path, (label_as_nonce, label_as_nonce))
    found = difference(before.payload[:-SEAL_TAG_BYTES], after.payload[:-SEAL_TAG_BYTES])
    assert found == difference(FIRST, SECOND)


def test_with_a_salt_for_each_start_the_two_have_nothing_in_common(tmp_path: Path) -> None:
    before, after = twice(tmp_path, (salted(), salted()))
    at, end = SEAL_BYTES - SEAL_TAG_BYTES, -SEAL_TAG_BYTES
    assert difference(before.payload[at:end], after.payload[at:end]) != difference(FIRST, SECOND)
    opener = Opener({1: SecretKey(RAW)})
    first, second = (opener.open(0, Label(data.sender, data.number), data.payload) for data in (before, after))
    assert (first.payload, second.payload) == (FIRST, SECOND)
    assert first.key != second.key, "no key meets two payloads"


@pytest.mark.parametrize("seal", [label_as_nonce, salted()])
def test_what_is_sent_again_after_a_restart_is_what_was_sealed_first(tmp_path: Path, seal: Seal) -> None:
    before = published(tmp_path / "outbox", FIRST, seal)
    with opened(tmp_path / "outbox") as store:
        assert store.state.messages[before.number][1] == before.payload
