"""Processes that say they are ready, die, refuse, ignore, fork: what becomes of each, and nothing is left of any."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from tests.runtime.worlds import eventually

from isocast.runtime.net import kernel
from isocast.runtime.operate import supervisor as module
from isocast.runtime.operate.supervisor import Child, ChildState, Life, Supervisor, launch_anew, node_command

PYTHON = (sys.executable, "-I", "-S", "-c")
"""An interpreter that starts quickly: no site, no environment."""
SAY = """
import os, socket
def say(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(text.encode(), os.environ["NOTIFY_SOCKET"])
"""
SLEEP = "import time\nwhile True: time.sleep(60)\n"
IGNORES = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"

Told = list[tuple[str, ChildState]]


def python(*parts: str) -> tuple[str, ...]:
    return (*PYTHON, "".join(parts))


def shell(text: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", text)


READY = python(SAY, "say('READY=1')\n", SLEEP)


def supervised(
    work: Callable[[Supervisor, Told], Awaitable[None]], *, restart: bool = True, logs: Path | None = None
) -> Told:
    """Run with a supervisor, stop it, and insist that it left nothing."""
    told: Told = []

    async def main() -> tuple[Path, list[int]]:
        supervisor = Supervisor(
            lambda child: told.append((child.name, child.state)), restart=restart, log_directory=logs
        )
        try:
            await asyncio.wait_for(work(supervisor, told), 60)
            pids = [child.process.pid for child in supervisor.children.values() if child.process is not None]
        finally:
            await supervisor.stop_all()
        return Path(supervisor._directory.name), pids  # noqa: SLF001

    sockets, pids = asyncio.run(main())
    assert not sockets.exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):  # Neither running nor a zombie.
            os.kill(pid, 0)
    return told


async def ready(child: Child) -> None:
    await asyncio.wait_for(child.ready.wait(), 30)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.05)


# ---- ready


def test_a_child_is_ready_when_it_says_so_and_stops_when_it_is_told() -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", python(SAY, "say('STATUS=looks round\\nREADY=1')\n", SLEEP))
        assert not child.ready.is_set()
        await ready(child)
        assert (child.state, child.status, child.starts) == (ChildState.READY, "looks round", 1)
        assert child.pid is not None

    told = supervised(work)
    assert told == [
        ("london", ChildState.STARTING),
        ("london", ChildState.READY),
        ("london", ChildState.STOPPED),
    ]


def test_a_child_speaks_for_itself_alone() -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        silent = await supervisor.start("tokyo", shell("exec sleep 60"))
        await ready(await supervisor.start("london", READY))
        assert silent.state is ChildState.STARTING
        assert not silent.ready.is_set()

    supervised(work)


def test_the_environment_is_ours_and_what_is_given(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        command = shell(f"echo $CITY $HOME > {tmp_path}/said")
        child = await supervisor.start("london", command, {"CITY": "London"})
        await eventually(lambda: child.exit_code == 0)
        assert (tmp_path / "said").read_text(encoding="utf-8") == f"London {os.environ['HOME']}\n"

    supervised(work, restart=False)


# ---- lives


def test_what_dies_is_started_again_and_is_ready_again() -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", READY)
        for life in (1, 2, 3):
            await ready(child)
            assert child.starts == life
            child.ready.clear()
            supervisor.kill("london")
        await ready(child)
        assert child.exit_code == -signal.SIGKILL

    told = supervised(work)
    assert told.count(("london", ChildState.PAUSING)) == 3
    assert told.count(("london", ChildState.READY)) == 4


def test_pauses_double_up_to_the_longest() -> None:
    pauses: list[float] = []

    async def work(supervisor: Supervisor, _: Told) -> None:
        supervisor._told = lambda child: pauses.append(child.pause_s)  # noqa: SLF001
        child = await supervisor.start("london", shell("exit 3"))
        await eventually(lambda: child.starts >= 5)

    supervised(work)
    assert list(dict.fromkeys(pauses))[1:5] == [0.01, 0.02, 0.04, 0.05]


def test_a_child_that_ran_long_enough_is_started_again_after_the_first_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEADY_S", 0.0)
    pauses: list[float] = []

    async def work(supervisor: Supervisor, _: Told) -> None:
        supervisor._told = lambda child: pauses.append(child.pause_s)  # noqa: SLF001
        child = await supervisor.start("london", shell("exit 3"))
        await eventually(lambda: child.starts >= 4)

    supervised(work)
    assert set(pauses) == {0.0, 0.01}


def test_bad_input_is_not_tried_again() -> None:
    async def work(supervisor: Supervisor, told: Told) -> None:
        child = await supervisor.start("london", shell("exit 2"))
        await eventually(lambda: child.state is ChildState.REFUSED)
        await asyncio.sleep(0.1)
        assert child.starts == 1
        assert told[-1] == ("london", ChildState.REFUSED)

    assert supervised(work)[-1] == ("london", ChildState.REFUSED)


def test_what_refused_its_input_is_started_again_when_somebody_asks_for_it(tmp_path: Path) -> None:
    mended = tmp_path / "mended"

    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", shell(f"test -e {mended} || exit 2; sleep 60"))
        await eventually(lambda: child.state is ChildState.REFUSED)
        mended.touch()
        supervisor.start_again("london")
        await eventually(lambda: child.starts == 2 and child.pid is not None)
        supervisor.start_again("london")
        await asyncio.sleep(0.05)
        assert child.starts == 2, "one that runs is left alone"

    supervised(work)


def test_without_restarts_what_ended_stays_down() -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", shell("exit 1"))
        await eventually(lambda: child.state is ChildState.STOPPED)
        assert (child.starts, child.exit_code) == (1, 1)

    supervised(work, restart=False)


def test_a_command_that_cannot_be_run_is_tried_again_and_says_why(tmp_path: Path) -> None:
    command = tmp_path / "command"

    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", (str(command),))
        await eventually(lambda: child.state is ChildState.PAUSING)
        assert child.status == "cannot be started: No such file or directory"
        command.write_text(f"#!{sys.executable} -S\n{SAY}say('READY=1')\n{SLEEP}", encoding="utf-8")
        command.chmod(0o755)
        await ready(child)

    supervised(work)


def test_what_one_life_said_does_not_count_for_the_next(tmp_path: Path) -> None:
    """READY lies in the socket while the child dies; the next life has yet to say it."""
    once = f"""
file = {str(tmp_path / "said")!r}
if not os.path.exists(file):
    open(file, "w").close()
    say("READY=1")
    raise SystemExit(3)
say("STATUS=looks round")
"""

    async def work(supervisor: Supervisor, _: Told) -> None:
        listen = supervisor._listen  # noqa: SLF001

        def without_time_for_the_first(child: Child) -> None:
            if child.starts > 1:
                listen(child)

        supervisor._listen = without_time_for_the_first  # type: ignore[method-assign]  # noqa: SLF001
        child = await supervisor.start("london", python(SAY, once, SLEEP))
        await eventually(lambda: child.status == "looks round")
        assert child.starts == 2
        assert child.state is ChildState.STARTING
        assert not child.ready.is_set()

    assert ("london", ChildState.READY) not in supervised(work)


def test_a_child_that_is_ready_before_we_know_of_it_has_started_first_and_is_ready_then() -> None:
    """It may run for a while before whoever launched it gets to say so."""

    async def work(supervisor: Supervisor, told: Told) -> None:
        async def slow(command: Sequence[str], environment: Mapping[str, str], output: Path | None) -> Life:
            life = await launch_anew(command, environment, output)
            ear = supervisor._ears["london"]  # noqa: SLF001
            await eventually(lambda: select.select([ear], [], [], 0)[0])
            await asyncio.sleep(0.01)
            return life

        supervisor._launch = slow  # noqa: SLF001
        child = await supervisor.start("london", READY)
        await ready(child)
        assert child.state is ChildState.READY
        assert told == [("london", ChildState.STARTING), ("london", ChildState.READY)]

    supervised(work)


# ---- the end


def test_whoever_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", 2.0)

    async def work(supervisor: Supervisor, _: Told) -> None:
        await ready(await supervisor.start("stubborn", python(SAY, IGNORES, "say('READY=1')\n", SLEEP)))
        await ready(await supervisor.start("polite", READY))

    told = supervised(work)
    assert [name for name, state in told if state is ChildState.STOPPED] == ["polite", "stubborn"]


def test_one_child_can_be_stopped_while_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.5)

    async def work(supervisor: Supervisor, _: Told) -> None:
        kept = await supervisor.start("kept", READY)
        for name, command in (("gentle", READY), ("stubborn", python(IGNORES, SAY, "say('READY=1')\n", SLEEP))):
            child = await supervisor.start(name, command)
            await child.ready.wait()
            await supervisor.stop(name)
            assert (child.state, child.pid) == (ChildState.STOPPED, None), "and it is not started again"
        await kept.ready.wait()
        assert kept.pid is not None

    supervised(work)


def test_what_a_child_started_ends_with_it(tmp_path: Path) -> None:
    """A child whose own child ignores SIGTERM and holds its output open."""
    file = str(tmp_path / "pid")
    script = f"""
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    with open({file!r} + ".new", "w") as out: out.write(str(os.getpid()))
    os.rename({file!r} + ".new", {file!r})
    while True: time.sleep(60)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
while not os.path.exists({file!r}): time.sleep(0.01)
say("READY=1")
while True: time.sleep(60)
"""
    grandchildren: list[int] = []

    async def work(supervisor: Supervisor, _: Told) -> None:
        await ready(await supervisor.start("london", python(SAY, script)))
        grandchildren.append(int((tmp_path / "pid").read_text(encoding="ascii")))
        os.kill(grandchildren[0], 0)

    supervised(work, logs=tmp_path)
    asyncio.run(eventually(lambda: _ended(grandchildren[0])))


def _ended(pid: int) -> bool:
    """Gone, or a zombie whose new parent has yet to look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def test_a_stopped_child_is_woken_to_end_in_order() -> None:
    children: list[Child] = []
    orderly = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"

    async def work(supervisor: Supervisor, _: Told) -> None:
        children.append(await supervisor.start("london", python(SAY, orderly, "say('READY=1')\n", SLEEP)))
        await ready(children[0])
        supervisor.kill("london", signal.SIGSTOP)

    assert supervised(work)[-1] == ("london", ChildState.STOPPED)
    assert children[0].exit_code == 7, "and not killed because it did not hear"


def test_a_child_that_pauses_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 3_600)
    monkeypatch.setattr(module, "STOP_S", 3_600)

    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", shell("exit 3"))
        await eventually(lambda: child.state is ChildState.PAUSING)

    assert supervised(work)[-1] == ("london", ChildState.STOPPED)


def test_a_child_that_is_just_starting_is_asked_to_stop_as_soon_as_there_is_one() -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        go = asyncio.Event()

        async def slow(command: Sequence[str], environment: Mapping[str, str], output: Path | None) -> Life:
            await go.wait()
            return await launch_anew(command, environment, output)

        supervisor._launch = slow  # noqa: SLF001
        child = await supervisor.start("london", READY)
        await eventually(lambda: child.starts == 1)
        stopping = asyncio.create_task(supervisor.stop_all())
        await eventually(child.unwanted.is_set)
        go.set()
        await stopping
        assert child.exit_code == -signal.SIGTERM
        assert child.starts == 1

    supervised(work)


def test_all_can_be_killed_while_they_take_their_time() -> None:
    """The second Ctrl-C."""

    async def work(supervisor: Supervisor, _: Told) -> None:
        for name in ("london", "tokyo"):
            await ready(await supervisor.start(name, python(SAY, IGNORES, "say('READY=1')\n", SLEEP)))
        stopping = asyncio.create_task(supervisor.stop_all())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        supervisor.kill_all()
        await asyncio.wait_for(stopping, 60)
        assert [child.exit_code for child in supervisor.children.values()] == [-signal.SIGKILL] * 2

    supervised(work)


def test_stopping_twice_is_stopping_once() -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        await ready(await supervisor.start("london", READY))
        await supervisor.stop_all()

    assert supervised(work).count(("london", ChildState.STOPPED)) == 1


def test_ctrl_c_at_the_terminal_reaches_the_supervisor_alone() -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", READY)
        await ready(child)
        assert child.pid is not None
        assert os.getpgid(child.pid) == child.pid != os.getpgrp()

    supervised(work)


def test_when_the_supervisor_is_killed_its_nodes_end() -> None:
    """kill -9 of `isocast up` leaves no market behind that nobody watches."""
    child = (
        "from isocast.runtime.operate.supervisor import end_with_supervisor\nend_with_supervisor()\n"
        "from isocast.runtime.watch.logs import notify\nnotify('READY=1')\n" + SLEEP
    )
    parent = f"""
import asyncio, sys
from isocast.runtime.operate.supervisor import Supervisor
async def main():
    supervisor = Supervisor()
    child = await supervisor.start("london", (sys.executable, "-c", {child!r}))
    await child.ready.wait()
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()

    asyncio.run(eventually(lambda: _ended(pid)))


def test_a_node_that_a_person_started_does_not_follow_its_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(kernel, "signal_at_parents_end", asked.append)
    for parent in ("", "nonsense", "1", str(os.getpid())):
        monkeypatch.setenv("ISOCAST_SUPERVISOR", parent)
        module.end_with_supervisor()
    assert asked == []
    monkeypatch.setenv("ISOCAST_SUPERVISOR", str(os.getppid()))
    module.end_with_supervisor()
    assert asked == [signal.SIGTERM]


# ---- what they print


def test_output_goes_to_one_file_for_each_child_over_all_its_lives(tmp_path: Path) -> None:
    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", shell("echo out; echo a reason >&2; exit 3"))
        await supervisor.start("tokyo", shell("exec sleep 60"))
        await eventually(lambda: child.starts >= 3)
        await eventually(lambda: child.last_line() == "a reason")

    supervised(work, logs=tmp_path)
    lines = (tmp_path / "london.log").read_text(encoding="utf-8").splitlines()
    assert lines[:4] == ["out", "a reason", "out", "a reason"]
    assert (tmp_path / "tokyo.log").read_bytes() == b""


def test_a_log_that_cannot_be_written_is_a_reason_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "london.log").mkdir()

    async def work(supervisor: Supervisor, _: Told) -> None:
        child = await supervisor.start("london", READY)
        await eventually(lambda: child.state is ChildState.PAUSING)
        assert child.status == "cannot be started: Is a directory"
        assert child.last_line() == ""

    supervised(work, logs=tmp_path)


def test_the_command_is_what_a_person_would_type() -> None:
    command = node_command(Path("market.toml"), "london", "--quiet")
    assert command[0] == sys.executable
    assert " ".join(command[1:]) == "-m isocast node --config market.toml --name london --quiet"
