"""One direction between two sites."""

from isocast.simulation.network import stream
from isocast.trials.lab.world import CUT, LOST, Link, LinkImpairment

MS = 1_000_000


def link(delay_ns: int = 0, jitter_ns: int = 0, loss: float = 0.0, seed: int = 1) -> Link:
    return Link(LinkImpairment(delay_ns, jitter_ns, loss), stream(seed, "a", "b"))


def test_a_frame_leaves_after_the_delay() -> None:
    assert link(delay_ns=35 * MS).take(now=1000) == 35 * MS + 1000


def test_jitter_only_ever_adds_and_has_its_mean() -> None:
    # A second between frames, so that none waits for the one before.
    jittery = link(delay_ns=10 * MS, jitter_ns=2 * MS)
    extra = [jittery.take(now) - now - 10 * MS for now in range(0, 5000 * 10**9, 10**9)]
    assert min(extra) >= 0
    assert 1.9 * MS < sum(extra) / len(extra) < 2.1 * MS


def test_frames_keep_their_order_whatever_the_jitter() -> None:
    jittery = link(delay_ns=10 * MS, jitter_ns=5 * MS)
    leaves = [jittery.take(now) for now in range(0, 1000 * MS, MS // 10)]
    assert leaves == sorted(leaves)
    assert len(set(leaves)) < len(leaves), "some frame waited for the one before it"


def test_order_is_kept_when_the_delay_shrinks() -> None:
    shrinking = link(delay_ns=50 * MS)
    first = shrinking.take(now=0)
    shrinking.impairment = LinkImpairment(delay_ns=1 * MS)
    assert shrinking.take(now=1) == first
    assert shrinking.take(now=60 * MS) == 61 * MS


def test_about_the_share_that_is_said_gets_lost() -> None:
    lossy = link(loss=0.02)
    lost = [lossy.take(0) for _ in range(50_000)].count(LOST)
    assert 900 < lost < 1100
    assert (lossy.frames_lost, lossy.frames_taken) == (lost, 50_000 - lost)


def test_all_or_nothing() -> None:
    assert [link(loss=1.0).take(0) for _ in range(10)] == [LOST] * 10
    assert LOST not in [link(loss=0.0).take(0) for _ in range(1000)]


def test_nothing_enters_a_cut_link_and_healing_mends_it() -> None:
    broken = link(delay_ns=MS)
    broken.cut = True
    assert broken.take(0) == CUT
    broken.cut = False
    assert broken.take(0) == MS
    assert (broken.frames_cut, broken.frames_taken) == (1, 1)


def test_the_draws_depend_on_seed_and_names_alone() -> None:
    assert [link(jitter_ns=MS).take(0) for _ in range(3)] == [link(jitter_ns=MS).take(0) for _ in range(3)]
    assert link(jitter_ns=MS, seed=2).take(0) != link(jitter_ns=MS).take(0)
    assert stream(1, "a", "b").random() != stream(1, "b", "a").random()
