"""What narrow stripes are signed and filtered with: the newest roster's key, the kernel's program, the period."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import time_ns

import pytest
from tests.interop.narrow import narrow_market, plan_of

from isocast.feeds.days import day_at
from isocast.feeds.mold import packet_of, session_name
from isocast.runtime.edge.narrow.stripe_keys import SenderKeys, period_instant, proof_check, stripe_guard
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market, SocketFilter, SubscriptionTable
from isocast.runtime.market.roster_making import IdentityRequest, RosterWish, renew_roster, rotate_identity
from isocast.runtime.net.filters import stripe_filter
from isocast.terms.instants import SECOND
from isocast.wire.stripe_proofs import read_stripe_proof

PLAN = plan_of(1, {1: ("A",), 2: ("B",)})
SELLS = {"subscriptions": {"enabled": True, "period": "1h"}}


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return load_market(narrow_market(tmp_path, PLAN, SELLS, seal="sold"))


def believed(market: Market, raw: bytes, now: int) -> int:
    """How many of one PROOF a customer believes that comes now."""
    check = proof_check(market, PLAN.stripes)
    assert check is not None
    check.signers = {market.node("a").node}
    check.proof(raw, now)
    return check.counts.proofs


def test_a_sender_signs_with_the_key_of_the_newest_roster(market: Market) -> None:
    now = time_ns()
    packet = packet_of(session_name(day_at(now, "UTC"), 1).encode(), 1, 1, (12).to_bytes(2) + bytes(12))
    keys = SenderKeys(market, market.node("a"))
    assert keys.prover is not None
    before = keys.prover.prove_packets([packet], now)
    assert believed(market, before, now) == 1
    fresh = rotate_identity(market, "a")
    renew_roster(market, RosterWish((IdentityRequest("a", fresh.public, fresh.exchange),)))
    assert keys.refresh(now) == ""
    after = keys.prover.prove_packets([packet], now)
    serials = [int.from_bytes(read_stripe_proof(raw).signature[:8], "little") for raw in (before, after)]
    assert serials[1] == serials[0] + 1
    assert believed(market, after, now) == 1
    assert believed(market, before, now) == 1, "it was signed under a roster that named its key"


def test_the_kernels_program_is_the_markets_choice(market: Market) -> None:
    def guard(choice: SocketFilter, *, sells: bool = True) -> object:
        table = SubscriptionTable(enabled=sells, period_ns=SECOND)
        changed = replace(market, network=replace(market.network, filter=choice), subscriptions=table)
        return stripe_guard(changed, ["127.0.0.1"])

    assert guard(SocketFilter.OFF) is None
    assert guard(SocketFilter.FRAMES) == stripe_filter((), b"ICSS")
    assert guard(SocketFilter.ADDRESSES) == stripe_filter(["127.0.0.1"], b"ICSS")
    assert guard(SocketFilter.ADDRESSES, sells=False) == stripe_filter(["127.0.0.1"])


def test_the_period_is_that_of_the_token_and_one_for_all_where_stripes_are_in_the_clear(market: Market) -> None:
    assert market.edge is not None
    short = replace(market, subscriptions=SubscriptionTable(enabled=True, period_ns=10 * SECOND))
    keys = SenderKeys(short, short.node("a"))
    due = 100 * SECOND + market.timing.release_delay_ns + market.edge.delay_ns
    assert period_instant(short, due) == 100 * SECOND
    assert [keys.period_at(due - 1), keys.period_at(due)] == [9, 10]
    clear = replace(market, subscriptions=SubscriptionTable(enabled=False, period_ns=10 * SECOND))
    keys = SenderKeys(clear, clear.node("a"))
    assert keys.sealer is None
    assert keys.period_at(due - 1) == keys.period_at(due)
