"""Files of other people's formats, opened by what they are: blocks of events, and a log of what became of the rest.

The format shows in the first bytes, not in the name; gzip, bzip2, xz, zstd and zip around it are opened. What a file
does not say (of which day it is, which floor, which symbol) is given by options, or asked for in an error.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from lzma import LZMAError
from pathlib import Path
from typing import IO, Protocol

import numpy as np

from isocast.feeds.captures import CAPTURE_MAGICS, read_capture
from isocast.feeds.compressed import HEAD_BYTES, compression_of, expand, is_bomb, plain_name
from isocast.feeds.days import NEW_YORK, DayClock, day_at, day_in_name
from isocast.feeds.directories import MetSymbols, sound_events
from isocast.feeds.itch_decoder import ItchDecoder
from isocast.feeds.lobster import LobsterDecoder, lobster_name
from isocast.feeds.mappings import BUILT_IN, TableMapping, read_mapping
from isocast.feeds.mold_reader import MoldReader, MoldSession
from isocast.feeds.outcomes import Fault, FeedLog, Listing
from isocast.feeds.recognition import (
    begins_like_events,
    begins_like_itch,
    begins_like_lobster,
    is_text,
    is_wide_text,
)
from isocast.feeds.tables import TableDecoder
from isocast.runtime.client.feed_tables import ParquetFeed
from isocast.terms.errors import ConfigurationError, FeedError
from isocast.terms.market import Mic, Symbol
from isocast.terms.suggestion import suggestion
from isocast.wire.events import EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = ["FeedFile", "FeedFormat", "FeedOptions", "load_mapping"]

_CHUNK = 1 << 21
_HEAD = 4_096
_LAYERS = 2
"""A member of a zip file may be compressed once more, or a file twice."""
_ZIP_MAGIC = b"PK\x03\x04"
_PARQUET_MAGIC = b"PAR1"
_DEFAULT_FLOOR = Mic("XNAS")
_TICKS = re.compile(r"(\d{8})_([A-Za-z.\-]{1,8})_(trade|quote)_tick", re.IGNORECASE)
_TAKE_EVERY = 256
"""Packets of a capture between two blocks."""


class FeedFormat(StrEnum):
    """What a file is."""

    ITCH = "itch"
    """Nasdaq TotalView-ITCH 5.0, each message with its length before it."""
    CAPTURE = "capture"
    """pcap or pcapng with ITCH 5.0 in MoldUDP64."""
    TABLE = "table"
    """Rows of text, read by a mapping."""
    PARQUET = "parquet"
    """Our own columns, or any others by a mapping."""
    LOBSTER = "lobster"
    """LOBSTER's message files."""
    EVENTS = "events"
    """Our own records of 48 bytes."""


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """What a file does not say itself."""

    floor: Mic | None = None
    """The floor of a feed that names none; of one that names its floors, the only one that is wanted."""
    day: date | None = None
    zone: str = NEW_YORK
    """Where it is midnight when the clock of an ITCH feed starts."""
    symbol: Symbol | None = None
    mapping: TableMapping | None = None
    format: FeedFormat | None = None
    port: int | None = None
    """Of a capture: only datagrams to this port."""
    strict: bool = False


class _Decoder(Protocol):
    @property
    def directory(self) -> list[Listing]: ...


def load_mapping(text: str) -> TableMapping:
    """A mapping that is built in, by its name, or in a TOML file."""
    if text in BUILT_IN:
        return BUILT_IN[text]
    path = Path(text)
    if not path.suffix:
        rule = f'"{text}" is none of {", ".join(BUILT_IN)}{suggestion(text, BUILT_IN)}, and no TOML file'
        raise ConfigurationError("command line", "--mapping", rule)
    try:
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as reason:
        raise ConfigurationError(text, "--mapping", f"cannot be read: {_why(reason)}") from None
    return read_mapping(content, text)


def _why(reason: OSError | UnicodeDecodeError) -> str:
    return reason.strerror or str(reason) if isinstance(reason, OSError) else "it is not UTF-8 text"


class FeedFile:
    """One file. `blocks` reads it once; `log` and `directory` are complete when it has ended."""

    def __init__(self, path: Path, options: FeedOptions | None = None) -> None:
        """Look at the beginning of the file: FeedError if it is nothing that we read."""
        self.path = path
        self.options = options or FeedOptions()
        self.log = FeedLog(str(path), strict=self.options.strict)
        self.streams: list[tuple[list[tuple[str, int]], MoldSession]] = []
        """Of a capture: the sessions of MoldUDP64, each with the groups and ports on which it came."""
        self.position = 0
        """Bytes of the file on disk that were read."""
        self._decoders: list[_Decoder] = []
        try:
            self.size = path.stat().st_size
            self.name, self.format = self._recognise()
        except OSError as reason:
            raise FeedError(str(path), f"cannot be read: {_why(reason)}") from None
        self.position = 0

    @property
    def directory(self) -> list[Listing]:
        """Every symbol that was announced or met."""
        return [listing for decoder in self._decoders for listing in decoder.directory]

    def blocks(self) -> Iterator[EventArray]:
        """The events, in the feed's own order."""
        wanted = self.options.floor
        for block in self._all_blocks():
            if wanted is None:
                yield block
                continue
            own = block["floor"] == wanted.fixed
            self.log.skip("events of other floors", int(np.count_nonzero(~own)))
            if own.any():
                yield block[own]

    # ---- what it is

    def _recognise(self) -> tuple[str, FeedFormat]:
        """By what is in it; a name decides only between damaged files."""
        name, head = self._look_inside()
        if self.options.format is not None:
            return name, self.options.format
        if head.startswith(_PARQUET_MAGIC):
            return name, FeedFormat.PARQUET
        if head.startswith(CAPTURE_MAGICS):
            return name, FeedFormat.CAPTURE
        if not head:
            raise FeedError(str(self.path), "is empty")
        found = self._text_format(name, head) if is_text(head) else self._binary_format(name, head)
        if found is not None:
            return name, found
        rule = "is nothing that we recognise; say what it is with --format, or name its columns with --mapping"
        if is_wide_text(head):
            rule = "is text of two bytes for each character (UTF-16); save it as UTF-8"
        elif is_text(head):
            rule = rule.replace("nothing that we recognise", "text that no built-in mapping fits")
        raise FeedError(str(self.path), rule)

    def _text_format(self, name: str, head: bytes) -> FeedFormat | None:
        if self.options.mapping is not None:
            return FeedFormat.TABLE
        if begins_like_lobster(head):
            return FeedFormat.LOBSTER
        if self._mapping_for(name, head) is not None:
            return FeedFormat.TABLE
        return FeedFormat.LOBSTER if lobster_name(name) is not None else None

    @staticmethod
    def _binary_format(name: str, head: bytes) -> FeedFormat | None:
        if begins_like_itch(head):
            return FeedFormat.ITCH
        if begins_like_events(head) or name.lower().endswith((".events", ".raw")):
            return FeedFormat.EVENTS
        return FeedFormat.ITCH if "ITCH" in name.upper() else None

    def _look_inside(self) -> tuple[str, bytes]:
        """The name and the beginning of what is inside."""
        head = b""
        with self._chunks(FeedLog(str(self.path))) as (name, chunks):
            for chunk in chunks:
                head += chunk[:_HEAD]
                if len(head) >= _HEAD:
                    break
        return name, head[:_HEAD]

    @contextmanager
    def _zip(self) -> Iterator[tuple[zipfile.ZipFile, str]]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = [name for name in archive.namelist() if not name.lower().endswith(("/", ".txt", ".md"))]
                members = [name for name in members if "orderbook" not in name] or members
                if len(members) != 1:
                    rule = f"has {len(members)} members; unpack the one that is wanted"
                    raise FeedError(str(self.path), rule)
                yield archive, members[0]
        except (zipfile.BadZipFile, NotImplementedError) as reason:
            raise FeedError(str(self.path), f"is a damaged zip file: {reason}") from None

    def _member(self, archive: zipfile.ZipFile, member: str) -> IO[bytes]:
        try:
            return archive.open(member)
        except RuntimeError:  # What zipfile raises for a member that wants a password.
            raise FeedError(str(self.path), "is an encrypted zip file; unpack it first") from None

    @staticmethod
    def _mapping_for(name: str, head: bytes) -> TableMapping | None:
        """A table that is built in, by its name or its header."""
        found = _TICKS.search(name)
        if found is not None:
            return BUILT_IN[f"us-tape-{found[3].lower()}s"]
        names = head.partition(b"\n")[0].decode("utf-8-sig", "replace").strip("\r").split("|")
        for key in ("taq-trades", "taq-quotes"):
            mapping = BUILT_IN[key]
            if {mapping.time, mapping.floor, mapping.symbol, mapping.price or mapping.bid} <= set(names):
                return mapping
        return None

    # ---- bytes

    @contextmanager
    def _chunks(self, log: FeedLog) -> Iterator[tuple[str, Iterable[bytes]]]:
        """The contents in chunks, out of what is around them, and the name of what is inside."""
        with ExitStack() as stack:
            file = stack.enter_context(self.path.open("rb"))
            head = file.read(HEAD_BYTES)
            file.seek(0)
            name, chunks = self.path.name, self._read(file, file)
            if head.startswith(_ZIP_MAGIC):
                archive, member = stack.enter_context(self._zip())
                inner = stack.enter_context(self._member(archive, member))
                name, chunks = Path(member).name, self._read_zip(inner, log)
            for _ in range(_LAYERS):
                chunks = expand(chunks, log, at_most=_CHUNK)
            yield plain_name(name), chunks

    def _read(self, file: IO[bytes], outer: IO[bytes]) -> Iterator[bytes]:
        while chunk := file.read(_CHUNK):
            self.position = outer.tell()
            yield chunk

    def _read_zip(self, inner: IO[bytes], log: FeedLog) -> Iterator[bytes]:
        read = 0
        try:
            while chunk := inner.read(_CHUNK):
                read += len(chunk)
                self.position = min(self.position + len(chunk) // 5, self.size)
                yield chunk
                if is_bomb(self.size, read):
                    log.fault(Fault.DAMAGED_COMPRESSION, read, f"{self.size:,} bytes of zip became {read:,} and more")
                    break
        except (zipfile.BadZipFile, EOFError, OSError, zlib.error, LZMAError) as reason:
            log.fault(Fault.DAMAGED_COMPRESSION, read, f"the zip member is damaged: {reason}")
        self.position = self.size

    # ---- events

    def _all_blocks(self) -> Iterator[EventArray]:
        if self.format is FeedFormat.PARQUET:
            self._check_plain()
            feed = ParquetFeed(self.path, self.log, self.options.mapping, self._table_decoder)
            self._decoders.append(feed)
            for block in feed.blocks():
                self.log.bytes_read = self.position = int(self.size * feed.part)
                yield block
            self.log.bytes_read = self.position = self.size
            return
        with self._chunks(self.log) as (_, chunks):
            match self.format:
                case FeedFormat.ITCH:
                    decoder = ItchDecoder(self._floor(), DayClock.at(self._day(), self.options.zone), self.log)
                    self._decoders.append(decoder)
                    yield from decoder.blocks(chunks)
                case FeedFormat.CAPTURE:
                    yield from self._capture_blocks(chunks)
                case FeedFormat.LOBSTER:
                    yield from self._lobster().blocks(chunks)
                case FeedFormat.TABLE:
                    mapping = self.options.mapping or self._table_mapping()
                    table = self._table_decoder(mapping)
                    yield from table.blocks(chunks)
                case _:
                    yield from self._event_blocks(chunks)

    def _check_plain(self) -> None:
        """A Parquet file is read from its end, which needs the file as it is."""
        with self.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        if compression_of(head) is not None or head.startswith(_ZIP_MAGIC):
            raise FeedError(str(self.path), "is a compressed Parquet file; unpack it first")

    def _floor(self) -> Mic:
        return self.options.floor or _DEFAULT_FLOOR

    def _day(self) -> date:
        day = self.options.day or day_in_name(self.name) or day_in_name(self.path.name)
        if day is None:
            rule = "its name does not say of which day it is; give --day 2019-01-30"
            raise ConfigurationError(str(self.path), "day", rule)
        return day

    def _lobster(self) -> LobsterDecoder:
        named = lobster_name(self.name)
        symbol = self.options.symbol or (named.symbol if named else None)
        if symbol is None:
            raise ConfigurationError(str(self.path), "symbol", "its name does not say; give --symbol")
        decoder = LobsterDecoder(self._floor(), symbol, self._day().isoformat(), self.log)
        self._decoders.append(decoder)
        return decoder

    def _table_mapping(self) -> TableMapping:
        _, head = self._look_inside()
        mapping = self._mapping_for(self.name, head)
        if mapping is None:
            rule = f"a table needs --mapping: one of {', '.join(BUILT_IN)}, or a TOML file"
            raise ConfigurationError(str(self.path), "mapping", rule)
        return mapping

    def _table_decoder(self, mapping: TableMapping) -> TableDecoder:
        ticks = _TICKS.search(self.name)
        symbol = self.options.symbol or (Symbol(ticks[2].upper()) if ticks else None)
        day = self.options.day or day_in_name(self.name) or day_in_name(self.path.name)
        decoder = TableDecoder(mapping, self.log, day=day, symbol=symbol, floor=self.options.floor)
        self._decoders.append(decoder)
        return decoder

    def _event_blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        met = MetSymbols()
        self._decoders.append(met)
        rest = b""
        offset = 0
        for chunk in chunks:
            self.log.bytes_read += len(chunk)
            whole = rest + chunk
            cut = len(whole) - len(whole) % EVENT_BYTES
            raw, rest = whole[:cut], whole[cut:]
            events = sound_events(raw, self.log, offset)
            met.meet(events)
            offset += cut
            yield events
        if rest:
            self.log.fault(Fault.TRUNCATED, offset, f"{len(rest)} bytes are left over: a record has {EVENT_BYTES}")

    def _capture_blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        """Every session for itself, whatever groups and ports are its lines."""

        def decoder_at(time: int) -> ItchDecoder:
            day = self.options.day or day_at(time, self.options.zone)
            decoder = ItchDecoder(self._floor(), DayClock.at(day, self.options.zone), self.log)
            self._decoders.append(decoder)
            return decoder

        reader = MoldReader(decoder_at, self.log)
        count = 0
        for datagram in read_capture(chunks, self.log):
            if self.options.port is not None and datagram.port != self.options.port:
                self.log.skip("datagrams to other ports")
                continue
            reader.receive(datagram.payload, datagram.offset, (datagram.target, datagram.port), datagram.time)
            count += 1
            if count % _TAKE_EVERY == 0:
                yield from reader.take()
        yield from reader.end()
        self.streams = reader.streams
