"""What a planet is told, by a file or by default; its streams of chance, and counts that add up in any order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from math import sqrt
from pathlib import Path

import numpy as np

from isocast.reformation.scopes.plan import HexagonalBounds
from isocast.reformation.scopes.world import Floats, Ints, Paths
from isocast.studies.coverage.land import land_area_km2
from isocast.studies.coverage.world_file import Table, read_toml
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.instants import MILLISECOND
from isocast.terms.timing import Gate, Timing
from isocast.terms.topology import City

__all__ = [
    "DELAYS",
    "DISTANCES",
    "OFFSETS",
    "PAPER_TIMES",
    "Bins",
    "Column",
    "CoreSettings",
    "CustomerPlaces",
    "EdgeSettings",
    "EdgeTally",
    "PlanetWorld",
    "Purpose",
    "ReceiverPlaces",
    "generator",
    "load_planet",
    "lost_places",
    "planet_from_mapping",
    "with_counts",
]


PAPER_TIMES = Timing(
    detect_ns=375 * MILLISECOND, process_ns=50 * MILLISECOND, retries_max=3, gate=Gate.TIMED
)  # fmt: skip
"""§5.1: τ_r = 0.8 s and τ_t = 2.775 s."""


@dataclass(frozen=True, slots=True)
class ReceiverPlaces:
    """The trusted receivers: R_P and R_S together."""

    count: int = 10_000
    primaries: int = 100
    """M, those on the ring; everybody else stands below the nearest of them."""
    relax: int = 8
    """Rounds in which each moves to the middle of its region."""
    south: float = -90.0
    north: float = 90.0


@dataclass(frozen=True, slots=True)
class CustomerPlaces:
    """Where customers live: on all land alike, or around cities."""

    count: int = 10_000_000
    cities: tuple[City, ...] = ()
    """Empty: every square km of land alike."""
    spread_km: float = 150.0
    rural: float = 0.2
    """The share that lives anywhere on land, and not around a city."""
    south: float = -90.0
    north: float = 90.0


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """The ring and those below it."""

    timing: Timing = PAPER_TIMES
    batch: int = 30
    """k: messages in each token."""
    loss: float = 0.01
    """p: of each packet at each destination."""
    tree: bool = False
    """Losses happen on the branches of a tree, and hit everybody behind."""
    branches: int = 10
    """Of the tree, at its root: contiguous blocks of the ring, and all below them."""
    jitter_ns: float = 5 * MILLISECOND
    """Mean of an exponential delay on top of the distance's."""
    wake_lateness_ns: float = 0.0
    """Mean of an exponential delay between the instant of a release and the release."""
    tokens: int = 200
    """How many are drawn."""
    reduction_sets: int = 4
    """k_p of the comparison with NACK reduction; 1 for none."""


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """From the receivers to the customers."""

    lines: int = 2
    """Receivers that a customer listens to, the nearest ones within reach."""
    reach_km: float = 130.6
    """How far a line is heard."""
    loss: float = 0.01
    tree: bool = False
    """Half of the loss is on the way to a neighbourhood, and hits all of it."""
    jitter_ns: float = 2 * MILLISECOND
    patience_ns: float = 50 * MILLISECOND
    """How long a gap may last before it is no mere difference between lines."""
    retry_ns: float = 100 * MILLISECOND
    retries_max: int = 4
    deadline_ns: float = 50 * MILLISECOND
    """After the common instant of release: by then a message should be there."""
    messages: int = 4
    """How many are followed to every customer, each of a token of its own."""


@dataclass(frozen=True, slots=True)
class PlanetWorld:
    """All of it; one run is a function of this alone."""

    title: str = ""
    seed: int = 1
    receivers: ReceiverPlaces = ReceiverPlaces()
    customers: CustomerPlaces = CustomerPlaces()
    core: CoreSettings = CoreSettings()
    edge: EdgeSettings = EdgeSettings()
    paths: Paths = field(default_factory=Paths)
    file: str = "<world>"
    """Only appears in errors."""


# ---- Chance by counter: every token and every server draws from a stream of its own.
#
# A stream is Philox with the key [what and which, run]. It depends on nothing else: not on how work is cut into parts,
# nor on who does which part, nor on what was drawn before.


_NUMBER_BITS = 48


class Purpose(IntEnum):
    """What a stream is for."""

    PLACES = 1
    CUSTOMERS = 2
    TOKEN = 3
    SERVER = 4


def generator(run: int, purpose: Purpose, number: int = 0) -> np.random.Generator:
    """The stream of one token, or of one server, in one run."""
    return np.random.Generator(np.random.Philox(key=np.array([purpose << _NUMBER_BITS | number, run], dtype=np.uint64)))


def lost_places(random: np.random.Generator, total: int, loss: float) -> Ints:
    """Which of `total` packets are lost, each alone with this probability: ascending.

    The gaps between losses are drawn, not the packets: cheap where little is lost.
    """
    if loss <= 0 or total <= 0:
        return np.zeros(0, dtype=np.int64)
    if loss >= 1:
        return np.arange(total, dtype=np.int64)
    expected = total * loss
    batch = int(expected + 4 * sqrt(expected)) + 8
    parts, last = [], -1
    while last < total:
        # A gap beyond the end is as good as one right there, and sums of such cannot overflow.
        gaps = np.minimum(random.geometric(loss, batch), total + 1)
        places = last + np.cumsum(gaps)
        parts.append(places)
        last = int(places[-1])
    found = np.concatenate(parts) if len(parts) > 1 else parts[0]
    return found[: int(np.searchsorted(found, total))]


# ---- Counts that add up: whole numbers only, so that any order of adding gives the same bits.


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal steps from `low` on; what lies below or above is counted in the first or the last."""

    low: float
    step: float
    count: int

    def tally(self, values: Floats) -> Ints:
        """How many values fall into each bin."""
        places = np.clip(np.floor((values - self.low) / self.step), 0, self.count - 1).astype(np.int64)
        return np.bincount(places, minlength=self.count)

    def quantile(self, counts: Ints, share: float) -> float:
        """The upper end of the bin in which a share of all values is reached; nan for none."""
        total = int(counts.sum())
        if not total:
            return float("nan")
        wanted = max(int(np.ceil(share * total)), 1)
        return self.low + (int(np.searchsorted(np.cumsum(counts), wanted)) + 1) * self.step

    def middles(self) -> Floats:
        """Of all bins, for plots."""
        middles: Floats = self.low + (np.arange(self.count, dtype=np.float64) + 0.5) * self.step
        return middles


DELAYS = Bins(low=-400e6, step=0.1e6, count=12_000)
"""Delivery after the common instant: tenths of a millisecond up to 0.8 s."""
OFFSETS = Bins(low=-400e6, step=0.05e6, count=16_000)
"""A receiver's release against the common instant: any clock error that δ_N = .375 allows."""
DISTANCES = Bins(low=0.0, step=1.0, count=4_000)
"""In km."""


class Column(IntEnum):
    """What is counted for each server, over its customers and all messages."""

    CUSTOMERS = 0
    HEAR_NONE = 1
    HEAR_ONE = 2
    HEAR_TWO = 3
    """Or more."""
    EXPECTED = 4
    """Deliveries that there should be: messages times customers who hear a line."""
    LOST_NEAREST = 5
    """Copies of the nearest line that did not come."""
    LOST_ALL = 6
    """Messages of which no line brought a copy."""
    REQUESTS = 7
    """RXREQ that the server was sent."""
    REPAIRS = 8
    """Messages that the server multicast again."""
    REPAIRED = 9
    NEVER = 10
    """Messages that a customer had not got after k_r requests."""
    IN_TIME = 11
    """Deliveries by the deadline."""
    IN_TIME_DIRECT = 12
    """Of these, by the lines themselves."""
    EXPECTED_DIRECT = 13
    """What the formula expects for the row above, in millionths."""
    DELAY_SUM = 14
    """Of all deliveries, in ns after the common instant."""
    DELAY_MAX = 15
    """Not added: the greatest."""
    WAVE_MAX = 16
    """The most requests for one message. Not added: the greatest."""


@dataclass(eq=False)
class EdgeTally:
    """The counts of some servers, and the distributions over all their customers."""

    servers: Ints
    table: Ints
    """A row for each server, a column for each `Column`."""
    listeners: Ints
    """Customers who hear the line of each receiver of the planet."""
    delays: Ints = field(default_factory=lambda: np.zeros(DELAYS.count, dtype=np.int64))
    nearest: Ints = field(default_factory=lambda: np.zeros(DISTANCES.count, dtype=np.int64))
    """How far customers are from the nearest receiver, heard or not ..."""
    second: Ints = field(default_factory=lambda: np.zeros(DISTANCES.count, dtype=np.int64))
    """... and from the second nearest."""

    @classmethod
    def empty(cls, servers: Ints, receivers: int) -> EdgeTally:
        """Nothing counted yet."""
        table = np.zeros((len(servers), len(Column)), dtype=np.int64)
        return cls(servers, table, np.zeros(receivers, dtype=np.int64))

    def total(self, column: Column) -> int:
        """Over all servers."""
        values = self.table[:, column]
        return int(values.max(initial=0)) if column in (Column.DELAY_MAX, Column.WAVE_MAX) else int(values.sum())

    def add(self, other: EdgeTally) -> EdgeTally:
        """Both together, servers in the order of their numbers."""
        servers = np.concatenate((self.servers, other.servers))
        order = np.argsort(servers, kind="stable")
        return EdgeTally(
            servers[order],
            np.concatenate((self.table, other.table))[order],
            self.listeners + other.listeners,
            self.delays + other.delays,
            self.nearest + other.nearest,
            self.second + other.second,
        )


# ---- A planet's file: TOML, every key optional; a wrong one is named with file, key and rule.


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
