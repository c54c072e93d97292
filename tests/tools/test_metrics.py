"""The reference of the metrics is what their table says."""

from tools import metrics


def test_the_page_is_up_to_date() -> None:
    page = metrics.PAGE.read_text(encoding="utf-8")
    assert page == metrics.page(), "python -m tools.metrics writes it anew"
