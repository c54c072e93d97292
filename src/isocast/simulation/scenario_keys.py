"""The keys of a scenario file, in one table: for validation, for `isocast sim keys` and for the reference page.

A file is flat TOML: every key at the top level, times in seconds, and a `[[faults]]` table for each fault
(`fault_keys`).
"""

from __future__ import annotations

from isocast.simulation.key import Key, Kind
from isocast.simulation.layer_keys import LAYER_KEYS
from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN, MAX_NEXT_NUMBERS, MAX_RING, STANDARD_PAYLOAD

__all__ = ["KEYS", "KEYS_BY_NAME", "Key", "Kind"]

_MAX_MESSAGES = 10**12
"""Bounds: a year at 30,000 a second."""
_MAX_SERVERS = 16
"""Bounds: more reformation servers than anybody needs for a race of ballots."""

_T, _N, _R, _S, _P, _C = Kind.TEXT, Kind.COUNT, Kind.RATE, Kind.SECONDS, Kind.PROBABILITY, Kind.CHOICE

_WHAT = (
    Key("title", "", _T, "none", "A line that says what the run shows; printed above its report."),
    Key("seed", "", _N, "1", "The one number that a run is a function of; `--seed` goes before it.", maximum=2**63 - 1),
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
        _N,
        "10, or as many as `ring` names",
        "Primary receivers on the ring, at least 2.",
        "§2.1",
        minimum=1,
        maximum=MAX_RING,
    ),
    Key(
        "messages",
        "",
        _N,
        "10000; arrival_rate·duration with `duration`; 200000 with `traders`",
        "How many messages are submitted in all. With `traders`, two for each pair.",
        minimum=1,
        maximum=_MAX_MESSAGES,
    ),
    Key(
        "duration",
        "",
        _S,
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
        _N,
        "unset",
        "Instead of arrival_rate: k messages spread evenly over each token period (λ = k/τ_t, no chance in it).",
        "§5.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "sources",
        "n",
        _N,
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
        _N,
        "1",
        "Messages that a source submits together; the arrival rate still counts messages.",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "payload_bytes",
        "",
        _N,
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
        _S,
        "0.05 without cities",
        "Delay between any two nodes. With cities it is derived: great-circle distance at 200 km per ms.",
        "§5.1",
    ),
    Key(
        "jitter",
        "",
        _S,
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
        _N,
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
        _S,
        "0.375",
        "A token later than this is taken for lost. At least 2·clock_error.",
        "§5.1",
        minimum=1,
    ),
    Key("transmit", "X", _S, "0", "Time to transmit a request and its answer.", "§5.1"),
    Key("process", "P", _S, "0.05", "Time to process a request and its answer.", "§5.1"),
    Key(
        "retry",
        "τ_r",
        _S,
        "2δ_N+X+P = 0.8",
        "Between two requests for what is missing. At least the default.",
        "§5.1",
        minimum=1,
    ),
    Key("retries_max", "k_r", _N, "3", "Requests before a receiver gives up.", "§5.1", minimum=1, maximum=1_000),
    Key(
        "token_period",
        "τ_t",
        _S,
        "δ_N+2ε+k_r·τ_r = 2.775",
        "Between two tokens. At least the default, so that only one token is ever in recovery.",
        "§5.1",
        minimum=1,
    ),
    Key(
        "release_delay",
        "Δ_A",
        _S,
        "(k_p-1)·τ_t+δ_N+2ε+k_r·τ_r, and what the gate adds",
        "Between a token's instant and the release of its messages. At least the default.",
        "§5.1",
        minimum=1,
    ),
    Key("clock_error", "ε", _S, "0", "No clock is further than this from true time.", "§5"),
    Key(
        "drift_ppm",
        "",
        _N,
        "0",
        "Speed at which a clock's error wanders within ±ε, in parts per million; 0 means a constant error.",
        maximum=100_000,
    ),
    Key(
        "wake_lateness",
        "",
        _S,
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
        "next_tokens", "L", _N, "1", 'Tokens that must follow under `gate = "next"`.', "§2.1", minimum=1, maximum=1_000
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
    Key("start_wait", "", _S, "two reformations", "How long `availability` waits for a majority.", "§4.3", minimum=1),
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
        _N,
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
        _N,
        "4·λ·τ_t messages shared by the sources, at least 64",
        "Messages that a source may have submitted and not yet acknowledged.",
        "§2.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "batch_max",
        "K_max",
        _N,
        str(MAX_MESSAGES_PER_TOKEN),
        "Messages that one token acknowledges at most; the backlog is bounded only if λ·τ_t is less.",
        "§5.1",
        minimum=1,
        maximum=MAX_MESSAGES_PER_TOKEN,
    ),
    Key(
        "retain_tokens",
        "",
        _N,
        "128",
        "Tokens that a receiver's disk keeps; whoever was away for longer takes a checkpoint over.",
        "§4.3",
        minimum=2,
    ),
    Key(
        "release_rate",
        "",
        _N,
        "0",
        "Pacing of a large batch, in packets per millisecond; 0 releases a token's messages all at once.",
        "§5",
        maximum=1_000_000,
    ),
    Key("servers", "X_R", _N, "2", "Reformation servers.", "§4.3", minimum=1, maximum=_MAX_SERVERS),
)

_ORIGINAL = (
    Key(
        "token_ack",
        "T_a",
        _S,
        "1",
        "Original: an idle token site confirms the token after this. Less than token_resend.",
        "§2.1",
        minimum=1,
    ),
    Key(
        "token_resend",
        "R_t",
        _S,
        "1.2",
        "Original: an unconfirmed token is passed again after this.",
        "§2.1",
        minimum=1,
    ),
    Key(
        "source_resend",
        "R_s",
        _S,
        "1",
        "Original: a source repeats an unacknowledged message after this.",
        "§2.1",
        minimum=1,
    ),
    Key("nack_resend", "R_n", _S, "0.25", "Original: a receiver repeats a request after this.", "§2.1", minimum=1),
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

KEYS: tuple[Key, ...] = _WHAT + _ARRIVALS + _NETWORK + _TIMES + _RULES + LAYER_KEYS + _ORIGINAL + _PLACES
"""Every key of the top level, in the order of the reference page; those of `[[faults]]` are in `fault_keys`."""

KEYS_BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}
