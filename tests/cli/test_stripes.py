"""Commands against a market of two stripes, by fan-out: publish, listen, replay, tape, ring, and what is refused."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.worlds import SMALL, Nodes, World, market_file, run, running, trades, wait_until
from tests.ticker.test_digest import digest_of

from isocast.cli.main import main
from isocast.runtime.client.publisher import Publisher, PublishRefusedError, SourceDoor
from isocast.runtime.market.file import load_market
from isocast.runtime.market.routes import core_routes
from isocast.terms.errors import LocalProtocolError
from isocast.terms.market import EventKind
from isocast.ticker.tape import Tape
from isocast.wire.events import EventArray

WATCHED = {name: {**SMALL[name], "http_port": 7780} for name in ("a", "b", "c", "x")}
NODES: Nodes = {
    **SMALL,
    **WATCHED,
    **{
        name: {"role": "customer", "lines": ["a", "b"], "retransmit": ["archive"], "start": False}
        for name in ("desk", "late")
    },
    "small": {"role": "primary-source", "stripes": [1]},
    "a2": {"role": "secondary-receiver", "parent": "a", "backup": "b"},
    "broker": {"role": "secondary-source", "parent": "floor"},
}
SETTINGS: dict[str, dict[str, object]] = {"ring": {"stripes": [0, 1]}, "network": {"mode": "fanout"}}
SYMBOLS = (b"ISO", b"CAST", b"IBM", b"VOD", b"AAPL", b"GOOG", b"ORCL")
IN_ONE = ("ISO", "VOD")
"""Of them, those that a hash puts into stripe 1."""
NUMBER = 70


def day(first_id: int = 1) -> EventArray:
    events = trades(NUMBER, first_id, SYMBOLS)
    events["time"] = 1_700_000_000_000_000_000 + np.arange(NUMBER) * 1_000_000
    events["kind"][0], events["symbol"][0], events["price"][0] = EventKind.MARK, b"", 0
    events["quantity"][0], events["id"][0] = 0, ord("O")
    return events


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("market")
    path = market_file(folder, NODES, settings=SETTINGS)
    (folder / "day.events").write_bytes(day().tobytes())
    with running(path) as found:
        words = ["--config", str(path), "--source", "floor", "--key-prefix", "monday", str(folder / "day.events")]
        assert main(["publish", *words]) == 0
        assert main(["publish", *words]) == 0
        wait_until(lambda: found.count("archive") + found.count("archive.s1") == NUMBER + 1)
        yield found


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    capsys.readouterr()
    assert main([str(word) for word in words]) == code
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], world: World, *words: object) -> list[dict[str, Any]]:
    text = told(capsys, "listen", "--config", world.path, "--from", "beginning", "--json", *words)
    return [json.loads(line) for line in text.splitlines()]


def test_a_repeat_publishes_nothing_again_in_either_stripe(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--source", "floor", "--key-prefix", "monday", str(world.path.parent / "day.events")]
    report = json.loads(told(capsys, "publish", "--config", world.path, *words, "--json"))
    assert report["events"] == NUMBER, "a copy is no event more"
    assert report["repeated_messages"] == report["messages"] == 2 + 1
    assert world.count("archive") + world.count("archive.s1") == NUMBER + 1


def test_customers_hear_one_sequence_with_everything_in_it(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    desk, late = [rows(capsys, world, "--as", name, "--count", NUMBER) for name in ("desk", "late")]
    assert [row | {"received_ns": 0} for row in desk] == [row | {"received_ns": 0} for row in late]
    places = [(row["instant_ns"], row["stripe"], row["sequence"]) for row in desk]
    assert places == sorted(places)
    routes = core_routes(world.market)
    assert all(row["stripe"] == routes.stripe_of(row["symbol"]) for row in desk if row["symbol"])
    assert {row["id"] for row in desk if row["symbol"]} == set(range(2, NUMBER + 1))
    assert [row["flags"] for row in desk if not row["symbol"]] == [[]], "a floor's opening once"


def test_symbols_choose_stripes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, world, "--symbols", "ISO", "--count", 1 + NUMBER // len(SYMBOLS) - 1)
    assert {(row["stripe"], row["symbol"]) for row in found} == {(1, "ISO"), (1, "")}
    assert [row["flags"] for row in found if not row["symbol"]] == [["copied"]], "heard in this stripe alone"


def test_stripes_by_number_from_a_sequence_and_unmerged(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    one = rows(capsys, world, "--stripes", "1", "--count", 5)
    assert {row["stripe"] for row in one} == {1}
    text = told(capsys, *("listen", "--config", world.path, "--json", "--from", "0:2,1:1", "--unmerged", "--count", 30))
    both = [json.loads(line) for line in text.splitlines()]
    assert min(row["sequence"] for row in both if row["stripe"] == 0) == 2
    table = told(capsys, "listen", "--config", world.path, "--from", "beginning", "--count", 3)
    assert table.splitlines()[0].split()[:2] == ["stripe", "sequence"]


@pytest.mark.parametrize(
    "words, rule",
    [
        (["--stripes", "2"], "has no stripe 2; there are 0, 1"),
        (["--stripes", "x"], '"x" is not a list of stripes such as 0,1'),
        (["--symbols", "TOOLONGSYMBOL"], "--symbols"),
        (["--from", "17"], "17 is a sequence of one stripe"),
        (["--from", "0:0,1:1"], "0 is not a sequence"),
    ],
)
def test_what_cannot_be_heard_is_said(
    world: World, words: list[str], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["listen", "--config", str(world.path), *words]) == 2
    assert rule in capsys.readouterr().err


def test_live_and_from_journals_the_tape_is_the_same(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = json.loads(
        told(capsys, "tape", "--config", world.path, "--name", "desk", "--count", NUMBER, "--summary", "--json")
    )
    keepers = [
        [world.market.directory_of(f"{keeper}{more}") / "journal" for more in ("", ".s1")]
        for keeper in ("a", "archive", "bank")
    ]
    tapes = [json.loads(told(capsys, "tape", "--journal", *both, "--summary", "--json")) for both in keepers]
    assert tapes[1:] == tapes[:1] * 2
    assert live["state_digest"] == tapes[0]["state_digest"]
    assert live["events_digest"] == tapes[0]["events_digest"] is not None
    saved = tmp_path / "tape.snapshot"
    told(capsys, "tape", "--config", world.path, "--snapshot", saved, "--count", 5)
    first = Tape.restore(saved.read_bytes())
    assert 0 < first.events < NUMBER
    told(capsys, "tape", "--config", world.path, "--snapshot", saved, "--count", NUMBER - first.events)
    again = json.loads(told(capsys, "tape", "--journal", *keepers[0], "--snapshot", saved, "--summary", "--json"))
    assert again["state_digest"] == live["state_digest"]


def test_journals_of_one_stripe_are_not_merged(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    journals = [str(world.market.directory_of(name) / "journal") for name in ("a", "b")]
    assert main(["tape", "--journal", *journals]) == 2
    assert "both of stripe 0" in capsys.readouterr().err
    assert (
        main(["tape", "--journal", journals[0], str(world.market.directory_of("b.s1") / "journal"), "--at", "3"]) == 2
    )
    assert "no common sequence" in capsys.readouterr().err


def until_rings(world: World, *members: int) -> None:
    """The ring of each stripe has so many members, and all of them know it."""
    hosts = [[world.nodes[f"{name}{more}"].host for name in "abc"] for more in ("", ".s1")]

    def formed() -> bool:
        return all(
            len({host.gauges().epoch for host in own if host is not None}) == 1
            and all(len(host.gauges().ring or ()) == count for host in own if host is not None)
            for own, count in zip(hosts, members, strict=True)
        )

    wait_until(formed)


def test_every_ring_has_its_status(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    until_rings(world, 3, 3)
    report = json.loads(told(capsys, "ring", "status", "--config", world.path, "--json"))
    assert report["whole"]
    assert [sorted(one["ring"]) for one in report["stripes"]] == [["a", "b", "c"], ["a.s1", "b.s1", "c.s1"]]
    one = json.loads(told(capsys, "ring", "status", "--config", world.path, "--json", "--stripe", 1))
    assert one["universe"] == ["a.s1", "b.s1", "c.s1"]
    assert "stripe 1, epoch" in told(capsys, "ring", "status", "--config", world.path)
    assert main(["ring", "status", "--config", str(world.path), "--stripe", "4"]) == 2


def test_a_drain_of_one_stripe_leaves_the_other(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        assert "c.s1 is off the ring" in told(capsys, "ring", "drain", "c", "--stripe", 1, "--config", world.path)
        until_rings(world, 3, 2)
        report = json.loads(told(capsys, "ring", "status", "--config", world.path, "--json", code=1))
        assert [len(one["ring"]) for one in report["stripes"]] == [3, 2]
    finally:
        assert "c.s1 is on the ring again" in told(capsys, "ring", "drain", "c.s1", "--undo", "--config", world.path)


def test_a_replay_is_cut_by_stripe_and_repeated_in_none(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    file = world.path.parent / "tuesday.events"
    events = day(10_001)
    events["floor"] = b"XLON"
    file.write_bytes(events.tobytes())
    words = ["replay", f"{file}=floor", "--config", world.path, "--speed", "max", "--json"]
    first, second = json.loads(told(capsys, *words)), json.loads(told(capsys, *words))
    parts = core_routes(world.market).split(events)
    expected = {("floor", 0): digest_of([parts[0]]).hex, ("floor.s1", 1): digest_of([parts[1]]).hex}
    assert {(one["source"], one["stripe"]): one["digest"] for one in first["floors"]} == expected
    assert first["known_messages"] == 0
    assert second["known_messages"] == second["messages"] == first["messages"]
    wait_until(lambda: world.count("archive") + world.count("archive.s1") == 2 * (NUMBER + 1))


def test_a_secondary_source_publishes_in_both_stripes_and_lower_receivers_release(world: World) -> None:
    wait_until(lambda: all(world.count(f"a2{stripe}") == world.count(f"archive{stripe}") for stripe in ("", ".s1")))
    before = world.count("a2"), world.count("a2.s1")

    async def work() -> None:
        async with Publisher(world.market, "broker") as broker:
            await broker.publish(trades(len(SYMBOLS), 80_001, SYMBOLS))

    run(work())
    wait_until(lambda: (world.count("a2") - before[0], world.count("a2.s1") - before[1]) == (5, 2))
    wait_until(lambda: all(world.ids(f"a2{stripe}")[-2:] == world.ids(f"a{stripe}")[-2:] for stripe in ("", ".s1")))


def test_a_symbol_at_the_door_of_another_stripe_is_refused(world: World) -> None:
    symbols = (IN_ONE[0].encode(), b"IBM")

    async def work() -> None:
        async with Publisher(world.market, "small") as small:
            assert len(await small.publish(trades(3, 90_001, symbols[:1]))) == 1
            with pytest.raises(LocalProtocolError, match="IBM travels in stripe 0, where this source does not publish"):
                await small.publish(trades(2, 90_011, symbols))
            with pytest.raises(LocalProtocolError, match="not event records"):
                await small.publish_messages([(b"key", b"short")])
        lane = SourceDoor(world.market, world.market.node("floor.s1"), 5.0)
        await lane.open()
        try:
            with pytest.raises(
                PublishRefusedError, match=r"IBM travels in stripe 0 and this is stripe 1: .* at floor$"
            ):
                await lane.publish_messages([(b"wrong", trades(2, 90_021, symbols).tobytes())])
        finally:
            await lane.close()

    run(work())


def test_up_and_node_know_processes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--config", str(world.path), "--only", "a"]) == 3
    assert "1 other node cannot start either" in capsys.readouterr().err, "both of its processes"
    assert main(["node", "--config", str(world.path), "--name", "a.s7"]) == 2
    assert "a.s1" in capsys.readouterr().err
    market = load_market(world.path)
    assert json.loads(told(capsys, "config", "check", world.path, "--json"))["stripes"] == list(market.stripes)
