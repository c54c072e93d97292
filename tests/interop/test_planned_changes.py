"""Changes that somebody planned, under load: a rolling restart of every process, and a site that comes back anew."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.interop.places import QUICK, new_market, own_place
from tests.interop.stage import Stage
from tests.interop.verdict import check_journals

from isocast.cli.main import main

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "sydney": {"role": "primary-receiver"},
    "leeds": {"role": "secondary-receiver", "parent": "london", "backup": "paris"},
    "nyse": {"role": "primary-source"},
    "floor": {"role": "secondary-source", "parent": "nyse"},
    "xray": {"role": "reformation-server"},
    "yoke": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["london", "paris"]},
    "bank": {"role": "customer", "lines": ["leeds", "tokyo"], "retransmit": ["archive"]},
}

pytestmark = pytest.mark.xdist_group("planned")


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as opened:
        place = opened.enter_context(own_place())
        market = new_market(tmp_path_factory.mktemp("planned"), place, NODES, timing=QUICK)
        yield opened.enter_context(Stage(market))


def test_a_rolling_restart_of_every_process_loses_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command that an operator types, while floors publish and a complete customer listens."""
    stage.publish()
    stage.until_published(5)
    pids = {name: status.pid for name, status in stage.all_statuses().items()}
    assert main(["ring", "restart", "--config", stage.market.file]) == 0
    said = capsys.readouterr().out
    assert f"{len(NODES)} nodes restarted" in said
    stage.until_whole()
    after = {name: status.pid for name, status in stage.all_statuses().items()}
    assert after.keys() == pids.keys()
    assert not set(pids.values()) & set(after.values()), "somebody was not restarted"
    stage.until_published(5)
    stage.quiet()
    promised = stage.until_released()
    stage.until_heard()
    check_journals(stage, promised)
