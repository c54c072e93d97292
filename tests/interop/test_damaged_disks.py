"""A site whose journal is damaged, or lost, and whose log is whole; and one whose log is damaged (protocol §5)."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.interop.places import QUICK, new_market, own_place
from tests.interop.released import whole_journal
from tests.interop.rolling import SHORT, until_rolled
from tests.interop.stage import PATIENCE_S, Stage
from tests.interop.verdict import check_journals

from isocast.cli.main import main
from isocast.runtime.disk.journal_segments import Segment, segment_files
from isocast.runtime.disk.journal_verify import verify
from isocast.runtime.operate.supervisor import node_command

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
}

pytestmark = pytest.mark.xdist_group("rejoin")


class WithoutLondon(Stage):
    """Leaves one node alone: a supervisor would start it again before its disk could be damaged."""

    async def _start(self) -> None:
        await self._nursery.__aenter__()
        for plan in self.market.nodes:
            if plan.name != "london":
                await self._supervising.start(plan.name, node_command(Path(self.market.file), plan.name))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as opened:
        place = opened.enter_context(own_place())
        market = new_market(tmp_path, place, NODES, timing=QUICK, log=SHORT)
        yield opened.enter_context(WithoutLondon(market))


def node(stage: Stage) -> list[str]:
    return [sys.executable, "-m", "isocast", "node", "--config", stage.market.file, "--name", "london", "--log-json"]


@contextmanager
def london_up(stage: Stage) -> Iterator[None]:
    """London's process, until the block ends."""
    with (Path(stage.market.file).parent / "london.log").open("ab") as log:
        process = subprocess.Popen(node(stage), stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def refused(stage: Stage) -> str:
    """What London says that does not start."""
    done = subprocess.run(node(stage), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2, done.stderr
    return done.stdout + done.stderr


def flip(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 4
    path.write_bytes(raw)


def middle_of(journal: Path) -> int:
    """A byte of a block that has whole ones before and behind it."""
    (file,) = segment_files(journal)
    with Segment(file) as segment:
        blocks = [(offset, header.block_bytes) for offset, header in segment.headers()]
    assert len(blocks) >= 3, blocks
    offset, length = blocks[len(blocks) // 2]
    return offset + length // 2


def until_as_far_as(stage: Stage, name: str) -> None:
    """London's journal has what another's has at this moment."""
    last = whole_journal(stage.market.directory_of(name))[-1].sequence
    journal = stage.market.directory_of("london")

    def reached() -> bool:
        found = whole_journal(journal) if any((journal / "journal").glob("*.isoj")) else []
        return bool(found) and found[-1].sequence >= last

    stage.until(reached, f"london has sequence {last}")


def check_whole(stage: Stage) -> int:
    """London's journal is sound and begins with the first message; how much of it came from others."""
    directory = stage.market.directory_of("london")
    report = verify(directory / "journal")
    assert report.is_sound, report.faults
    assert report.first_sequence == 1
    return report.fetched_messages


@pytest.mark.long
def test_a_damaged_journal_and_a_lost_one_are_filled_again_and_a_damaged_log_is_not_trusted(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = stage.market.directory_of("london")
    journal = directory / "journal"
    stage.watches.pop("london")
    with london_up(stage):
        stage.until_whole()
        stage.publish()
        stage.until_published(80)
        # Nothing is published while it is down: what it has to fetch then is what was damaged.
        stage.quiet()
        stage.until_released()
        until_as_far_as(stage, "paris")
    assert check_whole(stage) == 0

    # A bit flips in the middle.
    (segment,) = journal.glob("*.isoj")
    flip(segment, middle_of(journal))
    assert "isocast journal repair" in refused(stage)
    assert main(["journal", "repair", str(journal)]) == 0
    assert f"set aside: {segment}.damaged" in capsys.readouterr().out
    assert main(["journal", "repair", str(journal)]) == 0
    assert "Nothing is damaged" in capsys.readouterr().out
    with london_up(stage):
        stage.until_whole()
        stage.publish()
        stage.until_published(5)
        until_as_far_as(stage, "paris")
        until_rolled(stage, "london")
    fetched = check_whole(stage)
    assert 0 < fetched < 60, "only the damaged block came from others"

    # The journal is gone, and the log does not reach back so far.
    shutil.rmtree(journal)
    with london_up(stage):
        stage.until_published(5)
        until_as_far_as(stage, "paris")
    assert check_whole(stage) > fetched

    # The log is what votes.
    newest = max((directory / "log").glob("segment-*.log"))
    flip(newest, 60)
    said = refused(stage)
    assert "what it promised is not known any more" in said
    assert "isocast ring remove" in said
    stage.quiet()
    promised = stage.until_released()
    check_journals(stage, promised)
