"""The bodies of LINEASK, LINEACK and LINES (§4.3; protocol §7)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import Epoch
from isocast.wire.frame import Header, Kind, Layout
from isocast.wire.limits import (
    LINE_REST_BYTES,
    LINE_SCOPE_BYTES,
    LINES_BYTES,
    MAX_LINE_RESTS,
    MAX_LINE_SCOPES,
    MAX_UDP,
)
from isocast.wire.line_packets import NO_ADDRESS, LineAck, LineAsk, LineRest, Lines, LineScope, PlanVersion

__all__ = ["LINE_PLANS"]

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
            return f"LINES: site {one.site} is nowhere on the earth"
    return None


LINE_PLANS: dict[type, Layout[Any]] = {
    LineAsk: Layout(Kind.LINEASK, _write_ask, _read_ask),
    LineAck: Layout(Kind.LINEACK, _write_ack, _read_ack, flags=("settled",)),
    Lines: Layout(Kind.LINES, _write_lines, _read_lines, _lines_fault, MAX_UDP),
}
"""How each of these packets is written and read."""
