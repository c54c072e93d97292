"""What the market's file says of secondary groups, and what a person hears of their heads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.nodes.test_primary_receiver import headed
from tests.nodes.test_secondary_receiver import site
from tests.ring.makers import Chain, T
from tests.runtime.hosts.contexts import Surroundings, new_market, run
from tests.runtime.market.markets import market_of

from isocast.hierarchy.headship import Group
from isocast.ring.effects import GroupLeft, HeadshipAssumed, HeadSwitched, SecondaryHandedBack, SecondaryReturned
from isocast.ring.inputs import TimerFired
from isocast.runtime.hosts.receiver import group_plan
from isocast.runtime.hosts.receiver_reports import GroupReport
from isocast.runtime.market.model import Market, NodeRole
from isocast.runtime.watch.counters import NodeCounters, NodeGauges
from isocast.runtime.watch.metrics import METRICS, NodeIdentity, NodeReading
from isocast.terms.ids import Epoch

EPOCH = Epoch(2, 65_537)


def ids(market: Market, *names: str) -> list[int]:
    return [market.node(name).node for name in names]


def test_groups_are_those_of_the_file() -> None:
    market = market_of({"nodes.a3": {"role": "secondary-receiver", "parent": "a2", "backup": "a"}})
    a, b, a2, a3 = ids(market, "a", "b", "a2", "a3")
    plan = group_plan(market)
    assert plan.groups == {a: Group(a, (a2,), (b,)), a2: Group(a2, (a3,), (a,))}, "sources are in no group"


def test_a_market_without_secondary_receivers_has_no_groups() -> None:
    assert group_plan(market_of({"nodes.a2": None, "nodes.bank.lines": ["a", "b"]})).groups == {}


def test_without_a_backup_the_nearest_place_takes_over_and_a_stranger_only_as_the_last() -> None:
    places = {"nodes.a.city": "London", "nodes.b.city": "Tokyo", "nodes.c.city": "Paris", "nodes.a2.backup": None}
    market = market_of(places)
    a, b, c = ids(market, "a", "b", "c")
    plan = group_plan(market)
    assert plan.heads((b, c)) == {a: c}
    assert plan.heads((999, b)) == {a: b}


class Heard:
    """A report whose log lines are kept."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.market = new_market(folder)
        self.around = Surroundings(self.market, name)
        self.lines: list[str] = []
        self.report: GroupReport
        self._monkeypatch = monkeypatch

    def take(self, *effects: object) -> None:
        async def work() -> None:
            self.report = GroupReport(self.around.context())
            for level in ("info", "warning"):
                self._monkeypatch.setattr(self.report._context.log, level, self._note, raising=False)  # noqa: SLF001
            for effect in effects:
                self.report.tell(effect)  # type: ignore[arg-type]

        run(work)

    def _note(self, event: str, **values: object) -> None:
        self.lines.append(" ".join([event, *[f"{key}={value}" for key, value in values.items()]]))


def test_a_group_that_is_taken_over_is_told_once_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(tmp_path, "b", monkeypatch)
    a, b, a2 = ids(heard.market, "a", "b", "a2")
    heard.take(
        HeadshipAssumed(EPOCH, b, anew=True),
        HeadshipAssumed(EPOCH, a, anew=True),
        HeadshipAssumed(EPOCH, a, anew=False),
        GroupLeft(EPOCH, a, a),
        SecondaryReturned(a, a2, 7),
        SecondaryHandedBack(a, a2),
    )
    assert heard.lines == [
        "heads another's group group=a epoch=2.1",
        "hands a group over group=a head=a epoch=2.1",
        "secondary receiver counts name=a2 group=a",
        "secondary receiver has its head again name=a2 head=a",
    ]
    assert heard.around.counters.head_changes == 2


def test_a_secondary_receiver_tells_of_its_heads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(tmp_path, "a2", monkeypatch)
    a, b = ids(heard.market, "a", "b")
    heard.take(HeadSwitched(a, b, silent=True), HeadSwitched(a, a, silent=False))
    assert heard.lines == ["its head is silent, another counts it group=a head=b", "has another head group=a head=a"]
    assert heard.around.counters.head_changes == 2


def test_gauges_name_who_heads_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard(tmp_path, "a", monkeypatch)
    heard.take()
    chain = Chain().grow(6)
    machine = headed(chain)
    machine.step(TimerFired(), T(7))
    gauges = NodeGauges()
    heard.report.fill(gauges, machine.snapshot())
    assert (gauges.heads, gauges.adopted, gauges.head) == ((heard.market.name_of(1),), (), None)
    assert gauges.secondary_stable_token == 0
    gauges = NodeGauges()
    heard.report.fill(gauges, site(chain).snapshot())
    one = heard.market.name_of(1)
    assert (gauges.heads, gauges.head, gauges.head_configured) == ((), one, one)


@pytest.mark.parametrize("head, replaced", [("a", 0), ("b", 1)])
def test_metrics_count_heads(head: str, replaced: int) -> None:
    gauges = NodeGauges(heads=("a", "c"), adopted=("a2",), head=head, head_configured="a")
    reading = NodeReading(NodeIdentity("a", NodeRole.SECONDARY_RECEIVER, 1), NodeCounters(), gauges)
    values = {metric.name: metric.read(reading) for metric in METRICS}
    assert (values["groups_headed"], values["members_adopted"], values["head_replaced"]) == (2, 1, replaced)
