"""A site that was away for longer than the others' logs reach back, and one that is added later (protocol §5)."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.interop.places import QUICK, Place, new_market, own_place
from tests.interop.released import JournalWatch, whole_journal
from tests.interop.rolling import SHORT, until_rolled
from tests.interop.stage import Stage
from tests.interop.verdict import check_journals

from isocast.runtime.disk.journal_verify import verify
from isocast.runtime.market.file import load_market
from isocast.runtime.market.key_files import init_keys
from isocast.runtime.operate.roster_change import RosterChange
from isocast.runtime.operate.supervisor import node_command

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["london", "paris"]},
}
LATER: dict[str, dict[str, object]] = {
    "dublin": {"role": "primary-receiver"},
    "leeds": {"role": "secondary-receiver", "parent": "london", "backup": "paris"},
    "yoke": {"role": "reformation-server"},
}

pytestmark = pytest.mark.xdist_group("rejoin")


@pytest.fixture
def place() -> Iterator[Place]:
    with own_place() as found:
        yield found


@pytest.fixture
def stage(tmp_path: Path, place: Place) -> Iterator[Stage]:
    with ExitStack() as opened:
        market = new_market(tmp_path, place, NODES, timing=QUICK, log=SHORT)
        yield opened.enter_context(Stage(market))


async def signal_to(stage: Stage, name: str, number: signal.Signals) -> None:
    assert stage.supervisor is not None
    stage.supervisor.kill(name, number)


@pytest.mark.long
def test_a_site_that_was_away_for_long_and_one_that_joins_have_the_whole_journal(stage: Stage, place: Place) -> None:
    """Nobody's log has what they lack: both take a checkpoint over and fill their journals from other archives."""
    stage.until_whole()
    stage.publish()
    stage.until_published(20)
    stage.call(signal_to(stage, "tokyo", signal.SIGSTOP))
    stage.until_published(20)
    until_rolled(stage, "london", "paris")
    stage.kill("tokyo")
    stage.until_whole()
    stage.until_published(10)
    report = verify(stage.market.directory_of("tokyo") / "journal")
    assert report.is_sound, report.faults
    assert report.fetched_messages > 0
    assert not verify(stage.market.directory_of("london") / "journal").fetched_messages
    add_to_file(stage, place)
    for name in NODES:
        stage.kill(name, number=signal.SIGTERM)
        stage.until_ready(name)
    stage.until_whole()
    until_rolled(stage, "london", "paris", "tokyo")
    assert stage.supervisor is not None
    for name in LATER:
        stage.call(stage.supervisor.start(name, node_command(Path(stage.market.file), name, "--join")))
    stage.until_ready(*LATER)
    stage.until_published(10)
    data = stage.market.data_directory
    stage.watches |= {name: JournalWatch(data / name) for name in ("dublin", "leeds")}
    stage.quiet()
    promised = stage.until_released()
    check_journals(stage, promised)
    for name in ("dublin", "leeds"):
        assert whole_journal(data / name)[0].sequence == 1
        report = verify(data / name / "journal")
        assert report.is_sound, report.faults
        assert 0 < report.fetched_messages < report.messages, "what came after the checkpoint it released itself"
    stage.until(lambda: rings(stage) == {("london", "paris", "tokyo")}, "nobody votes who was not added")


def rings(stage: Stage) -> set[tuple[str, ...]]:
    """What receivers say who is on the ring."""
    return {tuple(sorted(one.gauges.ring or ())) for one in stage.all_statuses("london", "paris", "tokyo").values()}


def add_to_file(stage: Stage, place: Place) -> None:
    """What an operator adds to the market's file and roster; every process reads the file when it starts."""
    with Path(stage.market.file).open("a", encoding="utf-8") as file:
        for number, (name, values) in enumerate(LATER.items(), 50):
            lines = [
                f"{key} = {json.dumps(value)}\n" for key, value in {"address": place.address(number), **values}.items()
            ]
            file.write(f"[nodes.{name}]\n{''.join(lines)}")
    grown = load_market(Path(stage.market.file))
    init_keys(grown)
    stage.call(RosterChange(grown).apply())
