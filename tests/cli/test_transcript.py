"""A transcript is for people: who, what, when, in words."""

from isocast.checks.facts import Released, Submitted, Suspected, TokenSent
from isocast.cli.transcript import fact_line
from isocast.terms.ids import Epoch, server_id, source_id
from isocast.wire.packets import Suspicion


def test_a_token() -> None:
    fact = TokenSent(12_345_000_000, 3, Epoch(2, server_id(1)), 5, 12_345_000_000, bytes(range(16)), 30)
    assert fact_line(fact) == (
        "     12.345000  token sent    site3  epoch 2.1  token number 5  instant 12.345000  digest 00010203  count 30"
    )


def test_a_source_and_a_suspicion() -> None:
    assert "source4  number 9" in fact_line(Submitted(1, source_id(4), 9, b""))
    assert fact_line(Suspected(0, 1, 7, 2, Suspicion.UNRECOVERED)).endswith("token number 7  site2  reason unrecovered")


def test_a_release_counts_its_messages_and_judges_its_clock() -> None:
    line = fact_line(Released(10**9, 2, Epoch(1, server_id(1)), 5, 0, 17, (), 10**9, clock_kept=False))
    assert "first sequence 17  0 messages  due 1.000000  not clock kept" in line
