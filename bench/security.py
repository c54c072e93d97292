"""What security costs: a ring with everything off, then one defence after another; and what each piece takes alone.

    python bench/security.py [--seconds 5] [--receivers 3] [--sources 2] [--rounds 2] [--json]

The same market of real processes runs four times in a round, with two lines:

    off          no seal, no signature: tags alone
    seals        payloads are sealed from source to release
    signatures   and tokens, ballots and votes are signed, and lines carry proofs
    sold         and lines are sealed under keys of services and periods

Sources offer as much as their windows take. `kept` is a market's share of what the first one carried in the same
round, the median of the rounds: events a second, and events for each second of a receiver's processor. Every market
must have released the same events in the same order at all receivers. Where there are fewer processors than the
six processes of a market, events a second follow the CPU time of all of them, sources included.

Alone, in this process: a proof of 80 messages against a signature in every packet, and packages that a box office makes
in a second, for subscribers whose secret is stretched already and for new ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from secrets import token_bytes
from statistics import median
from typing import Any

from markets import BYTES_PER_SECOND, CHUNK, judge, ring_market, run, serve_child
from scratch import folder

from isocast.hierarchy.proving import LineProver, ProofTerms
from isocast.security.identities import Identity, is_signed, market_of, statement
from isocast.security.keys import SecretKey
from isocast.security.packages import NONCE_BYTES, SALT_BYTES, mask_of, seal_package
from isocast.security.signing import IdentitySigner, RosterVerifier
from isocast.security.subscriptions import BASE, DAY_NS, HISTORY, REPAIR, service_key
from isocast.terms.ids import Epoch, NodeId, server_id
from isocast.wire.packets import ReleasedPacket
from isocast.wire.proofs import released_digest
from isocast.wire.signing import SignedKind

MARKETS = {
    "off": ("seal = false", "[security]\nsignatures = false"),
    "seals": ("seal = true", "[security]\nsignatures = false"),
    "signatures": ("seal = true", "[security]\nsignatures = true"),
    "sold": ("seal = true", "[security]\nsignatures = true\n[subscriptions]\nenabled = true"),
}
PROOF_MESSAGES = 80
REPEAT_S = 1.0
"""How long each piece is repeated alone."""


class OneKey:
    """A listing that knows one node."""

    def __init__(self, public: bytes) -> None:
        self._public = public

    def key_of(
        self,
        node: NodeId,  # noqa: ARG002
        serial: int,  # noqa: ARG002
        token_number: int | None = None,  # noqa: ARG002
        stripe: int | None = None,  # noqa: ARG002
        *,
        settled: bool = False,  # noqa: ARG002
    ) -> bytes:
        """Its key."""
        return self._public

    def serial_of(self, public: bytes, token_number: int | None = None) -> int:  # noqa: ARG002
        """The first."""
        return 1

    def is_revoked(self, public: bytes) -> bool:  # noqa: ARG002
        """No key is."""
        return False


def markets(given: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Every market's rate and what a receiver's processor took for an event; medians of the rounds.

    What is kept is compared within a round: a machine that others use too is another one some minutes later.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in MARKETS}
    for _ in range(given.rounds):
        for name, (top, tables) in MARKETS.items():
            text = ring_market(
                given.receivers, given.sources, mtu=given.mtu, window=4_096, lines=2, top=top, tables=tables
            )
            with folder(None, given.seconds * given.receivers * BYTES_PER_SECOND, warm=True) as place:
                market, published, cpu, _ = run(text, place, given.seconds, chunk=CHUNK, script=__file__)
                judged = judge(market, published)
            if not (judged["complete"] and judged["same_order"]):
                raise SystemExit(f"{name}: receivers released other events, or not all of them: {judged}")
            receivers = [used for node, used in cpu.items() if node.startswith("r")]
            each = sum(receivers) / len(receivers) / max(published, 1)
            found[name].append((float(str(judged["events_per_second"])), each))
    first = found["off"]
    return {
        name: {
            "events_per_second": round(median(rate for rate, _ in runs)),
            "kept_rate": round(median(rate / off for (rate, _), (off, _) in zip(runs, first, strict=True)), 3),
            "receiver_cpu_ns_per_event": round(1e9 * median(each for _, each in runs)),
            "kept_cpu": round(median(off / each for (_, each), (_, off) in zip(runs, first, strict=True)), 3),
        }
        for name, runs in found.items()
    }


def a_second(work: Callable[[], object]) -> float:
    """How often it is done in a second of this process's processor."""
    count, began = 0, time.process_time()
    while (took := time.process_time() - began) < REPEAT_S:
        work()
        count += 1
    return count / took


def proofs() -> dict[str, float]:
    """Microseconds for one message: signed and verified by proofs, and packet by packet."""
    identity, market = Identity(token_bytes(32)), market_of("bench", bytes(32))
    listing = OneKey(identity.public)
    prover = LineProver(IdentitySigner(identity, market, listing), market, token_bytes(16))
    terms = ProofTerms(market, RosterVerifier(market, listing))
    epoch, payload, salt = Epoch(1, server_id(1)), bytes(1_296), token_bytes(16)
    packets = [ReleasedPacket(0, epoch, 1, 1, n, 1, 0, n, 27, payload, b"") for n in range(PROOF_MESSAGES)]
    (proof,) = prover.prove(packets, salt)
    said = statement(SignedKind.LINE_PROOF, market, payload)
    signature = identity.sign(said)

    def check() -> None:
        terms.is_genuine(proof)
        for packet in packets:
            released_digest(market, salt, packet)

    micros = {
        "prove": 1e6 / a_second(lambda: prover.prove(packets, salt)) / PROOF_MESSAGES,
        "check": 1e6 / a_second(check) / PROOF_MESSAGES,
        "sign each": 1e6 / a_second(lambda: identity.sign(said)),
        "verify each": 1e6 / a_second(lambda: is_signed(identity.public, signature, said)),
    }
    return {f"{name}_us_per_message": round(value, 2) for name, value in micros.items()} | {
        "verify_each_to_check": round(micros["verify each"] / micros["check"], 1)
    }


def packages() -> dict[str, float]:
    """Packages a second of one processor: three services for 31 days."""
    office, region, market = Identity(token_bytes(32)), SecretKey(token_bytes(32)), market_of("bench", bytes(32))
    keys = [service_key(region, name, day, DAY_NS) for name in (BASE, REPAIR, HISTORY) for day in range(31)]
    known = mask_of(token_bytes(16), token_bytes(SALT_BYTES))

    def sell(*, new: bool) -> bytes:
        mask = mask_of(token_bytes(16), token_bytes(SALT_BYTES)) if new else known
        return seal_package(
            office,
            mask,
            market=market,
            market_name="bench",
            buyer="desk",
            keys=keys,
            number=1,
            issued=1,
            nonce=token_bytes(NONCE_BYTES),
        )

    return {
        "renewals_per_second": round(a_second(lambda: sell(new=False))),
        "new_subscribers_per_second": round(a_second(lambda: sell(new=True)), 2),
    }


def main() -> int:
    """Parse, run, print."""
    if serve_child():
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--sources", type=int, default=2)
    parser.add_argument("--receivers", type=int, default=3)
    parser.add_argument("--mtu", type=int, default=9_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    result: dict[str, dict[str, Any]] = {"markets": markets(given), "proofs": proofs(), "packages": packages()}
    if given.json:
        print(json.dumps(result))
        return 0
    header = ("", "events a second", "kept", "CPU ns an event", "kept")
    print("{:12}{:>18}{:>8}{:>18}{:>8}".format(*header))
    for name, values in result["markets"].items():
        print("{:12}{:>18,}{:>8}{:>18,}{:>8}".format(name, *values.values()))
    for part in ("proofs", "packages"):
        for name, value in result[part].items():
            print(f"{name:30}{value:>12,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
