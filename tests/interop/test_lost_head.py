"""kill -9 of the head of a secondary group: the ring re-forms, its group follows another head, and loses nothing.

Real processes: a ring of four, secondary receivers below two of them, and a third layer. Who heads whom is what the
nodes themselves say; what was released, and when, is what their journals say.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.interop.places import new_market, own_place
from tests.interop.stage import Stage
from tests.interop.stalls import Stalls
from tests.interop.verdict import check_journals

from isocast.runtime.watch.status import NodeStatus

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "sydney": {"role": "primary-receiver"},
    "leeds": {"role": "secondary-receiver", "parent": "london", "backup": "paris"},
    "york": {"role": "secondary-receiver", "parent": "london", "backup": "paris"},
    "lyon": {"role": "secondary-receiver", "parent": "paris", "backup": "tokyo"},
    "hull": {"role": "secondary-receiver", "parent": "leeds", "backup": "london"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
    "yoke": {"role": "reformation-server"},
}
BELOW = ("leeds", "york", "lyon", "hull")

pytestmark = pytest.mark.xdist_group("lost-head")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as opened:
        place = opened.enter_context(own_place())
        market = new_market(tmp_path_factory.mktemp("lost-head"), place, NODES)
        stage = opened.enter_context(Stage(market))
        stage.until_whole()
        stage.publish()
        stage.until_published(3)
        yield stage
        stage.quiet()
        check_journals(stage, stage.until_released())


def heads(stage: Stage) -> dict[str, str | None]:
    """Whom each secondary receiver says to belong to."""
    return {name: status.gauges.head for name, status in stage.statuses(*BELOW).items()}


def headed(stage: Stage, name: str) -> NodeStatus | None:
    return stage.statuses(name).get(name)


def ring_of(stage: Stage, name: str) -> tuple[str, ...] | None:
    status = headed(stage, name)
    return None if status is None else status.gauges.ring


CONFIGURED = {"leeds": "london", "york": "london", "lyon": "paris", "hull": "leeds"}


def until_heads(stage: Stage, **others: str) -> None:
    wanted = CONFIGURED | others
    stage.until(lambda: heads(stage) == wanted, f"heads are {wanted}")


def until_headed(stage: Stage, name: str, *groups: str) -> None:
    def so() -> bool:
        status = headed(stage, name)
        return status is not None and sorted(status.gauges.heads or ()) == sorted(groups)

    stage.until(so, f"{name} heads {groups}")


def until_together(stage: Stage, names: tuple[str, ...]) -> None:
    """Some receivers release twenty more messages, each at one instant for all of them."""
    since = max(len(stage.watches[name].look()) for name in names)
    last = since + 20
    stage.until(lambda: all(len(stage.watches[name].look()) >= last for name in names), "twenty more messages")
    due: dict[int, set[int]] = {}
    for name in names:
        for message in stage.watches[name].messages[since:last]:
            due.setdefault(message.sequence, set()).add(message.due)
    assert [len(instants) for instants in due.values()] == [1] * 20


def test_the_group_of_a_killed_head_follows_another_and_comes_back(stage: Stage) -> None:
    until_heads(stage)
    until_headed(stage, "paris", "paris")
    with stage.away("london"):
        stage.kill("london")
        until_heads(stage, leeds="paris", york="paris")
        until_headed(stage, "paris", "paris", "london")
        stage.until(lambda: "london" not in (ring_of(stage, "tokyo") or ("london",)), "a ring without london")
        until_together(stage, ("paris", "tokyo", "sydney", *BELOW))
    stage.until_ready("london")
    stage.until_whole()
    until_heads(stage)
    until_headed(stage, "paris", "paris")
    until_headed(stage, "london", "london")
    stage.until_published(3)
    check_journals(stage, stage.until_released())
    changes = stage.all_statuses("leeds")["leeds"].totals["head_changes_total"]
    assert changes >= 2


@pytest.mark.long
def test_the_group_of_a_killed_secondary_head_is_counted_above_it_without_a_ballot(stage: Stage) -> None:
    """A silent head is missed after G/4 = 16 tokens, a few on their way and a round of the group."""

    def adopted() -> bool:
        status = headed(stage, "london")
        return status is not None and status.gauges.adopted == ("hull",)

    until_heads(stage)
    with Stalls() as stalls:
        before = stage.all_statuses("tokyo")["tokyo"]
        with stage.away("leeds"):
            stage.kill("leeds")
            stage.until(adopted, "london counts hull")
            stage.until(lambda: heads(stage).get("hull") == "london", "hull knows it")
        stage.until_ready("leeds")
        until_heads(stage)
        stage.until(lambda: not adopted(), "hull is handed back")
        after = stage.all_statuses("tokyo")["tokyo"]
        stalled = stalls.longest_ns(before.at_ns, after.at_ns) > stage.market.timing.process_ns // 2
    assert stalled or after.gauges.epoch == before.gauges.epoch
    stage.until_published(3)
    check_journals(stage, stage.until_released())
