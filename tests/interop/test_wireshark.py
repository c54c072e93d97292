"""Wireshark's reader of our packets, by tshark: every field of every kind, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import pack, unpack
from typing import Any

import pytest
from tests.interop.pcap import needs_tshark, tshark_json, write_pcap
from tests.wire import samples
from tests.wire.samples import KEYS, MARKET, SAMPLES

from isocast.terms.ids import Epoch
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Mic, Side
from isocast.wire.ballot_bodies import REASONS
from isocast.wire.codec import encode
from isocast.wire.events import MarketEvent, build_events
from isocast.wire.frame import VERSION, PacketKind
from isocast.wire.packets import (
    ControlEntry,
    ControlKind,
    Data,
    Disclose,
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
    PlanVersion,
    Proof,
    Range,
    RangeReply,
    Receipt,
    Refuse,
    ReleasedPacket,
    Repair,
    SourceChain,
    Suspect,
    Token,
)

LUA = Path(__file__).parents[2] / "tools" / "wireshark" / "isocast.lua"
SCRIPT = ("-X", f"lua_script:{LUA}")
GROUP, PORT = "239.255.9.9", 26_400
Fields = dict[str, Any]

HALT = MarketEvent(EventKind.STATUS, Mic("XLON"), None, time=1_700_000_000_000_000_009, reference=MarketStatus.HALTED)
ROWS = [
    samples.EVENT,
    samples.EVENT._replace(
        side=Side.BUY, price=-5, flags=EventFlag.LINKED | EventFlag.TENTATIVE | EventFlag.COPIED | EventFlag.LATE
    ),
    HALT,
]


def seen(tmp_path: Path, frames: Sequence[bytes], *options: str) -> list[Any]:
    capture = tmp_path / "packets.pcap"
    write_pcap(capture, [(samples.INSTANT + place, GROUP, PORT, frame) for place, frame in enumerate(frames)])
    return tshark_json(capture, *SCRIPT, *options, layer="isocast")


# ---- what must be seen of a packet: the names of the fields, and the packet's values


def flat(values: Mapping[str, object], prefix: str = "") -> Fields:
    """Values as tshark spells them; lists of one are no lists, and empty ones are not there."""
    return {f"isocast.{prefix}{name}": spelt(value) for name, value in values.items() if value not in ((), [], b"", {})}


def spelt(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex(":")
    if isinstance(value, list | tuple):
        rows = [spelt(row) for row in value]
        return rows[0] if len(rows) == 1 else rows
    if isinstance(value, dict):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else str(int(value))  # type: ignore[call-overload]


def epoch(name: str, value: Epoch) -> Fields:
    return {f"{name}.number": value.number, f"{name}.server": value.server}


def bits(value: int) -> list[int]:
    return [place for place in range(value.bit_length()) if value >> place & 1]


def little(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8, "little")


def signature_fields(signature: bytes) -> Fields:
    return flat({"serial": int.from_bytes(signature[:8], "little"), "bytes": signature[8:]}, "signature.")


def signed_fields(signature: bytes) -> Fields:
    return flat({"signature": [signature_fields(signature)]}) if signature else {}


def token_fields(token: Token) -> Fields:
    wide, shows = any(value > 255 for step in token.interleave for value in step), bool(token.disclosures)
    fields = flat(
        {
            **epoch("epoch", token.epoch),
            "sender": token.sender,
            "number": token.token_number,
            "instant": token.instant,
            "first_sequence": token.first_sequence,
            "stable": token.stable,
            "secstable": token.secstable,
            "commit": token.commit,
            "reveal": token.reveal,
            "prev_digest": token.prev_digest,
            "runs": len(token.runs),
            "steps": len(token.interleave),
            "grants": len(token.grants),
            "controls": len(token.control),
            "flags": f"0x{wide | shows << 1:02x}",
            "flags_tree": flat({"flags.wide": wide, "flags.discloses": shows}, "token."),
        },
        "token.",
    )
    if shows:
        fields |= flat({"disclosures": len(token.disclosures)}, "token.")
    return (
        fields
        | signed_fields(token.signature)
        | flat(
            {
                "run": [flat(run._asdict(), "run.") for run in token.runs],
                "step": [flat({"run": run, "count": count}, "step.") for run, count in token.interleave],
                "grant": [flat(grant._asdict(), "grant.") for grant in token.grants],
                "control": [control_fields(entry) for entry in token.control],
                "disclosure": [
                    disclosure_fields(*one[1:]) | flat({"source": one[0]}, "disclosure.") for one in token.disclosures
                ],
            }
        )
    )


def disclosure_fields(number: int, link: bytes) -> Fields:
    return flat({"number": number, "link": link}, "disclosure.")


def control_fields(entry: ControlEntry) -> Fields:
    fields = {"kind": entry.kind, "length": len(entry.body), "subject": entry.subject, "body": entry.body}
    sites = unpack(f"<{len(entry.body) // 4}I", entry.body) if entry.kind is ControlKind.FORCE_UNIVERSE else ()
    return flat(fields | {"site": sites}, "control.")


def nack_fields(nack: Nack) -> Fields:
    fields = flat(
        {
            "token": nack.token_number,
            "flags": f"0x{nack.has_token:04x}",
            "flags_tree": flat({"flags.has_token": nack.has_token}, "nack."),
            "parts_bytes": len(little(nack.parts_held)),
            "holdings": len(nack.listed),
            "parts": little(nack.parts_held),
            "parts_tree": flat({"part": bits(nack.parts_held)}, "nack."),
        },
        "nack.",
    )
    holdings = [
        flat(
            {
                "source": held.source,
                "first": held.first,
                "bytes": len(little(held.bitmap)),
                "bitmap": little(held.bitmap),
                "bitmap_tree": flat({"number": [held.first + bit for bit in bits(held.bitmap)]}, "holding."),
            },
            "holding.",
        )
        for held in nack.listed
    ]
    return fields | flat({"holding": holdings})


def lists(universe: tuple[int, ...], numbers: tuple[NextNumber, ...]) -> Fields:
    return flat({"universe": universe, "next": [flat(entry._asdict(), "next.") for entry in numbers]})


def join_fields(join: Join) -> Fields:
    own = {
        "held": join.held,
        "digest": join.digest,
        "instant": join.instant,
        "next_sequence": join.next_sequence,
        "now": join.now,
        "commit": join.commit,
        "heard_count": len(join.heard),
        "universe_count": len(join.universe),
        "next_count": len(join.next_numbers),
    }
    others = flat({**epoch("ballot", join.ballot), "heard": join.heard})
    lasts = lists(join.universe, join.next_numbers) | signed_fields(join.signature)
    return flat(own, "join.") | others | lasts


def ring_fields(ring: NewRing) -> Fields:
    own = {
        "first_token": ring.first_token,
        "first_sequence": ring.first_sequence,
        "start": ring.start,
        **epoch("cut", ring.cut_epoch),
        "cut.token": ring.cut_token,
        "cut.digest": ring.cut_digest,
        "members": len(ring.ring),
        "holders": len(ring.holders),
        "universe_count": len(ring.universe),
        "next_count": len(ring.next_numbers),
        "vote_count": len(ring.votes),
        "member": ring.ring,
        "commit": ring.commits,
        "holder": ring.holders,
    }
    votes = [
        flat(
            {
                "site": vote.site,
                **epoch("epoch", vote.epoch),
                "held": vote.held,
                "digest": vote.digest,
                "rest": vote.rest,
            },
            "vote.",
        )
        | signature_fields(vote.signature)
        for vote in ring.votes
    ]
    lasts = lists(ring.universe, ring.next_numbers) | flat({"vote": votes}) | signed_fields(ring.signature)
    return flat(own, "ring.") | flat(epoch("ballot", ring.ballot)) | lasts


def version_fields(name: str, version: PlanVersion) -> Fields:
    own = {"revision": version.revision, "author": version.author}
    return flat(epoch("ballot", version.ballot) | own, f"lines.{name}.")


def line_fields(lines: Lines) -> Fields:
    own = {
        "made_at": lines.made_at,
        "first_group": lines.first_group,
        "stripes": lines.stripes,
        "scopes": len(lines.scopes),
        "rests": len(lines.rests),
    }

    def rows(name: str, placed: Sequence[LineScope | LineRest]) -> Fields:
        return flat({name: [flat(one._asdict(), f"{name}.") for one in placed]})

    fields = version_fields("version", lines.version) | flat(own, "lines.")
    return fields | rows("scope", lines.scopes) | rows("rest", lines.rests)


def event_fields(event: MarketEvent) -> Fields:
    flags = {f"flags.{flag.name.lower()}": flag in event.flags for flag in EventFlag if flag.name}
    return flat(
        {
            "kind": event.kind,
            "side": event.side,
            "flags": f"0x{event.flags:04x}",
            "flags_tree": flat(flags, "event."),
            "floor": str(event.floor),
            "symbol": str(event.symbol or ""),
            "price": event.price,
            "quantity": event.quantity,
            "reference": event.reference,
            "time": event.time,
            "id": event.id,
        },
        "event.",
    )


def payload_fields(payload: bytes, rows: Sequence[MarketEvent]) -> Fields:
    return flat({"payload": payload, "payload_tree": flat({"event": [event_fields(row) for row in rows]})})


def released_fields(rel: ReleasedPacket, rows: Sequence[MarketEvent]) -> Fields:
    own = {
        "token": rel.token_number,
        "sequence": rel.sequence,
        "instant": rel.instant,
        "number": rel.number,
        "edge_stripe": rel.edge_stripe,
        "count": rel.count,
        "payload_bytes": len(rel.payload),
        "proof_bytes": len(rel.proof),
        "proof": rel.proof,
        "shuffle_key": rel.shuffle_key,
    }
    if rel.count == 0 and rel.payload:
        return flat(own | {"passed": int.from_bytes(rel.payload, "little")}, "rel.")
    return flat(own, "rel.") | payload_fields(rel.payload, rows)


PLAIN: dict[PacketKind, tuple[str, dict[str, str]]] = {
    PacketKind.TOKENPART: ("part.", {"token": "token_number", "part": "part", "parts": "parts", "body": "body"}),
    PacketKind.PENDING: ("pending.", {"token": "token_number"}),
    PacketKind.STANDING: ("standing.", {"source": "source", "next_number": "next_number", "token": "token_number"}),
    PacketKind.SECTOKEN: ("sectoken.", {"group": "group", "token": "token_number"}),
    PacketKind.PROOF: (
        "proof.",
        {
            "token": "token_number",
            "instant": "instant",
            "first": "first",
            "edge_stripe": "edge_stripe",
            "version": "version",
            "part": "part",
            "parts": "parts",
            "salt": "salt",
            "digest": "digests",
        },
    ),
    PacketKind.SRCCHAIN: ("chain.", {"since": "since", "before": "before", "number": "number", "digest": "digest"}),
    PacketKind.RXREQ: ("range.", {"unit": "kind", "first": "first", "last": "last"}),
    PacketKind.RXREP: ("range.", {"unit": "kind", "first": "first", "last": "last", "low_water": "low_water"}),
}
"""Kinds with nothing inside another: the prefix, and for each field the packet's attribute."""


def body_fields(  # noqa: C901, PLR0912 (one case per kind)
    kind: PacketKind, packet: Packet, rows: Sequence[MarketEvent]
) -> Fields:
    match packet:
        case Data():
            numbers = flat({"number": packet.number, "base": packet.base}, "data.")
            return numbers | payload_fields(packet.payload, rows)
        case Token():
            return token_fields(packet)
        case Nack():
            return nack_fields(packet)
        case Repair(item=item):
            inside = next(one for one, sample in SAMPLES.items() if type(sample) is type(item))
            return flat({"repair.item": packet_fields(inside, item)})
        case Suspect():
            own = {"token": packet.token_number, "suspect": packet.suspect, "reason": REASONS[packet.reason]}
            return flat(own | epoch("promised", packet.promised), "suspect.")
        case Invite():
            return flat(epoch("ballot", packet.ballot)) | signed_fields(packet.signature)
        case Receipt():
            own = flat({"held": packet.held, "digest": packet.digest}, "receipt.")
            return own | signed_fields(packet.signature)
        case Refuse():
            own = flat(epoch("promised", packet.promised) | {"held": packet.held}, "refuse.")
            return own | flat(epoch("ballot", packet.ballot))
        case Join():
            return join_fields(packet)
        case NewRing():
            return ring_fields(packet)
        case ReleasedPacket():
            return released_fields(packet, rows)
        case Disclose():
            return flat({"disclosure": [disclosure_fields(*link) for link in packet.links]})
        case LineAsk():
            return version_fields("version", packet.version) | version_fields("held", packet.held)
        case LineAck():
            return version_fields("version", packet.promised) | version_fields("held", packet.held)
        case Lines():
            return line_fields(packet)
        case _:
            prefix, names = PLAIN[kind]
            own = flat({name: getattr(packet, attribute) for name, attribute in names.items()}, prefix)
            return own | (signed_fields(packet.signature) if isinstance(packet, Proof | SourceChain) else {})


FLAGS = {
    PacketKind.JOIN: ("leaving",),
    PacketKind.NEWRING: ("uncertified", "forced"),
    PacketKind.REL: ("uncertified",),
    PacketKind.LINEACK: ("settled",),
}


def packet_fields(kind: PacketKind, packet: Packet, rows: Sequence[MarketEvent] = ()) -> Fields:
    """Everything that must be seen of a packet."""
    names = FLAGS.get(kind, ())
    value = sum(getattr(packet, name) << place for place, name in enumerate(names))
    header = flat(
        {
            "magic": "IC",
            "version": VERSION,
            "kind": kind,
            "market": f"0x{MARKET.hex()}",
            "stripe": packet.stripe,
            "flags": f"0x{value:04x}",
            **epoch("epoch", packet.epoch),
            "sender": packet.sender,
            "tag": encode(packet, KEYS, MARKET)[-16:],
        }
    )
    if names:
        header["isocast.flags_tree"] = flat({f"flags.{name}": getattr(packet, name) for name in names})
    return header | body_fields(kind, packet, rows)


# ---- tests


@needs_tshark
def test_every_field_of_every_kind(tmp_path: Path) -> None:
    decoded = seen(tmp_path, [encode(packet, KEYS, MARKET) for packet in SAMPLES.values()])
    assert len(decoded) == len(PacketKind)
    for (kind, packet), fields in zip(SAMPLES.items(), decoded, strict=True):
        assert fields == packet_fields(kind, packet), kind


@needs_tshark
def test_what_the_samples_leave_out(tmp_path: Path) -> None:
    """Events as rows, wide steps, forced sites, empty lists, heartbeats, repairs of tokens, the other flags."""
    token = samples.TOKEN
    long_run = token.runs[0]._replace(count=300)
    entry = ControlEntry(ControlKind.FORCE_UNIVERSE, 2, pack("<2I", 1, 70_000))
    wide = Token(
        *samples.HEADER,
        7,
        1,
        2,
        (long_run,),
        ((0, 300),),
        (entry,),
        token.commit,
        token.reveal,
        0,
        5,
        (),
        token.prev_digest,
    )
    payload = build_events(ROWS).tobytes()
    join, rel = SAMPLES[PacketKind.JOIN], SAMPLES[PacketKind.REL]
    assert isinstance(join, Join) and isinstance(rel, ReleasedPacket)  # noqa: PT018 - for the type checker
    cases: list[tuple[PacketKind, Packet, Sequence[MarketEvent]]] = [
        (PacketKind.TOKEN, wide, ()),
        (PacketKind.REPAIR, Repair(*samples.HEADER, wide), ()),
        (PacketKind.REPAIR, Repair(*samples.HEADER, SAMPLES[PacketKind.TOKENPART]), ()),  # type: ignore[arg-type]
        (PacketKind.TOKEN, samples.DISCLOSING, ()),
        (PacketKind.DISCLOSE, Disclose(*samples.HEADER, ()), ()),
        (PacketKind.DATA, Data(*samples.HEADER, 1, 1, payload), ROWS),
        (PacketKind.DATA, Data(*samples.HEADER, 1, 1, b""), ()),
        (PacketKind.REL, rel._replace(payload=payload, proof=b"", uncertified=True), ROWS),
        (PacketKind.REL, rel._replace(count=0, payload=b"", proof=b""), ()),
        (PacketKind.REL, rel._replace(count=0, payload=pack("<q", 1_700_000_000_000_000_001), proof=b""), ()),
        (PacketKind.NACK, Nack(*samples.HEADER, 9, has_token=True, parts_held=0, listed=()), ()),
        (PacketKind.JOIN, join._replace(heard=(), universe=(), next_numbers=(), leaving=False), ()),
        (PacketKind.RXREP, RangeReply(*samples.HEADER, Range.HEADS, 1, (1 << 64) - 1, 1), ()),
    ]
    decoded = seen(tmp_path, [encode(packet, KEYS, MARKET) for _, packet, _ in cases])
    for (kind, packet, rows), fields in zip(cases, decoded, strict=True):
        assert fields == packet_fields(kind, packet, rows), kind


@needs_tshark
def test_a_sealed_payload_stays_bytes(tmp_path: Path) -> None:
    """Rows are shown only where every record can be one."""
    raw = build_events(ROWS).tobytes()
    payloads = [raw + bytes(16), b"\x63" + raw[1:], raw[:3] + b"\x80" + raw[4:]]
    packets = [Data(*samples.HEADER, 1, 1, payload) for payload in payloads]
    for packet, fields in zip(
        packets, seen(tmp_path, [encode(packet, KEYS, MARKET) for packet in packets]), strict=True
    ):
        assert fields == packet_fields(PacketKind.DATA, packet)


@needs_tshark
def test_damage_is_shown_and_nothing_fails(tmp_path: Path) -> None:
    """Every frame cut anywhere, or with something behind it: an expert's word, and no error of the script."""
    frames = []
    for packet in SAMPLES.values():
        # A piece of DATA, TOKENPART or REPAIR has bytes to its end: cut it within its fields.
        # A DISCLOSE of nothing is whole.
        cuts = (45, 47) if isinstance(packet, Disclose) else (44, 45, 47)
        frames += [encode(packet, KEYS, MARKET)[:cut] for cut in cuts]
    token = encode(samples.TOKEN, KEYS, MARKET)
    frames += [token + b"\0", *[token[:cut] for cut in range(64, len(token), 17)]]
    decoded = seen(tmp_path, frames)
    assert None not in decoded
    assert all("isocast.malformed" in str(fields) for fields in decoded)


@needs_tshark
def test_the_port_preference_and_strangers(tmp_path: Path) -> None:
    """Other people's packets are theirs, unless the port is said to be ours."""
    frame = encode(SAMPLES[PacketKind.PENDING], KEYS, MARKET)
    strangers = [b"IC\x01" + frame[3:], b"XX" + frame[2:], frame[:2] + bytes((VERSION, 0x63)) + frame[4:], frame[:43]]
    assert seen(tmp_path, [frame, *strangers])[1:] == [None] * 4
    told = seen(tmp_path, [frame, *strangers], "-o", f"isocast.ports:{PORT}")
    assert told[0] == packet_fields(PacketKind.PENDING, SAMPLES[PacketKind.PENDING])
    assert ["isocast.malformed" in str(fields) for fields in told] == [False, True, True, True, True]


def table(name: str) -> dict[int, str]:
    """A table of numbers and names in the script."""
    found = re.search(rf"local {name} = \{{(.*?)\}}", LUA.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return {int(number): text for number, text in re.findall(r'\[(\d+)\] = "([^"]+)"', found[1])}


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("KINDS", {kind.value: kind.name for kind in PacketKind}),
        ("REASONS", {number: reason.value for reason, number in REASONS.items()}),
        ("CONTROLS", {kind.value: kind.name.lower().replace("_", " ") for kind in ControlKind}),
        ("UNITS", {unit.value: unit.name.lower() for unit in Range}),
        ("EVENTS", {kind.value: kind.name for kind in EventKind}),
        ("SIDES", {side.value: side.name.lower() for side in Side}),
        ("STATUSES", {status.value: status.name.lower() for status in MarketStatus}),
    ],
)
def test_the_script_knows_every_number(name: str, wanted: dict[int, str]) -> None:
    """Also where tshark is missing: a new kind or reason must come to the script too."""
    assert table(name) == wanted
