"""What the control socket asks of a session is checked before the lab is asked: no privilege needed."""

from pathlib import Path

import pytest

from isocast.terms.errors import ConfigurationError, LocalProtocolError
from isocast.trials.lab import Lab
from isocast.trials.lab.nodes import LabNodes
from isocast.trials.lab.session import LabSession


@pytest.mark.parametrize(
    "command, parts, rule",
    [
        ("destroy", {}, 'unknown command "destroy"'),
        ("cutt", {}, 'did you mean "cut"'),
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
def test_a_bad_command_is_refused(command: str, parts: dict[str, object], rule: str, one_session: LabSession) -> None:
    with pytest.raises(ConfigurationError, match=rule):
        one_session.answer({"command": command} | parts)


@pytest.fixture
def one_session(tmp_path: Path) -> LabSession:
    """A session whose lab is not open: what is bad is refused before the lab is asked."""
    lab = Lab({"ny": "New York", "ldn": "London"})
    return LabSession(lab, LabNodes(lab, [], tmp_path))


def test_a_good_command_reaches_the_lab(one_session: LabSession) -> None:
    with pytest.raises(LocalProtocolError, match="not open"):
        one_session.answer({"command": "cut", "here": "ny", "there": "London"})
    one_session.answer({"command": "down"})
    assert one_session.ending
