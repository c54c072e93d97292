"""The one place where a command ends before its time: INT, TERM, HUP, and output that nobody reads any more.

The first of them ends a command in order, by what the command asked for in a `stopping` block, or else by a
KeyboardInterrupt. It has a second for that, or as long as it asked for, having said what it waits for. The next one, or
the end of that time, ends the process at once, whatever it is stuck in: its descendants are killed, its temporary
directories removed, the terminal is as before, and one line says so.

`install` is for a process of its own, as its first act: while modules are imported, too, there is no traceback. Without
it (in a test, in somebody else's program) a `stopping` block takes the signals for itself, and nothing is forced.

    shutdown.run(listen())                              # cancelled by a signal: KeyboardInterrupt

    with shutdown.stopping(ending.set, seconds=10, waits_for="the nodes stop"):
        await ending.wait()
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from _thread import RLock, start_new_thread
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn, TypeVar

__all__ = [
    "INTERRUPTED",
    "LAST_WORDS_S",
    "NOBODY_READS",
    "allow",
    "at_forced_end",
    "begun",
    "cause",
    "finish",
    "install",
    "interrupted",
    "kill_family",
    "run",
    "stopping",
]

INTERRUPTED = 130
NOBODY_READS = 141
"""Exit codes, as shells know them."""
LAST_WORDS_S = 5.0
"""For a command that closes what is open and says how much there was."""

ResultT = TypeVar("ResultT")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE_S = 0.9
"""For a command that asked for nothing: with what a forced end takes, all of it is over after a second."""
_LOOK_S = 0.05
_LINE_S = 0.5
"""How long a forced end waits for the main thread, if that is writing the line that the command was interrupted."""
_ROUNDS = 40
"""Looks at whether those who were killed are gone, 20 ms apart: 0.8 s."""
_LEAVE_SCREEN = b"\x1b[?1049l\x1b[?25h"
_UNREAD = (errno.EPIPE, errno.EIO)
"""The reader of a pipe has left, or the terminal has been closed."""


class _Stop:
    """What a block asked for."""

    def __init__(self, steps: list[Callable[[], object]], seconds: float, waits_for: str, *, unread: bool) -> None:
        self.steps = steps
        self.seconds = seconds
        self.waits_for = waits_for
        self.unread = unread
        """Whether output that nobody reads is a reason, too."""
        self.loop = _running_loop()

    def step(self) -> None:
        """Do the next step, in the event loop if the block is in one."""
        step = self.steps.pop(0)
        if self.loop is None:
            step()
        else:
            with suppress(RuntimeError):  # The loop has just been closed.
                self.loop.call_soon_threadsafe(step)


class _State:
    """Of this process."""

    pid = 0
    """That `install` was called in; 0: nothing is forced here."""
    importing = False
    finishing = False
    told = False
    cause = 0
    """The signal that came first; SIGPIPE for output that nobody reads."""
    unread = False
    """The signal that comes next is our own, for output that nobody reads."""
    deadline = 0.0
    waits_for = ""
    stops: list[_Stop]
    forced: list[Callable[[], None]]
    terminal: list[Any] | None = None

    def __init__(self) -> None:
        self.stops = []
        self.forced = []
        self.telling = RLock()
        """Held while the line is written: the process must not end between the decision to write it and the writing."""


_state = _State()


# Of a process -------------------------------------------------------------------------------------


def install() -> None:
    """Take the signals, and watch the output, for the whole life of this process; imports come next."""
    _state.__init__()  # type: ignore[misc]  # A fork of a nursery begins anew.
    _state.pid = os.getpid()
    _state.importing, _state.finishing, _state.cause, _state.unread, _state.told = True, False, 0, False, False
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # As under nohup.
            signal.signal(number, _on_signal)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        with suppress(OSError, ValueError):
            if isinstance(stream, io.TextIOWrapper) and stream.fileno() == descriptor:
                setattr(sys, name, _watched(stream, descriptor))
    with suppress(OSError):
        if os.isatty(0):
            import termios  # noqa: PLC0415 - where there is a terminal

            _state.terminal = termios.tcgetattr(0)


def begun() -> None:
    """The command itself begins: from now on there may be something to put away."""
    _state.importing = False


def cause() -> int:
    """The signal that ends this command, SIGPIPE for output that nobody reads; 0: nothing does."""
    return _state.cause


def finish(code: int) -> int:
    """The exit code of a command that is over; if it was ended, the process ends here, and nothing is waited for."""
    _state.finishing = True
    if _state.cause and _is_ours():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        _leave(NOBODY_READS if _state.cause == signal.SIGPIPE else code)
    return code


def interrupted(say: Callable[[str], object] | None = None) -> int:
    """Say in one line that this command was ended, unless nobody would read it; its exit code."""
    if _state.cause != signal.SIGPIPE:
        is_held = _state.telling.acquire(timeout=_LINE_S)  # The time may be up while the main thread writes.
        try:
            if not _state.told:
                _state.told = _is_ours()
                (say or _say)("isocast: interrupted")
        finally:
            if is_held:
                _state.telling.release()
    return _code()


def at_forced_end(act: Callable[[], None]) -> None:
    """Call this, too, when the process ends at once; it must be quick, and may come from another thread."""
    if act not in _state.forced:
        _state.forced.append(act)


# Of a command -------------------------------------------------------------------------------------


@contextmanager
def stopping(
    step: Callable[[], object],
    *further: Callable[[], object],
    seconds: float = _GRACE_S,
    waits_for: str = "",
    unread: bool = True,
) -> Iterator[None]:
    """In this block a signal calls `step` (in its event loop, if there is one), the next one the next, then all ends.

    From the first signal on there are `seconds`; `waits_for` is said if that takes more than one. Output that nobody
    reads counts as a signal, unless the work goes on without it (`unread`).
    """
    stop = _Stop([step, *further], seconds, waits_for, unread=unread)
    before = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if handler is not _on_signal and handler is not signal.SIG_IGN:
            with suppress(ValueError):  # In another thread than the first, signals are not ours to take.
                before[number] = signal.signal(number, _on_signal)
    _state.stops.append(stop)
    try:
        yield
    finally:
        _state.stops.remove(stop)
        for number, handler in before.items():
            signal.signal(number, handler)
        if not _is_ours() and not _state.stops:
            _state.cause = 0


def allow(seconds: float, waits_for: str = "") -> None:
    """A step of a `stopping` block takes this long, from now on; `waits_for` is said if it takes more than one."""
    _state.deadline = time.monotonic() + seconds
    _state.waits_for = waits_for


def run(main: Coroutine[Any, Any, ResultT]) -> ResultT:
    """`asyncio.run`; a signal cancels it, and raises KeyboardInterrupt in the caller."""
    import asyncio  # noqa: PLC0415 - not before it is needed

    async def whole() -> ResultT:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("not in a task")
        with stopping(task.cancel):
            return await main

    try:
        return asyncio.run(whole())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


# What comes ---------------------------------------------------------------------------------------


def _is_ours() -> bool:
    return _state.pid == os.getpid()


def _on_signal(number: int, _frame: FrameType | None = None) -> None:
    if _state.pid and not _is_ours():
        os._exit(INTERRUPTED)  # A fork that works for us: it has nothing to say or to put away.
    stop = _state.stops[-1] if _state.stops else None
    if _state.unread:
        _state.unread = False
        if _state.cause or (stop is not None and not stop.unread):
            return
        number = signal.SIGPIPE
    first = not _state.cause
    if first:
        _state.cause = number
    if (_state.importing or _state.finishing) and _is_ours():
        _leave(_code())
    if first and _is_ours():
        if stop is None or stop.unread:  # Else it has a log, which hears of everything.
            _hush()
        allow(_GRACE_S if stop is None else stop.seconds, "" if stop is None else stop.waits_for)
        start_new_thread(_watch, ())  # Locks that a Thread takes may be held by what was interrupted.
    if stop is not None and stop.steps:
        stop.step()
    elif first or not _is_ours():
        raise KeyboardInterrupt
    else:
        _leave(_code())


def _hush() -> None:
    """What breaks because of the end, in a destructor or in another thread, is no news."""
    sys.unraisablehook = _on_unraisable
    threading, logging = sys.modules.get("threading"), sys.modules.get("logging")
    if threading is not None:
        threading.excepthook = lambda _: None  # type: ignore[attr-defined]
    if logging is not None:
        logging.disable(logging.CRITICAL)  # Libraries log what they were interrupted in, with its traceback.
    servers = sys.modules.get("socketserver")
    if servers is not None:
        servers.BaseServer.handle_error = lambda *_: None  # Spark has one of these.


def _on_unraisable(broken: sys.UnraisableHookArgs) -> None:
    if broken.exc_type is KeyboardInterrupt and _is_ours() and not _state.stops:
        _leave(_code())  # It came where nobody can raise anything, as in the middle of an import, and is lost.


def _watch() -> None:
    """After a second, say what is waited for; at the deadline, end."""
    said = time.monotonic() + _GRACE_S
    while (now := time.monotonic()) < _state.deadline:
        if _state.waits_for and now >= said:
            _say(f"isocast: interrupted; {_state.waits_for}; Ctrl-C again ends it at once")
            _state.waits_for = ""
        time.sleep(_LOOK_S)
    _leave(_code())


def _code() -> int:
    return NOBODY_READS if _state.cause == signal.SIGPIPE else INTERRUPTED


def _leave(code: int) -> NoReturn:
    """End now; a command that was not asked for an orderly end says that it was interrupted."""
    kill_family(os.getpid())
    for act in _state.forced:
        with suppress(Exception):
            act()
    _restore_terminal()
    if not _state.finishing:
        interrupted()
    os._exit(code)


def _restore_terminal() -> None:
    with suppress(Exception):
        if not _state.finishing and "rich.live" in sys.modules and os.isatty(1):
            os.write(1, _LEAVE_SCREEN)
        if _state.terminal is not None:
            import termios  # noqa: PLC0415 - where there is a terminal

            # From the background, as after Ctrl-Z, the kernel would stop us.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
            termios.tcsetattr(0, termios.TCSANOW, _state.terminal)


def _say(text: str) -> None:
    """Written to the descriptor: the code that was interrupted may hold the stream's lock."""
    with suppress(OSError):
        os.write(2, f"{text}\n".encode())


# Descendants --------------------------------------------------------------------------------------


def kill_family(pid: int) -> None:
    """SIGKILL to all descendants of a process, and wait until they are gone, within a second."""
    known: set[int] = set()
    for _ in range(_ROUNDS):
        parents = _parents()
        known = {child for child in known if child in parents}
        grown = True
        while grown:
            found = {child for child, parent in parents.items() if parent == pid or parent in known} - known
            grown = bool(found)
            known |= found
        known.discard(pid)
        if not known:
            return
        for child in known:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        time.sleep(_LOOK_S / 2.5)


def _parents() -> dict[int, int]:
    """The parent of each living process of this machine; nothing where the system does not say."""
    found = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):  # noqa: PTH208 - a path for each process would cost more than the reading
            if name.isdigit():
                with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                    if state not in (b"Z", b"X"):
                        found[int(name)] = int(parent)
    return found


# Output -------------------------------------------------------------------------------------------


class _Output(io.BufferedWriter):
    """Standard output or error; when nobody reads it any more, nobody hears of that but this module."""

    def write(self, data: Any, /) -> int:  # noqa: ANN401 - any buffer, as the base says
        try:
            return super().write(data)
        except OSError as reason:
            self._leave_unread(reason)
        return memoryview(data).nbytes

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as reason:
            self._leave_unread(reason)

    def _leave_unread(self, reason: OSError) -> None:
        if reason.errno not in _UNREAD or not _is_ours():
            raise reason
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        # Notes beside the output may get lost: the output itself may not.
        if self.fileno() == 1:
            import threading  # noqa: PLC0415 - this is rare, and every command starts here

            _state.unread = True
            main = threading.main_thread().ident
            if main is not None:
                signal.pthread_kill(main, signal.SIGTERM)


def _watched(stream: io.TextIOWrapper, descriptor: int) -> io.TextIOWrapper:
    stream.flush()
    return io.TextIOWrapper(
        _Output(io.FileIO(descriptor, "wb", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _running_loop() -> Any:  # noqa: ANN401 - the loop, or None
    """The event loop that runs in this thread; asyncio is not imported where there is none."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None:
        with suppress(RuntimeError):
            return asyncio.get_running_loop()
    return None
