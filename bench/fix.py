"""FIX orders a second: parsed, checked, through the session, and at the door by TCP with every number on disk.

    python bench/fix.py [--json] [--orders 20000]

Each row is CPU and wall time of this process, server and client together where there are two, and a multiple of the
first: bytes split at SOH and at =, which no FIX engine does without. Every row checks what came out. In the rows by TCP
one order gets one ExecutionReport; numbers and reports are durable (fsync) before they are sent, shared by what arrives
together: the rows differ in how many orders a client has under way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from tempfile import gettempdir
from time import perf_counter, process_time, time_ns

from scratch import folder

from isocast.runtime.accounts.fix.connection import Outgoing
from isocast.runtime.accounts.fix.dictionary import fault_of
from isocast.runtime.accounts.fix.messages import Framer, Message, decode, encode, utc_text
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.session import Deliver, Session
from isocast.runtime.accounts.fix.store import SessionStore

ROUNDS = 3
READ = 65_536
OURS, THEIRS = "ISOCAST", "TRADER"
BYTES = 64 << 20
"""On disk at once, at most."""


def message(number: int, kind: str, body: Sequence[tuple[int, str]]) -> bytes:
    """As a client sends it."""
    header = [(34, str(number)), (49, THEIRS), (52, utc_text(time_ns())), (56, OURS)]
    return encode(kind, header, body)


def orders(count: int, first: int = 2) -> list[bytes]:
    """NewOrderSingle, one after the other."""
    time = utc_text(time_ns())
    rest = [(38, "100"), (40, "2"), (44, "10.05"), (54, "1"), (55, "XISO"), (59, "0"), (60, time)]
    return [message(number, "D", [(11, f"order-{number}"), (21, "1"), *rest]) for number in range(first, first + count)]


def split(frames: list[bytes]) -> int:
    """The yardstick: nothing but the fields."""
    stream = b"".join(frames)
    found = [part.split(b"=", 1) for part in stream.split(b"\x01") if part]
    return sum(tag == b"10" for tag, _ in found)


def parsed(frames: list[bytes]) -> int:
    """Framer and codec."""
    framer = Framer()
    stream = b"".join(frames)
    count = 0
    for start in range(0, len(stream), READ):
        count += sum(decode(frame) is not None for frame in framer.feed(stream[start : start + READ]))
    return count


def checked(frames: list[bytes]) -> int:
    """Codec and dictionary."""
    messages = [decode(frame) for frame in frames]
    return sum(each is not None and fault_of(each) is None for each in messages)


def in_session(frames: list[bytes]) -> int:
    """Everything that the session does, without a store."""
    session = Session(OURS, THEIRS)
    now = time_ns()
    logon = decode(message(1, "A", [(98, "0"), (108, "30")]))
    assert logon is not None  # noqa: S101
    session.log_on(logon, now)
    count = 0
    for frame in frames:
        effects = session.receive(frame, now)
        count += isinstance(effects[0], Deliver)
        session.send("8", REPORT, now)
    return count


REPORT = [
    (1, "7"), (6, "0"), (11, "order"), (14, "0"), (17, "7-1"), (37, "30064771073"), (38, "100"), (39, "A"), (40, "2"),
    (44, "10.05"), (54, "1"), (55, "XISO"), (59, "0"), (60, "20231114-22:13:20.000"), (150, "A"), (151, "100"),
]  # fmt: skip


class Answering:
    """Reports every order as accepted."""

    account = 7

    async def handle(self, order: Message) -> Sequence[Outgoing]:
        """One report."""
        return [Outgoing("8", [(11, order.first[11]) if tag == 11 else (tag, value) for tag, value in REPORT])]  # noqa: PLR2004

    async def reports(self, _after: int) -> AsyncGenerator[Outgoing, None]:
        """None of itself."""
        await asyncio.Event().wait()
        yield Outgoing("8", REPORT)

    async def leave(self) -> None:
        """Nothing to do."""


class Open:
    """Admits everybody."""

    async def admit(self, _logon: Message, _address: str, *, is_private: bool) -> Answering | None:
        """On loopback."""
        return Answering() if is_private else None


async def at_the_door(frames: list[bytes], under_way: int, path: Path) -> int:
    """Orders over TCP, so many at once; the reports that came back."""
    store = SessionStore(path, is_new=True)
    server = FixServer(OURS, Open(), store)
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1 << 20)
    writer.write(message(1, "A", [(98, "0"), (108, "0")]))
    await reader.readuntil(b"\x0110=")
    sent = heard = 0
    tail = b""
    while heard < len(frames):
        if sent < len(frames) and sent - heard <= under_way // 2:
            batch = frames[sent : heard + under_way]
            writer.write(b"".join(batch))
            sent += len(batch)
        data = tail + await reader.read(READ)
        heard += data.count(b"\x0135=8\x01")
        tail = data[-5:] if b"\x0135=8\x01" not in data[-6:] else b""
    writer.close()
    await server.cut()
    await store.close()
    return heard


def door(under_way: int) -> Callable[[list[bytes]], int]:
    """The same, from the beginning each time."""

    def run(frames: list[bytes]) -> int:
        with folder(needed=BYTES, within=Path(gettempdir())) as place:
            return asyncio.run(at_the_door(frames, under_way, place / "fix.db"))

    return run


def measured(work: Callable[[list[bytes]], int], count: int) -> tuple[float, float]:
    """CPU and wall seconds: the least of several rounds."""
    cpu = wall = float("inf")
    for _ in range(ROUNDS):
        frames = orders(count)
        began, began_cpu = perf_counter(), process_time()
        got = work(frames)
        wall, cpu = min(wall, perf_counter() - began), min(cpu, process_time() - began_cpu)
        if got != count:
            raise SystemExit(f"{got} of {count} orders came through")
    return cpu, wall


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true")
    options.add_argument("--orders", type=int, default=20_000)
    given = options.parse_args()
    works: dict[str, tuple[Callable[[list[bytes]], int], int]] = {
        "split at SOH and =": (split, given.orders),
        "framed and decoded": (parsed, given.orders),
        "decoded and checked": (checked, given.orders),
        "session, with a report": (in_session, given.orders),
        "door by TCP, 1,000 under way": (door(1_000), given.orders),
        "door by TCP, 100 under way": (door(100), given.orders // 2),
        "door by TCP, 1 under way": (door(1), given.orders // 20),
    }
    rows = []
    for name, (work, count) in works.items():
        cpu, wall = measured(work, count)
        rows.append({"what": name, "orders": count, "cpu_us": cpu / count * 1e6, "orders_a_second": count / wall})
    for row in rows:
        row["of_split"] = row["cpu_us"] / rows[0]["cpu_us"]
    if given.json:
        print(json.dumps({"rows": rows}))
        return
    print(f"{'':30} {'CPU µs/order':>12} {'× split':>8} {'orders/s':>10}")
    for row in rows:
        print(f"{row['what']:30} {row['cpu_us']:12.1f} {row['of_split']:8.1f} {row['orders_a_second']:10,.0f}")


if __name__ == "__main__":
    main()
