"""The initiator's side of a session: two machines that talk to each other, and one connection over TLS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from tests.runtime.accounts.fix.transcripts import Stage
from tests.runtime.worlds import eventually, market_file

from isocast.runtime.accounts.fix.connection import Outgoing
from isocast.runtime.accounts.fix.dictionary import fault_of
from isocast.runtime.accounts.fix.initiator import Acceptor, FixInitiator
from isocast.runtime.accounts.fix.messages import Field, Message, decode, encode, utc_text
from isocast.runtime.accounts.fix.server import FixServer
from isocast.runtime.accounts.fix.session import LOGON_NS, Close, Deliver, Effect, Forget, Keep, Resend, Send, Session
from isocast.runtime.accounts.fix.store import SessionStore
from isocast.runtime.market.certificates import init_certificates
from isocast.runtime.market.file import load_market
from isocast.runtime.net.tls import client_tls, server_tls
from isocast.terms.errors import ConfigurationError, TransportError

NOW = 1_700_000_000_000_000_000
ORDER: list[Field] = [(11, "7"), (38, "1"), (40, "2"), (44, "10"), (54, "1"), (55, "ISO"), (60, utc_text(NOW))]
REPORTS = frozenset("89")


def frames(effects: Sequence[Effect]) -> list[bytes]:
    return [effect.frame for effect in effects if isinstance(effect, Send)]


def kinds(effects: Sequence[Effect]) -> list[str]:
    return [message.kind for frame in frames(effects) if (message := decode(frame)) is not None]


def delivered(effects: Sequence[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Deliver)]


def closing(effects: Sequence[Effect]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, Close)]


class Pair:
    """We, and an acceptor; what either says the other hears."""

    def __init__(
        self, ours: tuple[int, int] = (1, 1), theirs: tuple[int, int] = (1, 1), *, resets: bool = False
    ) -> None:
        self.we = Session("ISOCAST", "XLON", *ours, takes=REPORTS)
        self.they = Session("XLON", "ISOCAST", *theirs)
        self.begun = self.we.begin(10, [(553, "anna"), (554, "secret")], now=NOW, resets=resets)
        [logon] = [decode(frame) for frame in frames(self.begun)]
        assert logon is not None
        assert fault_of(logon) is None
        self.logon = logon
        self.answered = self.they.log_on(logon, NOW)

    def hear(self, effects: Sequence[Effect]) -> list[Effect]:
        return [effect for frame in frames(effects) for effect in self.we.receive(frame, NOW)]


def test_a_logon_and_its_answer() -> None:
    pair = Pair()
    assert pair.logon.first[554] == "secret"
    assert not [effect for effect in pair.begun if isinstance(effect, Keep)], "a password is on no disk"
    assert not pair.we.is_logged_on
    assert pair.hear(pair.answered) == []
    assert pair.we.is_logged_on
    assert (pair.we.next_in, pair.we.next_out, pair.they.next_in, pair.they.next_out) == (2, 2, 2, 2)
    sent = pair.we.send("D", ORDER, NOW)
    [order] = [message for frame in frames(sent) for message in delivered(pair.they.receive(frame, NOW))]
    assert order.first[11] == "7"
    [report] = delivered(pair.hear(pair.they.send("8", [(11, "7"), (37, "1")], NOW)))
    assert report.kind == "8"


def test_what_only_a_gateway_takes_an_initiator_does_not() -> None:
    pair = Pair()
    pair.hear(pair.answered)
    assert kinds(pair.hear(pair.they.send("D", ORDER, NOW))) == ["j"]


def test_no_answer_to_our_logon_ends_the_connection() -> None:
    pair = Pair()
    assert pair.we.next_deadline() == NOW + LOGON_NS
    assert pair.we.tick(NOW + LOGON_NS - 1) == ()
    assert closing(pair.we.tick(NOW + LOGON_NS)) == ["no answer to our Logon"]


def test_whoever_says_something_else_first_is_left() -> None:
    pair = Pair()
    header = [(34, "1"), (49, "XLON"), (52, utc_text(NOW)), (56, "ISOCAST")]
    assert closing(pair.we.receive(encode("0", header, []), NOW)) == ["the first message is no Logon"]


def test_a_refused_logon_says_why() -> None:
    pair = Pair()
    header = [(34, "1"), (49, "XLON"), (52, utc_text(NOW)), (56, "ISOCAST")]
    assert closing(pair.we.receive(encode("5", header, [(58, "closed today")]), NOW)) == ["Logout: closed today"]


def test_an_acceptor_that_lost_its_numbers_is_left_with_a_reason() -> None:
    pair = Pair(ours=(5, 5), theirs=(5, 1))
    told = pair.hear(pair.answered)
    assert closing(told) == ["MsgSeqNum too low, expecting 5 but received 1"]
    assert not pair.we.is_open


def test_what_we_missed_is_asked_for_and_what_they_missed_is_resent() -> None:
    pair = Pair(ours=(3, 9), theirs=(4, 6))
    assert kinds(pair.answered) == ["A", "2"], "they lack our messages from 4 on"
    told = pair.hear(pair.answered)
    assert "2" in kinds(told), "we lack theirs from 3 on"
    [resend] = [effect for effect in told if isinstance(effect, Resend)]
    assert (resend.first, resend.last) == (4, 10), "to the newest: our Logon, and what we asked for"


def test_a_reset_begins_both_sides_at_one() -> None:
    pair = Pair(ours=(30, 40), theirs=(7, 8), resets=True)
    assert pair.logon.first[141] == "Y"
    assert [effect for effect in pair.begun if isinstance(effect, Forget)]
    assert pair.hear(pair.answered) == []
    assert (pair.we.next_in, pair.we.next_out, pair.they.next_in, pair.they.next_out) == (2, 2, 2, 2)


def test_what_may_have_been_sent_before_says_so_also_when_it_is_resent() -> None:
    pair = Pair()
    pair.hear(pair.answered)
    sent = pair.we.send("D", ORDER, NOW, 5, is_again=True)
    [kept] = [effect for effect in sent if isinstance(effect, Keep)]
    assert kept.report == 5
    for frame in (*frames(sent), *frames(pair.we.resent(2, [(kept.number, kept.frame)], NOW)[1])):
        message = decode(frame)
        assert message is not None
        assert fault_of(message) is None
        assert message.first[97] == "Y"


# A connection -------------------------------------------------------------------------------------------------------


class Quiet:
    """Takes reports, and sends one order."""

    account = 0

    def __init__(self) -> None:
        self.heard: list[Message] = []

    async def handle(self, message: Message) -> Sequence[Outgoing]:
        self.heard.append(message)
        return []

    async def reports(self, after: int) -> AsyncGenerator[Outgoing, None]:
        if after < 1:
            yield Outgoing("D", [(11, "7"), (38, "1"), (40, "2"), (44, "10"), (54, "1"), (55, "XISO"), *ORDER[-1:]], 1)
        await asyncio.Event().wait()

    async def leave(self) -> None:
        pass


def test_a_trader_of_our_own_over_tls(tmp_path: Path) -> None:
    """Our initiator at our own gateway's door."""
    market = load_market(market_file(tmp_path, settings={"network": {"tls": "on"}}))
    init_certificates(market)
    plan = next(iter(market.nodes))
    tls, trust = server_tls(market, plan), client_tls(market, plan.address)
    assert tls is not None

    async def story() -> None:
        stage = Stage(tmp_path)
        await stage.start()
        server = FixServer("ISOCAST", stage.application, stage.store, tls=tls.context, times=stage.times)
        await server.start(plan.address, 0)
        store = SessionStore(tmp_path / "ours.db", is_new=True)
        visitor = Quiet()
        logon = [(553, "anna"), (554, "secret")]
        acceptor = Acceptor(plan.address, server.port, "TRADER", "ISOCAST", trust, credentials=logon)
        initiator = FixInitiator(acceptor, visitor, store, REPORTS, times=stage.times)
        connected = asyncio.create_task(initiator.connect())
        await eventually(lambda: visitor.heard)
        assert initiator.is_logged_on
        assert visitor.heard[0].first[11] == "7"
        assert "secret" not in repr(acceptor)
        await initiator.log_out("enough")
        assert await connected == "Logout"
        await server.cut()
        with pytest.raises(TransportError, match="ISOCAST at"):
            await initiator.connect()
        await store.close()
        await stage.end()

    asyncio.run(story())


def test_away_from_this_machine_only_with_tls(tmp_path: Path) -> None:
    store = SessionStore(tmp_path / "ours.db", is_new=True)
    with pytest.raises(ConfigurationError, match="TLS is needed"):
        FixInitiator(Acceptor("192.0.2.7", 1, "A", "B"), Quiet(), store, REPORTS)
    asyncio.run(store.close())
