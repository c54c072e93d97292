"""Five floods at ten times the normal rate: counted, dropped, named, and nothing else changes.

A market of one of each role runs, with TLS at its doors, and an attacker hears everything that it sends. Times of equal
length are compared: nobody attacks; strangers; forgeries, and garbage at every door; copies of everything that was ever
said; the requests of one customer that has its keys; and connections by TCP that are never finished.
"""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from threading import Event, Thread
from typing import Self

import pytest
from tests.interop.attack import Aim, Assault, Recording, aims_at
from tests.interop.ears import Ear, keys_of_a_receiver
from tests.interop.places import CALM, QUICK, Place, new_market, own_place
from tests.interop.stage import Stage
from tests.interop.stalls import Stalls
from tests.interop.verdict import check_journals
from tests.runtime.doorways import enter

from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.market.tls_files import read_status_token
from isocast.runtime.net.door import MAX_HALF_OPEN, MAX_VISITORS
from isocast.runtime.net.door_keys import edge_door_key, edge_visitor, publish_door_key, publish_visitor
from isocast.runtime.net.tls import client_tls
from isocast.runtime.operate import supervisor
from isocast.runtime.watch.metrics import METRICS
from isocast.runtime.watch.status import NodeStatus
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import SECOND
from isocast.wire.codec import PacketKind, decode, encode
from isocast.wire.packets import (
    Data,
    Nack,
    Packet,
    Pending,
    Range,
    RangeRequest,
    Refuse,
    Repair,
    SecondaryToken,
    Standing,
    Token,
)

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "leeds": {"role": "secondary-receiver", "parent": "london", "backup": "paris"},
    "nyse": {"role": "primary-source"},
    "floor": {"role": "secondary-source", "parent": "nyse"},
    "xray": {"role": "reformation-server"},
    "yoke": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["london", "paris"]},
    "bank": {"role": "customer", "lines": ["leeds", "tokyo"], "retransmit": ["archive"]},
}
RECEIVERS = ("london", "paris", "tokyo", "leeds")
PHASE_S = 4.0
TIMES = 10
REFUSED = (
    "authentication_failures_total",
    "malformed_packets_total",
    "unknown_senders_total",
    "another_market_packets_total",
    "unaddressed_packets_total",
)
FILTERED = "filtered_packets_total"
NEVER = ("early_releases_total", "unopened_payloads_total")
UNMOVED = ("suspicions_total", "reformations_total")
NOISE = 3
"""Fairness faults that a busy machine may add to a phase, at each receiver."""

pytestmark = pytest.mark.xdist_group("hostile")


@dataclass(frozen=True)
class Moment:
    """What every node says of itself, at about one time."""

    statuses: dict[str, NodeStatus]

    def total(self, name: str, *counters: str) -> int:
        """Counters that a role does not have count nothing."""
        assert set(counters) <= {metric.name for metric in METRICS}
        totals = self.statuses[name].totals
        return round(sum(totals.get(counter, 0) for counter in counters))

    def accepted(self, name: str) -> int:
        return sum(self.statuses[name].packets_received.values())

    def sent(self, *kinds: str) -> int:
        """By all nodes together; of all kinds if none is named."""
        return sum(
            count
            for status in self.statuses.values()
            for what, count in status.packets_sent.items()
            if not kinds or what.split()[1] in kinds
        )

    def kernel_drops(self, name: str) -> int:
        return sum(self.statuses[name].kernel_drops.values())


class Siege:
    """The market, what was recorded of it, and how it does when nobody attacks."""

    def __init__(self, stage: Stage, recording: Recording, place: Place, stalls: Stalls) -> None:
        self.stage = stage
        self.recording = recording
        self.own_address = place.address(201)
        self.aims = aims_at(stage.market)
        self.seed = int(os.environ.get("ISOCAST_SEED") or SystemRandom().randrange(1 << 32))
        before, heard = self.now(), recording.count
        self.stalls = stalls
        stage.until_released()
        self.wait_for_tokens(PHASE_S)
        self.calm = (before, self.now())
        seconds = (self.calm[1].statuses["xray"].at_ns - before.statuses["xray"].at_ns) / SECOND
        self.seconds = seconds
        self.rate = TIMES * (recording.count - heard) / seconds
        print(f"ISOCAST_SEED={self.seed}, {self.rate:.0f} hostile packets a second")  # noqa: T201

    def wait_for_tokens(self, seconds: float) -> None:
        """So long, by the market's own tokens."""
        watch = self.stage.watches["london"]
        begin = watch.look()[-1].instant
        self.stage.until(lambda: watch.look()[-1].instant >= begin + seconds * SECOND, f"{seconds} s of tokens")

    def now(self) -> Moment:
        """Everybody answers, whatever is going on."""
        return Moment(self.stage.all_statuses(*NODES))

    @contextmanager
    def quiet_recording(self) -> Iterator[None]:
        """Record nothing while we speak ourselves, with others' addresses."""
        self.recording.is_deaf = True
        try:
            yield
        finally:
            self.recording.is_deaf = False

    def details(self, name: str) -> list[str]:
        """The lines of a node's detailed metrics."""
        plan, market = self.stage.market.node(name), self.stage.market
        with socket.create_connection((plan.address, plan.http_port), 60) as raw:
            context = client_tls(market, plan.address)
            assert context is not None
            with context.wrap_socket(raw, server_hostname=plan.address) as page:
                token = read_status_token(market)
                page.sendall(f"GET /metrics/detail HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
                parts = []
                while part := page.recv(65_536):
                    parts.append(part)
        return b"".join(parts).decode().splitlines()

    def until_counted(self, before: Moment, hostile: dict[str, int], *, refused: bool = False) -> Moment:
        """What was sent lies in sockets for a while: wait until all of it has been read, and the counts are up.

        Where receivers refuse all of it, what they take besides is not counted for it.
        """
        found = self.now()
        missing = dict(hostile)

        def counted() -> bool:
            nonlocal found
            found = self.now()
            missing.clear()
            for name, count in hostile.items():
                left = count - self.seen(name, before, found, taken=not (refused and name in RECEIVERS))
                if left > 0:
                    missing[name] = left
            return not missing

        try:
            self.stage.until(counted, "every hostile packet is counted")
        except AssertionError:
            pytest.fail(f"not counted: {missing} of {hostile}\n{self.stage.story()}")
        return found

    @staticmethod
    def seen(name: str, before: Moment, after: Moment, *, taken: bool) -> int:
        """Packets that a node refused or lost between two moments, and those that it took."""
        return sum(
            sign
            * (
                moment.total(name, *REFUSED, FILTERED)
                + moment.kernel_drops(name)
                + (moment.accepted(name) if taken else 0)
            )
            for moment, sign in ((after, 1), (before, -1))
        )

    def check_unmoved(self, before: Moment, after: Moment) -> None:
        """Nobody died, suspected, re-formed, or released early; nothing was lost."""
        calm_before, calm_after = self.calm
        span = before.statuses["xray"].at_ns, after.statuses["xray"].at_ns
        stalled = self.stalls.longest_ns(*span) > self.stage.market.timing.process_ns // 2
        for name in NODES:
            was, is_now = before.statuses[name], after.statuses[name]
            assert was.pid == is_now.pid, f"{name} was started again\n{self.stage.story()}"
            assert before.total(name, *NEVER) == after.total(name, *NEVER), f"{name}\n{self.stage.story()}"
            assert is_now.healthy, is_now.reasons
            if stalled:  # No machine, no punctual market: what must be true all the same is looked at below.
                continue
            assert (was.gauges.epoch, was.gauges.ring) == (is_now.gauges.epoch, is_now.gauges.ring), name
            assert before.total(name, *UNMOVED) == after.total(name, *UNMOVED), f"{name}\n{self.stage.story()}"
        for name in RECEIVERS:
            usual = calm_after.total(name, "fairness_faults_total") - calm_before.total(name, "fairness_faults_total")
            faults = after.total(name, "fairness_faults_total") - before.total(name, "fairness_faults_total")
            assert stalled or faults <= usual + NOISE, f"{name}: {faults} fairness faults, usually {usual}"
        promised = self.stage.until_released()
        self.stage.until_heard()
        check_journals(self.stage, promised)


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with ExitStack() as opened:
        place = opened.enter_context(own_place())
        stage, recording = besieged(opened, tmp_path_factory.mktemp("hostile"), place, CALM)
        with_a_loss(stage, recording)
        yield Siege(stage, recording, place, opened.enter_context(Stalls()))


def besieged(
    opened: ExitStack, folder: Path, place: Place, timing: dict[str, object], **network: object
) -> tuple[Stage, Recording]:
    """A market that runs and is published to, and what is heard of it from its first packet on."""
    market = new_market(folder, place, NODES, timing=timing, network={"tls": "on", **network})
    stage, recording = Stage(market, pause_s=0.1), Recording()
    lines = [market.line_group(plan.name) for plan in market.nodes if plan.line]
    groups = [market.control_group(), market.data_group(), *lines]
    opened.enter_context(Ear(market, place.address(200), groups, recording.heard, deaf_to=place.address(201)))
    opened.enter_context(stage)
    stage.publish()
    stage.until_whole()
    stage.until_published(3)
    return stage, recording


def with_a_loss(stage: Stage, recording: Recording) -> None:
    """Let the market lose a receiver and take it back.

    When a market starts, its receivers suspect only if no reformation server was quicker; of one that stays away they
    tell for certain, and the attacker has heard everything that is ever multicast.
    """
    before = recording.kinds[PacketKind.SUSPECT]
    with stage.away("paris"):
        stage.kill("paris")
        stage.until(lambda: recording.kinds[PacketKind.SUSPECT] > before, "somebody suspects")
    stage.until_ready("paris")
    stage.until_whole()
    stage.until_published(3)


def test_strangers_are_dropped_by_the_kernel(siege: Siege) -> None:
    """(a) Whatever it is that they send: no process reads a byte of it."""
    before = siege.now()
    with Assault(siege.aims, siege.own_address, siege.rate, siege.seed, copies=recorded(siege)) as assault:
        siege.stage.until(lambda: assault.sent >= siege.rate * PHASE_S, "all is sent")
    after = siege.until_counted(before, dict(assault.copied), refused=True)
    for name in RECEIVERS:
        filtered = after.total(name, FILTERED) - before.total(name, FILTERED)
        dropped = after.kernel_drops(name) - before.kernel_drops(name)
        assert filtered + dropped >= assault.copied[name] > 0, name
        assert after.total(name, *REFUSED) == before.total(name, *REFUSED), name
    siege.check_unmoved(before, after)


def test_forgeries_and_garbage_are_counted_and_change_nothing(siege: Siege) -> None:
    """(c) From addresses of nodes, so that the kernel lets pass what begins like a frame; the tag is the judge."""
    stage, before = siege.stage, siege.now()
    with (
        siege.quiet_recording(),
        Assault(siege.aims, None, siege.rate, siege.seed, forge=siege.recording) as assault,
        Intruder(stage, siege.own_address, siege.seed) as intruder,
    ):
        stage.until(lambda: assault.sent >= siege.rate * PHASE_S, "all forgeries are sent")
        stage.until(lambda: intruder.visits >= 50, "every door was tried")
    after = siege.until_counted(before, dict(assault.forged), refused=True)
    for name in RECEIVERS:
        # Every packet that one receiver sends is for every other: what it refuses was a forgery, and all of them are.
        refused = after.total(name, *REFUSED) - before.total(name, *REFUSED)
        dropped = after.kernel_drops(name) - before.kernel_drops(name)
        filtered = after.total(name, FILTERED) - before.total(name, FILTERED)
        assert 0 < refused <= assault.forged[name] <= refused + dropped + filtered, name
    assert any("refused_by_address" in line for line in siege.details("london"))
    siege.check_unmoved(before, after)


def test_copies_are_counted_and_change_nothing(siege: Siege) -> None:
    """(b) From addresses of nodes, with tags that are right."""
    stage = siege.stage
    copies = recorded(siege)
    before = siege.now()
    with siege.quiet_recording(), Assault(siege.aims, None, siege.rate, siege.seed, copies=copies) as assault:
        stage.until(lambda: assault.sent >= max(siege.rate * PHASE_S, len(copies)), "all copies are sent")
    after = siege.until_counted(before, dict(assault.copied))
    siege.check_unmoved(before, after)
    check_answers(siege, before, after)


def test_one_customers_requests_take_nothing_from_others(siege: Siege) -> None:
    """(d) It has its keys: every request is genuine, each for another range."""
    market = siege.stage.market
    edge = load_keys(market, market.node("bank")).edge_ring()
    (door,) = [aim for aim in siege.aims if aim.address == market.node("archive").address]
    aim = door._replace(senders={"bank": market.node("bank").address})
    epoch = Epoch(*map(int, (siege.now().statuses["london"].gauges.epoch or "0.0").split(".")))
    wanted = [RangeRequest(0, epoch, market.node("bank").node, Range.SEQUENCES, 1 + n, 40 + n) for n in range(200)]
    requests = [(aim, encode(packet, edge, market.id)) for packet in wanted]
    before = siege.now()
    with siege.quiet_recording(), Assault([aim], None, siege.rate, siege.seed, copies=requests) as assault:
        siege.stage.until(lambda: assault.sent >= siege.rate * PHASE_S, "all requests are sent")
    after = siege.until_counted(before, dict(assault.copied))
    sent = [sum(moment.statuses["archive"].packets_sent.values()) for moment in (before, after)]
    assert sent[1] - sent[0] < 4 * assault.sent, "each asks for 40 messages, and what was just sent is not sent again"
    siege.check_unmoved(before, after)


def test_connections_that_are_never_finished_keep_nobody_out(siege: Siege) -> None:
    """(e) TCP that says nothing and TLS that does not end, at every page and door: more than have a place."""
    stage, before = siege.stage, siege.now()
    market = stage.market
    for plan in market.nodes:
        if plan.http_port:
            with half_open(plan.address, plan.http_port, 60):
                assert any(stage.statuses(plan.name) for _ in range(3)), f"the page of {plan.name} is shut"
    source, key = market.node("nyse"), load_keys(market, market.node("nyse"))
    archive, edge = market.node("archive"), load_keys(market, market.node("bank"))
    receiver, bank = market.node("london"), edge_visitor(market.node("bank"))
    visits = (
        (receiver, bank, edge_door_key(market, edge, bank), "bank"),
        (source, publish_visitor(source), publish_door_key(market, key, publish_visitor(source)), "nyse"),
        (archive, bank, edge_door_key(market, edge, bank), "bank"),
    )
    for plan, name, secret, by in visits:
        with half_open(plan.address, plan.tcp_port, MAX_VISITORS + MAX_HALF_OPEN + 40):
            stage.call(come_and_go(market, plan, name, secret, by))
            stage.until_published(2)
    siege.check_unmoved(before, siege.now())


@contextmanager
def half_open(address: str, port: int, count: int) -> Iterator[None]:
    """So many connections that say nothing, or begin TLS and no more."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    with ExitStack() as opened:
        for number in range(count):
            mute = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            mute.settimeout(30)
            mute.connect((address, port))
            with suppress(OSError):  # Its place was needed already.
                mute.sendall(hello if number % 2 else b"")
        yield


async def come_and_go(market: Market, plan: NodePlan, name: str, key: bytes | None, by: str) -> None:
    visitor = await enter(market, plan.name, name, key, by=by)
    await visitor.close()


@pytest.mark.long
def test_kills_amid_copies_lose_nothing(tmp_path: Path) -> None:
    """Whoever starts again knows less than before, and meets everything that was ever said once more."""
    with ExitStack() as opened:
        patched = opened.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(supervisor, "LONGEST_PAUSE_S", 1.0)
        place = opened.enter_context(own_place())
        stage, recording = besieged(opened, tmp_path, place, QUICK, filter="off")
        seed = int(os.environ.get("ISOCAST_SEED") or SystemRandom().randrange(1 << 32))
        print(f"ISOCAST_SEED={seed}")  # noqa: T201
        random = Random(seed)
        opened.enter_context(Assault(aims_at(stage.market), place.address(201), 1_000, seed, echo=recording))
        for _ in range(20):
            for _ in range(random.randint(1, 4)):
                stage.until_published(random.randint(1, 10))
                stage.kill(*random.sample(tuple(NODES), random.choice((1, 1, 2, 3, len(NODES)))))
            stage.until_ready(*NODES)
            stage.until_whole()
            stage.until_published(3)
            promised = stage.until_released()
            stage.until_heard()
            check_journals(stage, promised)


def check_answers(siege: Siege, before: Moment, after: Moment) -> None:
    """Copies of requests do not make anybody send without end: the same is answered once in half a retry."""
    timing = siege.stage.market.timing
    seconds = (after.statuses["xray"].at_ns - before.statuses["xray"].at_ns) / SECOND
    halves = 2 * seconds * SECOND / timing.secondary_retry_ns + 2
    usual = (siege.calm[1].sent() - siege.calm[0].sent()) * seconds / siege.seconds
    repairs = after.sent("REPAIR") - before.sent("REPAIR")
    largest = max(len(message_numbers) for message_numbers in tokens_of(siege.stage).values()) + 1
    others = after.sent() - before.sent() - repairs
    print(f"{repairs} repairs and {others} other packets, usually {usual:.0f}")  # noqa: T201
    # Only leeds, which sends no receipts, gets anything again: three tokens, from each of three sites.
    assert repairs <= 3 * LEEDS_TOKENS * largest * halves
    assert others <= 2 * usual + 20 * halves


def tokens_of(stage: Stage) -> dict[int, list[int]]:
    """The sequences of every token in a journal."""
    found: dict[int, list[int]] = {}
    for message in stage.watches["london"].look():
        found.setdefault(message.token_number, []).append(message.sequence)
    return found


# ---- what an attacker who hears the unicast traffic too has recorded

LEEDS_TOKENS = 3
"""Tokens that leeds once asked for, of each of three sites."""


def recorded(siege: Siege) -> list[tuple[Aim, bytes]]:
    """Every multicast packet again, to its group and to every node; and requests and answers of the present epoch."""
    by_address = {aim.address: aim for aim in siege.aims}
    direct = [by_address[plan.address] for plan in siege.stage.market.nodes if plan.address in by_address]
    random = Random(siege.seed)
    heard = siege.recording.frames()
    needed = {
        PacketKind.DATA,
        PacketKind.TOKEN,
        PacketKind.RECEIPT,
        PacketKind.SUSPECT,
        PacketKind.INVITE,
        PacketKind.JOIN,
        PacketKind.NEWRING,
        PacketKind.REL,
    }
    assert needed <= {PacketKind(frame[3]) for _, frame in heard}, siege.recording.kinds
    copies = [(by_address[group], frame) for group, frame in heard]
    copies += [(random.choice(direct), frame) for _, frame in heard]
    said = unicasts(siege, by_address)
    copies += said * (len(copies) // len(said))
    random.shuffle(copies)
    return copies


def unicasts(siege: Siege, aims: dict[str, Aim]) -> list[tuple[Aim, bytes]]:
    """As their senders would have sent them; the attacker found them on the wire, and never saw a key."""
    market = siege.stage.market
    keys = keys_of_a_receiver(market)
    core, edge = keys.core_ring(), keys.edge_ring()
    packets = [
        decode(frame, core, market.id)
        for _, frame in siege.recording.frames()
        if frame[3] in (PacketKind.DATA, PacketKind.TOKEN)
    ]
    tokens = [packet for packet in packets if isinstance(packet, Token)]
    messages = [packet for packet in packets if isinstance(packet, Data)]
    epoch, newest = tokens[-1].epoch, tokens[-1].token_number
    site = {name: market.node(name).node for name in NODES}

    def to(name: str, packet: Packet) -> tuple[Aim, bytes]:
        return aims[market.node(name).address], encode(packet, core, market.id)

    sent: list[tuple[Aim, bytes]] = []
    for asked in ("london", "paris", "tokyo"):
        for asking in ("london", "paris", "tokyo", "leeds"):
            if asking != asked:
                sent += [to(asked, request) for request in requests(epoch, site[asking], newest)]
                sent += [to(asking, Repair(0, epoch, site[asked], item)) for item in (messages[-1], tokens[-1])]
                sent.append(to(asking, Pending(0, epoch, site[asked], newest)))
        sent.append(to("xray", Refuse(0, epoch, site[asked], epoch, epoch, max(newest - 5, 0))))
        sent.append(to("nyse", Standing(0, epoch, site[asked], messages[-1].sender, messages[-1].number, newest)))
    sent.append(to("london", SecondaryToken(0, epoch, site["leeds"], site["london"], max(newest - 4, 1))))
    wanted = RangeRequest(0, epoch, site["bank"], Range.SEQUENCES, 1, 20)
    sent.append((aims[market.node("archive").address], encode(wanted, edge, market.id)))
    return sent


def requests(epoch: Epoch, asking: NodeId, newest: int) -> Sequence[Packet]:
    """For one token, and for two that lie before it: old enough to have been released everywhere."""
    number = max(newest - 4, 1)
    return (
        Nack(0, epoch, asking, number, has_token=False, parts_held=0, listed=()),
        RangeRequest(0, epoch, asking, Range.TOKENS, max(number - 2, 1), max(number - 1, 1)),
    )


# ---- at the doors


class Intruder:
    """Comes in at every TCP port with garbage, half a greeting, a length of gigabytes, or nothing at all."""

    def __init__(self, stage: Stage, own_address: str, seed: int) -> None:
        self.visits = 0
        nodes = stage.market.nodes
        self._ports = [(plan.address, port) for plan in nodes for port in (plan.tcp_port, plan.http_port) if port]
        doors = [plan for plan in nodes if plan.role in (NodeRole.PRIMARY_SOURCE, NodeRole.PRIMARY_RECEIVER)]
        assert all(plan.tcp_port for plan in doors)
        self._own_address = own_address
        self._random = Random(seed)
        self._enough = Event()
        self._thread = Thread(target=self._run, name="intruder", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._enough.set()
        self._thread.join()

    def _run(self) -> None:
        waiting: list[socket.socket] = []
        while not self._enough.wait(0.02):
            visitor = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            visitor.bind((self._own_address, 0))
            visitor.settimeout(1)
            try:
                visitor.connect(self._ports[self.visits % len(self._ports)])
                visitor.sendall(self._greeting())
            except OSError:
                visitor.close()  # A door may shut at any time.
            else:
                waiting.append(visitor)  # It stays, and says nothing more.
            self.visits += 1
            if len(waiting) > 40:
                waiting.pop(0).close()
        for visitor in waiting:
            visitor.close()

    def _greeting(self) -> bytes:
        random = self._random
        return random.choice(
            (
                b"",
                random.randbytes(random.randrange(1, 4_000)),
                b"\xff\xff\xff\xff" + random.randbytes(64),
                b"\x00\x00\x00\x20" + random.randbytes(10),
                b"GET /statusz HTTP/1.1\r\nHost: x\r\n",
                b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
            )
        )
