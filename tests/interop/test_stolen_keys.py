"""A thief with the core key, and then with a site's identity, against real processes.

Each attack succeeds against a market without signatures, which the product offers for experiments only, and is
defeated, counted and named with them.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock

import pytest
from tests.interop.ears import Ear, keys_of_a_receiver
from tests.interop.places import CALM, Place, new_market, own_place
from tests.interop.stage import Stage
from tests.interop.stalls import Stalls
from tests.interop.verdict import check_journals

from isocast.cli.main import main
from isocast.ring.notary import Notary
from isocast.runtime.market.key_files import load_keys
from isocast.runtime.market.model import Market
from isocast.security.signing import IdentitySigner
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.ids import NO_EPOCH, Epoch
from isocast.wire.codec import decode, encode
from isocast.wire.packets import NO_DIGEST, ControlEntry, ControlKind, NewRing, Packet, Token

NODES: dict[str, dict[str, object]] = {
    "london": {"role": "primary-receiver"},
    "paris": {"role": "primary-receiver"},
    "tokyo": {"role": "primary-receiver"},
    "nyse": {"role": "primary-source"},
    "xray": {"role": "reformation-server"},
}
RECEIVERS = ("london", "paris", "tokyo")

pytestmark = pytest.mark.xdist_group("hostile")


class Thief:
    """On the machine of a member, with all that it holds but the other members' identities."""

    def __init__(self, market: Market, victim: str) -> None:
        self.market = market
        self.plan = market.node(victim)
        self.keys = keys_of_a_receiver(market).core_ring()
        self.rings: list[NewRing] = []
        self.tokens: list[Token] = []
        self._lock = Lock()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((self.plan.address, 0))
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self.plan.address))

    def heard(self, _: str, frame: bytes) -> None:
        try:
            packet = decode(frame, self.keys, self.market.id)
        except RemoteProtocolError:
            return
        with self._lock:
            if isinstance(packet, NewRing):
                self.rings.append(packet)
            elif isinstance(packet, Token):
                self.tokens.append(packet)

    def send(self, packet: Packet) -> None:
        frame = encode(packet, self.keys, self.market.id)
        self._socket.sendto(frame, (self.market.control_group(), self.market.network.port))

    def newest_token(self, sender: int | None = None) -> Token | None:
        with self._lock:
            own = [token for token in self.tokens if sender in (None, token.sender)]
        return max(own, key=lambda token: (token.epoch, token.token_number), default=None)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def robbed(folder: Path, place: Place, victim: str, *, signatures: bool) -> Iterator[tuple[Stage, Thief]]:
    market = new_market(folder, place, NODES, timing=CALM, security={"signatures": signatures})
    with (
        closing(Thief(market, victim)) as thief,
        Ear(market, market.node(victim).address, [market.control_group()], thief.heard),
        Stage(market) as stage,
    ):
        stage.publish()
        stage.until_published(5)
        stage.until(lambda: thief.newest_token() is not None, "the thief hears tokens")
        yield stage, thief


def forged_ring(thief: Thief) -> NewRing:
    """Everything from the first token on is to be ordered anew, by one site, on the word of a server."""
    token = thief.newest_token()
    assert token is not None
    market = thief.market
    universe = tuple([market.node(name).node for name in RECEIVERS])
    ballot = Epoch(token.epoch.number + 1, market.servers[0])
    return NewRing(
        *(0, ballot, ballot.server, ballot, universe[:1], 1, 1, token.instant, NO_EPOCH, 0, NO_DIGEST, universe),
        *((bytes(16),), universe, ()),
    )


def epochs(stage: Stage) -> set[str]:
    return {str(status.gauges.epoch) for status in stage.statuses(*RECEIVERS).values()}


def refused(stage: Stage) -> int:
    """At those who hear the machine of Paris; it does not hear itself."""
    found = stage.statuses("london", "tokyo").values()
    return min([round(status.totals["refused_signatures_total"]) for status in found], default=0)


def test_without_signatures_a_stolen_core_key_forms_rings(tmp_path: Path) -> None:
    with own_place() as place, robbed(tmp_path, place, "paris", signatures=False) as (stage, thief):
        before = epochs(stage)
        thief.send(forged_ring(thief))
        stage.until(
            lambda: bool(now := epochs(stage)) and not now & before, "everybody leaves its ring for the thief's"
        )


def test_a_stolen_core_key_forms_no_ring_and_sends_no_token(tmp_path: Path) -> None:
    """Forged rings and tokens, and a token of the past with another epoch: each is refused, and counted."""
    with (
        own_place() as place,
        Stalls() as stalls,
        robbed(tmp_path, place, "paris", signatures=True) as (stage, thief),
    ):
        before = stage.all_statuses(*RECEIVERS)
        for _ in range(3):
            ring, token = forged_ring(thief), thief.newest_token()
            assert token is not None
            thief.send(ring)
            thief.send(replace(token, token_number=token.token_number + 3, instant=token.instant + 1, stable=10**6))
            period = stage.market.timing.token_period_ns
            following = replace(
                token, token_number=token.token_number + 3, instant=token.instant + 3 * period, stable=10**6
            )
            thief.send(following)
            stage.until(lambda known=token: thief.newest_token() != known, "the next token")  # type: ignore[misc]
        stage.until(lambda: refused(stage) > 0, "refused signatures are counted")
        stage.quiet()
        promised = stage.until_released()
        # Its ring had one member, and everything was to be ordered anew.
        stage.until_whole()
        check_journals(stage, promised)
        after = stage.all_statuses(*RECEIVERS)
        stalled = stalls.longest_ns(before["london"].at_ns, after["london"].at_ns) > stage.market.timing.process_ns // 2
        assert stalled or {one.gauges.epoch for one in after.values()} == {one.gauges.epoch for one in before.values()}


def test_an_owner_that_signs_two_tokens_is_proven_to_lie_and_the_ring_goes_on_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The thief has the identity of Paris too: it is Paris, for all that anybody can tell, and says two things."""
    with own_place() as place, robbed(tmp_path, place, "paris", signatures=True) as (stage, thief):
        market, plan = thief.market, thief.plan
        keys = load_keys(market, plan)
        assert keys.identity is not None
        assert keys.book is not None
        hand = Notary(IdentitySigner(keys.identity, keys.book.newest.market, keys.book))
        stage.until(lambda: thief.newest_token(plan.node) is not None, "a token of Paris")
        token = thief.newest_token(plan.node)
        assert token is not None
        said = (ControlEntry(ControlKind.MARK, 1, b"something else"),)
        twin = hand.sign(replace(token, control=said, signature=b""))
        thief.send(twin)
        others = [name for name in RECEIVERS if name != "paris"]

        def left_out() -> bool:
            found = stage.statuses(*others)
            return len(found) == len(others) and all(
                "paris" not in (status.gauges.ring or ()) for status in found.values()
            )

        stage.until(left_out, "a ring without Paris")
        stage.until(lambda: all(any((market.directory_of(name) / "evidence").glob("*.proof")) for name in others),
                    "the proof is on disk")  # fmt: skip
    assert main(["evidence", "--config", str(market.file)]) == 1
    told = capsys.readouterr().out
    assert "paris" in told
    assert "proven" in told
