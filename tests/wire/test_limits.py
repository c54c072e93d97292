"""The arithmetic of each limit: the largest packet of each kind is built, and fits."""

from dataclasses import replace

from isocast.terms.ids import Epoch
from isocast.wire import limits
from isocast.wire.codec import decode, encode
from isocast.wire.events import EVENT_DTYPE, EVENTS_PER_PAYLOAD
from isocast.wire.limits import JUMBO_DATAGRAM, MAX_DATAGRAM, MAX_UDP, payload_capacity
from isocast.wire.packets import (
    ControlEntry,
    ControlKind,
    Data,
    Disclose,
    Disclosure,
    Grant,
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
    Proof,
    Range,
    RangeReply,
    RangeRequest,
    Receipt,
    Refuse,
    ReleasedPacket,
    Repair,
    Run,
    SecondaryToken,
    SourceChain,
    Standing,
    Suspect,
    Suspicion,
    Token,
    TokenPart,
    Vote,
)
from isocast.wire.token_body import join_parts, split_token, token_body

U16 = (1 << 16) - 1
U32 = (1 << 32) - 1
U64 = (1 << 64) - 1
I64 = (1 << 63) - 1
EPOCH = Epoch(U32, U32)
HEADER = (U16, EPOCH, U64)
VERSION = PlanVersion(EPOCH, U32, U32)
DIGEST = b"\xff" * 32
NONCE = b"\xff" * 16
SIGNATURE = b"\xff" * limits.SIGNATURE_BYTES
VOTES = tuple(Vote(U32 - index, EPOCH, U64, DIGEST, DIGEST, SIGNATURE) for index in range(limits.MAX_VOTES))
ALL_PARTS = (1 << limits.MAX_PARTS) - 1
NODES = tuple(range(U32 - limits.MAX_RING, U32))
NEXT_NUMBERS = tuple(NextNumber(U64 - index, U64) for index in range(limits.MAX_NEXT_NUMBERS))


def token(runs: int, *, steps: int = 0, grants: int = 0, control: int = 0, signature: bytes = b"") -> Token:
    entry = ControlEntry(ControlKind.MARK, U64, bytes(limits.MAX_CONTROL_BODY), bytes(limits.ORDER_BYTES))
    return Token(
        *HEADER,
        U64,
        I64,
        1 << 63,
        tuple(Run(U64 - index, 1 << 63, 1, DIGEST) for index in range(runs)),
        tuple((index, 1) for index in range(steps)),
        (entry,) * control,
        NONCE,
        NONCE,
        U64,
        U64,
        tuple(Grant(U64 - index, U32) for index in range(grants)),
        DIGEST,
        signature,
    )


ROOM = limits.MAX_WHOLE_TOKEN - limits.SIGNATURE_BYTES - limits.TOKEN_BYTES
WHOLE = token(ROOM // limits.RUN_BYTES, signature=SIGNATURE)
DATA = Data(*HEADER, U64, U64, bytes(limits.MAX_PAYLOAD))
OPENED = bytes(limits.MAX_PAYLOAD - limits.SEAL_BYTES)
PART = TokenPart(*HEADER, U64, limits.MAX_PARTS - 1, limits.MAX_PARTS, bytes(limits.MAX_PART_BODY))

LARGEST: tuple[tuple[Packet, int], ...] = (
    (DATA, JUMBO_DATAGRAM),
    (WHOLE, MAX_DATAGRAM),
    (PART, MAX_DATAGRAM),
    (Receipt(*HEADER, U64, DIGEST, SIGNATURE), MAX_DATAGRAM),
    (SourceChain(*HEADER, U64 - 1, DIGEST, U64, DIGEST, SIGNATURE), MAX_DATAGRAM),
    (
        Nack(
            *HEADER,
            U64,
            has_token=True,
            parts_held=ALL_PARTS,
            listed=tuple(Holding(U64, 1 << 63, 255) for _ in range(limits.MAX_HOLDINGS)),
        ),
        MAX_UDP,
    ),
    (Repair(*HEADER, DATA), JUMBO_DATAGRAM),
    (Repair(*HEADER, WHOLE), MAX_DATAGRAM),
    (Repair(*HEADER, PART), MAX_DATAGRAM),
    (Pending(*HEADER, U64), MAX_DATAGRAM),
    (Standing(*HEADER, U64, U64, U64), MAX_DATAGRAM),
    (Suspect(*HEADER, U64, U64, Suspicion.LOST, EPOCH), MAX_DATAGRAM),
    (Invite(*HEADER, EPOCH, SIGNATURE), MAX_DATAGRAM),
    (Refuse(*HEADER, EPOCH, EPOCH, U64), MAX_DATAGRAM),
    (
        Join(
            *(*HEADER, EPOCH, U64, DIGEST, I64, U64, I64, NODES, NONCE, NODES, NEXT_NUMBERS),
            leaving=True,
            signature=SIGNATURE,
        ),
        MAX_UDP,
    ),
    (
        NewRing(
            *(*HEADER, EPOCH, NODES, U64, U64, I64, EPOCH, U64, DIGEST),
            *(NODES, (NONCE,) * limits.MAX_RING, NODES, NEXT_NUMBERS),
            votes=VOTES,
            order=bytes(limits.ORDER_BYTES),
            signature=SIGNATURE,
        ),
        MAX_UDP,
    ),
    (SecondaryToken(*HEADER, U32, U64), MAX_DATAGRAM),
    (
        ReleasedPacket(*(*HEADER, U64, U64, I64, U32, U64, U32, OPENED), bytes(limits.LINE_ROOM_BYTES)),
        JUMBO_DATAGRAM,
    ),
    (Disclose(*HEADER, tuple([(U64 - 40 + n, DIGEST) for n in range(limits.MAX_LINKS)])), MAX_DATAGRAM),
    (
        Proof(
            *(*HEADER, U64, I64, U32, U32, U64 - limits.MAX_PROOF_DIGESTS, limits.MAX_PROOF_PARTS - 1),
            *(
                limits.MAX_PROOF_PARTS,
                bytes(16),
                (bytes(16),) * limits.MAX_PROOF_DIGESTS,
                bytes(limits.SIGNATURE_BYTES),
            ),
        ),
        MAX_DATAGRAM - limits.SEALED_LINE_BYTES,
    ),
    (RangeRequest(*HEADER, Range.TOKENS, U64, U64), MAX_DATAGRAM),
    (RangeReply(*HEADER, Range.TOKENS, U64, U64, U64), MAX_DATAGRAM),
    (LineAsk(*HEADER, VERSION, VERSION), MAX_DATAGRAM),
    (LineAck(*HEADER, VERSION, VERSION, settled=True), MAX_DATAGRAM),
    (
        Lines(
            *(*HEADER, VERSION, I64, U32, U16),
            tuple(LineScope(U32 - index, 90.0, 180.0, U32, U32, 0) for index in range(limits.MAX_LINE_SCOPES)),
            (LineRest(U32, 90.0, 180.0, U32, U32, 0, I64),) * limits.MAX_LINE_RESTS,
        ),
        MAX_UDP,
    ),
)


def test_the_largest_packet_of_every_kind_fits_and_comes_back() -> None:
    assert {type(packet) for packet, _ in LARGEST} == set(Packet.__args__)
    for packet, limit in LARGEST:
        frame = encode(packet)
        assert len(frame) <= limit, type(packet).__name__
        assert decode(frame) == packet


def test_where_a_limit_is_meant_to_fill_the_datagram_it_does() -> None:
    sizes = {type(packet): len(encode(packet)) for packet, _ in LARGEST if not isinstance(packet, Repair)}
    assert len(encode(Repair(*HEADER, DATA))) == JUMBO_DATAGRAM
    assert JUMBO_DATAGRAM - limits.SEAL_BYTES < sizes[ReleasedPacket] <= JUMBO_DATAGRAM
    assert len(encode(Repair(*HEADER, PART))) == MAX_DATAGRAM
    assert MAX_UDP - sizes[Nack] < limits.HOLDING_BYTES + 1
    assert sizes[Join] == 35_026
    assert sizes[NewRing] == 60_510
    assert sizes[Lines] == 62_030
    assert len(encode(WHOLE)) + limits.RUN_BYTES > limits.MAX_REPAIR_ITEM
    assert len(WHOLE.runs) == 22


def test_a_short_nack_stays_in_one_ethernet_frame() -> None:
    listed = tuple(Holding(U64, 1 << 63, 255) for _ in range(55))
    assert len(encode(Nack(*HEADER, U64, has_token=True, parts_held=ALL_PARTS, listed=listed))) <= MAX_DATAGRAM


def test_the_largest_token_takes_all_parts_and_comes_back() -> None:
    every = limits.MAX_RUNS
    grown = token(every, steps=every, grants=limits.MAX_GRANTS, control=limits.MAX_CONTROL_ENTRIES, signature=SIGNATURE)
    keys = tuple([Disclosure(source, U64, DIGEST) for source in range(limits.MAX_DISCLOSURES)])
    largest = replace(grown, disclosures=keys)
    assert len(token_body(largest)) == limits.MAX_TOKEN_BODY == 3_982_986
    parts = split_token(largest)
    assert len(parts) == limits.MAX_PARTS == 2_904
    assert join_parts(parts) == largest


def test_fixed_fields_have_the_lengths_that_the_limits_count_with() -> None:
    frame = limits.FRAME_BYTES
    assert len(encode(Data(*HEADER, 0, 0, b""))) == frame + limits.DATA_BYTES
    assert len(encode(TokenPart(*HEADER, 0, 0, 1, b"x"))) == frame + limits.PART_BYTES + 1
    assert len(encode(Nack(*HEADER, 0, has_token=False, parts_held=0, listed=()))) == frame + limits.NACK_BYTES
    assert len(encode(ReleasedPacket(*HEADER, 0, 0, 0, 0, 0, 0, b"", b""))) == frame + limits.RELEASED_BYTES
    proof = Proof(*HEADER, 0, 0, 0, 0, 0, 0, 1, bytes(16), (bytes(16),), bytes(limits.SIGNATURE_BYTES))
    assert len(encode(proof)) == frame + limits.PROOF_BYTES + limits.PROOF_DIGEST_BYTES + limits.SIGNATURE_BYTES
    assert len(encode(Join(*HEADER, EPOCH, 0, DIGEST, 0, 0, 0, (), NONCE, (), ()))) == frame + limits.JOIN_BYTES
    lone = NewRing(*HEADER, EPOCH, (1,), 0, 0, 0, EPOCH, 0, DIGEST, (), (NONCE,), (), ())
    assert len(encode(lone)) == frame + limits.NEW_RING_BYTES + limits.NODE_BYTES + 16
    assert len(token_body(token(0))) == limits.TOKEN_BYTES
    assert len(token_body(token(1))) == limits.TOKEN_BYTES + limits.RUN_BYTES
    assert len(token_body(token(0, grants=1))) == limits.TOKEN_BYTES + limits.GRANT_BYTES
    entry = limits.CONTROL_BYTES + limits.MAX_CONTROL_BODY + limits.ORDER_BYTES
    assert len(token_body(token(0, control=1))) == limits.TOKEN_BYTES + entry


def test_a_full_sealed_payload_can_be_sent_repaired_and_released_with_its_proof() -> None:
    assert EVENT_DTYPE.itemsize == limits.EVENT_BYTES == 48
    assert EVENTS_PER_PAYLOAD == 27
    assert payload_capacity(1_500) == limits.STANDARD_PAYLOAD
    opened = bytes(limits.STANDARD_PAYLOAD - limits.SEAL_BYTES)
    assert len(opened) // limits.EVENT_BYTES == EVENTS_PER_PAYLOAD
    data = Data(*HEADER, 1, 1, bytes(limits.STANDARD_PAYLOAD))
    assert len(encode(Repair(*HEADER, data))) <= MAX_DATAGRAM
    released = ReleasedPacket(*HEADER, 1, 1, 1, 1, 1, 1, opened, bytes(limits.LINE_ROOM_BYTES))
    assert len(encode(released)) <= MAX_DATAGRAM


def test_a_million_events_a_second_fit_a_token_of_one_second() -> None:
    assert 1_000_000 / EVENTS_PER_PAYLOAD * 1.7 < limits.MAX_MESSAGES_PER_TOKEN


def test_every_limit_is_exported() -> None:
    public = {name for name in vars(limits) if name.isupper() and not name.startswith("_")} | {"payload_capacity"}
    assert public == set(limits.__all__)
