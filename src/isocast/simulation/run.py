"""One run of a scenario, of either protocol or of a central exchange (§7.2), and its report."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from isocast.simulation.network import stream
from isocast.simulation.original import OriginalParameters, run_original
from isocast.simulation.scenario import Scenario
from isocast.simulation.timed import TimedRun
from isocast.terms.instants import SECOND, to_seconds
from isocast.terms.topology import delay_ns
from isocast.wire.packets import Nack, Receipt, Repair

if TYPE_CHECKING:
    from collections.abc import Callable

    from isocast.checks.facts import Fact

__all__ = ["ExchangeResult", "RunReport", "run_exchange", "run_scenario"]


# A central exchange instead of a ring: whoever's packet arrives first is first (§7.2's comparison).


class ExchangeResult:
    """How often each trader was first, and how long an order took."""

    def __init__(self, cities: tuple[str, ...]) -> None:
        """No orders yet."""
        self.wins = dict.fromkeys(cities, 0)
        self.pairs = 0
        self.messages = 0
        self.latency_ns = 0
        self.trace_digest = ""


def run_exchange(scenario: Scenario, seed: int) -> ExchangeResult:
    """Pairs of orders decided at one instant, each on its own way to the exchange.

    A lost order is sent again after the source's resend time, which is the second disadvantage of distance
    that §7.2 names; a tie goes to the first-named trader.
    """
    if scenario.exchange is None:
        raise ValueError("not a scenario with a central exchange")
    result = ExchangeResult(tuple([trader.name for trader in scenario.traders]))
    ways = [
        (trader.name, delay_ns(trader, scenario.exchange), stream(seed, trader.name, "way"))
        for trader in scenario.traders
    ]
    arrivals = stream(seed, "arrivals")
    digest = blake2b(digest_size=16)
    now = 0
    for _ in range(scenario.messages // 2):
        now += round(arrivals.expovariate(scenario.arrival_rate / 2 / SECOND))
        if scenario.duration_ns and now > scenario.duration_ns:
            break
        best: tuple[int, str] | None = None
        for name, delay, random in ways:
            taken = delay + (round(random.expovariate(1 / scenario.jitter_ns)) if scenario.jitter_ns else 0)
            while scenario.loss and random.random() < scenario.loss:
                taken += scenario.source_resend_ns
            result.latency_ns += taken
            digest.update(b"%d %d" % (now, taken))
            if best is None or taken < best[0]:
                best = (taken, name)
        if best is not None:
            result.wins[best[1]] += 1
        result.pairs += 1
    result.messages = 2 * result.pairs
    result.trace_digest = digest.hexdigest()
    return result


@dataclass(frozen=True)
class RunReport:
    """The figures of one run; `isocast sim keys` explains what goes in, this is what comes out."""

    seed: int
    trace_digest: str
    protocol: str
    receivers: int
    messages: int
    tokens: int
    control_per_message: float
    """timed: tokens, NACKs and repairs; original: ACKs, TOKACKs, NACKs and repairs."""
    nacks_per_token: float
    repairs_per_token: float
    receipts_per_token: float
    nacks_per_loss_p99: float
    """NACKs of all receivers per lost multicast packet."""
    false_reformations_per_token: float
    """Tokens that some live receiver gave up on although nothing had failed."""
    latency_s_mean: float
    """Submit to release; original: submit to acknowledgement."""
    release_skew_ns_max: int
    fairness_faults: int
    first_wins: dict[str, float] = field(default_factory=dict)
    """Share of simultaneous pairs won, by trader's city."""
    rings: int = 0
    """Rings formed, the first included."""
    rejected: int = 0
    """Submissions refused because a source's window was full."""
    deliveries: int = 0
    """Packets delivered by the network, summed over destinations."""
    secondaries: int = 0
    """Secondary receivers below the ring."""
    unanswered: int = 0
    """How often somebody whom a secondary receiver asked stayed silent k_r times."""
    stalled: int = 0
    """How often the head of a secondary group gave a member up."""
    last_requests: int = 0
    """How often a receiver asked for a token for the k_r-th time."""
    false_reformations_weighed_per_token: float | None = None
    """The same as false_reformations_per_token, but from the chance of each last request to fail by independent losses:
    far steadier where they are rare. None with faults or NACK sets, where losses do not decide alone."""
    divergent: int = 0
    """Sequences at which two sites released two messages, where a ring without a majority of U is allowed."""
    violations: list[str] = field(default_factory=list)
    """Empty when safe."""

    def as_json(self) -> dict[str, object]:
        """One object, names as here."""
        return asdict(self)


def run_scenario(scenario: Scenario, seed: int, transcript: Callable[[Fact], None] | None = None) -> RunReport:
    """Run to the end; the report is a function of scenario and seed alone."""
    if scenario.exchange is not None:
        return _exchange(scenario, seed)
    if scenario.protocol == "original":
        return _original(scenario, seed)
    return _timed(scenario, seed, transcript)


def _timed(scenario: Scenario, seed: int, transcript: Callable[[Fact], None] | None) -> RunReport:
    run = TimedRun(scenario, seed, transcript=transcript)
    run.run()
    recorder, figures = run.recorder, run.figures
    tokens, requests = max(figures.tokens, 1), run.last_requests
    return RunReport(
        seed=seed,
        trace_digest=recorder.trace_digest,
        protocol=scenario.protocol,
        receivers=scenario.receivers,
        messages=recorder.messages,
        tokens=recorder.tokens,
        control_per_message=(figures.tokens + figures.sent[Nack] + figures.sent[Repair]) / max(figures.submitted, 1),
        nacks_per_token=figures.sent[Nack] / tokens,
        repairs_per_token=figures.sent[Repair] / tokens,
        receipts_per_token=figures.sent[Receipt] / tokens,
        nacks_per_loss_p99=recorder.losses.quantile(0.99),
        false_reformations_per_token=figures.false_reformations / tokens,
        latency_s_mean=recorder.latency_ns / max(recorder.releases, 1) / 1e9,
        release_skew_ns_max=run.skew_ns(),
        fairness_faults=recorder.fairness_faults,
        first_wins=run.pairs.shares() if run.pairs else {},
        rings=recorder.rings,
        rejected=recorder.rejected,
        deliveries=run.world.network.deliveries,
        secondaries=len(scenario.tree.secondary_sites),
        unanswered=recorder.unanswered,
        stalled=recorder.stalled,
        last_requests=requests.count if requests else 0,
        false_reformations_weighed_per_token=requests.failing / tokens if requests else None,
        divergent=run.suite.divergent,
        violations=run.violations(),
    )


def _original(scenario: Scenario, seed: int) -> RunReport:
    result = run_original(
        OriginalParameters(
            seed=seed,
            receivers=scenario.receivers,
            messages=scenario.messages,
            loss=scenario.loss,
            tree=scenario.loss_model == "tree",
            one_way_delay_ns=scenario.one_way_delay_ns,
            jitter_ns=scenario.jitter_ns,
            arrival_rate=scenario.arrival_rate,
            token_ack_ns=scenario.token_ack_ns,
            token_resend_ns=scenario.token_resend_ns,
            source_resend_ns=scenario.source_resend_ns,
            nack_resend_ns=scenario.nack_resend_ns,
            retries_max=scenario.timing.retries_max,
            sources=scenario.sources,
            tree_branches=scenario.tree_branches,
            duplicate=scenario.duplicate,
            duration_ns=scenario.duration_ns,
            delays_ns=tuple([tuple([delay_ns(a, b) for b in scenario.ring]) for a in scenario.ring]),
        )
    )
    return RunReport(
        seed=seed,
        trace_digest=result.trace_digest,
        protocol=scenario.protocol,
        receivers=scenario.receivers,
        messages=result.messages,
        tokens=result.messages,
        control_per_message=result.control_per_message,
        nacks_per_token=result.nacks_per_ack,
        repairs_per_token=result.repairs_per_ack,
        receipts_per_token=0.0,
        nacks_per_loss_p99=result.nacks_per_loss_p99,
        false_reformations_per_token=result.false_suspicions / max(result.messages, 1),
        latency_s_mean=result.latency_s_mean,
        release_skew_ns_max=0,
        fairness_faults=0,
        deliveries=result.deliveries,
        violations=list(result.violations),
    )


def _exchange(scenario: Scenario, seed: int) -> RunReport:
    result = run_exchange(scenario, seed)
    return RunReport(
        seed=seed,
        trace_digest=result.trace_digest,
        protocol="exchange",
        receivers=1,
        messages=result.messages,
        tokens=0,
        control_per_message=0.0,
        nacks_per_token=0.0,
        repairs_per_token=0.0,
        receipts_per_token=0.0,
        nacks_per_loss_p99=0,
        false_reformations_per_token=0.0,
        latency_s_mean=to_seconds(result.latency_ns) / max(result.messages, 1),
        release_skew_ns_max=0,
        fairness_faults=0,
        first_wins={city: wins / max(result.pairs, 1) for city, wins in result.wins.items()},
    )
