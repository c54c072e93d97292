"""What was asked for is granted or explained. The asking happens in a child: it cannot be taken back."""

import errno
import gc
import json
import os
import subprocess
import sys

import pytest

from isocast.runtime.net import clock, kernel
from isocast.runtime.net.clock import FIFO_PRIORITY, become_punctual

ASK = """
import gc, json, os
from dataclasses import asdict
from isocast.runtime.net.clock import become_punctual
granted = become_punctual(realtime={realtime})
child = os.waitpid(os.fork() or os._exit(os.sched_getscheduler(0)), 0)[1] >> 8
print(json.dumps([asdict(granted), os.sched_getscheduler(0) & 0xF, child, gc.get_freeze_count()]))
"""


@pytest.mark.parametrize("realtime", [True, False])
def test_the_process_gets_what_the_report_says(*, realtime: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(realtime=realtime)], capture_output=True, text=True, check=True
    )
    granted, policy, child, frozen = json.loads(done.stdout)
    assert granted["realtime"] == (policy == os.SCHED_FIFO)
    assert granted["detail"]
    assert granted["timer_slack"]
    assert granted["memory_kept"]
    assert child == os.SCHED_OTHER
    assert frozen > 1_000
    if not realtime:
        assert not granted["realtime"]


def test_a_refusal_says_what_would_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    monkeypatch.setattr(kernel, "keep_freed_memory", lambda _: False)
    monkeypatch.setattr(kernel, "set_timer_slack", lambda _: False)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    granted = become_punctual(realtime=True)
    assert (granted.realtime, granted.timer_slack, granted.memory_kept) == (False, False, False)
    assert f"LimitRTPRIO={FIFO_PRIORITY}" in granted.detail


def test_a_system_without_priorities_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setscheduler")
    assert clock._ask_for_realtime() == (False, "this system has no real-time priority")  # noqa: SLF001
