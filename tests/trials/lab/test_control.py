"""The control socket: whatever comes in, one line goes out, and the lab goes on."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.trials.lab.session import ControlServer, ask_lab


def answer(request: Mapping[str, Any]) -> object:
    match request.get("command"):
        case "bad":
            raise ConfigurationError("lab", "x", "unknown site")
        case "closed":
            raise LocalProtocolError("the lab is not open")
        case "dead":
            raise ChildProcessError("the lab's switch has ended by itself")
        case _:
            return dict(request)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlServer]:
    with ControlServer(tmp_path / "control", answer) as server:
        yield server


def answered(server: ControlServer, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  # JSON
    """Ask from a thread of its own while the server answers once."""
    got: list[Any] = []

    def run() -> None:
        try:
            got.append(ask())
        except Exception as error:  # noqa: BLE001  # handed over
            got.append(error)

    asking = threading.Thread(target=run)
    asking.start()
    while asking.is_alive():
        server.serve()
    asking.join()
    if isinstance(got[0], Exception):
        raise got[0]
    return got[0]


def raw(path: Path, data: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        return peer.makefile("rb").read()


def test_a_command_is_answered(server: ControlServer, tmp_path: Path) -> None:
    got = answered(server, lambda: ask_lab(tmp_path, "cut", here="a", one_way=True))
    assert got == {"command": "cut", "here": "a", "one_way": True}


def test_bad_input_is_the_clients_error(server: ControlServer, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="lab: x: unknown site"):
        answered(server, lambda: ask_lab(tmp_path, "bad"))


@pytest.mark.parametrize("command, text", [("closed", "not open"), ("dead", "ended by itself")])
def test_a_lab_that_cannot_says_why(command: str, text: str, server: ControlServer, tmp_path: Path) -> None:
    with pytest.raises(ChildProcessError, match=text):
        answered(server, lambda: ask_lab(tmp_path, command))


@pytest.mark.parametrize(
    "data",
    [b"\n", b"[]\n", b"{\n", b"\xff\xfe\n", b"3\n", b"[" * 60_000 + b"\n", b"x" * 100_000, b'{"command": "cut"'],
    ids=["empty", "list", "half", "binary", "number", "deep", "long", "no end of line"],
)
def test_what_is_no_request_is_refused_and_the_next_one_served(
    data: bytes, server: ControlServer, tmp_path: Path
) -> None:
    got = json.loads(answered(server, lambda: raw(tmp_path / "control", data)))
    assert got == {"bad": ["control socket", "request", "must be one JSON object on one line"]}
    assert answered(server, lambda: ask_lab(tmp_path, "status")) == {"command": "status"}


def test_a_client_that_says_nothing_is_left_alone(
    server: ControlServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isocast.trials.lab.session._REQUEST_S", 0.01)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tmp_path / "control"))
        server.serve()
        assert answered(server, lambda: ask_lab(tmp_path, "status")) == {"command": "status"}


def test_without_a_lab_there_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no lab runs in"):
        ask_lab(tmp_path, "status")
