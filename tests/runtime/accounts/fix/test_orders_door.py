"""The translation of orders and reports: complete, exact, and the same as the reference page says."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.accounts.fake_desk import FakeDesk

from isocast.orders.desk import Desk, OrderStatus, Reason, ReportKind
from isocast.runtime.accounts.fix.dictionary import APPLICATION, FAULT_TEXTS
from isocast.runtime.accounts.fix.orders_door import (
    CANCEL_REASONS,
    EXEC_TYPES,
    ORDER_REASONS,
    ORDER_STATES,
    price_text,
    units_of,
)

PAGE = Path(__file__).parents[4] / "docs/reference/fix.md"


def rows(title: str) -> dict[str, list[str]]:
    """The table under a heading of the page, by its first column."""
    part = PAGE.read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    cells = [re.split(r"\s*\|\s*", line.strip("| \n")) for line in part.splitlines() if line.startswith("|")]
    return {row[0].strip("`"): row[1:] for row in cells[2:]}


def test_the_desk_of_the_tests_is_a_desk() -> None:
    desk: Desk = FakeDesk({})
    assert desk is not None


def test_every_report_is_said_somehow() -> None:
    assert set(EXEC_TYPES) == set(ReportKind) - {ReportKind.CHANGE_REFUSED}
    assert set(ORDER_STATES) == set(OrderStatus)


def test_the_codes_that_the_rules_of_trading_fix() -> None:
    """Settlement 34: OrdRejReason 1, 6, 11, 2, 13, 99, 99, 99; cancel and replace: CxlRejReason 1."""
    floor = (Reason.UNKNOWN_SYMBOL, Reason.DUPLICATE_ID, Reason.FLAGS, Reason.WRONG_PHASE, Reason.LOT)
    assert [ORDER_REASONS[reason] for reason in floor] == [1, 6, 11, 2, 13]
    assert not ORDER_REASONS.keys() & {Reason.TICK, Reason.COLLAR, Reason.WOULD_TRADE}
    assert CANCEL_REASONS[Reason.UNKNOWN_ORDER] == 1


@given(st.integers(-(10**18), 10**18))
def test_prices_are_exact_both_ways(units: int) -> None:
    text = price_text(units)
    assert units_of(text, "Price (44)") == units
    assert Decimal(text) * 10_000 == units
    assert re.fullmatch(r"-?[0-9]+(\.[0-9]{0,3}[1-9])?", text)


@pytest.mark.parametrize("text", ["0.00001", "10.05001", "-0.00009", ".123456"])
def test_a_price_that_is_too_fine_is_refused_and_not_rounded(text: str) -> None:
    with pytest.raises(Exception, match=r"is finer than 0\.0001"):
        units_of(text, "Price (44)")


def test_the_page_has_every_report_with_its_codes() -> None:
    table = rows("Reports")
    assert {kind: table[kind.value][0] for kind in EXEC_TYPES} == {
        kind: f"`{code}`" for kind, code in EXEC_TYPES.items()
    }


def test_the_page_has_every_reason() -> None:
    table = rows("Why an order or a change is refused")
    assert set(table) == {reason.value for reason in Reason}
    for reason in Reason:
        assert table[reason.value][:2] == [str(ORDER_REASONS.get(reason, 99)), str(CANCEL_REASONS.get(reason, 99))]


def test_the_page_has_every_fault_of_a_session() -> None:
    table = rows("Why a message is refused")
    assert {int(code): cells[0] for code, cells in table.items()} == dict(FAULT_TEXTS)


def test_the_page_has_every_message() -> None:
    assert {code for code, cells in rows("Messages").items() if "in" in cells[1]} >= APPLICATION
