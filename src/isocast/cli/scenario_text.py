"""A scenario as the text of its file, for one that a program made."""

from __future__ import annotations

import json
from collections.abc import Mapping

__all__ = ["scenario_text"]


def scenario_text(mapping: Mapping[str, object]) -> str:
    """TOML: the keys, then a table for each fault. Texts, numbers and lists look alike in JSON and TOML."""
    lines = [_entry(name, value) for name, value in mapping.items() if name != "faults"]
    faults = mapping.get("faults")
    for fault in faults if isinstance(faults, list) else []:
        lines += ["", "[[faults]]", *(_entry(name, value) for name, value in fault.items())]
    return "".join(f"{line}\n" for line in lines)


def _entry(name: str, value: object) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"
