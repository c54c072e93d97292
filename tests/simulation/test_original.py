"""The world of the original protocol: the figures of §2.1, and what its watcher would catch."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import replace
from math import exp

import pytest

from isocast.ring.original.packets import Ack, OriginalEffect, OriginalNack, OriginalSuspicion
from isocast.ring.original.receiver import OriginalReceiver
from isocast.simulation.original import EffectWatch, OriginalParameters, run_original
from isocast.simulation.run import run_scenario
from isocast.simulation.scenario import scenario_from_mapping
from isocast.terms.errors import LocalProtocolError
from isocast.terms.ids import Label, source_id
from isocast.terms.instants import MILLISECOND, NEVER, SECOND, from_seconds
from isocast.terms.topology import CITIES, delay_ns

PAPER = OriginalParameters(
    seed=1,
    receivers=10,
    messages=40_000,
    loss=0.01,
    tree=False,
    one_way_delay_ns=from_seconds(0.05),
    jitter_ns=0,
    arrival_rate=5.0,
    token_ack_ns=from_seconds(1),
    token_resend_ns=from_seconds(1.2),
    source_resend_ns=from_seconds(1),
    nack_resend_ns=from_seconds(0.25),
    retries_max=3,
)
"""λ=5, d=.05, T_a=1, R_t=1.2, R_s=1, R_n=.25, m=10, p=.01."""

CALM = replace(PAPER, loss=0.0, arrival_rate=1.0, messages=10_000)
"""λ=1 and no loss; a share of so many messages is within .02 at four standard deviations."""


# ---- figures


@pytest.mark.parametrize(
    "rate, delay_s, token_ack_s, receivers",
    [
        (1, 0.05, 1, 2),
        pytest.param(1, 0.05, 1, 50, marks=pytest.mark.long),
        (0.2, 0.375, 1, 3),
        (5, 0.05, 0.2, 10),
        (2, 0.2, 0.3, 3),
        (8, 0.1, 0.05, 3),
    ],
)
def test_the_closed_form_without_loss(rate: float, delay_s: float, token_ack_s: float, receivers: int) -> None:
    """1+(1-λd)e^(-λT_a): a TOKACK needs an empty queue after an acknowledgement, and silence for d+T_a.

    §2 claims 1, but a slow ring confirms its tokens by themselves; `tests.paper` has the figures of the design.

    The passes are an M/D/1 queue with service time d, whose queue is empty when a service begins with
    probability (1-λd)e^(λd). To first order in λd this is 1+e^(-λ(d+T_a)).
    """
    result = run_original(
        replace(
            CALM,
            messages=6_000 if receivers == 50 else 10_000,
            receivers=receivers,
            arrival_rate=rate,
            one_way_delay_ns=from_seconds(delay_s),
            token_ack_ns=from_seconds(token_ack_s),
            token_resend_ns=from_seconds(token_ack_s + 2 * delay_s) + 1,
            source_resend_ns=60 * SECOND,
        )
    )
    tokacks = (1 - rate * delay_s) * exp(-rate * token_ack_s)
    assert result.control_per_message == pytest.approx(1 + tokacks, abs=0.02)
    assert (result.acks, result.nacks, result.repairs, result.false_suspicions) == (result.messages, 0, 0, 0)
    assert result.violations == []


@pytest.mark.long
def test_the_latency_is_the_way_and_the_queue() -> None:
    """d+λd²/(2(1-λd)): to the token site, and the wait of an M/D/1 queue with service time d."""
    result = run_original(replace(CALM, arrival_rate=10.0, messages=40_000, source_resend_ns=60 * SECOND))
    assert result.latency_s_mean == pytest.approx(0.05 + 10 * 0.05**2 / (2 * (1 - 0.5)), rel=0.03)


@pytest.mark.parametrize("receivers, messages", [(10, 5_000), (40, 2_000)])
def test_every_receiver_asks_for_what_it_lost(receivers: int, messages: int) -> None:
    """NACKs per message: m losses of DATA and m-2 of ACK, p each (a lost pass is repeated, not asked for)."""
    result = run_original(replace(PAPER, loss=0.005, receivers=receivers, messages=messages))
    expected = 0.005 * (2 * receivers - 2)
    assert result.nacks_per_ack == pytest.approx(expected / (1 - 0.005) ** 2, rel=0.1)
    assert result.repairs_per_ack == pytest.approx(expected / (1 - 0.005), rel=0.1)


@pytest.mark.long
def test_losses_on_a_tree_cost_more_requests_each() -> None:
    alone = run_original(replace(PAPER, messages=5_000))
    tree = run_original(replace(PAPER, messages=5_000, tree=True))
    one_branch = run_original(replace(PAPER, messages=5_000, tree=True, tree_branches=1))
    assert 1 <= alone.nacks_per_loss_p99 <= 2
    assert tree.nacks_per_loss_p99 >= 4
    # What nobody got is repeated by its sender, and never asked for.
    assert one_branch.nacks_per_ack < 0.7 * alone.nacks_per_ack
    assert tree.violations == one_branch.violations == []


def test_a_pass_that_takes_longer_than_R_t_is_repeated() -> None:  # noqa: N802
    """R_t must cover T_a and a way there and back, or an idle ring repeats itself."""
    slow = replace(
        CALM,
        one_way_delay_ns=from_seconds(0.375),
        arrival_rate=0.2,
        messages=2_000,
        source_resend_ns=60 * SECOND,
    )
    assert run_original(slow).acks > 2_500
    assert run_original(replace(slow, token_resend_ns=from_seconds(1.8))).acks == 2_000


# ---- safety and the end


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("receivers", [2, 3, 10])
def test_heavy_loss_breaks_nothing(seed: int, receivers: int) -> None:
    result = run_original(
        replace(PAPER, seed=seed, receivers=receivers, messages=200, loss=0.2, arrival_rate=0.5, retries_max=30)
    )
    assert result.violations == []
    assert result.messages == 200
    assert result.false_suspicions == 0


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("tree", [False, True], ids=["independent", "tree"])
def test_reordering_duplication_and_busy_sources_break_nothing(seed: int, *, tree: bool) -> None:
    """Three sources that send the next message as soon as they may, over a network that does everything wrong."""
    result = run_original(
        replace(
            PAPER,
            seed=seed,
            receivers=5,
            messages=300,
            loss=0.15,
            tree=tree,
            jitter_ns=100 * MILLISECOND,
            duplicate=0.1,
            arrival_rate=2.0,
            sources=3,
        )
    )
    assert result.violations == []
    assert result.messages == 300


def test_an_overloaded_ring_falls_behind_but_loses_nothing() -> None:
    """§5: "the queue of messages that are waiting to be acknowledged grows": one pass takes d, so 1/d is the limit."""
    result = run_original(replace(PAPER, loss=0.0, arrival_rate=40.0, messages=1_000, source_resend_ns=60 * SECOND))
    assert result.latency_s_mean == pytest.approx(1_000 / 2 * (0.05 - 1 / 40), rel=0.1)
    assert result.violations == []


def test_cities_may_be_unequally_far() -> None:
    ring = CITIES[:6]
    delays = tuple(tuple(delay_ns(a, b) for b in ring) for a in ring)
    result = run_original(
        replace(PAPER, receivers=6, messages=2_000, arrival_rate=1.0, delays_ns=delays, retries_max=10)
    )
    assert result.violations == []
    assert result.messages == 2_000


def test_a_scenario_has_the_baseline_on_cities_with_duplicates_and_for_a_time() -> None:
    keys = {"protocol": "original", "ring": ["London", "Tokyo", "Sydney", "New York"], "arrival_rate": 5.0}
    more = {"messages": 5_000, "duration": 200.0, "duplicate": 0.05, "loss": 0.01}
    report = run_scenario(scenario_from_mapping({**keys, **more}), 1)
    assert report.violations == []
    assert report.receivers == 4
    assert 900 < report.messages < 1_100
    assert report.deliveries > 7 * report.messages
    assert report.latency_s_mean < 5


def test_too_few_attempts_are_counted_as_false_suspicions() -> None:
    result = run_original(replace(PAPER, messages=2_000, loss=0.1, arrival_rate=0.5, retries_max=1))
    assert result.false_suspicions == sum(result.suspicions.values())
    assert all(result.suspicions[reason] > 0 for reason in OriginalSuspicion)
    assert result.violations == []


@pytest.mark.long
def test_memory_stays_flat() -> None:
    def peak(messages: int) -> int:
        tracemalloc.start()
        run_original(replace(PAPER, receivers=3, loss=0.02, arrival_rate=1.0, messages=messages))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return used

    peak(100)
    # Four times as long; a longer run sees a longer queue once.
    assert peak(8_000) < 2 * peak(2_000)


# ---- determinism


def test_one_seed_is_one_run_in_every_process() -> None:
    small = replace(PAPER, messages=500, loss=0.1, jitter_ns=MILLISECOND)
    code = (
        "from isocast.simulation.original import OriginalParameters, run_original;"
        f"print(run_original({small!r}).trace_digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout.strip()
        for seed in ("1", "2")
    }
    result = run_original(small)
    assert digests == {result.trace_digest}
    assert run_original(replace(small, seed=2)).trace_digest != result.trace_digest


# ---- parameters


@pytest.mark.parametrize(
    "key, value",
    [
        ("receivers", 1),
        ("messages", 0),
        ("loss", 1.0),
        ("loss", -0.1),
        ("duplicate", 1.5),
        ("arrival_rate", 0.0),
        ("one_way_delay_ns", -1),
        ("jitter_ns", -1),
        ("token_ack_ns", from_seconds(1.2)),
        ("delays_ns", ((0, 1), (1, 0))),
    ],
)
def test_what_cannot_run_is_refused(key: str, value: object) -> None:
    with pytest.raises(LocalProtocolError, match=key.removesuffix("_ns")):
        replace(PAPER, **{key: value})  # type: ignore[arg-type]


# ---- the watcher


def watched() -> EffectWatch:
    """Three receivers; two sources submitted two messages each, and site 1 acknowledged the first."""
    watch = EffectWatch((1, 2, 3))
    for source in (S1, S2):
        watch.submitted(source, 0)
        watch.submitted(source, 0)
    watch.placed(1, 1, Label(S1, 1), 0)
    watch.sent(1, 0, FIRST, 0)
    return watch


S1, S2 = source_id(1), source_id(2)
FIRST = Ack(1, Label(S1, 1), receiver=1, next=2)


def test_the_watcher_is_content_with_the_protocol() -> None:
    watch = watched()
    assert watch.placed(2, 1, Label(S1, 1), 1) is None
    assert watch.placed(3, 1, Label(S1, 1), 1) == Label(S1, 1)
    assert (watch.violations, watch.stable, watch.assigned) == ([], 1, 1)


@pytest.mark.parametrize(
    "site, number, label, complaint",
    [
        (2, 1, Label(S2, 1), "others"),
        (2, 2, Label(S2, 1), "placed 2 after 0"),
        (3, 3, Label(S2, 1), "nobody acknowledged"),
        (1, 2, Label(S2, 1), "out of turn"),
        (2, 2, Label(S1, 1), "after"),
        (2, 2, Label(S2, 2), "after"),
        (2, 2, Label(source_id(3), 1), "never submitted"),
    ],
)
def test_the_watcher_sees_a_wrong_place(site: int, number: int, label: Label, complaint: str) -> None:
    watch = watched()
    watch.placed(site, number, label, 1)
    assert any(complaint in violation for violation in watch.violations)


@pytest.mark.parametrize(
    "node, ack, complaint",
    [
        (2, FIRST, "with 0 placed"),
        (1, replace(FIRST, label=Label(S2, 1)), "acknowledgement 1 is"),
        (1, replace(FIRST, receiver=2, next=3), "acknowledgement 1 is"),
        (1, replace(FIRST, token_number=2), "with 1 placed"),
    ],
)
def test_the_watcher_sees_a_wrong_acknowledgement(node: int, ack: Ack, complaint: str) -> None:
    watch = watched()
    watch.sent(node, 0, ack, 1)
    assert any(complaint in violation for violation in watch.violations)


def test_the_watcher_sees_an_acknowledgement_while_somebody_lacks_t_minus_m_plus_1() -> None:
    watch = watched()
    watch.placed(2, 1, Label(S1, 1), 1)
    watch.placed(2, 2, Label(S2, 1), 1)
    assert watch.violations == []
    watch.placed(1, 2, Label(S2, 1), 1)
    watch.placed(3, 3, Label(S1, 2), 2)
    assert "3 was acknowledged while all have only 0" in watch.violations


def test_the_watcher_sees_what_is_missing_at_the_end() -> None:
    watch = watched()
    watch.closed()
    assert len(watch.violations) == 4


# ---- rules switched off


class Hasty(OriginalReceiver):
    """Accepts the token without having what was acknowledged before."""

    def _take(self, ack: Ack, now: int, effects: list[OriginalEffect]) -> None:
        if ack.next == self.site:
            self._next_token = ack.token_number + 1
            self._accept(now, effects)
        else:
            super()._take(ack, now, effects)


class Greedy(OriginalReceiver):
    """Keeps the right to acknowledge."""

    def _acknowledge(self, now: int, effects: list[OriginalEffect]) -> None:
        super()._acknowledge(now, effects)
        self._holds = True


class Deaf(OriginalReceiver):
    """Answers no request."""

    def _on_nack(self, nack: OriginalNack, effects: list[OriginalEffect]) -> None:
        del nack, effects


class Forgetful(OriginalReceiver):
    """Repeats no pass."""

    def _pass_again(self, pending: Ack, now: int, effects: list[OriginalEffect]) -> None:
        del pending, now, effects
        self._token_due = NEVER


@pytest.mark.parametrize(
    "mutant, complaint",
    [
        (Hasty, "placed 2 after 0"),
        (Greedy, "out of turn"),
        (Deaf, "does not come to rest"),
        (Forgetful, "does not come to rest"),
    ],
)
def test_a_receiver_that_breaks_a_rule_is_caught(
    mutant: type[OriginalReceiver], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isocast.simulation.original.OriginalReceiver", mutant)
    result = run_original(replace(PAPER, messages=50, loss=0.1, arrival_rate=1.0))
    assert any(complaint in violation for violation in result.violations)


def test_collecting_one_position_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's t-m+2: somebody may still need it, and nobody has it any more."""
    monkeypatch.setattr(
        "isocast.ring.original.receiver.possession_floor", lambda token_number, size: token_number - size + 2
    )
    result = run_original(replace(PAPER, receivers=3, messages=100, loss=0.2, arrival_rate=0.5))
    assert any("does not come to rest" in violation for violation in result.violations)
