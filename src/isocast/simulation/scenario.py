"""A scenario: everything about a simulated run but its seed, read from flat TOML, integer nanoseconds inside.

`scenario_keys` explains the keys. What is left out takes the paper's value or is derived by the formulas of
`terms.timing`; what the protocol does not allow raises `ConfigurationError`, which names file, key and rule.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path

from isocast.simulation.fault_plan import Fault, read_faults
from isocast.simulation.scenario_keys import KEYS_BY_NAME
from isocast.simulation.scenario_values import Values
from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND, to_seconds
from isocast.terms.timing import Gate, Timing
from isocast.terms.topology import PAPER_RING, City, city
from isocast.wire.limits import MAX_MESSAGES_PER_TOKEN

__all__ = ["Fault", "Scenario", "load_scenario", "scenario_from_mapping"]

_TRADERS = 2


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
    duplicate: float
    bandwidth_bps: int
    """0: no limit."""
    detect_ns: int
    transmit_ns: int
    process_ns: int
    retry_ns: int
    retries_max: int
    token_period_ns: int
    release_delay_ns: int
    clock_error_ns: int
    drift_ppm: int
    wake_lateness_ns: int
    gate: Gate
    next_tokens: int
    order_in_token: str
    """arrival or shuffle."""
    nack_sets: int
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
    faults: tuple[Fault, ...] = ()
    """In the order of the file."""

    @property
    def timing(self) -> Timing:
        """The ring's times, as the machines take them."""
        return Timing(
            detect_ns=self.detect_ns,
            transmit_ns=self.transmit_ns,
            process_ns=self.process_ns,
            retries_max=self.retries_max,
            clock_error_ns=self.clock_error_ns,
            ring_size=self.receivers,
            gate=self.gate,
            next_tokens=self.next_tokens,
            nack_sets=self.nack_sets,
            retry_ns=self.retry_ns,
            token_period_ns=self.token_period_ns,
            release_delay_ns=self.release_delay_ns,
        )

    @property
    def even_arrivals(self) -> bool:
        """Whether messages come at even distances (`messages_per_token`) and not as a Poisson process."""
        return self.messages_per_token > 0


def load_scenario(path: str | Path) -> Scenario:
    """The scenario of a file; ConfigurationError for one that cannot be read."""
    file = str(path)
    try:
        text = Path(path).read_bytes().decode()
        mapping = tomllib.loads(text)
    except OSError as error:
        raise ConfigurationError(file, "file", f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigurationError(file, f"line {line}", "TOML is UTF-8 text, and this is not") from error
    except tomllib.TOMLDecodeError as error:
        rule, place = _syntax_error(str(error), text)
        raise ConfigurationError(file, place, f"not valid TOML: {rule}") from error
    return scenario_from_mapping(mapping, file)


def _syntax_error(message: str, text: str) -> tuple[str, str]:
    """What is wrong, and the line; tomllib says both in one sentence."""
    rule, _, place = message.rstrip(")").partition(" (at ")
    if not place.startswith("line"):
        place = f"line {max(len(text.splitlines()), 1)}"
    return rule, place


def scenario_from_mapping(mapping: Mapping[str, object], file: str = "<scenario>") -> Scenario:
    """The scenario of a parsed file; `file` only appears in errors."""
    table = dict(mapping)
    faults = table.pop("faults", [])
    values = Values(table, KEYS_BY_NAME, file)
    ring, traders, exchange = _places(values)
    receivers = _receivers(values, ring, exchange)
    timing = _timing(values, receivers)
    arrivals = _arrivals(values, timing)
    _check_original(values)
    return Scenario(
        file=file,
        title=values.text("title", ""),
        seed=values.count("seed", 1),
        protocol=values.text("protocol", "timed"),
        receivers=receivers,
        messages=_messages(values, arrivals.rate),
        duration_ns=values.count("duration", 0),
        arrival_rate=arrivals.rate,
        messages_per_token=values.count("messages_per_token", 0),
        sources=arrivals.sources,
        burst=values.count("burst", 1),
        payload_bytes=values.count("payload_bytes", 96),
        one_way_delay_ns=values.count("one_way_delay", 50 * MILLISECOND),
        jitter_ns=values.count("jitter", 20 * MILLISECOND if exchange else 0),
        loss=values.number("loss", 0.0),
        loss_model=values.text("loss_model", "independent"),
        tree_branches=values.count("tree_branches", max(round(sqrt(receivers)), 1)),
        duplicate=values.number("duplicate", 0.0),
        bandwidth_bps=round(values.number("bandwidth", 0)),
        detect_ns=timing.detect_ns,
        transmit_ns=timing.transmit_ns,
        process_ns=timing.process_ns,
        retry_ns=timing.retry_ns,
        retries_max=timing.retries_max,
        token_period_ns=timing.token_period_ns,
        release_delay_ns=timing.release_delay_ns,
        clock_error_ns=timing.clock_error_ns,
        drift_ppm=values.count("drift_ppm", 0),
        wake_lateness_ns=values.count("wake_lateness", 0),
        gate=timing.gate,
        next_tokens=timing.next_tokens,
        order_in_token=values.text("order_in_token", "arrival"),
        nack_sets=timing.nack_sets,
        window=values.count("window", arrivals.window),
        batch_max=values.count("batch_max", MAX_MESSAGES_PER_TOKEN),
        release_rate=values.count("release_rate", 0),
        servers=values.count("servers", 2),
        token_ack_ns=values.count("token_ack", SECOND),
        token_resend_ns=values.count("token_resend", 1200 * MILLISECOND),
        source_resend_ns=values.count("source_resend", SECOND),
        nack_resend_ns=values.count("nack_resend", 250 * MILLISECOND),
        ring=ring,
        traders=traders,
        exchange=exchange,
        faults=read_faults(faults, file, ring, receivers, values.count("servers", 2), arrivals.sources),
    )
