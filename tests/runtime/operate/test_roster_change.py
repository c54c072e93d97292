"""Rosters and revocations in a market that runs: applied at the same token everywhere, revoked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runtime.worlds import PATIENCE_S, SMALL, World, eventually, market_file, run, running, trades

from isocast.cli.main import main
from isocast.runtime.hosts.receiver import ReceiverHost
from isocast.runtime.hosts.reformation import ReformationHost
from isocast.runtime.hosts.roster_following import RosterFollower
from isocast.runtime.hosts.source import SourceHost
from isocast.runtime.market.core_keys import CoreKeys
from isocast.runtime.market.roster_files import ROSTER, load_roster, save_revocation, save_roster
from isocast.runtime.market.roster_making import (
    RosterWish,
    load_root,
    make_request,
    next_roster,
    read_request,
    renew_roster,
    revocation_of,
    rotate_identity,
)
from isocast.runtime.operate.operator_door import OperatorError, ask
from isocast.runtime.operate.ring_change import RingChange, RingView
from isocast.runtime.operate.roster_change import RosterChange, RosterState
from isocast.security.roster import FORMER_MAX, RosterBook, sign_roster
from isocast.terms.errors import StoreError

RECEIVERS = ("a", "b", "c")
CORE = (*RECEIVERS, "x")


def _ring_of(views: Mapping[str, RingView], name: str) -> list[int]:
    return sorted(views[name].ring) if name in views else []


def _certified(world: World, name: str) -> int:
    host = world.nodes[name].host
    assert isinstance(host, ReceiverHost)
    return host.machine.receiver.certificates.certified


def core_keys_of(world: World, name: str) -> CoreKeys:
    host = world.nodes[name].host
    assert isinstance(host, ReceiverHost | ReformationHost | SourceHost)
    keys = host._context.keys.core_keys  # noqa: SLF001
    assert keys is not None
    return keys


def core_key(world: World, name: str) -> str:
    """The fingerprint of that by which a node speaks."""
    return core_keys_of(world, name).current.fingerprint


def book_of(world: World, name: str) -> RosterBook:
    host = world.nodes[name].host
    assert isinstance(host, ReceiverHost)
    assert isinstance(host.rosters, RosterFollower)
    return host.rosters.book


def test_a_roster_counts_from_the_same_token_on_everywhere(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            market = world.market
            first = load_roster(market)
            former = {name: core_key(world, name) for name in CORE}
            assert len(set(former.values())) == 1
            request = read_request(make_request("b", rotate_identity(market, "b")))
            second = renew_roster(market, RosterWish((request,)))
            assert second is not None
            states = await RosterChange(market).apply()
            assert {states[name] for name in RECEIVERS} == {RosterState(2, 2, 0)}
            assert states["x"] == RosterState(2, 1, 0), "who does not follow the sequence knows it"
            effective = {book_of(world, name).entries[-1][0] for name in RECEIVERS}
            assert len(effective) == 1
            for name in RECEIVERS:
                book, (token,) = book_of(world, name), effective
                assert book.public_of(market.node("b").node, token) == request.public
                assert book.public_of(market.node("b").node, token - 1) != request.public
            assert await RosterChange(market).apply() == states, "safe to repeat"
            await world.publish("floor", trades(5))
            await world.until_journals_have(range(1, 6), *RECEIVERS)
            # The new key signs from there on, without a restart.
            (token,) = effective
            await eventually(lambda: _certified(world, "a") > token + 6)
            # So does a core key that the roster brought: all speak by it, and nobody was unheard meanwhile.
            await eventually(lambda: len({core_key(world, name) for name in CORE}) == 1)
            assert core_key(world, "a") != former["a"]
            assert not any(world.nodes[name].counters.authentication_failures for name in (*CORE, "floor"))
            assert not any(world.nodes[name].counters.refused_signatures for name in RECEIVERS)
            # And with it after a restart, knowing since when the new roster counts.
            await world.stop("b")
            await world.start("b")
            assert book_of(world, "b").entries == ((0, first), *[(token, second) for token in effective])
            await world.publish("floor", trades(5, first_id=6))
            await world.until_journals_have(range(1, 11), *RECEIVERS)

    run(work())


def test_a_roster_waits_for_a_ring_that_is_re_forming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load the ring re-formed as the roster was applied: it never came into force, and nobody said so."""
    views, asked = RingChange.views, 0

    async def re_forming(change: RingChange) -> dict[str, RingView]:
        nonlocal asked
        asked += 1
        now = await views(change)
        return {name: replace(view, mode="sealed") for name, view in now.items()} if asked < 4 else now

    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            assert renew_roster(world.market, RosterWish(new_core_key=True)) is not None
            told: list[str] = []
            monkeypatch.setattr(RingChange, "views", re_forming)
            states = await RosterChange(world.market, told.append).apply()
            assert {states[name].counting for name in RECEIVERS} == {2}
            assert told == ["roster 2 to be announced", "roster 2 to count"]

    run(work())


def test_a_roster_that_no_ring_announces_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    views = RingChange.views

    async def sealed(change: RingChange) -> dict[str, RingView]:
        return {name: replace(view, mode="sealed") for name, view in (await views(change)).items()}

    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            assert renew_roster(world.market, RosterWish(new_core_key=True)) is not None
            monkeypatch.setattr(RingChange, "views", sealed)
            with pytest.raises(OperatorError, match="roster 2 to be announced: not done after 0 s"):
                await RosterChange(world.market, patience_s=0.3).apply()

    run(work())


def revealing(folder: Path, reveal: str) -> Path:
    path = market_file(folder, SMALL)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("durability", f'reveal = "{reveal}"\ndurability', 1), encoding="utf-8")
    return path


async def another_core_key(world: World, *, apply: bool = True) -> None:
    assert renew_roster(world.market, RosterWish(new_core_key=True)) is not None
    if apply:
        former = core_key(world, "floor")
        await RosterChange(world.market).apply()
        # The roster is in force at the receivers; a source changes over when it first hears one of them.
        await eventually(lambda: core_key(world, "floor") != former)


def unheard(world: World) -> list[str]:
    """Who refused or could not open anything."""
    nodes = {name: world.nodes[name].counters for name in (*RECEIVERS, "floor")}
    return [name for name, found in nodes.items() if found.authentication_failures or found.unopened_payloads]


@pytest.mark.parametrize("reveal", ["seal", "chain"])
def test_a_market_under_load_changes_its_core_key_and_every_message_is_heard_and_opened(
    tmp_path: Path, reveal: str
) -> None:
    async def load(world: World, over: asyncio.Event) -> int:
        count = 0
        while not over.is_set():
            await world.publish("floor", trades(1, first_id=count + 1))
            count += 1
        return count

    async def work() -> None:
        async with World(revealing(tmp_path, reveal)) as world:
            await world.start()
            over = asyncio.Event()
            loading = asyncio.create_task(load(world, over))
            used = {core_key(world, "a")}
            for _ in range(2):
                await another_core_key(world)
                await eventually(lambda: len({core_key(world, name) for name in CORE}) == 1)
                used.add(core_key(world, "a"))
            over.set()
            count = await loading
            await world.until_journals_have(range(1, count + 1), *RECEIVERS)
            assert len(used) == 3
            assert count > 10, "something was published over each change"
            assert not unheard(world)

    run(work())


@pytest.mark.parametrize("reveal", ["seal", "chain"])
def test_what_waits_in_an_outbox_over_two_changes_opens_at_sites_that_know_the_newest(
    tmp_path: Path, reveal: str
) -> None:
    async def work() -> None:
        async with World(revealing(tmp_path, reveal)) as world:
            await world.start()
            await another_core_key(world)
            await world.publish("floor", trades(5))
            await world.until_journals_have(range(1, 6), *RECEIVERS)
            for name in RECEIVERS:
                await world.stop(name)
            await world.publish("floor", trades(5, first_id=6))
            for name in ("floor", "x"):
                await world.stop(name)
            for _ in range(2):
                await another_core_key(world, apply=False)
            await world.start(*RECEIVERS, "floor", "x")
            await world.until_journals_have(range(1, 11), *RECEIVERS)
            assert not unheard(world)

    run(work(), PATIENCE_S)


def test_a_source_that_starts_again_believes_a_ring_that_was_formed_before_the_newest_roster(tmp_path: Path) -> None:
    """Under `chain` it must know who certifies: without that it would disclose no key, and all would be void."""

    async def work() -> None:
        async with World(revealing(tmp_path, "chain")) as world:
            await world.start()
            await another_core_key(world)
            await world.stop("floor")
            await world.start("floor")
            await world.publish("floor", trades(5))
            await eventually(lambda: world.count("a") == 5 or world.nodes["a"].counters.void_messages)
            assert not world.nodes["a"].counters.void_messages
            await world.until_journals_have(range(1, 6), *RECEIVERS)
            assert not world.nodes["floor"].counters.refused_signatures

    run(work(), PATIENCE_S)


def test_a_source_that_was_away_too_long_says_what_is_lost_and_begins_anew(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            await another_core_key(world)
            for name in RECEIVERS:
                await world.stop(name)
            await world.publish("floor", trades(5))
            for name in ("floor", "x"):
                await world.stop(name)
            for _ in range(FORMER_MAX + 1):
                await another_core_key(world, apply=False)
            with pytest.raises(StoreError, match=r"sealed with a core key of too many rosters ago: start the source"):
                await world.start("floor", ready=False)
            await world.start(*RECEIVERS, "floor", "x")
            await world.publish("floor", trades(5, first_id=6))
            await world.until_journals_have(range(6, 11), *RECEIVERS)
            assert not unheard(world)

    run(work(), PATIENCE_S)


def holds_what_the_others_release(world: World, name: str) -> bool:
    """Whether a certified message waits in a receiver's log; then it does nothing more."""
    host = world.nodes[name].host
    assert isinstance(host, ReceiverHost)
    receiver = host.machine.receiver
    numbers = [number for number, entry in receiver.ledger.entries.items() if entry.messages]
    if numbers and receiver.certificates.certified >= max(numbers):
        host.driver.stop()
        return world.count(name) == 0
    return False


async def log_that_waited(world: World) -> None:
    """Five events are released at a and c and wait in b's log; then nodes are down over seven changes."""
    await world.start()
    await another_core_key(world)
    await world.publish("floor", trades(5))
    while not holds_what_the_others_release(world, "b"):  # noqa: ASYNC110 - released at an instant, so look often
        await asyncio.sleep(0.001)
    await world.until_journals_have(range(1, 6), "a", "c")
    for name in (*RECEIVERS, "floor", "x"):
        await world.stop(name)
    for _ in range(FORMER_MAX + 1):
        await another_core_key(world, apply=False)
    with suppress(StoreError):  # What b never receipted is in its outbox still, perhaps.
        await world.start("floor", ready=False)
        await world.stop("floor")


@pytest.mark.parametrize("reveal", ["seal", "chain"])
def test_a_log_that_waited_over_more_changes_than_a_roster_hands_on_releases_what_the_others_did(
    tmp_path: Path, reveal: str
) -> None:
    async def work() -> None:
        async with World(revealing(tmp_path, reveal)) as world:
            await log_that_waited(world)
            await world.start(*RECEIVERS, "floor", "x")
            await world.publish("floor", trades(5, first_id=6))
            await world.until_journals_have(range(1, 11), *RECEIVERS)
            assert not unheard(world)

    run(work(), PATIENCE_S)


@pytest.mark.parametrize("reveal", ["seal", "chain"])
def test_a_site_that_lacks_a_core_key_ends_and_releases_no_empty_message(tmp_path: Path, reveal: str) -> None:
    async def work() -> None:
        async with World(revealing(tmp_path, reveal)) as world:
            await log_that_waited(world)
            for kept in (world.market.keys_directory / "rosters").glob("roster-*.bin"):
                kept.unlink()
            await world.start(*RECEIVERS, "x", ready=False)
            await eventually(lambda: world.nodes["b"].failure)
            ended = world.nodes.pop("b")
            await ended.stop()
            assert isinstance(ended.failure, StoreError)
            assert "sealed with a core key that this site never had: bring all rosters" in str(ended.failure)
            assert world.count("b") == 0

    run(work(), PATIENCE_S)


def test_a_site_that_nobody_told_finds_the_roster_and_its_core_key_by_the_sequence(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            assert renew_roster(world.market, RosterWish(new_core_key=True)) is not None
            for name in ("a", "x", "floor"):
                await ask(world.market.directory_of(name), "roster")
            await ask(world.market.directory_of("a"), "announce-roster", serial=2)
            await eventually(lambda: book_of(world, "b").entries[-1][1].serial == 2)
            await eventually(lambda: len({core_key(world, name) for name in (*CORE, "floor")}) == 1)
            await world.publish("floor", trades(5))
            await world.until_journals_have(range(1, 6), *RECEIVERS)
            assert not unheard(world)

    run(work())


def test_a_node_that_is_told_of_two_rosters_at_once_hears_by_the_core_keys_of_both(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            brought = []
            for name in ("a", "x"):
                assert renew_roster(world.market, RosterWish(new_core_key=True)) is not None
                await ask(world.market.directory_of(name), "roster")
                brought.append(core_keys_of(world, name).newest)
            # The first came into force where it is known: they speak by it, and the second has to wait.
            keys = core_keys_of(world, "x")
            assert (keys.current, keys.newest) == tuple(brought)

    run(work())


def test_a_revocation_binds_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            market = world.market
            node = market.node("b").node
            assert book_of(world, "a").public_of(node, 5) is not None
            save_revocation(market, revocation_of(market, "b"))
            states = await RosterChange(market).tell()
            assert {state.revoked for state in states.values()} == {1}
            assert set(world.nodes) <= set(states)
            for name in RECEIVERS:
                assert book_of(world, name).public_of(node, 5) is None
            change = RingChange(market)
            others = [market.node(name).node for name in ("a", "c")]
            await change.until("a ring of those who are believed", lambda views: _ring_of(views, "a") == others, "")
            await world.publish("floor", trades(5))
            await world.until_journals_have(range(1, 6), "a", "c")
            assert world.nodes["a"].counters.refused_signatures

    run(work())


def test_a_node_that_lacks_the_roster_says_so_and_takes_it_later(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            market = world.market
            second = next_roster(market, RosterWish(extend=("a",)), 2**62)
            assert second is not None
            raw = sign_roster(second, load_root(market.keys_directory / "root.key", second))
            before = (market.keys_directory / ROSTER).read_bytes()
            save_roster(market, raw)
            await ask(market.directory_of("a"), "roster")
            (market.keys_directory / ROSTER).write_bytes(before)
            kept = market.keys_directory / "rosters" / "roster-000002.bin"
            kept.unlink()
            async with asyncio.timeout(PATIENCE_S):
                while "roster-missing-2" not in world.alarms("b"):
                    # A ring that re-forms meanwhile may have cut the announcement off.
                    with suppress(OperatorError):
                        await ask(market.directory_of("a"), "announce-roster", serial=2)
                    await asyncio.sleep(1)
            assert book_of(world, "b").newest.serial == 1
            await eventually(lambda: book_of(world, "a").entries[-1][1] == second)
            save_roster(market, raw)
            await RosterChange(market).tell()
            assert book_of(world, "b").entries == book_of(world, "a").entries

    run(work())


def test_refusals_say_why(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL)) as world:
            await world.start()
            with pytest.raises(OperatorError, match="roster 1 is in force, and this node has none after it"):
                await ask(world.market.directory_of("a"), "announce-roster", serial=2)
            first = load_roster(world.market)
            root = load_root(world.market.keys_directory / "root.key", first)
            second = next_roster(world.market, RosterWish(extend=("a",)), 2**62)
            assert second is not None
            save_roster(world.market, sign_roster(second, root))
            third = next_roster(world.market, RosterWish(extend=("b",)), 2**62)
            assert third is not None
            save_roster(world.market, sign_roster(third, root))
            (world.market.keys_directory / "rosters" / "roster-000002.bin").unlink()
            with pytest.raises(OperatorError, match="roster 3 does not follow 1, which this node has"):
                await RosterChange(world.market).tell()

    run(work())


def test_every_stripe_has_the_roster_at_a_token_of_its_own(tmp_path: Path) -> None:
    async def work() -> None:
        async with World(market_file(tmp_path, SMALL, settings={"ring": {"stripes": [0, 1]}})) as world:
            await world.start()
            assert renew_roster(world.market, RosterWish(extend=("a",), valid_ns=2**61)) is not None
            states = await RosterChange(world.market).apply()
            for stripe in (RECEIVERS, [f"{name}.s1" for name in RECEIVERS]):
                assert {states[name] for name in stripe} == {RosterState(2, 2, 0)}
                assert len({book_of(world, name).entries[-1][0] for name in stripe}) == 1

    run(work())


def test_the_commands_tell_a_market_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = market_file(tmp_path, SMALL)
    with running(path) as world:
        assert main(["keys", "rotate", "b", "--config", str(path)]) == 0
        assert main(["keys", "apply", "--config", str(path)]) == 0
        told = f"{len(world.nodes)} nodes of this machine told: roster 2, 0 keys revoked."
        assert told in capsys.readouterr().out
        assert main(["keys", "revoke", "c", "--config", str(path)]) == 0
        told = f"{len(world.nodes)} nodes of this machine told: roster 2, 1 key revoked."
        assert told in capsys.readouterr().out
