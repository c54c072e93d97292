"""Hostile bytes for what is said outside frames: at doors, about repairs, of plans, on the web and by a node's status.

As with frames, a tag or a seal is put right around the bytes, so that what lies behind it is reached.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from hashlib import blake2b
from struct import pack, unpack_from

from tests.security.rosters import REVOKE, a_roster, identity, next_roster
from tests.wire.door_samples import DOOR_SAMPLES

from isocast.feeds.mold import (
    END_OF_SESSION,
    MoldPacket,
    end_of_session,
    heartbeat,
    packet_of,
    parse_packet,
    parse_request,
    request,
)
from isocast.runtime.edge.web_gateway import read_wish
from isocast.runtime.market.roster_making import make_request, read_request
from isocast.runtime.watch.status import NodeStatus, status_from_json
from isocast.security.keys import Purpose, SecretKey
from isocast.security.repairs import (
    RepairOpener,
    RepairRequest,
    RepairSealer,
    read_repair_request,
    write_repair_request,
)
from isocast.security.roster import read_revocation, read_roster_entry, read_unsigned, sign_revocation, unsigned
from isocast.striping.plan import read_plan_entry
from isocast.terms.errors import RemoteProtocolError
from isocast.wire.door import Refused, decode_message, encode_message
from isocast.wire.limits import TAG_BYTES
from isocast.wire.packets import ControlEntry, ControlKind

__all__ = ["MESSAGE_WAYS", "Way", "message_seeds", "parsed_json"]

Way = Callable[[bytes], None]

_SECRET = SecretKey(bytes(range(32)))
_ROSTER = a_roster()
_LONDON = identity("london")
_SESSION = b"2410040001"


def _door(data: bytes) -> None:
    message = decode_message(data)
    # A reason is for people to read: what is no text in it is shown as such, and what is too long is cut.
    if not isinstance(message, Refused):
        assert encode_message(message) == data


def _repair_request(data: bytes) -> None:
    """Whoever the customer is, the tag is his."""
    customer = int.from_bytes(data[4:12])
    raw = data + blake2b(data, digest_size=TAG_BYTES, key=_SECRET.derive(Purpose.TAG, customer)).digest()
    assert write_repair_request(_SECRET, read_repair_request(_SECRET, raw)) == raw


def _stripe_repair(data: bytes) -> None:
    server, stripe, packet = RepairOpener(_SECRET).open(data)
    assert data.startswith(pack(">4sQI", b"ICRP", server, stripe))
    assert _spelled(parse_packet(packet)) == packet


def _sealed_stripe_repair(data: bytes) -> None:
    """Server 8, stripe 4, and the packet that it seals."""
    server, stripe = unpack_from(">QI", data.ljust(12, b"\0"))
    _stripe_repair(RepairSealer(_SECRET, server, b"abcd", 1).seal(stripe, data[12:]))


def _spelled(packet: MoldPacket) -> bytes:
    if packet.count == 0:
        return heartbeat(packet.session, packet.sequence)
    if packet.count == END_OF_SESSION:
        return end_of_session(packet.session, packet.sequence)
    return packet_of(packet.session, packet.sequence, packet.count, packet.body)


def _mold_request(data: bytes) -> None:
    wanted = parse_request(data)
    assert request(wanted.session, wanted.sequence, wanted.count) == data


def _plan_entry(data: bytes) -> None:
    (version,) = unpack_from("<Q", data.ljust(8, b"\0"))
    notice = read_plan_entry(ControlEntry(ControlKind.STRIPE_PLAN, version, data[8:]))
    assert pack("<Q16sII", notice.version, notice.digest, notice.stripes, notice.symbols) == data


def _roster(data: bytes) -> None:
    spelled = unsigned(read_unsigned(data))
    assert data.startswith(spelled)
    assert len(data) - len(spelled) in (0, 64), "nothing but a signature follows"


def _identity_request(data: bytes) -> None:
    asked = read_request(data)
    assert (asked.name, asked.public) == ("london", _LONDON.public), "nobody else's key signs"


def _roster_entry(data: bytes) -> None:
    (serial,) = unpack_from("<Q", data.ljust(8, b"\0"))
    notice = read_roster_entry(ControlEntry(ControlKind.ROSTER, serial, data[8:]), 0)
    assert notice.effective > 0
    assert notice.digest == data[8:40]


def _revocation(data: bytes) -> None:
    assert read_revocation(data, _ROSTER).encoded == data


def _wish(data: bytes) -> None:
    wish = read_wish(data.decode(errors="replace"))
    assert read_wish(json.dumps(wish)) == wish


def _status(data: bytes) -> None:
    status = status_from_json(parsed_json(data))
    assert status_from_json(json.loads(json.dumps(asdict(status)))) == status


def parsed_json(data: bytes) -> object:
    """As whoever asked parses the answer: what is no JSON is refused like what says something else."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as reason:
        raise RemoteProtocolError("this is not JSON") from reason


MESSAGE_WAYS: tuple[Way, ...] = (
    _door,
    _repair_request,
    _stripe_repair,
    _sealed_stripe_repair,
    _mold_request,
    _plan_entry,
    _wish,
    _status,
    _roster,
    _revocation,
    _roster_entry,
    _identity_request,
)


def message_seeds() -> list[tuple[Way, bytes]]:
    """Inputs that are accepted, each with its way in."""
    packets = (
        packet_of(_SESSION, 7, 2, b"\0\4wxyz\0\1a"),
        heartbeat(_SESSION, 9),
        end_of_session(_SESSION, 9),
    )
    asked = write_repair_request(_SECRET, RepairRequest(131_074, _SESSION, 7, 3))
    found: list[tuple[Way, bytes]] = [(_door, encode_message(message)) for message in DOOR_SAMPLES.values()]
    found += [(_sealed_stripe_repair, pack(">QI", 131_073, 5) + packet) for packet in packets]
    return [
        *found,
        (_repair_request, asked[:-TAG_BYTES]),
        (_stripe_repair, RepairSealer(_SECRET, 131_073, b"abcd", 1).seal(5, packets[0])),
        (_mold_request, request(_SESSION, 7, 3)),
        (_plan_entry, pack("<Q16sII", 2, b"\x11" * 16, 3, 9)),
        (_roster, unsigned(_ROSTER)),
        (
            _roster,
            unsigned(
                next_roster(
                    _ROSTER,
                    [_ROSTER.members[0].public],
                    authorities=(bytes(32),),
                    ephemeral=bytes(32),
                    former=bytes(48),
                )
            ),
        ),
        (_revocation, sign_revocation(_ROSTER, _ROSTER.members[0], REVOKE, 5).encoded),
        (_identity_request, make_request("london", _LONDON)),
        (_roster_entry, pack("<Q", 2) + bytes(32) + pack("<Q", 9)),
        (_wish, b'{"subscribe": ["IBM", "VOD"], "unsubscribe": "*"}'),
        (_status, json.dumps(asdict(NodeStatus("london", "primary-receiver", 3))).encode()),
    ]
