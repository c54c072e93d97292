"""An attacker on the market's own network: hears every group, records, forges, and sends at whatever rate it likes.

It holds no key. What it sends is of two kinds:

    forgeries   noise, damage, wrong tags, strangers: every one must be counted as refused by everybody who hears it
    copies      authentic packets again, old ones and recent ones, to where they were meant for and to anywhere else

It sends from an address of its own, or forges the address of a node that may speak there: the kernel's filters stop the
first, and the second is for the node to judge.
"""

import socket
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from random import Random
from threading import Event, Lock, Thread
from time import monotonic
from typing import NamedTuple, Self

from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.wire.limits import TAG_BYTES

__all__ = ["Aim", "Assault", "Recording", "aims_at", "forgery"]

_KIND_AT, _MARKET_AT, _STRIPE_AT, _SENDER_AT = 3, slice(4, 8), slice(8, 10), slice(20, 28)
_BEAT_S = 0.01
_OLD = 400
_RECENT = 400
_OF_EACH_KIND = 50
"""Of the first, kept whenever they come: what is rare is not lost among what is frequent."""


class Aim(NamedTuple):
    """Where packets are sent, and the nodes that read it."""

    address: str
    port: int
    hearers: tuple[str, ...]
    senders: Mapping[str, str]
    """The nodes that may speak there, by name, with their addresses."""


def aims_at(market: Market) -> list[Aim]:
    """Every group and every direct port."""

    def names(plans: Iterable[NodePlan]) -> tuple[str, ...]:
        return tuple(plan.name for plan in plans)

    def addresses(plans: Iterable[NodePlan]) -> dict[str, str]:
        return {plan.name: plan.address for plan in plans}

    port = market.network.port
    everybody = addresses(market.nodes)
    found = [
        Aim(market.control_group(), port, names(market.control_members()), addresses(market.control_senders())),
        Aim(market.data_group(), port, names(market.data_members()), addresses(market.data_senders())),
    ]
    for plan in market.nodes:
        if plan.line:
            listeners = names(market.line_listeners(plan.name))
            found.append(Aim(market.line_group(plan.name), port, listeners, addresses([plan])))
        if plan.role is not NodeRole.SECONDARY_SOURCE:  # It takes no packets.
            found.append(Aim(plan.address, plan.port, (plan.name,), everybody))
    return found


class Recording:
    """What was heard: the first packets of the market, and the latest."""

    def __init__(self) -> None:
        self.count = 0
        self.kinds: Counter[int] = Counter()
        self._old: list[tuple[str, bytes]] = []
        self._recent: deque[tuple[str, bytes]] = deque(maxlen=_RECENT)
        self._lock = Lock()
        self.is_deaf = False
        """While an attack goes on: what is heard then is its own."""

    def heard(self, group: str, frame: bytes) -> None:
        if self.is_deaf:
            return
        with self._lock:
            self.count += 1
            self.kinds[frame[_KIND_AT]] += 1
            if len(self._old) < _OLD or self.kinds[frame[_KIND_AT]] <= _OF_EACH_KIND:
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
    match random.randrange(10):
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
        case 8:
            signed[_MARKET_AT] = random.randbytes(4)
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
        own_address: str | None,
        rate: float,
        seed: int,
        *,
        forge: Recording | None = None,
        copies: Sequence[tuple[Aim, bytes]] = (),
        echo: Recording | None = None,
    ) -> None:
        """Forge from a recording, send these copies over and over, or copy what is being recorded.

        Without an address of its own it forges that of somebody who may speak there.
        """
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
        self._own_address = own_address
        self._sockets: dict[str, socket.socket] = {}
        self._thread = Thread(target=self._run, name="assault", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()
        for sender in self._sockets.values():
            sender.close()
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
        name, address = "", self._own_address
        if address is None:
            name, address = random.choice(list(aim.senders.items()))
        self._sender(address).sendto(frame, (aim.address, aim.port))
        self.sent += 1
        for hearer in aim.hearers:
            # A node does not hear its own address in a group.
            if hearer != name or len(aim.hearers) == 1:
                told[hearer] += 1

    def _sender(self, address: str) -> socket.socket:
        sender = self._sockets.get(address)
        if sender is None:
            sender = self._sockets[address] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.bind((address, 0))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        return sender
