"""What it costs to make the log durable: CPU ns per message appended, against a plain write of the same payload bytes.

    python bench/store.py [--json] [DIRECTORY]

Entries have messages of 1,300 bytes, as at full rate; their digests and the token's body are known, since the ring has
computed them before it persists an entry. Each row is also a multiple of os.write of all payload bytes of an entry,
joined beforehand, to a file beside it: what no store could do without. Every log is read back and compared.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from time import process_time

from scratch import folder

from isocast.ring.effects import EntryAppended, OutboxAppended, OutboxFreed
from isocast.ring.ledger import Checkpoint, LogEntry
from isocast.ring.storage import SiteState
from isocast.ring.token import runs_of, shuffle_key
from isocast.runtime.disk.outbox_store import open_outbox_store
from isocast.runtime.disk.records import record_frames
from isocast.runtime.disk.site_store import open_site_store
from isocast.runtime.disk.store_marker import StoreIdentity
from isocast.runtime.market.model import Durability, StoreSettings
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.packets import NO_LIMIT, NO_NONCE, Data, Token
from isocast.wire.token_body import token_body, token_digest

ROUNDS = 5
PAYLOAD_BYTES = 1_300
SOURCES = 3
BYTES = 16 * 3_700 * PAYLOAD_BYTES * 4
"""That lie there at once, at most: the largest log, with what a store keeps beside it."""
EPOCH = Epoch(1, server_id(1))
SITES = (1, 2, 3, 4)


def blank() -> SiteState:
    """Before the first token."""
    return SiteState(Checkpoint(universe=SITES))


def entries(tokens: int, messages: int) -> list[LogEntry]:
    """A log, as the ring hands it over: every digest is known."""
    head = Checkpoint(universe=SITES)
    made = []
    for number in range(1, tokens + 1):
        batch = []
        for place in range(messages):
            source = source_id(place % SOURCES + 1)
            label = head.next_number.get(source, 1) + place // SOURCES
            payload = label.to_bytes(8) + os.urandom(PAYLOAD_BYTES - 8)
            batch.append(Data(0, Epoch(1, server_id(1)), source, label, max(label - 64, 1), payload))
        runs, interleave = runs_of(batch)
        token = Token(
            0, EPOCH, number % 4 + 1, number, number * 50_000_000, head.next_sequence, runs, interleave, (),
            NO_NONCE, NO_NONCE, 0, NO_LIMIT, (), head.digest,
        )  # fmt: skip
        token_body(token)
        token_digest(token)
        entry = LogEntry(token, tuple(batch), shuffle_key(token, head.reveal))
        head.advance(entry)
        made.append(entry)
    return made


def best(measure: Callable[[], float]) -> float:
    """The least of several rounds: what the machine does when nobody disturbs it."""
    return min(measure() for _ in range(ROUNDS))


def plain_write(directory: Path, log: list[LogEntry]) -> float:
    """CPU seconds for the payload bytes alone."""
    joined = [b"".join([message.payload for message in entry.messages]) for entry in log]
    path = directory / "plain"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    began = process_time()
    for block in joined:
        os.write(fd, block)
    spent = process_time() - began
    os.close(fd)
    path.unlink()
    return spent


def encoding(log: list[LogEntry]) -> float:
    """CPU seconds for the frames, without writing them."""
    began = process_time()
    for entry in log:
        record_frames(EntryAppended(entry))
    return process_time() - began


def site_store(directory: Path, log: list[LogEntry], settings: StoreSettings) -> float:
    """CPU seconds for a log that is appended, and collected three tokens later."""
    with folder(within=directory) as name:
        identity = StoreIdentity("bench", "london", 1)
        with open_site_store(name, identity, blank, settings, fresh=True) as store:
            began = process_time()
            for number, entry in enumerate(log, 1):
                store.append(EntryAppended(entry))
                store.collected(number - 3)
            spent = process_time() - began
            found = [store.read(number, number)[0] for number in range(store.first, len(log) + 1)]
            assert found == log[store.first - 1 :]  # noqa: S101
    return spent


def outbox_store(directory: Path, log: list[LogEntry], group: int) -> float:
    """CPU seconds for the same messages in a source's outbox, appended in groups, freed a thousand at a time."""
    with folder(within=directory) as name:
        identity = StoreIdentity("bench", "floor", source_id(1, 0))
        payloads = [message.payload for entry in log for message in entry.messages]
        records = [OutboxAppended(n.to_bytes(16), n, payload) for n, payload in enumerate(payloads, 1)]
        with open_outbox_store(name, identity) as store:
            freed = 0
            began = process_time()
            for at in range(0, len(records), group):
                store.append_many(records[at : at + group])
                if at >= freed + 2_000:
                    freed = at - 1_000
                    store.append(OutboxFreed(freed))
            spent = process_time() - began
            assert store.state.next_number == len(records) + 1  # noqa: S101
    return spent


def restart(directory: Path, log: list[LogEntry]) -> float:
    """CPU seconds to open a store that nobody closed, per message that it has to load."""
    with folder(within=directory) as name:
        identity = StoreIdentity("bench", "london", 1)
        store = open_site_store(name, identity, blank, fresh=True)
        store.append_many(list(map(EntryAppended, log)))
        store.abandon()
        began = process_time()
        store = open_site_store(name, identity, blank)
        spent = process_time() - began
        assert list(store.state.entries.values()) == log  # noqa: S101
        store.abandon()
    return spent


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="where to write; if left out, where temporary files go")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    if chosen.directory is not None and not chosen.directory.is_dir():
        parser.error(f"{chosen.directory} is no directory")
    with folder(needed=BYTES, within=chosen.directory or Path(gettempdir())) as directory:
        rows: list[tuple[str, float, float]] = []
        for tokens, messages in ((200, 100), (16, 3_700)):
            log = entries(tokens, messages)
            count = tokens * messages
            unit = best(partial(plain_write, directory, log)) / count
            measures: list[tuple[str, Callable[[], float]]] = [
                ("plain write", partial(plain_write, directory, log)),
                ("frames alone", partial(encoding, log)),
                ("site, process", partial(site_store, directory, log, StoreSettings())),
                ("site, power", partial(site_store, directory, log, StoreSettings(Durability.POWER))),
                ("outbox, one by one", partial(outbox_store, directory, log, 1)),
                ("outbox, groups of 32", partial(outbox_store, directory, log, 32)),
                ("restart, all of it", partial(restart, directory, log)),
            ]
            for title, measure in measures:
                seconds = best(measure) / count
                rows.append((f"{title}, tokens of {messages}", seconds, seconds / unit))
    if chosen.json:
        print(json.dumps({title: {"ns": seconds * 1e9, "ratio": ratio} for title, seconds, ratio in rows}))
        return
    for title, seconds, ratio in rows:
        print(f"{title:<38}{seconds * 1e9:>9.0f} ns a message {ratio:>8.2f} × a plain write")


if __name__ == "__main__":
    main()
