"""Requests of strangers: answered with what was sent, within a share, and off loopback only where somebody said so."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from select import select
from time import monotonic

import pytest
from tests.runtime.net.loopback import PATIENCE_S, free_port

from isocast.feeds.mold import packet_of, parse_packet, request
from isocast.runtime.edge.narrow.archive import RequestDesk, StripeArchive
from isocast.runtime.net.sockets import Endpoint
from isocast.terms.errors import TransportError

SESSION = b"2410040001"
ADDRESS = "127.0.0.1"


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[StripeArchive]:
    made = StripeArchive(tmp_path, 7)
    body = b"".join((4).to_bytes(2) + number.to_bytes(4) for number in range(1, 11))
    made.append(SESSION, 1, 10, 0, packet_of(SESSION, 1, 10, body))
    yield made
    made.close()


def answers(desk: RequestDesk, *datagrams: bytes) -> list[bytes]:
    """What comes back, once the desk has read everything."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
        client.bind((ADDRESS, 0))
        for raw in datagrams:
            client.sendto(raw, desk.where)
        before = desk.counts.requests
        while desk.counts.requests < before + len(datagrams):
            assert select([desk], [], [], PATIENCE_S)[0]
            desk.read()
        client.settimeout(0)
        found = []
        while select([client], [], [], 0.01)[0]:
            found.append(client.recv(9_000))
        return found


def test_an_answer_is_what_was_sent_from_the_number_on(archive: StripeArchive) -> None:
    with closing(RequestDesk(Endpoint(ADDRESS, 0), archive, strangers=False, rate=100)) as desk:
        (answer,) = answers(desk, request(SESSION, 4, 3))
        packet = parse_packet(answer)
        assert (packet.session, packet.sequence, packet.count) == (SESSION, 4, 3)
        assert answers(desk, request(SESSION, 11, 1), request(b"2410050001", 1, 1)) == []
        assert (desk.counts.answered, desk.counts.unknown) == (1, 2)


def test_nobody_gets_more_than_his_share(archive: StripeArchive) -> None:
    with closing(RequestDesk(Endpoint(ADDRESS, 0), archive, strangers=False, rate=5)) as desk:
        began = monotonic()
        answered = len(answers(desk, *[request(SESSION, 1, 1)] * 60))
        share = 5 * (2 + monotonic() - began)
        assert 5 <= answered <= share
        assert desk.counts.refused >= 60 - share


def test_what_is_no_request_is_counted(archive: StripeArchive) -> None:
    with closing(RequestDesk(Endpoint(ADDRESS, 0), archive, strangers=False, rate=100)) as desk:
        assert answers(desk, b"", b"x" * 19, b"x" * 500, request(SESSION, 1, 1)[:-2] + b"\0\0") == []
        assert desk.counts.refused == 4


def test_strangers_off_loopback_are_answered_only_if_somebody_said_so(archive: StripeArchive) -> None:
    """The machine's own addresses are loopback here, so the rule is asked by itself."""
    wanted = request(SESSION, 1, 1)
    for strangers, known, count in ((False, (), 0), (False, (ADDRESS,), 1), (True, (), 1)):
        with closing(RequestDesk(Endpoint(ADDRESS, 0), archive, strangers=strangers, known=known, rate=100)) as desk:
            desk._strangers = strangers  # noqa: SLF001 - as off loopback
            assert len(answers(desk, wanted)) == count


def test_others_requests_go_where_they_belong(archive: StripeArchive) -> None:
    heard: list[bytes] = []

    def other(raw: bytes, _: tuple[str, int]) -> bool:
        heard.append(raw)
        return True

    with closing(RequestDesk(Endpoint(ADDRESS, 0), archive, strangers=True, rate=100, other=other)) as desk:
        assert answers(desk, b"y" * 48) == []
        assert (heard, desk.counts.refused) == ([b"y" * 48], 0)


def test_a_port_that_is_taken_is_named(archive: StripeArchive) -> None:
    port = free_port()
    with (
        closing(RequestDesk(Endpoint(ADDRESS, port), archive, strangers=True, rate=1)),
        pytest.raises(TransportError, match=f"cannot hear requests at {ADDRESS}:{port}"),
    ):
        RequestDesk(Endpoint(ADDRESS, port), archive, strangers=True, rate=1)
