"""What the control socket asks of a session is checked before the lab is asked: no privilege needed."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isocast.runtime.operate.operator_door import OperatorDoor, OperatorError
from isocast.terms.errors import ConfigurationError
from isocast.trials.lab import Lab
from isocast.trials.lab.nodes import LabNodes
from isocast.trials.lab.session import LabSession, ask_lab


@pytest.fixture
def one_session(tmp_path: Path) -> LabSession:
    """A session whose lab is not open: what is bad is refused before the lab is asked."""
    lab = Lab({"ny": "New York", "ldn": "London"})
    return LabSession(lab, LabNodes(lab, [], tmp_path))


@pytest.fixture
def tell(one_session: LabSession, tmp_path: Path) -> Callable[..., Any]:
    """Gives the session a command through its socket, and returns the answer."""

    def told(command: str, **parts: object) -> Any:  # noqa: ANN401  # JSON
        async def served() -> Any:  # noqa: ANN401  # JSON
            door = OperatorDoor(tmp_path, one_session.operations, owner="lab")
            await door.open()
            try:
                return await asyncio.to_thread(ask_lab, tmp_path, command, **parts)
            finally:
                await door.close()

        return asyncio.run(served())

    return told


@pytest.mark.parametrize(
    "command, parts, rule",
    [
        ("cut", {"here": "ny"}, "there: must be a name"),
        ("cut", {"here": "ny", "there": "ny"}, "two different sites"),
        ("cut", {"here": "ny", "there": "mars"}, "unknown site"),
        ("cut", {"here": "ny", "there": "ldn", "one_way": 1}, "one_way: must be true or false"),
        ("change", {"here": "ny", "there": "ldn", "loss": "all"}, "loss: must be a number"),
        ("change", {"here": "ny", "there": "ldn", "loss": 7}, "from 0 to 1"),
        ("change", {"here": "ny", "there": "ldn", "delay_ns": 0.5}, "delay_ns: must be whole nanoseconds"),
        ("kill", {"node": ["a"]}, "node: must be a name"),
    ],
)
def test_a_bad_command_is_refused(command: str, parts: dict[str, object], rule: str, tell: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        tell(command, **parts)


def test_an_unknown_command_is_refused_with_the_nearest(tell: Callable[..., Any]) -> None:
    with pytest.raises(OperatorError, match='this lab cannot "cutt"; did you mean "cut"'):
        tell("cutt")


def test_a_good_command_reaches_the_lab(tell: Callable[..., Any], one_session: LabSession) -> None:
    with pytest.raises(OperatorError, match="not open"):
        tell("cut", here="ny", there="London")
    assert tell("down") is None
    assert one_session.ended.is_set()


def test_what_the_machine_refuses_is_told(
    tell: Callable[..., Any], one_session: LabSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(**_: object) -> None:
        raise ChildProcessError("the lab's switch has ended by itself")

    monkeypatch.setattr(one_session.lab, "lateness", ended)
    with pytest.raises(OperatorError, match="ended by itself"):
        tell("lateness")


def test_without_a_lab_there_one_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no lab runs in"):
        ask_lab(tmp_path, "status")
