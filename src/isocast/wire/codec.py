"""Packets to bytes and back, all kinds of them: `encode` and `decode`.

The law of the reader: whatever the bytes, it returns a packet that keeps every rule, or raises
RemoteProtocolError and nothing else. It refuses what it does not know (another magic, version or kind,
unknown flags, bytes left over) and believes no count further than there are bytes. The tag is checked before
the body is looked at.

The law of the writer: what it returns, the reader accepts; otherwise it raises LocalProtocolError.

DATA outnumbers everything else by far, so it has a way of its own through both functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct, error
from struct import pack as pack_values
from struct import unpack as unpack_values
from typing import Any, cast

from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, StrangerError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.frame import (
    NO_KEYS,
    VERSION,
    Header,
    Keys,
    Layout,
    PacketKind,
    digest_fault,
    header_bytes,
    key_of,
    peek_kind,
    prefix,
    read_header,
    tag_of,
    unsealed,
)
from isocast.wire.limits import (
    DATA_BYTES,
    FRAME_BYTES,
    HEADER_BYTES,
    HOLDING_BYTES,
    JOIN_BYTES,
    JUMBO_DATAGRAM,
    LINE_REST_BYTES,
    LINE_SCOPE_BYTES,
    LINES_BYTES,
    MAX_HOLDING_BITS,
    MAX_HOLDINGS,
    MAX_LINE_RESTS,
    MAX_LINE_SCOPES,
    MAX_NEXT_NUMBERS,
    MAX_NUMBER,
    MAX_PART_BODY,
    MAX_PARTS,
    MAX_PAYLOAD,
    MAX_PROOF,
    MAX_RING,
    MAX_UDP,
    MAX_WHOLE_TOKEN,
    NACK_BYTES,
    NEW_RING_BYTES,
    NEXT_NUMBER_BYTES,
    NODE_BYTES,
    PART_BYTES,
    RELEASED_BYTES,
    TAG_BYTES,
)
from isocast.wire.packets import (
    DIGEST_BYTES,
    NO_ADDRESS,
    Data,
    Holding,
    Invite,
    Join,
    LineAck,
    LineAsk,
    LineRest,
    Lines,
    LineScope,
    Nack,
    NewRing,
    NextNumber,
    Packet,
    Pending,
    PlanVersion,
    Range,
    RangeReply,
    RangeRequest,
    Receipt,
    Refuse,
    ReleasedPacket,
    Repair,
    Repairable,
    SecondaryToken,
    Standing,
    Suspect,
    Suspicion,
    Token,
    TokenPart,
)
from isocast.wire.token_body import decode_token_body, token_body

__all__ = [
    "BALLOTS",
    "LINE_PLANS",
    "NACKS",
    "NO_KEYS",
    "REASONS",
    "TRAFFIC",
    "VERSION",
    "Keys",
    "PacketKind",
    "decode",
    "encode",
    "peek_kind",
]


# ---- The bodies of suspicion and reformation: SUSPECT, INVITE, REFUSE, JOIN and NEWRING (protocol §5).
#
# Sites and servers take 4 bytes, sources 8. JOIN and NEWRING end in lists whose counts stand before them.


_SUSPECT = Struct("<QQHII")
_INVITE = Struct("<II")
_REFUSE = Struct("<IIIIQ")
_JOIN = Struct("<IIQ16sqQq16sHHH")
_NEW_RING = Struct("<IIQQqIIQ16sHHHH")
_NEXT_NUMBER = Struct("<QQ")

REASONS: dict[Suspicion, int] = {
    Suspicion.UNRECOVERED: 1,
    Suspicion.NO_RECEIPTS: 2,
    Suspicion.BEHIND: 3,
    Suspicion.LATE: 4,
    Suspicion.CLOCK: 5,
    Suspicion.SEALED: 6,
    Suspicion.OUTSIDE: 7,
    Suspicion.LOST: 8,
    Suspicion.STRANDED: 9,
    Suspicion.LEAVING: 10,
}
"""The number of each reason on the wire."""
_SUSPICIONS = {number: reason for reason, number in REASONS.items()}


# ---- SUSPECT, INVITE, REFUSE


def _write_suspect(packet: Suspect) -> bytes:
    return _SUSPECT.pack(packet.token_number, packet.suspect, REASONS[packet.reason], *packet.promised)


def _read_suspect(header: Header, body: bytes) -> Suspect:
    token_number, suspect, code, number, server = _SUSPECT.unpack(body)
    reason = _SUSPICIONS.get(code)
    if reason is None:
        raise RemoteProtocolError(f"SUSPECT: reason {code} is unknown")
    return Suspect(*header, token_number, suspect, reason, Epoch(number, server))


def _write_invite(packet: Invite) -> bytes:
    return _INVITE.pack(*packet.ballot)


def _read_invite(header: Header, body: bytes) -> Invite:
    return Invite(*header, Epoch._make(_INVITE.unpack(body)))


def _write_refuse(packet: Refuse) -> bytes:
    return _REFUSE.pack(*packet.ballot, *packet.promised, packet.held)


def _read_refuse(header: Header, body: bytes) -> Refuse:
    number, server, promised_number, promised_server, held = _REFUSE.unpack(body)
    return Refuse(*header, Epoch(number, server), Epoch(promised_number, promised_server), held)


# ---- lists


class _Lists:
    """Reads one list after another from the end of a body; `end` insists that all was there and nothing is left."""

    __slots__ = ("_at", "_body")

    def __init__(self, body: bytes, at: int) -> None:
        self._body = body
        self._at = at

    def _take(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        return self._body[start : self._at]

    def nodes(self, count: int) -> tuple[NodeId, ...]:
        return unpack_values(f"<{count}I", self._take(count * NODE_BYTES))

    def nonces(self, count: int) -> tuple[bytes, ...]:
        raw = self._take(count * DIGEST_BYTES)
        return tuple(raw[at : at + DIGEST_BYTES] for at in range(0, len(raw), DIGEST_BYTES))

    def next_numbers(self, count: int) -> tuple[NextNumber, ...]:
        return tuple(map(NextNumber._make, _NEXT_NUMBER.iter_unpack(self._take(count * NEXT_NUMBER_BYTES))))

    def end(self) -> None:
        if self._at != len(self._body):
            raise RemoteProtocolError(f"{len(self._body)} bytes, {self._at} expected")


def _write_nodes(nodes: Sequence[NodeId]) -> bytes:
    return pack_values(f"<{len(nodes)}I", *nodes)


def _write_next_numbers(numbers: Sequence[NextNumber]) -> bytes:
    return b"".join([_NEXT_NUMBER.pack(*entry) for entry in numbers])


def _node_fault(name: str, nodes: Sequence[NodeId]) -> str | None:
    if len(nodes) > MAX_RING or len(set(nodes)) != len(nodes):
        return f"{name} of {len(nodes)} nodes, at most {MAX_RING}, or a node twice"
    return None


def _next_number_fault(numbers: Sequence[NextNumber]) -> str | None:
    if len(numbers) > MAX_NEXT_NUMBERS or len({entry.source for entry in numbers}) != len(numbers):
        return f"{len(numbers)} next numbers, at most {MAX_NEXT_NUMBERS}, or a source twice"
    return None


# ---- JOIN


def _write_join(packet: Join) -> bytes:
    fixed = _JOIN.pack(
        *packet.ballot,
        packet.held,
        packet.digest,
        packet.instant,
        packet.next_sequence,
        packet.now,
        packet.commit,
        len(packet.heard),
        len(packet.universe),
        len(packet.next_numbers),
    )
    nodes = _write_nodes(packet.heard) + _write_nodes(packet.universe)
    return fixed + nodes + _write_next_numbers(packet.next_numbers)


def _read_join(header: Header, body: bytes) -> Join:
    number, server, held, digest, instant, sequence, now, commit, heard, universe, numbers = _JOIN.unpack_from(body)
    lists = _Lists(body, JOIN_BYTES)
    packet = Join(
        *header,
        Epoch(number, server),
        held,
        digest,
        instant,
        sequence,
        now,
        lists.nodes(heard),
        commit,
        lists.nodes(universe),
        lists.next_numbers(numbers),
    )
    lists.end()
    return packet


def _join_fault(packet: Join) -> str | None:
    return (
        digest_fault(packet.digest, packet.commit)
        or _node_fault("JOIN: heard", packet.heard)
        or _node_fault("JOIN: U", packet.universe)
        or _next_number_fault(packet.next_numbers)
    )


# ---- NEWRING


def _write_new_ring(packet: NewRing) -> bytes:
    fixed = _NEW_RING.pack(
        *packet.ballot,
        packet.first_token,
        packet.first_sequence,
        packet.start,
        *packet.cut_epoch,
        packet.cut_token,
        packet.cut_digest,
        len(packet.ring),
        len(packet.holders),
        len(packet.universe),
        len(packet.next_numbers),
    )
    nodes = _write_nodes(packet.ring) + b"".join(packet.commits)
    others = _write_nodes(packet.holders) + _write_nodes(packet.universe)
    return fixed + nodes + others + _write_next_numbers(packet.next_numbers)


def _read_new_ring(header: Header, body: bytes) -> NewRing:
    fields = _NEW_RING.unpack_from(body)
    number, server, first_token, first_sequence, start, cut_number, cut_server, cut_token, cut_digest = fields[:9]
    members, holder_count, universe, numbers = fields[9:]
    lists = _Lists(body, NEW_RING_BYTES)
    ring = lists.nodes(members)
    commits = lists.nonces(members)
    holders = lists.nodes(holder_count)
    packet = NewRing(
        *header,
        Epoch(number, server),
        ring,
        first_token,
        first_sequence,
        start,
        Epoch(cut_number, cut_server),
        cut_token,
        cut_digest,
        holders,
        commits,
        lists.nodes(universe),
        lists.next_numbers(numbers),
    )
    lists.end()
    return packet


def _new_ring_fault(packet: NewRing) -> str | None:
    if not packet.ring:
        return "NEWRING: an empty ring"
    if len(packet.commits) != len(packet.ring):
        return f"NEWRING: {len(packet.commits)} commits for {len(packet.ring)} members"
    return (
        digest_fault(packet.cut_digest, *packet.commits)
        or _node_fault("NEWRING: ring", packet.ring)
        or _node_fault("NEWRING: holders", packet.holders)
        or _node_fault("NEWRING: U", packet.universe)
        or _next_number_fault(packet.next_numbers)
    )


BALLOTS: dict[type, Layout[Any]] = {
    Suspect: Layout(PacketKind.SUSPECT, _write_suspect, _read_suspect),
    Invite: Layout(PacketKind.INVITE, _write_invite, _read_invite),
    Refuse: Layout(PacketKind.REFUSE, _write_refuse, _read_refuse),
    Join: Layout(PacketKind.JOIN, _write_join, _read_join, _join_fault, MAX_UDP, ("leaving",)),
    NewRing: Layout(
        PacketKind.NEWRING, _write_new_ring, _read_new_ring, _new_ring_fault, MAX_UDP, ("uncertified", "forced")
    ),
}
"""How each of these packets is written and read."""


# ---- The bodies of LINEASK, LINEACK and LINES (§4.3; protocol §7).


_VERSIONS = Struct("<8I")
_LINES = Struct("<4IqIHHH")
_SCOPE = Struct("<IddIIH")
_REST = Struct("<IddIIHq")
_POLE, _DATE_LINE = 90.0, 180.0


# ---- LINEASK, LINEACK


def _write_versions(first: PlanVersion, second: PlanVersion) -> bytes:
    return _VERSIONS.pack(*first.ballot, *first[1:], *second.ballot, *second[1:])


def _read_versions(body: bytes) -> tuple[PlanVersion, PlanVersion]:
    words = _VERSIONS.unpack(body)
    return _version(words[:4]), _version(words[4:])


def _version(words: Sequence[int]) -> PlanVersion:
    number, server, revision, author = words
    return PlanVersion(Epoch(number, server), revision, author)


def _write_ask(packet: LineAsk) -> bytes:
    return _write_versions(packet.version, packet.held)


def _read_ask(header: Header, body: bytes) -> LineAsk:
    return LineAsk(*header, *_read_versions(body))


def _write_ack(packet: LineAck) -> bytes:
    return _write_versions(packet.promised, packet.held)


def _read_ack(header: Header, body: bytes) -> LineAck:
    return LineAck(*header, *_read_versions(body))


# ---- LINES


def _write_lines(packet: Lines) -> bytes:
    version = packet.version
    fixed = _LINES.pack(
        *version.ballot,
        *version[1:],
        packet.made_at,
        packet.first_group,
        packet.stripes,
        len(packet.scopes),
        len(packet.rests),
    )
    return fixed + b"".join([_SCOPE.pack(*scope) for scope in packet.scopes] + [_REST.pack(*r) for r in packet.rests])


def _read_lines(header: Header, body: bytes) -> Lines:
    *version, made_at, first_group, stripes, scopes, rests = _LINES.unpack_from(body)
    rests_at = LINES_BYTES + scopes * LINE_SCOPE_BYTES
    if len(body) != (expected := rests_at + rests * LINE_REST_BYTES):
        raise RemoteProtocolError(f"{len(body)} bytes, {expected} expected")
    return Lines(
        *header,
        _version(version),
        made_at,
        first_group,
        stripes,
        tuple(map(LineScope._make, _SCOPE.iter_unpack(body[LINES_BYTES:rests_at]))),
        tuple(map(LineRest._make, _REST.iter_unpack(body[rests_at:]))),
    )


def _lines_fault(packet: Lines) -> str | None:
    scopes, rests = packet.scopes, packet.rests
    if len(scopes) > MAX_LINE_SCOPES or len({scope.site for scope in scopes}) != len(scopes):
        return f"LINES: {len(scopes)} scopes, at most {MAX_LINE_SCOPES}, or a site twice"
    if len(rests) > MAX_LINE_RESTS:
        return f"LINES: {len(rests)} addresses rest, at most {MAX_LINE_RESTS}"
    if not packet.stripes:
        return "LINES: an address without a group"
    for scope in scopes:
        if (scope.address == NO_ADDRESS) != (scope.radius_m == 0):
            return "LINES: a scope with a radius has an address, and a silent one has none"
    if any(rest.address == NO_ADDRESS for rest in rests):
        return "LINES: what rests has an address"
    placed: list[LineScope | LineRest] = [*scopes, *rests]
    for one in placed:
        # Whoever compares finds a number that is none outside of every range.
        if not (-_POLE <= one.latitude <= _POLE and -_DATE_LINE <= one.longitude <= _DATE_LINE):
            return f"LINES: site {one.site} has invalid coordinates"
    return None


LINE_PLANS: dict[type, Layout[Any]] = {
    LineAsk: Layout(PacketKind.LINEASK, _write_ask, _read_ask),
    LineAck: Layout(PacketKind.LINEACK, _write_ack, _read_ack, flags=("settled",)),
    Lines: Layout(PacketKind.LINES, _write_lines, _read_lines, _lines_fault, MAX_UDP),
}
"""How each of these packets is written and read."""


# ---- The body of NACK: a token, the map of its parts that arrived, and holdings.
#
# token 8 | flags 2 | bytes of the map 2 | holdings 2 | map …
# each holding: source 8 | first 8 | bytes of its bitmap 2 | bitmap …
#
# Maps are little-endian integers without zero bytes at their end, so that each has one spelling.


_NACK = Struct("<QHHH")
_HOLDING = Struct("<QQH")
_HAS_TOKEN = 1


def _bytes_for(bitmap: int) -> int:
    return (bitmap.bit_length() + 7) // 8


def _write(packet: Nack) -> bytes:
    parts = packet.parts_held.to_bytes(_bytes_for(packet.parts_held), "little")
    flags = _HAS_TOKEN if packet.has_token else 0
    pieces = [_NACK.pack(packet.token_number, flags, len(parts), len(packet.listed)), parts]
    for source, first, bitmap in packet.listed:
        length = _bytes_for(bitmap)
        pieces += (_HOLDING.pack(source, first, length), bitmap.to_bytes(length, "little"))
    return b"".join(pieces)


def _read(header: Header, body: bytes) -> Nack:
    token_number, flags, length, count = _NACK.unpack_from(body)
    if flags & ~_HAS_TOKEN:
        raise RemoteProtocolError(f"NACK: unknown flags {flags:#x}")
    at = NACK_BYTES + length
    parts_held = _read_bitmap(body[NACK_BYTES:at])
    listed: list[Holding] = []
    for _ in range(count):
        source, first, length = _HOLDING.unpack_from(body, at)
        at += HOLDING_BYTES
        listed.append(Holding(source, first, _read_bitmap(body[at : at + length])))
        at += length
    # A map that was cut short has moved `at` beyond the end.
    if at != len(body):
        raise RemoteProtocolError(f"NACK of {len(body)} bytes, {at} expected")
    return Nack(*header, token_number, flags == _HAS_TOKEN, parts_held, tuple(listed))


def _read_bitmap(raw: bytes) -> int:
    """The map in `raw`, which must end in a byte that is not zero."""
    if raw and not raw[-1]:
        raise RemoteProtocolError(f"NACK: a map of {len(raw)} bytes is padded")
    return int.from_bytes(raw, "little")


def _fault(packet: Nack) -> str | None:
    if packet.parts_held < 0 or packet.parts_held.bit_length() > MAX_PARTS:
        return f"NACK: parts beyond {MAX_PARTS}"
    if len(packet.listed) > MAX_HOLDINGS:
        return f"NACK: {len(packet.listed)} holdings, at most {MAX_HOLDINGS}"
    for source, first, bitmap in packet.listed:
        bits = bitmap.bit_length()
        if bitmap < 0 or bits > MAX_HOLDING_BITS or first + bits > MAX_NUMBER:
            return f"NACK: {bits} bits of source {source} from {first}"
    return None


NACKS: dict[type, Layout[Any]] = {Nack: Layout(PacketKind.NACK, _write, _read, _fault, MAX_UDP)}
"""How a NACK is written and read."""


# ---- The bodies of a ring's ordinary traffic: parts, receipts, answers, releases and ranges.


_PART = Struct("<QHH")
_RECEIPT = Struct("<Q16s")
_PENDING = Struct("<Q")
_STANDING = Struct("<QQQ")
_SECONDARY = Struct("<IQ")
_RELEASED = Struct("<QQqQIIHH")
_REQUEST = Struct("<HQQ")
_REPLY = Struct("<HQQQ")


# ---- TOKENPART


def _write_part(packet: TokenPart) -> bytes:
    return _PART.pack(packet.token_number, packet.part, packet.parts) + packet.body


def _read_part(header: Header, body: bytes) -> TokenPart:
    token_number, part, parts = _PART.unpack_from(body)
    return TokenPart(*header, token_number, part, parts, body[PART_BYTES:])


def _part_fault(packet: TokenPart) -> str | None:
    if not 0 <= packet.part < packet.parts <= MAX_PARTS:
        return f"part {packet.part} of {packet.parts}, at most {MAX_PARTS}"
    if not 0 < len(packet.body) <= MAX_PART_BODY:
        return f"a part of {len(packet.body)} bytes, at most {MAX_PART_BODY}"
    return None


# ---- RECEIPT, PENDING, STANDING, SECTOKEN


def _receipt_fault(packet: Receipt) -> str | None:
    return digest_fault(packet.digest)


# ---- REL


def _write_released(packet: ReleasedPacket) -> bytes:
    fixed = _RELEASED.pack(
        packet.token_number,
        packet.sequence,
        packet.instant,
        packet.number,
        packet.edge_stripe,
        packet.count,
        len(packet.payload),
        len(packet.proof),
    )
    return fixed + packet.payload + packet.proof


def _read_released(header: Header, body: bytes) -> ReleasedPacket:
    token_number, sequence, instant, number, edge_stripe, count, payload, proof = _RELEASED.unpack_from(body)
    proof_at = RELEASED_BYTES + payload
    if len(body) != proof_at + proof:
        raise RemoteProtocolError(f"REL of {len(body)} bytes, {proof_at + proof} expected")
    return ReleasedPacket(
        *header,
        token_number,
        sequence,
        instant,
        edge_stripe,
        number,
        count,
        body[RELEASED_BYTES:proof_at],
        body[proof_at:],
    )


def _released_fault(packet: ReleasedPacket) -> str | None:
    payload, proof = len(packet.payload), len(packet.proof)
    if payload > MAX_PAYLOAD or proof > MAX_PROOF:
        return f"REL of {payload} and {proof} bytes, at most {MAX_PAYLOAD} and {MAX_PROOF}"
    return None


# ---- RXREQ, RXREP


def _read_request(header: Header, body: bytes) -> RangeRequest:
    kind, first, last = _REQUEST.unpack(body)
    return RangeRequest(*header, Range(kind), first, last)


def _request_fault(packet: RangeRequest) -> str | None:
    return f"a range from {packet.first} to {packet.last}" if packet.first > packet.last else None


def _read_reply(header: Header, body: bytes) -> RangeReply:
    kind, first, last, low_water = _REPLY.unpack(body)
    return RangeReply(*header, Range(kind), first, last, low_water)


TRAFFIC: dict[type, Layout[Any]] = {
    TokenPart: Layout(PacketKind.TOKENPART, _write_part, _read_part, _part_fault),
    Receipt: Layout(
        PacketKind.RECEIPT,
        lambda packet: _RECEIPT.pack(*packet[3:]),
        lambda header, body: Receipt(*header, *_RECEIPT.unpack(body)),
        _receipt_fault,
    ),
    Pending: Layout(
        PacketKind.PENDING,
        lambda packet: _PENDING.pack(packet.token_number),
        lambda header, body: Pending(*header, *_PENDING.unpack(body)),
    ),
    Standing: Layout(
        PacketKind.STANDING,
        lambda packet: _STANDING.pack(*packet[3:]),
        lambda header, body: Standing(*header, *_STANDING.unpack(body)),
    ),
    SecondaryToken: Layout(
        PacketKind.SECTOKEN,
        lambda packet: _SECONDARY.pack(*packet[3:]),
        lambda header, body: SecondaryToken(*header, *_SECONDARY.unpack(body)),
    ),
    ReleasedPacket: Layout(
        PacketKind.REL, _write_released, _read_released, _released_fault, JUMBO_DATAGRAM, ("uncertified",)
    ),
    RangeRequest: Layout(PacketKind.RXREQ, lambda packet: _REQUEST.pack(*packet[3:]), _read_request, _request_fault),
    RangeReply: Layout(PacketKind.RXREP, lambda packet: _REPLY.pack(*packet[3:]), _read_reply),
}
"""How each of these packets is written and read."""


_DATA = Struct("<4sHHIIQQQ")
_DATA_PREFIX = prefix(PacketKind.DATA)
_PAYLOAD_AT = HEADER_BYTES + DATA_BYTES
_SHORTEST_DATA = FRAME_BYTES + DATA_BYTES
_LONGEST_DATA = _SHORTEST_DATA + MAX_PAYLOAD

_REPAIRABLE = (PacketKind.DATA, PacketKind.TOKEN, PacketKind.TOKENPART)
_MALFORMED = (error, ValueError)
"""What struct and the enumerations raise for values that are out of their range."""


def encode(packet: Packet, keys: Keys = NO_KEYS) -> bytes:
    """The frame of a packet, authenticated with its sender's key."""
    if type(packet) is Data:
        return _encode_data(packet, keys)
    if type(packet) is Repair:
        return _encode_repair(packet, keys)
    layout = _LAYOUTS.get(type(packet))
    if layout is None:
        raise LocalProtocolError(f"{type(packet).__name__} is not a packet")
    fault = layout.fault(packet)
    if fault is not None:
        raise LocalProtocolError(fault)
    try:
        signed = header_bytes(layout.kind, packet, layout.flags) + layout.write(packet)
    except _MALFORMED as reason:
        raise LocalProtocolError(f"{layout.kind.name}: {reason}") from reason
    return _sealed(signed, layout.kind, layout.limit, _own_key(packet.sender, keys))


def decode(frame: bytes | memoryview, keys: Keys = NO_KEYS) -> Packet:
    """The packet in a frame; RemoteProtocolError for anything that is not one."""
    if type(frame) is not bytes:
        frame = bytes(frame)
    if frame[:4] == _DATA_PREFIX:
        return _decode_data(frame, keys)
    kind = peek_kind(frame)
    layout = _READERS.get(kind)
    limit = JUMBO_DATAGRAM if layout is None else layout.limit
    if len(frame) > limit:
        raise RemoteProtocolError(f"{kind.name} of {len(frame)} bytes, at most {limit}")
    header, flags = read_header(frame, () if layout is None else layout.flags)
    signed = unsealed(frame, key_of(header.sender, keys))
    body = signed[HEADER_BYTES:]
    if layout is None:
        return _read_repair(header, body, keys)
    try:
        packet = layout.read(header, body)
    except _MALFORMED as reason:
        raise RemoteProtocolError(f"{kind.name}: {reason}") from reason
    if flags:
        packet = packet._replace(**flags)
    fault = layout.fault(packet)
    if fault is not None:
        raise RemoteProtocolError(fault)
    return cast("Packet", packet)


def _own_key(sender: NodeId, keys: Keys) -> bytes:
    """A key that the writer must have."""
    try:
        return keys[sender]
    except KeyError:
        raise LocalProtocolError(f"no key to send as {sender}") from None


def _sealed(signed: bytes, kind: PacketKind, limit: int, key: bytes) -> bytes:
    """The frame, if it is short enough for its kind."""
    if len(signed) + TAG_BYTES > limit:
        raise LocalProtocolError(f"{kind.name} of {len(signed) + TAG_BYTES} bytes, at most {limit}")
    return signed + tag_of(signed, key)


# ---- DATA, by the short way: one struct for header and fields, no calls


def _encode_data(packet: Data, keys: Keys) -> bytes:
    payload = packet.payload
    if len(payload) > MAX_PAYLOAD:
        raise LocalProtocolError(f"a payload of {len(payload)} bytes, more than {MAX_PAYLOAD}")
    number, server = packet.epoch
    try:
        fields = _DATA.pack(_DATA_PREFIX, packet.stripe, 0, number, server, packet.sender, packet.number, packet.base)
    except error as reason:
        raise LocalProtocolError(f"DATA: {reason}") from reason
    key = _own_key(packet.sender, keys)
    return fields + payload + blake2b(fields + packet.digest, digest_size=TAG_BYTES, key=key).digest()


def _decode_data(frame: bytes, keys: Keys) -> Data:
    if not _SHORTEST_DATA <= len(frame) <= _LONGEST_DATA:
        raise RemoteProtocolError(f"DATA of {len(frame)} bytes, from {_SHORTEST_DATA} to {_LONGEST_DATA} expected")
    _, stripe, flags, epoch_number, server, sender, number, base = _DATA.unpack_from(frame)
    try:
        key = keys[sender]
    except KeyError:
        raise StrangerError(f"no key of sender {sender}") from None
    payload = frame[_PAYLOAD_AT:-TAG_BYTES]
    digest = sha256(payload).digest()[:DIGEST_BYTES]
    tag = blake2b(frame[:_PAYLOAD_AT] + digest, digest_size=TAG_BYTES, key=key).digest()
    if not compare_digest(tag, frame[-TAG_BYTES:]):
        raise ForgeryError("the authentication tag is wrong")
    if flags:
        raise RemoteProtocolError(f"unknown flags {flags:#x} are set")
    return Data(stripe, Epoch(epoch_number, server), sender, number, base, payload, digest)


# ---- TOKEN: its body says again who sent it, and when


def _read_token(header: Header, body: bytes) -> Token:
    token = decode_token_body(header.stripe, body)
    if token.epoch != header.epoch or token.sender != header.sender:
        raise RemoteProtocolError("TOKEN: the frame and the body name different senders or epochs")
    return token


def _token_fault(token: Token) -> str | None:
    length = len(token_body(token))
    return f"TOKEN: a body of {length} bytes must travel in parts" if length > MAX_WHOLE_TOKEN else None


# ---- REPAIR: the complete frame of its item, one level deep


def _encode_repair(packet: Repair, keys: Keys) -> bytes:
    item = packet.item
    if not isinstance(item, Data | Token | TokenPart) or item.stripe != packet.stripe:
        raise LocalProtocolError("REPAIR: the item is of another stripe, or nothing that is repaired")
    try:
        signed = header_bytes(PacketKind.REPAIR, packet) + encode(item, keys)
    except error as reason:
        raise LocalProtocolError(f"REPAIR: {reason}") from reason
    return _sealed(signed, PacketKind.REPAIR, JUMBO_DATAGRAM, _own_key(packet.sender, keys))


def _read_repair(header: Header, body: bytes, keys: Keys) -> Repair:
    kind = peek_kind(body)
    if kind not in _REPAIRABLE:
        raise RemoteProtocolError(f"REPAIR: {kind.name} is not repaired")
    item = cast("Repairable", decode(body, keys))
    if item.stripe != header.stripe:
        raise RemoteProtocolError("REPAIR: the item is of another stripe")
    return Repair(*header, item)


_LAYOUTS: dict[type, Layout[Any]] = {
    **TRAFFIC,
    **NACKS,
    **BALLOTS,
    **LINE_PLANS,
    Token: Layout(PacketKind.TOKEN, token_body, _read_token, _token_fault),
}
_READERS: dict[PacketKind, Layout[Any]] = {layout.kind: layout for layout in _LAYOUTS.values()}
