"""What the protocol's machines cost: µs per DATA, per TOKEN of k messages, and per release, without any network.

    python bench/machines.py [--json]

Ratios count more than microseconds on a shared machine: each row is also given as a multiple of the cost of
storing a tuple in a dictionary, measured in the same run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from time import process_time

from isocast.nodes.primary_receiver import PrimaryReceiver
from isocast.ring.inputs import PacketsArrived, TimerFired
from isocast.ring.ledger import Checkpoint
from isocast.ring.settings import RingSettings
from isocast.ring.storage import SiteState
from isocast.terms.ids import NO_EPOCH, Epoch, server_id, source_id
from isocast.terms.instants import SECOND, from_seconds
from isocast.terms.timing import Gate, Timing
from isocast.wire.packets import NO_DIGEST, NO_NONCE, Data, NewRing, Token, digest_of

ROUNDS = 7
SITES = (1, 2, 3)
EPOCH = Epoch(1, server_id(1))


def best(measure: Callable[[], float]) -> float:
    """The least of several rounds: what the machine does when nobody disturbs it."""
    return min(measure() for _ in range(ROUNDS))


def dictionary_step(count: int = 100_000) -> float:
    """Seconds per stored tuple: the unit of this bench."""
    began = process_time()
    store: dict[tuple[int, int], int] = {}
    for number in range(count):
        label = (1, number)
        if label not in store:
            store[label] = number
    return (process_time() - began) / count


def site(number: int) -> PrimaryReceiver:
    """A receiver on a ring of three, before its first token."""
    timing = Timing(from_seconds(0.02), process_ns=from_seconds(0.004), gate=Gate.TIMED, ring_size=len(SITES))
    settings = RingSettings(timing, window=65_536)
    state = SiteState(Checkpoint(universe=SITES))
    state.ring = NewRing(
        0, EPOCH, EPOCH.server, EPOCH, SITES, 1, 1, SECOND, NO_EPOCH, 0, NO_DIGEST, SITES, (NO_NONCE,) * 3, SITES, ()
    )
    state.promised = EPOCH
    return PrimaryReceiver(number, settings, bytes(16), state)


def messages(count: int, sources: int) -> list[Data]:
    """`count` packets, sources taking turns, their digests known as after one token."""
    made = []
    for number in range(count):
        payload = number.to_bytes(8) * 12
        packet = Data(0, EPOCH, source_id(number % sources + 1), number // sources + 1, 1, payload)
        digest_of(packet.digest)
        made.append(packet)
    return made


def data_step(burst: int, count: int = 20_000) -> float:
    """Seconds per DATA packet, arriving in bursts."""
    receiver = site(2)
    packets = messages(count, 20)
    events = [PacketsArrived(tuple(packets[at : at + burst])) for at in range(0, count, burst)]
    began = process_time()
    for event in events:
        receiver.step(event, 0)
    return (process_time() - began) / count


def token_of(owner: PrimaryReceiver) -> Token:
    """Let the owner issue its token at its instant."""
    for effect in owner.step(TimerFired(), SECOND):
        packet = getattr(effect, "packet", None)
        if isinstance(packet, Token):
            return packet
    entry = owner.receiver.ledger.entries[1]
    return entry.token


def token_steps(count: int) -> tuple[float, float, float]:
    """Seconds to issue, to accept and to release a token of `count` messages."""
    packets = PacketsArrived(tuple(messages(count, 20)))
    owner, other = site(1), site(2)
    owner.step(packets, 0)
    other.step(packets, 0)
    began = process_time()
    token = token_of(owner)
    issued = process_time()
    other.step(PacketsArrived((token,)), SECOND)
    accepted = process_time()
    released = other.step(TimerFired(), SECOND + owner.receiver.timing.release_delay_ns)
    ended = process_time()
    assert sum(len(effect.messages) for effect in released if hasattr(effect, "messages")) == count  # noqa: S101
    return issued - began, accepted - issued, ended - accepted


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args()
    unit = best(dictionary_step)
    rows: list[tuple[str, float]] = [
        ("DATA, one by one", best(lambda: data_step(1))),
        ("DATA, in bursts of 32", best(lambda: data_step(32))),
    ]
    for count in (30, 300, 3_000):
        steps = [token_steps(count) for _ in range(ROUNDS)]
        for place, name in enumerate(("issue", "accept", "release")):
            rows.append((f"{name} a TOKEN of {count}", min(step[place] for step in steps)))
    if chosen.json:
        print(json.dumps({name: {"us": seconds * 1e6, "ratio": seconds / unit} for name, seconds in rows}))
        return
    print(f"one dictionary step: {unit * 1e6:.3f} µs")
    for name, seconds in rows:
        print(f"{name:<26}{seconds * 1e6:>10.2f} µs {seconds / unit:>10.1f} ×")


if __name__ == "__main__":
    main()
