"""Lines of measurements, as nodes write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from isocast.terms.instants import MILLISECOND, SECOND

__all__ = ["line", "write_lines"]


def line(node: str, second: int, counts: dict[str, int], tokens: Sequence[Sequence[int]] = ()) -> str:
    return json.dumps(
        {
            "v": 1,
            "node": node,
            "id": 1,
            "role": "primary-receiver",
            "stripe": 0,
            "city": node.title(),
            "at_ns": (1_000 + second) * SECOND + 3 * MILLISECOND,
            "over_ns": SECOND,
            "counts": counts,
            "lateness": [],
            "tokens": tokens,
            "tokens_unlisted": 0,
        }
    )


def write_lines(where: Path, node: str, lines: Sequence[str]) -> None:
    folder = where / node / "measurements"
    folder.mkdir(parents=True)
    (folder / "m-00000000000000000000001.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
