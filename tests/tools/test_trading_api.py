"""The reference of the trading service is what its routes say."""

from tools import trading_api


def test_the_page_is_up_to_date() -> None:
    page = trading_api.PAGE.read_text(encoding="utf-8")
    assert page == trading_api.page(), "python -m tools.trading_api writes it anew"
