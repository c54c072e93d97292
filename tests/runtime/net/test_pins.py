"""Pins of certificates: what a visitor refuses, how it is counted, and a certificate that is renewed under way."""

import asyncio
import http.client
import ssl
from collections.abc import Awaitable, Callable
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from tests.runtime.hosts.contexts import Surroundings
from tests.runtime.net.test_tls import KEY, SECURE, answer, issued
from tests.runtime.worlds import SMALL, World, market_file, run, trades

from isocast.runtime.market.certificates import certify_service, renew_certificate
from isocast.runtime.market.file import load_market
from isocast.runtime.market.model import Market
from isocast.runtime.market.pins import CertificateFault, pinning_state
from isocast.runtime.market.roster_files import ROOT, load_roster
from isocast.runtime.market.roster_making import RosterWish, renew_roster
from isocast.runtime.market.tls_files import CA, certificate_digests, certificate_paths
from isocast.runtime.net.door import CertificateRefusedError, Door, Visit, visit
from isocast.runtime.net.tls import ServerTls, client_tls, server_tls, service_tls
from isocast.terms.errors import ConfigurationError
from isocast.wire.door import End, RangeWanted

DOORS = {"security": {"doors": "key"}, **SECURE}
"""Without identities, so that nothing but certificates decides."""


@pytest.fixture
def market(tmp_path: Path) -> Market:
    return load_market(market_file(tmp_path, settings=DOORS))


def repinned(market: Market, **wish: object) -> None:
    assert renew_roster(market, RosterWish(**wish)) is not None  # type: ignore[arg-type]


def shown(market: Market, name: str = "a") -> ServerTls:
    """Whatever is in the files of a node, whether it counts or not: a false door asks nobody."""
    return ServerTls(*certificate_paths(market, name))


def digest(market: Market, name: str = "a") -> bytes:
    return certificate_digests(certificate_paths(market, name)[0])[0]


def at_door(market: Market, tls: ServerTls | None, work: Callable[[Door], Awaitable[None]]) -> None:
    """A door at the address of node a."""

    async def play() -> None:
        here = Door({"edge/bank": KEY}.get, answer, tls=tls)
        await here.open(market.node("a").address, market.node("a").tcp_port)
        try:
            async with asyncio.timeout(90):
                await work(here)
        finally:
            await here.close()

    asyncio.run(play())


def refused(market: Market, tls: ServerTls | None = None) -> tuple[str, Surroundings]:
    """What a node is told that visits a; it counts and raises an alarm."""
    around, told = Surroundings(market, "b"), list[str]()

    async def work(_: Door) -> None:
        with pytest.raises(CertificateRefusedError) as caught:
            await around.context().visit(market.node("a"), "edge/bank", KEY)
        told.append(str(caught.value))

    at_door(market, tls or shown(market), work)
    assert around.alarms[0][:2] == ("certificate-a", told[0])
    return told[0], around


async def entered(market: Market) -> bytes:
    """Come in as whoever holds the roster; the hash of the certificate that was shown."""
    plan = market.node("a")
    tls = client_tls(market, plan.address, "a")
    guest = await visit(plan.address, plan.tcp_port, "edge/bank", KEY, tls=tls)
    await guest.send(RangeWanted(3, 4))
    assert await guest.expect(End) == End(3, 4)
    peer = _certificate(guest)
    await guest.close()
    return peer


def _certificate(guest: Visit) -> bytes:
    whole = guest._writer.get_extra_info("ssl_object").getpeercert(binary_form=True)  # noqa: SLF001
    return sha256(whole).digest()


# ---- what is refused: one sentence each, and a count


def test_the_first_roster_pins_the_authority_and_every_listed_node(market: Market) -> None:
    roster = load_roster(market)
    assert roster.authorities == (digest(market, CA),)
    pinned = {member.name: member.certificates for member in roster.members if member.certificates}
    assert pinned == {plan.origin: (digest(market, plan.origin),) for plan in market.nodes if plan.name != "bank"}
    at_door(market, server_tls(market, market.node("a")), lambda _: _ignored(entered(market)))


async def _ignored(work: Awaitable[object]) -> None:
    await work


def test_a_certificate_that_nobody_pinned_is_refused_and_counted(market: Market) -> None:
    renew_certificate(market, "a")
    told, around = refused(market)
    assert "is not one that roster 1 pins for a: if it was renewed, bring the newest roster here" in told
    assert around.counters.refused_certificates == {CertificateFault.UNPINNED: 1}


def test_a_certificate_of_an_older_roster_is_refused_and_counted(market: Market) -> None:
    old = ServerTls(*certificate_paths(market, "a"))
    renew_certificate(market, "a")
    repinned(market, pin=("a",), pin_only=True)
    old._stamp = old._seen()  # noqa: SLF001 - it goes on to show what it has
    told, around = refused(market, old)
    assert "was pinned by roster 1 and is not by roster 2: give a its newest certificate" in told
    assert around.counters.refused_certificates == {CertificateFault.OLDER: 1}


def test_another_nodes_pinned_certificate_is_refused_though_it_names_the_address(market: Market) -> None:
    certify_service(market, "b", [market.node("a").address, market.node("b").address])
    repinned(market, pin=("b",))
    told, around = refused(market, shown(market, "b"))
    assert "is that of b, not of a: give a its own, with isocast certs node a" in told
    assert around.counters.refused_certificates == {CertificateFault.ANOTHER: 1}


def test_a_listed_node_without_a_pin_is_refused_in_a_market_that_pins(market: Market) -> None:
    repinned(market, unpin=True)
    repinned(market, pin=("b",))
    told, _ = refused(market)
    assert "is not pinned: roster 3 pins none of a; isocast keys roster --pin a adds it" in told
    state = pinning_state(market)
    assert state is not None
    assert "pins no certificate of a, c, floor" in state.found


def test_a_door_of_another_markets_authority_is_refused_and_counted(market: Market, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = load_market(market_file(tmp_path / "other", settings=DOORS))
    certify_service(other, "a", [market.node("a").address])
    told, around = refused(market, shown(other))
    assert "is not of this market's authority" in told
    assert "whoever answers is not of this market" in told
    assert around.counters.refused_certificates == {CertificateFault.AUTHORITY: 1}


def test_another_markets_authority_in_the_place_of_ours_is_refused_and_counted(market: Market, tmp_path: Path) -> None:
    """Whoever could write that one file would be believed, were it not pinned."""
    (tmp_path / "other").mkdir()
    other = load_market(market_file(tmp_path / "other", settings=DOORS))
    certify_service(other, "a", [market.node("a").address])
    certificate_paths(market, CA)[0].write_bytes(certificate_paths(other, CA)[0].read_bytes())
    told, around = refused(market, shown(other))
    assert (
        "ca.crt: file: is not the authority that roster 1 pins: copy it from where isocast certs init was run" in told
    )
    assert around.counters.refused_certificates == {CertificateFault.AUTHORITY: 1}


@pytest.mark.parametrize(
    "shift, fault, sentence",
    [(-2, CertificateFault.EARLY, "set the clock"), (900, CertificateFault.EXPIRED, "has expired: make a new one")],
)
def test_a_clock_before_or_behind_a_pinned_certificates_time_is_told_and_counted(
    market: Market, shift: int, fault: CertificateFault, sentence: str
) -> None:
    with issued(timedelta(days=shift), 825):
        renew_certificate(market, "a")
    repinned(market, pin=("a",))
    told, around = refused(market)
    assert sentence in told
    assert around.counters.refused_certificates == {fault: 1}


def test_a_roster_that_is_damaged_vouches_for_nobody(market: Market) -> None:
    context = client_tls(market, market.node("a").address, "a")
    path = market.keys_directory / "roster.bin"
    path.write_bytes(path.read_bytes()[:-1])

    async def work(here: Door) -> None:
        with pytest.raises(CertificateRefusedError, match=r"cannot be judged: .*roster\.bin"):
            await visit(market.node("a").address, here.port, "edge/bank", KEY, tls=context)

    at_door(market, shown(market), work)


# ---- markets that pin nothing


def test_a_market_without_pins_goes_on_and_is_told_how_to_pin(market: Market) -> None:
    repinned(market, unpin=True)
    renew_certificate(market, "a")
    at_door(market, server_tls(market, market.node("a")), lambda _: _ignored(entered(market)))
    state = pinning_state(market)
    assert state is not None
    assert state.found == "the roster pins no certificate: whoever has the authority's key can show one"
    assert state.change.startswith("isocast keys roster --pin all")
    repinned(market, pin=("a", "b", "c", "floor", "x", "archive"))
    assert pinning_state(market) == ("roster 3 pins those of doors and pages", "")
    renew_certificate(market, "a")
    assert "is not one that roster 3 pins" in refused(market)[0]


def test_without_tls_there_is_nothing_to_pin(tmp_path: Path) -> None:
    assert pinning_state(load_market(market_file(tmp_path))) is None


# ---- this machine's own certificate


def test_a_node_does_not_start_with_a_certificate_that_is_not_pinned(market: Market) -> None:
    renew_certificate(market, "a")
    with pytest.raises(ConfigurationError, match=r"isocast keys roster --pin a pins it, where root\.key is"):
        server_tls(market, market.node("a"))
    certify_service(market, "box-office", ["127.0.0.1"])
    repinned(market, pin=("a", "box-office"))
    assert service_tls(market, "box-office", "127.0.0.1", None, None) is not None
    certify_service(market, "box-office", ["127.0.0.1"])
    with pytest.raises(ConfigurationError, match="isocast keys roster --pin box-office"):
        service_tls(market, "box-office", "127.0.0.1", None, None)


# ---- a certificate is renewed while the market runs


def test_a_certificate_is_renewed_without_a_refused_connection(market: Market) -> None:
    """Old alone, both pinned and old shown, both pinned and new shown, new alone: every visit is let in."""
    told: list[str] = []
    old = digest(market)
    seen: list[bytes] = []

    async def work(here: Door) -> None:
        async def look() -> None:
            seen.append(await entered(market))

        await look()
        renew_certificate(market, "a")
        await look()  # The new one is there, and nobody pins it: the old one goes on.
        repinned(market, pin=("a",))
        await look()
        repinned(market, pin=("a",), pin_only=True)
        await look()
        assert here.refused == 0

    at_door(market, server_tls(market, market.node("a"), told.append), work)
    new = digest(market)
    assert seen == [old, old, new, new]
    assert len(told) == 1
    assert "isocast keys roster --pin a pins it" in told[0]
    assert "until then the one before is shown" in told[0]


def test_half_a_pair_of_files_is_not_shown(market: Market) -> None:
    told: list[str] = []
    old = digest(market)
    paths = certificate_paths(market, "a")
    before = paths[0].read_bytes()

    async def work(_: Door) -> None:
        renew_certificate(market, "a")
        new = paths[0].read_bytes()
        repinned(market, pin=("a",))
        paths[0].write_bytes(before)  # The key is copied first.
        assert await entered(market) == old
        paths[0].write_bytes(new)
        assert await entered(market) == digest(market) != old

    at_door(market, server_tls(market, market.node("a"), told.append), work)
    assert told == ["the new certificate and its key are not both there: the one before is shown"]


def test_a_whole_market_goes_on_while_a_certificate_is_renewed(tmp_path: Path) -> None:
    async def play() -> None:
        async with World(market_file(tmp_path, SMALL, settings=SECURE)) as world:
            await world.start("a", "b", "c", "floor", "x", "archive")
            await world.publish("floor", trades(2))
            old = digest(world.market, "floor")
            renew_certificate(world.market, "floor")
            await world.publish("floor", trades(2, 3))
            repinned(world.market, pin=("floor",))
            await world.publish("floor", trades(1, 5))
            await world.until_journals_have(range(1, 6), "a", "archive")
            assert digest(world.market, "floor") != old

    run(play())


# ---- clients without asyncio


def test_a_socket_is_judged_as_a_stream_is(market: Market) -> None:
    async def work(here: Door) -> None:
        address = market.node("a").address

        def ask() -> None:
            tls = client_tls(market, address, "b")
            connection = http.client.HTTPSConnection(address, here.port, timeout=30, context=tls)
            with pytest.raises(ssl.SSLCertVerificationError, match="is that of a, not of b"):
                connection.request("GET", "/")
            connection.close()

        await asyncio.to_thread(ask)

    at_door(market, shown(market), work)


def test_only_the_root_pins(market: Market) -> None:
    (market.keys_directory / ROOT).unlink()
    renew_certificate(market, "a")
    with pytest.raises(ConfigurationError, match="is not here, and the roster has to change"):
        repinned(market, pin=("a",))
