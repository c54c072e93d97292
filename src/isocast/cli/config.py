"""`isocast config`: check a market file and show what follows from it, write one to start from, explain its keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter
from cyclopts.validators import Number

from isocast.cli.key_page import key_as_json, key_headers, key_rows, key_table, markdown_table
from isocast.cli.options import Flag, Seed
from isocast.cli.render import line, note, show_json, show_table, showed_whole
from isocast.runtime.market.keys import FILE_TABLES
from isocast.runtime.market.model import Market, NetworkMode, NodePlan
from isocast.runtime.market.rules import slowest_pair
from isocast.terms import timing as formulas
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import SECOND
from isocast.terms.quantities import counted, duration_text, size_text
from isocast.terms.timing import PROFILES, Formula, Profile, number
from isocast.wire.limits import EVENT_BYTES

if TYPE_CHECKING:
    from isocast.runtime.market.model import Market

__all__ = [
    "PROFILE_HEADERS",
    "app",
    "config_page",
    "coverage_as_json",
    "coverage_text",
    "faults_as_json",
    "keys_as_json",
    "market_as_json",
    "profile_rows",
    "show_coverage",
    "show_market",
]


app = App(
    name="config",
    help="Describe a market: one TOML file that every process of it reads.",
    help_epilogue="Start with:\n\n    isocast config example --out market.toml\n",
)

_BAD_INPUT = 2


@app.command(
    help_epilogue="""Examples:

    isocast config check market.toml

    isocast config check market.toml --json

Exit code: 0 sound, 2 not: then each fault is a line that names file, key and rule. Warnings change nothing about it.
"""
)
def check(file: Path, /, *, json: Flag = False) -> int:
    """Check a market file and show what follows from it: nodes, groups, times with their formulas, warnings.

    Parameters
    ----------
    file
        The market's TOML file.
    json
        Print one JSON object instead of tables; faults are in it too.
    """
    from isocast.cli.config import faults_as_json, market_as_json, show_market
    from isocast.runtime.market.file import read_market

    reading = read_market(file)
    faults, warnings = reading.faults, reading.warnings
    if reading.market is not None:
        faults = _plan_faults(reading.market)
    if reading.market is None or faults:
        if json:
            show_json(faults_as_json(faults))
        for fault in faults:
            note(f"isocast: {fault}")
        return _BAD_INPUT
    if reading.market.edge is not None:
        from isocast.runtime.edge.narrow.plan_change import edge_advice

        warnings = (*warnings, *edge_advice(reading.market))
    from isocast.runtime.market.pins import pinning_state

    pinning = pinning_state(reading.market)
    if pinning is not None and pinning.change:
        warnings = (*warnings, f"{pinning.found}: {pinning.change}")
    if json:
        show_json(market_as_json(reading.market, warnings))
    else:
        show_market(reading.market, warnings)
    return 0


def _plan_faults(market: Market) -> tuple[ConfigurationError, ...]:
    """What is wrong with the plans of core and edge: they are files of their own."""
    from isocast.runtime.market.routes import core_routes

    try:
        core_routes(market)
        if market.edge is not None:
            from isocast.runtime.edge.narrow.plan_change import check_edge

            check_edge(market)
    except ConfigurationError as fault:
        return (fault,)
    return ()


@app.command(
    help_epilogue="""Examples:

    isocast config example

    isocast config example --out market.toml

    isocast config example --cities London,Paris,Frankfurt --loss 0.01 --out europe.toml
"""
)
def example(
    *,
    out: Path | None = None,
    cities: str | None = None,
    loss: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.0,
    seed: Seed = 1,
    slot: Annotated[int | None, Parameter(validator=Number(gte=0, lte=199))] = None,
) -> int:
    """Write a commented market file that runs on this machine as it is; the delays between its cities are injected.

    Each file has a slot of its own, so that several markets run beside each other on one machine.

    Parameters
    ----------
    out
        The file to write, which must not exist; standard output if left out.
    cities
        Where primary receivers are, separated by commas; five cities of the world if left out.
    loss
        Share of packets that get lost.
    seed
        What the losses are a function of.
    slot
        Which of the machine's markets this is, 0 to 199; one that is free now if left out.
    """
    from isocast.runtime.market.example import EXAMPLE_CITIES, example_text
    from isocast.runtime.market.slots import free_slot

    chosen = EXAMPLE_CITIES if cities is None else [name.strip() for name in cities.split(",")]
    text = example_text(chosen, loss=loss, seed=seed, slot=free_slot() if slot is None else slot)
    if out is None:
        line(text.rstrip("\n"))
        return 0
    write_new(out, text, "--out")
    note(f"Wrote {out}. Next: isocast config check {out}; isocast keys init --config {out}")
    return 0


def write_new(out: Path, text: str, option: str) -> None:
    """Make a file; ConfigurationError, which names the option, if it exists or cannot be made."""
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ConfigurationError(
            str(out), option, "exists already and is not overwritten: choose another name"
        ) from None
    except OSError as error:
        raise ConfigurationError(str(out), option, f"cannot be written: {error.strerror}") from error


@app.command(
    help_epilogue="""Examples:

    isocast config keys

    isocast config keys --markdown > docs/reference/config.md
"""
)
def keys(*, json: Flag = False, markdown: Flag = False) -> int:
    """List and explain the keys of a market file, and the timing profiles.

    Parameters
    ----------
    json
        Print one JSON object instead of tables.
    markdown
        Print the reference page.
    """
    if showed_whole(keys_as_json if json else None, config_page if markdown else None):
        return 0
    for table in FILE_TABLES:
        title = f"[{table.name}]" if table.name else "At the top of the file"
        rows = key_rows(table.keys)
        show_table(title, key_headers(rows), rows)
    show_table("Timing profiles", PROFILE_HEADERS, profile_rows())
    return 0


# ---- The keys of a market file and the timing profiles as a page of the reference, and as JSON: both from one table.


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
    for table in FILE_TABLES:
        title = f"`[{table.name}]`" if table.name else "Top of the file"
        parts += [f"## {title}\n", f"{table.explanation}\n", key_table(table.keys)]
    parts += [_PROFILES, markdown_table(PROFILE_HEADERS, profile_rows())]
    parts += [f"- `{profile.name}`: {profile.meaning}" for profile in PROFILES.values()]
    parts += ["", _FILES, _SMALLEST.rstrip("\n"), ""]
    return "\n".join(parts)


_FILES = """## Key files { #keys }

`isocast keys init` makes them in the directory `keys`, 32 random bytes each. Every node needs those that are its own
and no others, mode 0600 and owned by its user:

| file | who has it |
| --- | --- |
| `core.key` | primary and secondary receivers, primary sources, reformation servers; rosters bring others |
| `edge.key` | primary and secondary receivers, retransmit servers, customers |
| `region.key` | where lines are [sold](#subscriptions): receivers, retransmit servers and the box office |
| `NAME.package`, `NAME.secret` | where lines are sold: the customer of that name; what the box office gave it |
| `repair.key` | with narrow stripes: retransmit servers, and customers who bought repairs of them |
| `source-NAME.key` | the source of that name; of a primary source also all receivers; of a secondary one its parent |
| `identity-NAME.key` | the node of that name and nobody else (a source's floor too); one for `operator`, `box-office` |
| `root.key` | nobody: the operator keeps it offline, and brings it to sign a roster |
| `revoke.key` | whoever is on duty: it takes identities away, and does nothing else |
| `roster.bin` | every node and customer: who is who, signed by the root. It is public (mode 0644) |

No key is used as it is. BLAKE2b, keyed with the 32 bytes and personalised with the purpose (`isocast tag`,
`isocast seal`, `isocast door`), makes one of 32 bytes for each node: of its id and a part, 8 bytes each, big-endian.
The part is the stripe for a seal and else 0; the id of a source's seal has incarnation 0.

- A *tag* authenticates every packet of one sender ([wire formats](wire.md)).
- A *seal* has a key of its own for each message: BLAKE2b-256, keyed with the seal's key of source and stripe, over a
  salt of 16 bytes that the source draws at each start, the source's id (8) and the number (8). It is AES-256-GCM with
  the nonce incarnation (4) and number (8) and the associated data stripe (2), source id (8) and number (8), all
  big-endian. A sealed payload is the salt, BLAKE2b-256 of the message's key (personalised with `isocast commit`), the
  ciphertext and a tag of 16 bytes. A number is sealed once in one start, when a source gives it to a message; trusted
  receivers open it at release, and keep the message's key in their journals
  ([how to prove a journal](../how-to/prove-a-journal.md)).
- A *generation* of tags and seals of primary sources is a core key that a roster brought. It makes 32 bytes more, with
  the purpose `isocast generati` for the tag and `isocast seal gen` for the seal, of the same id and part. Of them and
  of the source's key for that use the one that counts is made: BLAKE2b-256 of the latter, keyed with the former and
  personalised with the same purpose. The first four bytes of a salt name the generation of a seal: those that the core
  key makes with `isocast seal gen` of id 0 and part 0, or zeros where no roster brought a core key.
"""


def keys_as_json() -> dict[str, object]:
    """The same for programs."""
    return {
        "tables": [
            {
                "name": table.name,
                "explanation": table.explanation,
                "keys": [key_as_json(key) for key in table.keys],
            }
            for table in FILE_TABLES
        ],
        "profiles": [dict(zip(PROFILE_HEADERS, row, strict=True)) for row in profile_rows()],
    }


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


# ---- What `isocast config check` shows of `[coverage]`: the plan of lines as it is with every receiver on the ring.


def coverage_text(market: Market) -> str:
    """In a few words."""
    table = market.coverage
    if not table.enabled:
        return "off: each line has the group of its number"
    pool = f"{table.addresses:,} groups from {table.groups}, drain {duration_text(table.drain_ns)}"
    return f"every customer hears {table.lines} lines; {pool}; notices in {table.notices}"


def coverage_as_json(market: Market) -> dict[str, Any]:
    """The plan of each stripe with everybody on the ring, for programs."""
    if not market.coverage.enabled:
        return {"enabled": False}
    return {"enabled": True, "stripes": [_stripe(market.of_stripe(stripe), stripe) for stripe in market.stripes]}


def _stripe(market: Market, stripe: int) -> dict[str, Any]:
    from isocast.reformation.scopes.adjustment import plan_scopes
    from isocast.reformation.scopes.coverage import cover
    from isocast.runtime.market.coverage_world import coverage_world

    world = coverage_world(market, stripe, market.universe)
    try:
        plan = plan_scopes(world)
    except ConfigurationError as reason:
        return {"stripe": stripe, "trouble": reason.rule, "lines": [], "short": []}
    seen = cover(world, plan)
    lines = [
        {
            "name": market.name_of(int(scope.receiver)),
            "group": None if scope.address is None else str(plan.group(scope.address)),
            "radius_km": scope.radius_km,
            "ttl": None if scope.address is None else market.coverage.ttl(round(scope.radius_km * 1000)),
            "listeners": int(heard),
        }
        for scope, heard in zip(plan.scopes, seen.customers_of.tolist(), strict=True)
    ]
    short = [{"name": one.customer, "lines": one.lines, "reason": one.reason} for one in seen.short]
    return {"stripe": stripe, "trouble": None, "lines": lines, "short": short}


def show_coverage(market: Market) -> None:
    """The same in tables; nothing where lines are not planned."""
    found = coverage_as_json(market)
    for one in found.get("stripes", ()):
        if one["trouble"]:
            line(f"warning: coverage: {one['trouble']}")
            continue
        of = f" of stripe {one['stripe']}" if len(market.stripes) > 1 else ""
        rows = [
            (
                entry["name"],
                entry["group"] or "silent, in reserve",
                f"{entry['radius_km']:,.0f} km" if entry["radius_km"] else "–",
                str(entry["ttl"] or "–"),
                str(entry["listeners"]),
            )
            for entry in one["lines"]
        ]
        title = f"Lines{of} with every receiver on the ring"
        show_table(title, ("line of", "group", "scope", "TTL", "listeners"), rows)
        for entry in one["short"]:
            line(f"warning: coverage: {entry['name']} hears {entry['lines']}: {entry['reason']}")


# ---- What follows from a market file, for people and for programs.


_GIVEN = (
    ("δ_N", "detect", "a token later than this is taken for lost"),
    ("X", "transmit", "to transmit a request and its answer"),
    ("P", "process", "to process a request and its answer"),
    ("ε", "clock_error", "no clock is further from true time"),
)


def faults_as_json(faults: Sequence[ConfigurationError]) -> dict[str, object]:
    """Everything that is wrong with a file."""
    return {
        "sound": False,
        "faults": [{"file": fault.file, "key": fault.key, "rule": fault.rule} for fault in faults],
    }


def market_as_json(market: Market, warnings: Sequence[str]) -> dict[str, object]:
    """All that follows from a sound file."""
    timing = market.timing
    times = {f"{name}_ns": getattr(timing, f"{name}_ns") for _, name, _ in _GIVEN}
    derived = ("retry", "token_period", "release_delay", "secondary_detect", "secondary_retry")
    times |= {f"{name}_ns": getattr(timing, f"{name}_ns") for name in derived}
    return {
        "sound": True,
        "name": market.name,
        "profile": market.profile,
        "gate": timing.gate.value,
        "stripes": list(market.stripes),
        "stripe_plan": str(market.stripe_plan) if market.stripe_plan is not None else None,
        "nodes": [_node_json(market, plan) for plan in market.nodes],
        "groups": [{"what": what, "address": address} for what, address in _groups(market)],
        "port": market.network.port,
        "mode": market.network.mode.value,
        "payload_bytes": market.payload_bytes,
        "events_per_payload": market.events_per_payload,
        "times": times,
        "formulas": [
            {"meaning": meaning, "symbol": f.symbol, "formula": f.symbols, "numbers": f.numbers, "value": value}
            for meaning, f, value in _times(market)
        ],
        "data": str(market.data_directory),
        "keys": str(market.keys_directory),
        "coverage": coverage_as_json(market),
        "warnings": list(warnings),
    }


def _node_json(market: Market, plan: NodePlan) -> dict[str, object]:
    return {
        "name": plan.name,
        "table": plan.origin,
        "role": plan.role.value,
        "id": plan.node,
        "number": plan.number,
        "address": plan.address,
        "port": plan.port,
        "http_port": plan.http_port,
        "tcp_port": plan.tcp_port,
        "city": plan.place.name if plan.place else "",
        "layer": plan.layer,
        "parent": plan.parent,
        "backup": plan.backup,
        "line": market.line_group(plan.name) if plan.line else "",
        "lines": list(plan.lines),
        "retransmit": list(plan.retransmit),
        "grade": plan.grade.value,
        "stripes": list(plan.stripes),
    }


def show_market(market: Market, warnings: Sequence[str]) -> None:
    """The same in tables."""
    title = f"{market.name}: {counted(len(market.nodes), 'node')}"
    headers = ("name", "role", "number", "city", "address", "UDP", "HTTP", "TCP", "belongs to")
    show_table(title, headers, [_node_row(market, plan) for plan in market.nodes])
    if market.network.mode is NetworkMode.MULTICAST:
        show_table(f"Groups, UDP port {market.network.port}", ("group", "address"), list(_groups(market)))
    given = [(meaning, symbol, duration_text(getattr(market.timing, f"{name}_ns"))) for symbol, name, meaning in _GIVEN]
    given.append(("requests before a receiver gives up", "k_r", str(market.timing.retries_max)))
    if market.layers > 1:
        second = market.timing.secondary_detect_ns
        given.append(("the same as δ_N between a secondary receiver and its parent", "δ_S", duration_text(second)))
    show_table(f"Times given by profile {market.profile} and file", ("", "symbol", "value"), given)
    rows = [(meaning, f.symbol, f.symbols, f.numbers, f"{number(value)} s") for meaning, f, value in _times(market)]
    show_table(f"Times derived, gate {market.timing.gate}", ("", "symbol", "formula", "in numbers", "value"), rows)
    show_table("Payloads and places on disk", ("", "value"), _facts(market))
    show_coverage(market)
    for warning in warnings:
        line(f"warning: {warning}")
    line(f"{market.file} is sound; {len(warnings) or 'no'} warning{'' if len(warnings) == 1 else 's'}.")


def _node_row(market: Market, plan: NodePlan) -> tuple[str, ...]:
    ports = f"{plan.port}-{plan.line_port}"
    place = plan.place.name if plan.place else "–"
    doors = (str(plan.http_port or "–"), str(plan.tcp_port or "–"))
    return (plan.name, plan.role.value, str(plan.number), place, plan.address, ports, *doors, _belongs(market, plan))


def _belongs(market: Market, plan: NodePlan) -> str:
    """Whom it asks, hears and serves."""
    parts = []
    if plan.parent:
        parts.append(f"{plan.parent} (backup {plan.backup})" if plan.backup else plan.parent)
    if plan.lines:
        parts.append(f"hears {', '.join(plan.lines)}")
    if plan.retransmit:
        parts.append(f"asks {', '.join(plan.retransmit)}")
    if plan.line:
        parts.append(f"line {market.line_group(plan.name)}")
    return "; ".join(parts)


def _groups(market: Market) -> list[tuple[str, str]]:
    rows = []
    for stripe in market.stripes:
        rows.append((f"data of stripe {stripe}", market.data_group(stripe)))
        rows.append((f"control of stripe {stripe}", market.control_group(stripe)))
    rows += [(f"line of {plan.name}", market.line_group(plan.name)) for plan in market.nodes if plan.line]
    return rows


def _times(market: Market) -> list[tuple[str, Formula, float]]:
    """Meaning, formula, and the value that counts, which the file may have chosen above the formula's."""
    timing = market.timing
    slowest, _, _ = slowest_pair(market)
    latency = formulas.latency(timing, round(slowest, -5), 0.0)
    return [
        ("between two requests", formulas.retry(timing), timing.retry_ns / SECOND),
        ("between two tokens", formulas.token_period(timing), timing.token_period_ns / SECOND),
        ("timestamp to release", formulas.release_delay(timing), timing.release_delay_ns / SECOND),
        ("release skew at most", formulas.skew(timing), timing.skew_bound_ns / SECOND),
        ("mean submit to release, from farthest", latency, latency.value),
        ("failure found at the latest", *_same(formulas.detection_worst(timing))),
        ("failure found with receipts, about", *_same(formulas.detection_with_receipts(timing))),
        ("ballot to first new token at most", *_same(formulas.reformation(timing))),
    ]


def _same(formula: Formula) -> tuple[Formula, float]:
    return formula, formula.value


def _facts(market: Market) -> list[tuple[str, str]]:
    payload = f"{market.payload_bytes:,} bytes: {market.events_per_payload} events of {EVENT_BYTES}, and their seal"
    journal = market.journal
    kept = [f"{size_text(journal.keep_bytes)}"] if journal.keep_bytes else []
    kept += [f"{journal.keep_seconds:,} s"] if journal.keep_seconds else []
    return [
        *_stripes(market),
        ("payload", payload),
        ("sealed", "yes" if market.seal else "no"),
        ("durability", market.durability.value),
        ("data", str(market.data_directory)),
        ("keys", str(market.keys_directory)),
        ("journals keep", " or ".join(kept) or "everything"),
        ("impairment", _impairment(market)),
        ("coverage", coverage_text(market)),
    ]


def _stripes(market: Market) -> list[tuple[str, str]]:
    """How symbols are split, where there are several."""
    if len(market.stripes) == 1:
        return []
    plan = market.stripe_plan or (market.edge.plan if market.edge is not None else None)
    split = f"symbols split by the plan {plan}" if plan else "symbols split by a hash of their names"
    return [("stripes", f"{', '.join(map(str, market.stripes))}: {split}")]


def _impairment(market: Market) -> str:
    impairment = market.impairment
    if not impairment.enabled:
        return "none"
    delay = f"delay by {impairment.delay}"
    return f"{delay}, jitter {duration_text(impairment.jitter_ns)}, loss {impairment.loss:g}, seed {impairment.seed}"
