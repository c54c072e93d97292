"""Sessions as they must go, line by line: see `transcripts` for the language and `definitions` for the cases."""

import asyncio
from pathlib import Path

import pytest
from tests.runtime.accounts.fix.transcripts import EchoApplication, Stage, Transcript, cases

CASES = cases(Path(__file__).parent / "definitions")


@pytest.mark.parametrize("application,lines", [case[::2] for case in CASES], ids=[case[1] for case in CASES])
def test_a_session_goes_as_its_transcript_says(application: str, lines: list[str], tmp_path: Path) -> None:
    async def story() -> None:
        stage = Stage(tmp_path, EchoApplication() if application == "echo" else None)
        await stage.start()
        try:
            await Transcript(stage).play(lines)
        finally:
            await stage.end()

    asyncio.run(story())


def test_there_is_a_transcript_for_each_rule() -> None:
    assert len(CASES) >= 60
    rules = {name.split(":")[0] for _, name, _ in CASES}
    assert {f"rule-{number:02}" for number in range(1, 16)} <= {rule[:7] for rule in rules}
