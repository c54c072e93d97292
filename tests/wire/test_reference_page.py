"""docs/reference/wire.md says what the code does: kinds, offsets, lengths, numbers and limits."""

import re

import pytest
from tests.reference_pages import page, rows, section
from tests.wire.samples import SAMPLES

from isocast.runtime.net import door as doorway
from isocast.terms.market import EventFlag, EventKind, MarketStatus
from isocast.wire import door, limits
from isocast.wire.ballot_bodies import REASONS
from isocast.wire.codec import encode
from isocast.wire.events import EVENT_DTYPE
from isocast.wire.frame import AUDIENCE, MAGIC, VERSION, PacketKind
from isocast.wire.packets import ControlKind, Range

PAGE = page("wire")

FIXED = {
    PacketKind.DATA: limits.DATA_BYTES,
    PacketKind.TOKEN: limits.TOKEN_BYTES,
    PacketKind.TOKENPART: limits.PART_BYTES,
    PacketKind.RECEIPT: 40,
    PacketKind.INVITE: 8,
    PacketKind.NACK: limits.NACK_BYTES,
    PacketKind.REPAIR: 0,
    PacketKind.JOIN: limits.JOIN_BYTES,
    PacketKind.NEWRING: limits.NEW_RING_BYTES,
    PacketKind.REL: limits.RELEASED_BYTES,
    PacketKind.LINES: limits.LINES_BYTES,
    PacketKind.PROOF: limits.PROOF_BYTES,
    PacketKind.DISCLOSE: 0,
    PacketKind.SRCCHAIN: 80,
}
"""Of the packets that end in something of variable length."""


def layout(title: str) -> list[tuple[int, int | None]]:
    """Offset and size of every field; None for a variable one."""
    return [(int(at), None if size == "…" else int(size)) for at, size, *_ in rows(section(PAGE, title), "offset")]


def length_without_gaps(fields: list[tuple[int, int | None]]) -> int:
    expected = 0
    for at, size in fields:
        assert at == expected
        if size is None:
            assert (at, size) == fields[-1]
        expected += size or 0
    return expected


def test_the_frame_is_drawn_as_it_is() -> None:
    assert length_without_gaps(layout("Frame")) == limits.HEADER_BYTES
    assert f"`{MAGIC.decode()}`" in section(PAGE, "Frame")
    assert f"version: {VERSION} " in section(PAGE, "Frame")
    assert f"version {VERSION}." in PAGE


def test_every_kind_is_listed_with_its_number() -> None:
    listed = {int(number): name for number, name, *_ in rows(section(PAGE, "Kinds"), "kind")}
    assert listed == {kind.value: kind.name for kind in PacketKind}


def test_who_travels_how() -> None:
    travels = {name: how for _, name, how, _ in rows(section(PAGE, "Kinds"), "kind")}
    for kind, packet in SAMPLES.items():
        # REPAIR is multicast only where §5.2 reduces NACKs; REL and PROOF go to groups of their own.
        if kind not in {PacketKind.REPAIR, PacketKind.REL, PacketKind.PROOF}:
            assert (type(packet) in AUDIENCE) == (travels[kind.name] != "unicast"), kind.name


@pytest.mark.parametrize("kind", PacketKind, ids=lambda kind: kind.name)
def test_the_fields_of_a_body_add_up(kind: PacketKind) -> None:
    fields = layout(kind.name)
    length = length_without_gaps(fields)
    if kind in FIXED:
        assert fields[-1][1] is None
        assert length == FIXED[kind]
    else:
        assert length == len(encode(SAMPLES[kind])) - limits.FRAME_BYTES


def test_every_reason_is_listed() -> None:
    listed = {name: int(number) for number, name in rows(section(PAGE, "SUSPECT"), "reason")}
    assert listed == {reason.value: number for reason, number in REASONS.items()}


def test_control_kinds_and_units_are_listed() -> None:
    for control in ControlKind:
        assert f"{control.value} {control.name.lower().replace('_', ' ')}" in section(PAGE, "TOKEN")
    for unit in Range:
        for title in ("RXREQ", "RXREP"):
            assert f"{unit.value} {unit.name.lower()}" in section(PAGE, title)


def test_the_event_record_is_drawn_as_it_is() -> None:
    assert length_without_gaps(layout("Event record")) == limits.EVENT_BYTES
    listed = [(name, int(at), int(size)) for at, size, name, _ in rows(section(PAGE, "Event record"), "offset")]
    fields = EVENT_DTYPE.fields
    assert fields
    assert listed == [(name, fields[name][1], fields[name][0].itemsize) for name in EVENT_DTYPE.names or ()]
    kinds = {int(number): name for number, name, *_ in rows(section(PAGE, "Event record"), "kind")}
    assert kinds == {kind.value: kind.name for kind in EventKind}
    for status in MarketStatus:
        assert f"{status.value} {status.name.lower()}" in section(PAGE, "Event record")
    for flag in EventFlag:
        assert re.search(rf"\b{flag.value} [a-z]", section(PAGE, "Event record"))


def test_every_message_at_a_door_is_listed_with_its_number() -> None:
    listed = {name: int(number) for name, number, *_ in rows(section(PAGE, "Doors"), "message")}
    assert listed == {kind.name: kind.value for kind in door.DoorKind}
    assert door.encode_message(door.Hello(bytes(door.NONCE_BYTES)))[1:9].decode() in section(PAGE, "Doors")


def test_every_limit_of_a_door_is_listed() -> None:
    listed = [value for _, value, _ in rows(section(PAGE, "Doors"), "limit of a door")]
    assert listed == [
        f"{door.MAX_BATCH:,}",
        f"1 to {door.MAX_KEY}",
        f"{door.MAX_TEXT:,}",
        f"{doorway._MAX_HANDSHAKE:,}",  # noqa: SLF001
        f"{door.MAX_MESSAGE:,}",
        f"{doorway.HANDSHAKE_S:g}",
        f"{doorway.WRITE_S:g}",
        f"{doorway.MAX_VISITORS}",
    ]


OTHERS = {"JUMBO_DATAGRAM", "STANDARD_PAYLOAD"}


def test_every_limit_is_listed_with_its_value() -> None:
    listed = {name: int(value.replace(",", "")) for name, value, _ in rows(section(PAGE, "Limits"), "limit")}
    assert listed == {
        name: getattr(limits, name) for name in limits.__all__ if name.startswith("MAX_") or name in OTHERS
    }
