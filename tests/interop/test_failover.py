"""A customer's line dies with its site: it goes on by the other line while the ring re-forms, and takes it back."""

import os
import signal
from pathlib import Path

import pytest
from tests.interop.places import new_market, own_place
from tests.interop.stage import Stage
from tests.interop.verdict import check_journals

from isocast.runtime.watch.status import NodeStatus

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
    "archive": {"role": "retransmit-server", "lines": ["paris", "tokyo"]},
    "bank": {"role": "customer", "lines": ["london", "tokyo"], "retransmit": ["archive"]},
}

pytestmark = pytest.mark.xdist_group("kill")


def test_a_retransmit_server_that_hangs_keeps_nobody_from_what_receivers_have(tmp_path: Path) -> None:
    """Its process is there, takes connections and answers nothing; a customer was away meanwhile."""
    with own_place() as place, Stage(new_market(tmp_path, place, NODES)) as stage:
        stage.publish()
        stage.until_published(5)
        stage.until_heard()
        pid = stage.all_statuses("archive")["archive"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            stage.kill("bank")
            before, released = len(stage.edges["bank"].look()), stage.watches["paris"]
            stage.until_ready("bank")
            stage.until(lambda: len(released.look()) >= before + 60, "a second's messages, and more, are released")
            newest = len(released.look())
            stage.until(lambda: len(stage.edges["bank"].look()) >= newest, "the bank has what it missed")
        finally:
            os.kill(pid, signal.SIGCONT)
        stage.quiet()
        promised = stage.until_released()
        stage.until_heard()
        check_journals(stage, promised)


def test_the_other_line_carries_on_while_the_ring_re_forms(tmp_path: Path) -> None:
    with own_place() as place, Stage(new_market(tmp_path, place, NODES)) as stage:

        def bank() -> NodeStatus | None:
            return stage.statuses("bank").get("bank")

        def follows(line: str) -> bool:
            status = bank()
            return status is not None and status.gauges.line_followed == line

        stage.publish()
        stage.until_published(5)
        stage.until(lambda: follows("london"), "the bank follows its first line")
        with stage.away("london"):
            stage.kill("london")
            stage.until(lambda: follows("tokyo"), "the bank follows its other line")
            heard = stage.edges["bank"]
            before = len(heard.look())
            stage.until(lambda: len(heard.look()) >= before + 5, "messages come by it, from a ring of two")
        stage.until_ready("london")
        stage.until_whole()
        stage.until(lambda: follows("london"), "the first line is taken back")
        totals = stage.all_statuses("bank")["bank"].totals
        assert totals["line_switches_total"] >= 2
        assert totals["line_conflicts_total"] == 0
        stage.until(lambda: (now := bank()) is not None and now.gauges.waiting is None, "the bank waits for nothing")
        stage.quiet()
        promised = stage.until_released()
        stage.until_heard()
        check_journals(stage, promised)
        log = (tmp_path / "logs" / "bank.log").read_text(encoding="utf-8")
        told = [line for line in log.splitlines() if "line switched" in line]
        assert "tokyo" in told[0]
        assert any("london" in line for line in told[1:])
