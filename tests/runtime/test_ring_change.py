"""Planned changes of a market that runs: the real machines, doors and disks, in one event loop."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.runtime.founding import join_node
from isocast.runtime.market_file import load_market
from isocast.runtime.operator_door import OperatorError, ask
from isocast.runtime.ring_change import Change, restart_order

FOUR = {**SMALL, "d": {"role": "primary-receiver"}}


def test_a_drained_site_is_off_the_ring_and_still_releases(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR)) as world:
            await world.start()
            change = Change(world.market)
            plan = world.market.node("d")
            await change.drain(plan)
            views = await change.views()
            assert all(plan.node not in view.ring and plan.node in view.universe for view in views.values())
            assert {name for name, view in views.items() if view.leaving} == {"d"}
            await world.publish("floor", trades(20))
            await world.until_journals_have(range(1, 21), "a", "d")
            await change.undrain(plan)
            assert plan.node in (await change.newest()).ring

    run(work())


def test_a_ring_that_cannot_do_without_a_site_keeps_it(tmp_path: Path) -> None:
    two = {name: node for name, node in SMALL.items() if name in ("a", "b", "floor", "x")}

    async def work() -> None:
        async with World(market_file(tmp_path, two)) as world:
            await world.start()
            with pytest.raises(OperatorError, match="a cannot leave: the ring has 2 of 2"):
                await Change(world.market).drain(world.market.node("a"))

    run(work())


def test_a_site_is_removed_and_the_rest_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR)) as world:
            await world.start()
            change = Change(world.market)
            await world.publish("floor", trades(10))
            gone = world.market.node("d")
            view = await change.remove(gone)
            assert gone.node not in view.universe
            assert gone.node not in view.ring
            await world.publish("floor", trades(10, 11))
            await world.until_journals_have(range(1, 21), "a", "b", "c")
            # Asked again, it is already so.
            assert (await change.remove(gone)).universe == view.universe

    run(work())


def test_a_dead_site_is_removed(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR)) as world:
            await world.start()
            await world.stop("d")
            change = Change(world.market)
            view = await change.remove(world.market.node("d"))
            assert len(view.universe) == 3
            await world.publish("floor", trades(5))
            await world.until_journals_have(range(1, 6), "a", "b", "c")

    run(work())


def test_two_of_four_go_on_by_force_when_the_others_never_come_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, {**FOUR, "a": {"role": "primary-receiver", "number": 1}})) as world:
            await world.start()
            await world.publish("floor", trades(10))
            await world.until_journals_have(range(1, 11), "a", "b", "c", "d")
            await world.stop("c")
            await world.stop("d")
            await world.publish("floor", trades(10, 11))
            change = Change(world.market)
            with pytest.raises(OperatorError, match="not so after"):
                await Change(world.market, patience_s=1).remove(world.market.node("c"))
            view = await change.force([world.market.node("a"), world.market.node("b")])
            assert view.universe == (1, 2)
            await world.until_journals_have(range(1, 21), "a", "b")
            assert "forced" in world.alarms("x")

    run(work())


async def _roll_out(world: World, *names: str) -> None:
    """As `isocast ring restart` does, for nodes that live in this loop."""
    world.market = load_market(world.path)
    for name in names:
        await world.stop(name)
        await world.start(name)


def test_a_site_joins_is_added_loses_its_disk_and_comes_back_under_another_number(tmp_path: Path) -> None:
    async def work() -> None:
        path = market_file(tmp_path)
        async with World(path) as world:
            await world.start()
            ids = list(range(1, 31))
            await world.publish("floor", trades(30))
            await world.until_journals_have(ids, "a")
            text = path.read_text(encoding="utf-8")
            address = world.market.node("a").address.rpartition(".")[0] + ".77"
            joiner = f'[nodes.d]\nrole = "primary-receiver"\nnumber = %d\naddress = "{address}"\nhttp_port = 0\n'
            for number in (4, 9):
                path.write_text(text + joiner % number, encoding="utf-8")
                newcomer = load_market(path).node("d")
                change = Change(load_market(path))
                with pytest.raises(OperatorError, match="started with a market file that has no d"):
                    await change.add(newcomer)
                await _roll_out(world, "x", "a", "b", "c", "floor")
                join_node(world.market, "d")
                await world.start("d")
                view = await change.add(newcomer)
                assert newcomer.node == number
                assert sorted(view.universe) == [1, 2, 3, number]
                await world.publish("floor", trades(5, ids[-1] + 1))
                ids += range(ids[-1] + 1, ids[-1] + 6)
                await world.until_journals_have(ids, "a", "d")
                await world.stop("d")
                shutil.rmtree(world.market.directory_of("d"))
                await change.remove(newcomer)
                assert sorted((await change.newest()).universe) == [1, 2, 3]

    run(work())


def test_what_a_node_is_asked_wrongly_is_refused_by_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start()
            where = world.market.directory_of
            for name, do, arguments, text in (
                ("a", "add-site", {"site": "b"}, "is the id of a receiver"),
                ("a", "add-site", {"site": 77}, "no site 77"),
                ("a", "drain", {"leaving": 1}, "true, or false"),
                ("x", "force", {"universe": [1]}, "2 or more"),
                ("x", "force", {"universe": [1, 99]}, "99 is no primary receiver"),
                ("floor", "drain", {}, "cannot"),
            ):
                with pytest.raises(OperatorError, match=text):
                    await ask(where(name), do, **arguments)
            assert await ask(where("a"), "add-site", site=2) == {"ok": True, "already": True}

    run(work())


def test_where_nobody_answers_the_error_says_where_to_go(tmp_path: Path) -> None:
    world = World(market_file(tmp_path))
    change = Change(world.market, patience_s=0.1)
    with pytest.raises(OperatorError, match="no primary receiver answers"):
        asyncio.run(change.newest())
    with pytest.raises(OperatorError, match=r"a: .*nobody listens"):
        asyncio.run(change.drain(world.market.node("a")))


def test_restarts_begin_with_those_whom_others_rest_on_least(tmp_path: Path) -> None:
    market = World(market_file(tmp_path)).market
    assert [plan.name for plan in restart_order(market)] == ["x", "archive", "a", "b", "c", "floor", "bank"]
    assert [plan.name for plan in restart_order(market, ["b", "x"])] == ["x", "b"]


def test_a_node_asked_to_restart_ends_in_order(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start()
            await ask(world.market.directory_of("bank"), "restart")
            bank = world.nodes["bank"]
            await eventually(bank.stopping.is_set)
            assert bank.restarting

    run(work())
