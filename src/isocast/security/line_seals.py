"""Sealed lines: what receivers and retransmit servers send to all, readable for whoever paid for the period (§6).

    | header 28 | service 1 | period 4 | nonce 12 | body, AES-256-GCM | tag 16 |

The highest bit of the header's flags says that a frame is sealed; header, service and period are associated data. Each
sender seals with a key of its own (`subscriptions.line_key`). A nonce is four bytes that a sender draws when it starts
and a counter that begins with its clock: no two starts and no two packets share one, whatever numbers are issued again.

T_t decides the period, of a heartbeat the instant at which what it tells of was ordered: its own less Δ_A. So who paid
until T_b hears everything before it, heartbeats included. What names another period than its T_t has is a forgery: a
key of yesterday speaks for yesterday.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NoReturn, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from isocast.security.keys import SecretKey
from isocast.security.subscriptions import BASE, REPAIR, ServiceKey, line_key, period_of, service_key
from isocast.terms.errors import ForgeryError, LocalProtocolError, RemoteProtocolError, StrangerError, UnpaidError
from isocast.terms.ids import NodeId
from isocast.wire.codec import line_packet, line_parts, released_line
from isocast.wire.frame import FLAGS_AT, SENDER_AT, STRIPE_AT, PacketKind, check_market, peek_kind, prefix
from isocast.wire.limits import HEADER_BYTES, JUMBO_DATAGRAM, SEALED_LINE_BYTES, TAG_BYTES
from isocast.wire.packets import Packet, Proof, ReleasedPacket

__all__ = ["BoughtKeys", "LineOpener", "LineSealer", "PeriodKeys", "RegionKeys"]

_CODES: Final[dict[str, int]] = {BASE: 1, REPAIR: 2}
_SERVICES: Final = {code: service for service, code in _CODES.items()}
_SERVICE = Struct("<BI")
_NONCE = Struct(">4sQ")
_NAMED = Struct(f"<{STRIPE_AT}xH{SENDER_AT.start - STRIPE_AT - 2}xQBI")
"""Of a sealed frame: stripe, sender, service and period."""
_SEALED_AT = HEADER_BYTES + SEALED_LINE_BYTES
_NONCE_AT = HEADER_BYTES + _SERVICE.size
_FLAGS_HIGH = FLAGS_AT + 1
_SEALED_BIT = 0x80
_SEALED_FLAG = _SEALED_BIT << 8
_MESSAGE = prefix(PacketKind.REL)
_SHORTEST = _SEALED_AT + TAG_BYTES
_DRAWN_BYTES = 4
_KEPT = 256
"""Bounds: ciphers that are remembered, of all senders, stripes and periods together."""


class PeriodKeys(Protocol):
    """Whoever has keys of services."""

    def find(self, service: str, period: int) -> bytes | None:
        """The key of a service in a period; None if it was not bought."""


class RegionKeys:
    """Every key, from the region's secret: of whoever seals."""

    def __init__(self, region: SecretKey, length_ns: int) -> None:
        """`length_ns` of a period."""
        self._region = region
        self.length_ns = length_ns

    def find(self, service: str, period: int) -> bytes | None:
        """The key of a service in a period; None for a period that cannot be."""
        try:
            return service_key(self._region, service, period, self.length_ns).key
        except LocalProtocolError:
            return None

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("keys are not pickled or copied")


class BoughtKeys:
    """The keys of a customer's packages; a renewal adds to them while they are in use."""

    def __init__(self, keys: Iterable[ServiceKey] = ()) -> None:
        """What was bought."""
        self._keys: dict[tuple[str, int], ServiceKey] = {}
        self.add(keys)

    def add(self, keys: Iterable[ServiceKey]) -> None:
        """More was bought."""
        self._keys.update({(key.service, key.period): key for key in keys})

    def find(self, service: str, period: int) -> bytes | None:
        """The key of a service in a period; None if it was not bought."""
        found = self._keys.get((service, period))
        return None if found is None else found.key

    def newest(self, service: str) -> ServiceKey | None:
        """The key of the last period of a service that was bought; None if none was."""
        return max([key for key in self._keys.values() if key.service == service], default=None)

    def oldest(self, *services: str) -> ServiceKey | None:
        """The key of the first period of any of some services; None if none was bought."""
        found = [key for key in self._keys.values() if key.service in services]
        return min(found, key=lambda key: key.period, default=None)

    def has(self, service: str) -> bool:
        """Whether any period of a service was bought."""
        return any(bought == service for bought, _ in self._keys)

    def ends(self, service: str, instant: int) -> int:
        """Until when a service is paid for without a gap, from an instant on; 0 if it is not paid for then."""
        end = 0
        for key in sorted([key for key in self._keys.values() if key.service == service], key=lambda key: key.begins):
            if key.begins <= max(end, instant) < key.ends:
                end = key.ends
        return end

    def __repr__(self) -> str:
        return f"BoughtKeys({len(self._keys)} keys)"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("keys are not pickled or copied")


def _period(packet: Packet, length_ns: int, delay_ns: int) -> int:
    """The period that a line's packet is of."""
    if type(packet) is Proof:
        return period_of(packet.instant, length_ns)
    if type(packet) is not ReleasedPacket:
        raise LocalProtocolError(f"{type(packet).__name__} is not sealed")
    return period_of(packet.instant if packet.count else max(packet.instant - delay_ns, 0), length_ns)


class LineSealer:
    """Seals the line of one sender."""

    def __init__(
        self,
        keys: RegionKeys,
        market: bytes,
        sender: NodeId,
        service: str,
        delay_ns: int,
        drawn: bytes,
        counter: int,
    ) -> None:
        """`drawn`: four random bytes, new at each start; `counter` above every one that was used, such as the time.

        `market` is the one that signatures name, `delay_ns` is Δ_A.
        """
        if len(drawn) != _DRAWN_BYTES or service not in _CODES:
            raise LocalProtocolError(f"a line is {BASE} or {REPAIR}, not {service}, and {_DRAWN_BYTES} bytes are drawn")
        self._keys = keys
        self._market = market
        self._sender = sender
        self._service = service
        self._code = _CODES[service]
        self._delay_ns = delay_ns
        self._drawn = drawn
        self._counter = counter
        self._ciphers: dict[tuple[int, int], tuple[AESGCM, bytes]] = {}
        """By period and stripe: the cipher, and how frames name service and period."""

    def seal(self, packet: Packet, market_id: bytes) -> bytes:
        """The frame of a packet on this line; LocalProtocolError for what readers would refuse."""
        header, body, limit = line_parts(packet, market_id, _SEALED_FLAG)
        period = _period(packet, self._keys.length_ns, self._delay_ns)
        cipher, named = self._ciphers.get((period, packet.stripe)) or self._new_cipher(period, packet.stripe)
        self._counter += 1
        nonce, known = _NONCE.pack(self._drawn, self._counter), header + named
        frame = b"".join((known, nonce, cipher.encrypt(nonce, body, known)))
        if len(frame) > limit:
            raise LocalProtocolError(f"a sealed packet of {len(frame)} bytes, at most {limit}")
        return frame

    def seal_all(self, packets: Sequence[Packet], market_id: bytes) -> list[bytes]:
        """The frames of packets, as `seal` makes each.

        Messages of one token differ in fields and payload alone: what is authenticated besides is made once for all.
        """
        frames: list[bytes] = []
        drawn, pack = self._drawn, _NONCE.pack
        header, instant, known, cipher = b"", -1, b"", None
        for packet in packets:
            if type(packet) is not ReleasedPacket or packet.count != 1:
                frames.append(self.seal(packet, market_id))
                continue
            begins, fields = released_line(packet, market_id, _SEALED_FLAG)
            if cipher is None or begins != header or packet.instant != instant:
                header, instant = begins, packet.instant
                period = _period(packet, self._keys.length_ns, self._delay_ns)
                cipher, named = self._ciphers.get((period, packet.stripe)) or self._new_cipher(period, packet.stripe)
                known = header + named
            self._counter += 1  # Before it is used: a nonce is never taken twice, whatever fails behind this.
            nonce = pack(drawn, self._counter)
            frame = b"".join(
                (known, nonce, cipher.encrypt(nonce, b"".join((fields, packet.payload, packet.proof)), known))
            )
            if len(frame) > JUMBO_DATAGRAM:
                raise LocalProtocolError(f"a sealed packet of {len(frame)} bytes, at most {JUMBO_DATAGRAM}")
            frames.append(frame)
        return frames

    def _new_cipher(self, period: int, stripe: int) -> tuple[AESGCM, bytes]:
        key = self._keys.find(self._service, period)
        if key is None:
            raise LocalProtocolError(f"there is no period {period}")
        while len(self._ciphers) >= _KEPT:
            del self._ciphers[next(iter(self._ciphers))]
        cipher = AESGCM(line_key(key, self._market, self._service, stripe, self._sender))
        made = self._ciphers[period, stripe] = cipher, _SERVICE.pack(self._code, period)
        return made

    def __repr__(self) -> str:
        return f"LineSealer(sender {self._sender}, {self._service})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("a sealer is not pickled or copied: its copy would use a nonce again")


class LineOpener:
    """Opens the lines that were paid for."""

    def __init__(
        self, keys: PeriodKeys, market: bytes, senders: Mapping[NodeId, str], length_ns: int, delay_ns: int
    ) -> None:
        """`senders`: whose lines there are, each with its service: `base` or `repair`."""
        self._keys = keys
        self._market = market
        self._senders = senders
        self._length_ns = length_ns
        self._delay_ns = delay_ns
        self._ciphers: dict[tuple[NodeId, int, int], AESGCM] = {}

    def open(self, frame: bytes, market_id: bytes) -> Packet:
        """The packet in a sealed frame.

        RemoteProtocolError for what is none, StrangerError for a sender without a line, UnpaidError without the
        period's key, ForgeryError for another key's.
        """
        if not _SHORTEST <= len(frame) <= JUMBO_DATAGRAM:
            raise RemoteProtocolError(f"{len(frame)} bytes on a sealed line")
        if not frame.startswith(_MESSAGE):  # Most are messages; the kind of anything else is looked up.
            peek_kind(frame)
        check_market(frame, market_id)
        if not frame[_FLAGS_HIGH] & _SEALED_BIT:
            raise ForgeryError("a packet that is not sealed on a line that is")
        stripe, sender, code, period = _NAMED.unpack_from(frame)
        service = self._senders.get(sender)
        if service is None or service != _SERVICES.get(code):
            raise StrangerError(f"sender {sender} has no line of service {code}")
        cipher = self._ciphers.get((sender, stripe, period)) or self._new_cipher(sender, stripe, period, service)
        try:
            body = cipher.decrypt(frame[_NONCE_AT:_SEALED_AT], memoryview(frame)[_SEALED_AT:], frame[:_NONCE_AT])
        except InvalidTag:
            raise ForgeryError(f"a packet in the name of {sender} under another key") from None
        low = bytes((frame[_FLAGS_HIGH] & ~_SEALED_BIT,))
        packet = line_packet(frame[:_FLAGS_HIGH] + low + frame[_FLAGS_HIGH + 1 : HEADER_BYTES], body)
        self._check_period(packet, period)
        return packet

    def _check_period(self, packet: Packet, period: int) -> None:
        try:
            found = _period(packet, self._length_ns, self._delay_ns)
        except LocalProtocolError as reason:
            raise RemoteProtocolError(str(reason)) from None
        if found != period:
            raise ForgeryError(f"a packet of period {found} under the key of period {period}")

    def _new_cipher(self, sender: NodeId, stripe: int, period: int, service: str) -> AESGCM:
        key = self._keys.find(service, period)
        if key is None:
            raise UnpaidError(f"{service} of period {period} was not bought")
        while len(self._ciphers) >= _KEPT:
            del self._ciphers[next(iter(self._ciphers))]
        cipher = AESGCM(line_key(key, self._market, service, stripe, sender))
        self._ciphers[sender, stripe, period] = cipher
        return cipher

    def __repr__(self) -> str:
        return f"LineOpener({len(self._senders)} senders)"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise TypeError("an opener is not pickled or copied")
