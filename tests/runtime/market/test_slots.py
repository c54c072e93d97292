"""Several markets on one machine: slots that share nothing, and who is in the way, by the key that moves it."""

from __future__ import annotations

import socket
import tomllib
from itertools import count
from pathlib import Path

import pytest
from tests.runtime.worlds import World, run, trades

from isocast.cli.main import main
from isocast.runtime.market import slots
from isocast.runtime.market.example import example_text
from isocast.runtime.market.file import load_market
from isocast.runtime.market.finding import is_running
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.market.keys import SLOT_MAX
from isocast.runtime.market.slots import Clash, clashes, free_slot, key_to_move, sharer

SMALL = """\
name = "{name}"
durability = "process"
[timing]
profile = "ci"
detect = "20ms"
process = "50ms"
retries_max = 2
[clock]
bound = "1ms"
source = "configured"
realtime = false
[network]
slot = {slot}
[nodes.a]
role = "primary-receiver"
[nodes.b]
role = "primary-receiver"
[nodes.floor]
role = "primary-source"
[nodes.x]
role = "reformation-server"
"""


def written(folder: Path, name: str, slot: int) -> Path:
    path = folder / name / "market.toml"
    path.parent.mkdir()
    path.write_text(SMALL.format(name=name, slot=slot), encoding="utf-8")
    init_keys(load_market(path))
    return path


def two_slots() -> tuple[int, int]:
    first = free_slot()
    return first, free_slot((first + 1) % (SLOT_MAX + 1))


def test_two_markets_that_say_nothing_of_addresses_run_beside_each_other(tmp_path: Path) -> None:
    one, other = two_slots()

    async def work() -> None:
        async with World(written(tmp_path, "one", one)) as first, World(written(tmp_path, "other", other)) as second:
            await first.start()
            await second.start()
            await first.publish("floor", trades(30))
            await second.publish("floor", trades(40, 1_000))
            await first.until_journals_have(range(1, 31), "a", "b")
            await second.until_journals_have(range(1_000, 1_040), "a", "b")
            strangers = [node.counters for world in (first, second) for node in world.nodes.values()]
            assert not sum([counters.authentication_failures + counters.unknown_senders for counters in strangers])

    run(work())


def test_slots_share_no_address_and_no_port_of_a_group(tmp_path: Path) -> None:
    paths = [tmp_path / f"{slot}.toml" for slot in (0, 1, SLOT_MAX)]
    markets = []
    for path, slot in zip(paths, (0, 1, SLOT_MAX), strict=True):
        path.write_text(example_text(slot=slot), encoding="utf-8")
        markets.append(load_market(path))
    assert [market.network.port for market in markets] == [7_700, 7_701, 7_899]
    assert [market.node("london").address for market in markets] == ["127.1.0.1", "127.1.1.1", "127.1.199.1"]
    spots = [{plan.address for plan in market.nodes} for market in markets]
    assert not spots[0] & spots[1]
    assert not spots[1] & spots[2]


def test_an_example_has_a_slot_that_nobody_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    start = free_slot()
    monkeypatch.setattr(slots, "randbelow", lambda _: start)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
        node.bind((f"127.1.{start}.1", 7_710))
        assert main(["config", "example", "--out", str(tmp_path / "market.toml")]) == 0
    chosen = tomllib.loads((tmp_path / "market.toml").read_text(encoding="utf-8"))["network"]["slot"]
    assert chosen != start
    assert main(["config", "example", "--slot", "200"]) == 2
    assert "--slot" in capsys.readouterr().err


def test_somebody_in_the_way_is_named_with_the_key_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, _ = two_slots()
    path = written(tmp_path, "one", one)
    market = load_market(path)
    assert clashes(market.nodes) == []
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as web:
        web.bind((f"127.1.{one}.2", 7_780))
        web.listen()
        assert clashes(market.nodes) == [Clash("b", "http_port", f"TCP port 7780 of 127.1.{one}.2")]
        assert main(["up", "--config", str(path)]) == 3
        said = capsys.readouterr().err
        assert f"TCP port 7780 of 127.1.{one}.2, which b of one needs, is in use" in said
        assert f"or set network.slot = {free_slot(one + 1)} in {path}" in said
    assert not (path.parent / "data").exists(), "nothing was founded"


def test_where_the_file_gives_the_address_its_own_key_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "one", 3)
    path.write_text(
        path.read_text(encoding="utf-8").replace("[nodes.b]", '[nodes.b]\naddress = "127.200.0.9"'), encoding="utf-8"
    )
    market = load_market(path)
    assert key_to_move(market, market.node("b"), "http_port") == "nodes.b.http_port"
    assert key_to_move(market, market.node("a"), "port").startswith("network.slot = ")


def test_a_market_does_not_send_in_the_groups_of_another_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slot, _ = two_slots()
    one, other = written(tmp_path, "one", slot), written(tmp_path, "other", slot)
    numbers = count(1)
    text = other.read_text(encoding="utf-8")
    for name in ("a", "b", "floor", "x"):
        text = text.replace(f"[nodes.{name}]", f'[nodes.{name}]\naddress = "127.211.{slot}.{next(numbers)}"')
    other.write_text(text, encoding="utf-8")
    assert sharer(load_market(other)) is None
    with is_running(one):
        assert sharer(load_market(other)) == one.resolve()
        assert sharer(load_market(one)) is None
        assert main(["up", "--config", str(other)]) == 3
    assert "would send in the groups of" in capsys.readouterr().err
