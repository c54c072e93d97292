"""`isocast edge` as a command: what it hears, what it says, and what it refuses."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread
from time import time_ns

import pytest
from tests.interop.narrow import MODEM, narrow_market, plan_of, tape
from tests.striping.edge_streams import part_of_payloads

from isocast.cli.main import main
from isocast.runtime.edge.narrow.archive import DeskCounts
from isocast.runtime.edge.narrow.plan_change import PlanChange
from isocast.runtime.edge.narrow.repairer import RepairCounts
from isocast.runtime.edge.narrow.service import edge_settings
from isocast.runtime.edge.narrow.stripe_keys import SenderKeys
from isocast.runtime.hosts.edge_process import _NOTHING_YET
from isocast.runtime.market.file import load_market
from isocast.striping.engine import StripeEngine, StripePacket
from isocast.striping.plan import StripePlan, plan_text
from isocast.striping.proving import PROOF_ROOM, MadeProof

PLAN = plan_of(1, {1: ("S01", "S02"), 2: ("S03",)})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return narrow_market(tmp_path, PLAN)


@contextmanager
def speaking(config: Path, plan: StripePlan = PLAN, *, losing: int = 0) -> Iterator[None]:
    """Receiver a's edge as a thread that says the same few packets until it is stopped."""
    market = load_market(config)
    edge, node = market.edge, market.node("a")
    assert edge is not None
    engine = StripeEngine(plan, 0, edge_settings(market))
    made: list[StripePacket] = []
    start = time_ns()
    for token in range(1, 6):
        payload = tape(["S01", "S02", "S03"], 6, 10 * token).tobytes()
        instant = start + token * market.timing.token_period_ns
        part = part_of_payloads(token, instant, 1, 0, token, [payload])
        made += [one for one in engine.step(part) if isinstance(one, StripePacket)]
    groups = {edge.group(node.number, packet.stripe) for packet in made}
    stopped = Event()

    def speak() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.bind((node.address, 0))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(node.address))
            prover = SenderKeys(market, node).prover
            assert prover is not None
            proofs: list[MadeProof] = []
            heard = False
            while not stopped.wait(0.05):
                # Who comes in the middle of the packets would miss the first of them.
                if not heard:
                    heard = joined(groups)
                    for packet in made if heard else ():
                        prover.note(packet)
                    proofs = prover.prove((), time_ns(), lambda _: PROOF_ROOM)
                    continue
                for proof in proofs:
                    sender.sendto(proof.raw, (edge.proof_group(node.number, proof.stripe), edge.port))
                for place, packet in enumerate(made):
                    if not losing or place != losing:
                        sender.sendto(packet.raw, (edge.group(node.number, packet.stripe), edge.port))

    thread = Thread(target=speak)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def joined(groups: set[str]) -> bool:
    """Whether anybody on this machine hears one of these groups."""
    rows = Path("/proc/net/igmp").read_text(encoding="ascii").split()
    return any(socket.inet_aton(group)[::-1].hex().upper() in rows for group in groups)


def listen(config: Path, *words: str) -> int:
    return main(["edge", "listen", "--config", str(config), "--name", "modem", *words])


def test_a_modem_hears_one_stripe(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with speaking(config):
        assert listen(config, "--rate", "56k", "--json", "--count", "22", "--seconds", "20") == 0
    said = capsys.readouterr()
    assert "modem hears 1 stripe (s1), 2 symbols of a line of 56 kb/s" in said.err
    rows = [json.loads(row) for row in said.out.splitlines()]
    counts = rows.pop()["counts"]
    assert {row["stripe"] for row in rows} == {1}
    assert [row["symbol"] for row in rows if row["kind"] == "directory"] == ["S01", "S02"]
    assert {row["floor"] for row in rows} == {"XNYS"}
    assert sum(row["kind"] == "trade" for row in rows) == 20
    assert (counts["stripes"], counts["lost"], counts["asked"]) == (1, 0, 0)
    assert counts["messages"] == 26


def test_symbols_choose_stripes_and_a_report_is_for_people(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with speaking(config):
        assert listen(config, "--symbols", "S03,NEW", "--count", "11", "--seconds", "20") == 0
    said = capsys.readouterr()
    assert "no stripe lists NEW: listening on a spare stripe" in said.err
    assert "trade     XNYS      S03" in said.out
    assert "0 messages lost, 0 repaired of 0 gaps" in said.out
    assert "The busiest token period" in said.out


def test_what_is_lost_is_told_and_is_the_exit_code(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with speaking(config, losing=2):
        assert listen(config, "--symbols", "S01", "--quiet", "--seconds", "4") == 1
    said = capsys.readouterr()
    assert " lost before " in said.err
    assert "trade" not in said.out


def test_a_newer_plan_is_followed_if_its_file_is_here(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = plan_of(4, {1: ("S01", "S02"), 2: ("S03",), 3: ("S09",)})
    with speaking(config, newer):
        assert listen(config, "--symbols", "S01", "--quiet", "--seconds", "3") == 0
    assert "plan 4 is in force, and" in capsys.readouterr().err
    plans = config.parent / "plans"
    plans.mkdir()
    (plans / "four.toml").write_text(plan_text(newer), encoding="utf-8")
    first = config.parent / "stripes.toml"
    with speaking(config, newer):
        assert listen(config, "--symbols", "S01", "--plan", str(first), "--quiet", "--seconds", "3") == 0
    assert "plan 4 is in force: 1 stripe (s1), 2 symbols" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, rule",
    [
        (("--rate", "1k"), "no stripe fits 1 kb/s: the narrowest"),
        (("--rate", "fast"), 'must be a bit-rate such as 56k, 1.5M or 56000, not "fast"'),
        (("--rate", str(MODEM), "--symbols", "S01,S03"), "the symbols are on 2 stripes of 112 kb/s"),
        (("--lines", "nobody"), "nobody sends no narrow stripes"),
        (("--plan", "nowhere.toml"), "cannot be read"),
        (("--from", "beginning"), "beginning needs --keep complete"),
        (("--rate", "56k", "--keep", "complete"), "no stripe fits 56 kb/s: the narrowest, s1, has"),
        (("--rate", "56k", "--keep", "complete"), "(repairs are counted in)"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    config: Path, words: tuple[str, ...], rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listen(config, *words) == 2
    said = capsys.readouterr().err
    assert rule in said
    assert said.count("\n") == 1


def test_a_market_without_narrow_stripes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.runtime.worlds import market_file  # noqa: PLC0415

    path = str(market_file(tmp_path))
    assert main(["edge", "listen", "--config", path, "--name", "bank"]) == 2
    assert main(["edge", "status", "--config", path]) == 2
    assert "edge.plan: must be given" in capsys.readouterr().err
    assert main(["edge", "send", "--config", path, "--name", "bank"]) == 2
    assert "nodes.bank: is not a receiver" in capsys.readouterr().err


def test_status_and_plan_where_nobody_runs(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["edge", "status", "--config", str(config)]) == 1
    assert "not on this machine, or silent" in capsys.readouterr().out
    assert main(["edge", "status", "--config", str(config), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["receivers"] == {"a": None, "b": None, "c": None}
    path = tmp_path / "next.toml"
    path.write_text(plan_text(plan_of(2, {1: ("S01",)})), encoding="utf-8")
    assert main(["edge", "plan", str(path), "--config", str(config)]) == 1
    assert "sends narrow stripes: run this where one is" in capsys.readouterr().err


def test_status_names_who_is_silent_and_why_and_what_servers_did(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a process said before it ended is not shown as if it were well."""
    well = {**_NOTHING_YET, "plan": 1, "digest": "d", "packets": 7, "not_carried": 12_345, "blocked": ""}
    ended = {**well, "blocked": "the process of the narrow stripes ended (3): the disk, or the machine: no room"}
    counts = {**asdict(RepairCounts(repairs=138, forged=4)), **asdict(DeskCounts(requests=11_164, refused=11_067))}

    async def views(_: PlanChange) -> dict[str, dict[str, object]]:
        return {"a": well, "b": well, "c": ended}

    async def repairs(_: PlanChange) -> dict[str, dict[str, object]]:
        return {"archive": counts}

    monkeypatch.setattr(PlanChange, "views", views)
    monkeypatch.setattr(PlanChange, "repairs", repairs)
    assert main(["edge", "status", "--config", str(config)]) == 1
    said = capsys.readouterr().out
    assert "the disk, or the machine: no room" in said
    assert "12,345" in said
    assert "11,067" in said
    assert main(["edge", "status", "--config", str(config), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["repairs"]["archive"]["repairs"] == 138
