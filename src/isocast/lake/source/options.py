"""The options of `format("isocast")`, checked before anything is read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from isocast.lake.source_faults import SourceFaults
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.market import Symbol
from isocast.terms.places import local_path
from isocast.terms.quantities import suggestion
from isocast.wire.opaque import check_topic

__all__ = [
    "END",
    "FORMAT",
    "Offsets",
    "Options",
    "arrow_schema",
    "columns_of",
    "insist_on_known",
    "number_of",
    "paths_of",
    "read_options",
    "struct_of",
]


FORMAT = "format isocast"
END = 1 << 62
"""Behind every sequence."""

Offsets = dict[str, int]
"""{stripe: next sequence}, as Spark's checkpoint keeps it."""

_SPLIT = 256 << 20
"""A task costs some 70 ms of CPU time by itself, as much as reading 10 MB."""
_KNOWN = (
    "path",
    "paths",
    "columns",
    "receiver",
    "fromSequence",
    "toSequence",
    "stripe",
    "symbol",
    "topic",
    "frame",
    "onError",
    "quarantine",
    "startingOffsets",
    "maxRowsPerTrigger",
    "maxEventsPerTrigger",
    "splitBytes",
    "minPartitions",
    "market",
    "server",
    "as",
)


@dataclass(frozen=True, slots=True)
class Options:
    """What a read was asked for."""

    paths: tuple[str, ...] = ()
    """Folders of journals, journals or segments: read as one market's."""
    receiver: str = "one"
    """one, all, a number or a name."""
    first: int = 0
    """fromSequence; 0: the oldest that is kept."""
    stop: int = END
    """Behind toSequence."""
    stripes: frozenset[int] = frozenset()
    symbols: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    frame: Literal["released", "messages", "quarantine"] = "released"
    is_strict: bool = True
    quarantine: str = ""
    starting: Literal["earliest", "latest"] | Mapping[str, int] = "earliest"
    max_rows: int = 0
    """Rows of one trigger; 0: all that there are."""
    split_bytes: int = _SPLIT
    min_partitions: int = 1
    market: str = ""
    server: str = ""
    visitor: str = ""
    """The option `as`: the node in whose name a server is asked."""

    def faults(self) -> SourceFaults:
        """How faults are taken."""
        return SourceFaults(is_strict=self.is_strict)


def read_options(given: Mapping[str, str]) -> Options:
    """Options from what Spark hands over; ConfigurationError names the one that breaks a rule."""
    insist_on_known(given, _KNOWN)
    paths = paths_of(given)
    if bool(paths) == bool(given.get("market")):
        raise ConfigurationError(FORMAT, "path", 'give either a folder, .load("data"), or the option market')
    last = number_of(given, "toSequence", END - 1)
    rows = number_of(given, "maxRowsPerTrigger", number_of(given, "maxEventsPerTrigger", 0))
    strict, quarantine = _on_error(given)
    frame = _frame(given)
    is_whole = frame == "quarantine"
    return Options(
        paths=paths,
        receiver=_text(given, "receiver", "one"),
        first=number_of(given, "fromSequence", 0),
        stop=last + 1,
        stripes=frozenset(_numbers(given, "stripe")),
        symbols=_symbols(given),
        topics=_topics(given),
        frame=frame,
        is_strict=strict,
        quarantine=quarantine,
        starting=_starting(given),
        max_rows=rows,
        # Two tasks in one segment would both tell of its damage.
        split_bytes=END if is_whole else number_of(given, "splitBytes", _SPLIT, least=1 << 16),
        min_partitions=1 if is_whole else number_of(given, "minPartitions", len(os.sched_getaffinity(0)), least=1),
        market=_place(given, "market"),
        server=given.get("server", ""),
        visitor=given.get("as", ""),
    )


def insist_on_known(given: Mapping[str, str], known: tuple[str, ...], form: str = FORMAT) -> None:
    """ConfigurationError for an option that nobody reads: it is mistyped."""
    folded = {name.casefold() for name in known}
    for name in given:
        if name.casefold() not in folded:
            raise ConfigurationError(form, name, f"there is no such option{suggestion(name, known)}")


def paths_of(given: Mapping[str, str], form: str = FORMAT) -> tuple[str, ...]:
    """What `.load` was given: one path, or several, which Spark hands over as a JSON list; each of this machine."""
    several = given.get("paths", "")
    try:
        found = json.loads(several) if several else [given.get("path", "")]
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ConfigurationError(form, "paths", f'{several!r} is no JSON list: .load(["here", "there"]) makes one')
    named = [one for one in found if one.strip()]
    if several and given.get("path", "").strip():
        rule = f"give all paths in one way: .load({json.dumps([*named, given['path']])})"
        raise ConfigurationError(form, "path", rule)
    return tuple(dict.fromkeys(str(local_path(one, form, "path")) for one in named))


def _place(given: Mapping[str, str], name: str) -> str:
    """A path of this machine; empty if it was not given."""
    where = given.get(name, "").strip()
    return str(local_path(where, FORMAT, name)) if where else ""


def number_of(given: Mapping[str, str], name: str, default: int, least: int = 0, form: str = FORMAT) -> int:
    """A whole number."""
    text = given.get(name)
    if text is None:
        return default
    number = int(text) if text.strip().isdecimal() else -1
    if not least <= number < END:
        raise ConfigurationError(form, name, f"{text!r} is not a number from {least} on")
    return number


def _text(given: Mapping[str, str], name: str, default: str) -> str:
    return given.get(name, default).strip() or default


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    chosen = _text(given, name, allowed[0])
    if chosen not in allowed:
        raise ConfigurationError(FORMAT, name, f"{chosen!r}: {' or '.join(allowed)}")
    return chosen


def _on_error(given: Mapping[str, str]) -> tuple[bool, str]:
    """Whether a fault ends the read; where it is written down otherwise."""
    strict = _one_of(given, "onError", ("fail", "quarantine")) == "fail"
    where = _place(given, "quarantine")
    if given.get("frame") == "quarantine":
        return False, where
    if not strict and not where:
        raise ConfigurationError(
            FORMAT, "quarantine", "onError=quarantine needs a directory that says what was left out"
        )
    return strict, where


def _numbers(given: Mapping[str, str], name: str) -> list[int]:
    parts = [part.strip() for part in given.get(name, "").split(",") if part.strip()]
    return [number_of({name: part}, name, 0) for part in parts]


def _symbols(given: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return tuple(str(Symbol(part.strip())) for part in given.get("symbol", "").split(",") if part.strip())
    except LocalProtocolError as reason:
        raise ConfigurationError(FORMAT, "symbol", str(reason)) from reason


def _topics(given: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return tuple([check_topic(part.strip()) for part in given.get("topic", "").split(",") if part.strip()])
    except LocalProtocolError as reason:
        raise ConfigurationError(FORMAT, "topic", str(reason)) from reason


def _frame(given: Mapping[str, str]) -> Literal["released", "messages", "quarantine"]:
    """Which rows; ConfigurationError for a choice that these rows do not have."""
    chosen = _one_of(given, "frame", ("released", "messages", "quarantine"))
    if chosen == "messages" and given.get("symbol", "").strip():
        raise ConfigurationError(FORMAT, "symbol", "opaque messages have topics: choose by the option topic")
    if chosen != "messages" and given.get("topic", "").strip():
        raise ConfigurationError(FORMAT, "topic", "events have symbols: topics are of the frame messages")
    return chosen  # type: ignore[return-value]  # it is one of the three


def _starting(given: Mapping[str, str]) -> Literal["earliest", "latest"] | Mapping[str, int]:
    text = _text(given, "startingOffsets", "earliest")
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(at, int) and at >= 0 for at in found.values()):
        raise ConfigurationError(FORMAT, "startingOffsets", f'{text!r}: earliest, latest, or JSON such as {{"0": 1}}')
    return found


_SPARK: Mapping[str, DataType] = {
    "int8": ByteType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "string": StringType(),
    "binary": BinaryType(),
    "bool": BooleanType(),
}


def struct_of(schema: pa.Schema) -> StructType:
    """The same columns for Spark, without asking a JVM."""
    return StructType([StructField(field.name, _SPARK[str(field.type)], field.nullable) for field in schema])


def columns_of(
    given: Mapping[str, str], default: pa.Schema, allowed: pa.Schema | None = None, form: str = FORMAT
) -> pa.Schema:
    """What the option `columns` names, in its order, or the default; ConfigurationError for what cannot be."""
    text = given.get("columns")
    if text is None:
        return default
    known = default if allowed is None else allowed
    names = [name.strip() for name in text.split(",")]
    for place, name in enumerate(names):
        if name not in known.names:
            rule = f"there is no column {name!r}{suggestion(name, known.names)} (there are {', '.join(known.names)})"
            raise ConfigurationError(form, "columns", rule)
        if name in names[:place]:
            rest = ", ".join(other for other in known.names if other not in names)
            raise ConfigurationError(form, "columns", f"{name} is named twice (not named: {rest or 'none'})")
    return pa.schema([known.field(name) for name in names])


def arrow_schema(schema: StructType, allowed: pa.Schema, given: Mapping[str, str], form: str = FORMAT) -> pa.Schema:
    """The columns that a frame wants, in its order; ConfigurationError for one that is not there."""
    if given.get("columns") is not None and columns_of(given, allowed, form=form).names != schema.names:
        raise ConfigurationError(form, "columns", "give either the option columns or a schema: they name others")
    fields = []
    for field in schema.fields:
        place = allowed.get_field_index(field.name)
        if place < 0:
            rule = f"there is no column {field.name!r}{suggestion(field.name, allowed.names)}"
            raise ConfigurationError(form, "schema", rule)
        kind = allowed.field(place).type
        expected = _SPARK[str(kind)]
        if field.dataType != expected:
            rule = f"column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}"
            raise ConfigurationError(form, "schema", rule)
        fields.append(pa.field(field.name, kind, nullable=field.nullable))
    return pa.schema(fields)
