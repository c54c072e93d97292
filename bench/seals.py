"""What seals and proofs cost: CPU time per message, and bytes per event in a journal.

    python bench/seals.py [--json]

A message has 25 events of 48 bytes, 1,200 in all. Each row of time is also given as a multiple of sealing with one key
for all messages of a source, the cheapest way that there is, measured in the same run; every sealed payload is opened
again. Journals are made with and without what proves them: seal keys, and one signed token for each block.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from time import process_time

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from isocast.security.keys import SecretKey
from isocast.security.sealing import Opener, Sealer, seal_with
from isocast.terms.ids import Epoch, Label, server_id, source_id
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.wire.events import MarketEvent, build_events, pack_events
from isocast.wire.journal_blocks import ReleasedBlock, encode_block
from isocast.wire.journal_proofs import BlockProof, MessageSeal, Statement
from isocast.wire.limits import RUN_BYTES, SIGNATURE_BYTES, TOKEN_BYTES
from isocast.wire.packets import payload_digest
from isocast.wire.signing import SignedKind

ROUNDS = 9
MESSAGES = 2_000
EVENTS = 25
SOURCES = 4


def payload() -> bytes:
    """One message of 1,200 bytes."""
    row = MarketEvent(EventKind.TRADE, Mic("XNYS"), Symbol("ISO"), price=1_812_500, quantity=100)
    return pack_events(build_events([row._replace(id=number) for number in range(EVENTS)]))


def best(work: Callable[[], None]) -> float:
    """Microseconds per message, the least of several rounds."""
    found = []
    for _ in range(ROUNDS):
        began = process_time()
        work()
        found.append((process_time() - began) / MESSAGES * 1e6)
    return min(found)


def times() -> dict[str, float]:
    """CPU time per message of each way to seal and to open."""
    clear, secret, salt = payload(), SecretKey(bytes(range(32))), os.urandom(16)
    labels = [Label(source_id(1, 1), number) for number in range(1, MESSAGES + 1)]
    one, keys, nonce = AESGCM(os.urandom(32)), [os.urandom(32) for _ in labels], bytes(12)
    sealed = [Sealer(secret, 1, salt).seal(0, label, clear) for label in labels]
    opener = Opener({1: secret})
    assert opener.open(0, labels[0], sealed[0]).payload == clear  # noqa: S101

    def seal() -> None:
        sealer = Sealer(secret, 1, salt)
        for label in labels:
            sealer.seal(0, label, clear)

    def reseal() -> None:
        for label, key in zip(labels, keys, strict=True):
            payload_digest(seal_with(key, salt, 0, label, clear))

    def each(work: Callable[[bytes], object]) -> Callable[[], None]:
        def run() -> None:
            for key in keys:
                work(key)

        return run

    return {
        "one key for all messages, AES-256-GCM": best(each(lambda _: one.encrypt(nonce, clear, b""))),
        "a key for each, AES-256-GCM alone": best(each(lambda key: AESGCM(key).encrypt(nonce, clear, b""))),
        "a key for each, ChaCha20-Poly1305 alone": best(
            each(lambda key: ChaCha20Poly1305(key).encrypt(nonce, clear, b""))
        ),
        "seal": best(seal),
        "open": best(lambda: [opener.open(0, label, raw) for label, raw in zip(labels, sealed, strict=True)] and None),
        "prove: seal again, and digest": best(reseal),
    }


def sizes(messages: int) -> tuple[float, float]:
    """Bytes per event in a journal of blocks of so many messages, without and with what proves them."""
    clear = payload()
    rows = [(source_id(1 + place % SOURCES, 1), 1 + place // SOURCES, bytes(32), clear) for place in range(messages)]
    seals = tuple(MessageSeal(source.to_bytes(16, "big"), os.urandom(32)) for source, *_ in rows)
    epoch = Epoch(1, server_id(1))
    body = bytes(TOKEN_BYTES + min(messages, SOURCES) * RUN_BYTES)
    token = Statement(SignedKind.TOKEN, epoch, 1, bytes(SIGNATURE_BYTES), body)
    found = []
    for proof in (None, BlockProof(seals, (token,))):
        block = ReleasedBlock(epoch, 1, messages, 0, 1, 1, 2, 3, 4, bytes(16), rows, proof=proof)
        found.append(encode_block(block).header.block_bytes / (messages * EVENTS))
    return found[0], found[1]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    taken = times()
    unit = next(iter(taken.values()))
    grown = {count: sizes(count) for count in (1, 10, 75)}
    if chosen.json:
        rows = {name: {"us_per_message": value, "ratio": value / unit} for name, value in taken.items()}
        bytes_per_event = {str(count): {"bare": bare, "proven": proven} for count, (bare, proven) in grown.items()}
        print(json.dumps({"messages": rows, "journal_bytes_per_event": bytes_per_event}))
        return
    for name, value in taken.items():
        print(f"  {name:<42}{value:>8.2f} µs/message {value / unit:>7.2f} ×")
    for count, (bare, proven) in grown.items():
        ratio = proven / bare
        print(f"  journal, {count:>3} messages a block: {bare:.1f} bytes/event, proven {proven:.1f} ({ratio:.3f} ×)")


if __name__ == "__main__":
    main()
