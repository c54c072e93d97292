"""The settings of a market file that are no node's: network, clocks, journals, and what a demo injects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from isocast.wire.limits import STANDARD_MTU

__all__ = [
    "ClockSettings",
    "ClockSource",
    "DelayModel",
    "Durability",
    "Grade",
    "Impairment",
    "JournalSettings",
    "MeasurementSettings",
    "NetworkMode",
    "NetworkSettings",
]


class Grade(StrEnum):
    """The two grades of service (§4.2)."""

    COMPLETE = "complete"
    """Every message, repaired where a line lost it."""
    LATEST = "latest"
    """What is newest; a lost message is not worth waiting for."""


class NetworkMode(StrEnum):
    """How a packet reaches all members of a group."""

    MULTICAST = "multicast"
    FANOUT = "fanout"
    """By unicast to each, for networks without multicast."""


class Durability(StrEnum):
    """What a write survives before the effect that rests on it follows."""

    PROCESS = "process"
    """The end of the process: handed to the kernel."""
    POWER = "power"
    """The end of the power supply: on the disk."""

    @property
    def meaning(self) -> str:
        """In one line what survives under it, and what does not."""
        if self is Durability.POWER:
            return (
                "survives kill -9, and a power cut of any machine or of all: what was accepted, receipted or promised"
                " is on the disk first. Not the loss of a disk"
            )
        return (
            "survives kill -9 of any process, not a power cut or a crash of the kernel: then every receiver and"
            " reformation server of that machine has forgotten what it promised and must come back under a new number,"
            " and what its sources had accepted is in doubt"
        )


class ClockSource(StrEnum):
    """Whose word counts for the clock's error bound."""

    KERNEL = "kernel"
    """The kernel's estimate while it is synchronised; the configured bound while it is not."""
    CONFIGURED = "configured"
    """The configured bound, always."""


class DelayModel(StrEnum):
    """The delay that a demo puts between two nodes."""

    CITIES = "cities"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """How packets travel."""

    mode: NetworkMode = NetworkMode.MULTICAST
    groups: str = "239.255.77.0"
    """Data of stripe i is this + 2i, control this + 2i + 1."""
    lines: str = "239.255.78.0"
    """The line of site n is this + n, and `stripe_groups` further for each stripe."""
    repairs: str = "239.255.79.0"
    """The line of retransmit server n is this + n."""
    port: int = 7700
    """UDP port of every group."""
    ttl: int = 1
    source_specific: bool = False
    mtu: int = STANDARD_MTU
    stripe_ports: int = 100
    """Ports of a node's process in stripe i are this · i further, where it has no address of its own."""
    stripe_groups: int = 1_024
    """Lines of stripe i are this · i further."""
    receive_buffer: int = 4 << 20
    """Bytes that a socket asks the kernel for."""


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """What is known of the clocks."""

    bound_ns: int
    """ε: no clock of the market is further from true time."""
    source: ClockSource = ClockSource.KERNEL
    realtime: bool = True
    """Ask for a real-time priority (SCHED_FIFO) where the machine allows it."""


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How much of the past a receiver keeps."""

    segment_bytes: int = 64 << 20
    keep_bytes: int = 0
    """0: no limit by size."""
    keep_seconds: int = 0
    """0: no limit by age."""


@dataclass(frozen=True, slots=True)
class MeasurementSettings:
    """What a node writes down of its network, second by second."""

    keep_bytes: int = 32 << 20
    """0: nothing."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """Loss and delay that a demo injects on loopback; `enabled` is never true anywhere else."""

    enabled: bool = False
    loss: float = 0.0
    """Share of packets lost, for each destination alone."""
    jitter_ns: int = 0
    """Mean of an exponential delay on top."""
    delay: DelayModel = DelayModel.CITIES
    seed: int = 1
