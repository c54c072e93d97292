"""A market from its TOML file. Faults name file, key and rule, all of them at once.

`market.keys` has and explains the keys. What is left out takes its default or is derived.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from isocast.ring.settings import OrderRule, StartPolicy
from isocast.runtime.market.finding import find_market
from isocast.runtime.market.floors import read_floors
from isocast.runtime.market.keys import GROUP_PORT, NARROW_PORT, SETTINGS
from isocast.runtime.market.model import (
    ClockSettings,
    CoverageTable,
    Durability,
    EdgeTable,
    GuestTable,
    Impairment,
    JournalSettings,
    Market,
    MeasurementSettings,
    NetworkMode,
    NetworkSettings,
    NodeRole,
    Reveal,
    SecuritySettings,
    StoreSettings,
    SubscriptionTable,
)
from isocast.runtime.market.nodes import Nodes, node_plans, read_nodes
from isocast.runtime.market.rules import advice, check_counts, check_market
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.instants import NEVER, SECOND
from isocast.terms.timing import PROFILES, Formula, Gate, Timing, release_delay, retry, seconds, token_period
from isocast.terms.toml_files import Faults, Values, read_tables, read_toml

__all__ = ["Reading", "load_market", "market_from_mapping", "open_market", "read_market", "remember_market"]

_BYTES_MAX = 4 << 20
"""Bounds: a table of 20 lines for each of 10,000 nodes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of a file."""

    market: Market | None
    """None when there are faults."""
    faults: tuple[ConfigurationError, ...] = ()
    warnings: tuple[str, ...] = ()
    """Each begins with its key."""


def open_market(given: str | Path | None = None, *, running: bool = True) -> Market:
    """The market that is meant, as `find_market` finds its file; ConfigurationError as there and for a wrong file."""
    return load_market(find_market(given, running=running))


def load_market(path: str | Path) -> Market:
    """The market of a file; ConfigurationError with its first fault, and how many more there are."""
    reading = read_market(path)
    if reading.market is not None:
        return reading.market
    first, *others = reading.faults
    if not others:
        raise first
    more = f"{first.rule} (and {len(others)} more: isocast config check {first.file})"
    raise ConfigurationError(first.file, first.key, more)


_remembered: dict[tuple[str, bytes], Reading] = {}
"""What a file was read as, by its name and content: of one file at most."""


def remember_market(path: Path) -> None:
    """Read a file once for this process and its forks; a process that finds it changed reads it anew."""
    _remembered.clear()
    with suppress(OSError):
        _remembered[str(path), path.read_bytes()] = read_market(path)


def read_market(path: str | Path) -> Reading:
    """The market of a file, or everything that is wrong with it."""
    file = str(path)
    if _remembered:
        with suppress(OSError):
            known = _remembered.get((file, Path(path).read_bytes()))
            if known is not None:
                return known
    try:
        mapping = read_toml(path, _BYTES_MAX)
    except ConfigurationError as error:
        return Reading(None, (error,))
    return market_from_mapping(mapping, file)


def market_from_mapping(mapping: Mapping[str, object], file: str = "<market>") -> Reading:
    """The market of a parsed file; `file` appears in errors, and directories count from where it is."""
    faults = Faults(file)
    tables = read_tables(mapping, SETTINGS, faults, ("nodes", "floor"))
    bound = _clock_bound_ns(tables["timing"], tables["clock"])
    known_bound = not faults.touch("clock.") and not faults.touch("timing.")
    stripes = tables["ring"].counts("stripes")
    _check_policy(tables, faults)
    _check_subscriptions(tables)
    _check_edge(tables["edge"], tables["network"].text("mode"))
    if list(stripes) != sorted(stripes):
        faults.add("ring.stripes", "must be ascending: the first keeps the plain names of the nodes")
    nodes = read_nodes(
        mapping.get("nodes", {}),
        () if faults.touch("ring.stripes") else stripes,
        bound if known_bound else NEVER,
        faults,
        tables["network"].count("stripe_ports"),
        tables["network"].count("slot"),
    )
    check_counts(nodes, faults)
    sources = [node.name for node in nodes.values() if node.role is NodeRole.PRIMARY_SOURCE]
    floors = read_floors(mapping.get("floor", {}), sources, stripes, faults)
    timing = None
    if known_bound and not faults.touch("nodes"):
        layers = max(node.layer for node in nodes.values())
        timing = _timing(tables["timing"], bound, _ring_size(nodes), layers, reveals=_discloses(tables, faults))
    if timing is None or faults:
        return Reading(None, tuple(faults))
    market = replace(_market(tables, nodes, timing, bound, file), floors=floors)
    check_market(market, faults)
    if faults:
        return Reading(None, tuple(faults))
    return Reading(market, (), _warnings(market, nodes))


def _check_subscriptions(tables: Mapping[str, Values]) -> None:
    """Rules of selling."""
    if tables["subscriptions"].flag("enabled") and not tables["security"].flag("signatures"):
        rule = "needs security.signatures = true: packages are signed under the market's root"
        tables["subscriptions"].fault("enabled", rule)


def _check_policy(tables: Mapping[str, Values], faults: Faults) -> None:
    """Rules of starting without a majority."""
    ring = tables["ring"]
    if ring.text("policy") == StartPolicy.AVAILABILITY and tables["timing"].text("gate") != Gate.MAJORITY:
        rule = 'goes with gate = "majority" only: any other releases without knowing whether a majority holds a message'
        faults.add("ring.policy", f'"availability" {rule}')


def _discloses(tables: Mapping[str, Values], faults: Faults) -> bool:
    """Whether sources disclose their keys, with the rules of that."""
    top, timing = tables[""], tables["timing"]
    if top.text("reveal") != Reveal.CHAIN:
        return False
    if not top.flag("seal"):
        faults.add("reveal", '"chain" needs seal = true: without a seal there is no key to disclose')
    if timing.text("gate") != Gate.MAJORITY:
        faults.add("reveal", '"chain" needs timing.gate = "majority": a source discloses when it has seen the receipts')
        return False
    if tables["ring"].text("policy") != StartPolicy.MAJORITY:
        faults.add("reveal", '"chain" needs ring.policy = "majority": without a majority no source discloses a key')
    if tables["security"].text("receipts") == "never":
        rule = 'must not be "never" with reveal = "chain": whoever forges receipts would see the keys early'
        tables["security"].fault("receipts", rule)
    return True


def _ring_size(nodes: Nodes) -> int:
    """Of the largest ring: all stripes have the same times, so that their releases are one market's."""
    stripes = {stripe for node in nodes.values() for stripe in node.stripes}
    return max(sum(node.layer == 1 and stripe in node.stripes for node in nodes.values()) for stripe in stripes)


def _market(tables: Mapping[str, Values], nodes: Nodes, timing: Timing, bound_ns: int, file: str) -> Market:
    top, ring, clock, journal = tables[""], tables["ring"], tables["clock"], tables["journal"]
    network = tables["network"]
    slot = network.count("slot")
    here = Path(file).parent
    stripes = ring.counts("stripes")
    return Market(
        name=top.text("name"),
        file=file,
        nodes=node_plans(nodes, stripes, bound_ns),
        timing=timing,
        data_directory=here / top.text("data"),
        keys_directory=here / top.text("keys"),
        profile=tables["timing"].text("profile"),
        seal=top.flag("seal"),
        reveal=Reveal(top.text("reveal")),
        dumpable=top.flag("dumpable"),
        durability=Durability(top.text("durability")),
        stripes=stripes,
        order=OrderRule(ring.text("order")),
        window=ring.count("window"),
        batch_max=ring.count("batch_max"),
        release_rate=ring.count("release_rate"),
        policy=StartPolicy(ring.text("policy")),
        start_wait_ns=ring.count("start_wait", 2 * timing.reformation_ns),
        network=network.into(NetworkSettings, port=network.count("port", GROUP_PORT + slot)),
        clock=clock.into(ClockSettings, bound_ns=bound_ns),
        log=tables["log"].into(StoreSettings, durability=top.text("durability")),
        journal=journal.into(
            JournalSettings,
            durability=top.text("durability"),
            keep_seconds=-(-journal.count("keep_time") // SECOND),
            release_delay_ns=timing.release_delay_ns,
        ),
        measurements=tables["measurements"].into(MeasurementSettings),
        impairment=tables["impairment"].into(Impairment),
        edge=_edge(tables["edge"], here, slot),
        guests=tables["guests"].into(GuestTable),
        security=tables["security"].into(SecuritySettings),
        subscriptions=tables["subscriptions"].into(
            SubscriptionTable, period_ns=tables["subscriptions"].count("period")
        ),
        coverage=tables["coverage"].into(CoverageTable),
        stripe_plan=here / ring.text("stripe_plan") if ring.text("stripe_plan") else None,
    )


def _edge(values: Values, here: Path, slot: int) -> EdgeTable | None:
    """The narrow stripes; None where there is no plan."""
    if not values.text("plan"):
        return None
    return values.into(
        EdgeTable,
        plan=here / values.text("plan"),
        plans=here / values.text("plans"),
        port=values.count("port", NARROW_PORT + slot),
    )


def _check_edge(values: Values, mode: str) -> None:
    if not values.text("plan"):
        return
    from isocast.terms.zones import zone_of  # noqa: PLC0415 - numpy comes with it, which most nodes do without

    try:
        zone_of(values.text("zone"))
    except ConfigurationError as reason:
        values.fault("zone", reason.rule)
    if mode == NetworkMode.FANOUT:
        values.fault("plan", 'narrow stripes are multicast: they need network.mode = "multicast"')


def _warnings(market: Market, nodes: Nodes) -> tuple[str, ...]:
    unnumbered = [node.name for node in nodes.values() if "number" not in node.values.given]
    return advice(market, unnumbered)


# ---- times: the profile's, what the file gives instead, and the formulas of `terms.timing` for the rest


def _clock_bound_ns(timing: Values, clock: Values) -> int:
    """ε: what the file says, or the profile's."""
    return clock.count("bound", PROFILES[timing.text("profile")].clock_error_ns)


def _timing(values: Values, error_ns: int, ring_size: int, layers: int, *, reveals: bool) -> Timing | None:
    """All times; None when a rule is broken, which is then among the faults. `reveals`: sources disclose keys."""
    profile = PROFILES[values.text("profile")]
    detect = values.count("detect", profile.detect_ns)
    if detect < 2 * error_ns:
        rule = f"δ_N must be at least 2ε = 2·{seconds(error_ns)} = {seconds(2 * error_ns)} s (ε is clock.bound)"
        values.fault("detect", f"{rule}, not {seconds(detect)} s")
        return None
    sets = values.count("nack_sets")
    if sets > max(ring_size - 1, 1):
        values.fault("nack_sets", f"k_p must be at most one less than primary receivers, {ring_size - 1}, not {sets}")
        return None
    try:
        first = Timing(
            detect_ns=detect,
            transmit_ns=values.count("transmit", profile.transmit_ns),
            process_ns=values.count("process", profile.process_ns),
            retries_max=values.count("retries_max", profile.retries_max),
            clock_error_ns=error_ns,
            ring_size=ring_size,
            gate=Gate(values.text("gate")),
            next_tokens=values.count("next_tokens"),
            nack_sets=sets,
            reveal_tokens=values.count("reveal_tokens") if reveals else 0,
        )
        return _given_times(values, _with_layers(values, first, profile.secondary_detect_ns, layers))
    except LocalProtocolError as error:
        # The rules above name the key; this one is for a rule that they do not know yet.
        values.fault(str(error).split(" ", 1)[0], str(error))
        return None


def _with_layers(values: Values, timing: Timing, detect_ns: int, layers: int) -> Timing:
    """What the layers below the primary ring need."""
    if layers == 1:
        for key in ("secondary_detect", "secondary_retry"):
            if key in values:
                values.fault(key, "needs a secondary receiver, and there is none: remove the key")
        return timing
    detect = values.count("secondary_detect", detect_ns)
    least = 2 * detect + timing.transmit_ns + timing.process_ns
    chosen = values.count("secondary_retry", least)
    if chosen < least:
        numbers = f"2·{seconds(detect)}+{seconds(timing.transmit_ns)}+{seconds(timing.process_ns)}"
        rule = f"τ_{{r,S}} must be at least 2δ_S+X+P = {numbers} = {seconds(least)} s, not {seconds(chosen)} s"
        values.fault("secondary_retry", rule)
    return replace(
        timing,
        secondary_detect_ns=detect,
        secondary_retry_ns=max(chosen, least),
        secondary_layers=layers - 1,
        release_delay_ns=0,
    )


def _given_times(values: Values, timing: Timing) -> Timing:
    """τ_r, τ_t and Δ_A as given, each judged after those that it rests on."""
    chosen = _at_least(values, "retry", timing.minimum_retry_ns, retry(timing))
    timing = replace(timing, retry_ns=chosen, token_period_ns=0, release_delay_ns=0)
    chosen = _at_least(values, "token_period", timing.recovery_ns, token_period(timing))
    timing = replace(timing, token_period_ns=chosen, release_delay_ns=0)
    chosen = _at_least(values, "release_delay", timing.minimum_release_delay_ns, release_delay(timing))
    return replace(timing, release_delay_ns=chosen)


def _at_least(values: Values, key: str, minimum_ns: int, formula: Formula) -> int:
    """The given time, or 0, which means: derive it. A fault that shows the formula for one that is too short."""
    given = values.count(key)
    if given and given < minimum_ns:
        values.fault(key, f"{formula.symbol} must be at least {formula} s, not {seconds(given)} s")
        return 0
    return given
