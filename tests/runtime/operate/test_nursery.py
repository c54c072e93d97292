"""The nursery: forks that behave as `python -m` does, can be signalled, and never outlive whoever asked for them."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from isocast import __version__
from isocast.runtime.operate.nursery import Nursery, NurseryProcess
from isocast.terms.errors import TransportError

PYTHON = (sys.executable, "-m")
SERVER = (*PYTHON, "http.server", "0", "--bind", "127.0.0.1")
"""Runs until it is ended; port 0 is any that is free."""
PATIENCE_S = 120.0


def within(test: Callable[[Nursery], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), Nursery(("http.server",)) as nursery:
            await test(nursery)

    asyncio.run(run())


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        # A process that ended and that nobody has waited for yet is not alive.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    return False


def until_gone(pid: int) -> None:
    end = monotonic() + PATIENCE_S
    while is_alive(pid):
        assert monotonic() < end, f"process {pid} lives on"
        sleep(0.02)


def test_a_fork_runs_a_module_as_the_interpreter_does(tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def run(nursery: Nursery) -> None:
        first = await nursery.launch((*PYTHON, "isocast", "--version"), os.environ, log)
        assert await first.wait() == 0
        second = await nursery.launch((*PYTHON, "isocast", "sim", "rnu"), os.environ, log)
        assert await second.wait() == 2
        assert second.pid != first.pid

    within(run)
    text = log.read_text(encoding="utf-8")
    assert text.startswith(f"isocast {__version__}\n")
    assert 'Did you mean "run"?' in text, "appended to the same file"


def test_a_fork_gets_its_own_environment(tmp_path: Path) -> None:
    async def run(nursery: Nursery) -> None:
        # The module `site` prints where the user's own packages would be; its exit code says whether they count.
        command = (*PYTHON, "site", "--user-base")
        told = os.environ | {"PYTHONUSERBASE": "/somewhere/else"}
        await (await nursery.launch(command, told, tmp_path / "told.txt")).wait()

    within(run)
    assert (tmp_path / "told.txt").read_text(encoding="utf-8") == "/somewhere/else\n"


def test_a_traceback_is_in_the_log_and_the_exit_code_says_so(tmp_path: Path) -> None:
    async def run(nursery: Nursery) -> None:
        process = await nursery.launch((*PYTHON, "isocast.no_such_module"), os.environ, tmp_path / "log")
        assert await process.wait() == 70

    within(run)
    assert "No module named" in (tmp_path / "log").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_one_and_leaves_the_others(number: signal.Signals, tmp_path: Path) -> None:
    async def run(nursery: Nursery) -> None:
        one = await nursery.launch(SERVER, os.environ, tmp_path / "one")
        other = await nursery.launch(SERVER, os.environ, tmp_path / "other")
        os.killpg(one.pid, number)  # At once: it leads a group of its own as soon as anybody knows of it.
        assert await one.wait() == -number
        assert one.returncode == -number
        assert is_alive(other.pid)
        assert other.returncode is None

    within(run)


def test_whatever_still_runs_ends_with_the_nursery(tmp_path: Path) -> None:
    found: list[NurseryProcess] = []

    async def run(nursery: Nursery) -> None:
        found.append(await nursery.launch(SERVER, os.environ, tmp_path / "log"))

    within(run)
    until_gone(found[0].pid)


@pytest.mark.parametrize("first", ["", "nursery._process.kill()"], ids=["asker", "nursery and asker"])
def test_nothing_outlives_an_asker_that_is_killed(first: str, tmp_path: Path) -> None:
    program = f"""
import asyncio, os, signal
from pathlib import Path
from isocast.runtime.operate.nursery import Nursery
async def run():
    async with Nursery() as nursery:
        process = await nursery.launch({SERVER!r}, os.environ, Path({str(tmp_path / "log")!r}))
        print(process.pid, flush=True)
        {first}
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(run())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8", check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    until_gone(int(ended.stdout))


def test_only_modules_are_run() -> None:
    async def run(nursery: Nursery) -> None:
        with pytest.raises(TransportError, match="a nursery runs"):
            await nursery.launch(("sh", "-c", "true"), os.environ, None)

    within(run)


def test_a_nursery_that_has_ended_says_so(tmp_path: Path) -> None:
    async def run() -> None:
        nursery = Nursery()
        async with nursery:
            process = await nursery.launch(SERVER, os.environ, tmp_path / "log")
        assert await process.wait() == -signal.SIGTERM
        with pytest.raises(TransportError, match="has ended"):
            await nursery.launch(SERVER, os.environ, None)

    asyncio.run(run())
