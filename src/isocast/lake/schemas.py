"""The columns of the lake: what a row of each kind holds, for Arrow and for Spark.

Times are nanoseconds since 1970 and prices integer ticks, both BIGINT. Spark has no unsigned numbers: a field of 64
bits without a sign keeps its bits, so that an id above 2^63 shows as negative and still joins with itself.
"""

from __future__ import annotations

import pyarrow as pa

__all__ = [
    "EVENT_SCHEMA",
    "MESSAGES_SCHEMA",
    "QUARANTINE_SCHEMA",
    "RELEASED_SCHEMA",
    "SCHEMA_VERSION",
]

SCHEMA_VERSION = 5
"""Raised whenever a column is added, goes, or means something else; tables keep it beside their rows."""

_PLACE = [
    pa.field("stripe", pa.int32(), nullable=False),
    pa.field("sequence", pa.int64(), nullable=False),
    pa.field("index", pa.int32(), nullable=False),
    pa.field("token", pa.int64(), nullable=False),
    pa.field("epoch_number", pa.int32(), nullable=False),
    pa.field("epoch_server", pa.int64(), nullable=False),
    pa.field("receiver", pa.int64(), nullable=False),
    pa.field("source", pa.int64(), nullable=False),
    pa.field("number", pa.int64(), nullable=False),
]
_EVENT = [
    pa.field("kind", pa.int8(), nullable=False),
    pa.field("side", pa.int8(), nullable=False),
    pa.field("flags", pa.int32(), nullable=False),
    pa.field("floor", pa.string(), nullable=False),
    pa.field("symbol", pa.string(), nullable=False),
    pa.field("price", pa.int64(), nullable=False),
    pa.field("quantity", pa.int64(), nullable=False),
    pa.field("reference", pa.int64(), nullable=False),
    pa.field("id", pa.int64(), nullable=False),
    pa.field("event_ns", pa.int64(), nullable=False),
]
_RELEASE = [
    pa.field("instant_ns", pa.int64(), nullable=False),
    pa.field("due_ns", pa.int64(), nullable=False),
    pa.field("released_ns", pa.int64(), nullable=False),
    pa.field("clock_bound_ns", pa.int64(), nullable=False),
    pa.field("fetched", pa.bool_(), nullable=False),
    pa.field("uncertified", pa.bool_(), nullable=False),
]

RELEASED_SCHEMA = pa.schema([*_PLACE, *_EVENT, *_RELEASE])
"""`released`: one row for each event that one receiver released, with everything known about its way."""

MESSAGES_SCHEMA = pa.schema(
    [
        *_PLACE,
        pa.field("topic", pa.string(), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("sent_ns", pa.int64(), nullable=False),
        pa.field("shuffle_key", pa.binary(), nullable=False),
        pa.field("ends_token", pa.bool_(), nullable=False),
        *_RELEASE,
    ]
)
"""`messages`: one row for each opaque message that one receiver released; `index` counts those of one sequence."""

EVENT_SCHEMA = pa.schema(_EVENT)
"""An event of a feed file: no network carried it yet."""

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), nullable=False),
        pa.field("stripe", pa.int32()),
        pa.field("receiver", pa.int64()),
        pa.field("offset", pa.int64()),
        pa.field("first_sequence", pa.int64()),
        pa.field("last_sequence", pa.int64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("count", pa.int64(), nullable=False),
    ]
)
"""What could not be read: where, which sequences if that is known, a word for the reason, the rule that was broken,
and how much (bytes of a torn or damaged piece, messages of a gap, files of another version)."""
