"""L5 under every fault at once: however a customer fell behind, it has everything a bounded time after faults stop.

Archives, receivers and the customer die, doors cannot be reached, shares are used up, and packets are lost, repairs
among them, in random plans; then all of that stops, and the simulator gives everybody the time that it gives any world.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from tests.simulation.worlds import EdgeRun

from isocast.hierarchy.archive import AnswerLimits, RangeAsked
from isocast.nodes.retransmit_server import RetransmitServer
from isocast.simulation.layers import archive_id, customer_id
from isocast.terms.instants import MILLISECOND, SECOND

CUSTOMER, ARCHIVE = customer_id(1), archive_id(1)
MESSAGES = 150
EVERYTHING = list(range(1, MESSAGES + 1))

instants = st.floats(0.3, 1.6).map(lambda at: round(at, 3))
spans = st.sampled_from([0.001, 0.03, 0.2, 0.7, 2.0])
victims = st.sampled_from([["archive1"], ["archive2"], ["customer1"], [2], [3], [1, 2, 3, "archive1", "customer1"]])
pairs = st.sampled_from(
    [
        [[1, 2, 3], ["customer1"]],
        [[1, 2, 3], ["archive1"]],
        [["archive1", "archive2"], ["customer1"]],
        [["customer1"], ["archive1"]],
        [[2], ["archive2"]],
    ]
)


@st.composite
def faults(draw: st.DrawFn) -> dict[str, Any]:
    """One thing that goes wrong for a while."""
    at, span = draw(instants), draw(spans)
    when = {"at": at, "until": round(at + span, 3)}
    match draw(st.sampled_from(["crash", "crash", "inside", "parted", "deaf", "pause", "loss"])):
        case "crash":
            return {"kind": "crash", "sites": draw(victims)} | when
        case "inside":
            # Perhaps between its journal and its line: what its line never carried, it never will.
            return {"kind": "crash", "at": at, "duration": span, "sites": [3], "inside": draw(st.integers(1, 4))}
        case "parted":
            return {"kind": "partition", "groups": draw(pairs)} | when
        case "deaf":
            return {"kind": "one-way", "groups": draw(pairs)} | when
        case "pause":
            return {"kind": "pause", "sites": ["customer1"]} | when
        case _:
            return {"kind": "loss", "loss": 0.3} | when


@effort(max_examples=10, deadline=None)
@given(
    seed=st.integers(0, 1 << 16),
    plan=st.lists(faults(), min_size=1, max_size=6),
    rate=st.sampled_from([200, 2_000, 20_000]),
    burst=st.sampled_from([16, 64, 8_192]),
    hold=st.sampled_from([16, 64, 32_768]),
    fetch=st.sampled_from([8, 64, 4_096]),
    greedy=st.integers(0, 20),
)
def test_a_customer_has_everything_a_bounded_time_after_faults_stop(
    seed: int, plan: list[dict[str, Any]], rate: int, burst: int, hold: int, fetch: int, greedy: int
) -> None:
    door = AnswerLimits(
        rate=2 * rate,
        burst=2 * burst,
        customer_rate=rate,
        customer_burst=burst,
        pending_max=1,
        range_max=4_096,
        quantum=4_096,
        quiet_ns=0,
        keeps_rest=False,
        newest_counts=True,
    )
    world = EdgeRun(
        *plan,
        seed=seed,
        archive={"hold_max": hold, "recent_max": 64},
        customer={"hold_max": hold, "ask_max": 16, "recent_max": 64, "fetch_max": fetch},
        limits={"line": AnswerLimits(quiet_ns=10 * MILLISECOND), "door": door},
        archives=2,
        customers=1,
        messages=MESSAGES,
        arrival_rate=100,
        burst=10,
    )
    for place in range(greedy):
        # Somebody else asks for everything, at the same door.
        asked = RangeAsked(customer_id(900 + place % 3), 1, MESSAGES)
        at = round((0.5 + place / 20) * SECOND)
        world.world.agenda.put(at, lambda asked: world.world.hosts[ARCHIVE].feed(asked, RetransmitServer), asked)
    world.run()
    for node in (CUSTOMER, ARCHIVE, archive_id(2)):
        assert world.sequences(node) == EVERYTHING


def test_a_server_that_answers_nobody_any_more_keeps_nobody_from_the_rest() -> None:
    """Its process lives, and answers nobody; and a customer comes back from far behind."""
    away = {"kind": "crash", "at": 0.5, "until": 1.6, "sites": ["customer1"]}
    deaf = {"kind": "one-way", "at": 0.5, "groups": [["customer1"], ["archive1"]]}
    world = EdgeRun(away, deaf, archives=1, customers=1, messages=MESSAGES, arrival_rate=100).run()
    assert world.sequences(CUSTOMER) == EVERYTHING
