"""Corrections of confirmed trades: their bytes, who signed them, and what the sequence makes of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.floor.keys import KEY, key_in_order
from tests.floor.rings import CODE

from isocast.floor.arbiter import Arbiter, PublishPrints, PublishReport, TokenReleased, Truncated
from isocast.floor.codec import encode_event, floor_topic
from isocast.floor.confirming import ConfirmationFollower, Corrected
from isocast.floor.corrections import (
    Correction,
    CorrectionFault,
    Corrections,
    Signature,
    correction_said,
    correction_topic,
    decode_correction,
    encode_correction,
    signature_fault,
)
from isocast.floor.events import Directory, Order, Phase, Trade
from isocast.floor.following import FloorFollower, FloorMessage
from isocast.floor.machine import Floor
from isocast.floor.printing import amends, prints, tape_topic
from isocast.floor.reporting import encode_report, report_topic
from isocast.floor.rights import FloorRights
from isocast.security.identities import Identity, market_of
from isocast.terms.errors import LocalProtocolError, RemoteProtocolError
from isocast.terms.ids import operator_id, source_id
from isocast.terms.market import EventKind, Side
from isocast.wire.opaque import OpaqueMessage

ANNA, BEN, EVE = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
IDS = {name: operator_id(name) for name in ("anna", "ben", "eve")}
KEYS = {IDS["anna"]: ANNA.public, IDS["ben"]: BEN.public}
MARKET = market_of("test", Identity(bytes(32)).public)
FAR = 10**18
TRADE = Trade(1, "ISO", 1_002, 60, 2 << 32 | 1, 1 << 32 | 1)
PRICE = Correction(TRADE, 1, 1_000, 60, FAR, "wrong price")
BUST = Correction(TRADE, 1, 0, 0, FAR, "wrong symbol")
OPEN = Directory("ISO", tick=2, lot=10, phase=Phase.OPEN)
SELL = Order(1 << 32 | 1, 1, "ISO", Side.SELL, 100, 1_002)
BUY = Order(2 << 32 | 1, 2, "ISO", Side.BUY, 60, 1_006)


def signed(correction: Correction, **signers: Identity) -> Correction:
    said = correction_said(MARKET, CODE, correction)
    signatures = tuple([Signature(IDS[name], key.sign(said)) for name, key in signers.items()])
    return correction._replace(signatures=signatures)


def floor() -> Floor:
    made = Floor()
    made.step(1, 1, [OPEN])
    made.step(2, 2, [SELL, BUY])
    return made


# Bytes -------------------------------------------------------------------------------------------------------------


@given(
    st.builds(
        Correction,
        st.builds(
            Trade,
            st.integers(1, 2**64 - 1),
            st.text("AZ09.", min_size=1, max_size=12),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(1, 2**63 - 1),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**64 - 1),
            st.booleans(),
            st.booleans(),
            st.booleans(),
        ),
        st.integers(1, 2**16 - 1),
        st.integers(-(2**63), 2**63 - 1),
        st.integers(1, 2**63 - 1),
        st.integers(0, 2**63 - 1),
        st.text(" az", max_size=120),
        st.sampled_from([(), (Signature(7, bytes(64)),), (Signature(7, bytes(64)), Signature(8, bytes(64)))]),
    )
)
def test_a_correction_has_one_spelling(correction: Correction) -> None:
    raw = encode_correction(correction)
    assert decode_correction(raw) == correction
    for wrong in (raw[:-1], raw + b"\0", b""):
        with pytest.raises(RemoteProtocolError):
            decode_correction(wrong)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_correction_or_refused(data: bytes) -> None:
    try:
        found = decode_correction(data)
    except RemoteProtocolError:
        return
    assert encode_correction(found) == data


@pytest.mark.parametrize(
    "wrong",
    [
        PRICE._replace(version=0),
        PRICE._replace(quantity=-1),
        BUST._replace(price=1),
        PRICE._replace(reason="x" * 121),
        PRICE._replace(reason="a\nb"),
        PRICE._replace(trade=TRADE._replace(symbol="")),
        PRICE._replace(signatures=(Signature(7, bytes(64)),) * 2),
        PRICE._replace(signatures=tuple([Signature(node, bytes(64)) for node in (7, 8, 9)])),
    ],
)
def test_what_no_correction_is_cannot_be_written(wrong: Correction) -> None:
    with pytest.raises(LocalProtocolError):
        encode_correction(wrong)


# Who signed --------------------------------------------------------------------------------------------------------


def fault(correction: Correction, code: str = CODE, market: bytes = MARKET) -> str:
    return signature_fault(correction, code, market, KEYS.get)


def test_two_operators_who_may_must_sign_all_of_it() -> None:
    both = signed(PRICE, anna=ANNA, ben=BEN)
    assert fault(both) == ""
    assert "no signatures" in fault(PRICE)
    assert "1 signature, and two" in fault(signed(PRICE, anna=ANNA))
    assert "somebody whom the market does not list" in fault(signed(PRICE, anna=ANNA, eve=EVE))
    assert "does not fit" in fault(signed(PRICE, anna=ANNA, ben=ANNA)), "the same operator twice, under two names"
    for other in (
        both._replace(price=998),
        both._replace(quantity=50),
        both._replace(version=2),
        both._replace(until=FAR + 1),
        both._replace(reason="another"),
        both._replace(trade=TRADE._replace(number=2)),
    ):
        assert "does not fit" in fault(other)
    assert "does not fit" in fault(both, code="XOTH")
    assert "does not fit" in fault(both, market=market_of("other", ANNA.public))


def test_one_key_under_two_names_is_one_operator() -> None:
    twice = {IDS["anna"]: ANNA.public, IDS["ben"]: ANNA.public}
    assert "two signatures of one operator" in signature_fault(
        signed(PRICE, anna=ANNA, ben=ANNA), CODE, MARKET, twice.get
    )


def test_a_source_carries_a_correction_only_with_both_signatures_and_only_an_operators() -> None:
    own, stranger = source_id(1), source_id(2)
    rights = FloorRights(CODE, frozenset([own]), correctors=frozenset([IDS["anna"], IDS["ben"]]))
    every = {**KEYS, IDS["eve"]: EVE.public}

    def refusal(correction: Correction, source: int = own, *, has_roster: bool = True) -> str:
        message = OpaqueMessage(correction_topic(CODE), encode_correction(correction))
        return rights.refuses_message(source, message, (MARKET, every.get) if has_roster else None)

    both = signed(PRICE, anna=ANNA, ben=BEN)
    assert refusal(both) == ""
    assert refusal(both, stranger) == f"a correction on the floor {CODE}"
    assert "without a roster" in refusal(both, has_roster=False)
    assert "1 signature" in refusal(signed(PRICE, anna=ANNA))
    assert "does not list" in refusal(signed(PRICE, anna=ANNA, eve=EVE)), "the roster lists Eve, the floor does not"
    message = OpaqueMessage(correction_topic(CODE), b"hostile")
    assert "cannot be read" in rights.refuses_message(own, message, (MARKET, every.get))


# The sequence ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "correction, confirmed, wanted",
    [
        (PRICE, 1, None),
        (BUST, 1, None),
        (PRICE._replace(quantity=50), 1, None),
        (PRICE._replace(trade=TRADE._replace(number=2)), 9, CorrectionFault.UNKNOWN),
        (PRICE._replace(trade=TRADE._replace(symbol="CAST")), 1, CorrectionFault.UNKNOWN),
        (PRICE, 0, CorrectionFault.TENTATIVE),
        (PRICE._replace(version=2), 1, CorrectionFault.VERSION),
        (PRICE._replace(until=2), 1, CorrectionFault.LATE),
        (PRICE._replace(price=1_001), 1, CorrectionFault.TERMS),
        (PRICE._replace(price=-2), 1, CorrectionFault.TERMS),
        (PRICE._replace(quantity=55), 1, CorrectionFault.TERMS),
        (PRICE._replace(quantity=70), 1, CorrectionFault.TERMS),
        (PRICE._replace(price=TRADE.price), 1, CorrectionFault.TERMS),
    ],
)
def test_what_the_sequence_makes_of_a_first_correction(
    correction: Correction, confirmed: int, wanted: CorrectionFault | None
) -> None:
    assert Corrections().fault(correction, floor(), confirmed, 3) is wanted


def test_each_version_is_corrected_once_and_a_void_trade_never_again() -> None:
    corrections, made = Corrections(), floor()

    def hear(correction: Correction) -> CorrectionFault | None:
        judged = corrections.hear(encode_correction(correction), made, 1, 3)
        assert judged is not None
        return judged.fault

    assert hear(PRICE) is None
    assert hear(PRICE) is CorrectionFault.VERSION, "a replay"
    assert hear(BUST) is CorrectionFault.VERSION, "another paper for the same version"
    assert hear(BUST._replace(version=2)) is CorrectionFault.DIFFERS, "it describes the trade as it was made"
    second = Correction(PRICE.corrected, 2, 998, 40, FAR)
    assert hear(second) is None
    assert corrections.of(TRADE) == TRADE._replace(price=998, quantity=40)
    again = Corrections.from_rows(corrections.rows())
    assert (again.standing, again.rows()) == (corrections.standing, corrections.rows())
    assert hear(Correction(second.corrected, 3, 0, 0, FAR)) is None
    assert corrections.of(TRADE).quantity == 0
    assert hear(Correction(second.corrected, 4, 998, 40, FAR)) is CorrectionFault.VOID
    assert corrections.hear(b"hostile", made, 1, 3) is None


class Ring:
    """One arbiter, and a customer, who hear the same tokens."""

    def __init__(self) -> None:
        self.arbiter = Arbiter(CODE, 1)
        self.customer = ConfirmationFollower(FloorFollower(CODE))
        self.number = 0
        self.sequence = 0
        self.judged: list[Corrected] = []

    def token(self, *messages: tuple[str, bytes], stable: int = 0) -> tuple[list[PublishReport], list[PublishPrints]]:
        self.number += 1
        heard = []
        key = key_in_order(floor_topic(CODE), messages)
        for message in messages:
            self.sequence += 1
            heard.append(FloorMessage(self.sequence, *message, key))
        event = TokenReleased(self.number, self.number, stable, 3, (1, 2, 3), tuple(heard), is_own=True)
        effects = self.arbiter.step(event)
        for one in heard:
            news = self.customer.hear(self.number, self.number, one)
            self.judged += [said for said in news if isinstance(said, Corrected)]
        reports = [effect for effect in effects if isinstance(effect, PublishReport)]
        return reports, [effect for effect in effects if isinstance(effect, PublishPrints)]

    def confirmed(self) -> None:
        """A trade that is confirmed, announced and printed, in token 7."""
        self.token((floor_topic(CODE), encode_event(OPEN)))
        reports, _ = self.token(*[(floor_topic(CODE), encode_event(one)) for one in (SELL, BUY)])
        self.token(*said(reports))
        reports, printing = self.token(stable=3)
        self.token(*said(reports), (tape_topic(CODE), prints(CODE, printing[0].instant, printing[0].trades).tobytes()))


def said(reports: list[PublishReport]) -> list[tuple[str, bytes]]:
    return [(report_topic(CODE), encode_report(part)) for report in reports for part in report.parts]


def test_arbiters_print_a_correction_once_every_member_has_it_and_customers_judge_alike() -> None:
    ring = Ring()
    ring.confirmed()
    assert (ring.arbiter.confirmed, ring.customer.confirmed) == (1, 1)
    assert ring.arbiter.unprinted == 0
    _, printing = ring.token((correction_topic(CODE), encode_correction(PRICE)), stable=5)
    assert not printing, "the token of the correction is not stable"
    assert ring.judged[-1].judged.fault is None
    restored = Arbiter(CODE, 1, ring.arbiter.snapshot())
    _, [one] = ring.token(stable=6)
    assert [correction.trade for correction in one.amended] == [TRADE]
    (event,) = amends(CODE, one.instant, one.amended)
    assert (event["kind"], event["id"], event["price"], event["quantity"]) == (EventKind.CORRECTION, 1, 1_000, 60)
    ring.token((tape_topic(CODE), event.tobytes()), stable=7)
    assert ring.arbiter.unprinted == 0
    assert restored.agreed_token <= 6
    ring.token((correction_topic(CODE), encode_correction(PRICE)))
    assert ring.judged[-1].judged.fault is CorrectionFault.VERSION
    assert ring.arbiter.unprinted == 0, "a replay is not printed"


def test_a_trade_is_corrected_only_behind_the_token_that_says_that_it_is_confirmed() -> None:
    ring = Ring()
    ring.token((floor_topic(CODE), encode_event(OPEN)))
    reports, _ = ring.token(*[(floor_topic(CODE), encode_event(one)) for one in (SELL, BUY)])
    ring.token(*said(reports))
    reports, _ = ring.token(stable=3)
    bust = correction_topic(CODE), encode_correction(BUST)
    ring.token(*said(reports), bust)
    assert ring.judged[-1].judged.fault is CorrectionFault.TENTATIVE, "the word is in the same token"
    assert ring.arbiter._now.corrections.standing == {}  # noqa: SLF001
    ring.token(bust)
    assert ring.judged[-1].judged.fault is None
    assert list(ring.arbiter._now.corrections.standing) == [1]  # noqa: SLF001
    again = ConfirmationFollower.restored(ring.customer.snapshot())
    assert again.corrections.standing == ring.customer.corrections.standing
    (event,) = amends(CODE, 6, [BUST])
    assert (event["kind"], event["id"]) == (EventKind.TRADE_CANCEL, 1)


def test_a_correction_that_is_cut_off_has_not_been() -> None:
    ring = Ring()
    ring.confirmed()
    ring.token((correction_topic(CODE), encode_correction(BUST)))
    assert ring.arbiter.unprinted == 1
    ring.arbiter.step(Truncated(5))
    assert ring.arbiter.unprinted == 0
    assert ring.arbiter._now.corrections.standing == {}  # noqa: SLF001
    event = TokenReleased(
        6, 6, 5, 3, (1, 2, 3), (FloorMessage(9, correction_topic(CODE), encode_correction(PRICE), KEY),)
    )
    ring.arbiter.step(replace(event, is_own=True))
    assert ring.arbiter.unprinted == 1
