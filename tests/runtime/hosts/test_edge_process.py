"""A receiver's edge as its own process: told without waiting, started again, and never the receiver's misfortune."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.edge.narrow.edge_worlds import PLAN, PLAN_2
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.worlds import eventually

from isocast.runtime.edge.narrow.plans import PLAN_NOTES, PlanNotes
from isocast.runtime.hosts.edge_process import EdgeProcess, NoEdge, edge_process
from isocast.runtime.market.model import Market
from isocast.runtime.watch.counters import NodeGauges
from isocast.striping.plan import plan_entry, plan_text
from isocast.wire.packets import ControlEntry, ControlKind


@pytest.fixture
def market(tmp_path: Path) -> Market:
    (tmp_path / "stripes.toml").write_text(plan_text(PLAN), encoding="utf-8")
    return new_market(tmp_path, settings={"edge": {"plan": "stripes.toml", "span": 16}})


def token(number: int, *control: ControlEntry) -> Any:  # noqa: ANN401 - as much of a token as is looked at
    return SimpleNamespace(token_number=number, control=control, instant=number, first_sequence=1)


def receiver(**tokens: tuple[ControlEntry, ...]) -> Any:  # noqa: ANN401 - as much of a machine as is looked at
    """A machine that holds some tokens, t1 and so on, and has released none."""
    entries = {int(name[1:]): SimpleNamespace(token=token(int(name[1:]), *control)) for name, control in tokens.items()}
    releaser = SimpleNamespace(released=0, offset=0, next_sequence=1, passed=1)
    return SimpleNamespace(ledger=SimpleNamespace(entries=entries), releaser=releaser)


def waits(made: EdgeProcess) -> str | None:
    """Why its receiver is not ready."""
    gauges = NodeGauges()
    made.fill(gauges)
    return gauges.edge_waits


def noted(market: Market) -> list[tuple[int, int]]:
    path = market.directory_of("a") / PLAN_NOTES
    return [(note.token_number, note.entry.subject) for note in PlanNotes(path).read()]


def test_plans_are_noted_before_their_tokens_are_journalled_once(market: Market) -> None:
    async def work() -> None:
        machine = receiver(t1=(), t2=(plan_entry(PLAN_2),), t3=(ControlEntry(ControlKind.MARK, 1, b""),), t4=())
        market.directory_of("a").mkdir(parents=True, exist_ok=True)
        made = EdgeProcess(Surroundings(market, "a").context(), machine)
        made.releasing(1)
        assert noted(market) == []
        made.releasing(4)
        made.releasing(4)
        assert noted(market) == [(2, 2)]
        again = EdgeProcess(Surroundings(market, "a").context(), machine)
        again.releasing(4)
        assert noted(market) == [(2, 2)]

    run(work)


def test_a_plan_of_an_empty_token_is_noted_even_if_the_machine_forgets_it_at_once(market: Market) -> None:
    async def work() -> None:
        machine = receiver()
        market.directory_of("a").mkdir(parents=True, exist_ok=True)
        made = EdgeProcess(Surroundings(market, "a").context(), machine)
        made.completed(token(5, plan_entry(PLAN_2)))
        machine.releaser.released = 4
        made.passed()
        assert noted(market) == []
        machine.releaser.released = 5
        made.passed()
        assert noted(market) == [(5, 2)]

    run(work)


def test_a_plan_of_a_token_that_was_cut_back_is_not_noted(market: Market) -> None:
    async def work() -> None:
        machine = receiver(t5=(plan_entry(PLAN_2),))
        market.directory_of("a").mkdir(parents=True, exist_ok=True)
        made = EdgeProcess(Surroundings(market, "a").context(), machine)
        made.completed(token(5))
        machine.releaser.released = 5
        made.passed()
        assert noted(market) == []

    run(work)


def test_a_killed_process_is_started_again_and_the_receiver_does_not_notice(market: Market) -> None:
    async def work() -> None:
        around = Surroundings(market, "a")
        machine = receiver(**{f"t{number}": () for number in range(1, 20_000)})
        made = EdgeProcess(around.context(), machine)
        made.start()
        try:
            assert "its narrow stripes is starting" in str(waits(made))
            await eventually(lambda: made.status)
            assert waits(made) is None
            first = made.pid
            assert first is not None
            os.kill(first, signal.SIGSTOP)
            for number in range(1, 20_000):  # More than a pipe holds.
                machine.releaser.released = number
                made.passed()
            os.kill(first, signal.SIGKILL)
            await eventually(lambda: made.pid not in (None, first))
            made.status = {}
            await eventually(lambda: made.status)
            assert around.codes == ["edge-ended"]
            assert (await around_operation(made))["plan"] == 1
            gauges = NodeGauges()
            made.fill(gauges)
            assert (gauges.stripe_plan, gauges.stripe_packets, gauges.stripe_conflated) == (1, 0, 0)
        finally:
            await made.stop()
        assert made.pid is None

    run(work)


async def around_operation(made: EdgeProcess) -> dict[str, object]:
    return await made._tell({})  # noqa: SLF001 - what the operator's door calls


def test_who_refuses_his_input_says_why_and_is_started_again_when_it_is_good(
    market: Market, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isocast.runtime.hosts.edge_process._REFUSED_PAUSE_S", 0.2)

    async def work() -> None:
        around = Surroundings(market, "a")
        (tmp_path / "stripes.toml").unlink()
        made = EdgeProcess(around.context(), receiver())
        made.start()
        try:
            await eventually(lambda: around.codes)
            assert set(around.codes) == {"edge-refused"}
            told = await around_operation(made)
            assert "stripes.toml: file: cannot be read: No such file" in str(told["blocked"])
            assert (told["plan"], told["packets"]) == (0, 0)
            (tmp_path / "stripes.toml").write_text(plan_text(PLAN), encoding="utf-8")
            await eventually(lambda: made.status)
            assert (await around_operation(made))["blocked"] == ""
        finally:
            await made.stop()

    run(work)


def test_what_a_process_said_before_it_ended_is_not_how_it_is(market: Market, tmp_path: Path) -> None:
    async def work() -> None:
        around = Surroundings(market, "a")
        made = EdgeProcess(around.context(), receiver())
        made.start()
        try:
            await eventually(lambda: made.status)
            assert made.pid is not None
            (tmp_path / "stripes.toml").write_text("no plan", encoding="utf-8")
            os.kill(made.pid, signal.SIGKILL)
            await eventually(lambda: "edge-refused" in around.codes)
            assert "refused its input" in str(waits(made))
            told = await around_operation(made)
            assert told["pid"] is None
            assert "refused its input" in str(told["blocked"])
        finally:
            await made.stop()

    run(work)


def test_only_receivers_with_a_line_in_a_market_with_stripes_have_one(market: Market, tmp_path: Path) -> None:
    async def work() -> None:
        assert isinstance(edge_process(Surroundings(market, "a").context(), receiver()), EdgeProcess)
        (tmp_path / "plain").mkdir()
        plain = edge_process(Surroundings(new_market(tmp_path / "plain"), "a").context(), receiver())
        assert type(plain) is NoEdge
        plain.start()
        plain.completed(token(1))
        plain.releasing(1)
        plain.passed()
        await plain.stop()

    run(work)
