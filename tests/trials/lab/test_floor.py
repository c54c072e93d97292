"""A floor of the lab: what it publishes it tells, and it ends when it is asked to."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

from tests.runtime.worlds import World, eventually, market_file

from isocast.checks.journals import Copy, lost
from isocast.runtime.disk.journal_reader import read_blocks
from isocast.terms.ids import Label
from isocast.trials.evidence import journal_of
from isocast.trials.lab.floor import accepted_labels, floor_command, main


def test_what_it_printed_is_read_line_by_line(tmp_path: Path) -> None:
    output = tmp_path / "floor.log"
    assert accepted_labels(output) == []
    output.write_text(
        "accepted 4294967296 1\nthe floor at x: is down\n\naccepted 4294967296 2\naccepted 42949", encoding="utf-8"
    )
    assert accepted_labels(output) == [Label(4294967296, 1), Label(4294967296, 2)]


def test_what_it_tells_is_released(tmp_path: Path) -> None:
    async def story() -> None:
        path, output = market_file(tmp_path), tmp_path / "floor.log"
        async with World(path) as world:
            await world.start("a", "b", "c", "floor", "x")
            with output.open("wb") as log:
                command = floor_command(path, "floor", 200, 1)
                floor = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
            try:
                await eventually(lambda: len(accepted_labels(output)) >= 5)
                floor.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(floor.wait(), 30) == 0
            finally:
                if floor.returncode is None:
                    floor.kill()
                    await floor.wait()
            promised = [(*label, None) for label in accepted_labels(output)]
            where = journal_of(world.market, "a")
            await eventually(lambda: where.is_dir() and not lost([Copy.of("a", read_blocks(where))], promised))

    asyncio.run(story())


def test_a_market_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    command = [*floor_command(tmp_path / "none.toml", "x", 1, 1)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "none.toml" in done.stderr
    assert command[:2] == [sys.executable, "-m"]
    assert main([str(tmp_path / "none.toml"), "x", "1", "1"]) == 1
