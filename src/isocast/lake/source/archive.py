"""The network itself as a source: ranges of the sequence from the doors of retransmit servers and receivers.

Who asks is a customer of the market's file, or a guest who holds the edge key alone; keys are read from the market's
key directory, where the task runs, and travel nowhere. A retransmit server gives each customer its share, one request
at a time, and all guests of an address one share: a lake that asks in a name of its own (`as`) takes nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isocast.lake.source.catalog import CHUNK_BYTES, HEADER_DTYPE, SegmentChunk
from isocast.lake.source.columns import Part
from isocast.lake.source.options import END, Offsets, Options
from isocast.lake.source_faults import SourceFault, SourceFaults
from isocast.runtime.disk.journal_segments import SegmentFile
from isocast.runtime.market.file import load_market
from isocast.runtime.market.guests import with_guest
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market, NodePlan, NodeRole
from isocast.runtime.net.door import DoorError, DoorRefusedError, Visit, visit_node
from isocast.runtime.net.door_keys import door_hand, door_opener, edge_door_key, edge_visitor, guest_visitor
from isocast.terms.errors import ConfigurationError, IsocastError, JournalError, RemoteProtocolError
from isocast.terms.quantities import suggestion
from isocast.wire.door import Block, End, RangeWanted, Refused
from isocast.wire.journal import BLOCK_HEADER_BYTES
from isocast.wire.journal_blocks import view_block

__all__ = ["ArchiveLanes", "ArchivePiece", "read_archive"]


_ASK = 4_096
"""Messages of one request: what a retransmit server looks at."""
_SILENCE_S = 10.0
_PATIENCE_S = 30.0
"""How long a server may be busy, or away."""
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class _BusyError(DoorError):
    """The door refused one request; it may be asked again."""


@dataclass(frozen=True, slots=True)
class ArchivePiece:
    """A range, and the servers to ask for it in their order."""

    market: str
    visitor: str
    """A customer of the file, or nothing: a guest."""
    stripe: int
    servers: tuple[str, ...]
    first: int
    stop: int


class ArchiveLanes:
    """The driver's side: how far servers reach, and which task asks whom."""

    def __init__(self, options: Options) -> None:
        """Read the market's file, and check who asks whom."""
        self._options = options
        self._market = load_market(Path(options.market))
        self._visitor = _visitor(self._market, options.visitor)
        stripes = sorted(options.stripes) or list(self._market.all_stripes)
        self._servers = {str(stripe): _servers(self._market, stripe, options.server) for stripe in stripes}

    def _span(self, key: str) -> tuple[int, int]:
        """The oldest and the next sequence that any of a stripe's servers has."""
        spans, reasons = [], []
        for server in self._servers[key]:
            try:
                spans.append(asyncio.run(_ask_span(_share(self._market, key), self._visitor, server.name)))
            except (IsocastError, OSError, TimeoutError) as reason:
                reasons.append(f"{server.name}: {str(reason) or 'no answer'}")
        if not spans:
            raise JournalError(self._options.market, f"no server of stripe {key} answers; {'; '.join(reasons)}")
        known = [span for span in spans if span[1] > span[0]] or [(1, 1)]
        return min(low for low, _ in known), max(stop for _, stop in known)

    # ---- batch

    def pieces(self) -> list[ArchivePiece]:
        """All that was asked for."""
        options, found = self._options, []
        for key in self._servers:
            low, stop = self._span(key)
            found += self._cut(key, options.first or low, min(stop, options.stop))
        return found

    def _cut(self, key: str, first: int, stop: int) -> list[ArchivePiece]:
        """As many ranges as can be asked for at once."""
        if first >= stop:
            return []
        servers = self._servers[key]
        # A retransmit server answers one request of a customer at a time; a receiver answers all.
        shares = len(servers) if servers[0].role is NodeRole.RETRANSMIT_SERVER else self._options.min_partitions
        count = min(max(shares, 1), -(-(stop - first) // _ASK))
        cuts = [first + (stop - first) * place // count for place in range(count)] + [stop]
        names = [server.name for server in servers]
        return [
            ArchivePiece(
                self._options.market,
                self._visitor,
                int(key),
                tuple(names[place % len(names) :] + names[: place % len(names)]),
                cuts[place],
                cuts[place + 1],
            )
            for place in range(count)
        ]

    # ---- stream

    def starting(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        chosen = self._options.starting
        if chosen == "latest":
            return self.latest()
        spans = {key: self._options.first or self._span(key)[0] for key in self._servers}
        return spans if chosen == "earliest" else {**spans, **chosen}

    def latest(self) -> Offsets:
        """Behind the newest of every stripe."""
        return {key: min(self._span(key)[1], self._options.stop) for key in self._servers}

    def reach(self, start: Offsets, target: Offsets | None, rows: int) -> Offsets:
        """How far the next batch goes: so many rows at most, if every message is full."""
        most = max(rows // self._market.events_per_payload // len(self._servers), 1) if rows else END
        end: Offsets = dict(start)
        for key, stop in self.latest().items():
            begin = start.get(key, 1)
            if begin > stop and begin <= self._options.stop:
                rule = (
                    f"the checkpoint has read stripe {key} up to sequence {begin - 1}, and the servers end with"
                    f" {stop - 1}: is it another market's, or have they just started? Wait, or use a new checkpoint"
                )
                raise JournalError(self._options.market, rule)
            limit = min(stop, END if target is None else target.get(key, 0), begin + most)
            end[key] = max(limit, begin)
        return end

    def between(self, start: Offsets, end: Offsets) -> list[ArchivePiece]:
        """What a batch reads."""
        found: list[ArchivePiece] = []
        for key, stop in end.items():
            if key not in self._servers:
                rule = f"the checkpoint has read stripe {key}, which this market does not have"
                raise JournalError(self._options.market, rule)
            found += self._cut(key, start.get(key, 1), stop)
        return found


def _visitor(market: Market, name: str) -> str:
    """Who asks: the option; a customer's seat that is kept for programs and that no process sits on; a guest ("")."""
    customers = market.by_role(NodeRole.CUSTOMER)
    origins = list(dict.fromkeys(plan.origin for plan in customers))
    seats = [plan.origin for plan in customers if not plan.start]
    chosen = name or (seats[0] if seats else "")
    if not chosen and market.guests.allowed:
        return ""
    if chosen not in origins:
        asked = f"{name!r} is not a customer of it{suggestion(name, origins)}" if name else "is missing"
        rule = f"{asked}: the name of a customer, best one of the lake's own; there are {', '.join(origins) or 'none'}"
        raise ConfigurationError(market.file, "option as", rule)
    return chosen


def _servers(market: Market, stripe: int, name: str) -> tuple[NodePlan, ...]:
    """The retransmit servers of a stripe, or whom the option names."""
    if stripe not in market.all_stripes:
        raise ConfigurationError(market.file, "option stripe", f"{stripe}: there are {market.all_stripes}")
    share = market.of_stripe(stripe)
    doors = [plan for plan in share.nodes if plan.tcp_port and not plan.role.is_source and plan.role.has_door]
    if name:
        doors = [plan for plan in doors if name in {plan.name, plan.origin}]
    else:
        doors = [plan for plan in doors if plan.role is NodeRole.RETRANSMIT_SERVER] or doors
    if not doors:
        rule = f"{name!r} is no retransmit server or receiver of stripe {stripe} with a TCP port"
        raise ConfigurationError(market.file, "option server", rule)
    return tuple(doors)


def _share(market: Market, key: str) -> Market:
    return market.of_stripe(int(key))


async def _enter(share: Market, visitor: str, server: str) -> Visit:
    """Come in at a server's door in a customer's name, or as a guest."""
    places = share.processes_of(visitor) if visitor else with_guest(share)[1]
    if not places:
        raise ConfigurationError(share.file, "option as", f"{visitor!r} is not a customer of stripe {share.stripes[0]}")
    keys = load_keys(share, places[0])
    name = edge_visitor(places[0]) if visitor else guest_visitor(keys)
    key = edge_door_key(share, keys, name)
    if key is None:
        raise ConfigurationError(share.file, "option as", f"{visitor or 'a guest'} has no key of the edge")
    there = share.node(server)
    here = await visit_node(share, there, name, key, door_hand(share, keys))
    opener = door_opener(share, keys, places[0].stripe, there.node)
    here.incoming = None if opener is None else opener.open
    return here


async def _ask_span(share: Market, visitor: str, server: str) -> tuple[int, int]:
    """What an archive has; a range that lies behind everything is answered by that alone."""
    here = await _enter(share, visitor, server)
    try:
        _, low, stop = await _range(here, END, END)
    finally:
        await here.close()
    return low, stop


async def _range(here: Visit, first: int, last: int) -> tuple[list[bytes], int, int]:
    """The blocks of one request, and what the archive has; asks again while the server is busy."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + _PATIENCE_S, _PAUSE_S
    while True:
        try:
            return await _range_once(here, first, last)
        except _BusyError as reason:
            if loop.time() > until:
                raise DoorError(f"{reason}; gave up after {_PATIENCE_S:.0f} s") from reason
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


async def _range_once(here: Visit, first: int, last: int) -> tuple[list[bytes], int, int]:
    await here.send(RangeWanted(first, last))
    bodies: list[bytes] = []
    while True:
        async with asyncio.timeout(_SILENCE_S):
            message = await here.receive()
        match message:
            case Block(body):
                bodies.append(body)
            case End(low_water, next_sequence):
                return bodies, low_water, next_sequence
            case Refused(reason):
                raise _BusyError(reason)
            case None:
                raise DoorError("the connection ended")
            case other:
                raise DoorError(f"unexpected message {type(other).__name__}")


def read_archive(piece: ArchivePiece, faults: SourceFaults) -> Iterator[Part]:
    """Every sequence of a piece, once and in order: from the first server, and what it lacks from the next."""
    share = load_market(Path(piece.market)).of_stripe(piece.stripe)
    at = piece.first
    with asyncio.Runner() as runner:
        for server in piece.servers:
            visitor = _Asking(runner, share, piece, server, faults)
            for part in visitor.parts(at):
                at = part.stop
                yield part
            if at >= piece.stop:
                return
    faults.lost(_gap(piece, at))


class _Asking:
    """One server, asked for a range bit by bit."""

    def __init__(
        self, runner: asyncio.Runner, share: Market, piece: ArchivePiece, server: str, faults: SourceFaults
    ) -> None:
        self._runner = runner
        self._share = share
        self._piece = piece
        self._server = share.node(server)
        self._faults = faults

    def parts(self, at: int) -> Iterator[Part]:
        """What it has from a sequence on, without a hole."""
        run, piece = self._runner.run, self._piece
        try:
            here = run(_enter(self._share, piece.visitor, self._server.name))
        except DoorRefusedError:
            raise
        except DoorError as reason:
            self._note(str(reason))
            return
        try:
            while at < piece.stop:
                bodies, low, _ = run(_range(here, at, min(at + _ASK, piece.stop) - 1))
                before = at
                for part in self._viewed(bodies, at):
                    at = part.stop
                    yield part
                if at == before:
                    self._note(f"has nothing from sequence {at} on; it begins with {low}")
                    return
        except (DoorError, RemoteProtocolError, OSError, TimeoutError) as reason:
            self._note(str(reason) or "no answer")
        finally:
            run(here.close())

    def _viewed(self, bodies: list[bytes], at: int) -> Iterator[Part]:
        """Blocks as parts of some megabytes."""
        waiting: list[bytes] = []
        size, first = 0, at
        for body in bodies:
            header = view_block(body).header
            if not header.first_sequence <= at < header.next_sequence:
                break
            waiting.append(body)
            size += len(body)
            at = min(header.next_sequence, self._piece.stop)
            if size >= CHUNK_BYTES:
                yield self._part(waiting, first, at)
                waiting, size, first = [], 0, at
        if waiting:
            yield self._part(waiting, first, at)

    def _part(self, bodies: list[bytes], first: int, stop: int) -> Part:
        server = self._server
        words = np.frombuffer(b"".join(bodies), np.uint64)
        lengths = np.array([len(body) for body in bodies], np.int64)
        headers = np.frombuffer(b"".join([body[:BLOCK_HEADER_BYTES] for body in bodies]), HEADER_DTYPE)
        file = SegmentFile(first, Path(f"{server.address}:{server.tcp_port}"), self._piece.stripe, server.node)
        return Part(SegmentChunk(file, 0, words, (lengths.cumsum() - lengths) // 8, headers), server.node, first, stop)

    def _note(self, rule: str) -> None:
        server = self._server
        where = f"{server.address}:{server.tcp_port}"
        self._faults.note(SourceFault(where, "server", f"{server.name}: {rule}", 1, self._piece.stripe, server.node))


def _gap(piece: ArchivePiece, at: int) -> SourceFault:
    rule = (
        f"sequences {at} to {piece.stop - 1} of stripe {piece.stripe} are on none of the servers"
        f" {', '.join(piece.servers)};"
        " begin after them with fromSequence, name another server, or set onError to quarantine"
    )
    return SourceFault(piece.market, "gap", rule, piece.stop - at, piece.stripe, None, None, at, piece.stop - 1)
