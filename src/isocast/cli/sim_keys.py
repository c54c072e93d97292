"""A scenario file as text: its keys as a page of the reference or JSON, and the file of a generated scenario."""

from __future__ import annotations

import json
from collections.abc import Mapping

from isocast.cli.key_page import key_as_json, key_table, markdown_table
from isocast.simulation.scenario_keys import FAULT_KEYS, FAULT_KINDS, KEYS
from isocast.terms.topology import CITIES

__all__ = ["keys_as_json", "keys_page", "scenario_text"]


_HEAD = """# Scenario files

A scenario is a flat TOML file: every key at the top level, times in seconds, and a `[[faults]]` table for each fault. A
key that is left out takes the paper's value or is derived. An unknown key, a value of the wrong kind or one that the
protocol does not allow is refused: the message names file, key and rule, and the exit code is 2.
[Write a scenario](../how-to/write-a-scenario.md) shows how.

This page is printed by `isocast sim keys --markdown`; `isocast sim keys` shows the same in the terminal.
"""

_CITIES = """## Cities

By name or code, in any case. The delay between two of them is the great-circle distance at 200 km per ms.
"""


def keys_page() -> str:
    """The whole of docs/reference/scenarios.md."""
    kinds = [(f'`"{kind}"`', text) for kind, text in FAULT_KINDS.items()]
    cities = [(place.name, f"`{place.code}`") for place in CITIES]
    return "\n".join(
        [
            _HEAD,
            "## Keys\n",
            key_table(KEYS),
            "## Faults\n",
            "A fault begins `at` an instant and lasts for `duration`, or `until` another, or to the end of the run.\n",
            markdown_table(("`kind`", "what happens"), kinds),
            key_table(FAULT_KEYS),
            _CITIES,
            markdown_table(("city", "code"), cities).rstrip("\n"),
            "",
        ]
    )


def keys_as_json() -> dict[str, object]:
    """The same for programs."""
    return {
        "keys": [key_as_json(key) for key in KEYS],
        "fault_keys": [key_as_json(key) for key in FAULT_KEYS],
        "fault_kinds": FAULT_KINDS,
        "cities": [{"name": place.name, "code": place.code} for place in CITIES],
    }


# A scenario as the text of its file, for one that a program made.


def scenario_text(mapping: Mapping[str, object]) -> str:
    """TOML: the keys, then a table for each fault. Texts, numbers and lists look alike in JSON and TOML."""
    lines = [_entry(name, value) for name, value in mapping.items() if name != "faults"]
    faults = mapping.get("faults")
    for fault in faults if isinstance(faults, list) else []:
        lines += ["", "[[faults]]", *(_entry(name, value) for name, value in fault.items())]
    return "".join(f"{line}\n" for line in lines)


def _entry(name: str, value: object) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"
