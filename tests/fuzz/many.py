"""Millions of hostile inputs for each target of `targets.py`, in one process without instrumentation.

    make fuzz-many ARGS="--jobs 2"                every target, or those that ARGS names; two at a time
    python -m tests.fuzz.many --list              what there is, and how many minutes each takes on this machine
    python -m tests.fuzz.many packets --seed 7 --from 3000000
    python -m tests.fuzz.many doors --count 100000 --json

Three inputs of four are valid ones that were changed: bits flipped, numbers at their limits, lengths that lie, cuts,
splices of two, repetitions; the others are random bytes. The run ends with what a target does not refuse as it should,
with what takes far too long, and with memory that grows; the last input is kept as a file, which `--again FILE` sends
in once more. Progress shows CPU for each input, how many were accepted, the slowest, and by how much memory has grown
since the first tenth. How far each target is, is kept beside the failing inputs, by a digest of all source that the
targets run: a run that was interrupted goes on there, and begins anew when that source has changed, or with `--fresh`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from ctypes import CDLL
from dataclasses import asdict, dataclass
from hashlib import blake2b, sha256
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from types import FrameType

import structlog
from tests.fuzz.targets import TARGETS, Target

__all__ = ["Figures", "GrownError", "HungError", "Mutator", "Progress", "run"]

HANG_S = 30
"""For a batch: a thousand times what one takes, on a machine that has other work."""
BATCH = 500
GROWN_MIB_MAX = 64
"""What caches, and memory that the C library does not give back, may take."""
_CHUNK = 200 * BATCH
"""Between two notes of progress."""
_SAMPLE = 4 * BATCH
"""Inputs by which a target's time is told beforehand."""
_RANDOM_BYTES_MAX = 600
_ROOT = Path(__file__).parents[2]
_ABOVE = ("cli", "lake", "simulation", "studies", "trials")
"""Rooms that no target runs."""
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
    tell: Callable[[str, int], None] = lambda _line, _inputs: None,
    *,
    first: int = 0,
    grown_mib_max: int = GROWN_MIB_MAX,
) -> Figures:
    """Send in so many inputs of a seed, from the batch of the `first` on.

    What fails is kept below `crashes`, and raised. `tell` hears now and then how far it is, and after how many inputs.
    The same seed and number give the same input, wherever a run begins.
    """
    mutator, crowd = Mutator(target.seeds(), seed), _Crowd(target)
    gc.freeze()  # What is loaded by now stays: it need not be looked through each time.
    former = signal.signal(signal.SIGALRM, _hung)
    try:
        for start in range(0, count, BATCH):
            signal.setitimer(signal.ITIMER_REAL, HANG_S)
            mutator.begin((first + start) // BATCH)
            await crowd.send([mutator.next() for _ in range(min(BATCH, count - start))])
            if start <= count // 10 < start + BATCH:
                crowd.settle()
            elif start % _CHUNK == 0:
                tell(str(crowd.figures), crowd.figures.inputs)
            crowd.figures.check_growth(grown_mib_max)
            await asyncio.sleep(0)  # The loop forgets timers that were cancelled.
    except Exception as reason:
        if crashes is not None:
            reason.add_note(f"kept as {_kept(crashes, target, crowd.last)}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        gc.unfreeze()
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


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a target is with the inputs of a seed, in a file of its own."""

    path: Path
    source: str
    """The digest of what it runs."""

    def done(self) -> int:
        """Inputs that went in without a fault; none of other source, or of a file that is damaged."""
        try:
            found = json.loads(self.path.read_bytes())
            return int(found["inputs"]) if found["source"] == self.source else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def note(self, inputs: int) -> None:
        """So many have gone in."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps({"source": self.source, "inputs": inputs}), encoding="ascii")
        draft.replace(self.path)


def _source_digest() -> str:
    """Of all that targets run, and of the targets."""
    state = blake2b(digest_size=8)
    rooms = [path for path in sorted((_ROOT / "src/isocast").iterdir()) if path.name not in _ABOVE]
    files = [file for room in rooms for file in ([room] if room.is_file() else sorted(room.rglob("*.py")))]
    tests = [*sorted((_ROOT / "tests/fuzz").glob("*.py")), *sorted((_ROOT / "tests").rglob("*hostile*.py"))]
    for file in (*files, *tests):
        state.update(file.relative_to(_ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return state.hexdigest()


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
    parser.add_argument("--from", type=int, dest="first", help="begin at this input of the seed, whatever was done")
    parser.add_argument("--fresh", action="store_true", help="begin at the first input, whatever was done")
    parser.add_argument("--jobs", type=int, default=1, help="targets at once, each in a process of its own")
    parser.add_argument("--list", action="store_true", help="try each target for a moment, and tell how long it takes")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else")
    parser.add_argument("--crashes", type=Path, default=Path(".cache/fuzz"), help="where failing inputs are kept")
    parser.add_argument("--memory-mib", type=int, default=2_048, help="address space of a process at most")
    parser.add_argument("--grown-mib", type=int, default=GROWN_MIB_MAX, help="by how much memory may grow")
    parser.add_argument("--again", type=Path, help="send in this file once more, to one target")
    return parser


def _attack(name: str, asked: argparse.Namespace, source: str) -> dict[str, object]:
    """One target from where it stands to the end: what it showed, or the fault that ended it."""
    target = TARGETS[name]
    progress = Progress(asked.crashes / "progress" / f"{name}-{asked.seed}.json", source)
    count = min(asked.count, target.most)
    begun = asked.first if asked.first is not None else 0 if asked.fresh else min(progress.done(), count)
    shown: dict[str, object] = {"target": name, "what": target.what, "wanted": count, "before": begun}
    _limit(asked.memory_mib)

    def tell(line: str) -> None:
        if not asked.json:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()

    def going_on(line: str, inputs: int) -> None:
        if asked.first is None:
            progress.note(begun + inputs)
        tell(f"  {line}")

    left = count if asked.first is not None else count - begun
    if not left:
        tell(f"{name:16} {count:>11,} inputs  went in before; --fresh sends them again")
        return {**shown, "inputs": 0}
    work = run(
        target, left, asked.seed, asked.crashes, going_on, first=begun, grown_mib_max=asked.grown_mib
    )  # fmt: skip
    try:
        figures = asyncio.run(work)
    except Exception as reason:  # noqa: BLE001 - whatever a target raises is its fault, and the report names it
        fault = " ".join([f"{type(reason).__name__}: {reason}", *getattr(reason, "__notes__", ())])
        tell(f"{name:16} FAILED  {fault}")
        return {**shown, "fault": fault}
    if asked.first is None:
        progress.note(count)
    tell(str(figures))
    return {**shown, **asdict(figures)}


def _limit(memory_mib: int) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))


def _expected(names: Sequence[str], count: int) -> list[dict[str, object]]:
    """What there is, and how long so many inputs take here, by a sample of each."""
    found: list[dict[str, object]] = []
    for name in names:
        target = TARGETS[name]
        sample = _SAMPLE if target.most > 100 * _SAMPLE else BATCH
        asyncio.run(_sampled(target, sample))  # Modules are loaded, caches filled.
        each = asyncio.run(_sampled(target, sample)) / sample
        inputs = min(count, target.most)
        found.append(
            {
                "target": name,
                "what": target.what,
                "inputs": inputs,
                "us_each": round(1e6 * each, 1),
                "minutes": round(inputs * each / 60, 1),
            }
        )
    return found


async def _sampled(target: Target, count: int) -> float:
    """Seconds of CPU for so many inputs, without what a whole run costs once."""
    mutator, crowd, begun = Mutator(target.seeds(), 1), _Crowd(target), process_time()
    for batch in range(max(count // BATCH, 1)):
        mutator.begin(batch)
        await crowd.send([mutator.next() for _ in range(min(count, BATCH))])
    return process_time() - begun


def _show_expected(rows: Sequence[dict[str, object]]) -> None:
    for row in rows:
        told = f"{row['target']:16} {row['inputs']:>11,} inputs  {row['us_each']:>8} us each  {row['minutes']:>7} min"
        sys.stdout.write(f"{told}  {row['what']}\n")
    total = sum([float(str(row["minutes"])) for row in rows])
    sys.stdout.write(f"{total:.0f} minutes of one processor in all; --jobs N divides them.\n")


def _attack_all(names: Sequence[str], asked: argparse.Namespace) -> list[dict[str, object]]:
    source = _source_digest()
    if asked.jobs == 1:
        return [_attack(name, asked, source) for name in names]
    # A process for each target: what one leaves in memory is none of another's.
    with ProcessPoolExecutor(asked.jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        return list(pool.map(_attack, names, [asked] * len(names), [source] * len(names)))


def main() -> int:
    """From the command line."""
    parser = _parser()
    asked = parser.parse_args()
    unknown = [name for name in asked.targets if name not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}: {', '.join(TARGETS)}")
    if asked.jobs < 1:
        parser.error("--jobs must be 1 or more")
    names = asked.targets or list(TARGETS)
    if asked.again is not None:
        _limit(asked.memory_mib)
        sys.stdout.write(f"accepted: {asyncio.run(_again(TARGETS[names[0]], asked.again.read_bytes()))}\n")
        return 0
    if asked.list:
        _limit(asked.memory_mib)
        rows = _expected(names, asked.count)
        sys.stdout.write(f"{json.dumps(rows, indent=2)}\n") if asked.json else _show_expected(rows)
        return 0
    shown = _attack_all(names, asked)
    if asked.json:
        report = {"source": _source_digest(), "seed": asked.seed, "count": asked.count, "targets": shown}
        sys.stdout.write(f"{json.dumps(report, indent=2)}\n")
    return 1 if any("fault" in one for one in shown) else 0


if __name__ == "__main__":
    sys.exit(main())
