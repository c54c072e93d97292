"""A limit on every length and count, with its arithmetic beside it.

Three kinds of reasons occur. *Fits*: a packet of normal operation is at most one Ethernet frame, so that IP
never fragments it; JOIN, NEWRING and a NACK with a long list are rare and may fill a whole UDP datagram.
*Follows*: a limit is the sum or product of others. *Bounds*: what one hostile or broken sender can make a
reader allocate. `tests/wire/test_limits.py` builds the largest packet of every kind and measures it.
"""

from __future__ import annotations

__all__ = [
    "CONTROL_BYTES",
    "DATA_BYTES",
    "DISCLOSURE_BYTES",
    "EVENT_BYTES",
    "FRAME_BYTES",
    "GRANT_BYTES",
    "HEADER_BYTES",
    "HOLDING_BYTES",
    "IP_UDP_BYTES",
    "JOIN_BYTES",
    "JUMBO_DATAGRAM",
    "JUMBO_MTU",
    "LINES_BYTES",
    "LINE_REST_BYTES",
    "LINE_ROOM_BYTES",
    "LINE_SCOPE_BYTES",
    "LINK_BYTES",
    "MARKET_ID_BYTES",
    "MAX_CONTROL_BODY",
    "MAX_CONTROL_ENTRIES",
    "MAX_DATAGRAM",
    "MAX_DISCLOSURES",
    "MAX_GRANTS",
    "MAX_HOLDINGS",
    "MAX_HOLDING_BITS",
    "MAX_INTERLEAVE",
    "MAX_LINE_RESTS",
    "MAX_LINE_SCOPES",
    "MAX_LINKS",
    "MAX_MESSAGES_PER_TOKEN",
    "MAX_NEXT_NUMBERS",
    "MAX_NUMBER",
    "MAX_PARTS",
    "MAX_PART_BODY",
    "MAX_PAYLOAD",
    "MAX_PROOF",
    "MAX_PROOF_DIGESTS",
    "MAX_PROOF_PARTS",
    "MAX_REPAIR_ITEM",
    "MAX_RING",
    "MAX_RUNS",
    "MAX_STRIPE",
    "MAX_TOKEN_BODY",
    "MAX_UDP",
    "MAX_VOTES",
    "MAX_WHOLE_TOKEN",
    "NACK_BYTES",
    "NEW_RING_BYTES",
    "NEXT_NUMBER_BYTES",
    "NODE_BYTES",
    "ORDER_BYTES",
    "PART_BYTES",
    "PROOF_BYTES",
    "PROOF_DIGEST_BYTES",
    "RELEASED_BYTES",
    "RUN_BYTES",
    "SEALED_LINE_BYTES",
    "SEAL_BYTES",
    "SIGNATURE_BYTES",
    "STANDARD_MTU",
    "STANDARD_PAYLOAD",
    "STEP_BYTES",
    "TAG_BYTES",
    "TOKEN_BYTES",
    "VOTE_BYTES",
    "payload_capacity",
]


STANDARD_MTU = 1_500
"""Ethernet's own."""
JUMBO_MTU = 9_000
"""What the switches of a data centre carry; the most that a market may set."""
IP_UDP_BYTES = 28
"""IP 20 + UDP 8."""
MAX_DATAGRAM = STANDARD_MTU - IP_UDP_BYTES
"""Fits: 1,500 - 28 = 1,472. The limit of every kind that is not named below."""
JUMBO_DATAGRAM = JUMBO_MTU - IP_UDP_BYTES
"""Fits: 9,000 - 28 = 8,972. For DATA, REPAIR and REL, where a market's MTU allows it."""
MAX_UDP = 65_507
"""Fits: an IP packet 65,535 - IP 20 - UDP 8. For JOIN, NEWRING and long NACKs only."""


MARKET_ID_BYTES = 4
"""Of a market's hash. It keeps markets apart that share groups by mistake; keys tell them apart for certain."""
HEADER_BYTES = 28
"""magic 2 + version 1 + kind 1 + market 4 + stripe 2 + flags 2 + epoch 4 + 4 + sender 8."""
TAG_BYTES = 16
"""The authentication tag: 128 bits of keyed BLAKE2b, so that a guess succeeds once in 2^128."""
FRAME_BYTES = HEADER_BYTES + TAG_BYTES
"""28 + 16 = 44 bytes around every body."""
MAX_STRIPE = (1 << 16) - 1
"""Follows: a stripe is 2 bytes. The paper's largest plan has some 800 stripes (§4.4)."""
MAX_NUMBER = (1 << 64) - 1
"""Follows: token numbers, sequences and message numbers are 8 bytes; at 10^9 a second that lasts 584 years."""
MAX_REPAIR_ITEM = MAX_DATAGRAM - FRAME_BYTES
"""Fits: a REPAIR nests the complete frame of its item: 1,472 - 44 = 1,428 bytes for that frame, unless it is DATA
in a market of jumbo frames."""


SIGNATURE_BYTES = 72
"""The roster's serial 8 + Ed25519 64, behind the body of TOKEN, RECEIPT, INVITE, JOIN and NEWRING; or nothing."""

EVENT_BYTES = 48
"""One market event (`events.EVENT_DTYPE`)."""
SEAL_BYTES = 64
"""By which a sealed payload is longer: salt 16 + commitment 32 + tag 16."""
DATA_BYTES = 16
"""Fixed fields of DATA: number 8 + base 8."""
RELEASED_BYTES = 60
"""Fixed fields of REL: token 8 + sequence 8 + instant 8 + number 8 + edge stripe 4 + count 4 + two lengths 2 + 2 +
shuffle key 16."""
MAX_PROOF = SIGNATURE_BYTES
"""What convinces a customer that a heartbeat is genuine. A message has none of its own: PROOF covers it."""
LINE_ROOM_BYTES = 60
"""Room beside a payload in REL: a sealed line takes 17 of it. A payload and a proof together take no more."""
SEALED_LINE_BYTES = 17
"""What a sealed line adds to a frame: service 1 + period 4 + nonce 12. The seal's tag replaces the frame's."""
PROOF_DIGEST_BYTES = 16
"""Of a message, and of a salt. Salted after the payloads were chosen: a forger must find a second preimage, 2^128."""
PROOF_BYTES = 52
"""Fixed fields of PROOF: token, instant and first 8 each, edge stripe and version 4 each, part and parts 2 each and a
salt of 16."""
MAX_PROOF_DIGESTS = 80
"""Fits: header and tag 44, a sealed line's 17, 52, 72 of a signature and 80·16 are 1,465 of 1,472 bytes."""


def payload_capacity(mtu: int) -> int:
    """Bytes of payload in a market of this MTU, its seal included; without one it is as much shorter.

    Fits, twice: DATA inside REPAIR takes 2·44 + 16 = 104 bytes beside the payload, REL takes 44 + 60 + 60 = 164 beside
    one that has been opened. The larger counts: what the ring acknowledges must be releasable in one datagram.
    """
    beside = max(2 * FRAME_BYTES + DATA_BYTES, FRAME_BYTES + RELEASED_BYTES + LINE_ROOM_BYTES - SEAL_BYTES)
    return mtu - IP_UDP_BYTES - beside


STANDARD_PAYLOAD = payload_capacity(STANDARD_MTU)
"""Fits: 1,500 - 28 - 104 = 1,368 bytes, which is 27 events of 48, a seal of 64 and 8 to spare."""
MAX_PAYLOAD = payload_capacity(JUMBO_MTU)
"""Fits: 9,000 - 28 - 104 = 8,868 bytes, 183 events and a seal."""


MAX_MESSAGES_PER_TOKEN = 65_535
"""K_max at most. Bounds: a million events a second, 27 a payload, are some 37,000 messages in a token of 1 s;
two bytes count them with room for a burst of 1.7 times that."""
MAX_PROOF_PARTS = -(-MAX_MESSAGES_PER_TOKEN // MAX_PROOF_DIGESTS)
"""Follows: the largest token takes ⌈65,535 / 80⌉ = 820 parts."""
MAX_RUNS = MAX_MESSAGES_PER_TOKEN
"""Follows: a run has at least one message."""
MAX_INTERLEAVE = MAX_MESSAGES_PER_TOKEN
"""Follows: a step has at least one message."""
MAX_GRANTS = 4_096
"""Bounds: an equal share of K_max among more sources would be below 65,535 / 4,096 = 16 messages each."""
MAX_CONTROL_ENTRIES = 16
"""Bounds: U changes by one site at a time and plans are rare; operators' marks are typed by people."""
MAX_CONTROL_BODY = 4_096
"""Bounds: a stripe plan of 800 stripes at 5 bytes each is 4,000."""
TOKEN_BYTES = 128
"""Fixed fields of a token's body: epoch 4 + 4, six numbers of 8, commit and reveal of 16, the previous digest of 32,
and 8 for the counts. (sender, token, instant, first sequence, stable, secstable: 8 + 48 + 64 + 8 = 128.)"""
RUN_BYTES = 52
"""source 8 + first 8 + count 4 + digest 32."""
STEP_BYTES = 4
"""A step of the interleave: run 2 + how many 2; half of that when every value is below 256."""
GRANT_BYTES = 12
"""source 8 + window 4."""
CONTROL_BYTES = 12
"""kind 2 + length 2 + subject 8, before the entry's own bytes."""
LINK_BYTES = 32
"""A link of a source's key chain."""
DISCLOSURE_BYTES = 48
"""source 8 + number 8 + link 32; a count of 2 stands before them."""
MAX_DISCLOSURES = 4_096
"""Bounds: one for each source that a token may grant a window to; a token of one source has seldom more than two."""
MAX_LINKS = 32
"""Fits: a number of 8 and a link of 32 each: 44 + 32·40 = 1,324 of 1,472 bytes in one DISCLOSE. Bounds as well: links
of one source in a token, each of which may make a receiver hash a whole chain."""
ORDER_BYTES = 16 + SIGNATURE_BYTES
"""An operator's order, behind a control entry's own bytes and in a forced NEWRING: number 8 + until 8 + 72."""
MAX_TOKEN_BODY = (
    TOKEN_BYTES
    + MAX_RUNS * RUN_BYTES
    + MAX_INTERLEAVE * STEP_BYTES
    + MAX_GRANTS * GRANT_BYTES
    + MAX_CONTROL_ENTRIES * (CONTROL_BYTES + MAX_CONTROL_BODY + ORDER_BYTES)
    + 2
    + MAX_DISCLOSURES * DISCLOSURE_BYTES
)
"""Follows: 128 + 65,535·52 + 65,535·4 + 4,096·12 + 16·(12 + 4,096 + 88) + 2 + 4,096·48 = 3,982,986 bytes."""
MAX_WHOLE_TOKEN = MAX_REPAIR_ITEM - FRAME_BYTES
"""Fits: a TOKEN inside REPAIR: 1,428 - 44 = 1,384 bytes of body and signature, 22 runs; longer ones travel as parts."""
PART_BYTES = 12
"""Fixed fields of TOKENPART: token 8 + part 2 + parts 2."""
MAX_PART_BODY = MAX_REPAIR_ITEM - FRAME_BYTES - PART_BYTES
"""Fits: a part inside REPAIR: 1,428 - 44 - 12 = 1,372 bytes."""
MAX_PARTS = -(-(MAX_TOKEN_BODY + SIGNATURE_BYTES) // MAX_PART_BODY)
"""Follows: the longest token takes ⌈(3,982,986 + 72) / 1,372⌉ = 2,904 parts."""


NACK_BYTES = 14
"""Fixed fields of NACK: token 8 + flags 2 + length of the map of parts 2 + count of holdings 2."""
HOLDING_BYTES = 18
"""source 8 + first 8 + length of the bitmap 2, before the bitmap itself."""
MAX_HOLDING_BITS = 4_096
"""Bounds: more than any window; 512 bytes. A longer span takes a second holding of the same source."""
MAX_HOLDINGS = (MAX_UDP - FRAME_BYTES - NACK_BYTES - -(-MAX_PARTS // 8)) // (HOLDING_BYTES + 1)
"""Fits: (65,507 - 44 - 14 - 363) / (18 + 1) = 3,425 holdings of up to 8 messages each. With longer bitmaps the whole
still has to fit 65,507 bytes, and whoever asks cuts the list. 1,472 bytes have room for 55 of the short ones."""


MAX_RING = 256
"""Bounds: members of a ring, of U, holders, and sites heard. The paper's rings have 10 to 100 (§4.1)."""
NODE_BYTES = 4
"""Sites and servers are below 2^32 (`terms.ids`)."""
MAX_NEXT_NUMBERS = 2_048
"""Bounds: sources with messages above `stable`; a busy core has hundreds."""
NEXT_NUMBER_BYTES = 16
"""source 8 + number 8."""
JOIN_BYTES = 94
"""Fixed fields of JOIN: ballot 4 + 4, held, instant, next sequence and now 8 each, digest 32, commit 16, 3 counts 2.
The largest: 44 + 94 + 2·256·4 + 2,048·16 + 72 = 35,026 bytes of 65,507."""
VOTE_BYTES = 156
"""A vote in NEWRING: site 4, e_acc 4 + 4, h 8, digest and the rest's digest 32 each, signature 72."""
MAX_VOTES = MAX_RING // 2 + 2
"""Follows: a bare majority of U, and the greatest vote."""
NEW_RING_BYTES = 90
"""Fixed fields of NEWRING: ballot and cut epoch 8 each, 4 numbers of 8, cut digest 32, 5 counts 2.
The largest: 44 + 90 + 3·256·4 + 256·16 + 2,048·16 + 130·156 + 88 + 72 = 60,510 bytes of 65,507."""

# Lines: where each receiver remulticasts

LINES_BYTES = 34
"""Fixed fields of LINES: version 16, instant 8, first group 4, groups of an address 2, 2 counts 2."""
LINE_SCOPE_BYTES = 30
"""A scope: site 4, place 2·8, two radii in metres 4 each, address 2."""
LINE_REST_BYTES = 38
"""An address that rests: a scope, and the instant at which it is free."""
MAX_LINE_SCOPES = 768
"""Bounds: receivers with a line in one plan: three times the largest ring."""
MAX_LINE_RESTS = 1_024
"""Bounds: addresses that rest at a time. The largest: 44 + 34 + 768·30 + 1,024·38 = 62,030 bytes of 65,507."""
