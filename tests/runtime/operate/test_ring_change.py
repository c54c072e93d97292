"""Planned changes of a market that runs: the real machines, doors and disks, in one event loop."""

from __future__ import annotations

import asyncio
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import pytest
from tests.runtime.worlds import SMALL, World, eventually, market_file, run, trades

from isocast.runtime.market.file import load_market
from isocast.runtime.market.founding import join_node
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.operate.operator_door import SOCKET, OperatorError, ask
from isocast.runtime.operate.orders import OperatorHand
from isocast.runtime.operate.ring_change import RingChange, RingView, RollingRestart, restart_order
from isocast.runtime.operate.roster_change import RosterChange
from isocast.wire.packets import ControlEntry, ControlKind

FOUR = {**SMALL, "d": {"role": "primary-receiver"}}
CALM: dict[str, dict[str, object]] = {"timing": {"detect": "60ms", "process": "200ms"}}
"""What is asked of a ring that re-forms because a machine was late is refused, and rightly."""


def test_a_drained_site_is_off_the_ring_and_still_releases(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            change = RingChange(world.market)
            plan = world.market.node("d")
            await change.drain(plan)
            views = await change.until(
                "a ring without d",
                lambda views: all(plan.node not in view.ring and plan.node in view.universe for view in views.values()),
                "",
            )
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
                await RingChange(world.market).drain(world.market.node("a"))

    run(work())


def test_a_market_without_a_majority_drains_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            await world.stop("c")
            await world.stop("d")
            await RingChange(world.market).until(
                "a seal", lambda views: all(view.mode == "sealed" for view in views.values()), ""
            )
            change = RingChange(world.market, patience_s=1)
            with pytest.raises(OperatorError, match="a ring at work: not done"):
                await change.drain(world.market.node("a"))
            assert not any(view.leaving for view in (await change.views()).values())

    run(work())


def test_of_two_that_would_leave_one_too_many_is_told_so_and_stays(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            change = RingChange(world.market, patience_s=60)
            plans = [world.market.node(name) for name in ("c", "d")]
            results = await asyncio.gather(*[change.drain(plan) for plan in plans], return_exceptions=True)
            refused = [str(result) for result in results if isinstance(result, OperatorError)]
            assert refused
            assert all("cannot leave: the ring has" in text for text in refused)
            views = await change.views()
            assert sum(view.leaving for view in views.values()) == 2 - len(refused)

    run(work())


def test_a_site_outside_u_is_told_to_be_added_before_it_can_come_back(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            change = RingChange(world.market)
            await change.remove(world.market.node("d"))
            with pytest.raises(OperatorError, match="d is not in U, so no ring takes it: isocast ring add d"):
                await change.undrain(world.market.node("d"))

    run(work())


def test_a_restart_that_would_leave_no_majority_waits_and_says_what_it_left_out(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            await world.stop("d")
            told: list[str] = []
            gone = world.market.node("d").node
            await RingChange(world.market).until(
                "a ring without d", lambda views: all(gone not in view.ring for view in views.values()), ""
            )
            restart = RollingRestart(RingChange(world.market, patience_s=1), told.append)
            plans = await restart.up(world.market.node(name) for name in ("a", "b", "d"))
            assert [plan.name for plan in plans] == ["a", "b"]
            with pytest.raises(OperatorError, match=r"a majority without a: not done.*; not restarted: b"):
                await restart.run(plans)
            assert told[0].startswith("d is not up")
            assert told[1].startswith("a waits")
            assert not world.nodes["a"].stopping.is_set()

    run(work())


def test_a_site_on_another_machine_is_added_by_its_status_page(tmp_path: Path) -> None:
    path = market_file(tmp_path, {**FOUR, "d": {"role": "primary-receiver", "http_port": 7780}}, settings=CALM)

    async def work() -> None:
        async with World(path) as world:
            await world.start()
            change = RingChange(world.market)
            site = world.market.node("d")
            await change.remove(site)
            await ask(world.market.directory_of("d"), "drain", leaving=False)
            (world.market.directory_of("d") / SOCKET).unlink()
            assert site.node in (await change.add(site)).ring

    run(work())


def test_a_node_that_hangs_does_not_hold_up_the_view_of_the_others(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            door = world.market.directory_of("d") / SOCKET
            door.unlink()
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf:
                deaf.bind(str(door))
                deaf.listen()
                async with asyncio.timeout(60):
                    views = await RingChange(world.market).views()
            assert sorted(views) == ["a", "b", "c"]

    run(work())


def test_a_site_is_removed_and_the_rest_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            change = RingChange(world.market)
            await world.publish("floor", trades(10))
            gone = world.market.node("d")
            view = await change.remove(gone)
            assert gone.node not in view.universe
            assert gone.node not in view.ring
            await world.publish("floor", trades(10, 11))
            await world.until_journals_have(range(1, 21), "a", "b", "c")
            # Asked again, it is already so.
            assert (await change.remove(gone)).universe == view.universe
            # It was drained before it was removed; whoever adds it again wants it on the ring.
            assert gone.node in (await change.add(gone)).ring

    run(work())


def test_a_dead_site_is_removed(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, FOUR, settings=CALM)) as world:
            await world.start()
            await world.stop("d")
            change = RingChange(world.market)
            view = await change.remove(world.market.node("d"))
            assert len(view.universe) == 3
            await world.publish("floor", trades(5))
            await world.until_journals_have(range(1, 6), "a", "b", "c")

    run(work())


def test_two_of_four_go_on_by_force_when_the_others_never_come_back(tmp_path: Path) -> None:
    async def work() -> None:
        nodes = {**FOUR, "a": {"role": "primary-receiver", "number": 1}}
        async with World(market_file(tmp_path, nodes, settings=CALM)) as world:
            await world.start()
            await world.publish("floor", trades(10))
            await world.until_journals_have(range(1, 11), "a", "b", "c", "d")
            await world.stop("c")
            change = RingChange(world.market)
            with pytest.raises(OperatorError, match="these nodes still answer: d"):
                await change.force([world.market.node("a"), world.market.node("b")])
            await world.stop("d")
            await world.publish("floor", trades(10, 11))
            with pytest.raises(OperatorError, match="not done after"):
                await RingChange(world.market, patience_s=1).remove(world.market.node("c"))
            view = await change.force([world.market.node("a"), world.market.node("b")])
            assert view.universe == (1, 2)
            await world.until_journals_have(range(1, 21), "a", "b")
            assert "forced" in world.alarms("x")
            assert view.left_out == {3, 4}
            with pytest.raises(OperatorError, match="number 3 was removed from U by force and must not vote again"):
                await change.add(world.market.node("c"))
            with pytest.raises(OperatorError, match="site 4 was removed from U by force"):
                await change.ask("a", "add-site", site=4)
            await world.stop("a")
            await world.start("a")
            with pytest.raises(OperatorError, match="number 4 was removed from U by force"):
                await change.add(world.market.node("d"))

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
                grown = load_market(path)
                newcomer = grown.node("d")
                init_keys(grown)
                await RosterChange(grown).apply()
                change = RingChange(grown)
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
                assert sorted((await _newest(change)).universe) == [1, 2, 3]

    run(work())


async def _newest(change: RingChange) -> RingView:
    """The newest ring, as soon as there is one: a busy machine re-forms it now and then."""
    for _ in range(300):
        with suppress(OperatorError):
            return await change.newest()
        await asyncio.sleep(0.1)
    return await change.newest()


def test_what_a_node_is_asked_wrongly_is_refused_by_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path)) as world:
            await world.start()
            where = world.market.directory_of
            forged = OperatorHand(world.market).sign(ControlEntry(ControlKind.REMOVE_SITE, 2, b""), 0)
            for name, do, arguments, text in (
                ("a", "add-site", {"site": "b"}, "is the id of a receiver"),
                ("a", "add-site", {"site": 77}, "no site 77"),
                ("a", "remove-site", {"site": 3}, "operator did not sign this"),
                ("a", "remove-site", {"site": 3, "order": forged.order.hex()}, "did not sign this for this ring"),
                ("a", "drain", {"leaving": 1}, "true, or false"),
                ("x", "force", {"universe": [1, 2]}, "operator did not sign this"),
                ("x", "force", {"universe": [1, 2], "order": forged.order.hex()}, "did not sign this for this ring"),
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
    change = RingChange(world.market, patience_s=0.1)
    with pytest.raises(OperatorError, match="no primary receiver answers"):
        asyncio.run(change.newest())
    with pytest.raises(OperatorError, match=r"a: .*no process listens"):
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
