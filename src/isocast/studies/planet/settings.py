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
from isocast.studies.coverage.world_file import LATITUDES, PATH_KEYS, check_land, named_cities
from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.terms.instants import MILLISECOND
from isocast.terms.quantities import duration_text
from isocast.terms.timing import Gate, Timing
from isocast.terms.toml_files import Faults, Key, Kind, Table, Values, read_tables, read_toml
from isocast.terms.topology import City

__all__ = [
    "DELAYS",
    "DISTANCES",
    "OFFSETS",
    "PAPER_TIMES",
    "Bins",
    "CoreSettings",
    "CountColumn",
    "CustomerPlaces",
    "EdgeTally",
    "PlanetEdgeSettings",
    "PlanetWorld",
    "ReceiverPlaces",
    "StreamPurpose",
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
class PlanetEdgeSettings:
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
    edge: PlanetEdgeSettings = PlanetEdgeSettings()
    paths: Paths = field(default_factory=Paths)
    file: str = "<world>"
    """Only appears in errors."""


# Chance by counter: every token and every server draws from a stream of its own.
#
# A stream is Philox with the key [what and which, run]. It depends on nothing else: not on how work is cut into parts,
# nor on who does which part, nor on what was drawn before.


_NUMBER_BITS = 48


class StreamPurpose(IntEnum):
    """What a stream is for."""

    PLACES = 1
    CUSTOMERS = 2
    TOKEN = 3
    SERVER = 4


def generator(run: int, purpose: StreamPurpose, number: int = 0) -> np.random.Generator:
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


# Counts that add up: whole numbers only, so that any order of adding gives the same bits.


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


DELAYS = Bins(low=-400e6, step=0.1e6, count=12_000)
"""Delivery after the common instant: tenths of a millisecond up to 0.8 s."""
OFFSETS = Bins(low=-400e6, step=0.05e6, count=16_000)
"""A receiver's release against the common instant: any clock error that δ_N = .375 allows."""
DISTANCES = Bins(low=0.0, step=1.0, count=4_000)
"""In km."""


class CountColumn(IntEnum):
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
    """A row for each server, a column for each `CountColumn`."""
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
        table = np.zeros((len(servers), len(CountColumn)), dtype=np.int64)
        return cls(servers, table, np.zeros(receivers, dtype=np.int64))

    def total(self, column: CountColumn) -> int:
        """Over all servers."""
        values = self.table[:, column]
        return (
            int(values.max(initial=0)) if column in (CountColumn.DELAY_MAX, CountColumn.WAVE_MAX) else int(values.sum())
        )

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


# A planet's file: TOML, every key optional; a wrong one is named with file, key and rule.


_BYTES_MAX = 1 << 20
_RECEIVERS_MAX, _CUSTOMERS_MAX = 200_000, 1_000_000_000
"""Bounds: the paper speaks of 100,000 receivers, and of tens of millions of customers."""
_TOKENS_MAX, _MESSAGES_MAX, _BATCH_MAX = 10_000_000, 1_000, 100_000
_LINES_MAX = 8
_KM_MAX = 20_040.0
"""Half-way round."""

_RECEIVERS, _CUSTOMERS, _CORE, _EDGE = ReceiverPlaces(), CustomerPlaces(), CoreSettings(), PlanetEdgeSettings()
_MODELS = ("independent", "tree")


def _time(name: str, meaning: str, usual_ns: float | None = None, otherwise: str = "") -> Key:
    return Key(name, Kind.TIME, meaning, None if usual_ns is None else duration_text(round(usual_ns)), otherwise)


_TABLES = (
    Table(
        "",
        "At the top of the file.",
        (
            Key("title", Kind.TEXT, "Shown above the tables.", ""),
            Key("seed", Kind.COUNT, "Of all that is drawn.", 1),
        ),
    ),
    Table(
        "receivers",
        "The trusted receivers, on land.",
        (
            Key("count", Kind.COUNT, "How many.", _RECEIVERS.count, minimum=2, maximum=_RECEIVERS_MAX),
            Key(
                "primaries",
                Kind.COUNT,
                "Of these on the ring; the others stand below the nearest of them.",
                otherwise=f"{_RECEIVERS.primaries}, or all of fewer",
                minimum=2,
                maximum=1_000,
            ),
            Key(
                "relax",
                Kind.COUNT,
                "Rounds in which each moves to the middle of its region.",
                _RECEIVERS.relax,
                maximum=100,
            ),
            LATITUDES,
        ),
    ),
    Table(
        "customers",
        "Where customers live.",
        (
            Key("count", Kind.COUNT, "How many.", _CUSTOMERS.count, minimum=1, maximum=_CUSTOMERS_MAX),
            Key("pattern", Kind.CHOICE, "Every square km alike, or cities.", "land", choices=("land", "cities")),
            Key("cities", Kind.CITIES, "Around which customers live.", otherwise="all that are known"),
            Key(
                "spread",
                Kind.NUMBER,
                "The standard deviation around a city.",
                _CUSTOMERS.spread_km,
                positive=True,
                unit="km",
            ),
            Key(
                "rural",
                Kind.NUMBER,
                "The share that lives anywhere on land.",
                _CUSTOMERS.rural,
                minimum=0.001,
                maximum=1,
            ),
            LATITUDES,
        ),
    ),
    Table("paths", "Delay by distance.", PATH_KEYS),
    Table(
        "times",
        "The paper's, unless given.",
        (
            _time("detect", "δ_N.", PAPER_TIMES.detect_ns),
            _time("transmit", "X.", PAPER_TIMES.transmit_ns),
            _time("process", "P.", PAPER_TIMES.process_ns),
            Key("retries_max", Kind.COUNT, "k_r.", PAPER_TIMES.retries_max, minimum=1, maximum=100),
            _time("clock_error", "ε.", PAPER_TIMES.clock_error_ns),
            Key(
                "gate",
                Kind.CHOICE,
                "What a release waits for; majority lengthens Δ_A.",
                Gate.TIMED,
                choices=(Gate.TIMED, Gate.MAJORITY),
            ),
            _time("retry", "τ_r.", otherwise="derived"),
            _time("token_period", "τ_t.", otherwise="derived"),
            _time("release_delay", "Δ_A.", otherwise="derived"),
            _time("secondary_detect", "δ_S.", otherwise="δ_N"),
            _time("secondary_retry", "τ_{r,S}.", otherwise="2δ_S+X+P"),
        ),
    ),
    Table(
        "core",
        "The ring and those below it.",
        (
            Key("batch", Kind.COUNT, "k: messages in a token.", _CORE.batch, maximum=_BATCH_MAX),
            Key("loss", Kind.PROBABILITY, "p, of each packet at each receiver.", _CORE.loss),
            Key("loss_model", Kind.CHOICE, "Where losses happen.", _MODELS[0], choices=_MODELS),
            Key("branches", Kind.COUNT, "Of the tree, at its root.", otherwise=f"{_CORE.branches}", minimum=1),
            _time("jitter", "Mean of an exponential delay on top of the distance's.", _CORE.jitter_ns),
            _time(
                "wake_lateness",
                "Mean of an exponential delay between the instant of a release and the release.",
                _CORE.wake_lateness_ns,
            ),
            Key("tokens", Kind.COUNT, "How many are drawn.", _CORE.tokens, minimum=1, maximum=_TOKENS_MAX),
            Key(
                "nack_sets",
                Kind.COUNT,
                "k_p of the comparison with NACK reduction; 1 for none.",
                otherwise=f"{_CORE.reduction_sets}",
                minimum=1,
                maximum=1_000,
            ),
        ),
    ),
    Table(
        "edge",
        "From the receivers to the customers.",
        (
            Key(
                "lines",
                Kind.COUNT,
                "Receivers that a customer listens to.",
                _EDGE.lines,
                minimum=1,
                maximum=_LINES_MAX,
            ),
            Key(
                "reach",
                Kind.NUMBER,
                "How far a line is heard.",
                otherwise="the grid's radius for two lines",
                minimum=0.1,
                maximum=_KM_MAX,
                unit="km",
            ),
            Key("loss", Kind.PROBABILITY, "Of each copy at each customer.", _EDGE.loss),
            Key("loss_model", Kind.CHOICE, "Where losses happen.", _MODELS[0], choices=_MODELS),
            _time("jitter", "Mean of an exponential delay on top of the distance's.", _EDGE.jitter_ns),
            _time("patience", "How long a gap may last before a customer asks.", _EDGE.patience_ns),
            _time("retry", "Between two requests.", _EDGE.retry_ns),
            Key("retries_max", Kind.COUNT, "How many requests.", _EDGE.retries_max, maximum=100),
            _time("deadline", "After the common instant of release.", _EDGE.deadline_ns),
            Key(
                "messages",
                Kind.COUNT,
                "How many are followed to every customer, each of a token of its own.",
                _EDGE.messages,
                minimum=1,
                maximum=_MESSAGES_MAX,
            ),
        ),
    ),
)


def load_planet(path: str | Path) -> PlanetWorld:
    """The world of a file; ConfigurationError for one that cannot be read."""
    return planet_from_mapping(read_toml(path, _BYTES_MAX), str(path))


def planet_from_mapping(mapping: Mapping[str, object], file: str = "<world>") -> PlanetWorld:
    """The world of a parsed file; `file` only appears in errors."""
    if "scopes" in mapping or "receiver" in mapping or "addresses" in mapping:
        raise ConfigurationError(file, "file", "is a world of `isocast plan coverage`; see worlds/planet.toml for one")
    tables = read_tables(mapping, _TABLES, Faults(file, collect=False))
    receivers = _receivers(tables["receivers"])
    secondaries = receivers.count > receivers.primaries
    timing = _times(tables["times"], receivers.primaries, secondaries=secondaries)
    return tables[""].into(
        PlanetWorld,
        receivers=receivers,
        customers=_customers(tables["customers"]),
        core=_core(tables["core"], timing, receivers.primaries),
        edge=_edge(tables["edge"], receivers),
        paths=tables["paths"].into(Paths),
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


def _receivers(values: Values) -> ReceiverPlaces:
    count = values.count("count")
    primaries = values.count("primaries", min(_RECEIVERS.primaries, count))
    if primaries > count:
        raise values.error("primaries", f"must not be more than count, {count:,}")
    south, north = check_land(values)
    return values.into(ReceiverPlaces, primaries=primaries, south=south, north=north)


def _customers(values: Values) -> CustomerPlaces:
    by_cities = values.text("pattern") == "cities"
    for key in ("cities", "spread", "rural"):
        if key in values and not by_cities:
            raise values.error(key, 'means nothing with pattern = "land"')
    south, north = check_land(values)
    cities = named_cities(values) if by_cities else ()
    return values.into(CustomerPlaces, cities=cities, south=south, north=north)


def _times(values: Values, ring_size: int, *, secondaries: bool) -> Timing:
    """As the protocol derives them; what is left out is the paper's, or follows."""
    detect = values.count("detect")
    secondary_detect = values.count("secondary_detect", detect) if secondaries else 0
    least = 2 * secondary_detect + values.count("transmit") + values.count("process")
    for key in ("secondary_detect", "secondary_retry"):
        if key in values and not secondaries:
            raise values.error(key, "means nothing where all receivers are on the ring")
    secondary_retry = values.count("secondary_retry", least) if secondaries else 0
    if secondary_retry < least and secondaries:
        raise values.error("secondary_retry", f"τ_{{r,S}} must be at least 2δ_S+X+P = {least / 1e9:g} s")
    try:
        return values.into(
            Timing,
            ring_size=ring_size,
            secondary_detect_ns=secondary_detect,
            secondary_retry_ns=secondary_retry,
        )
    except LocalProtocolError as error:
        key, _, rule = str(error).partition(" ")
        raise values.error(key, rule) from error


def _core(values: Values, timing: Timing, primaries: int) -> CoreSettings:
    most = max(primaries - 1, 1)
    sets = values.count("nack_sets", min(_CORE.reduction_sets, most))
    if sets > most:
        raise values.error("nack_sets", f"k_p must be at most primaries-1 = {primaries - 1}, not {sets}")
    branches = values.count("branches", min(_CORE.branches, primaries))
    if branches > primaries:
        raise values.error("branches", f"must be from 1 to {primaries:,}, as many as primaries, not {branches:,}")
    tree = values.text("loss_model") == "tree"
    return values.into(CoreSettings, timing=timing, tree=tree, branches=branches, reduction_sets=sets)


def _edge(values: Values, receivers: ReceiverPlaces) -> PlanetEdgeSettings:
    lines = values.count("lines")
    if lines > receivers.count:
        raise values.error("lines", f"must not be more than receivers, {receivers.count:,}")
    # How far the k-th nearest receiver of a hexagonal grid is at most: what an even spread comes close to.
    grid = HexagonalBounds(receivers.count, land_area_km2(receivers.south, receivers.north), lines)
    reach = values.number("reach", grid.radius_km(max(lines, 2)))
    return values.into(PlanetEdgeSettings, reach_km=reach, tree=values.text("loss_model") == "tree")
