"""Released events for the transforms: generated days as Arrow tables, and other engines beside Spark."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from isocast.feeds.synthetic import SyntheticDay, SyntheticPlan
from isocast.wire.events import EventArray

__all__ = ["asked", "plain", "released", "synthetic_day"]

_PER_MESSAGE = 7
_DELAY = 250_000_000


def synthetic_day(seed: int = 1, trades: int = 1_000, symbols: int = 20, corrections: float = 0.02) -> EventArray:
    """A day of six floors, with repetitions of trades and quotes that make no sense."""
    plan = SyntheticPlan(seed=seed, floors=6, symbols=symbols, trades=trades, correction_share=corrections)
    events = np.concatenate(list(SyntheticDay(plan).blocks()))
    random = np.random.default_rng(seed)
    reports = events[events["kind"] == 1]
    repeated = reports[random.integers(0, len(reports), 25)]
    flawed = events[events["kind"] <= 2][100:140].copy()
    flawed["price"][:10], flawed["quantity"][10:20], flawed["flags"][20:30] = 0, 0, 16
    flawed["flags"][30:], flawed["id"] = 32, np.arange(1 << 40, (1 << 40) + 40)
    reused = repeated[:5].copy()
    reused["price"] += 100
    middle = len(events) * 3 // 4
    return np.concatenate([events[:middle], repeated, flawed, reused, events[middle:]])


def released(events: EventArray, stripe: int = 0, first_sequence: int = 1) -> pa.Table:
    """Events as one receiver released them, seven in each message."""
    count = len(events)
    places = np.arange(count)
    return pa.table(
        {
            "stripe": pa.array(np.full(count, stripe, np.int32)),
            "sequence": places // _PER_MESSAGE + first_sequence,
            "index": pa.array((places % _PER_MESSAGE).astype(np.int32)),
            "kind": pa.array(events["kind"].astype(np.int8)),
            "side": pa.array(events["side"].astype(np.int8)),
            "flags": pa.array(events["flags"].astype(np.int32)),
            "floor": [name.decode() for name in events["floor"].tolist()],
            "symbol": [name.decode() for name in events["symbol"].tolist()],
            "price": events["price"],
            "quantity": events["quantity"].astype(np.int64),
            "reference": events["reference"].astype(np.int64),
            "id": events["id"].view(np.int64) if events["id"].flags.contiguous else events["id"].astype(np.int64),
            "event_ns": events["time"].astype(np.int64),
            "due_ns": np.maximum.accumulate(events["time"].astype(np.int64)) + _DELAY,
        }
    )


def asked(query: str, **tables: pa.Table) -> list[dict[str, Any]]:
    """What DuckDB answers, rows in their own order."""
    with duckdb.connect() as other:
        for name, table in tables.items():
            other.register(name, table)
        found = other.execute(query)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, map(plain, row), strict=True)) for row in found.fetchall()]


def plain(value: object) -> object:
    """Whole numbers as such, however an engine types them."""
    return int(value) if isinstance(value, Decimal) and value == value.to_integral_value() else value
