"""Files of other people's formats, opened by what they are and read in blocks; `feed_sinks` writes some of them.

The format shows in the first bytes, not in the name; gzip, bzip2, xz, zstd and zip around it are opened. What a file
does not say (of which day it is, which floor, which symbol) is given by options, or asked for in an error.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from lzma import LZMAError
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import numpy.typing as npt

from isocast.feeds.capture_feeds import CaptureFeed
from isocast.feeds.captures import CAPTURE_MAGICS, read_capture
from isocast.feeds.cells import Column
from isocast.feeds.compressed import HEAD_BYTES, compression_of, expand, is_bomb, plain_name
from isocast.feeds.days import NEW_YORK, DayClock, day_at, day_in_name
from isocast.feeds.dbn import DbnDecoder, begins_like_dbn
from isocast.feeds.directories import MetSymbols, sound_events
from isocast.feeds.itch_reader import ItchDecoder
from isocast.feeds.itch_streams import (
    ItchStream,
    SoupPackets,
    UnframedMessages,
    begins_like_soup,
    begins_like_unframed,
)
from isocast.feeds.lobster import LobsterDecoder, lobster_name
from isocast.feeds.mappings import BUILT_IN, TableMapping, read_mapping
from isocast.feeds.mold import MoldSession
from isocast.feeds.outcomes import FeedFault, FeedLog, ListedSymbol
from isocast.feeds.recognition import begins_like_events, begins_like_itch, begins_like_lobster, is_text, is_wide_text
from isocast.feeds.tables import TableDecoder, scaled
from isocast.runtime.client.arrow import from_arrow
from isocast.runtime.client.rows import BadFieldError, events_of, field_of
from isocast.terms.errors import ConfigurationError, FeedError, IsocastError, LocalProtocolError, RowError
from isocast.terms.market import Mic, Symbol
from isocast.terms.quantities import suggestion
from isocast.wire.events import EVENT_DTYPE, EventArray
from isocast.wire.limits import EVENT_BYTES

__all__ = [
    "FeedFile",
    "FeedFormat",
    "FeedOptions",
    "ParquetFeed",
    "import_parquet",
    "load_mapping",
]


# ---- Parquet files: our own columns as they are, any others by a mapping. pyarrow comes with `isocast[arrow]`.


_ROWS = 1 << 17
_CENT = 0.01
_DIGITS = 18
"""Of whole numbers of 64 bits, but the first."""
_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def import_parquet() -> Any:  # noqa: ANN401 - a module, which has no better type
    """The package that reads and writes Parquet; IsocastError says how to get it."""
    try:
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as reason:
        raise IsocastError("Parquet files need pyarrow: pip install 'isocast[arrow]'") from reason
    return parquet


class ParquetFeed:
    """Reads one file, a block for each batch of rows."""

    def __init__(
        self,
        path: Path,
        log: FeedLog,
        mapping: TableMapping | None,
        make: Callable[[TableMapping], TableDecoder],
    ) -> None:
        """Without a mapping the columns must be ours. `make` makes the decoder of another table."""
        self._log = log
        self._met = MetSymbols()
        parquet = import_parquet()
        try:
            self._file = parquet.ParquetFile(path)
        except (OSError, ValueError) as reason:
            raise FeedError(str(path), f"is not a valid Parquet file: {reason}") from None
        self.part = 0.0
        """How much of it was read, 0 to 1."""
        names = self._file.schema_arrow.names
        ours = EVENT_DTYPE.names or ()
        self._has_rows = mapping is None and _are_rows(self._file.schema_arrow)
        if mapping is None and not self._has_rows and not set(names) <= set(ours):
            rule = f"its columns are {', '.join(names[:12])}; name them with --mapping"
            self._file.close()
            raise ConfigurationError(str(path), "mapping", rule)
        self._decoder = None if mapping is None else make(mapping)
        if self._decoder is not None:
            self._decoder.check_columns(names)

    @property
    def directory(self) -> list[ListedSymbol]:
        """Every floor and symbol that was met; those of a mapped table are its decoder's."""
        return self._met.directory if self._decoder is None else []

    def blocks(self) -> Iterator[EventArray]:
        """All events."""
        row = 0
        with self._file:
            for batch in self._file.iter_batches(_ROWS):
                if self._decoder is None:
                    events = self._own(batch, row)
                else:
                    events = self._decoder.decode(_ArrowColumns(batch, row))
                row += batch.num_rows
                self.part = row / max(self._file.metadata.num_rows, 1)
                if len(events):
                    yield events

    def _own(self, batch: Any, row: int) -> EventArray:  # noqa: ANN401 - a record batch
        try:
            events = events_of(batch) if self._has_rows else from_arrow(batch)
        except LocalProtocolError as reason:
            raise FeedError(self._log.file, f"rows from {row}: {reason}") from None
        except RowError as wrong:
            column = f", column {wrong.column}" if wrong.column else ""
            raise FeedError(self._log.file, f"row {row + wrong.row} (from 0){column}: {wrong.rule}") from None
        events = sound_events(events.tobytes(), self._log, row, 1)
        self._met.meet(events)
        return events


def _are_rows(schema: Any) -> bool:  # noqa: ANN401 - a schema of Arrow
    """Whether these are columns of rows as `publish` takes them: kinds by name, prices in units."""
    try:
        fields = {field_of(name): name for name in schema.names}
    except BadFieldError:
        return False
    kind = fields.get("kind")
    return kind is not None and not str(schema.field(kind).type).startswith(("int", "uint"))


class _ArrowColumns:
    """Columns of a record batch, as the decoder of tables asks for them; a row's place is its number."""

    def __init__(self, batch: Any, row: int) -> None:  # noqa: ANN401 - a record batch
        self.offsets = np.arange(row, row + batch.num_rows)
        self.lines = self.offsets + 1
        self._batch = batch

    def __len__(self) -> int:
        return len(self.offsets)

    def _values(self, name: str) -> tuple[Any, npt.NDArray[np.bool_]]:
        column = self._batch.column(name)
        present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        return column, present

    def text(self, name: str, width: int) -> Column:
        """Whatever it is, as text."""
        column, present = self._values(name)
        texts = [
            ("" if value is None else str(value)).strip().encode("ascii", "replace") for value in column.to_pylist()
        ]
        short = np.array([len(text) <= width for text in texts], np.bool_)
        return Column(np.array(texts, f"S{width}"), present & short)

    def decimal(self, name: str, places: int, *, cut: bool = False) -> Column:
        """Integers exactly, floating point by its nearest decimal, text by its digits."""
        column, present = self._values(name)
        kind = str(column.type)
        if kind in ("float", "halffloat") and not cut:
            return _shortest(column, present, places)
        if kind in ("float", "double", "halffloat"):
            reals = np.asarray(column.cast("double").fill_null(0.0).to_numpy(zero_copy_only=False)) * 10.0**places
            finite = np.isfinite(reals) & (np.abs(reals) < 9e18)  # noqa: PLR2004 - 64 bits
            values = np.rint(np.where(finite, reals, 0)).astype(np.int64)
            near = finite if cut else finite & (np.abs(reals - values) < 1e-3)  # noqa: PLR2004
            return Column(values, present & near)
        if "int" in kind:
            return scaled(Column(np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False)), present), 10**places)
        return self._decimal_text(column, present, places)

    def empty(self, name: str) -> npt.NDArray[np.bool_]:
        """No value, or a text of nothing."""
        column, present = self._values(name)
        if str(column.type) not in ("string", "large_string"):
            return ~present
        return np.array([not (value or "").strip() for value in column.to_pylist()], np.bool_)

    def moments(self, name: str) -> tuple[str, Column] | None:
        """Timestamps with a zone are instants, those without are what a clock shows, and times are of a day."""
        column, present = self._values(name)
        kind, _, rest = str(column.type).partition("[")
        if kind not in ("timestamp", "time32", "time64"):
            return None
        unit = _UNIT_NS[rest.partition(",")[0].rstrip("]")]
        whole = column.cast("int32").cast("int64") if kind == "time32" else column.cast("int64")
        values = np.asarray(whole.fill_null(0).to_numpy(zero_copy_only=False))
        told = scaled(Column(values, present), unit)
        return ("clock" if kind != "timestamp" else "instant" if "tz=" in rest else "wall"), told

    def hexadecimal(self, name: str) -> Column:
        """Text of at most 15 digits in base 16."""
        values, good = [], []
        for text in self.text(name, 16).values.tolist():
            try:
                values.append(int(text, 16))
                good.append(0 <= values[-1] < 1 << 60)
            except ValueError:
                values.append(0)
                good.append(False)
        fits = np.array(good, np.bool_)
        return Column(np.array(np.where(fits, np.array(values, object), 0), np.int64), fits)

    @staticmethod
    def _decimal_text(column: Any, present: npt.NDArray[np.bool_], places: int) -> Column:  # noqa: ANN401
        from decimal import Decimal  # noqa: PLC0415

        values, good = np.zeros(len(present), np.int64), present.copy()
        for place, value in enumerate(column.to_pylist()):
            try:
                scaled = Decimal(str(value)).scaleb(places) if value is not None else Decimal(0)
                if not scaled.is_finite() or scaled.adjusted() > _DIGITS:
                    # Far beyond 64 bits: whole numbers of a million digits would take minutes.
                    good[place] = False
                    continue
                values[place] = int(scaled)
                good[place] &= scaled == int(scaled)
            except (ArithmeticError, ValueError):  # No number, or just beyond 64 bits.
                good[place] = False
        return Column(values, good)


def _shortest(column: Any, present: npt.NDArray[np.bool_], places: int) -> Column:  # noqa: ANN401
    """Floating point of 32 or 16 bits by its shortest decimal: 12.34 is kept as 12.340000152587890625 there.

    Bad where the neighbours of a number are further away than its last decimal, or than a hundredth: whoever wrote it
    may have meant another one.
    """
    reals = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False))
    exact = reals.astype(np.float64)
    apart = np.abs(np.spacing(reals).astype(np.float64))
    values, good = np.zeros(len(reals), np.int64), np.zeros(len(reals), np.bool_)
    for digits in range(places + 1):
        scale = 10.0**digits
        nearest = np.rint(np.where(np.isfinite(exact), exact, 0) * scale)
        found = (
            ~good & ((nearest / scale).astype(reals.dtype) == reals) & (apart < min(1 / scale, _CENT if places else 1))
        )
        found &= np.abs(nearest) * 10.0 ** (places - digits) < 9e18  # noqa: PLR2004 - 64 bits
        values = np.where(found, np.where(found, nearest, 0).astype(np.int64) * 10 ** (places - digits), values)
        good |= found
    return Column(values, present & good)


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
    UNFRAMED = "itch-unframed"
    """The same messages with nothing between them."""
    SOUP = "soupbintcp"
    """The recorded bytes of a SoupBinTCP session with ITCH 5.0 in it."""
    CAPTURE = "capture"
    """pcap or pcapng: ITCH 5.0 in MoldUDP64, the consolidated tapes (CTA, UTP), NYSE's integrated feed."""
    TABLE = "table"
    """Rows of text, read by a mapping."""
    PARQUET = "parquet"
    """The columns of a record or of a row, or any others by a mapping."""
    LOBSTER = "lobster"
    """LOBSTER's message files."""
    DBN = "dbn"
    """Databento's files: trades, tbbo, mbp-1, mbp-10 or mbo."""
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
    def directory(self) -> list[ListedSymbol]: ...


def load_mapping(text: str) -> TableMapping:
    """A mapping that is built in, by its name, or in a TOML file."""
    if text in BUILT_IN:
        return BUILT_IN[text]
    path = Path(text)
    if not path.suffix:
        rule = f'"{text}" is not one of {", ".join(BUILT_IN)}{suggestion(text, BUILT_IN)}, and no TOML file'
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
    def directory(self) -> list[ListedSymbol]:
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
        if begins_like_dbn(head):
            return name, FeedFormat.DBN
        if not head:
            raise FeedError(str(self.path), "is empty")
        found = self._text_format(name, head) if is_text(head) else self._binary_format(name, head)
        if found is not None:
            return name, found
        rule = "has an unknown format; name it with --format, or its columns with --mapping"
        if is_wide_text(head):
            rule = "is text of two bytes for each character (UTF-16); save it as UTF-8"
        elif is_text(head):
            rule = rule.replace("has an unknown format", "is text that no built-in mapping fits")
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
        if begins_like_soup(head):
            return FeedFormat.SOUP
        if begins_like_unframed(head):
            return FeedFormat.UNFRAMED
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
                    rule = f"has {len(members)} members; unpack one of them"
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
                    log.fault(
                        FeedFault.DAMAGED_COMPRESSION, read, f"{self.size:,} bytes of zip became {read:,} and more"
                    )
                    break
        except (zipfile.BadZipFile, EOFError, OSError, zlib.error, LZMAError) as reason:
            log.fault(FeedFault.DAMAGED_COMPRESSION, read, f"the zip member is damaged: {reason}")
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
                    yield from self._itch().blocks(chunks)
                case FeedFormat.UNFRAMED:
                    yield from ItchStream(self._itch(), UnframedMessages()).blocks(chunks)
                case FeedFormat.SOUP:
                    yield from ItchStream(self._itch(), SoupPackets(self.log)).blocks(chunks)
                case FeedFormat.CAPTURE:
                    yield from self._capture_blocks(chunks)
                case FeedFormat.LOBSTER:
                    yield from self._lobster().blocks(chunks)
                case FeedFormat.DBN:
                    records = DbnDecoder(self.log, self.options.floor)
                    self._decoders.append(records)
                    yield from records.blocks(chunks)
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

    def _itch(self) -> ItchDecoder:
        decoder = ItchDecoder(self._floor(), DayClock.at(self._day(), self.options.zone), self.log)
        self._decoders.append(decoder)
        return decoder

    def _day(self) -> date:
        day = self.options.day or day_in_name(self.name) or day_in_name(self.path.name)
        if day is None:
            rule = "its name does not contain a day; give one, such as --day 2019-01-30"
            raise ConfigurationError(str(self.path), "day", rule)
        return day

    def _lobster(self) -> LobsterDecoder:
        named = lobster_name(self.name)
        symbol = self.options.symbol or (named.symbol if named else None)
        if symbol is None:
            raise ConfigurationError(str(self.path), "symbol", "its name does not contain a symbol; give --symbol")
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
            self.log.fault(FeedFault.TRUNCATED, offset, f"{len(rest)} bytes are left over: a record has {EVENT_BYTES}")

    def _capture_blocks(self, chunks: Iterable[bytes]) -> Iterator[EventArray]:
        """Every session for itself, whatever groups and ports are its lines."""

        def decoder_at(time: int) -> ItchDecoder:
            day = self.options.day or day_at(time, self.options.zone)
            decoder = ItchDecoder(self._floor(), DayClock.at(day, self.options.zone), self.log)
            self._decoders.append(decoder)
            return decoder

        feed = CaptureFeed(decoder_at, self.log)
        self._decoders.append(feed)
        count = 0
        for datagram in read_capture(chunks, self.log):
            if self.options.port is not None and datagram.port != self.options.port:
                self.log.skip("datagrams to other ports")
                continue
            feed.receive(datagram)
            count += 1
            if count % _TAKE_EVERY == 0:
                yield from feed.take()
        yield from feed.end()
        self.streams = feed.streams
