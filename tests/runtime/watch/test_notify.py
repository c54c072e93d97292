"""Telling a supervisor how a process fares."""

import socket
from pathlib import Path

import pytest

from isocast.runtime.watch.logs import is_watched, notify


def listen(address: str) -> socket.socket:
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(address)
    ear.settimeout(10)
    return ear


def test_a_state_reaches_whoever_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "ear")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with listen(path) as ear:
        assert notify("READY=1")
        assert notify("STATUS=Zürich waits")
        assert ear.recv(100) == b"READY=1"
        assert ear.recv(100).decode() == "STATUS=Zürich waits"


def test_a_name_in_the_abstract_namespace_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"isocast-test-{id(monkeypatch)}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with listen(f"\0{name}") as ear:
        assert notify("READY=1")
        assert ear.recv(100) == b"READY=1"


@pytest.mark.parametrize("address", ["", "/nowhere/at/all", "x" * 300])
def test_without_a_listener_nothing_happens(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")
    monkeypatch.delenv("NOTIFY_SOCKET")
    assert not notify("READY=1")


def test_a_listener_that_does_not_read_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor under SIGSTOP: its socket fills up, and its nodes go on."""
    path = str(tmp_path / "ear")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with listen(path) as ear:
        sent = 0
        while notify("STATUS=busy"):
            sent += 1
        assert sent > 0
        for _ in range(sent):
            ear.recv(100)
        assert notify("STATUS=again")


def test_a_watchdog_is_known_by_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    assert not is_watched()
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    assert is_watched()
