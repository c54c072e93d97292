"""What a planet is told: its network, its times, its customers, and how much of it is drawn."""

from __future__ import annotations

from dataclasses import dataclass, field

from isocast.reformation.scopes.world import Paths
from isocast.terms.instants import MILLISECOND
from isocast.terms.timing import Gate, Timing
from isocast.terms.topology import City

__all__ = ["PAPER_TIMES", "CoreSettings", "CustomerPlaces", "EdgeSettings", "PlanetWorld", "ReceiverPlaces"]

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
