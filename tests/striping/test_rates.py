"""Bytes in any span: measured in whatever order they are told, and kept below a budget."""

from __future__ import annotations

import random

from isocast.striping.rates import RateGate, RateMeter


def exact(rows: list[tuple[int, int]], span: int) -> int:
    return max(sum(size for at, size in rows if start <= at < start + span) for start, _ in rows)


def test_the_peak_is_exact_in_whatever_order_it_is_told() -> None:
    for seed in range(20):
        drawn = random.Random(seed)
        rows = sorted((drawn.randrange(1_000), drawn.randrange(1, 100)) for _ in range(200))
        meter = RateMeter(50, slack_ns=100)
        for at, size in sorted(rows, key=lambda row: row[0] + drawn.randrange(100)):
            meter.note(at, size)
        assert meter.peak == exact(rows, 50)
        assert meter.total == sum(size for _, size in rows)


def test_the_gate_lets_through_what_fits_and_no_more() -> None:
    for seed in range(10):
        drawn = random.Random(seed)
        gate, now, sent = RateGate(100, 0), 0, []
        for _ in range(300):
            size = drawn.randrange(1, 50)
            now = max(now + drawn.randrange(20), gate.room_at(size, 120, now))
            assert gate.room_at(size, 120, now) <= now
            sent.append((now, size))
            now += drawn.randrange(3)
            gate.note(now, size)
        assert exact(sent, 100) <= 120
        assert exact(sent, 100) > 60
