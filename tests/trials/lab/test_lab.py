"""A real lab: namespaces, TAP devices, a switch in a process of its own, and nothing of it afterwards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.trials.lab.programs import ECHO, HEAR, PING, SEND, python, run_inside, start_inside

from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.trials.lab import Lab, LinkChange
from isocast.trials.lab.fabric import namespace_number, residents
from isocast.trials.lab.lab import leftovers

MS = 1_000_000
PATIENCE_S = 90.0
GROUP = "239.255.77.1"
CITIES = {"ny": "New York", "ldn": "London", "tyo": "Tokyo"}
ON_LOOPBACK = {"ny": ["127.0.0.2", "127.0.0.3"], "ldn": ["127.0.0.4", "127.0.0.1"], "tyo": ["127.0.0.9"]}

pytestmark = pytest.mark.usefixtures("machine")


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until it is so; a machine that never gets there fails the test."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def round_trips(
    lab: Lab, here: str, there: str, *, number: int = 1, count: int = 5, seconds: float = PATIENCE_S
) -> list[str]:
    command = python(PING, lab.address(here), lab.address(there, number), count, seconds)
    return run_inside(lab, here, command).split()


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(CITIES, scale=0.1) as lab:
        yield lab


# ---- the network


@pytest.fixture(params=[None, True], ids=["as-we-are", "without-root"])
def user_namespace(request: pytest.FixtureRequest) -> bool | None:
    if request.param:
        request.getfixturevalue("machine_without_root")
    return True if request.param else None


@pytest.mark.parametrize("addresses", [None, ON_LOOPBACK], ids=["own-addresses", "loopback-addresses"])
def test_a_datagram_takes_at_least_the_delay_between_its_cities_and_a_group_reaches_all(
    user_namespace: bool | None,  # noqa: FBT001
    addresses: dict[str, list[str]] | None,
) -> None:
    with Lab(CITIES, scale=0.5, user_namespace=user_namespace, addresses=addresses) as lab:
        start_inside(lab, "ldn", ECHO, lab.address("ldn", 1))
        start_inside(lab, "ldn", ECHO, lab.address("ldn", 2))
        least = lab.delay_ns("ny", "ldn") + lab.delay_ns("ldn", "ny")
        assert least > 20 * MS
        for number in (1, 2):
            taken = round_trips(lab, "ny", "ldn", number=number, count=3)
            assert all(int(nanoseconds) >= least for nanoseconds in taken)
        # Two nodes hear at one site, and one beside the sender.
        places = [("ny", 2), ("ldn", 1), ("ldn", 2), ("tyo", 1)]
        ears = [start_inside(lab, site, HEAR, lab.address(site, number), GROUP, 10) for site, number in places]
        run_inside(lab, "ny", python(SEND, lab.address("ny"), GROUP, 5001, 10, 3))
        heard = [ear.communicate(timeout=PATIENCE_S)[0].decode() for ear in ears]
        assert heard == [f"{[f'{number:03}' for number in range(10)]}\n"] * 4
        assert lab.lateness().user_namespace is (user_namespace is True or os.geteuid() != 0)


CONNECT = """
import os, socket, sys
own, there, group = sys.argv[1:]
for core in sorted(os.sched_getaffinity(0)):
    os.sched_setaffinity(0, {core})  # The kernel caches routes for each core.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
        s.sendto(b"", (group, 5001))
    with socket.socket() as s:
        print(s.connect_ex((there, 5002)))
"""
LISTEN = """
import socket, sys, time
with socket.create_server((sys.argv[1], 5002)):
    print("up", flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("addresses", [None, ON_LOOPBACK], ids=["own-addresses", "loopback-addresses"])
def test_tcp_connects_after_a_multicast_too(addresses: dict[str, list[str]] | None) -> None:
    """A multicast route that the kernel holds to be the same as a unicast one makes TCP's network unreachable."""
    with Lab(CITIES, scale=0.1, addresses=addresses) as lab:
        start_inside(lab, "ldn", LISTEN, lab.address("ldn"))
        codes = run_inside(lab, "ny", python(CONNECT, lab.address("ny"), lab.address("ldn"), GROUP))
    assert set(codes.split()) == {"0"}


def test_about_the_share_that_is_said_gets_lost_and_the_rest_arrives() -> None:
    with Lab({"a": None, "b": None}, loss=0.2, seed=4) as lab:
        ear = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 5000))
print("up", flush=True)
sys.stdin.read()
s.setblocking(False)
count = 0
try:
    while s.recv(100):
        count += 1
except BlockingIOError:
    print(count)
"""
        # 250 small datagrams fit into any receive buffer, whether or not the program has its turn.
        process = lab.spawn("b", python(ear, lab.address("b")), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        run_inside(lab, "a", python(SEND, lab.address("a"), lab.address("b"), 5000, 250, 10))

        def all_through() -> bool:
            report = lab.lateness()
            return report.frames_in >= 250 and report.on_the_way == 0

        eventually(all_through)
        way = next(link for link in lab.links() if (link.here, link.there) == ("a", "b"))
        assert way.frames_taken + way.frames_lost == 250
        assert 25 <= way.frames_lost <= 75
        assert int(process.communicate(timeout=PATIENCE_S)[0]) == way.frames_taken


def cuts(lab: Lab) -> dict[tuple[str, str], tuple[bool, int]]:
    """Which links are cut, and how many frames that took."""
    return {(link.here, link.there): (link.cut, link.frames_cut) for link in lab.links()}


def test_a_cut_link_passes_nothing_until_it_is_healed(lab: Lab) -> None:
    start_inside(lab, "ldn", ECHO, lab.address("ldn"))
    start_inside(lab, "tyo", ECHO, lab.address("tyo"))
    lab.cut("ny", "ldn")
    assert round_trips(lab, "ny", "ldn", count=2, seconds=0.1) == ["lost", "lost"]
    assert "lost" not in round_trips(lab, "ny", "tyo", count=1)
    eventually(lambda: cuts(lab)["ny", "ldn"] == (True, 2))
    cut = cuts(lab)
    assert cut["ldn", "ny"] == (True, 0), "nothing came back"
    assert cut["ny", "tyo"] == (False, 0)
    lab.heal("ny", "ldn")
    assert "lost" not in round_trips(lab, "ny", "ldn", count=1)
    lab.cut("ldn", "ny", one_way=True)
    assert round_trips(lab, "ny", "ldn", count=1, seconds=0.1) == ["lost"]
    # The answer was lost, not the question.
    eventually(lambda: cuts(lab)["ldn", "ny"] == (True, 1))
    assert cuts(lab)["ny", "ldn"] == (False, 2)
    lab.heal_all()
    assert "lost" not in round_trips(lab, "ny", "ldn", count=1)


def test_a_link_changes_by_command(lab: Lab) -> None:
    start_inside(lab, "ldn", ECHO, lab.address("ldn"))
    lab.change(LinkChange("ny", "ldn", delay_ns=60 * MS, one_way=True))
    assert int(round_trips(lab, "ny", "ldn", count=1)[0]) >= 60 * MS + lab.delay_ns("ldn", "ny")
    lab.change(LinkChange("ny", "ldn", loss=1.0))
    assert round_trips(lab, "ny", "ldn", count=1, seconds=0.1) == ["lost"]
    with pytest.raises(ConfigurationError, match="loss"):
        lab.change(LinkChange("ny", "ldn", loss=2.0))


def test_a_large_datagram_of_a_market_with_a_large_mtu_is_one_frame() -> None:
    with Lab({"a": None, "b": None}, mtu=9000) as lab:
        run_inside(lab, "a", python(SEND, lab.address("a"), lab.address("b"), 5000, 3, 8900))
        eventually(lambda: lab.links()[0].frames_taken == 3)
        assert lab.lateness().frames_in >= 3


def test_there_is_no_other_network_inside(lab: Lab) -> None:
    rows = run_inside(lab, "ldn", ["cat", "/proc/net/dev"]).splitlines()[2:]
    assert sorted(row.split(":")[0].strip() for row in rows) == ["lo", "wan0"]


# ---- its own lateness


def test_it_reports_how_late_it_was(lab: Lab) -> None:
    start_inside(lab, "ldn", ECHO, lab.address("ldn"))
    round_trips(lab, "ny", "ldn")
    eventually(lambda: lab.lateness().wakeups.count >= 3)
    report = lab.lateness(reset=True)
    assert report.forwards.count == report.frames_out == 10
    assert 0 < report.forwards.p50_ns <= report.forwards.p99_ns <= report.forwards.max_ns
    assert report.device_drops == 0
    after = lab.lateness()
    assert after.forwards.count == 0
    assert after.frames_out == 10


def test_a_starved_switch_says_so(lab: Lab) -> None:
    assert lab._switch is not None  # noqa: SLF001
    eventually(lambda: lab.lateness().wakeups.count > 0)
    lab.lateness(reset=True)
    switch = lab._switch.process  # noqa: SLF001
    switch.send_signal(signal.SIGSTOP)
    eventually(lambda: Path(f"/proc/{switch.pid}/stat").read_text(encoding="ascii").split()[2] == "T")
    began, began_real = time.monotonic_ns(), time.time_ns()
    time.sleep(0.1)  # What it shall be late by.
    starved = time.monotonic_ns() - began
    ended_real = time.time_ns()
    switch.send_signal(signal.SIGCONT)
    eventually(lambda: lab.lateness().wakeups.max_ns >= starved - 10 * MS)  # Less one interval of its clockwork.
    report = lab.lateness()
    assert report.at_fault
    assert report.late_within(began_real, ended_real)


# ---- processes


def test_a_command_that_is_not_there_fails_as_in_a_shell(lab: Lab) -> None:
    process = lab.spawn("ldn", ["no-such-command"], stderr=subprocess.PIPE, env={"PATH": "/usr/bin:/bin"})
    _, text = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, text) == (127, b"lab: no-such-command: no such command\n")
    process = lab.spawn("ldn", ["/etc"], stderr=subprocess.PIPE)
    assert process.communicate(timeout=PATIENCE_S)[1].startswith(b"lab: /etc: ")
    assert process.returncode == 126


def test_names_and_numbers_that_there_are_not(lab: Lab) -> None:
    with pytest.raises(ConfigurationError, match="unknown site"):
        lab.spawn("paris", ["true"])
    with pytest.raises(ConfigurationError, match="addresses 1 to 8, not 9"):
        lab.address("ldn", 9)
    with pytest.raises(LocalProtocolError, match="open already"):
        lab.open()


def test_a_lab_that_is_not_open_does_nothing() -> None:
    lab = Lab(CITIES)
    with pytest.raises(LocalProtocolError, match="not open"):
        lab.cut("ny", "ldn")
    lab.close()


# ---- nothing is left


def gone(process: int) -> bool:
    """Ended, whether or not its parent has noticed."""
    return not Path(f"/proc/{process}/ns/net").exists()


ORPHAN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(1000)
"""


def test_nothing_is_left_of_it_stubborn_orphans_included() -> None:
    with Lab(CITIES) as lab:
        assert lab._switch is not None  # noqa: SLF001
        switch = lab._switch.process.pid  # noqa: SLF001
        orphan = int(run_orphan(lab, "tyo"))
        stopped = sleeper_at(lab, "ny")
        stopped.send_signal(signal.SIGSTOP)
        assert orphan in lab.residents()
        assert lab.is_open
    assert not lab.is_open
    assert stopped.returncode == -signal.SIGKILL
    assert gone(orphan)
    assert gone(switch)


def sleeper_at(lab: Lab, site: str) -> "subprocess.Popen[bytes]":
    """A process that is there: one that has yet to come in finds that the site is gone, and ends by itself."""
    sleeper = lab.spawn(site, ["sleep", "1000"])
    eventually(lambda: sleeper.pid in lab.residents())
    return sleeper


def run_orphan(lab: Lab, site: str) -> bytes:
    process = lab.spawn(site, python(ORPHAN), stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        return process.stdout.readline()


def test_an_exception_inside_removes_it_too() -> None:
    sleepers = []

    def fail() -> None:
        with Lab(CITIES) as lab:
            sleepers.append(sleeper_at(lab, "ny"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [sleeper.returncode for sleeper in sleepers] == [-signal.SIGKILL]


OWNER = """
import sys, time
from isocast.trials.lab import Lab
lab = Lab({"a": "London", "b": "Tokyo"})
lab.open()
sleeper = lab.spawn("a", ["sleep", "1000"])
while sleeper.pid not in lab.residents():
    time.sleep(0.005)
print(lab._switch.process.pid, sleeper.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_nothing_is_left_when_its_owner_is_killed(number: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    with owner:
        assert owner.stdout is not None
        switch, sleeper = map(int, owner.stdout.readline().split())
        assert not gone(sleeper)
        owner.send_signal(number)
        assert owner.wait(PATIENCE_S) != 0
        eventually(lambda: gone(switch) and gone(sleeper))


def test_a_switch_that_is_killed_is_noticed_and_nothing_is_left() -> None:
    with Lab(CITIES) as lab:
        assert lab._switch is not None  # noqa: SLF001
        sleeper = sleeper_at(lab, "ny")
        lab.check()
        lab._switch.process.kill()  # noqa: SLF001
        lab._switch.process.wait()  # noqa: SLF001
        with pytest.raises(ChildProcessError, match="ended by itself"):
            lab.check()
        with pytest.raises(ChildProcessError, match="switch"):
            lab.lateness()
        late = lab.spawn("ny", ["true"], stderr=subprocess.PIPE)
        assert late.communicate(timeout=PATIENCE_S)[1] == b"lab: the site is gone\n"
        assert late.returncode == 126
    assert sleeper.returncode == -signal.SIGKILL


HOLDER = """
import os, sys
os.open(sys.argv[1], os.O_RDONLY)
print("up", flush=True)
sys.stdin.read()
"""


def test_whoever_keeps_a_namespace_alive_is_named() -> None:
    lab = Lab({"a": None, "b": None})
    lab.open()
    assert lab._switch is not None  # noqa: SLF001
    fd = lab._switch.namespaces[0]  # noqa: SLF001
    holder = subprocess.Popen(
        python(HOLDER, f"/proc/{os.getpid()}/fd/{fd}"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(ChildProcessError, match=f"process {holder.pid} still holds it open"):
            lab.close()
    assert not lab.is_open


def test_whoever_still_runs_inside_is_named() -> None:
    with Lab({"a": None}) as lab:
        assert lab._switch is not None  # noqa: SLF001
        numbers = {namespace_number(fd) for fd in lab._switch.namespaces}  # noqa: SLF001
        sleeper = lab.spawn("a", ["sleep", "1000"])
        eventually(lambda: residents(numbers) == [sleeper.pid])
        assert f"process {sleeper.pid} still runs in it" in leftovers(numbers)


def test_what_the_machine_refuses_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # A switch that finds no TUN device: its module is told another path by a site customisation.
    (tmp_path / "sitecustomize.py").write_text(
        "import isocast.trials.lab.fabric as kernel\nkernel.TUN_DEVICE = '/nonexistent'\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(FileNotFoundError, match=r"the lab cannot be built.*isocast lab check"):
        Lab(CITIES).open()
