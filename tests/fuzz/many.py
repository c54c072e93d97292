"""Millions of hostile inputs for each target of `targets.py`, in one process without instrumentation.

    make fuzz-many ARGS="--count 100000"          every target, or those that ARGS names
    python -m tests.fuzz.many packets --seed 7 --from 3000000

Three inputs of four are valid ones that were changed: bits flipped, numbers at their limits, lengths that lie, cuts,
splices of two, repetitions; the others are random bytes. The run ends with what a target does not refuse as it should,
with what takes far too long, and with memory that grows; the last input is kept as a file, which `--again FILE` sends
in once more. Progress shows CPU for each input, how many were accepted, the slowest, and by how much memory has grown
since the first tenth. A run that was interrupted goes on with `--from`, at the last number that it showed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from ctypes import CDLL
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from types import FrameType

import structlog
from tests.fuzz.targets import TARGETS, Target

__all__ = ["Figures", "GrownError", "HungError", "Mutator", "run"]

HANG_S = 30
"""For a batch: a thousand times what one takes, on a machine that has other work."""
BATCH = 500
GROWN_MIB_MAX = 64
"""What caches, and memory that the C library does not give back, may take."""
_RANDOM_BYTES_MAX = 600
_GROWN_MAX = 1 << 16
"""Bytes beyond which repetitions do not make an input longer."""
_EDGES = (
    b"\0", b"\xff", b"\1", b"\x7f", b"\x80", b"\xff\xff", b"\0\1", b"\1\0", b"\xff" * 4, b"\0" * 4, b"\xff" * 8,
    b"\0" * 8, b"\xff\xff\xff\x7f", b"\x7f\xff\xff\xff", b"\xff" * 7 + b"\x7f", b"\r\n", b'"', b"{", b"]", b"%00",
    b"\xc3\x28", b"-1", b"1e999", b"9" * 25,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figures:
    """What one target showed."""

    target: str
    inputs: int
    accepted: int
    seconds: float
    """Of this process' CPU."""
    slowest_ms: float
    """The slowest batch, for one of its inputs."""
    grown_kib: int
    """Of the resident set, since a tenth of the inputs had gone in."""
    grown_blocks: int
    """Of Python's memory, since then."""

    def check_growth(self, most_mib: int) -> None:
        """GrownError where memory grew by more."""
        if self.grown_kib > most_mib << 10:
            raise GrownError(f"memory grew by {self.grown_kib:,} KiB in {self.inputs:,} inputs")

    def __str__(self) -> str:
        each = 1e6 * self.seconds / max(self.inputs, 1)
        return (
            f"{self.target:16} {self.inputs:>11,} inputs  {self.accepted:>10,} accepted  {each:7.1f} us each"
            f"  slowest batch {self.slowest_ms:.2f} ms each"
            f"  grown by {self.grown_kib:,} KiB, {self.grown_blocks:,} blocks"
        )


class Mutator:
    """Makes inputs of seeds, batch by batch; the same ones for the same number and batch."""

    def __init__(self, seeds: Sequence[bytes], seed: int) -> None:
        """The first byte of a seed says which way in it takes; it stays."""
        self._seed = seed
        self._random = Random()
        self._seeds = seeds
        self._changes: tuple[Callable[[bytearray], None], ...] = (
            self._flip, self._flip, self._flip, self._edge, self._edge, self._cut, self._splice, self._repeat,
            self._lie,
        )  # fmt: skip

    def begin(self, batch: int) -> None:
        """What follows is of this batch."""
        self._random.seed(f"{self._seed}/{batch}")

    def next(self) -> bytes:
        """Another input."""
        drawn = self._random.getrandbits(32)
        seed = self._seeds[(drawn >> 8) % len(self._seeds)]
        if drawn & 3 == 0:
            return seed[:1] + self._random.randbytes(self._random.randrange(_RANDOM_BYTES_MAX) >> (drawn >> 2 & 7))
        raw = bytearray(seed)
        for _ in range((1, 1, 2, 4)[drawn >> 2 & 3]):
            self._changes[self._random.getrandbits(24) % len(self._changes)](raw)
        return bytes(raw)

    def _place(self, raw: bytearray) -> int:
        return 1 + self._random.getrandbits(24) % max(len(raw) - 1, 1)

    def _flip(self, raw: bytearray) -> None:
        at = self._place(raw)
        if at < len(raw):
            raw[at] ^= 1 << (self._random.getrandbits(3))

    def _edge(self, raw: bytearray) -> None:
        """A number at its limit, over what was there or between."""
        at, edge = self._place(raw), _EDGES[self._random.getrandbits(16) % len(_EDGES)]
        raw[at : at + (len(edge) if self._random.getrandbits(2) else 0)] = edge

    def _cut(self, raw: bytearray) -> None:
        """Shorter, at the end or in the middle."""
        at = self._place(raw)
        end = len(raw) if self._random.getrandbits(1) else at + 1 + self._random.getrandbits(4)
        del raw[at:end]

    def _splice(self, raw: bytearray) -> None:
        """The beginning of one, the end of another."""
        other = self._seeds[self._random.getrandbits(16) % len(self._seeds)]
        raw[self._place(raw) :] = other[1 + self._random.getrandbits(24) % max(len(other) - 1, 1) :]

    def _repeat(self, raw: bytearray) -> None:
        """Something is there more often than it should be."""
        at = self._place(raw)
        piece = bytes(raw[at : at + 1 + self._random.getrandbits(5)])
        if len(raw) < _GROWN_MAX:
            raw[at:at] = piece * (1 + self._random.getrandbits(4))

    def _lie(self, raw: bytearray) -> None:
        """A small number that is a little larger or smaller: mostly a length or a count."""
        at = self._place(raw)
        if at < len(raw):
            raw[at] = (raw[at] + self._random.choice((-2, -1, 1, 2, 16))) & 0xFF


class HungError(Exception):
    """A batch took far too long."""


class GrownError(Exception):
    """Memory grew from input to input."""


def _hung(_: int, __: FrameType | None) -> None:
    raise HungError(f"longer than {HANG_S} s")


async def run(
    target: Target,
    count: int,
    seed: int = 1,
    crashes: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
    *,
    first: int = 0,
    grown_mib_max: int = GROWN_MIB_MAX,
) -> Figures:
    """Send in so many inputs of a seed, from the batch of the `first` on.

    What fails is kept below `crashes`, and raised. The same seed and number give the same input, wherever a run begins.
    """
    mutator, crowd = Mutator(target.seeds(), seed), _Crowd(target)
    former = signal.signal(signal.SIGALRM, _hung)
    try:
        for start in range(0, count, BATCH):
            signal.setitimer(signal.ITIMER_REAL, HANG_S)
            mutator.begin((first + start) // BATCH)
            await crowd.send([mutator.next() for _ in range(min(BATCH, count - start))])
            if start <= count // 10 < start + BATCH:
                crowd.settle()
            elif start % (BATCH * 200) == 0:
                tell(str(crowd.figures))
            crowd.figures.check_growth(grown_mib_max)
            await asyncio.sleep(0)  # The loop forgets timers that were cancelled.
    except Exception as reason:
        if crashes is not None:
            reason.add_note(f"kept as {_kept(crashes, target, crowd.last)}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    _tidy()
    return crowd.figures


class _Crowd:
    """Everybody who sends something into a target, and what that cost."""

    def __init__(self, target: Target) -> None:
        """Nobody has yet."""
        self.last = b""
        self._target = target
        self._begun, self._cpu_begun = perf_counter(), process_time()
        self._settled_kib, self._settled_blocks = _resident_kib(), sys.getallocatedblocks()
        self._inputs = self._accepted = 0
        self._slowest_s = 0.0

    async def send(self, inputs: Sequence[bytes]) -> None:
        """A batch."""
        since, examine = perf_counter(), self._target.examine
        for data in inputs:
            self.last = data
            verdict = examine(data)
            self._accepted += verdict if isinstance(verdict, bool) else await verdict
        self._inputs += len(inputs)
        self._slowest_s = max(self._slowest_s, (perf_counter() - since) / len(inputs))

    def settle(self) -> None:
        """What memory there is now is that of a target at work: from here on it must not grow."""
        _tidy()
        self._settled_kib, self._settled_blocks = _resident_kib(), sys.getallocatedblocks()

    @property
    def figures(self) -> Figures:
        """Up to now."""
        return Figures(
            self._target.name,
            self._inputs,
            self._accepted,
            process_time() - self._cpu_begun,
            1e3 * self._slowest_s,
            _resident_kib() - self._settled_kib,
            sys.getallocatedblocks() - self._settled_blocks,
        )


def _kept(crashes: Path, target: Target, data: bytes) -> Path:
    crashes.mkdir(parents=True, exist_ok=True)
    path = crashes / f"{target.name}-{sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return path


def _tidy() -> None:
    """Give back what nobody uses: what the C library keeps after slow hashes of many sizes is no leak."""
    gc.collect()
    trim = getattr(CDLL(None), "malloc_trim", None)  # Not every C library has it.
    if trim is not None:
        trim(0)


def _resident_kib() -> int:
    """Of this process now."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() // 1024


async def _again(target: Target, data: bytes) -> bool:
    verdict = target.examine(data)
    return verdict if isinstance(verdict, bool) else await verdict


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Send hostile inputs into decoders and services.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of: {', '.join(TARGETS)}; default: all")
    parser.add_argument("--count", type=int, default=10_000_000, help="inputs for each target")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other inputs")
    parser.add_argument("--from", type=int, default=0, dest="first", help="go on from this input of the seed")
    parser.add_argument("--crashes", type=Path, default=Path(".cache/fuzz"), help="where failing inputs are kept")
    parser.add_argument("--memory-mib", type=int, default=2_048, help="address space of this process at most")
    parser.add_argument("--grown-mib", type=int, default=GROWN_MIB_MAX, help="by how much memory may grow")
    parser.add_argument("--again", type=Path, help="send in this file once more, to one target")
    return parser


def main() -> int:
    """From the command line."""
    parser = _parser()
    asked = parser.parse_args()
    unknown = [name for name in asked.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}: {', '.join(TARGETS)}")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    resource.setrlimit(resource.RLIMIT_AS, (asked.memory_mib << 20, asked.memory_mib << 20))
    chosen = [TARGETS[name] for name in asked.targets or TARGETS]
    if asked.again is not None:
        sys.stdout.write(f"accepted: {asyncio.run(_again(chosen[0], asked.again.read_bytes()))}\n")
        return 0

    def tell(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    for target in chosen:
        count = min(asked.count, target.most)
        work = run(
            target, count, asked.seed, asked.crashes, lambda line: tell(f"  {line}"),
            first=asked.first, grown_mib_max=asked.grown_mib,
        )  # fmt: skip
        tell(str(asyncio.run(work)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
