"""A running market follows a plan of lines (§4.3): it is adjusted when the ring re-forms, and customers come along."""

from contextlib import suppress
from json import dumps
from pathlib import Path

import pytest
from tests.interop.places import Place, new_market, own_place
from tests.interop.stage import Stage
from tests.interop.verdict import check_journals
from tests.reformation.scopes.line_promises import check_plans

from isocast.runtime.disk.server_store import LineStore
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, line_listeners
from isocast.runtime.operate.operator_door import ask
from isocast.runtime.watch.line_gauges import LineGauges
from isocast.terms.errors import StoreError
from isocast.terms.instants import SECOND
from isocast.wire.packets import Lines, PlanVersion

DRAIN_S = 4
RECEIVERS = ("london", "frankfurt", "new-york", "chicago")
NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver", "city": "London"},
    "frankfurt": {"role": "primary-receiver", "city": "Frankfurt"},
    "new-york": {"role": "primary-receiver", "city": "New York"},
    "chicago": {"role": "primary-receiver", "city": "Chicago"},
    "floor": {"role": "primary-source"},
    "xray": {"role": "reformation-server", "number": 1},
    "yankee": {"role": "reformation-server", "number": 2},
    "archive": {"role": "retransmit-server", "city": "Zurich", "lines": ["london", "frankfurt"]},
    "desk": {"role": "customer", "city": "Paris", "lines": ["london"], "retransmit": ["archive"]},
    "toronto": {"role": "customer", "city": "Toronto", "lines": ["new-york"], "retransmit": ["archive"]},
}
LISTENERS = ("archive", "desk", "toronto")

pytestmark = pytest.mark.xdist_group("kill")


def market_of(folder: Path, place: Place, *, mode: str = "multicast", faults: bool = False) -> Market:
    coverage = {
        "enabled": True,
        "groups": place.group(128),
        "addresses": 64,
        "notices": place.group(120),
        "drain": f"{DRAIN_S}s",
    }
    tables: dict[str, dict[str, object]] = {"coverage": coverage}
    if faults:
        tables["impairment"] = {"enabled": True, "delay": "none"}
    file = new_market(folder, place, NODES, network={"mode": mode}).file
    with Path(file).open("a", encoding="utf-8") as market:
        for name, table in tables.items():
            market.writelines([f"[{name}]\n", *[f"{key} = {dumps(value)}\n" for key, value in table.items()]])
    return load_market(file)


class Watched:
    """What the nodes of a stage say of lines, and every plan that a receiver followed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.followed: dict[PlanVersion, Lines] = {}
        self.rested: dict[str, set[str]] = {}
        """By receiver, the groups that anybody said to rest because it had them."""

    def plans(self, *names: str) -> dict[str, LineGauges]:
        """By node, those that have one."""
        found = {name: status.gauges.line_plan for name, status in self.stage.statuses(*names).items()}
        for name in RECEIVERS:
            # Whoever reads while it is written may find it torn, and looks again.
            with suppress(StoreError):
                lines = LineStore(self.stage.market.directory_of(name)).read().settled
                if lines is not None:
                    self.followed[lines.version] = lines
        plans = {name: plan for name, plan in found.items() if plan is not None}
        for rest in [rest for plan in plans.values() for rest in plan.draining]:
            self.rested.setdefault(rest.receiver, set()).add(rest.group)
        return plans

    def all_plans(self, *names: str) -> dict[str, LineGauges]:
        """As `plans`, of everybody who is named."""
        found: dict[str, LineGauges] = {}

        def told() -> bool:
            nonlocal found
            found = self.plans(*names)
            return len(found) == len(names)

        self.stage.until(told, "everybody tells its plan")
        return found

    def until_followed(self, without: str = "", above: int = 0) -> int:
        """All who are there follow one plan above an epoch, without a site; its epoch."""
        names = [name for name in (*RECEIVERS, *LISTENERS) if name != without]
        found: dict[str, LineGauges] = {}

        def one_plan() -> bool:
            nonlocal found
            found = self.plans(*names)
            if len(found) < len(names) or len({plan.version for plan in found.values()}) > 1:
                return False
            # Where a machine is slow, another ring with the lost site may come first.
            return all(plan.ballot > above and without not in plan.sources for plan in found.values())

        self.stage.until(one_plan, f"one plan above {above} is followed without {without or 'nobody'}")
        for name in LISTENERS:
            assert len(found[name].sources) >= 2, name
        return found[names[0]].ballot

    def check(self) -> None:
        """No promise was broken by any of the plans."""
        places = [plan.place for plan in line_listeners(self.stage.market) if plan.place is not None]
        check_plans(self.followed.values(), places, DRAIN_S * SECOND)


def gaps(stage: Stage) -> dict[str, float]:
    return {name: status.totals["gaps_seen_total"] for name, status in stage.all_statuses("desk", "toronto").items()}


@pytest.mark.parametrize("mode", ["multicast", pytest.param("fanout", marks=pytest.mark.long)])
def test_a_lost_receivers_customers_are_served_by_others_without_a_gap(tmp_path: Path, mode: str) -> None:
    with own_place() as place, Stage(market_of(tmp_path, place, mode=mode)) as stage:
        watched = Watched(stage)
        stage.until_whole()
        first = watched.until_followed()
        stage.publish()
        stage.until_published(5)
        stage.until_heard()
        before, plan = gaps(stage), watched.all_plans("desk", *RECEIVERS)
        lost = next(name for name in plan["desk"].sources if name in RECEIVERS)
        others = [name for name in RECEIVERS if name != lost]
        with stage.away(lost):
            stage.kill(lost)
            second = watched.until_followed(without=lost, above=first)
            after = watched.all_plans(*others)
            moved = [name for name, now in after.items() if now.group and plan[name].group not in (None, now.group)]
            assert len(moved) <= 1, moved
            heard = {name: len(stage.edges[name].look()) for name in ("desk", "toronto")}
            stage.until(lambda: all(len(stage.edges[name].look()) > heard[name] for name in heard), "messages come")
            assert watched.rested.get(lost) == {plan[lost].group}
            assert gaps(stage) == before
            stage.until(
                lambda: not any(now.draining for now in watched.all_plans(*others).values()), "no group rests any more"
            )
        stage.until_ready(lost)
        stage.until_whole()
        watched.until_followed(above=second)
        stage.quiet()
        promised = stage.until_released()
        stage.until_heard()
        check_journals(stage, promised)
        watched.check()
        assert len(watched.followed) >= 3


@pytest.mark.long
def test_a_server_that_dies_before_it_tells_its_plan_is_followed_by_the_other(tmp_path: Path) -> None:
    with own_place() as place, Stage(market_of(tmp_path, place, faults=True)) as stage:
        watched = Watched(stage)
        stage.until_whole()
        first = watched.until_followed()
        market = stage.market
        before = LineStore(market.directory_of("yankee")).read().held
        assert before is not None
        decider = market.name_of(before.version.ballot.server)
        other = "yankee" if decider == "xray" else "xray"
        stage.publish()
        stage.until_published(3)
        stage.until_heard()
        seen = gaps(stage)
        stage.call(ask(market.directory_of(decider), "crash-after", packet="lines", unheard=True))
        dead = stage.all_statuses(decider)[decider].pid
        with stage.away("chicago", decider):
            stage.kill("chicago")
            stage.until(lambda: not Path(f"/proc/{dead}").exists(), "the server died of its plan")
            watched.until_followed(without="chicago", above=first)
        after = max(watched.followed.values(), key=lambda lines: lines.version)
        assert market.name_of(after.version.ballot.server) == decider
        assert market.name_of(after.version.author) == other
        told = LineStore(market.directory_of(decider)).read().held
        assert told is not None
        assert before.version < told.version < after.version
        assert len([scope for scope in after.scopes if scope in before.scopes]) >= len(after.scopes) - 2
        assert gaps(stage) == seen
        stage.until_ready(decider)
        stage.until(
            lambda: len({str(one.gauges.line_plan) for one in stage.all_statuses(decider, other).values()}) == 1,
            "the server that died has the newest plan too",
        )
        stage.quiet()
        promised = stage.until_released()
        stage.until_heard()
        check_journals(stage, promised)
        watched.check()
