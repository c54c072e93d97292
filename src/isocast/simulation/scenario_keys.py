"""The keys of a scenario file, in one table: for validation, for `isocast sim keys` and for the reference page.

A file is flat TOML: every key at the top level, times in seconds, and a `[[faults]]` table for each fault
(`fault_keys`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN, MAX_NEXT_NUMBERS, MAX_RING, STANDARD_PAYLOAD

__all__ = [
    "EDGE_KEYS",
    "FAULT_KEYS",
    "FAULT_KEYS_BY_NAME",
    "FAULT_KINDS",
    "KEYS",
    "KEYS_BY_NAME",
    "LAYERS_MAX",
    "LAYER_KEYS",
    "MAX_RUN_SECONDS",
    "MAX_SECONDS",
    "Key",
    "Kind",
]


# ---- What a key of a scenario file is: its name, its kind, its bounds, and what it means.


MAX_SECONDS = 10_000_000
"""For any one time: some four months."""
MAX_RUN_SECONDS = 1_000_000_000
"""For a whole run: some 31 years. Bounds: a quarter of what an instant of 62 bits can hold."""
_MAX_COUNT = 1_000_000_000


class Kind(StrEnum):
    """What a value is; its name is how a message and the reference page call it."""

    TEXT = "text"
    COUNT = "whole number"
    RATE = "number"
    SECONDS = "seconds"
    SIGNED_SECONDS = "seconds, either sign"
    PROBABILITY = "probability"
    CHOICE = "one of"
    CITY = "city"
    CITIES = "list of cities"
    NODES = "list of nodes"
    GROUPS = "list of lists of nodes"


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it is called, what it may be, and what happens when it is left out."""

    name: str
    symbol: str
    """In the paper or, after it, in our extension of its notation; empty where there is none."""
    kind: Kind
    default: str
    """For people: a value, or how it is derived."""
    explanation: str
    section: str = ""
    """Where the paper speaks of it."""
    choices: tuple[str, ...] = ()
    minimum: int = 0
    """Of a count; for other numbers 0, or 1 for "more than 0"."""
    maximum: int = _MAX_COUNT
    """Of a number; of seconds it is `MAX_SECONDS`."""

    @property
    def meaning(self) -> str:
        """The explanation with the paper's section."""
        return f"{self.explanation} ({self.section})" if self.section else self.explanation

    @property
    def type_text(self) -> str:
        """The kind, with the choices spelled out."""
        if self.kind is Kind.CHOICE:
            return " | ".join(f'"{choice}"' for choice in self.choices)
        return self.kind.value


# ---- The keys of a scenario file that speak of secondary receivers (§4.1).


LAYERS_MAX = 3
"""Bounds: two suffice for ten thousand receivers (§4.1)."""
_STALL_MAX = 100_000
"""Bounds: a day of tokens at one a second."""

_N, _S = Kind.COUNT, Kind.SECONDS

LAYER_KEYS: tuple[Key, ...] = (
    Key(
        "secondaries",
        "R_S",
        _N,
        "0",
        "Secondary receivers below each receiver that is not in the lowest layer. They are numbered after the primary"
        " ones: first the children of site 1, then those of site 2, and so on.",
        "§4.1",
        maximum=MAX_RING,
    ),
    Key(
        "layers",
        "",
        _N,
        "2 with `secondaries`",
        "Layers of receivers, the primary ring included: 2 or 3.",
        "§4.1",
        minimum=2,
        maximum=LAYERS_MAX,
    ),
    Key(
        "secondary_delay",
        "",
        _S,
        "0.005",
        "Delay between a secondary receiver and its parent; to everybody else it is the parent's and this.",
        "§4.1",
    ),
    Key(
        "secondary_detect",
        "δ_S",
        _S,
        "δ_N",
        "How much later than a primary receiver a secondary one takes a token for lost.",
        "§4.1",
    ),
    Key(
        "secondary_retry",
        "τ_{r,S}",
        _S,
        "2δ_S+X+P",
        "Between two requests of a secondary receiver to its parent. At least the default.",
        "§4.1",
        minimum=1,
    ),
    Key(
        "stall_tokens",
        "G",
        _N,
        "64",
        "Tokens after which a secondary receiver whose secondary token is overdue no longer holds memory up.",
        "§4.1",
        minimum=1,
        maximum=_STALL_MAX,
    ),
)
"""In the order of the reference page."""


# ---- The keys of a scenario file that speak of the edge of the network (§4.1, §4.2).


_EDGE_MAX = 500
"""Bounds: each node of the edge takes part in every message."""

EDGE_KEYS: tuple[Key, ...] = (
    Key(
        "archives",
        "R_x",
        _N,
        "0",
        "Retransmit servers. Each hears the lines of two receivers, archive 1 those of the first two sites, and keeps"
        " everything that was released.",
        "§4.1",
        maximum=_EDGE_MAX,
    ),
    Key(
        "customers",
        "R",
        _N,
        "0",
        "Customers of grade complete. Each hears the lines of two receivers, customer 1 those of the last two sites,"
        " and asks the archives. In turn they begin with the first message, with what comes next, and with a snapshot.",
        "§4.1",
        maximum=_EDGE_MAX,
    ),
    Key(
        "latest_customers",
        "R",
        _N,
        "0",
        "Customers of grade latest, numbered after the complete ones. They want the newest event of each symbol.",
        "§4.1, §7.1",
        maximum=_EDGE_MAX,
    ),
    Key(
        "secondary_sources",
        "S_S",
        _N,
        "0",
        "Secondary sources, numbered after the others: the first forwards to source1, the second to source2, and so on."
        " Clients bring each of them a tenth of `messages`, on top of those.",
        "§4.2",
        maximum=_EDGE_MAX,
    ),
)
"""In the order of the reference page."""


_MAX_MESSAGES = 10**12
"""Bounds: a year at 30,000 a second."""
_MAX_SERVERS = 16
"""Bounds: more reformation servers than anybody needs for a race of ballots."""

_T, _SCENARIO_KEYS_N, _R, _SCENARIO_KEYS_S, _P, _C = (
    Kind.TEXT,
    Kind.COUNT,
    Kind.RATE,
    Kind.SECONDS,
    Kind.PROBABILITY,
    Kind.CHOICE,
)

_WHAT = (
    Key("title", "", _T, "none", "A line that says what the run shows; printed above its report."),
    Key(
        "seed",
        "",
        _SCENARIO_KEYS_N,
        "1",
        "The one number that a run is a function of; `--seed` goes before it.",
        maximum=2**63 - 1,
    ),
    Key(
        "protocol",
        "",
        _C,
        '"timed"',
        "The periodic token of §5, or the original event-driven protocol of §2.1, the paper's baseline.",
        "§2.1, §5",
        choices=("timed", "original"),
    ),
    Key(
        "receivers",
        "m",
        _SCENARIO_KEYS_N,
        "10, or as many as `ring` names",
        "Primary receivers on the ring, at least 2.",
        "§2.1",
        minimum=1,
        maximum=MAX_RING,
    ),
    Key(
        "messages",
        "",
        _SCENARIO_KEYS_N,
        "10000; arrival_rate·duration with `duration`; 200000 with `traders`",
        "How many messages are submitted in all. With `traders`, two for each pair.",
        minimum=1,
        maximum=_MAX_MESSAGES,
    ),
    Key(
        "duration",
        "",
        _SCENARIO_KEYS_S,
        "until all messages are submitted",
        "No message is submitted later than this; what was submitted is still delivered.",
        minimum=1,
    ),
)

_ARRIVALS = (
    Key(
        "arrival_rate",
        "λ",
        _R,
        "10; original: 1",
        "Messages per second of all sources together, as a Poisson process.",
        "§5.1",
        minimum=1,
    ),
    Key(
        "messages_per_token",
        "k",
        _SCENARIO_KEYS_N,
        "unset",
        "Instead of arrival_rate: k messages spread evenly over each token period (λ = k/τ_t, no chance in it).",
        "§5.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "sources",
        "n",
        _SCENARIO_KEYS_N,
        "λ·τ_t, from 10 to 64; 4·λ·τ_t, from 10 to 1000, with `traders`; original: 0",
        "How many sources take turns; half of them at each trader's city with `traders`. The fewer, the more messages"
        " a lost one holds back; the more, the longer the token. 0 (original only): each message comes from a source"
        " of its own.",
        "§2.1",
        maximum=MAX_NEXT_NUMBERS,
    ),
    Key(
        "burst",
        "",
        _SCENARIO_KEYS_N,
        "1",
        "Messages that a source submits together; the arrival rate still counts messages.",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "payload_bytes",
        "",
        _SCENARIO_KEYS_N,
        "96",
        "Size of a message's payload: two market events of 48 bytes by default.",
        minimum=1,
        maximum=STANDARD_PAYLOAD,
    ),
)

_NETWORK = (
    Key(
        "one_way_delay",
        "d",
        _SCENARIO_KEYS_S,
        "0.05 without cities",
        "Delay between any two nodes. With cities it is derived: great-circle distance at 200 km per ms.",
        "§5.1",
    ),
    Key(
        "jitter",
        "",
        _SCENARIO_KEYS_S,
        "0; 0.02 with `exchange`",
        "Mean of an exponential delay on top of the pair's own; it reorders packets.",
        "§5.1",
    ),
    Key("loss", "p", _P, "0", "Share of packets that a destination loses.", "§5.1"),
    Key(
        "loss_model",
        "",
        _C,
        '"independent"',
        "Losses independent for each packet and destination, or on the branches of a multicast tree, where one loss"
        " hits every receiver behind it.",
        "§5.2",
        choices=("independent", "tree"),
    ),
    Key(
        "tree_branches",
        "",
        _SCENARIO_KEYS_N,
        "√m, rounded",
        'Branches of the tree of `loss_model = "tree"`; neighbours on the ring share one.',
        "§5.2",
        minimum=1,
        maximum=MAX_RING,
    ),
    Key("duplicate", "", _P, "0", "Share of packets that arrive twice."),
    Key(
        "bandwidth",
        "",
        _R,
        "no limit",
        "Bits per second of each node's uplink; 0 means no limit.",
        "§5.1",
        maximum=10**15,
    ),
)

_TIMES = (
    Key(
        "detect",
        "δ_N",
        _SCENARIO_KEYS_S,
        "0.375",
        "A token later than this is taken for lost. At least 2·clock_error.",
        "§5.1",
        minimum=1,
    ),
    Key("transmit", "X", _SCENARIO_KEYS_S, "0", "Time to transmit a request and its answer.", "§5.1"),
    Key("process", "P", _SCENARIO_KEYS_S, "0.05", "Time to process a request and its answer.", "§5.1"),
    Key(
        "retry",
        "τ_r",
        _SCENARIO_KEYS_S,
        "2δ_N+X+P = 0.8",
        "Between two requests for what is missing. At least the default.",
        "§5.1",
        minimum=1,
    ),
    Key(
        "retries_max",
        "k_r",
        _SCENARIO_KEYS_N,
        "3",
        "Requests before a receiver gives up.",
        "§5.1",
        minimum=1,
        maximum=1_000,
    ),
    Key(
        "token_period",
        "τ_t",
        _SCENARIO_KEYS_S,
        "δ_N+2ε+k_r·τ_r = 2.775",
        "Between two tokens. At least the default, so that only one token is ever in recovery.",
        "§5.1",
        minimum=1,
    ),
    Key(
        "release_delay",
        "Δ_A",
        _SCENARIO_KEYS_S,
        "(k_p-1)·τ_t+δ_N+2ε+k_r·τ_r, and what the gate adds",
        "Between a token's instant and the release of its messages. At least the default.",
        "§5.1",
        minimum=1,
    ),
    Key("clock_error", "ε", _SCENARIO_KEYS_S, "0", "No clock is further than this from true time.", "§5"),
    Key(
        "drift_ppm",
        "",
        _SCENARIO_KEYS_N,
        "0",
        "Speed at which a clock's error wanders within ±ε, in parts per million; 0 means a constant error.",
        maximum=100_000,
    ),
    Key(
        "wake_lateness",
        "",
        _SCENARIO_KEYS_S,
        "0",
        "Mean of an exponential delay between the instant of a timer and the step of the site that set it.",
    ),
)

_RULES = (
    Key(
        "gate",
        "",
        _C,
        '"timed"',
        "What a release waits for, besides its instant: nothing (the paper), receipts of a majority, the next L"
        " tokens, or a whole cycle. A real market's default is majority.",
        "§5.1",
        choices=("timed", "majority", "next", "total"),
    ),
    Key(
        "next_tokens",
        "L",
        _SCENARIO_KEYS_N,
        "1",
        'Tokens that must follow under `gate = "next"`.',
        "§2.1",
        minimum=1,
        maximum=1_000,
    ),
    Key(
        "policy",
        "",
        _C,
        '"majority"',
        "Whose votes start a ring: a majority of U, or any once a majority has been missing for start_wait; such a ring"
        " is marked uncertified, and may diverge.",
        "§4.3",
        choices=("majority", "availability"),
    ),
    Key(
        "start_wait",
        "",
        _SCENARIO_KEYS_S,
        "two reformations",
        "How long `availability` waits for a majority.",
        "§4.3",
        minimum=1,
    ),
    Key(
        "order_in_token",
        "",
        _C,
        '"arrival"',
        "Messages inside a token in the order in which its owner got them, or shuffled by a key that no site chooses.",
        "§7.2",
        choices=("arrival", "shuffle"),
    ),
    Key(
        "nack_sets",
        "k_p",
        _SCENARIO_KEYS_N,
        "1",
        "Sets of receivers that take turns in asking for what is missing; 1 lets everybody ask at once, as the paper"
        " advises. At most receivers-1.",
        "§5.2",
        minimum=1,
        maximum=MAX_RING,
    ),
    Key(
        "window",
        "W",
        _SCENARIO_KEYS_N,
        "4·λ·τ_t messages shared by the sources, at least 64",
        "Messages that a source may have submitted and not yet acknowledged.",
        "§2.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "batch_max",
        "K_max",
        _SCENARIO_KEYS_N,
        str(MAX_MESSAGES_PER_TOKEN),
        "Messages that one token acknowledges at most; the backlog is bounded only if λ·τ_t is less.",
        "§5.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "retain_tokens",
        "",
        _SCENARIO_KEYS_N,
        "128",
        "Tokens that a receiver's disk keeps; whoever was away for longer takes a checkpoint over.",
        "§4.3",
        minimum=2,
    ),
    Key(
        "release_rate",
        "",
        _SCENARIO_KEYS_N,
        "0",
        "Pacing of a large batch, in packets per millisecond; 0 releases a token's messages all at once.",
        "§5",
        maximum=1_000_000,
    ),
    Key("servers", "X_R", _SCENARIO_KEYS_N, "2", "Reformation servers.", "§4.3", minimum=1, maximum=_MAX_SERVERS),
)

_ORIGINAL = (
    Key(
        "token_ack",
        "T_a",
        _SCENARIO_KEYS_S,
        "1",
        "Original: an idle token site confirms the token after this. Less than token_resend.",
        "§2.1",
        minimum=1,
    ),
    Key(
        "token_resend",
        "R_t",
        _SCENARIO_KEYS_S,
        "1.2",
        "Original: an unconfirmed token is passed again after this.",
        "§2.1",
        minimum=1,
    ),
    Key(
        "source_resend",
        "R_s",
        _SCENARIO_KEYS_S,
        "1",
        "Original: a source repeats an unacknowledged message after this.",
        "§2.1",
        minimum=1,
    ),
    Key(
        "nack_resend",
        "R_n",
        _SCENARIO_KEYS_S,
        "0.25",
        "Original: a receiver repeats a request after this.",
        "§2.1",
        minimum=1,
    ),
)

_PLACES = (
    Key(
        "ring",
        "",
        Kind.CITIES,
        "no cities; the ten cities of the figures with `traders`",
        "Cities of the receivers in the order of the ring, by name or code; delays follow from their distances.",
        "§4",
    ),
    Key(
        "traders",
        "",
        Kind.CITIES,
        "none",
        "Two cities whose traders submit at the same instant, pair after pair: `first_wins` says who came first.",
        "§7.2",
    ),
    Key(
        "exchange",
        "",
        Kind.CITY,
        "none",
        "A central exchange in this city instead of a ring: first come, first served.",
        "§1, §7.2",
    ),
)

KEYS: tuple[Key, ...] = _WHAT + _ARRIVALS + _NETWORK + _TIMES + _RULES + LAYER_KEYS + EDGE_KEYS + _ORIGINAL + _PLACES
"""Every key of the top level, in the order of the reference page; those of `[[faults]]` are in `fault_keys`."""

KEYS_BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}


# ---- The keys of a `[[faults]]` table of a scenario file, and the kinds of faults.


FAULT_KINDS: dict[str, str] = {
    "crash": "The sites lose everything volatile. With duration or until they come back then.",
    "restart": "Sites that are down come back; sites that are up crash and come back at once.",
    "pause": "The sites stand still, as a stopped process does: packets wait for them, and their timers fire late.",
    "partition": "The groups cannot hear each other. A node in no group hears all and is heard by all.",
    "one-way": "Nothing passes from the first group to the second; the other way is open.",
    "isolate": "Each of the sites is cut off from everybody, sources and servers included.",
    "clock-step": "The clocks of the sites jump by `step`, beyond their bound if it is large enough; they jump back"
    " at the end.",
    "clock-drift": "The clocks of the sites gain `rate`, or lose it, and leave their bound; at the end they are right.",
    "loss": "All links lose `loss` instead of what the scenario says.",
    "late": "Of all packets a share `late` is late by up to `by`: half of them arrive only then, of the others a copy.",
    "lie": "The sites reveal other nonces in their tokens than they committed to: with `order_in_token` of shuffle, an"
    " attempt to choose the order.",
    "drain": "An operator wants the sites off the ring; at the end they come back.",
    "add": "Sites with numbers that nobody has come to life, find the ring and are added to U, one after the other.",
    "remove": "The sites are taken out of U, one after the other, be they up or not.",
    "force": "An operator makes the sites U, whoever else there was: for a majority that never comes back.",
}
"""What a fault does, by its kind."""

FAULT_KEYS: tuple[Key, ...] = (
    Key("kind", "", Kind.CHOICE, "required", "What happens.", choices=tuple(FAULT_KINDS)),
    Key("at", "", Kind.SECONDS, "required", "When it begins, after the start of the run."),
    Key("duration", "", Kind.SECONDS, "for ever", "How long it lasts.", minimum=1),
    Key("until", "", Kind.SECONDS, "for ever", "When it ends: instead of duration.", minimum=1),
    Key(
        "sites",
        "",
        Kind.NODES,
        "required by crash, restart, pause, isolate, clock-step, clock-drift, lie, drain, add, remove and force",
        "Who is hit: cities of `ring`, their secondaries as London/1, numbers from 1 on, or names such as site3,"
        " server1, source2, archive1, customer1.",
    ),
    Key(
        "groups",
        "",
        Kind.GROUPS,
        "required by partition and one-way",
        "Two or more lists of nodes (one-way: from, to), none in two of them.",
    ),
    Key("step", "", Kind.SIGNED_SECONDS, "required by clock-step", "How far the clocks jump."),
    Key(
        "rate",
        "",
        Kind.SIGNED_SECONDS,
        "required by clock-drift",
        "Seconds that the clocks gain in every second; at most 0.05, either way.",
    ),
    Key(
        "disk",
        "",
        Kind.CHOICE,
        '"kept"',
        "Whether a crashed node finds its disk again. A source without its outbox comes back as its next incarnation.",
        choices=("kept", "lost"),
    ),
    Key(
        "inside",
        "",
        Kind.COUNT,
        "0: between two steps",
        "The crash falls inside a step: the first one from `at` on that writes to the disk, after so many of its"
        " effects. The node comes back `duration` after it went down.",
        maximum=100,
    ),
    Key("loss", "p", Kind.PROBABILITY, "required by loss", "Share of packets that a destination loses meanwhile."),
    Key("late", "", Kind.PROBABILITY, "required by late", "Share of packets that are late at a destination."),
    Key("by", "", Kind.SECONDS, "required by late", "How late at most.", minimum=1),
)
"""The keys of one `[[faults]]` table."""

FAULT_KEYS_BY_NAME: dict[str, Key] = {key.name: key for key in FAULT_KEYS}
