"""Structured logs, JSON or coloured, never with a secret; and systemd's notices of how a process fares.

`configure_logs` is called once in a process. What a library logs the ordinary way takes the same road. Whatever looks
like key material is cut out of every line, and one event cannot flood the log: the same event passes a few times a
second, and the rest is counted.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from isocast.terms.errors import ConfigurationError

__all__ = ["LogHandle", "LogLevel", "LogRateLimit", "configure_logs", "get_log", "is_watched", "notify", "redact"]


_PER_SECOND = 10
"""Lines of one event in a second: a person reads no more, and a burst of forgeries must not fill a disk."""
_EVENTS_REMEMBERED = 512
_WINDOW_S = 1.0

_SECRET_NAME = re.compile(r"key|secret|passw|passphrase|credential|private", re.IGNORECASE)
_SECRET_TEXT = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"  # PEM
    r"|b'(?:\\.|[^'\\])*'"  # bytes as Python prints them ...
    r'|b"(?:\\.|[^"\\])*"'  # ... in either quotes
    r"|\b[0-9a-fA-F]{64,}\b"  # 32 bytes or more in hexadecimal; a digest of the protocol has 16
    r"|(?<![\w+/-])[\w+/-]{43}=(?![\w=])",  # 32 bytes in base64
    re.ASCII | re.DOTALL,
)
_REDACTED = "<redacted>"
_DEPTH_MAX = 6
_ITEMS_MAX = 64
_SMALL = 1 << 32
"""A number below this under a secret's name is a count, not a key."""


class LogLevel(StrEnum):
    """What is worth a line."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def number(self) -> int:
        """As the module `logging` counts."""
        return logging.getLevelNamesMapping()[self.value.upper()]


# Secrets ------------------------------------------------------------------------------------------


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut out what looks like key material: bytes, values under a secret's name, keys inside texts."""
    return {name: _safe(name, value, 0) for name, value in event.items()}


def _safe(name: str, value: object, depth: int) -> object:
    match value:
        case None | bool():
            return value
        case bytes() | bytearray() | memoryview():
            return f"<{memoryview(value).nbytes} bytes>"
        case Path():
            return str(value)
        case int() | float() if not _SECRET_NAME.search(name) or abs(value) < _SMALL:
            return value
    if _SECRET_NAME.search(name):
        return _REDACTED
    if depth >= _DEPTH_MAX:
        return "…"
    match value:
        case str() if not isinstance(value, Enum):
            return _SECRET_TEXT.sub(_REDACTED, value)
        case Enum():
            return _safe(name, value.value, depth + 1)
        case Mapping():
            some = list(value.items())[:_ITEMS_MAX]
            return {str(part): _safe(str(part), inner, depth + 1) for part, inner in some}
        case Sequence() | AbstractSet():
            return [_safe(name, part, depth + 1) for part in list(value)[:_ITEMS_MAX]]
        case _:
            return _SECRET_TEXT.sub(_REDACTED, str(value))


# Floods -------------------------------------------------------------------------------------------


class LogRateLimit:
    """Lets the same event pass some times a second; the next that passes tells how many did not."""

    def __init__(self, per_second: int = _PER_SECOND, now_s: Callable[[], float] = time.monotonic) -> None:
        """`now_s` is any clock that never goes back."""
        self._per_second = per_second
        self._now_s = now_s
        self._seen: dict[str, list[float]] = {}
        """Event to [start of its window, how many passed in it, how many did not]."""

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Pass the event on or drop it."""
        name, now = str(event.get("event")), self._now_s()
        window = self._seen.get(name)
        if window is None or now - window[0] >= _WINDOW_S:
            missed = 0 if window is None else int(window[2])
            self._seen.pop(name, None)
            if len(self._seen) >= _EVENTS_REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._seen[name] = [now, 1, 0]
            if missed:
                event["suppressed"] = missed
            return event
        if window[1] < self._per_second:
            window[1] += 1
            return event
        window[2] += 1
        raise structlog.DropEvent

    def ended(self, *, all_of_them: bool = False) -> list[tuple[str, int]]:
        """Events whose second is over and that were dropped since, with how often; they are told once."""
        now = self._now_s()
        told = []
        for name, window in self._seen.items():
            if window[2] and (all_of_them or now - window[0] >= _WINDOW_S):
                told.append((name, int(window[2])))
                window[2] = 0
        return told


# The one configuration ----------------------------------------------------------------------------


class _Lines:
    """Writes rendered lines; a log that cannot be written stops nobody."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        with suppress(OSError, ValueError):
            self._stream.write(f"{message}\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = fatal = log = msg


class _Forward(logging.Handler):
    """Hands what libraries log to the same processors."""

    def emit(self, record: logging.LogRecord) -> None:
        get_log().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


class LogHandle:
    """A handle on the configured logs."""

    def __init__(self, limit: LogRateLimit) -> None:
        """Made by `configure_logs`."""
        self._limit = limit

    def tell_suppressed(self, *, ending: bool = False) -> None:
        """Say what was dropped and has since stopped; the driver calls this every second or so, and at its end."""
        for name, count in self._limit.ended(all_of_them=ending):
            get_log().warning("events suppressed", of=name, suppressed=count)


def configure_logs(
    *,
    node: str = "",
    role: str = "",
    level: LogLevel | str = LogLevel.INFO,
    as_json: bool | None = None,
    stream: TextIO | None = None,
    limit: LogRateLimit | None = None,
) -> LogHandle:
    """Set up the logs of this process: JSON lines unless `stream` (standard error) is a terminal, or as told."""
    try:
        level = LogLevel(level)
    except ValueError:
        rule = f'"{level}" is not one of {", ".join(LogLevel)}'
        raise ConfigurationError("command line", "--log-level", rule) from None
    out = sys.stderr if stream is None else stream
    limit = LogRateLimit() if limit is None else limit
    if as_json is None:
        as_json = not out.isatty()
    fields = {name: value for name, value in (("node", node), ("role", role)) if value}

    def standard(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {**event, **fields}

    processors: list[Processor] = [
        limit,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        standard,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        redact,
        _json_renderer() if as_json else _console_renderer(),
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level.number),
        logger_factory=lambda *_: _Lines(out),
        cache_logger_on_first_use=False,
    )
    _forward_libraries(level)
    return LogHandle(limit)


def _json_renderer() -> Processor:
    """First when, what and who, then the rest in the order of the call."""
    render = structlog.processors.JSONRenderer(ensure_ascii=False)
    first = ("time", "level", "event", "node", "role")

    def ordered(logger: WrappedLogger, method: str, event: MutableMapping[str, Any]) -> str | bytes:
        head = {name: event[name] for name in first if name in event}
        return render(logger, method, head | {name: value for name, value in event.items() if name not in head})

    return ordered


def _console_renderer() -> Processor:
    """Colours; plain tracebacks, because drawn ones show the values of variables."""
    return structlog.dev.ConsoleRenderer(
        colors=True, timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
    )


def _forward_libraries(level: LogLevel) -> None:
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, _Forward):
            root.removeHandler(handler)
    root.addHandler(_Forward())
    root.setLevel(max(level.number, logging.INFO))  # asyncio's own debug lines help nobody.


def get_log(**fields: object) -> FilteringBoundLogger:
    """A logger with these fields on every line: `get_log().warning("token late", token_number=7)`."""
    log: FilteringBoundLogger = structlog.get_logger()
    return log.bind(**fields) if fields else log


# Telling a supervisor how a process fares, by systemd's convention: datagrams to the socket that NOTIFY_SOCKET
# names.
#
# `isocast up` listens in the same way, so a node needs to know only one of them.


def notify(state: str) -> bool:
    """Send one state, such as ``READY=1`` or ``STATUS=waiting for a ring``; False where nobody listens.

    Never waits: a supervisor that is stopped must not stop its nodes.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):
        address = "\0" + address[1:]  # Linux's abstract namespace.
    kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as sender:
        sender.sendto(state.encode(), address)
        return True
    return False


def is_watched() -> bool:
    """Whether the supervisor wants to hear ``WATCHDOG=1`` now and then, and takes silence for the end."""
    return bool(os.environ.get("WATCHDOG_USEC"))
