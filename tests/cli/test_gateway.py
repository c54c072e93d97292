"""`isocast gateway` as a command: what it says, and what it refuses."""

import json
import sys
from collections.abc import Iterator
from inspect import signature
from ipaddress import IPv4Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.runtime.worlds import SMALL, World, market_file, running

from isocast.cli import gateway
from isocast.cli.gateway import _report, sent_text
from isocast.cli.main import main
from isocast.runtime.edge.gateway import GatewayCounts
from isocast.runtime.market.certificates import init_certificates
from isocast.runtime.market.example import example_text
from isocast.runtime.market.file import load_market
from isocast.runtime.market.rules import groups_in_use

NODES = {
    **{name: SMALL[name] for name in ("a", "b", "c", "x")},
    "edge": {"role": "customer", "lines": ["a", "b"], "start": False},
}
PLAN = """version = 1
[[stripe]]
number = 5
core = 0
name = "rest"
rate = "56k"
spare = true
[[stripe]]
number = 6
core = {core}
name = "few"
rate = "56k"
{more}
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running(market_file(tmp_path_factory.mktemp("market"), NODES)) as found:
        yield found


def itch(world: World, *arguments: object) -> int:
    places = "--port", "30977", "--request-port", "0", "--seconds", "0.4"
    group = () if "--group" in arguments else ("--group", "239.200.80.1")
    return main(["gateway", "itch", "--config", str(world.path), *places, *group, *map(str, arguments)])


def test_a_quiet_market(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert itch(world, "--name", "edge", "--directory", tmp_path) == 0
    got = capsys.readouterr()
    assert "edge sends MoldUDP64 to 239.200.80.1:30977; requests at " in got.err
    nothing = "0 sent live, 0 sent late, 0 not multicast; 0 packets, 0 of 0 requests"
    assert got.out == f"0 ITCH messages from 0 events: {nothing}.\n"
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(core=0, more='symbols = ["ISO"]'), encoding="utf-8")
    assert itch(world, "--name", "edge", "--directory", tmp_path, "--plan", plan, "--json") == 0
    got = capsys.readouterr()
    assert "239.200.80.1:30977 to 239.200.80.2:30977, 2 stripes" in got.err
    report = json.loads(got.out)
    assert (report["packets"], report["sessions"], report["left_out"]) == (0, [], {})


@pytest.mark.parametrize(
    "words, rule",
    [
        (["--name", "egde"], 'nodes.egde: is not a customer; did you mean "edge"?'),
        (["--name", "a"], "nodes.a: is not a customer"),
        (["--name", "edge", "--zone", "Mars"], "is no time zone"),
        (["--name", "edge", "--group", "10.0.0.1"], "not all multicast groups"),
        (["--name", "edge", "--group", "here"], "--group: here is not an IPv4 address"),
        (["--name", "edge", "--plan", "absent.toml"], "absent.toml: file: cannot be read"),
    ],
)
def test_bad_words(world: World, words: list[str], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert itch(world, *words) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert rule in got.err
    assert got.err.count("\n") == 1


def test_a_group_of_the_markets_own_is_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert itch(world, "--name", "edge", "--group", world.market.control_group(0)) == 2
    assert "is control of stripe 0 of this market: choose another" in capsys.readouterr().err


def test_the_group_of_a_gateway_is_none_that_markets_have(tmp_path: Path) -> None:
    path = tmp_path / "market.toml"
    path.write_text(example_text(), encoding="utf-8")
    own = {str(IPv4Address(number)) for _, _, number in groups_in_use(load_market(path))}
    assert "239.255.77.0" in own
    assert signature(gateway.itch).parameters["group"].default not in own


def test_a_plan_of_other_core_stripes(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.replace("core = 0", "core = 3").format(core=3, more=""), encoding="utf-8")
    assert itch(world, "--name", "edge", "--plan", plan) == 2
    assert "has no plan for core stripe 0" in capsys.readouterr().err


def test_the_summary_counts_every_message_once() -> None:
    counts = GatewayCounts(
        events=9, itch_messages=235, sent_live=200, sent_late=11, not_sent=24, latest_ns=3_200_000_000
    )
    text = "235 ITCH messages from 9 events: 200 sent live, 11 sent late (up to 3.2 s), 24 not multicast;"
    assert sent_text(counts).startswith(text)


def test_the_summary_says_what_events_were_sent_without(capsys: pytest.CaptureFixture[str]) -> None:
    feed = SimpleNamespace(left_out={}, written_without={"the flag unprinted": 1}, missed=0, running=[])
    made: Any = SimpleNamespace(counts=GatewayCounts(events=2), feed=feed)
    _report(made, as_json=False)
    assert capsys.readouterr().out.endswith("\nWritten without the flag unprinted: 1 event.\n")
    _report(made, as_json=True)
    assert json.loads(capsys.readouterr().out)["written_without"] == {"the flag unprinted": 1}


def websocket(world: World, *arguments: object) -> int:
    words = "--config", str(world.path), "--port", "0", "--seconds", "0.3", *map(str, arguments)
    return main(["gateway", "websocket", *words])


def test_a_websocket_gateway_of_a_quiet_market(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert websocket(world, "--name", "edge", "--origin", "https://desk.example") == 0
    got = capsys.readouterr()
    assert "edge serves WebSockets at ws://127.0.0.1:" in got.err
    assert got.out == "0 events, 0 clients, 0 messages.\n"
    assert websocket(world, "--name", "edge", "--json") == 0
    assert json.loads(capsys.readouterr().out)["clients"] == 0
    assert websocket(world, "--name", "egde") == 2
    assert "is not a customer" in capsys.readouterr().err
    assert websocket(world, "--name", "edge", "--address", "192.0.2.1") == 2
    assert "its doors need a certificate: isocast certs init makes it" in " ".join(capsys.readouterr().err.split())
    init_certificates(world.market)
    assert websocket(world, "--name", "edge", "--address", "192.0.2.1") == 3
    assert "cannot listen on 192.0.2.1:0" in capsys.readouterr().err


def test_without_the_package(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "isocast.runtime.edge.web_gateway", raising=False)
    monkeypatch.setitem(sys.modules, "websockets.asyncio.server", None)
    assert websocket(world, "--name", "edge") == 2
    assert "pip install isocast[websocket]" in capsys.readouterr().err
