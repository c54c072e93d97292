"""One small, readable packet of every kind: the base of golden vectors, refusals and mutations."""

from __future__ import annotations

from dataclasses import replace

from isocast.terms.ids import Epoch, server_id, source_id
from isocast.terms.market import EventFlag, EventKind, Mic, Side, Symbol, to_ticks
from isocast.wire.events import MarketEvent
from isocast.wire.frame import PacketKind
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

__all__ = [
    "DISCLOSING",
    "EVENT",
    "FORCED_RING",
    "KEY",
    "KEYS",
    "MARKET",
    "ORDERED_TOKEN",
    "SAMPLES",
    "TOKEN",
    "SharedKey",
]

KEY = bytes(range(32))
MARKET = b"mkt1"


class SharedKey(dict[int, bytes]):
    """Every sender has the same key."""

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self._key = key

    def __missing__(self, _: int) -> bytes:
        return self._key


KEYS = SharedKey(KEY)
STRIPE = 3
EPOCH = Epoch(7, server_id(1))
BALLOT = Epoch(8, server_id(2))
SITE = 2
SERVER = server_id(2)
SOURCE = source_id(5)
INSTANT = 1_700_000_000_000_000_000
HEADER = (STRIPE, EPOCH, SITE)


def nonce(start: int) -> bytes:
    """Sixteen bytes that a reader of a dump recognises."""
    return bytes(range(start, start + 16))


def digest(start: int) -> bytes:
    """Thirty-two of them."""
    return bytes(range(start, start + 32))


def signature(start: int) -> bytes:
    """Serial 9, and sixty-four bytes."""
    return (9).to_bytes(8, "little") + bytes(range(start, start + 64))


EVENT = MarketEvent(
    EventKind.ORDER,
    Mic("XNYS"),
    Symbol("IBM"),
    Side.SELL,
    price=to_ticks("181.25"),
    quantity=300,
    time=INSTANT + 123,
    id=77,
    reference=4_001,
    flags=EventFlag.IMMEDIATE,
)
DATA = Data(STRIPE, EPOCH, SOURCE, 41, 38, b"forty-two bytes of a sealed batch of events"[:42])
TOKEN = Token(
    *HEADER,
    token_number=1_000,
    instant=INSTANT,
    first_sequence=50_001,
    runs=(Run(SOURCE, 41, 3, digest(0x10)), Run(source_id(6, 2), 9, 2, digest(0x20))),
    interleave=((0, 1), (1, 2), (0, 2)),
    control=(ControlEntry(ControlKind.MARK, 12, b"lunch"),),
    commit=nonce(0x30),
    reveal=nonce(0x40),
    stable=991,
    secstable=(1 << 64) - 1,
    grants=(Grant(SOURCE, 64),),
    prev_digest=digest(0x50),
    signature=signature(0x90),
)

DISCLOSING = replace(
    TOKEN,
    interleave=(),
    disclosures=(Disclosure(SOURCE, 40, digest(0xA0)), Disclosure(source_id(6, 2), 8, digest(0xC0))),
)
"""A token that carries links of two sources' key chains."""

SAMPLES: dict[PacketKind, Packet] = {
    PacketKind.DATA: DATA,
    PacketKind.TOKEN: TOKEN,
    PacketKind.TOKENPART: TokenPart(*HEADER, 1_000, 1, 3, b"the second third"),
    PacketKind.RECEIPT: Receipt(*HEADER, 1_000, digest(0x60), signature(0x91)),
    PacketKind.NACK: Nack(
        *HEADER,
        1_000,
        has_token=False,
        parts_held=0b101,
        listed=(Holding(SOURCE, 41, 0b1011), Holding(SOURCE + 1, 7, 0x301)),
    ),
    PacketKind.REPAIR: Repair(*HEADER, DATA),
    PacketKind.PENDING: Pending(*HEADER, 1_000),
    PacketKind.STANDING: Standing(*HEADER, SOURCE, 44, 1_000),
    PacketKind.SUSPECT: Suspect(*HEADER, 1_001, 4, Suspicion.UNRECOVERED, EPOCH),
    PacketKind.INVITE: Invite(STRIPE, EPOCH, SERVER, BALLOT, signature(0x92)),
    PacketKind.REFUSE: Refuse(*HEADER, EPOCH, BALLOT, 1_000),
    PacketKind.JOIN: Join(
        *HEADER,
        BALLOT,
        held=1_000,
        digest=digest(0x70),
        instant=INSTANT,
        next_sequence=50_006,
        now=INSTANT + 750_000_000,
        heard=(1, 3),
        commit=nonce(0x80),
        universe=(1, 2, 3),
        next_numbers=(NextNumber(SOURCE, 44),),
        leaving=True,
        signature=signature(0x93),
    ),
    PacketKind.NEWRING: NewRing(
        STRIPE,
        EPOCH,
        SERVER,
        BALLOT,
        ring=(2, 1),
        first_token=1_001,
        first_sequence=50_006,
        start=INSTANT + 2_775_000_000,
        cut_epoch=EPOCH,
        cut_token=1_000,
        cut_digest=digest(0x90),
        holders=(2,),
        commits=(nonce(0xA0), nonce(0xB0)),
        universe=(1, 2, 3),
        next_numbers=(NextNumber(SOURCE, 44),),
        forced=True,
        votes=(
            Vote(1, EPOCH, 999, digest(0xC0), digest(0xD0), signature(0x94)),
            Vote(2, EPOCH, 1_000, digest(0x90), digest(0xE0), signature(0x95)),
        ),
        signature=signature(0x96),
    ),
    PacketKind.SECTOKEN: SecondaryToken(*HEADER, 5, 1_000),
    PacketKind.REL: ReleasedPacket(
        *HEADER, 1_000, 50_003, INSTANT, 17, 900, 1, b"a payload", b"a proof", shuffle_key=bytes(range(64, 80))
    ),
    PacketKind.RXREQ: RangeRequest(*HEADER, Range.SEQUENCES, 50_001, 50_005),
    PacketKind.RXREP: RangeReply(*HEADER, Range.TOKENS, 990, 1_000, 800),
    PacketKind.LINEASK: LineAsk(
        STRIPE, EPOCH, SERVER, PlanVersion(BALLOT, 2, SERVER), PlanVersion(EPOCH, 1, server_id(1))
    ),
    PacketKind.LINEACK: LineAck(
        *HEADER, PlanVersion(BALLOT, 2, SERVER), PlanVersion(EPOCH, 1, server_id(1)), settled=True
    ),
    PacketKind.LINES: Lines(
        STRIPE,
        EPOCH,
        SERVER,
        PlanVersion(BALLOT, 2, SERVER),
        made_at=INSTANT,
        first_group=0xEF_FF_50_00,
        stripes=1,
        scopes=(LineScope(1, 51.5, -0.125, 640_001, 500_000, 3), LineScope(2, 50.0, 8.75, 0, 0, 0xFFFF)),
        rests=(LineRest(3, 35.75, 139.5, 700_000, 700_000, 1, INSTANT + 30_000_000_000),),
    ),
    PacketKind.DISCLOSE: Disclose(STRIPE, EPOCH, SOURCE, ((40, digest(0xA0)), (41, digest(0xC0)))),
    PacketKind.PROOF: Proof(
        *HEADER, 1_000, INSTANT, 17, 3, 900, 1, 2, b"s" * 16, (b"first digest 16b", b"other digest 16b"), b"S" * 72
    ),
    PacketKind.SRCCHAIN: SourceChain(*HEADER, 997, digest(0x61), 1_000, digest(0x62), signature(0x93)),
}
ORDER = (3).to_bytes(8, "little") + (INSTANT + 1).to_bytes(8, "little") + signature(0x97)
ORDERED_TOKEN = replace(TOKEN, control=(ControlEntry(ControlKind.REMOVE_SITE, 2, b"", ORDER), *TOKEN.control))
_ring = SAMPLES[PacketKind.NEWRING]
assert isinstance(_ring, NewRing)
FORCED_RING = _ring._replace(order=ORDER)
