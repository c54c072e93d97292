"""An attacker on the market's own network: hears every group, records, forges, and sends at whatever rate it likes.

It holds no key. What it sends is of two kinds:

    forgeries   noise, damage, wrong tags, strangers: every one must be counted as refused by everybody who hears it
    copies      authentic packets again, old ones and recent ones, to where they were meant for and to anywhere else
"""

import socket
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from random import Random
from threading import Event, Lock, Thread
from time import monotonic
from types import TracebackType
from typing import NamedTuple, Self

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.wire.limits import TAG_BYTES

__all__ = ["Aim", "Assault", "Recording", "aims_at", "forgery"]

_KIND_AT, _STRIPE_AT, _SENDER_AT = 3, slice(4, 6), slice(16, 24)
_BEAT_S = 0.01
_OLD = 400
_RECENT = 400


class Aim(NamedTuple):
    """Where packets are sent, and the nodes that read it."""

    address: str
    port: int
    hearers: tuple[str, ...]


def aims_at(market: Market) -> list[Aim]:
    """Every group and every direct port."""

    def names(plans: Iterable[NodePlan]) -> tuple[str, ...]:
        return tuple(plan.name for plan in plans)

    port = market.network.port
    found = [
        Aim(market.control_group(), port, names(market.control_members())),
        Aim(market.data_group(), port, names(market.data_members())),
    ]
    for plan in market.nodes:
        if plan.line:
            found.append(Aim(market.line_group(plan.name), port, names(market.line_listeners(plan.name))))
        if plan.role is not NodeRole.SECONDARY_SOURCE:  # It takes no packets.
            found.append(Aim(plan.address, plan.port, (plan.name,)))
    return found


class Recording:
    """What was heard: the first packets of the market, and the latest."""

    def __init__(self) -> None:
        self.count = 0
        self.kinds: Counter[int] = Counter()
        self._old: list[tuple[str, bytes]] = []
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=_RECENT)
        self._lock = Lock()

    def heard(self, group: str, frame: bytes) -> None:
        with self._lock:
            self.count += 1
            self.kinds[frame[_KIND_AT]] += 1
            if len(self._old) < _OLD:
                self._old.append((group, frame))
            else:
                self._recent.append((group, frame))

    def frames(self) -> list[tuple[str, bytes]]:
        """(group, frame), both halves."""
        with self._lock:
            return [*self._old, *self._recent]


def forgery(random: Random, frame: bytes) -> bytes:
    """Something made of a real frame, or of nothing, that no reader may believe."""
    signed = bytearray(frame[:-TAG_BYTES])
    match random.randrange(9):
        case 0:
            return random.randbytes(random.randrange(1_472))
        case 1:
            return frame[: random.randrange(len(frame))]
        case 2:
            bit = random.randrange(8 * len(frame))
            damaged = bytearray(frame)
            damaged[bit // 8] ^= 1 << bit % 8
            return bytes(damaged)
        case 3:
            return _tagged(random, signed)
        case 4:
            signed[_SENDER_AT] = random.choice((60_000, 65_999, 131_999, 999 << 32 | 7)).to_bytes(8, "little")
        case 5:
            signed[_STRIPE_AT] = random.randrange(1, 1_000).to_bytes(2, "little")
        case 6:
            signed[2] = random.choice((0, 2, 255))
        case 7:
            signed[_KIND_AT] = random.randrange(256)
        case _:
            return frame + random.randbytes(random.choice((1, 16, 7_000)))
    return _tagged(random, signed)


def _tagged(random: Random, signed: bytes | bytearray) -> bytes:
    """With a key of the attacker's own."""
    return bytes(signed) + blake2b(signed, digest_size=TAG_BYTES, key=random.randbytes(32)).digest()


class Assault:
    """Sends in a thread of its own, at an even rate, and tells what it sent to whom."""

    def __init__(
        self,
        aims: Sequence[Aim],
        own_address: str,
        rate: float,
        seed: int,
        *,
        forge: Recording | None = None,
        copies: Sequence[tuple[Aim, bytes]] = (),
        echo: Recording | None = None,
    ) -> None:
        """Forge from a recording, send these copies over and over, or copy what is being recorded."""
        self.forged: Counter[str] = Counter()
        """By the node that reads it."""
        self.copied: Counter[str] = Counter()
        self.sent = 0
        self._aims = aims
        self._rate = rate
        self._random = Random(seed)
        self._material = forge
        self._copies = copies
        self._echo = echo
        self._by_address = {aim.address: aim for aim in aims}
        self._enough = Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((own_address, 0))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own_address))
        self._thread = Thread(target=self._run, name="assault", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._enough.set()
        self._thread.join()
        self._socket.close()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        began = monotonic()
        try:
            while not self._enough.wait(_BEAT_S):
                due = int((monotonic() - began) * self._rate)
                while self.sent < due and not self._enough.is_set():
                    self._one()
        except Exception as reason:  # noqa: BLE001 - told by whoever waits for this thread
            self._failure = reason

    def _one(self) -> None:
        random = self._random
        if self._material is not None:
            aim = random.choice(self._aims)
            _, frame = random.choice(self._material.frames())
            frame = forgery(random, frame)
            told = self.forged
        elif self._echo is not None:
            group, frame = random.choice(self._echo.frames())
            aim = random.choice((self._by_address[group], random.choice(self._aims)))
            told = self.copied
        else:
            aim, frame = self._copies[self.sent % len(self._copies)]
            told = self.copied
        self._socket.sendto(frame, (aim.address, aim.port))
        self.sent += 1
        for name in aim.hearers:
            told[name] += 1
