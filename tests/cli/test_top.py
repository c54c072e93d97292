"""`isocast top`: frames from canned statuses, and a market that answers over loopback."""

import asyncio
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from tests.runtime.worlds import SMALL, market_file

from isocast.cli.main import main
from isocast.cli.top_view import frame, release_skew
from isocast.runtime.market.model import NodeRole
from isocast.runtime.watch.counters import NodeCounters, NodeGauges, ReleaseMark
from isocast.runtime.watch.http import StatusServer, monitor_pages
from isocast.runtime.watch.metrics import NodeIdentity
from isocast.runtime.watch.status import Alarm, Monitor, NodeStatus, Rates, Spread, StatusAnswer, Target
from isocast.terms.instants import SECOND

NOW = 1_800_000_000 * SECOND


def london(**changes: object) -> NodeStatus:
    values: dict[str, object] = {
        "name": "london",
        "role": "primary-receiver",
        "node_id": 1,
        "city": "London",
        "at_ns": NOW,
        "ready": True,
        "gauges": NodeGauges(
            epoch="3.1",
            epoch_number=3,
            mode="normal",
            ring=("london", "paris", "tokyo"),
            ring_configured=3,
            owns_token=True,
            held_token=412,
            released_token=409,
            next_sequence=1_234_567,
            clock_bound_ns=250_000,
            clock_synchronised=True,
            clock_trusted=True,
        ),
        "rates": Rates(over_s=10, events=1_204_332, cpu=0.61),
        "lateness": Spread(1_000, 0.00005, 0.0002),
        "totals": {"nacks_sent_total": 31, "repairs_received_total": 29, "late_releases_total": 0},
    } | changes
    return NodeStatus(**values)  # type: ignore[arg-type]


def gauges(**values: object) -> NodeGauges:
    return NodeGauges(**values)  # type: ignore[arg-type]


def answered(*statuses: NodeStatus) -> list[StatusAnswer]:
    return [StatusAnswer(Target("127.0.0.1", 7780), status) for status in statuses]


def shown(answers: Sequence[StatusAnswer], width: int = 200, height: int | None = None) -> str:
    console = Console(width=width, file=StringIO(), record=True, color_system="truecolor", force_terminal=True)
    console.print(frame("test", answers, width=width, height=height))
    return console.export_text(styles=False)


def row(text: str, name: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return " ".join(found.split())


# ---- frames


def test_a_receiver_shows_state_epoch_token_sequence_rates_and_lateness() -> None:
    text = shown(answered(london()))
    assert row(text, "london") == (
        "london London ◆ token 3.1 3/3 412 409 1,234,566 1,204,332 50 µs / 200 µs 0 0 0 31 29 0 ±250 µs 61 %"
    )
    header = text.splitlines()[0]
    assert "1 of 1 nodes ready  epoch 3.1  1,204,332 events/s" in header
    assert "What is wrong" not in text


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"gauges": gauges(mode="normal")}, "● ready"),
        ({"ready": False, "gauges": gauges(mode="sealed")}, "◌ sealed"),
        ({"ready": False, "gauges": gauges(mode="catchup")}, "◌ catchup"),
        ({"ready": False, "gauges": gauges()}, "◌ not ready"),
        ({"ready": False, "healthy": False}, "✖ stalled"),
    ],
)
def test_every_state_has_its_word(changes: dict[str, object], word: str) -> None:
    assert word in row(shown(answered(london(**changes))), "london")


@pytest.mark.parametrize(
    "clock, word",
    [
        (gauges(clock_bound_ns=2_000_000, clock_synchronised=False), "±2 ms unsynced"),
        (gauges(clock_bound_ns=2_000_000, clock_trusted=False), "±2 ms WRONG"),
    ],
)
def test_a_clock_that_is_not_synchronised_is_shown(clock: NodeGauges, word: str) -> None:
    assert word in row(shown(answered(london(gauges=clock))), "london")


def test_a_market_with_layers_shows_who_heads_whom() -> None:
    text = shown(
        answered(
            london(gauges=gauges(heads=("london", "paris"), adopted=("hull",))),
            NodeStatus("leeds", "secondary-receiver", 4, gauges=gauges(head="london", head_configured="london")),
            NodeStatus("lyon", "secondary-receiver", 5, gauges=gauges(head="london", head_configured="paris")),
        )
    )
    assert "heads own + paris + hull" in row(text, "london")
    assert row(text, "leeds").startswith("leeds ◌ not ready – – london ")
    assert "london (adopted from paris)" in row(text, "lyon")
    assert " head " not in shown(answered(london()))


def test_an_unreachable_node_is_shown_where_it_belongs() -> None:
    lost = StatusAnswer(Target("127.1.0.2", 7780, "paris", "primary-receiver", "Paris"), None, "Connection refused")
    text = shown([*answered(london()), lost])
    assert row(text, "paris") == "paris Paris ✖ unreachable"
    assert "paris: Connection refused" in text
    assert "1 of 2 nodes ready" in text
    assert "Others" not in text


def test_a_node_of_unknown_role_is_shown_too() -> None:
    text = shown([StatusAnswer(Target("127.0.0.1", 9), None, "Connection refused"), *answered(london(role="novelty"))])
    assert "Others" in text
    assert row(text, "127.0.0.1:9").endswith("✖ unreachable")


def test_every_role_has_its_table() -> None:
    text = shown(
        answered(
            london(),
            NodeStatus("floor", "primary-source", 1 << 32, gauges=gauges(outbox_unacknowledged=17, outbox_window=1024)),
            NodeStatus("reform", "reformation-server", 65_537, gauges=gauges(mode="inviting", ballot_votes=2)),
            NodeStatus("archive", "retransmit-server", 131_073, gauges=gauges(archive_first_sequence=5, clients=3)),
            NodeStatus("desk", "customer", 131_074, gauges=gauges(lines_heard=1, lines_configured=2, sequence_gaps=4)),
        )
    )
    headings = [line.strip() for line in text.splitlines() if line.strip() in HEADINGS]
    assert headings == list(HEADINGS)
    assert " 17 " in row(text, "floor")
    assert "inviting" in row(text, "reform")
    assert row(text, "desk").startswith("desk ◌ not ready 1/2 – – 0 4 0")


def test_a_customer_says_whom_it_follows_what_it_waits_for_and_that_lines_disagree() -> None:
    seen = gauges(
        lines_heard=2, lines_configured=2, line_followed="tokyo", waiting="ring is reforming since 08:05:12 UTC"
    )
    totals = {"line_conflicts_total": 3.0}
    text = shown(answered(NodeStatus("desk", "customer", 131_074, ready=True, gauges=seen, totals=totals)))
    assert row(text, "desk").startswith("desk ◌ waiting 2/2 tokyo – 0 – 3")
    assert "desk: waiting: ring is reforming since 08:05:12 UTC" in text


HEADINGS = ("Receivers", "Sources", "Reformation servers", "Retransmit servers", "Customers")


def test_alarms_stand_with_what_to_do_the_newest_first() -> None:
    old = Alarm("a", "the disk was slow", "look at it", 1, NOW - 900 * SECOND, NOW - 900 * SECOND)
    new = Alarm("b", "tokyo-desk does not read", "ask its owner", 1_200, NOW - 50 * SECOND, NOW - 5 * SECOND)
    text = shown(answered(london(alarms=(old, new), ready=False, reasons=("sealed: a ballot is under way",))))
    _, _, wrong = text.partition("What is wrong")
    assert [line.strip() for line in wrong.strip().splitlines()] == [
        "london: sealed: a ballot is under way",
        "london: tokyo-desk does not read (1,200 times, last 5 s ago) → ask its owner",
        "london: the disk was slow (once, 15 min ago) → look at it",
    ]


@pytest.mark.parametrize(
    "width, there, left_out",
    [(90, "sequence", "epoch"), (115, "epoch", "NACKs"), (140, "NACKs", "CPU"), (200, "CPU", "…")],
)
def test_a_narrow_terminal_gets_what_matters_and_nothing_cut(width: int, there: str, left_out: str) -> None:
    busy = london(
        name="hong-kong-2",
        city="Hong Kong",
        gauges=gauges(
            epoch="113.2",
            ring=("a",) * 9,
            ring_configured=10,
            held_token=1_234_567,
            released_token=1_234_565,
            next_sequence=9_876_543_210,
            clock_bound_ns=250_000,
        ),
        lateness=Spread(9, 0.0005, 0.02),
        ready=False,
    )
    text = shown(answered(london(), busy), width=width)
    table = text.partition("Receivers")[2]
    assert there in table
    assert left_out not in table
    assert "…" not in table
    assert max(map(len, text.splitlines())) <= width


def test_a_low_terminal_loses_old_alarms_and_says_so() -> None:
    alarms = tuple(Alarm(str(n), f"alarm {n}", "do", 1, NOW - n, NOW - n) for n in range(30))
    text = shown(answered(london(alarms=alarms)), height=14)
    assert len(text.splitlines()) <= 14
    assert "london: alarm 0 " in text
    assert "alarm 29 " not in text
    assert "… and 27 more: isocast top --once shows all" in text
    assert "● ready" in text or "◆ token" in text


@pytest.mark.parametrize("height", [24, 12, 8])
def test_what_is_wrong_stands_on_the_screen_however_many_nodes_there_are(height: int) -> None:
    answers = [
        *answered(*[london(name=f"site-{number}") for number in range(16)]),
        StatusAnswer(Target("127.0.0.1", 9, "paris", "customer"), None, "Connection refused"),
    ]
    lines = shown(answers, width=80, height=height).splitlines()
    assert len(lines) <= height
    assert any("paris: Connection refused" in line for line in lines)
    assert "not fit this terminal" in lines[-1]


def test_a_place_kept_for_a_program_is_missed_by_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = market_file(tmp_path, {**SMALL, "desk": {"role": "customer", "lines": ["a"], "start": False}})
    path.write_text(path.read_text("utf-8").replace("http_port = 0", "http_port = 7780"), "utf-8")
    assert main(["top", "--config", str(path), "--json"]) == 1
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == list(SMALL)


def test_two_epochs_at_once_are_both_shown() -> None:
    text = shown(answered(london(), london(name="paris", gauges=gauges(epoch="4.2"))))
    assert "epoch 3.1 and 4.2" in text


def test_skew_is_taken_over_tokens_that_several_nodes_released() -> None:
    here = london(releases=(ReleaseMark(1, 1, 1_000), ReleaseMark(2, 5, 2_000), ReleaseMark(3, 9, 3_000)))
    there = london(name="paris", releases=(ReleaseMark(2, 5, 2_050_000), ReleaseMark(3, 9, 103_000)))
    skew = release_skew([here, there])
    assert skew == Spread(2, 0.002048, 0.002048)
    assert "skew 2.05 ms / 2.05 ms of 2 tokens" in shown(answered(here, there))
    assert release_skew([here]) is None


# ---- the command


@contextmanager
def serving(*monitors: Monitor) -> Iterator[list[int]]:
    """Nodes that answer, in a thread of their own; their ports."""
    started, ports = threading.Event(), []
    loop = asyncio.new_event_loop()
    ending = asyncio.Event()

    async def serve() -> None:
        servers = [StatusServer(monitor_pages(monitor), monitor.counters) for monitor in monitors]
        for server in servers:
            await server.start()
            ports.append(server.port)
        started.set()
        await ending.wait()
        for server in servers:
            await server.stop()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(30)
        yield ports
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(30)


def node(name: str, **state: object) -> Monitor:
    return Monitor(
        NodeIdentity(name, NodeRole.CUSTOMER, 131_073, city="London"), NodeCounters(), lambda: gauges(**state)
    )


def test_once_prints_one_frame(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(node("desk", lines_heard=2, lines_configured=2), node("mute")) as ports:
        assert main(["top", "--once", *[word for port in ports for word in ("--url", f"127.0.0.1:{port}")]]) == 0
    out = capsys.readouterr().out
    assert row(out, "desk").startswith("desk London ● ready 2/2")
    assert "mute: no packets on any line" in out
    assert "\x1b" not in out, "a pipe gets no colours"


def test_json_prints_every_status_and_who_is_missing_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(node("desk", lines_heard=2)) as (port,):
        assert main(["top", "--json", "--url", f"http://127.0.0.1:{port}/", "--url", "127.0.0.1:1"]) == 1
    desk, nobody = json.loads(capsys.readouterr().out)
    assert (desk["name"], desk["trouble"], desk["status"]["gauges"]["lines_heard"]) == ("desk", None, 2)
    assert (nobody["name"], nobody["status"], nobody["trouble"]) == ("127.0.0.1:1", None, "Connection refused")


def test_a_market_file_names_the_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "market.toml"
    shown_ones = (
        '[nodes.a]\nrole = "primary-receiver"\nhttp_port = 1\n[nodes.b]\nrole = "primary-receiver"\nhttp_port = 0\n'
    )
    server = '[nodes.x]\nrole = "reformation-server"\nhttp_port = 1\n'
    file.write_text(f'name = "test"\n[timing]\nprofile = "ci"\n{shown_ones}{server}', encoding="utf-8")
    assert main(["top", "--once", "--config", str(file)]) == 1
    out = capsys.readouterr().out
    assert "0 of 2 nodes ready" in out
    assert row(out, "a").startswith("a ✖ unreachable")
    assert row(out, "x").startswith("x ✖ unreachable")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, b"q"])
def test_the_live_view_gives_the_terminal_back(end: signal.Signals | bytes) -> None:
    """A real terminal: frames come until a signal or the key q, then the screen is as it was."""
    command = "import sys; from isocast.cli.main import main; sys.exit(main(['top', '--url', '127.0.0.1:1']))"
    ours, theirs = os.openpty()
    try:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 140, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color"}
        with subprocess.Popen(
            [sys.executable, "-c", command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - as a shell does
        ) as process:
            seen = b""
            while b"unreachable" not in seen:
                seen += os.read(ours, 65_536)
            if isinstance(end, bytes):
                os.write(ours, end)
            else:
                process.send_signal(end)
            while b"\x1b[?1049l" not in seen:
                seen += os.read(ours, 65_536)
            assert process.wait(60) == 0
        assert b"0 of 1 nodes ready" in seen
        assert b"Traceback" not in seen
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize(
    "arguments, rule",
    [
        (["--config", "a.toml", "--url", "b:1"], "--config: give either"),
        (["--url", "nowhere"], '--url: "nowhere" is not HOST:PORT'),
        (["--url", "host:99999"], "is not HOST:PORT"),
        (["--url", ":80"], "is not HOST:PORT"),
        (["--url", "host:٣"], "is not HOST:PORT"),
        (["--config", "/nonexistent/market.toml"], "/nonexistent/market.toml"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments: list[str], rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", *arguments]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert rule in got.err
