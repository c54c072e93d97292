"""Connections to a node by TCP: the door that serves, and the visit of a client.

Everybody proves the key first, both ways; in a market with a roster the door, and each visitor that the roster lists,
also prove their identities, and a copy of the key alone opens nothing. Everything has an end: a handshake that
lingers, a message that is too long, a reader that does not read. A visitor that is slow waits alone, and is named.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from hmac import compare_digest
from secrets import token_bytes
from typing import NamedTuple, NoReturn, TypeVar

from isocast.runtime.market.model import Market, NodePlan
from isocast.runtime.market.pins import CertificateFault
from isocast.runtime.net.lobby import Lobby
from isocast.runtime.net.tls import ServerTls, certificate_fault, channel_of, client_tls, shown_digest, tls_trouble
from isocast.security.door_identities import DoorHand, EphemeralKey, Handshake, encode_word, read_word
from isocast.terms.errors import ConfigurationError, IsocastError, RemoteProtocolError
from isocast.terms.ids import NodeId
from isocast.wire.door import (
    LENGTH,
    MAX_MESSAGE,
    NONCE_BYTES,
    DoorMessage,
    Hello,
    Login,
    Refused,
    Sealed,
    Session,
    Welcome,
    decode_message,
    encode_message,
    proof,
)
from isocast.wire.limits import TAG_BYTES

__all__ = [
    "MAX_HALF_OPEN",
    "MAX_VISITORS",
    "CertificateRefusedError",
    "Door",
    "DoorError",
    "DoorRefusedError",
    "Doorway",
    "Visit",
    "visit",
    "visit_node",
]

MessageT = TypeVar("MessageT")

HANDSHAKE_S = 5.0
WRITE_S = 20.0
"""A visitor that takes nothing for so long is sent away."""
MAX_VISITORS = 256
MAX_HALF_OPEN = 64
"""Connections at once that have not proven a key yet."""
_KEEP_ALIVE = ((4, 10), (5, 5), (6, 4))
"""TCP_KEEPIDLE, _INTVL and _CNT of Linux: a machine that vanished is found out within 10 + 4·5 = 30 s."""
_CLIENT, _SERVER = b"client", b"server"
_MAX_HANDSHAKE = 2_048
_EPHEMERAL_BYTES = 32
_OLDER = 'or it runs an older version: update it, or set security.doors = "key" on all machines until that is done'


class DoorError(IsocastError):
    """A node's door is shut, refuses, or does not keep to the protocol."""


class DoorRefusedError(DoorError):
    """The door, or its visitor, does not have the right key: trying again changes nothing."""


class CertificateRefusedError(DoorRefusedError):
    """The door's certificate does not count, or this machine's clock or authority is wrong."""

    def __init__(self, text: str, fault: CertificateFault) -> None:
        """`fault` is what it is counted as."""
        super().__init__(text)
        self.fault = fault


class Doorway(NamedTuple):
    """How both sides of a door know each other by identity."""

    hand: DoorHand
    """Signs as this side, and judges the other."""
    door: NodeId
    stripe: int
    """Of the process whose door it is."""
    listed: Callable[[str], NodeId | None] = lambda _: None
    """Whose identity a visitor of this name must prove; None: nobody's, the key is enough."""


class Visit:
    """One connection after its handshake, at either end."""

    def __init__(
        self, reader: StreamReader, writer: StreamWriter, name: str, sends: Session, receives: Session
    ) -> None:
        """`name` is who logged in, `address` where the other end is."""
        self.name = name
        self.outgoing: Callable[[DoorMessage], DoorMessage] | None = None
        """What becomes of a message before it is sent: a door that sells seals it."""
        self.incoming: Callable[[Sealed], DoorMessage] | None = None
        """How a visitor opens what was sealed; None: it does so itself."""
        self.address = _peer(writer)
        self._reader = reader
        self._writer = writer
        _keep_alive(writer)
        self._sends = sends
        self._receives = receives

    async def send(self, message: DoorMessage) -> None:
        """Write one message; DoorError when the other side does not read."""
        sent = message if self.outgoing is None else self.outgoing(message)
        sealed = self._sends.sealed(encode_message(sent))
        self._writer.write(LENGTH.pack(len(sealed)) + sealed)
        try:
            async with asyncio.timeout(WRITE_S):
                await self._writer.drain()
        except (TimeoutError, OSError) as reason:
            self._writer.transport.abort()  # Else what it does not take would be kept for as long as it likes.
            raise DoorError(f"{self.name} does not read: {str(reason) or 'timed out'}") from reason

    async def receive(self) -> DoorMessage | None:
        """The next message; None when the other side has gone."""
        sealed = await _read_message(self._reader, MAX_MESSAGE + TAG_BYTES)
        message = None if sealed is None else decode_message(self._receives.unsealed(sealed))
        return self.incoming(message) if self.incoming is not None and isinstance(message, Sealed) else message

    async def expect(self, kind: type[MessageT]) -> MessageT:
        """The next message, which must be of this kind; DoorError with the other side's own reason otherwise."""
        message = await self.receive()
        if isinstance(message, kind):
            return message
        if isinstance(message, Refused):
            raise DoorError(message.reason)
        raise DoorError("the connection ended" if message is None else f"unexpected message {type(message).__name__}")

    def leave(self) -> None:
        """End the connection without waiting: answers that are under way are dropped."""
        self._writer.close()

    async def close(self) -> None:
        """End the connection."""
        self.leave()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()


class Door:
    """Listens on one address. `key_of` gives the key of a name, or None; `serve` handles one visit to its end."""

    def __init__(
        self,
        key_of: Callable[[str], bytes | None],
        serve: Callable[[Visit], Awaitable[None]],
        complain: Callable[[str, str], None] = lambda _name, _text: None,
        tls: ServerTls | None = None,
        doorway: Doorway | None = None,
    ) -> None:
        """`complain(name, text)` hears of visitors that were refused, were slow or broke the protocol.

        With `tls`, nothing is said in the clear. Without a `doorway`, the key is all that both sides prove.
        """
        self._key_of = key_of
        self._serve = serve
        self._complain = complain
        self._server: asyncio.Server | None = None
        self._tls = tls
        self._doorway = doorway
        self._visits: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.lobby = Lobby(MAX_HALF_OPEN)
        self._known = Lobby(MAX_VISITORS)
        """Visitors that have proven their key, by name."""
        self.refused = 0

    @property
    def visitors(self) -> int:
        """Connections that are open."""
        return len(self._visits)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.sockets[0].getsockname()[1]) if self._server is not None else 0

    async def open(self, address: str, port: int) -> None:
        """Start to listen; OSError if the port is taken."""
        self._is_closed = False
        self._server = await asyncio.start_server(self._enter, address, port, limit=1 << 20)

    async def close(self) -> None:
        """Close every connection, and those that come in at this moment."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        for task in list(self._visits):
            task.cancel()
        if self._visits:
            await asyncio.wait(self._visits, timeout=2)

    async def _enter(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self._is_closed or len(self._visits) > MAX_VISITORS + MAX_HALF_OPEN:
            self.refused += 1
            writer.transport.abort()
            return
        self._visits.add(task)
        ended = self.lobby.enter(task, _peer(writer))
        if ended is not None:
            self._visits.discard(ended)  # Its place is free at once, though it has yet to unwind.
            self.refused += 1
            self._complain(f"a stranger at {self.lobby.loudest}", "connects and says nothing")
        name = f"a stranger at {_peer(writer)}"
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                here = await self._welcome(reader, writer)
            self.lobby.leave(task)
            name = here.name
            self._admit(task, name)
            await self._serve(here)
        except (IsocastError, OSError, TimeoutError) as reason:
            self.refused += 1
            self._complain(name, str(reason) or "timed out")
        except asyncio.CancelledError:
            pass  # The node stops, or somebody else needs the place.
        finally:
            self._visits.discard(task)
            self.lobby.leave(task)
            self._known.leave(task)
            writer.close()

    def _admit(self, task: asyncio.Task[None], name: str) -> None:
        """Where all places are taken, whoever has the most of them gives one up; DoorError if that is the newcomer."""
        loudest = self._known.fullest
        if self._known.waiting >= MAX_VISITORS and name == loudest:
            raise DoorError("this door has no place for another visitor of this name")
        ended = self._known.enter(task, name)
        if ended is not None:
            self._visits.discard(ended)
            self.refused += 1
            self._complain(loudest, "has the most connections here: its oldest gave way to another visitor's")

    async def _welcome(self, reader: StreamReader, writer: StreamWriter) -> Visit:
        # Nothing is awaited before: what the visitor says next is TLS, and not for us to read.
        if self._tls is not None:
            await writer.start_tls(self._tls.context, ssl_handshake_timeout=HANDSHAKE_S)
        ours = token_bytes(NONCE_BYTES)
        _write_plain(writer, Hello(ours))
        login = await _read_plain(reader)
        if not isinstance(login, Login):
            raise RemoteProtocolError("no LOGIN")
        key = self._key_of(login.name)
        nonces = (ours, login.nonce, shown_digest(writer.get_extra_info("ssl_object")))
        # An unknown name costs the same as a wrong proof, and is told the same.
        expected = proof(key or token_bytes(32), _CLIENT, *nonces)
        if key is None or not compare_digest(expected, login.proof):
            rule = "is this the key file of this market? A node must be restarted when a name is added to the file"
            await _refuse(writer, f"unknown name or wrong key: {rule}", f"a wrong proof for {login.name!r}")
        welcome = encode_message(Welcome(proof(key, _SERVER, *nonces)))
        if self._doorway is None:
            _write_body(writer, welcome)
        else:
            about = Handshake(self._doorway.door, self._doorway.stripe, login.name, nonces)
            key = await _identify(reader, writer, self._doorway, about, key, welcome)
        return Visit(reader, writer, login.name, Session(key, _SERVER, *nonces), Session(key, _CLIENT, *nonces))


async def _identify(
    reader: StreamReader, writer: StreamWriter, doorway: Doorway, about: Handshake, key: bytes, welcome: bytes
) -> bytes:
    """Both sides have the key of the door: say who this is, and hear who comes; the key of the connection."""
    name = about.visitor
    try:
        async with asyncio.timeout(HANDSHAKE_S / 2):  # An older visitor waits: there is time left to tell it.
            word = read_word(await _read_message(reader, _MAX_HANDSHAKE) or b"")
    except (TimeoutError, RemoteProtocolError):
        rule = f"this door asks for identities besides, and {name} said none: its market file has another"
        await _refuse(writer, f"{rule} security.doors, {_OLDER}", f"no identity of {name!r}")
    node = doorway.listed(name)
    if node is not None and not doorway.hand.is_visitor(about, node, word):
        rule = "isocast keys check says whether the newest roster lists the identity that is there"
        heard = f"the key of {name!r} without its identity: if that is no old roster, the key was stolen"
        await _refuse(writer, f"the identity of {name} is not proven: {rule}", heard)
    ephemeral = EphemeralKey(token_bytes(_EPHEMERAL_BYTES))
    agreed = ephemeral.agree(word.ephemeral, key)
    _write_body(writer, welcome)
    _write_body(writer, encode_word(doorway.hand.door_word(about, word.ephemeral, ephemeral.public)))
    return agreed


async def _refuse(writer: StreamWriter, told: str, heard: str) -> NoReturn:
    """Tell a visitor why, and the door's owner what was tried."""
    _write_plain(writer, Refused(told))
    await writer.drain()
    raise RemoteProtocolError(heard)


async def visit_node(
    market: Market,
    there: NodePlan,
    name: str,
    key: bytes,
    hand: DoorHand | None,
    refused: MutableMapping[CertificateFault, int] | None = None,
) -> Visit:
    """Come in at the door of a node of the market, by TLS where it has that; DoorError says why not.

    `hand` as `door_hand` gives it: whoever has none proves the key alone, and asks no more of the door. `refused`
    counts certificates that do not count.
    """
    doorway = None if hand is None else Doorway(hand, there.node, there.stripe)
    try:
        try:
            tls = client_tls(market, there.address, there.origin)
        except ConfigurationError as reason:
            raise CertificateRefusedError(str(reason), CertificateFault.AUTHORITY) from reason
        return await visit(there.address, there.tcp_port, name, key, tls=tls, doorway=doorway)
    except CertificateRefusedError as reason:
        if refused is not None:
            refused[reason.fault] = refused.get(reason.fault, 0) + 1
        raise


async def visit(
    address: str,
    port: int,
    name: str,
    key: bytes,
    *,
    own: str | None = None,
    tls: ssl.SSLContext | None = None,
    doorway: Doorway | None = None,
) -> Visit:
    """Come in at a node's door, from an address of this machine if one is given; DoorError says why not."""
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            here = None if own is None else (own, 0)
            reader, writer = await asyncio.open_connection(address, port, limit=1 << 20, local_addr=here, ssl=tls)
    except ssl.SSLCertVerificationError as reason:
        fault = certificate_fault(reason) or CertificateFault.OTHER
        raise CertificateRefusedError(tls_trouble(f"{address}:{port}", reason), fault) from reason
    except ssl.SSLError as reason:
        raise DoorError(tls_trouble(f"{address}:{port}", reason)) from reason
    except (OSError, TimeoutError) as reason:
        raise DoorError(
            f"no connection to {address}:{port}: is the node up? ({str(reason) or 'timed out'})"
        ) from reason
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            return await _log_in(reader, writer, name, key, doorway)
    except BaseException as reason:
        writer.close()  # A cancelled caller leaves no connection behind.
        if isinstance(reason, OSError | TimeoutError):
            raise DoorError(f"{address}:{port} is not a door of this market ({str(reason) or 'timed out'})") from reason
        raise


async def _log_in(reader: StreamReader, writer: StreamWriter, name: str, key: bytes, doorway: Doorway | None) -> Visit:
    hello = await _read_plain(reader)
    if not isinstance(hello, Hello):
        raise DoorError("the connection ended" if hello is None else "no HELLO message: this is not a door")
    ours = token_bytes(NONCE_BYTES)
    nonces = (hello.nonce, ours, channel_of(writer.get_extra_info("ssl_object")))
    _write_plain(writer, Login(name, ours, proof(key, _CLIENT, *nonces)))
    ephemeral = EphemeralKey(token_bytes(_EPHEMERAL_BYTES))
    about = None if doorway is None else Handshake(doorway.door, doorway.stripe, name, nonces)
    if doorway is not None and about is not None:
        _write_body(writer, encode_word(doorway.hand.visitor_word(about, ephemeral.public)))
    answer = await _read_plain(reader)
    if isinstance(answer, Refused):
        raise DoorRefusedError(answer.reason)
    if not isinstance(answer, Welcome):
        raise DoorError("the connection ended" if answer is None else "no WELCOME message: this is not a door")
    if not compare_digest(answer.proof, proof(key, _SERVER, *nonces)):
        raise DoorRefusedError("the node does not have the key: it is not the node that it claims to be")
    if doorway is not None and about is not None:
        key = await _recognise(reader, doorway, about, ephemeral, key)
    return Visit(reader, writer, name, Session(key, _CLIENT, *nonces), Session(key, _SERVER, *nonces))


async def _recognise(
    reader: StreamReader, doorway: Doorway, about: Handshake, ephemeral: EphemeralKey, key: bytes
) -> bytes:
    """The door has its key: is it the node's own? The key of the connection, if so."""
    try:
        word = read_word(await _read_message(reader, _MAX_HANDSHAKE) or b"")
    except RemoteProtocolError:
        rule = "the node has the key of the door and says no identity: its market file has another security.doors"
        raise DoorRefusedError(f"{rule}, {_OLDER}") from None
    if not doorway.hand.is_door(about, ephemeral.public, word):
        rule = "it is not the node that it claims to be, or one of the two has an old roster (isocast keys apply)"
        raise DoorRefusedError(f"the node has the key of the door without its identity: {rule}")
    return ephemeral.agree(word.ephemeral, key)


def _peer(writer: StreamWriter) -> str:
    return str(writer.get_extra_info("peername", ("an unknown address",))[0])


def _keep_alive(writer: StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    if connection is None:
        return
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, name, value)


def _write_plain(writer: StreamWriter, message: DoorMessage) -> None:
    _write_body(writer, encode_message(message))


def _write_body(writer: StreamWriter, body: bytes) -> None:
    writer.write(LENGTH.pack(len(body)) + body)


async def _read_plain(reader: StreamReader) -> DoorMessage | None:
    body = await _read_message(reader, _MAX_HANDSHAKE)
    return None if body is None else decode_message(body)


async def _read_message(reader: StreamReader, limit: int) -> bytes | None:
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    except asyncio.IncompleteReadError as reason:
        if reason.partial:
            raise RemoteProtocolError("the connection ended inside a message") from None
        return None
    except ConnectionResetError:
        return None  # The client left without waiting for our last answer.
    if not 0 < length <= limit:
        raise RemoteProtocolError(f"a message of {length} bytes, at most {limit}")
    try:
        return await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise RemoteProtocolError("the connection ended inside a message") from None
