"""Logs: one object on each line, no secrets, no floods."""

import io
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog

from isocast.runtime.watch.logs import LogLevel, LogRateLimit, configure_logs, get_log
from isocast.terms.errors import ConfigurationError
from isocast.terms.ids import Epoch

SECRET = bytes(range(32))


pytestmark = pytest.mark.usefixtures("own_logs")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def logged(**values: object) -> dict[str, Any]:
    """One event through the whole chain."""
    out = io.StringIO()
    configure_logs(stream=out)
    get_log().info("event", **values)
    (line,) = lines(out)
    return line


# ---- form


def test_without_a_terminal_a_line_is_a_json_object() -> None:
    out = io.StringIO()
    configure_logs(node="london", role="primary-receiver", stream=out)
    get_log().warning("token late", token_number=7, by=0.25, name="São Paulo")
    (line,) = lines(out)
    assert list(line)[:5] == ["time", "level", "event", "node", "role"]
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "warning",
        "event": "token late",
        "node": "london",
        "role": "primary-receiver",
        "token_number": 7,
        "by": 0.25,
        "name": "São Paulo",
    }
    assert "São" in out.getvalue()


def test_on_a_terminal_there_are_colours_unless_json_is_wanted() -> None:
    out = Terminal()
    configure_logs(node="london", stream=out)
    get_log().info("ready", epoch=Epoch(3, 65_537))
    assert "\x1b[" in out.getvalue()
    assert "london" in out.getvalue()
    out = Terminal()
    configure_logs(stream=out, as_json=True)
    get_log().info("ready")
    assert lines(out)[0]["event"] == "ready"


def test_the_level_decides() -> None:
    out = io.StringIO()
    configure_logs(level="warning", stream=out)
    log = get_log()
    log.debug("no")
    log.info("no")
    log.warning("yes")
    log.error("yes")
    assert [line["event"] for line in lines(out)] == ["yes", "yes"]


def test_an_unknown_level_is_bad_input() -> None:
    with pytest.raises(ConfigurationError, match='--log-level: "loud" is not one of debug, info, warning, error'):
        configure_logs(level="loud")
    assert [level.number for level in LogLevel] == [10, 20, 30, 40]


def test_what_a_library_logs_takes_the_same_road() -> None:
    out = io.StringIO()
    configure_logs(node="london", stream=out)
    configure_logs(node="london", stream=out)  # Twice, and still one line each.
    logging.getLogger("asyncio").error("Task %s with key %r", "x", SECRET)
    logging.getLogger("asyncio").debug("no")
    (line,) = lines(out)
    assert (line["event"], line["logger"], line["node"]) == ("Task x with key <redacted>", "asyncio", "london")


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    out = io.StringIO()
    configure_logs(stream=out)
    log = get_log()
    out.close()
    log.error("nobody hears this")


def test_fields_of_a_task_are_on_its_lines() -> None:
    out = io.StringIO()
    configure_logs(stream=out)
    structlog.contextvars.bind_contextvars(peer="paris")
    get_log(stripe=2).info("heard")
    assert (lines(out)[0]["peer"], lines(out)[0]["stripe"]) == ("paris", 2)


# ---- secrets


class Pair(NamedTuple):
    name: str
    raw: bytes


@dataclass
class Holder:
    raw: bytes


@pytest.mark.parametrize(
    "value",
    [
        SECRET,
        bytearray(SECRET),
        memoryview(SECRET),
        SECRET.hex(),
        f"core is {SECRET.hex().upper()}, edge is not",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        repr(SECRET),
        [SECRET, [SECRET]],
        {"inner": {"deeper": SECRET}},
        {SECRET.hex()},
        Pair("x", SECRET),
        Holder(SECRET),
        ValueError(SECRET),
        ValueError(f"bad key {SECRET.hex()}"),
        "-----BEGIN PRIVATE KEY-----\nAAECAwQF\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nAAECAwQF",
    ],
)
def test_whatever_looks_like_a_key_is_cut_out(value: object) -> None:
    text = json.dumps(logged(value=value))
    for shape in (SECRET.hex(), SECRET.hex().upper(), "AAECAwQF", "\\\\x01", "\\u0001", "x01\\\\x02"):
        assert shape not in text


@pytest.mark.parametrize("name", ["key", "core_key", "KEY", "secret", "client_secret", "password", "private"])
@pytest.mark.parametrize("value", ["hunter2", ["hunter2"], {"part": "hunter2"}, 0x68756E7465723200])
def test_whatever_is_named_like_a_secret_is_cut_out(name: str, value: object) -> None:
    assert logged(**{name: value})[name] == "<redacted>"
    assert logged(settings={name: value})["settings"] == {name: "<redacted>"}


def test_what_is_no_secret_stays() -> None:
    line = logged(
        digest="00" * 16,
        keys=3,
        key_file=Path("/etc/isocast/core.key"),
        epoch=Epoch(3, 65_537),
        level_of=LogLevel.INFO,
        nothing=None,
        key_known=True,
        path="/var/lib/isocast/journal/0000000000000001",
        deep=[[[[[[[["x"]]]]]]]],
    )
    assert line["digest"] == "00" * 16
    assert (line["keys"], line["key_known"], line["nothing"]) == (3, True, None)
    assert line["key_file"] == "/etc/isocast/core.key"
    assert (line["epoch"], line["level_of"]) == ([3, 65_537], "info")
    assert line["path"].endswith("0000000000000001")
    assert "x" not in json.dumps(line["deep"])


@pytest.mark.parametrize("terminal", [False, True])
def test_a_traceback_shows_no_values_and_no_keys(terminal: bool) -> None:  # noqa: FBT001
    out = Terminal() if terminal else io.StringIO()
    configure_logs(stream=out)

    def fail(local: str) -> None:
        raise ValueError(f"cannot use {local}")

    try:
        fail(SECRET.hex())
    except ValueError:
        get_log().exception("failed")
    assert "ValueError" in out.getvalue()
    assert SECRET.hex() not in out.getvalue()


# ---- floods


def test_the_same_event_passes_some_times_a_second_and_then_is_counted() -> None:
    out, clock = io.StringIO(), Clock()
    logs = configure_logs(stream=out, limit=LogRateLimit(3, clock))
    for number in range(10):
        get_log().warning("forged packet", number=number)
    get_log().warning("another")
    assert [line.get("number") for line in lines(out)] == [0, 1, 2, None]
    clock.now_s += 1.0
    get_log().warning("forged packet", number=10)
    assert lines(out)[-1]["suppressed"] == 7
    logs.tell_suppressed()
    assert len(lines(out)) == 5, "that was told already"


def test_what_stopped_is_told_once_its_second_is_over() -> None:
    out, clock = io.StringIO(), Clock()
    logs = configure_logs(stream=out, limit=LogRateLimit(1, clock))
    for _ in range(5):
        get_log().warning("forged packet")
    logs.tell_suppressed()
    assert len(lines(out)) == 1
    clock.now_s += 1.0
    logs.tell_suppressed()
    logs.tell_suppressed()
    assert [(line["event"], line.get("of"), line.get("suppressed")) for line in lines(out)[1:]] == [
        ("events suppressed", "forged packet", 4)
    ]


def test_at_the_end_everything_is_told() -> None:
    out = io.StringIO()
    logs = configure_logs(stream=out, limit=LogRateLimit(1, Clock()))
    for _ in range(3):
        get_log().warning("forged packet")
    logs.tell_suppressed(ending=True)
    assert lines(out)[-1]["suppressed"] == 2


def test_many_different_events_fill_no_memory() -> None:
    limit = LogRateLimit(1, Clock())
    for number in range(2_000):
        limit(None, "info", {"event": f"event {number}"})
    with pytest.raises(structlog.DropEvent):
        limit(None, "info", {"event": "event 1999"})
    assert limit(None, "info", {"event": "event 0"}), "forgotten"
