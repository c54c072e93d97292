"""How fast ITCH 5.0 is decoded: messages a second, against itchfeed and meatpy in the same run.

    python bench/itch.py [--json] [--messages N] [FILE]

Without a file, a day of orders is made in memory: in the mix of a real day, 45 of 100 messages enter an order, 40
delete one, the rest execute, replace and cancel, and thousands of orders stand at any time. FILE is an ITCH 5.0
file, plain or gz, read into memory first. All decoders get the same bytes; time is CPU time, the least of several
rounds, taken in turns.

`events` is everything that a feed needs: bounds of messages, checks, the book that knows each execution's price and
side, canonical event records in order. `records` stops where the others stop too: every message's fields. itchfeed
and meatpy give one Python object for each message. Both are installed by `make setup`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

import numpy as np

from isocast.feeds.itch_layout import LAYOUTS, PREFIX_BYTES, records_at
from isocast.feeds.itch_reader import ItchDecoder, find_messages
from isocast.feeds.itch_writer import ItchWriter
from isocast.feeds.outcomes import FeedLog
from isocast.terms.market import EventFlag, EventKind, Mic, Side
from isocast.wire.events import EVENT_DTYPE, EventArray

ROUNDS = 3
CHUNK = 1 << 21
AIM = 10
SYMBOLS = 2_000
CLOSE_NS = 23_400_000_000_000


def order_day(messages: int, seed: int = 1) -> EventArray:
    """Orders that are entered, and what becomes of them, in the order of time."""
    random = np.random.default_rng(seed)
    orders = messages * 45 // 100
    symbol = np.array([f"S{number:05d}" for number in range(SYMBOLS)], "S8")[random.zipf(1.3, orders) % SYMBOLS]
    entered = np.sort(random.integers(0, CLOSE_NS, orders))
    lives = random.exponential(20_000_000_000, orders).astype(np.int64) + 2
    base = np.zeros(orders, EVENT_DTYPE)
    base["kind"], base["floor"], base["symbol"] = EventKind.ORDER, b"XNAS", symbol
    base["side"] = np.where(random.random(orders) < 0.5, int(Side.BUY), int(Side.SELL))  # noqa: PLR2004
    base["price"] = random.integers(1, 5_000, orders) * 100
    base["quantity"] = random.integers(2, 20, orders) * 100
    base["time"], base["id"] = entered, np.arange(1, orders + 1) * 3
    base["reference"] = np.where(random.random(orders) < 0.02, int.from_bytes(b"NITE"), 0)  # noqa: PLR2004

    fate = random.random(orders)
    parts = [base]
    for low, high, what in ((0.0, 0.88, "delete"), (0.88, 0.95, "execute"), (0.95, 1.0, "replace")):
        own = base[(fate >= low) & (fate < high)].copy()
        own["time"] += lives[(fate >= low) & (fate < high)].astype(np.uint64)
        if what == "replace":
            new = own.copy()
            new["id"] += 1
            own["flags"] = EventFlag.LINKED
            own["kind"], own["price"], own["side"], own["quantity"] = EventKind.CANCEL, 0, 0, 0
            parts.append(np.stack([own, new], axis=1).reshape(-1))
            continue
        own["kind"] = EventKind.CANCEL if what == "delete" else EventKind.EXECUTION
        if what == "delete":
            own["price"], own["side"], own["quantity"] = 0, 0, 0
        else:
            own["reference"] = np.arange(1, len(own) + 1)
        parts.append(own)
    events = np.concatenate(parts)
    return events[np.argsort(events["time"], kind="stable")]


def ours(raw: bytes) -> int:
    """Everything, to canonical events."""
    decoder = ItchDecoder(Mic("XNAS"), 0, FeedLog("bench"))
    for _ in decoder.blocks(raw[at : at + CHUNK] for at in range(0, len(raw), CHUNK)):
        pass
    return decoder.log.total_messages


def records(raw: bytes) -> int:
    """Bounds and fields of every message, type by type."""
    log = FeedLog("bench")
    found, offset, rest = 0, 0, b""
    for at in range(0, len(raw), CHUNK):
        whole = rest + raw[at : at + CHUNK]
        block = np.frombuffer(whole, np.uint8)
        places, done = find_messages(block, log, offset, last=at + CHUNK >= len(raw))
        types = block[places + PREFIX_BYTES]
        for code in np.flatnonzero(np.bincount(types, minlength=256)).tolist():
            found += len(records_at(block, places[types == code] + PREFIX_BYTES, LAYOUTS[chr(code)]))
        rest, offset = whole[done:], offset + done
    return found


def itchfeed(raw: bytes) -> int:
    """Every message as an object of itchfeed."""
    here = str(Path(__file__).parent)
    sys.path[:] = [folder for folder in sys.path if folder != here]  # Its package has the name of this script.
    from itch.parser import MessageParser  # noqa: PLC0415

    return sum(1 for _ in MessageParser().parse_file(io.BytesIO(raw)))


def meatpy(raw: bytes) -> int:
    """Every message as an object of meatpy."""
    from meatpy.itch50 import ITCH50MessageReader  # noqa: PLC0415

    return sum(1 for _ in ITCH50MessageReader()._read_messages(io.BytesIO(raw)))  # noqa: SLF001


def rates(raw: bytes) -> dict[str, float]:
    """Messages for each second of CPU; the decoders take turns, so that a busy moment hits all."""
    best: dict[str, float] = {}
    decoders: dict[str, Callable[[bytes], int]] = {
        "events": ours,
        "records": records,
        "itchfeed": itchfeed,
        "meatpy": meatpy,
    }
    for _ in range(ROUNDS):
        for name, decode in decoders.items():
            began = process_time()
            try:
                count = decode(raw)
            except ImportError:
                print(f"{name} is not installed: make setup installs it", file=sys.stderr)
                continue
            best[name] = max(best.get(name, 0.0), count / (process_time() - began))
    return best


def load(file: Path | None, messages: int) -> tuple[str, bytes]:
    """The bytes to decode, and where they are from."""
    if file is not None:
        raw = file.read_bytes()
        return str(file), gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    return "a made day", ItchWriter(0, FeedLog("bench")).write(order_day(messages))


def main() -> None:
    """Print the rates and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="ITCH 5.0, plain or gz; if left out, a day is made")
    parser.add_argument("--messages", type=int, default=400_000, help="of a made day")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    if chosen.file is not None and not chosen.file.is_file():
        parser.error(f"{chosen.file} is no file")
    name, raw = load(chosen.file, chosen.messages)
    found = rates(raw)
    ratios = {
        f"{mine}_over_{peer}": found[mine] / found[peer]
        for mine in ("events", "records")
        for peer in ("itchfeed", "meatpy")
        if peer in found
    }
    if chosen.json:
        print(json.dumps({"bytes": len(raw), "messages_per_s": found, "ratios": ratios}, indent=2))
        return
    print(f"{name}: {len(raw) / 1e6:.1f} MB of ITCH 5.0")
    for decoder, rate in found.items():
        print(f"  {decoder:10} {rate / 1e6:8.3f} million messages a second of CPU")
    for pair, ratio in ratios.items():
        print(f"  {pair.replace('_', ' '):24} {ratio:6.1f} times{'' if ratio >= AIM else f' (the aim is {AIM})'}")


if __name__ == "__main__":
    main()
