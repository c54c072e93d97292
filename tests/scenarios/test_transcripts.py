"""Every transcript says exactly what the machines do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.scenarios.stage import play

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_transcript_is_what_happens(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert play(text) == text


def test_a_transcript_that_claims_something_else_is_found_out() -> None:
    text = FILES[0].read_text(encoding="utf-8")
    assert play(text.replace("holds token", "drops token")) == text


def test_a_step_about_a_packet_that_nobody_sent_is_a_mistake_of_the_transcript() -> None:
    with pytest.raises(LookupError, match="nothing is under way to r2"):
        play("sites 3\ndeliver r2 token 7\n----\n")
