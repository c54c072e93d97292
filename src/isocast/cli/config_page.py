"""The keys of a market file and the timing profiles as a page of the reference, and as JSON: both from one table."""

from __future__ import annotations

import json
from collections.abc import Sequence

from isocast.runtime.market.keys import SETTINGS, Key, Table
from isocast.runtime.market.node_keys import NODE_TABLE
from isocast.terms.profiles import PROFILES, Profile
from isocast.terms.quantities import duration_text

__all__ = ["PROFILE_HEADERS", "config_page", "key_rows", "keys_as_json", "profile_rows"]

_HEAD = """# Market files

A market is one TOML file, which every process of it reads. `isocast config example` writes one with comments;
`isocast config check FILE` shows what follows from a file, or everything that is wrong with it: each fault names file,
key and rule.

Times are texts with a unit: `"200us"`, `"5ms"`, `"1.5s"`, `"10min"`, `"12h"`, `"7d"`. So are sizes: `"4MiB"`, `"10GB"`.
A key that is left out has its default.

This page is printed by `isocast config keys --markdown`; `isocast config keys` shows the same in the terminal.
"""

_SMALLEST = """## The smallest market

```toml
[nodes.a]
role = "primary-receiver"

[nodes.b]
role = "primary-receiver"

[nodes.c]
role = "primary-receiver"

[nodes.floor]
role = "primary-source"

[nodes.reformer]
role = "reformation-server"

[timing]
profile = "lan"
```
"""

_PROFILES = """## Timing profiles { #profiles }

A profile gives the times that depend on the network; the others follow by the formulas of §5.1, here for the gate
*majority*: τ_r = 2δ_N+X+P with X = 0, τ_t = δ_N+2ε+k_r·τ_r, Δ_A = τ_t+δ_N+2ε, and for each layer of secondary receivers
δ_S+k_r·(2δ_S+X+P) more. The latency is the mean from submission to release without loss, d+τ_t/2+Δ_A.
"""

PROFILE_HEADERS = ("profile", "δ_N", "P", "k_r", "ε", "δ_S", "d", "τ_r", "τ_t", "Δ_A", "Δ_A, two layers", "latency")
_RING = 5
"""Of the table; with the gate majority no time depends on it."""


def config_page() -> str:
    """The whole of docs/reference/config.md."""
    parts = [_HEAD]
    for table in (*SETTINGS, NODE_TABLE):
        title = f"`[{table.name}]`" if table.name else "Top of the file"
        parts += [f"## {title}\n", f"{table.explanation}\n", _keys(table)]
    parts += [_PROFILES, _markdown(PROFILE_HEADERS, profile_rows())]
    parts += [f"- `{profile.name}`: {profile.meaning}" for profile in PROFILES.values()]
    parts += ["", _FILES, _SMALLEST.rstrip("\n"), ""]
    return "\n".join(parts)


_FILES = """## Key files { #keys }

`isocast keys init` makes them in the directory `keys`, 32 random bytes each. Every node needs those that are its own
and no others, mode 0600 and owned by its user:

| file | who has it |
| --- | --- |
| `core.key` | primary and secondary receivers, primary sources, reformation servers |
| `edge.key` | primary and secondary receivers, retransmit servers, customers |
| `repair.key` | with narrow stripes: retransmit servers, and customers who bought repairs of them |
| `source-NAME.key` | the source of that name; of a primary source also all receivers; of a secondary one its parent |

No key is used as it is. BLAKE2b, keyed with the 32 bytes and personalised with the purpose (`isocast tag`,
`isocast seal`, `isocast door`), makes one of 32 bytes for each node: of its id and a part, 8 bytes each, big-endian.
The part is the stripe for a seal and else 0; the id of a source's seal has incarnation 0.

- A *tag* authenticates every packet of one sender ([wire formats](wire.md)).
- A *seal* is AES-256-GCM with the nonce incarnation (4 bytes) and number (8) and the associated data stripe (2), source
  id (8) and number (8), all big-endian. A sealed payload is the ciphertext and a tag of 16 bytes. A number is sealed
  once, when a source gives it to a message; trusted receivers open it at release.
"""


def keys_as_json() -> dict[str, object]:
    """The same for programs."""
    return {
        "tables": [
            {
                "name": table.name,
                "explanation": table.explanation,
                "keys": [_as_json(key) for key in table.keys],
            }
            for table in (*SETTINGS, NODE_TABLE)
        ],
        "profiles": [dict(zip(PROFILE_HEADERS, row, strict=True)) for row in profile_rows()],
    }


def _as_json(key: Key) -> dict[str, object]:
    return {
        "name": key.name,
        "type": key.kind.value,
        "choices": list(key.choices),
        "default": list(key.default) if isinstance(key.default, tuple) else key.default,
        "otherwise": key.otherwise,
        "roles": [role.value for role in key.roles],
        "explanation": key.explanation,
    }


def key_rows(table: Table) -> list[tuple[str, ...]]:
    """Key, value, default, meaning."""
    return [(key.name, key.type_text, _default_text(key), _meaning(key)) for key in table.keys]


def _default_text(key: Key) -> str:
    """What a file that leaves the key out would have said."""
    return key.otherwise if key.default is None else json.dumps(key.default, ensure_ascii=False)


def _meaning(key: Key) -> str:
    if not key.roles:
        return key.explanation
    return f"{key.explanation} Of {', '.join(key.roles)}."


def profile_rows() -> list[tuple[str, ...]]:
    """Every profile, given times before derived ones."""
    return [_profile_row(profile) for profile in PROFILES.values()]


def _profile_row(profile: Profile) -> tuple[str, ...]:
    one, two = profile.timing(_RING), profile.timing(_RING, layers=2)
    given = (profile.clock_error_ns, profile.secondary_detect_ns, profile.one_way_delay_ns)
    derived = (one.retry_ns, one.token_period_ns, one.release_delay_ns, two.release_delay_ns)
    latency = round(one.latency_ns(profile.one_way_delay_ns, 0))
    times = [duration_text(time).replace("us", "µs") for time in (*given, *derived, latency)]
    return (
        profile.name,
        duration_text(profile.detect_ns),
        duration_text(profile.process_ns),
        str(profile.retries_max),
        *times,
    )


def _keys(table: Table) -> str:
    rows = []
    for key in table.keys:
        default = _default_text(key) if key.default is None else f"`{_default_text(key)}`"
        rows.append((f"`{key.name}`", key.type_text, default, _meaning(key)))
    return _markdown(("key", "value", "default", "meaning"), rows)


def _markdown(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in lines)
