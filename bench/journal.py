"""What a journal costs: CPU time to append releases and to read them again, against plain writes of the same bytes.

    python bench/journal.py [--json] [--directory DIR]

Payloads carry 27 events of 48 bytes; a block holds the messages of one release step. Ratios count more than
microseconds on a shared machine: each row is also given as a multiple of writing the block with one plain os.write,
measured in the same run. Every round verifies what it wrote. Without a directory the files lie in a temporary one.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from time import process_time

import numpy as np
from scratch import folder

from isocast.runtime.disk.journal import Journal
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.runtime.disk.journal_verify import verify
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.market import EventKind, Mic, Symbol
from isocast.wire.events import MarketEvent, build_events, pack_events
from isocast.wire.journal_blocks import ReleasedBlock, encode_block
from isocast.wire.packets import digest_of

ROUNDS = 5
EVENTS_PER_MESSAGE = 27
TOTAL_MESSAGES = 60_000
"""80 MB: more than one segment."""
BYTES = 6 * TOTAL_MESSAGES * EVENTS_PER_MESSAGE * 48
"""That lie there at once, about: a journal for each size, and as many plain files."""


def best(measure: Callable[[], float]) -> float:
    """The least of several rounds: what the machine does when nobody disturbs it."""
    return min(measure() for _ in range(ROUNDS))


def blocks(size: int) -> list[ReleasedBlock]:
    """Tokens of `size` messages from twenty sources, released whole."""
    row = MarketEvent(EventKind.TRADE, Mic("XNYS"), Symbol("ISO"), price=1_812_500, quantity=100)
    payload = pack_events(build_events([row._replace(id=number) for number in range(EVENTS_PER_MESSAGE)]))
    digest = digest_of(payload)
    made = []
    for token in range(TOTAL_MESSAGES // size):
        first = token * size
        messages = [
            (source_id(place % 20 + 1), place // 20 + 1, digest, payload) for place in range(first, first + size)
        ]
        instant = token * 1_000_000
        made.append(
            ReleasedBlock(
                epoch=Epoch(1, server_id(1)),
                token_number=token + 1,
                token_count=size,
                place=0,
                first_sequence=first + 1,
                instant=instant,
                due=instant + 50_000_000,
                released_at=instant + 50_000_100,
                clock_bound_ns=1_000,
                shuffle_key=bytes(16),
                messages=messages,
            )
        )
    return made


def plain_write(folder: Path, pieces: list[bytes]) -> float:
    """Seconds to write what was encoded before."""
    fd = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    began = process_time()
    for piece in pieces:
        os.write(fd, piece)
    taken = process_time() - began
    os.close(fd)
    (folder / "plain").unlink()
    return taken


def empty(folder: Path) -> None:
    """Remove the segments of an earlier round."""
    for path in folder.glob("*.isoj"):
        path.unlink()


def append(folder: Path, released: list[ReleasedBlock]) -> float:
    """Seconds to append all blocks."""
    empty(folder)
    with Journal.open(folder, 0, 1) as journal:
        began = process_time()
        for block in released:
            journal.append(block)
        return process_time() - began


def view(folder: Path, *, check: bool, touch: bool) -> float:
    """Seconds to view all events, and to look at one column of them."""
    began = process_time()
    count = quantity = 0
    for block in read_blocks(folder, check=check):
        events = block.events
        count += len(events)
        if touch:
            quantity += int(events["quantity"].sum(dtype=np.int64))
    taken = process_time() - began
    assert count == TOTAL_MESSAGES * EVENTS_PER_MESSAGE  # noqa: S101
    assert not touch or quantity == 100 * count  # noqa: S101
    return taken


def examine(folder: Path) -> float:
    """Seconds to verify everything."""
    began = process_time()
    report = verify(folder)
    taken = process_time() - began
    assert report.is_sound, report.faults[:1]  # noqa: S101
    assert report.messages == TOTAL_MESSAGES  # noqa: S101
    return taken


def measure(folder: Path, size: int) -> tuple[float, list[tuple[str, float]]]:
    """The unit, and every row, in seconds for all messages."""
    released = blocks(size)
    pieces = [b"".join(encode_block(block).pieces) for block in released]
    unit = best(lambda: plain_write(folder, pieces))
    rows = [
        ("append", best(lambda: append(folder, released))),
        ("verify", best(lambda: examine(folder))),
        ("view, checked", best(lambda: view(folder, check=True, touch=False))),
        ("view", best(lambda: view(folder, check=False, touch=False))),
        ("view, one column summed", best(lambda: view(folder, check=False, touch=True))),
    ]
    empty(folder)
    return unit, rows


def main() -> None:
    """Print the rows for small and large blocks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="where to write; if left out, where temporary files go")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    if chosen.directory is not None and not chosen.directory.is_dir():
        parser.error(f"{chosen.directory} is no directory")
    events = TOTAL_MESSAGES * EVENTS_PER_MESSAGE
    found: dict[str, dict[str, dict[str, float]]] = {}
    with folder(needed=BYTES, within=chosen.directory or Path(gettempdir())) as place:
        for size in (10, 75, 300):
            unit, rows = measure(place, size)
            found[f"{size} messages a block"] = {
                name: {
                    "us_per_message": seconds / TOTAL_MESSAGES * 1e6,
                    "events_per_second": events / seconds,
                    "ratio": seconds / unit,
                }
                for name, seconds in [("plain os.write", unit), *rows]
            }
    if chosen.json:
        print(json.dumps(found))
        return
    for title, table in found.items():
        print(title)
        for name, row in table.items():
            rate = row["events_per_second"] / 1e6
            print(
                f"  {name:<26}{row['us_per_message']:>8.3f} µs/message {rate:>9.1f} M events/s {row['ratio']:>7.2f} ×"
            )


if __name__ == "__main__":
    main()
