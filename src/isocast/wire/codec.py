"""Packets to bytes and back, all kinds of them: `encode` and `decode`.

The law of the reader: whatever the bytes, it returns a packet that keeps every rule, or raises
RemoteProtocolError and nothing else. It refuses what it does not know (another magic, version or kind,
unknown flags, bytes left over) and believes no count further than there are bytes. The market is compared before
the tag is looked at, the tag before the body is.

The law of the writer: what it returns, the reader accepts; otherwise it raises LocalProtocolError.

DATA in the core and REL on the lines outnumber everything else by far, so they have ways of their own through both
functions. `token_body` and `ballot_bodies` write and read the largest bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha256
from hmac import compare_digest
from struct import Struct, error
from typing import Any, cast

from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, StrangerError
from isocast.terms.ids import Epoch, NodeId
from isocast.wire.ballot_bodies import BALLOTS
from isocast.wire.frame import (
    KIND_AT,
    NO_KEYS,
    NO_MARKET,
    VERSION,
    Header,
    Keys,
    Layout,
    PacketKind,
    check_market,
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
    JUMBO_DATAGRAM,
    LINE_REST_BYTES,
    LINE_ROOM_BYTES,
    LINE_SCOPE_BYTES,
    LINES_BYTES,
    LINK_BYTES,
    MAX_HOLDING_BITS,
    MAX_HOLDINGS,
    MAX_LINE_RESTS,
    MAX_LINE_SCOPES,
    MAX_LINKS,
    MAX_NUMBER,
    MAX_PART_BODY,
    MAX_PARTS,
    MAX_PAYLOAD,
    MAX_PROOF,
    MAX_PROOF_DIGESTS,
    MAX_PROOF_PARTS,
    MAX_UDP,
    MAX_WHOLE_TOKEN,
    NACK_BYTES,
    PART_BYTES,
    PROOF_BYTES,
    PROOF_DIGEST_BYTES,
    RELEASED_BYTES,
    SEAL_BYTES,
    SIGNATURE_BYTES,
    TAG_BYTES,
)
from isocast.wire.packets import (
    NO_ADDRESS,
    SHORT_DIGEST_BYTES,
    Data,
    Disclose,
    Holding,
    LineAck,
    LineAsk,
    LineRest,
    Lines,
    LineScope,
    Nack,
    Packet,
    Pending,
    PlanVersion,
    Proof,
    Range,
    RangeReply,
    RangeRequest,
    Receipt,
    ReleasedPacket,
    Repair,
    Repairable,
    SecondaryToken,
    SourceChain,
    Standing,
    Token,
    TokenPart,
)
from isocast.wire.proofs import proof_fields, read_proof_fields
from isocast.wire.signing import signature_fault
from isocast.wire.token_body import decode_token_body, token_bytes

__all__ = [
    "LINE_PLANS",
    "NACKS",
    "NO_KEYS",
    "NO_MARKET",
    "TRAFFIC",
    "VERSION",
    "Keys",
    "PacketKind",
    "decode",
    "encode",
    "line_packet",
    "line_parts",
    "peek_kind",
    "released_line",
]


# The bodies of LINEASK, LINEACK and LINES (§4.3; protocol §7).


_VERSIONS = Struct("<8I")
_LINES = Struct("<4IqIHHH")
_SCOPE = Struct("<IddIIH")
_REST = Struct("<IddIIHq")
_POLE, _DATE_LINE = 90.0, 180.0


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


# The body of NACK: a token, the map of its parts that arrived, and holdings.
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


def _write_nack(packet: Nack) -> bytes:
    parts = packet.parts_held.to_bytes(_bytes_for(packet.parts_held), "little")
    flags = _HAS_TOKEN if packet.has_token else 0
    pieces = [_NACK.pack(packet.token_number, flags, len(parts), len(packet.listed)), parts]
    for source, first, bitmap in packet.listed:
        length = _bytes_for(bitmap)
        pieces += (_HOLDING.pack(source, first, length), bitmap.to_bytes(length, "little"))
    return b"".join(pieces)


def _read_nack(header: Header, body: bytes) -> Nack:
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


def _nack_fault(packet: Nack) -> str | None:
    if packet.parts_held < 0 or packet.parts_held.bit_length() > MAX_PARTS:
        return f"NACK: parts beyond {MAX_PARTS}"
    if len(packet.listed) > MAX_HOLDINGS:
        return f"NACK: {len(packet.listed)} holdings, at most {MAX_HOLDINGS}"
    for source, first, bitmap in packet.listed:
        bits = bitmap.bit_length()
        if bitmap < 0 or bits > MAX_HOLDING_BITS or first + bits > MAX_NUMBER:
            return f"NACK: {bits} bits of source {source} from {first}"
    return None


NACKS: dict[type, Layout[Any]] = {Nack: Layout(PacketKind.NACK, _write_nack, _read_nack, _nack_fault, MAX_UDP)}
"""How a NACK is written and read."""


# The bodies of a ring's ordinary traffic: parts, receipts, answers, releases and ranges.


_PART = Struct("<QHH")
_RECEIPT = Struct("<Q32s")
_PENDING = Struct("<Q")
_CHAIN = Struct("<Q32sQ32s")
_STANDING = Struct("<QQQ")
_SECONDARY = Struct("<IQ")
_RELEASED = Struct("<QQqQIIHH16s")
_REQUEST = Struct("<HQQ")
_REPLY = Struct("<HQQQ")


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


def _write_receipt(packet: Receipt) -> bytes:
    return _RECEIPT.pack(packet.held, packet.digest) + packet.signature


def _read_receipt(header: Header, body: bytes) -> Receipt:
    end = _RECEIPT.size
    held, digest = _RECEIPT.unpack(body[:end])
    return Receipt(*header, held, digest, body[end:])


def _receipt_fault(packet: Receipt) -> str | None:
    return digest_fault(packet.digest) or signature_fault(packet.signature)


def _write_chain(packet: SourceChain) -> bytes:
    return _CHAIN.pack(packet.since, packet.before, packet.number, packet.digest) + packet.signature


def _read_chain(header: Header, body: bytes) -> SourceChain:
    end = _CHAIN.size
    since, before, number, digest = _CHAIN.unpack(body[:end])
    return SourceChain(*header, since, before, number, digest, body[end:])


def _chain_fault(packet: SourceChain) -> str | None:
    is_one_point = packet.since == packet.number and packet.before == packet.digest
    if not (is_one_point or 0 <= packet.since < packet.number <= MAX_NUMBER):
        return f"SRCCHAIN: from {packet.since} to {packet.number}"
    return digest_fault(packet.before, packet.digest) or signature_fault(packet.signature)


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
        packet.shuffle_key,
    )
    return fixed + packet.payload + packet.proof


def _read_released(header: Header, body: bytes) -> ReleasedPacket:
    token_number, sequence, instant, number, edge_stripe, count, payload, proof, key = _RELEASED.unpack_from(body)
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
        shuffle_key=key,
    )


_LONGEST_RELEASED = MAX_PAYLOAD - SEAL_BYTES


def _released_fault(packet: ReleasedPacket) -> str | None:
    payload, proof = len(packet.payload), len(packet.proof)
    longest = _LONGEST_RELEASED
    if payload > longest or proof > MAX_PROOF or payload + proof > longest + LINE_ROOM_BYTES:
        return f"REL of {payload} and {proof} bytes, at most {longest} and {MAX_PROOF}"
    if len(packet.shuffle_key) != SHORT_DIGEST_BYTES:
        return f"a shuffle key of {len(packet.shuffle_key)} bytes"
    return None


def _write_proof(packet: Proof) -> bytes:
    return proof_fields(packet) + packet.signature


def _read_proof(header: Header, body: bytes) -> Proof:
    token_number, instant, first, edge_stripe, version, part, parts, salt = read_proof_fields(body)
    signature_at = len(body) - SIGNATURE_BYTES
    count, rest = divmod(signature_at - PROOF_BYTES, PROOF_DIGEST_BYTES)
    if count < 1 or rest:
        raise RemoteProtocolError(f"PROOF of {len(body)} bytes")
    digests = tuple([body[at : at + PROOF_DIGEST_BYTES] for at in range(PROOF_BYTES, signature_at, PROOF_DIGEST_BYTES)])
    of_stripe = (edge_stripe, version, first, part, parts)
    return Proof(*header, token_number, instant, *of_stripe, salt, digests, body[signature_at:])


def _proof_fault(packet: Proof) -> str | None:
    if not 0 < len(packet.digests) <= MAX_PROOF_DIGESTS or packet.first + len(packet.digests) > MAX_NUMBER:
        return f"PROOF: {len(packet.digests)} digests from {packet.first}, at most {MAX_PROOF_DIGESTS}"
    if not 0 <= packet.part < packet.parts <= MAX_PROOF_PARTS:
        return f"PROOF: part {packet.part} of {packet.parts}, at most {MAX_PROOF_PARTS}"
    if len(packet.signature) != SIGNATURE_BYTES:
        return f"PROOF: a signature of {len(packet.signature)} bytes"
    if any(len(digest) != PROOF_DIGEST_BYTES for digest in (packet.salt, *packet.digests)):
        return "PROOF: a digest or salt of another length"
    return None


def _read_request(header: Header, body: bytes) -> RangeRequest:
    kind, first, last = _REQUEST.unpack(body)
    return RangeRequest(*header, Range(kind), first, last)


def _request_fault(packet: RangeRequest) -> str | None:
    return f"a range from {packet.first} to {packet.last}" if packet.first > packet.last else None


def _read_reply(header: Header, body: bytes) -> RangeReply:
    kind, first, last, low_water = _REPLY.unpack(body)
    return RangeReply(*header, Range(kind), first, last, low_water)


_LINK = Struct("<Q32s")


def _read_disclose(header: Header, body: bytes) -> Disclose:
    return Disclose(*header, tuple([(number, key) for number, key in _LINK.iter_unpack(body)]))


def _disclose_fault(packet: Disclose) -> str | None:
    numbers = [number for number, _ in packet.links]
    if len(numbers) > MAX_LINKS or numbers != sorted(set(numbers)):
        return f"DISCLOSE: {len(numbers)} links, at most {MAX_LINKS}, each number once and in order"
    if any(len(key) != LINK_BYTES for _, key in packet.links):
        return f"DISCLOSE: a link that is not of {LINK_BYTES} bytes"
    return None


TRAFFIC: dict[type, Layout[Any]] = {
    Disclose: Layout(
        PacketKind.DISCLOSE,
        lambda packet: b"".join([_LINK.pack(*link) for link in packet.links]),
        _read_disclose,
        _disclose_fault,
    ),
    TokenPart: Layout(PacketKind.TOKENPART, _write_part, _read_part, _part_fault),
    Receipt: Layout(PacketKind.RECEIPT, _write_receipt, _read_receipt, _receipt_fault),
    SourceChain: Layout(PacketKind.SRCCHAIN, _write_chain, _read_chain, _chain_fault),
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
    Proof: Layout(PacketKind.PROOF, _write_proof, _read_proof, _proof_fault),
    RangeRequest: Layout(PacketKind.RXREQ, lambda packet: _REQUEST.pack(*packet[3:]), _read_request, _request_fault),
    RangeReply: Layout(PacketKind.RXREP, lambda packet: _REPLY.pack(*packet[3:]), _read_reply),
}
"""How each of these packets is written and read."""


_DATA = Struct("<4s4sHHIIQQQ")
_DATA_PREFIX = prefix(PacketKind.DATA)
_PAYLOAD_AT = HEADER_BYTES + DATA_BYTES
_SHORTEST_DATA = FRAME_BYTES + DATA_BYTES
_LONGEST_DATA = _SHORTEST_DATA + MAX_PAYLOAD

_REL = Struct("<4s4sHHIIQQQqQIIHH16s")
_REL_PREFIX = prefix(PacketKind.REL)
_SHORTEST_REL = FRAME_BYTES + RELEASED_BYTES

_REPAIRABLE = (PacketKind.DATA, PacketKind.TOKEN, PacketKind.TOKENPART)
_MALFORMED = (error, ValueError)
"""What struct and the enumerations raise for values that are out of their range."""


def encode(packet: Packet, keys: Keys = NO_KEYS, market: bytes = NO_MARKET) -> bytes:
    """The frame of a packet in a market, authenticated with its sender's key."""
    if type(packet) is Data:
        return _encode_data(packet, keys, market)
    if type(packet) is ReleasedPacket:
        return _encode_released(packet, keys, market)
    if type(packet) is Repair:
        return _encode_repair(packet, keys, market)
    header, body, layout = _unsigned(packet, market)
    return _sealed(header + body, layout.kind, layout.limit, _own_key(packet.sender, keys))


def _unsigned(packet: Packet, market: bytes, flags: int = 0) -> tuple[bytes, bytes, Layout[Any]]:
    """Header and body of a packet that is neither DATA nor REPAIR."""
    layout = _LAYOUTS.get(type(packet))
    if layout is None:
        raise LocalProtocolError(f"{type(packet).__name__} is not a packet")
    fault = layout.fault(packet)
    if fault is not None:
        raise LocalProtocolError(fault)
    try:
        return header_bytes(layout.kind, packet, market, layout.flags, flags), layout.write(packet), layout
    except _MALFORMED as reason:
        raise LocalProtocolError(f"{layout.kind.name}: {reason}") from reason


def decode(frame: bytes | memoryview, keys: Keys = NO_KEYS, market: bytes = NO_MARKET) -> Packet:
    """The packet in a frame; RemoteProtocolError for anything that is not one of this market."""
    if type(frame) is not bytes:
        frame = bytes(frame)
    if frame[:4] == _DATA_PREFIX:
        return _decode_data(frame, keys, market)
    if frame[:4] == _REL_PREFIX:
        return _decode_released(frame, keys, market)
    kind = peek_kind(frame)
    check_market(frame, market)
    layout = _READERS.get(kind)
    limit = JUMBO_DATAGRAM if layout is None else layout.limit
    if len(frame) > limit:
        raise RemoteProtocolError(f"{kind.name} of {len(frame)} bytes, at most {limit}")
    header, flags = read_header(frame, () if layout is None else layout.flags)
    signed = unsealed(frame, key_of(header.sender, keys))
    body = signed[HEADER_BYTES:]
    if layout is None:
        return _read_repair(header, body, keys, market)
    return _packet_of(layout, header, flags, body)


def _packet_of(layout: Layout[Any], header: Header, flags: Mapping[str, bool], body: bytes) -> Packet:
    """The packet in a body that is authentic; RemoteProtocolError for anything that is not one."""
    try:
        packet = layout.read(header, body)
    except _MALFORMED as reason:
        raise RemoteProtocolError(f"{layout.kind.name}: {reason}") from reason
    if flags:
        packet = packet._replace(**flags)
    fault = layout.fault(packet)
    if fault is not None:
        raise RemoteProtocolError(fault)
    return cast("Packet", packet)


# A line's packets without their tag, for whoever seals them (`security.line_seals`)


def line_parts(packet: Packet, market: bytes, flags: int) -> tuple[bytes, bytes, int]:
    """Header, with more `flags`, and body of a packet, and how long its frame may be.

    LocalProtocolError for what readers would refuse.
    """
    if type(packet) is ReleasedPacket:
        fields = _released_fields(packet, market, flags)
        return fields[:HEADER_BYTES], b"".join((fields[HEADER_BYTES:], packet.payload, packet.proof)), JUMBO_DATAGRAM
    header, body, layout = _unsigned(packet, market, flags)
    return header, body, layout.limit


def released_line(packet: ReleasedPacket, market: bytes, flags: int) -> tuple[bytes, bytes]:
    """Header and fields of a released message; payload and proof are the rest of its body. Errors as `line_parts`."""
    fields = _released_fields(packet, market, flags)
    return fields[:HEADER_BYTES], fields[HEADER_BYTES:]


def line_packet(header: bytes, body: bytes) -> Packet:
    """The packet of a header and a body that are authentic; RemoteProtocolError for anything that is not one."""
    if header[KIND_AT] == PacketKind.REL:
        return _released_of_line(header, body)
    try:
        layout = _READERS[PacketKind(header[KIND_AT])]
    except (KeyError, ValueError):
        raise RemoteProtocolError(f"kind {header[KIND_AT]} does not travel on a sealed line") from None
    found, flags = read_header(header, layout.flags)
    return _packet_of(layout, found, flags, body)


def _released_of_line(header: bytes, body: bytes) -> ReleasedPacket:
    """A line's message by the short way: most of what a customer hears is one."""
    if len(body) < RELEASED_BYTES:
        raise RemoteProtocolError(f"REL with a body of {len(body)} bytes")
    _, _, stripe, flags, epoch_number, server, sender, *fields, length, proof_length, key = _REL.unpack(
        header + body[:RELEASED_BYTES]
    )
    if flags > 1:
        raise RemoteProtocolError(f"unknown flags {flags:#x} are set")
    proof_at = RELEASED_BYTES + length
    if len(body) != proof_at + proof_length:
        raise RemoteProtocolError(f"REL of {len(body)} bytes, {proof_at + proof_length} expected")
    token, sequence, instant, number, edge_stripe, count = fields
    payload, proof = body[RELEASED_BYTES:proof_at], body[proof_at:]
    epoch, marked = Epoch(epoch_number, server), bool(flags)
    packet = ReleasedPacket(
        stripe, epoch, sender, token, sequence, instant, edge_stripe, number, count, payload, proof, marked, key
    )
    if proof_length or length > _LONGEST_RELEASED:
        fault = _released_fault(packet)
        if fault is not None:
            raise RemoteProtocolError(fault)
    return packet


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


# DATA, by the short way: one struct for header and fields, no calls


def _encode_data(packet: Data, keys: Keys, market: bytes) -> bytes:
    payload = packet.payload
    if len(payload) > MAX_PAYLOAD:
        raise LocalProtocolError(f"a payload of {len(payload)} bytes, more than {MAX_PAYLOAD}")
    number, server = packet.epoch
    try:
        fields = _DATA.pack(
            _DATA_PREFIX, market, packet.stripe, 0, number, server, packet.sender, packet.number, packet.base
        )
    except error as reason:
        raise LocalProtocolError(f"DATA: {reason}") from reason
    key = _own_key(packet.sender, keys)
    return fields + payload + blake2b(fields + packet.digest, digest_size=TAG_BYTES, key=key).digest()


def _decode_data(frame: bytes, keys: Keys, market: bytes) -> Data:
    if not _SHORTEST_DATA <= len(frame) <= _LONGEST_DATA:
        raise RemoteProtocolError(f"DATA of {len(frame)} bytes, from {_SHORTEST_DATA} to {_LONGEST_DATA} expected")
    _, found, stripe, flags, epoch_number, server, sender, number, base = _DATA.unpack_from(frame)
    if found != market:
        check_market(frame, market)
    try:
        key = keys[sender]
    except KeyError:
        raise StrangerError(f"no key of sender {sender}") from None
    payload = frame[_PAYLOAD_AT:-TAG_BYTES]
    digest = sha256(payload).digest()
    tag = blake2b(frame[:_PAYLOAD_AT] + digest, digest_size=TAG_BYTES, key=key).digest()
    if not compare_digest(tag, frame[-TAG_BYTES:]):
        raise ForgeryError("the authentication tag is wrong")
    if flags:
        raise RemoteProtocolError(f"unknown flags {flags:#x} are set")
    return Data(stripe, Epoch(epoch_number, server), sender, number, base, payload, digest)


# REL, in the same way


def _released_fields(packet: ReleasedPacket, market: bytes, flags: int = 0) -> bytes:
    """Header and fields: everything before the payload."""
    # Taken apart in one step, which costs less than asking for each field.
    stripe, epoch, sender, token, sequence, instant, edge_stripe, place, count, payload, proof, uncertified, key = (
        packet
    )
    if proof or len(payload) > _LONGEST_RELEASED or len(key) != SHORT_DIGEST_BYTES:
        fault = _released_fault(packet)
        if fault is not None:
            raise LocalProtocolError(fault)
    try:
        return _REL.pack(
            _REL_PREFIX,
            market,
            stripe,
            uncertified | flags,
            *epoch,
            sender,
            token,
            sequence,
            instant,
            place,
            edge_stripe,
            count,
            len(payload),
            len(proof),
            key,
        )
    except error as reason:
        raise LocalProtocolError(f"REL: {reason}") from reason


def _encode_released(packet: ReleasedPacket, keys: Keys, market: bytes) -> bytes:
    fields, payload, proof = _released_fields(packet, market), packet.payload, packet.proof
    if _SHORTEST_REL + len(payload) + len(proof) > JUMBO_DATAGRAM:
        raise LocalProtocolError(f"REL of {len(payload)} and {len(proof)} bytes is longer than a datagram")
    key = _own_key(packet.sender, keys)
    tag = blake2b(fields + packet.digest + proof, digest_size=TAG_BYTES, key=key).digest()
    return b"".join((fields, payload, proof, tag))


def _decode_released(frame: bytes, keys: Keys, market: bytes) -> ReleasedPacket:
    if not _SHORTEST_REL <= len(frame) <= JUMBO_DATAGRAM:
        raise RemoteProtocolError(f"REL of {len(frame)} bytes, from {_SHORTEST_REL} to {JUMBO_DATAGRAM} expected")
    _, found, stripe, flags, epoch_number, server, sender, *fields, length, proof_length, shuffle_key = (
        _REL.unpack_from(frame)
    )
    if found != market:
        check_market(frame, market)
    if flags > 1:
        raise RemoteProtocolError(f"unknown flags {flags:#x} are set")
    key = key_of(sender, keys)
    proof_at = _REL.size + length
    if len(frame) != proof_at + proof_length + TAG_BYTES:
        raise RemoteProtocolError(f"REL of {len(frame)} bytes, {proof_at + proof_length + TAG_BYTES} expected")
    payload, proof = frame[_REL.size : proof_at], frame[proof_at:-TAG_BYTES]
    digest = sha256(payload).digest()
    tag = blake2b(frame[: _REL.size] + digest + proof, digest_size=TAG_BYTES, key=key).digest()
    if not compare_digest(tag, frame[-TAG_BYTES:]):
        raise ForgeryError("the authentication tag is wrong")
    token_number, sequence, instant, number, edge_stripe, count = fields
    packet = ReleasedPacket(
        stripe,
        Epoch(epoch_number, server),
        sender,
        token_number,
        sequence,
        instant,
        edge_stripe,
        number,
        count,
        payload,
        proof,
        bool(flags),
        shuffle_key,
    )
    packet.known_digest = digest
    fault = _released_fault(packet)
    if fault is not None:
        raise RemoteProtocolError(fault)
    return packet


# TOKEN: its body says again who sent it, and when


def _read_token(header: Header, body: bytes) -> Token:
    token = decode_token_body(header.stripe, body)
    if token.epoch != header.epoch or token.sender != header.sender:
        raise RemoteProtocolError("TOKEN: the frame and the body name different senders or epochs")
    return token


def _token_fault(token: Token) -> str | None:
    length = len(token_bytes(token))
    return f"TOKEN: a body of {length} bytes must travel in parts" if length > MAX_WHOLE_TOKEN else None


# REPAIR: the complete frame of its item, one level deep


def _encode_repair(packet: Repair, keys: Keys, market: bytes) -> bytes:
    item = packet.item
    if not isinstance(item, Data | Token | TokenPart) or item.stripe != packet.stripe:
        raise LocalProtocolError("REPAIR: the item is of another stripe, or nothing that is repaired")
    try:
        signed = header_bytes(PacketKind.REPAIR, packet, market) + encode(item, keys, market)
    except error as reason:
        raise LocalProtocolError(f"REPAIR: {reason}") from reason
    return _sealed(signed, PacketKind.REPAIR, JUMBO_DATAGRAM, _own_key(packet.sender, keys))


def _read_repair(header: Header, body: bytes, keys: Keys, market: bytes) -> Repair:
    kind = peek_kind(body)
    if kind not in _REPAIRABLE:
        raise RemoteProtocolError(f"REPAIR: {kind.name} is not repaired")
    item = cast("Repairable", decode(body, keys, market))
    if item.stripe != header.stripe:
        raise RemoteProtocolError("REPAIR: the item is of another stripe")
    return Repair(*header, item)


_LAYOUTS: dict[type, Layout[Any]] = {
    **TRAFFIC,
    **NACKS,
    **BALLOTS,
    **LINE_PLANS,
    Token: Layout(PacketKind.TOKEN, token_bytes, _read_token, _token_fault),
}
_READERS: dict[PacketKind, Layout[Any]] = {layout.kind: layout for layout in _LAYOUTS.values()}
