"""The operator's door: who may ask, what a bad request gets, and that nothing of it reaches the node's loop."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest

from isocast.runtime.operate.operator_door import SOCKET, OperatorDoor, OperatorError, ask
from isocast.terms.errors import ConfigurationError, LocalProtocolError


async def _echo(request: Mapping[str, Any]) -> Mapping[str, object]:
    return {"heard": request["word"]}


async def _refuse(_: Mapping[str, Any]) -> None:
    raise LocalProtocolError("not while the ring is sealed")


async def _break(_: Mapping[str, Any]) -> None:
    raise KeyError("oops")


OPERATIONS = {"echo": _echo, "refuse": _refuse, "break": _break}


ResultT = TypeVar("ResultT")


def _with_door(directory: Path, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
    async def run() -> ResultT:
        door = OperatorDoor(directory, OPERATIONS)
        await door.open()
        try:
            return await work()
        finally:
            await door.close()

    return asyncio.run(run())


def test_a_request_is_done_and_answered(tmp_path: Path) -> None:
    assert _with_door(tmp_path, lambda: ask(tmp_path, "echo", word="ring")) == {"ok": True, "heard": "ring"}
    assert not (tmp_path / SOCKET).exists()


def test_a_directory_may_be_deeper_than_a_sockets_name(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 90) / ("b" * 90)
    assert _with_door(deep, lambda: ask(deep, "echo", word=1))["heard"] == 1


def test_nobody_else_may_come_in(tmp_path: Path) -> None:
    async def mode() -> int:
        return stat.S_IMODE((tmp_path / SOCKET).stat().st_mode)

    assert _with_door(tmp_path, mode) == 0o600


@pytest.mark.parametrize(
    "do, text",
    [
        ("refuse", "not while the ring is sealed"),
        ("break", "KeyError"),
        ("ehco", 'did you mean "echo"'),
    ],
)
def test_what_cannot_be_done_says_why(tmp_path: Path, do: str, text: str) -> None:
    with pytest.raises(OperatorError, match=text):
        _with_door(tmp_path, lambda: ask(tmp_path, do))


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[]\n", b'{"do": 3}\n', b"\xff\xfe\n", b"[" * 9_000 + b"\n", b"x" * (2 << 20)]
)
def test_a_line_that_is_no_request_is_refused(tmp_path: Path, line: bytes) -> None:
    async def speak() -> dict[str, object]:
        reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET)
        writer.write(line)
        writer.write_eof()
        answer = json.loads(await reader.readline())
        writer.close()
        assert (await ask(tmp_path, "echo", word="still here"))["heard"] == "still here"
        return dict(answer)

    assert _with_door(tmp_path, speak)["ok"] is False


def test_a_visitor_that_says_nothing_keeps_nobody_waiting(tmp_path: Path) -> None:
    async def speak() -> dict[str, Any]:
        _, silent = await asyncio.open_unix_connection(tmp_path / SOCKET)
        answer = await ask(tmp_path, "echo", word="next")
        silent.close()
        return answer

    assert _with_door(tmp_path, speak)["heard"] == "next"


def test_what_a_killed_node_left_behind_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET))
    assert _with_door(tmp_path, lambda: ask(tmp_path, "echo", word=2))["heard"] == 2


def test_a_second_process_of_a_node_is_refused(tmp_path: Path) -> None:
    async def again() -> None:
        await OperatorDoor(tmp_path, OPERATIONS).open()

    with pytest.raises(ConfigurationError, match="runs already"):
        _with_door(tmp_path, again)


@pytest.mark.parametrize("exists", [True, False])
def test_where_nobody_listens_the_error_says_so(tmp_path: Path, exists: bool) -> None:  # noqa: FBT001
    directory = tmp_path if exists else tmp_path / "nowhere"
    with pytest.raises(OperatorError, match="no process listens"):
        asyncio.run(ask(directory, "echo"))


def test_a_node_that_has_gone_is_named(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / SOCKET))
    with pytest.raises(OperatorError, match="is down"):
        asyncio.run(ask(tmp_path, "echo"))
