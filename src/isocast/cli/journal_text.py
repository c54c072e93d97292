"""Journals as people and programs read them: rows of events, instants, summaries of segments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from isocast.cli.render import EVENT_COLUMNS, figure, in_columns, line
from isocast.runtime.client.message_rows import OPAQUE_KIND, message_fields
from isocast.runtime.disk.journal_reader import SegmentSummary
from isocast.terms.ids import Epoch, describe
from isocast.terms.instants import SECOND, instant_text
from isocast.terms.instruments import scale_of
from isocast.terms.market import EventFlag, EventKind, MarketStatus, Side
from isocast.wire.journal_blocks import IS_EVENTS, BlockView
from isocast.wire.opaque import read_opaque_or_none

__all__ = ["rows_of", "segment_as_json", "segment_row", "show_json_rows", "show_rows"]

_COLUMNS = {
    "sequence": 12,
    "token": 9,
    "epoch": 6,
    "released": 30,
    "late_us": 9,
    "source": 18,
    "number": 9,
    **EVENT_COLUMNS,
}


# ---- segments


def segment_row(segment: SegmentSummary) -> tuple[str, ...]:
    """One line of a table."""
    return (
        segment.path.name,
        _span(segment.first_sequence, segment.last_sequence),
        _span(segment.first_token, segment.last_token),
        _span(segment.first_epoch, segment.last_epoch),
        _period(segment),
        figure(segment.blocks),
        figure(segment.messages),
        figure(segment.events),
        figure(segment.bytes),
    )


def _span(first: int | Epoch | None, last: int | Epoch | None) -> str:
    if first is None or last is None:
        return "–"
    return str(first) if first == last else f"{first} – {last}"


def _period(segment: SegmentSummary) -> str:
    if segment.first_release is None or segment.last_release is None:
        return "–"
    seconds = (segment.last_release - segment.first_release) / SECOND
    return f"{instant_text(segment.first_release)} + {seconds:.3f} s"


def segment_as_json(segment: SegmentSummary) -> dict[str, object]:
    """One entry of a list."""
    return {
        "file": segment.path.name,
        "stripe": segment.stripe,
        "site": segment.site,
        "first_sequence": segment.first_sequence,
        "last_sequence": segment.last_sequence,
        "first_token": segment.first_token,
        "last_token": segment.last_token,
        "first_epoch": None if segment.first_epoch is None else str(segment.first_epoch),
        "last_epoch": None if segment.last_epoch is None else str(segment.last_epoch),
        "first_release_ns": segment.first_release,
        "last_release_ns": segment.last_release,
        "largest_lateness_ns": segment.latest_ns,
        "blocks": segment.blocks,
        "messages": segment.messages,
        "events": segment.events,
        "bytes": segment.bytes,
        "fetched_messages": segment.fetched_messages,
        "unfinished_bytes": segment.unfinished_bytes,
        "damage": segment.damage,
    }


# ---- events


def rows_of(block: BlockView, first: int | None = None, last: int | None = None) -> Iterator[dict[str, object]]:
    """A row for each event of the messages of a range; one for a message that is not events."""
    header = block.header
    shared = {
        "token": header.token_number,
        "epoch": str(header.epoch),
        "instant_ns": header.instant,
        "due_ns": header.due,
        "released_ns": header.released_at,
        "clock_bound_ns": header.clock_bound_ns,
        "late_ns": header.lateness_ns,
    }
    start, stop = block.places(first, last)
    names = block.directory.dtype.names or ()
    for place, values in enumerate(block.directory[start:stop].tolist(), start):
        message = dict(zip(names, values, strict=True))
        common = {
            "sequence": header.first_sequence + place,
            **shared,
            "source": describe(message["source"]),
            "number": message["number"],
        }
        if message["flags"] & IS_EVENTS:
            yield from _event_rows(block, common, message["first_event"], message["events"])
        else:
            yield from _opaque_rows(block.payload(place), common)


def _opaque_rows(payload: bytes, common: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """One for each opaque message; of bytes that are none, one with all of them in hexadecimal digits."""
    messages = read_opaque_or_none(payload)
    if messages is None:
        yield {**common, "kind": OPAQUE_KIND, "bytes": len(payload), "payload": payload.hex()}
    for index, one in enumerate(messages or ()):
        yield {**common, "index": index, "bytes": len(one.payload), **message_fields(one)}


def _event_rows(block: BlockView, common: Mapping[str, object], begin: int, count: int) -> Iterator[dict[str, object]]:
    for event in block.events[begin : begin + count].tolist():
        kind, side, flags, floor, symbol, price, quantity, reference, time, number = event
        code = symbol.decode("ascii", "replace")
        scale = scale_of(code)
        units = scale.to_quantity(quantity)
        yield {
            **common,
            "kind": _name(EventKind, kind),
            "side": _name(Side, side),
            "floor": floor.decode("ascii", "replace"),
            "symbol": code,
            "price": f"{scale.to_price(price):f}",
            "quantity": units if isinstance(units, int) else f"{units:f}",
            "reference": _name(MarketStatus, reference) if kind == EventKind.STATUS else reference,
            "flags": [flag.name.lower() for flag in EventFlag if flags & flag and flag.name],
            "time_ns": time,
            "id": number,
        }


def _name(names: type[Enum], value: int) -> str:
    try:
        return names(value).name.lower()
    except ValueError:
        return str(value)


def show_rows(rows: Iterable[Mapping[str, object]]) -> int:
    """Columns of fixed width, written as they come; how many there were."""
    count = 0
    for count, row in enumerate(rows, 1):
        if count == 1:
            line(in_columns({name: name for name in _COLUMNS}, _COLUMNS))
        line(in_columns(_cells(row), _COLUMNS))
    return count


def _cells(row: Mapping[str, object]) -> dict[str, object]:
    late_ns, released = row["late_ns"], row["released_ns"]
    flags = row.get("flags", ())
    cells: dict[str, object] = {**row, "flags": " ".join(flags) if isinstance(flags, list) else ""}
    if isinstance(late_ns, int) and isinstance(released, int):
        cells["late_us"] = f"{late_ns / 1_000:.1f}"
        cells["released"] = instant_text(released)
    if row.get("side") == "none":
        cells["side"] = ""
    if "bytes" in row:
        named = f"{row['topic']} {row.get('key', row.get('key_base64'))!r} " if "topic" in row else ""
        content = str(row.get("payload", row.get("payload_base64")))
        cells["flags"] = f"{named}{row['bytes']} bytes: {content if content.isprintable() else repr(content)}"
    return cells


def show_json_rows(rows: Iterable[Mapping[str, object]]) -> None:
    """One JSON list, a line for each row, written as they come."""
    count = 0
    for count, row in enumerate(rows, 1):
        line(f"{'[' if count == 1 else ','}{json.dumps(row, ensure_ascii=False)}")
    line("]" if count else "[]")
