"""A scenario: everything about a simulated run but its seed, read from flat TOML, integer nanoseconds inside.

`scenario_keys` explains the keys. What is left out takes the paper's value or is derived by the formulas of
`terms.timing`; what the protocol does not allow raises `ConfigurationError`, which names file, key and rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, sqrt
from pathlib import Path

from isocast.simulation.fault_plan import BYZANTINE, ROSTER_FAULTS, FaultTargets, PlannedFault, read_faults
from isocast.simulation.layers import NO_EDGE, Edge, Layers
from isocast.simulation.scenario_keys import KEYS, MAX_RUN_SECONDS
from isocast.terms.ids import FIRST_SERVER, NodeId
from isocast.terms.instants import MILLISECOND, to_seconds
from isocast.terms.timing import Formula, Gate, Timing, release_delay, retry, seconds, token_period
from isocast.terms.toml_files import Faults, Values, read_toml
from isocast.terms.topology import PAPER_RING, City, city
from isocast.wire.limits import EVENT_BYTES, MAX_MESSAGES_PER_TOKEN

__all__ = [
    "PlannedFault",
    "Scenario",
    "check_original",
    "check_span",
    "load_scenario",
    "scenario_from_mapping",
    "scenario_text",
]


# Rules of a scenario that concern the whole run: how long it may last, and what the baseline has no use for.


_AT_THE_EDGE = (
    "archives",
    "customers",
    "latest_customers",
    "secondary_sources",
    "stripe_senders",
    "narrow_customers",
)
"""Who there may be beside receivers, sources and servers: a count of each."""
_TIMED_ONLY = (
    "traders",
    "burst",
    "bandwidth",
    "clock_error",
    "wake_lateness",
    "secondaries",
    *_AT_THE_EDGE,
)
"""Keys of worlds that the baseline is not simulated in."""


def check_span(values: Values, messages: int, rate: float, timing: Timing) -> None:
    """An instant has 62 bits: what would run into their end is refused now."""
    arriving, turning = messages / rate, 16 * (timing.ring_size + 2) * to_seconds(timing.token_period_ns)
    if "duration" in values:
        arriving = min(arriving, to_seconds(values.count("duration")))
    if arriving + turning <= MAX_RUN_SECONDS:
        return
    key = "messages" if arriving > turning else "token_period" if "token_period" in values else "detect"
    rule = (
        f"makes a run of {arriving + turning:.3g} s or more of virtual time; at most {MAX_RUN_SECONDS:,} s are possible"
    )
    raise values.error(key, rule)


def check_original(values: Values, faults: object) -> None:
    """Rules of the event-driven protocol (§2.1)."""
    if values.text("protocol") != "original":
        return
    ack, resend = values.count("token_ack"), values.count("token_resend")
    if ack >= resend:
        rule = f"T_a must be less than token_resend (R_t) = {seconds(resend)} s, not {seconds(ack)} s"
        raise values.error("token_ack", rule)
    for key in _TIMED_ONLY:
        if key in values:
            raise values.error(key, "the original protocol is simulated without it: leave it out")
    if faults:
        raise values.error("faults", "the original protocol is simulated without faults")


_RING_MIN = 2
_WITNESSED_MESSAGES = 1_000
_TRADERS = 2
_RATE_MIN = 1e-4
"""Three messages in eight hours: slower, a run is all silence."""
_FILE_MAX = 1 << 20
"""Bytes of a file: a thousand times what any scenario needs."""


@dataclass(frozen=True)
class Scenario:
    """One world and what happens in it. Field names are those of the keys, `_ns` for times."""

    file: str
    title: str
    seed: int
    protocol: str
    """timed or original."""
    receivers: int
    """m; 1 for a central exchange."""
    messages: int
    duration_ns: int
    """0: until all messages are submitted."""
    arrival_rate: float
    """λ, of all sources together, per second; for even arrivals k/τ_t."""
    messages_per_token: int
    """k; 0 means that arrivals are a Poisson process."""
    sources: int
    """0: each message from a source of its own."""
    burst: int
    payload_bytes: int
    one_way_delay_ns: int
    """Between all pairs; without meaning when there are cities."""
    jitter_ns: int
    loss: float
    loss_model: str
    """independent or tree."""
    tree_branches: int
    edge_loss: float
    duplicate: float
    bandwidth_bps: int
    """0: no limit."""
    timing: Timing
    """δ_N, X, P, τ_r, k_r, τ_t, Δ_A, ε, the gate with its L, k_p, and m: all derived times follow from it."""
    drift_ppm: int
    wake_lateness_ns: int
    order_in_token: str
    """arrival or shuffle."""
    window: int
    batch_max: int
    release_rate: int
    """Packets per millisecond; 0 means all at once."""
    servers: int
    token_ack_ns: int
    token_resend_ns: int
    source_resend_ns: int
    nack_resend_ns: int
    ring: tuple[City, ...] = ()
    """Site i is in ring[i-1]; empty: no places, one delay."""
    traders: tuple[City, ...] = ()
    """Two cities, or none."""
    exchange: City | None = None
    """A central exchange instead of a ring."""
    faults: tuple[PlannedFault, ...] = ()
    """In the order of the file."""
    secondaries: int = 0
    """Secondary receivers below each receiver that is not in the lowest layer."""
    layers: int = 1
    """Of receivers; 1 without secondary ones."""
    secondary_delay_ns: int = 0
    stall_tokens: int = 64
    """G."""
    retain_tokens: int = 128
    """Entries of the log that a site's disk keeps."""
    policy: str = "majority"
    """majority or availability."""
    start_wait_ns: int = 0
    """Under availability; 0: two reformations."""
    reveal: str = "seal"
    """seal: nothing is sealed here; chain: sources disclose the keys of their messages."""
    signatures: str = "off"
    """off, on, or receipts: those are signed too."""
    edge: Edge = NO_EDGE
    """Archives, customers, secondary sources and narrow stripes."""
    floor: bool = False
    """Whether the receivers are a trading floor."""

    @property
    def is_witnessed(self) -> bool:
        """Whether checkers are told what nodes hear and believe: where something goes wrong, and in short runs.

        It makes a run half as long again, and in a long one without faults nothing would come of it.
        """
        return bool(self.faults) or self.messages <= _WITNESSED_MESSAGES

    @property
    def may_diverge(self) -> bool:
        """Whether a ring may start without a majority of U, by policy or by force."""
        return self.policy == "availability" or any(fault.kind == "force" for fault in self.faults)

    @property
    def byzantine(self) -> frozenset[NodeId]:
        """Members that lie about what others rely on: nothing is promised to them."""
        return frozenset([node for fault in self.faults if fault.kind in BYZANTINE for node in fault.sites])

    @property
    def has_rosters(self) -> bool:
        """Whether rosters change, or do not reach everybody."""
        return any(fault.kind in ROSTER_FAULTS for fault in self.faults)

    @property
    def tree(self) -> Layers:
        """Who stands below whom."""
        return Layers(self.receivers, self.secondaries, self.layers)

    @property
    def even_arrivals(self) -> bool:
        """Whether messages come at even distances (`messages_per_token`) and not as a Poisson process."""
        return self.messages_per_token > 0


def load_scenario(path: str | Path) -> Scenario:
    """The scenario of a file; ConfigurationError for one that cannot be read."""
    return scenario_from_mapping(read_toml(path, _FILE_MAX), str(path))


def scenario_from_mapping(mapping: Mapping[str, object], file: str = "<scenario>") -> Scenario:
    """The scenario of a parsed file; `file` only appears in errors."""
    table = dict(mapping)
    faults = table.pop("faults", [])
    values = Values(table, KEYS, Faults(file, collect=False))
    ring, traders, exchange = _places(values)
    receivers = _receivers(values, ring, exchange)
    tree = _layers(values, receivers)
    timing = _timing(values, receivers, tree)
    arrivals = _arrivals(values, timing)
    servers, messages = values.count("servers"), _messages(values, arrivals.rate)
    edge = _edge(values, tree)
    _check_floor(values, edge)
    check_original(values, faults)
    check_span(values, messages, arrivals.rate, timing)
    return values.into(
        Scenario,
        file=file,
        receivers=receivers,
        messages=messages,
        duration_ns=values.count("duration"),
        arrival_rate=arrivals.rate,
        messages_per_token=values.count("messages_per_token"),
        sources=arrivals.sources,
        jitter_ns=values.count("jitter", 20 * MILLISECOND if exchange else 0),
        tree_branches=values.count("tree_branches", max(round(sqrt(receivers)), 1)),
        bandwidth_bps=round(values.number("bandwidth")),
        timing=timing,
        window=values.count("window", arrivals.window),
        ring=ring,
        traders=traders,
        exchange=exchange,
        faults=read_faults(faults, FaultTargets(file, ring, tree, servers, arrivals.sources, edge)),
        layers=tree.layers,
        policy=_policy(values),
        edge=edge,
    )


def _edge(values: Values, tree: Layers) -> Edge:
    """Archives, customers, secondary sources and narrow stripes; their messages are market events."""
    names = _AT_THE_EDGE
    edge = Edge(
        *[values.count(name) for name in (*names, "narrow_stripes", "stripe_bytes", "forgers", "narrow_forgers")]
    )
    used = [name for name in names if values.count(name)]
    if not used:
        return edge
    for key in ("exchange", "traders"):
        if key in values:
            raise values.error(used[0], f"means nothing with {key}: leave it out")
    if edge.forgers > edge.customers + edge.latest_customers:
        raise values.error("forgers", "forgers are customers: give as many of those")
    if edge.customers and not edge.archives:
        raise values.error("customers", "complete customers need an archive that they can ask: give archives too")
    _check_stripes(values, edge, tree)
    size = values.count("payload_bytes")
    if size % EVENT_BYTES or not size:
        rule = f"with {used[0]}, messages are market events of {EVENT_BYTES} bytes: a multiple of that, not {size}"
        raise values.error("payload_bytes", rule)
    return edge


def _check_floor(values: Values, edge: Edge) -> None:
    """A floor's messages are orders, in the clear."""
    if not values.flag("floor"):
        return
    for key in ("exchange", "traders", "protocol", "reveal"):
        if key in values:
            raise values.error("floor", f"means nothing with {key}: leave it out")
    if edge:
        raise values.error("floor", "its messages are orders, and those of the edge are quotes: leave one of them out")


def _check_stripes(values: Values, edge: Edge, tree: Layers) -> None:
    if edge.narrow_forgers > edge.narrow_customers:
        raise values.error("narrow_forgers", "they are customers of narrow stripes: give as many narrow_customers")
    if edge.narrow_customers and not edge.stripe_senders:
        raise values.error("narrow_customers", "customers of narrow stripes need somebody who sends: stripe_senders")
    sites = tree.receivers + len(tree.secondary_sites)
    if edge.stripe_senders > sites:
        raise values.error("stripe_senders", f"there are {sites} receivers, each with one sender at most")


def _policy(values: Values) -> str:
    policy = values.text("policy")
    if "start_wait" in values and policy == "majority":
        raise values.error("start_wait", 'means nothing to policy = "majority", which waits for ever')
    return policy


def _places(values: Values) -> tuple[tuple[City, ...], tuple[City, ...], City | None]:
    """Ring, traders and exchange, each alone and together."""
    ring, traders, exchanges = values.cities("ring"), values.cities("traders"), values.cities("exchange")
    exchange = exchanges[0] if exchanges else None
    if "ring" in values:
        if len(ring) < _RING_MIN:
            raise values.error("ring", f"a ring needs at least {_RING_MIN} cities, not {len(ring)}")
        twice = [place.name for place in ring if ring.count(place) > 1]
        if twice:
            raise values.error("ring", f"{twice[0]} is named twice; a city has one receiver")
        if exchange is not None:
            raise values.error("exchange", "a central exchange stands instead of a ring: leave out one of the two")
    if "traders" in values and (len(traders) != _TRADERS or traders[0] == traders[1]):
        raise values.error("traders", f"must be exactly two different cities, not {len(traders)}")
    if exchange is not None and not traders:
        raise values.error("exchange", "an exchange compares two traders: name them in traders")
    if traders and not ring and exchange is None:
        ring = tuple(place for name in PAPER_RING if (place := city(name)))
    if (ring or exchange) and "one_way_delay" in values:
        raise values.error("one_way_delay", "with cities the delays follow from the distances: leave it out")
    return ring, traders, exchange


def _receivers(values: Values, ring: tuple[City, ...], exchange: City | None) -> int:
    if exchange is not None:
        return 1
    receivers = values.count("receivers", len(ring) or 10)
    if receivers < _RING_MIN:
        raise values.error("receivers", f"a ring needs at least {_RING_MIN} receivers, not {receivers}")
    if ring and receivers != len(ring):
        raise values.error(
            "receivers", f"must be as many as ring has cities, {len(ring)}, or left out; not {receivers}"
        )
    return receivers


def _layers(values: Values, receivers: int) -> Layers:
    """The tree of receivers; keys of layers mean nothing without secondary receivers."""
    secondaries = values.count("secondaries")
    if not secondaries:
        for key in ("layers", "secondary_delay", "secondary_detect", "secondary_retry", "stall_tokens"):
            if key in values:
                raise values.error(key, "means nothing without secondaries")
        return Layers(receivers)
    if "exchange" in values:
        raise values.error("secondaries", "a central exchange has no receivers below it: leave it out")
    tree = Layers(receivers, secondaries, values.count("layers", 2))
    sites = receivers + len(tree.secondary_sites)
    if sites >= FIRST_SERVER:
        raise values.error(
            "secondaries", f"makes {sites:,} receivers in all; there are numbers for {FIRST_SERVER - 1:,}"
        )
    return tree


def _timing(values: Values, receivers: int, tree: Layers) -> Timing:
    """The times of the ring: each rule is checked where its key and its numbers can be named."""
    detect, error = values.count("detect"), values.count("clock_error")
    if detect < 2 * error:
        rule = f"δ_N must be at least 2·clock_error (2ε) = 2·{seconds(error)} = {seconds(2 * error)} s"
        if "detect" in values:
            raise values.error("detect", f"{rule}, not {seconds(detect)} s")
        raise values.error("clock_error", f"detect ({rule}) is {seconds(detect)} s unless given: give it too")
    sets = values.count("nack_sets")
    if sets > max(receivers - 1, 1):
        raise values.error("nack_sets", f"k_p must be at most receivers-1 = {receivers - 1}, not {sets}")
    timing = Timing(
        detect_ns=detect,
        transmit_ns=values.count("transmit"),
        process_ns=values.count("process"),
        retries_max=values.count("retries_max"),
        clock_error_ns=error,
        ring_size=receivers,
        gate=Gate(values.text("gate")),
        next_tokens=values.count("next_tokens"),
        nack_sets=sets,
        reveal_tokens=_reveal_tokens(values),
    )
    retry_ns = _at_least(values, "retry", timing.minimum_retry_ns, retry(timing))
    timing = replace(timing, retry_ns=retry_ns, token_period_ns=0, release_delay_ns=0)
    period_ns = _at_least(values, "token_period", timing.recovery_ns, token_period(timing))
    timing = replace(timing, token_period_ns=period_ns, release_delay_ns=0)
    if tree.secondaries:
        timing = _secondary_timing(values, timing, tree)
    delay_ns = _at_least(values, "release_delay", timing.minimum_release_delay_ns, release_delay(timing))
    return replace(timing, release_delay_ns=delay_ns)


def _reveal_tokens(values: Values) -> int:
    """V; 0 where keys are not disclosed."""
    if values.text("reveal") != "chain":
        if "reveal_tokens" in values:
            raise values.error("reveal_tokens", 'means nothing without reveal = "chain"')
        return 0
    if values.text("gate") != Gate.MAJORITY:
        raise values.error("reveal", '"chain" goes with gate = "majority" alone: a source must see the receipts')
    if values.text("policy") != "majority":
        raise values.error("reveal", '"chain" goes with policy = "majority" alone: no source discloses without one')
    for key in ("traders", "archives", "latest_customers", "secondary_sources", "stripe_senders"):
        if key in values:
            raise values.error("reveal", f'under "chain" nobody here opens what {key} would look into: leave one out')
    return values.count("reveal_tokens")


def _secondary_timing(values: Values, timing: Timing, tree: Layers) -> Timing:
    """δ_S and τ_{r,S}, which each layer below the first adds to Δ_A."""
    detect_ns = values.count("secondary_detect", timing.detect_ns)
    least_ns = 2 * detect_ns + timing.transmit_ns + timing.process_ns
    retry_ns = values.count("secondary_retry", least_ns)
    if retry_ns < least_ns or not retry_ns:
        rule = (
            f"τ_{{r,S}} must be at least 2δ_S+X+P = {seconds(least_ns)} s, and more than 0, not {seconds(retry_ns)} s"
        )
        raise values.error("secondary_retry", rule)
    return replace(
        timing,
        secondary_detect_ns=detect_ns,
        secondary_retry_ns=retry_ns,
        secondary_layers=tree.layers - 1,
        release_delay_ns=0,
    )


def _at_least(values: Values, key: str, minimum_ns: int, formula: Formula) -> int:
    """The given time or 0, which means: derive it; an error that shows the formula for one that is too short."""
    given = values.count(key)
    if given and given < minimum_ns:
        raise values.error(key, f"{formula.symbol} must be at least {formula} s, not {to_seconds(given):.15g} s")
    return given


@dataclass(frozen=True, slots=True)
class _Arrivals:
    rate: float
    sources: int
    window: int


def _arrivals(values: Values, timing: Timing) -> _Arrivals:
    """How fast, from how many, and how far ahead of their acknowledgements."""
    original = values.text("protocol") == "original"
    rate = values.number("arrival_rate", 1 if original else 10)
    if rate < _RATE_MIN:
        raise values.error("arrival_rate", f"λ must be at least {_RATE_MIN:g} messages a second, not {rate:g}")
    if "messages_per_token" in values:
        if "arrival_rate" in values:
            raise values.error("messages_per_token", "says the same as arrival_rate: leave out one of the two")
        if original:
            raise values.error("messages_per_token", "the original protocol has no token period: use arrival_rate")
        rate = values.count("messages_per_token") / to_seconds(timing.token_period_ns)
    in_flight = ceil(4 * rate * to_seconds(timing.token_period_ns))
    # Traders in pairs: enough of them that no two orders of one trader meet in a token, whose order it would keep.
    # Otherwise one for each message of a token, so that no lost one holds others of its source back; or as many as
    # tokens that are not too long have room for.
    usual = min(max(in_flight, 10), 1000) // 2 * 2 if values.cities("traders") else min(max(in_flight // 4, 10), 64)
    sources = values.count("sources", 0 if original else usual)
    if sources == 0 and not original:
        raise values.error("sources", "must be at least 1; a source for each message is for the original protocol")
    burst = values.count("burst")
    if values.cities("traders"):
        if sources % 2:
            raise values.error("sources", f"with traders, half of the sources are at each: must be even, not {sources}")
        if burst > 1:
            raise values.error("burst", "with traders, messages come in pairs: leave it out")
    window = max(64, 4 * burst, ceil(in_flight / max(sources, 1)))
    return _Arrivals(rate, sources, min(window, MAX_MESSAGES_PER_TOKEN))


def _messages(values: Values, rate: float) -> int:
    traders = bool(values.cities("traders"))
    if "duration" in values:
        pairs = max(round(rate * to_seconds(values.count("duration")) / 2), 1)
        default = 2 * pairs
    else:
        default = 200_000 if traders else 10_000
    messages = values.count("messages", default)
    if traders and messages % 2:
        raise values.error("messages", f"with traders, messages come in pairs: must be even, not {messages}")
    return messages


def scenario_text(mapping: Mapping[str, object]) -> str:
    """TOML: the keys, then a table for each fault. Texts, numbers and lists look alike in JSON and TOML."""
    lines = [_toml_entry(name, value) for name, value in mapping.items() if name != "faults"]
    faults = mapping.get("faults")
    for fault in faults if isinstance(faults, list) else []:
        lines += ["", "[[faults]]", *(_toml_entry(name, value) for name, value in fault.items())]
    return "".join(f"{line}\n" for line in lines)


def _toml_entry(name: str, value: object) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"
