"""Everything of the market that reads what a stranger, a customer or a lying member sends: one named target each.

The first byte of an input chooses the way in. Most ways put right tags, checksums, seals and signatures around the
rest, so that what lies behind them is reached; the signatures themselves are libraries' work and cost too much to be
tried ten million times.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from zlib import crc32

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from tests.fuzz import services
from tests.fuzz.seals import IDENTITY_WAYS, SEAL_WAYS, identity_seeds, seal_seeds
from tests.hierarchy.edge_makers import NOW as EDGE_NOW
from tests.hierarchy.edge_makers import C, beat, rels, settings
from tests.runtime.accounts.fix.hostile import FIX_WAYS, fix_seeds
from tests.runtime.box_office.hostile_requests import REQUEST_WAYS, request_seeds
from tests.security.hostile_packages import examine_package, package_seeds
from tests.security.package_samples import MARKET, REGION, SECRET, package
from tests.wire import hostile, hostile_journal, hostile_messages, hostile_states
from tests.wire.hostile_messages import Way, message_seeds
from tests.wire.mutations import accepts
from tests.wire.samples import SAMPLES, TOKEN

from isocast.hierarchy.customer import Customer
from isocast.hierarchy.customer_settings import CustomerState
from isocast.hierarchy.proving import LineProver, ProofTerms
from isocast.ring.court import Evidence
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.ring.notary import Notary
from isocast.runtime.disk.evidence_store import evidence_bytes, read_evidence
from isocast.runtime.edge.web_gateway import WebClient
from isocast.security import packages
from isocast.security.line_seals import BoughtKeys, LineOpener, LineSealer, RegionKeys
from isocast.security.packages import read_label, read_secret, write_secret
from isocast.security.subscriptions import BASE, line_key, service_key
from isocast.simulation.signatures import KeyedVerifier
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Epoch, NodeId
from isocast.terms.instants import SECOND
from isocast.wire.codec import decode, encode
from isocast.wire.frame import PacketKind, prefix
from isocast.wire.limits import HEADER_BYTES, SIGNATURE_BYTES, TAG_BYTES
from isocast.wire.packets import Packet, Receipt, ReleasedPacket
from isocast.wire.signing import SignedKind
from isocast.wire.statements import SignedPacket, signed, signed_vote

__all__ = ["TARGETS", "Target"]

Verdict = bool | Awaitable[bool]


@dataclass(frozen=True, slots=True)
class Target:
    """Something that hostile bytes are sent into."""

    name: str
    what: str
    examine: Callable[[bytes], Verdict]
    """True for what is accepted, False for what is refused as it should be."""
    seeds: Callable[[], list[bytes]]
    most: int = 10_000_000
    """Inputs that are worth it: fewer where each costs a hash that is slow on purpose."""


def _through(ways: Sequence[Way]) -> Callable[[bytes], bool]:
    return lambda data: accepts(ways, data)


def _through_services(ways: Sequence[Callable[[bytes], Awaitable[None]]]) -> Callable[[bytes], Awaitable[bool]]:
    async def examine(data: bytes) -> bool:
        try:
            await ways[(data[0] if data else 0) % len(ways)](data[1:])
        except RemoteProtocolError:
            return False
        return True

    return examine


def _chosen(ways: Sequence[Way], seeds: Sequence[tuple[Way, bytes]]) -> list[bytes]:
    """The seeds of some ways, as inputs."""
    return [bytes((ways.index(way),)) + data for way, data in seeds if way in ways]


# Statements: what a packet's signature covers, and whether it is its sender's ----------------------

_SIGNED = (PacketKind.TOKEN, PacketKind.RECEIPT, PacketKind.INVITE, PacketKind.JOIN, PacketKind.NEWRING)
_NOTARY = Notary(None, KeyedVerifier(1), receipts=True)


def _statement(data: bytes) -> None:
    """A packet behind a right tag: everything of it that is signed can be spelled, and no signature fits by chance."""
    packet = decode(hostile.framed(data[0] if data else 0, data[19:], data[1:19].ljust(18, b"\0")))
    if not isinstance(packet, SignedPacket):
        raise RemoteProtocolError("nothing is signed")
    signed(packet)
    assert not _NOTARY.is_genuine(packet)
    for vote in getattr(packet, "votes", ()):
        signed_vote(vote, Epoch(1, 65_537))


def _statement_seeds() -> list[bytes]:
    return [
        seed[:1].replace(b"\1", b"\0") + seed[1:] for seed in hostile.seeds() if seed[0] == 1 and seed[1] in _SIGNED
    ]


# Evidence -----------------------------------------------------------------------------------------


def _evidence(data: bytes) -> None:
    """With a right checksum."""
    raw = data + crc32(data).to_bytes(4, "little")
    found = read_evidence(raw)
    assert evidence_bytes(found) == raw
    assert isinstance(found.contradicts, bool)


def _damaged_evidence(data: bytes) -> None:
    assert evidence_bytes(read_evidence(data)) == data


_EVIDENCE_WAYS: tuple[Way, ...] = (_evidence, _damaged_evidence)


def _evidence_seeds() -> list[bytes]:
    receipt = SAMPLES[PacketKind.RECEIPT]
    assert isinstance(receipt, Receipt)
    proofs = [Evidence(TOKEN, TOKEN), Evidence(receipt, receipt._replace(digest=b"x" * 32))]
    raw = [evidence_bytes(one) for one in proofs]
    return [*[b"\0" + one[:-4] for one in raw], *[b"\1" + one for one in raw]]


# Lines that are sold -------------------------------------------------------------------------------

_ID = b"MKT1"
_LONDON = 1
_PERIOD_NS, _PERIOD = 60 * SECOND, 1_000
_BOUGHT = service_key(REGION, BASE, _PERIOD, _PERIOD_NS)
_OPENER = LineOpener(BoughtKeys([_BOUGHT]), MARKET, {_LONDON: BASE}, _PERIOD_NS, 0)
_CIPHER = AESGCM(line_key(_BOUGHT.key, MARKET, BASE, 0, _LONDON))
_SEALED_BIT = 0x80
_HEAD = Struct("<BI12x")


def _line(data: bytes) -> None:
    """As it comes."""
    _OPENER.open(data, _ID)


def _sealed_line(data: bytes) -> None:
    """Any kind, flags, epoch and body under London's key of a period that was bought."""
    kind, low, epoch, body = data[:1].ljust(1, b"\0"), data[1:2].ljust(1, b"\0"), data[2:10].ljust(8, b"\0"), data[10:]
    header = prefix(PacketKind.DATA)[:3] + kind + _ID + bytes(2) + low + bytes((_SEALED_BIT,)) + epoch
    known = header + _LONDON.to_bytes(8, "little") + _HEAD.pack(1, _PERIOD)[:5]
    _OPENER.open(known + bytes(12) + _CIPHER.encrypt(bytes(12), body, known), _ID)


_LINE_WAYS: tuple[Way, ...] = (_line, _sealed_line)


def _line_seeds() -> list[bytes]:
    sealer = LineSealer(RegionKeys(REGION, _PERIOD_NS), MARKET, _LONDON, BASE, 0, b"draw", 0)
    found = []
    packets: list[Packet] = [*_line_packets(), *LineProver(_Pen(), MARKET, bytes(16)).prove(_line_packets())]
    for packet in packets:
        frame = encode(packet, market=_ID)
        body = frame[HEADER_BYTES:-TAG_BYTES]
        found += [b"\0" + sealer.seal(packet, _ID), b"\1" + frame[3:4] + frame[10:11] + frame[12:20] + body]
    return found


def _line_packets() -> list[ReleasedPacket]:
    return [one._replace(instant=_PERIOD * _PERIOD_NS) for one in rels(1, 3)]


# A customer: what it makes of what lines bring ------------------------------------------------------


class _Pen:
    """Signs alike for everybody; what it believes hangs on one byte, so that both cases are tried."""

    def sign(self, kind: SignedKind, stripe: int, epoch: Epoch, body: bytes) -> bytes:  # noqa: ARG002
        return bytes(SIGNATURE_BYTES)

    def is_from(
        self,
        node: NodeId,  # noqa: ARG002
        kind: SignedKind,  # noqa: ARG002
        stripe: int,  # noqa: ARG002
        epoch: Epoch,  # noqa: ARG002
        body: bytes,  # noqa: ARG002
        signature: bytes,
    ) -> bool:
        return signature[-1:] == b"\0"


_LIFE = 20_000
"""Inputs that one machine takes before another begins anew."""


class _Customer:
    """A machine that hears nothing but hostile packets with right tags."""

    def __init__(self) -> None:
        self._taken = 0
        self._machine = self._new()

    def _new(self) -> Customer:
        return Customer(C, settings(), CustomerState(1), ProofTerms(MARKET, _Pen()))

    def hear(self, packet: Packet) -> None:
        self._taken += 1
        if self._taken % _LIFE == 0:
            self._machine = self._new()
        now = EDGE_NOW + self._taken * 1_000_000
        self._machine.step(PacketsArrived((packet,)), now)
        if self._taken % 16 == 0:
            self._machine.step(TimerFired(), now)


_CUSTOMER = _Customer()


def _customer(data: bytes) -> None:
    """Kind, header and body, with a right tag."""
    frame = hostile.framed(data[0] if data else 0, data[19:], data[1:19].ljust(18, b"\0"))
    _CUSTOMER.hear(decode(frame))


def _customer_seeds() -> list[bytes]:
    packets = rels(1, 40)
    proofs = LineProver(_Pen(), MARKET, bytes(16)).prove(packets, b"a salt of tokens")
    beats = [beat(number, line, EDGE_NOW + number) for number in (5, 30, 90) for line in (1, 2)]
    said: list[Packet] = [*packets[:5], *packets[30:33], *proofs, *beats]
    return [_rest(b"\0", one) for one in said]


def _rest(way: bytes, packet: Packet) -> bytes:
    """A packet as `hostile.framed` builds it again."""
    frame = encode(packet)
    return way + frame[3:4] + frame[8:10] + frame[12:HEADER_BYTES] + frame[HEADER_BYTES:-TAG_BYTES]


# Packages ------------------------------------------------------------------------------------------

_LABEL = read_label(package())


def _label(data: bytes) -> None:
    label = read_label(data)
    assert data.startswith(packages._write_label(label))  # noqa: SLF001


def _keys(data: bytes) -> None:
    """What lies behind mask and seal."""
    keys = packages._read_keys(data, _LABEL)  # noqa: SLF001
    assert len(keys).to_bytes(2) + b"".join(map(packages._write_key, keys)) == data  # noqa: SLF001


def _typed(data: bytes) -> None:
    secret = read_secret(data.decode(errors="replace"))
    assert read_secret(write_secret(secret)) == secret


_PACKAGE_WAYS: tuple[Way, ...] = (_label, _keys, _typed)


def _package_seeds() -> list[bytes]:
    dear = {seed[0]: seed[1:] for seed in package_seeds()}
    return [b"\0" + dear[0], b"\1" + dear[2], b"\2" + dear[3], b"\2" + write_secret(SECRET).lower().encode()]


# WebSocket -----------------------------------------------------------------------------------------

_CLIENT = WebClient(lambda _: {}, depth_max=5)


def _wish(data: bytes) -> None:
    """One client that goes on wishing: what it has asked for is bounded."""
    _CLIENT.wish(data.decode(errors="replace"))
    if len(_CLIENT._symbols) > 1_000:  # noqa: SLF001 - sorted at each wish
        _CLIENT.wish('{"unsubscribe": "*"}')


def _bytes_wish(data: bytes) -> None:
    _CLIENT.wish(data)


_WEB_WAYS: tuple[Way, ...] = (_wish, _bytes_wish)


def _web_seeds() -> list[bytes]:
    wishes = (
        b'{"subscribe": ["IBM", "VOD"], "unsubscribe": "*"}', b'{"subscribe": "*", "depth": 5}',
        b'{"topics": ["fx/eur"]}', b'{"subscribe": ["A"], "topics": "*", "depth": 0}',
    )  # fmt: skip
    return [*[b"\0" + wish for wish in wishes], b"\1" + wishes[0]]


# The list ------------------------------------------------------------------------------------------

_ROSTER_WAYS: tuple[Way, ...] = (
    hostile_messages._roster,  # noqa: SLF001
    hostile_messages._revocation,  # noqa: SLF001
    hostile_messages._roster_entry,  # noqa: SLF001
    hostile_messages._identity_request,  # noqa: SLF001
)
_REPAIR_WAYS: tuple[Way, ...] = tuple([way for way in hostile_messages.MESSAGE_WAYS if way not in _ROSTER_WAYS])
_PACKET_WAYS = hostile.WAYS_IN[:6]


def _state_seeds() -> list[bytes]:
    return _chosen(hostile_states.STATE_WAYS, hostile_states.state_seeds())


_ALL = (
    Target(
        "packets",
        "frames of every kind, repairs, tokens and their parts, events",
        _through(_PACKET_WAYS),
        lambda: [seed for seed in hostile.seeds() if seed[0] < len(_PACKET_WAYS)],
    ),
    Target("statements", "what signatures cover", _through((_statement,)), _statement_seeds),
    Target("journals", "segments, blocks and their proofs", hostile_journal.examine, hostile_journal.seeds),
    Target(
        "rosters",
        "rosters, revocations, control entries, requests of identities",
        _through(_ROSTER_WAYS),
        lambda: _chosen(_ROSTER_WAYS, message_seeds()),
    ),
    Target("evidence", "files that prove a lie", _through(_EVIDENCE_WAYS), _evidence_seeds),
    Target("packages", "labels, keys and secrets of subscriptions", _through(_PACKAGE_WAYS), _package_seeds),
    Target("lines", "sealed lines", _through(_LINE_WAYS), _line_seeds),
    Target("seals", "narrow stripes and their proofs, sold blocks, payloads", _through(SEAL_WAYS), seal_seeds),
    Target("identities", "identities at doors, core keys in rosters", _through(IDENTITY_WAYS), identity_seeds),
    Target("customer", "a customer that hears a lying line", _through((_customer,)), _customer_seeds),
    Target(
        "messages",
        "messages at doors, requests for repairs, plans, wishes, status",
        _through(_REPAIR_WAYS),
        lambda: _chosen(_REPAIR_WAYS, message_seeds()),
    ),
    Target(
        "doors",
        "a door: strangers, visitors with a key, and with an identity",
        _through_services(services.DOOR_WAYS),
        services.door_seeds,
    ),
    Target("tls", "the first words of TLS", _through(services.TLS_WAYS), services.tls_seeds),
    Target("lobby", "who waits at a door", services.lobby, lambda: [bytes(range(32)), bytes(range(255, 223, -1))]),
    Target("pages", "a node's pages", _through_services(services.HTTP_WAYS), services.http_seeds),
    Target(
        "office",
        "the box office: requests, forms and JSON",
        _through_services(services.OFFICE_WAYS),
        services.office_seeds,
    ),
    Target(
        "office-heads",
        "heads of its requests, and what a customer reads of it",
        _through(REQUEST_WAYS),
        lambda: _chosen(REQUEST_WAYS, request_seeds()),
    ),
    Target("fix", "FIX: a stream, and messages at a session", _through(FIX_WAYS), fix_seeds),
    Target(
        "trading",
        "a gateway's trading service: requests, orders, and the reports that a client reads",
        _through_services(services.TRADING_WAYS),
        services.trading_seeds,
    ),
    Target("web", "a WebSocket's wishes", _through(_WEB_WAYS), _web_seeds),
    Target("states", "checkpoints, snapshots and records", _through(hostile_states.STATE_WAYS), _state_seeds),
    Target("sealed-packages", "packages under mask and signature", examine_package, package_seeds, 100_000),
)
TARGETS = {target.name: target for target in _ALL}
