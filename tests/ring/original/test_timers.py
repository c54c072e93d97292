"""Which times the protocol of §2.1 can work with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.ring.original.group import T_A, TIMERS

from isocast.terms.errors import LocalProtocolError


@pytest.mark.parametrize("name", ["token_ack", "source_resend", "nack_resend"])
def test_a_time_is_positive(name: str) -> None:
    with pytest.raises(LocalProtocolError, match=name):
        replace(TIMERS, **{f"{name}_ns": 0})


def test_an_idle_site_confirms_before_its_predecessor_repeats() -> None:
    with pytest.raises(LocalProtocolError, match="R_t"):
        replace(TIMERS, token_resend_ns=T_A)


def test_there_is_at_least_one_attempt() -> None:
    with pytest.raises(LocalProtocolError, match="k_r"):
        replace(TIMERS, retries_max=0)
