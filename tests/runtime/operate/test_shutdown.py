"""How a process ends before its time: in order if it can, within its time in any case, and with nothing left behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 60.0
ENDINGS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)

BEGIN = """
import os, signal, subprocess, sys, threading, time
from isocast.runtime.disk import scratch
from isocast.runtime.operate import shutdown
shutdown.install()
shutdown.begun()
def ready():
    print("ready", flush=True)
def command(work):
    try:
        code = work()
    except BaseException:
        if not shutdown.cause():
            raise
        code = shutdown.interrupted()
    sys.exit(shutdown.finish(code))
"""
STUBBORN = """
shutdown._GRACE_S = 0.1
def stubborn():
    place = scratch.new_directory("test")
    child = subprocess.Popen([sys.executable, "-S", "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); "
        "print(flush=True); time.sleep(600)"], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    (place / "file").touch()
    print(child.pid, flush=True)
    told = False
    while True:
        try:
            if not told:
                told = True
                ready()
            time.sleep(600)
        except KeyboardInterrupt:
            pass  # As some libraries do.
command(stubborn)
"""


@contextmanager
def running(script: str, where: Path, *, err: int = subprocess.STDOUT) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", BEGIN + script]
    environment = os.environ | {"TMPDIR": str(where)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, encoding="utf-8", env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def until_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    said: list[str] = []
    while (line := process.stdout.readline().strip()) != "ready":
        assert line, said
        said.append(line)
    return said


def is_running(pid: str) -> bool:
    """A process that is dead, and that nobody has asked for its exit code yet, runs no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out


def ended_by(number: signal.Signals, script: str, where: Path) -> tuple[int, str]:
    """Exit code and output of a script that hears a signal when it is ready."""
    with running(script, where) as process:
        until_ready(process)
        process.send_signal(number)
        return ended(process)


@ENDINGS
def test_a_command_that_does_not_end_is_ended_with_its_descendants_and_directories(
    number: signal.Signals, tmp_path: Path
) -> None:
    with running(STUBBORN, tmp_path) as process:
        (child,) = until_ready(process)
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        assert ended(process) == (130, "isocast: interrupted\n")
    assert not is_running(child)
    assert list(tmp_path.iterdir()) == []


def test_the_second_signal_does_not_wait(tmp_path: Path) -> None:
    patient = STUBBORN.replace("_GRACE_S = 0.1", "_GRACE_S = 3_600").replace("pass  #", "ready()  #")
    with running(patient, tmp_path) as process:
        until_ready(process)
        process.send_signal(signal.SIGINT)
        until_ready(process)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (130, "isocast: interrupted\n")
    assert list(tmp_path.iterdir()) == []


@ENDINGS
def test_a_signal_while_modules_are_imported_is_one_line(number: signal.Signals, tmp_path: Path) -> None:
    script = "shutdown._state.importing = True\nready()\nthreading.Event().wait()\n"
    assert ended_by(number, script, tmp_path) == (130, "isocast: interrupted\n")


def test_what_a_library_makes_of_an_interrupt_is_the_interrupt(tmp_path: Path) -> None:
    script = """
def work():
    ready()
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        raise ImportError("the extension could not be initialised")
command(work)
"""
    assert ended_by(signal.SIGINT, script, tmp_path) == (130, "isocast: interrupted\n")


def test_an_interrupt_where_nothing_can_be_raised_is_not_lost(tmp_path: Path) -> None:
    """Imports call back where an exception is only printed."""
    script = """
shutdown._GRACE_S = 3_600
class Left:
    def __del__(self):
        ready()
        time.sleep(3_600)
def work():
    left = Left()
    del left
    time.sleep(3_600)
command(work)
"""
    assert ended_by(signal.SIGINT, script, tmp_path) == (130, "isocast: interrupted\n")


ORDERLY = """
import asyncio
async def serve():
    ending = asyncio.Event()
    with shutdown.stopping(ending.set, seconds=600, waits_for="the last ones leave"):
        ready()
        await ending.wait()
        {meanwhile}
    return 7
command(lambda: shutdown.run(serve()))
"""


@ENDINGS
def test_an_orderly_end_has_its_own_exit_code_and_nothing_is_said_for_it(
    number: signal.Signals, tmp_path: Path
) -> None:
    with running(ORDERLY.format(meanwhile="print('ends', flush=True)"), tmp_path) as process:
        until_ready(process)
        process.send_signal(number)
        assert ended(process) == (7, "ends\n")


def test_a_command_whose_time_is_up_while_it_says_so_has_said_so(tmp_path: Path) -> None:
    """The forced end comes between the decision to write the line and the writing."""
    slow = """
shutdown._GRACE_S = 0.1
def slowly(text):
    time.sleep(0.3)
    print(text, flush=True)
try:
    ready()
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(shutdown.finish(shutdown.interrupted(slowly)))
"""
    assert ended_by(signal.SIGHUP, slow, tmp_path) == (130, "isocast: interrupted\n")


def test_who_waits_for_long_is_told_for_what(tmp_path: Path) -> None:
    script = "shutdown._GRACE_S = 0.1\n" + ORDERLY.format(meanwhile="await asyncio.Event().wait()")
    with running(script, tmp_path) as process:
        until_ready(process)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        told = process.stdout.readline()
        assert told == "isocast: interrupted; the last ones leave; Ctrl-C again ends it at once\n"
        process.send_signal(signal.SIGINT)
        assert ended(process) == (130, "isocast: interrupted\n")


def test_a_coroutine_that_asked_for_nothing_is_cancelled(tmp_path: Path) -> None:
    script = """
import asyncio
async def wait():
    try:
        ready()
        await asyncio.Event().wait()
    finally:
        print("closed", flush=True)
command(lambda: shutdown.run(wait()))
"""
    assert ended_by(signal.SIGHUP, script, tmp_path) == (130, "closed\nisocast: interrupted\n")


def test_what_an_event_loop_complains_of_at_a_forced_end_is_no_news(tmp_path: Path) -> None:
    """A child that ends after its loop was closed, a task whose exception nobody took, what a library logs."""
    script = """
import asyncio, logging
logging.basicConfig()
async def broken():
    try:
        await asyncio.Event().wait()
    finally:
        raise ValueError("nobody waits for this")
async def wait():
    task = asyncio.create_task(broken())
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)")
    await asyncio.sleep(0)
    ready()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        logging.getLogger("py4j").exception("while an answer was read")
        raise
command(lambda: shutdown.run(wait()))
"""
    assert ended_by(signal.SIGTERM, script, tmp_path) == (130, "isocast: interrupted\n")


def test_what_a_server_in_a_thread_complains_of_is_no_news(tmp_path: Path) -> None:
    """Spark has one, whose clients are Java's: they are gone first."""
    script = """
import socket, socketserver
heard, asked = threading.Event(), threading.Event()
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        heard.set()
        asked.wait()
        raise EOFError
class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    def shutdown_request(self, request):
        heard.set()
server = Server(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = socket.create_connection(server.server_address)
heard.wait()
heard.clear()
def work():
    try:
        ready()
        time.sleep(600)
    finally:
        asked.set()
        heard.wait()
command(work)
"""
    assert ended_by(signal.SIGTERM, script, tmp_path) == (130, "isocast: interrupted\n")


@pytest.mark.parametrize("writer", ["write()", "threading.Thread(target=write).start(); time.sleep(600)"])
def test_output_that_nobody_reads_ends_a_command_without_a_word(writer: str, tmp_path: Path) -> None:
    """In a thread, too: its exception would have ended that thread alone."""
    script = f"""
def write():
    while True:
        print("x" * 4_096, flush=True)
        time.sleep(0.001)
def work():
    ready()
    {writer}
command(work)
"""
    with running(script, tmp_path, err=subprocess.PIPE) as process:
        until_ready(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) == 141


def test_work_that_is_not_for_a_reader_goes_on_without_one(tmp_path: Path) -> None:
    script = """
def work():
    going = []
    with shutdown.stopping(lambda: going.append(1), seconds=600, unread=False):
        ready()
        for _ in range(50):
            print("x" * 4_096, flush=True)
            time.sleep(0.001)
        print("goes on", file=sys.stderr, flush=True)
        while not going:
            time.sleep(0.001)
    return 3
command(work)
"""
    with running(script, tmp_path, err=subprocess.PIPE) as process:
        until_ready(process)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.readline() == "goes on\n"
        process.send_signal(signal.SIGTERM)
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) == 3


def test_a_signal_that_was_ignored_before_stays_ignored() -> None:
    """As under nohup."""
    script = ORDERLY.format(meanwhile="pass")
    nohup = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", nohup, sys.executable, "-c", BEGIN + script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as process:
        until_ready(process)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        assert ended(process) == (7, "")


def test_a_fork_that_works_for_us_ends_without_a_word_and_puts_nothing_away(tmp_path: Path) -> None:
    script = """
place = scratch.new_directory("test")
pid = os.fork()
if not pid:
    print(os.getpid(), flush=True)
    ready()
    time.sleep(600)
os.wait()
print(place.exists(), flush=True)
scratch.remove(place)
os._exit(0)
"""
    with running(script, tmp_path) as process:
        (child,) = until_ready(process)
        os.kill(int(child), signal.SIGINT)
        assert ended(process) == (0, "True\n")


def test_in_somebody_elses_program_nothing_is_forced(tmp_path: Path) -> None:
    script = """
import signal
from isocast.runtime.operate import shutdown
before = signal.getsignal(signal.SIGTERM)
heard = []
with shutdown.stopping(lambda: heard.append(shutdown.cause())):
    signal.raise_signal(signal.SIGTERM)
    try:
        signal.raise_signal(signal.SIGTERM)
    except KeyboardInterrupt:
        heard.append(0)
assert heard == [signal.SIGTERM, 0], heard
assert signal.getsignal(signal.SIGTERM) is before
assert shutdown.cause() == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, timeout=PATIENCE_S)
