"""Hypothesis strategies for every packet, within the limits of the wire."""

from __future__ import annotations

from hypothesis import strategies as st

from isocast.terms.ids import Epoch
from isocast.wire.limits import (
    LINE_ROOM_BYTES,
    LINK_BYTES,
    MAX_CONTROL_BODY,
    MAX_HOLDING_BITS,
    MAX_LINKS,
    MAX_NUMBER,
    MAX_PART_BODY,
    MAX_PARTS,
    MAX_PAYLOAD,
    MAX_PROOF_DIGESTS,
    MAX_PROOF_PARTS,
    ORDER_BYTES,
    SEAL_BYTES,
    SIGNATURE_BYTES,
)
from isocast.wire.packets import (
    DIGEST_BYTES,
    SHORT_DIGEST_BYTES,
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

__all__ = ["PACKETS", "packets", "tokens"]

U16 = st.integers(0, (1 << 16) - 1)
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBERS = st.integers(0, 1 << 62)
"""Numbers with room to count on from."""
EPOCHS = st.builds(Epoch, U32, U32)
DIGESTS = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES)
NONCES = st.binary(min_size=SHORT_DIGEST_BYTES, max_size=SHORT_DIGEST_BYTES)
WHOLE_SIGNATURES = st.binary(min_size=SIGNATURE_BYTES, max_size=SIGNATURE_BYTES)
SIGNATURES = st.one_of(st.just(b""), WHOLE_SIGNATURES)
ORDERS = st.one_of(st.just(b""), st.binary(min_size=ORDER_BYTES, max_size=ORDER_BYTES))
HEADER = (U16, EPOCHS, U64)
NODES = st.lists(U32, max_size=6, unique=True).map(tuple)
NEXT_NUMBERS = st.lists(st.builds(NextNumber, U64, U64), max_size=6, unique_by=lambda entry: entry.source).map(tuple)


@st.composite
def runs(draw: st.DrawFn) -> tuple[Run, ...]:
    sources = draw(st.lists(U64, max_size=8, unique=True))
    counts = st.one_of(st.integers(1, 4), st.integers(1, 8_000))
    return tuple(Run(source, draw(NUMBERS), draw(counts), draw(DIGESTS)) for source in sources)


@st.composite
def interleaves(draw: st.DrawFn, of: tuple[Run, ...]) -> tuple[tuple[int, int], ...]:
    """Steps that use up the runs, in some order; or none."""
    if not of or draw(st.booleans()):
        return ()
    steps: list[tuple[int, int]] = []
    for index, run in enumerate(of):
        first = draw(st.integers(1, run.count))
        steps += [(index, many) for many in (first, run.count - first) if many]
    return tuple(draw(st.permutations(steps)))


CONTROL = st.builds(
    ControlEntry,
    st.sampled_from(ControlKind),
    U64,
    st.one_of(st.binary(max_size=12), st.binary(min_size=MAX_CONTROL_BODY, max_size=MAX_CONTROL_BODY)),
    ORDERS,
)
GRANTS = st.lists(st.builds(Grant, U64, U32), max_size=4, unique_by=lambda grant: grant.source).map(tuple)


DISCLOSURES = st.lists(
    st.builds(Disclosure, U64, U64, st.binary(min_size=LINK_BYTES, max_size=LINK_BYTES)),
    max_size=3,
    unique_by=lambda one: one[:2],
).map(lambda found: tuple(sorted(found)))
LINKS = st.dictionaries(U64, st.binary(min_size=LINK_BYTES, max_size=LINK_BYTES), max_size=MAX_LINKS)


@st.composite
def tokens(draw: st.DrawFn, *, whole: bool = False) -> Token:
    """Any token; or one that is short enough for a single datagram."""
    acknowledged = draw(runs())
    control = st.lists(CONTROL, max_size=0 if whole else 3).map(tuple)
    return Token(
        draw(U16),
        draw(EPOCHS),
        draw(U64),
        draw(U64),
        draw(I64),
        draw(NUMBERS),
        acknowledged,
        draw(interleaves(acknowledged)),
        draw(control),
        draw(NONCES),
        draw(NONCES),
        draw(U64),
        draw(U64),
        draw(GRANTS),
        draw(DIGESTS),
        draw(SIGNATURES),
        draw(DISCLOSURES),
    )


@st.composite
def parts(draw: st.DrawFn) -> TokenPart:
    count = draw(st.integers(1, MAX_PARTS))
    body = draw(st.binary(min_size=1, max_size=MAX_PART_BODY))
    return TokenPart(draw(U16), draw(EPOCHS), draw(U64), draw(U64), draw(st.integers(0, count - 1)), count, body)


VOTES = st.lists(
    st.builds(Vote, U32, EPOCHS, U64, DIGESTS, DIGESTS, WHOLE_SIGNATURES), max_size=4, unique_by=lambda vote: vote.site
).map(tuple)


@st.composite
def new_rings(draw: st.DrawFn) -> NewRing:
    ring = draw(st.lists(U32, min_size=1, max_size=6, unique=True).map(tuple))
    return NewRing(
        draw(U16),
        draw(EPOCHS),
        draw(U64),
        draw(EPOCHS),
        ring,
        draw(U64),
        draw(U64),
        draw(I64),
        draw(EPOCHS),
        draw(U64),
        draw(DIGESTS),
        draw(NODES),
        tuple(draw(NONCES) for _ in ring),
        draw(NODES),
        draw(NEXT_NUMBERS),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(VOTES),
        draw(ORDERS),
        draw(SIGNATURES),
    )


@st.composite
def repairs(draw: st.DrawFn) -> Repair:
    item = draw(st.one_of(DATA, tokens(whole=True), parts()))
    return Repair(item.stripe, draw(EPOCHS), draw(U64), item)


def range_request(stripe: int, epoch: Epoch, sender: int, kind: Range, *ends: int) -> RangeRequest:
    return RangeRequest(stripe, epoch, sender, kind, min(ends), max(ends))


VERSIONS = st.builds(PlanVersion, EPOCHS, U32, U32)
LATITUDES = st.floats(-90, 90)
LONGITUDES = st.floats(-180, 180)
ADDRESSES = st.integers(0, (1 << 16) - 2)
SCOPES = st.one_of(
    st.builds(LineScope, U32, LATITUDES, LONGITUDES, st.integers(1, (1 << 32) - 1), U32, ADDRESSES),
    st.builds(LineScope, U32, LATITUDES, LONGITUDES, st.just(0), U32, st.just((1 << 16) - 1)),
)
RESTS = st.builds(LineRest, U32, LATITUDES, LONGITUDES, U32, U32, ADDRESSES, I64)
DATA = st.builds(Data, *HEADER, U64, U64, st.binary(max_size=MAX_PAYLOAD))
HOLDINGS = st.builds(Holding, U64, NUMBERS, st.integers(0, (1 << MAX_HOLDING_BITS) - 1))

PACKETS: dict[type[Packet], st.SearchStrategy[Packet]] = {
    Data: DATA,
    Token: tokens(whole=True),
    TokenPart: parts(),
    Receipt: st.builds(Receipt, *HEADER, U64, DIGESTS, SIGNATURES),
    SourceChain: st.builds(
        SourceChain, *HEADER, U32, DIGESTS, st.integers(1 << 32, (1 << 64) - 1), DIGESTS, SIGNATURES
    ),
    Nack: st.builds(
        Nack,
        *HEADER,
        U64,
        st.booleans(),
        st.integers(0, (1 << MAX_PARTS) - 1),
        st.lists(HOLDINGS, max_size=6).map(tuple),
    ),
    Repair: repairs(),
    Pending: st.builds(Pending, *HEADER, U64),
    Standing: st.builds(Standing, *HEADER, U64, U64, U64),
    Suspect: st.builds(Suspect, *HEADER, U64, U64, st.sampled_from(Suspicion), EPOCHS),
    Invite: st.builds(Invite, *HEADER, EPOCHS, SIGNATURES),
    Refuse: st.builds(Refuse, *HEADER, EPOCHS, EPOCHS, U64),
    Join: st.builds(
        Join,
        *(*HEADER, EPOCHS, U64, DIGESTS, I64, U64, I64, NODES, NONCES, NODES, NEXT_NUMBERS),
        *(st.booleans(), SIGNATURES),
    ),
    NewRing: new_rings(),
    SecondaryToken: st.builds(SecondaryToken, *HEADER, U32, U64),
    ReleasedPacket: st.builds(
        ReleasedPacket,
        *HEADER,
        U64,
        U64,
        I64,
        U32,
        U64,
        U32,
        st.binary(max_size=MAX_PAYLOAD - SEAL_BYTES),
        st.binary(max_size=LINE_ROOM_BYTES),
        st.booleans(),
        NONCES,
    ),
    Proof: st.builds(
        Proof,
        *HEADER,
        *(U64, I64, U32, U32, st.integers(0, MAX_NUMBER - MAX_PROOF_DIGESTS)),
        *(st.integers(0, MAX_PROOF_PARTS - 1), st.just(MAX_PROOF_PARTS), NONCES),
        st.lists(NONCES, min_size=1, max_size=MAX_PROOF_DIGESTS).map(tuple),
        WHOLE_SIGNATURES,
    ),
    Disclose: st.builds(Disclose, *HEADER, LINKS.map(lambda links: tuple(sorted(links.items())))),
    RangeRequest: st.builds(range_request, *HEADER, st.sampled_from(Range), U64, U64),
    RangeReply: st.builds(RangeReply, *HEADER, st.sampled_from(Range), U64, U64, U64),
    LineAsk: st.builds(LineAsk, *HEADER, VERSIONS, VERSIONS),
    LineAck: st.builds(LineAck, *HEADER, VERSIONS, VERSIONS, st.booleans()),
    Lines: st.builds(
        Lines,
        *HEADER,
        VERSIONS,
        I64,
        U32,
        st.integers(1, (1 << 16) - 1),
        st.lists(SCOPES, max_size=6, unique_by=lambda scope: scope.site).map(tuple),
        st.lists(RESTS, max_size=6).map(tuple),
    ),
}


def packets() -> st.SearchStrategy[Packet]:
    """Any packet."""
    return st.one_of(*PACKETS.values())
