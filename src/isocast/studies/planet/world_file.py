"""A planet's file: TOML, every key optional; a wrong one is named with file, key and rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from isocast.reformation.scopes.bounds import HexagonalBounds
from isocast.reformation.scopes.world import Paths
from isocast.studies.coverage.land import land_area_km2
from isocast.studies.coverage.world_values import Table, read_toml
from isocast.studies.planet.settings import (
    PAPER_TIMES,
    CoreSettings,
    CustomerPlaces,
    EdgeSettings,
    PlanetWorld,
    ReceiverPlaces,
)
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.timing import Gate, Timing

__all__ = ["load_planet", "planet_from_mapping", "with_counts"]

_BYTES_MAX = 1 << 20
_RECEIVERS_MAX, _CUSTOMERS_MAX = 200_000, 1_000_000_000
"""Bounds: the paper speaks of 100,000 receivers, and of tens of millions of customers."""
_TOKENS_MAX, _MESSAGES_MAX, _BATCH_MAX = 10_000_000, 1_000, 100_000
_LINES_MAX = 8
_KM_MAX = 20_040.0
"""Half-way round."""

_TOP = ("title", "seed", "receivers", "customers", "paths", "times", "core", "edge")
_RECEIVERS = ("count", "primaries", "relax", "latitudes")
_CUSTOMERS = ("count", "pattern", "cities", "spread", "rural", "latitudes")
_PATHS = ("km_per_ms", "km_per_hop", "hop")
_TIMES = ("detect", "transmit", "process", "retries_max", "clock_error", "gate", "retry", "token_period",
          "release_delay", "secondary_detect", "secondary_retry")  # fmt: skip
_CORE = ("batch", "loss", "loss_model", "branches", "jitter", "wake_lateness", "tokens", "nack_sets")
_EDGE = ("lines", "reach", "loss", "loss_model", "jitter", "patience", "retry", "retries_max", "deadline", "messages")
_MODELS = ("independent", "tree")


def load_planet(path: str | Path) -> PlanetWorld:
    """The world of a file; ConfigurationError for one that cannot be read."""
    return planet_from_mapping(read_toml(path, _BYTES_MAX), str(path))


def planet_from_mapping(mapping: Mapping[str, object], file: str = "<world>") -> PlanetWorld:
    """The world of a parsed file; `file` only appears in errors."""
    if "scopes" in mapping or "receiver" in mapping or "addresses" in mapping:
        raise ConfigurationError(file, "file", "is a world of `isocast plan coverage`; see worlds/planet.toml for one")
    top = Table(mapping, _TOP, file)
    receivers = _receivers(Table(top.part("receivers"), _RECEIVERS, file, "receivers."))
    secondaries = receivers.count > receivers.primaries
    timing = _times(Table(top.part("times"), _TIMES, file, "times."), receivers.primaries, secondaries=secondaries)
    return PlanetWorld(
        title=top.text("title"),
        seed=top.count("seed", 1, 0, 2**63 - 1),
        receivers=receivers,
        customers=_customers(Table(top.part("customers"), _CUSTOMERS, file, "customers.")),
        core=_core(Table(top.part("core"), _CORE, file, "core."), timing, receivers.primaries),
        edge=_edge(Table(top.part("edge"), _EDGE, file, "edge."), receivers),
        paths=_paths(Table(top.part("paths"), _PATHS, file, "paths.")),
        file=file,
    )


def with_counts(
    world: PlanetWorld, *, receivers: int | None, customers: int | None, tokens: int | None, seed: int | None
) -> PlanetWorld:
    """The same world at another size: primaries and reach follow the receivers."""
    if receivers is not None and receivers != world.receivers.count:
        old = world.receivers
        share = old.primaries / old.count
        primaries = min(max(round(share * receivers), 2), receivers)
        reach = world.edge.reach_km * (old.count / receivers) ** 0.5
        core = replace(world.core, branches=min(world.core.branches, primaries),
                       reduction_sets=min(world.core.reduction_sets, primaries - 1))  # fmt: skip
        world = replace(
            world,
            receivers=replace(old, count=receivers, primaries=primaries),
            edge=replace(world.edge, reach_km=min(reach, _KM_MAX)),
            core=core,
        )
    if customers is not None:
        world = replace(world, customers=replace(world.customers, count=customers))
    if tokens is not None:
        world = replace(world, core=replace(world.core, tokens=tokens))
    return world if seed is None else replace(world, seed=seed)


def _receivers(table: Table) -> ReceiverPlaces:
    usual = ReceiverPlaces()
    count = table.count("count", usual.count, 2, _RECEIVERS_MAX)
    primaries = table.count("primaries", min(usual.primaries, count), 2, 1_000)
    if primaries > count:
        raise table.error("primaries", f"must not be more than count, {count:,}")
    south, north = _latitudes(table)
    return ReceiverPlaces(count, primaries, table.count("relax", usual.relax, 0, 100), south, north)


def _latitudes(table: Table) -> tuple[float, float]:
    south, north = table.span("latitudes", (-90.0, 90.0), -90.0, 90.0)
    if land_area_km2(south, north) == 0:
        raise table.error("latitudes", f"there is no land between {south:g} and {north:g} degrees")
    return south, north


def _customers(table: Table) -> CustomerPlaces:
    usual = CustomerPlaces()
    by_cities = table.choice("pattern", ("land", "cities"), "land") == "cities"
    for key in ("cities", "spread", "rural"):
        if key in table and not by_cities:
            raise table.error(key, 'means nothing with pattern = "land"')
    south, north = _latitudes(table)
    return CustomerPlaces(
        table.count("count", usual.count, 1, _CUSTOMERS_MAX),
        table.cities("cities") if by_cities else (),
        table.length("spread", usual.spread_km),
        table.number("rural", usual.rural, 0.001, 1.0),
        south,
        north,
    )


def _paths(table: Table) -> Paths:
    usual = Paths()
    return Paths(
        km_per_ms=table.length("km_per_ms", usual.km_per_ms),
        km_per_hop=table.length("km_per_hop", usual.km_per_hop),
        hop_ns=table.duration("hop", usual.hop_ns),
    )


def _times(table: Table, ring_size: int, *, secondaries: bool) -> Timing:
    """As the protocol derives them; what is left out is the paper's, or follows."""
    usual = PAPER_TIMES
    detect = table.duration("detect", usual.detect_ns)
    transmit, process = table.duration("transmit", 0), table.duration("process", usual.process_ns)
    secondary_detect = table.duration("secondary_detect", detect) if secondaries else 0
    least = 2 * secondary_detect + transmit + process
    for key in ("secondary_detect", "secondary_retry"):
        if key in table and not secondaries:
            raise table.error(key, "means nothing where all receivers are on the ring")
    secondary_retry = table.duration("secondary_retry", least) if secondaries else 0
    if secondary_retry < least and secondaries:
        raise table.error("secondary_retry", f"τ_{{r,S}} must be at least 2δ_S+X+P = {least / 1e9:g} s")
    try:
        return Timing(
            detect_ns=detect,
            transmit_ns=transmit,
            process_ns=process,
            retries_max=table.count("retries_max", usual.retries_max, 1, 100),
            clock_error_ns=table.duration("clock_error", 0),
            ring_size=ring_size,
            gate=Gate(table.choice("gate", (Gate.TIMED.value, Gate.MAJORITY.value), Gate.TIMED.value)),
            secondary_detect_ns=secondary_detect,
            secondary_retry_ns=secondary_retry,
            retry_ns=table.duration("retry", 0),
            token_period_ns=table.duration("token_period", 0),
            release_delay_ns=table.duration("release_delay", 0),
        )
    except LocalProtocolError as error:
        key, _, rule = str(error).partition(" ")
        raise table.error(key, rule) from error


def _core(table: Table, timing: Timing, primaries: int) -> CoreSettings:
    usual = CoreSettings()
    sets = table.count("nack_sets", min(usual.reduction_sets, max(primaries - 1, 1)), 1, 1_000)
    if sets > max(primaries - 1, 1):
        raise table.error("nack_sets", f"k_p must be at most primaries-1 = {primaries - 1}, not {sets}")
    return CoreSettings(
        timing,
        table.count("batch", usual.batch, 0, _BATCH_MAX),
        table.probability("loss", usual.loss),
        table.choice("loss_model", _MODELS, _MODELS[0]) == "tree",
        table.count("branches", min(usual.branches, primaries), 1, primaries),
        table.duration("jitter", round(usual.jitter_ns)),
        table.duration("wake_lateness", 0),
        table.count("tokens", usual.tokens, 1, _TOKENS_MAX),
        sets,
    )


def _edge(table: Table, receivers: ReceiverPlaces) -> EdgeSettings:
    usual = EdgeSettings()
    lines = table.count("lines", usual.lines, 1, _LINES_MAX)
    if lines > receivers.count:
        raise table.error("lines", f"must not be more than receivers, {receivers.count:,}")
    # How far the k-th nearest receiver of a hexagonal grid is at most: what an even spread comes close to.
    grid = HexagonalBounds(receivers.count, land_area_km2(receivers.south, receivers.north), lines)
    return EdgeSettings(
        lines,
        table.number("reach", grid.radius_km(max(lines, 2)), 0.1, _KM_MAX),
        table.probability("loss", usual.loss),
        table.choice("loss_model", _MODELS, _MODELS[0]) == "tree",
        table.duration("jitter", round(usual.jitter_ns)),
        table.duration("patience", round(usual.patience_ns)),
        table.duration("retry", round(usual.retry_ns)),
        table.count("retries_max", usual.retries_max, 0, 100),
        table.duration("deadline", round(usual.deadline_ns)),
        table.count("messages", usual.messages, 1, _MESSAGES_MAX),
    )
