"""One random stream per purpose; losses drawn as gaps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from isocast.simulation.network import LossProcess, stream


def test_a_stream_depends_on_seed_and_names_alone() -> None:
    assert stream(1, 2, "loss").random() == stream(1, 2, "loss").random()
    draws = {
        stream(1, 2, "loss").random(),
        stream(2, 2, "loss").random(),
        stream(1, 3, "loss").random(),
        stream(1, 2).random(),
    }
    assert len(draws) == 4


def test_names_do_not_run_together() -> None:
    assert stream(1, 12, 3).random() != stream(1, 1, 23).random()


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.9])
def test_losses_come_with_their_probability(probability: float) -> None:
    process = LossProcess(probability, stream(3, probability))
    lost = sum([process.lost() for _ in range(40_000)])
    assert lost / 40_000 == pytest.approx(probability, abs=4 * (probability * (1 - probability) / 40_000) ** 0.5)


def test_a_loss_says_nothing_about_the_next_packet() -> None:
    process = LossProcess(0.3, stream(5, "independent"))
    draws = [process.lost() for _ in range(40_000)]
    after = [later for earlier, later in pairwise(draws) if earlier]
    assert sum(after) / len(after) == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("probability, survivors", [(0.0, 50), (1.0, 0)])
def test_certainties(probability: float, survivors: int) -> None:
    process = LossProcess(probability, stream(1))
    assert len(process.survivors(tuple(range(50)))) == survivors


def test_a_burst_loses_what_its_packets_would_have_lost_one_by_one() -> None:
    burst, single = LossProcess(0.2, stream(9)), LossProcess(0.2, stream(9))
    for size in (1, 7, 30, 2):
        packets = tuple(range(size))
        assert burst.survivors(packets) == tuple([packet for packet in packets if not single.lost()])


def test_a_burst_that_loses_nothing_is_the_same_tuple() -> None:
    packets = (1, 2, 3)
    assert LossProcess(0.0, stream(1)).survivors(packets) is packets
