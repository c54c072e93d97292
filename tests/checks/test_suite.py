"""The suite as a whole: what it keeps, what it says, and that it stays small."""

from tests.checks.traces import (
    E1,
    MS,
    SITES,
    digest,
    installed,
    instant,
    judge,
    law,
    message,
    owner,
    quiet_end,
    quiet_run,
    released,
    submitted,
)

from isocast.checks import view
from isocast.checks.agreement import _PRUNE_EVERY, Agreement
from isocast.checks.facts import (
    PER_PROPERTY_MAX,
    VIOLATIONS_MAX,
    Collected,
    Completed,
    Fact,
    Promised,
    Released,
    Report,
    TokenSent,
)
from isocast.checks.properties import PROPERTIES
from isocast.checks.suite import Suite
from isocast.checks.view import View
from isocast.terms.instants import SECOND
from isocast.wire.packets import Data


def test_violations_are_few_enough_to_read() -> None:
    report, names = Report(), list(PROPERTIES)
    for number in range(1_000):
        report(names[number % len(names)], number, "text")
    assert len(report.violations) == VIOLATIONS_MAX
    report = Report()
    for number in range(1_000):
        report("S1", number, "text")
    assert len(report.violations) == PER_PROPERTY_MAX


def test_a_violation_reads_as_a_sentence() -> None:
    suite = judge([Collected(2 * SECOND, 1, 5)])
    assert str(suite.violations[0]) == "S10 at 2.000000 s: site1 collected token 5 outside any ring"


def test_time_alone_brings_duties_to_light() -> None:
    suite = Suite(law())
    for site in SITES:
        suite.observe(installed(site))
    suite.tick(instant(1))
    assert suite.violations == []
    suite.tick(instant(1) + 100 * MS)
    assert [violation.property for violation in suite.violations] == ["F3"]


def test_the_end_judges_what_is_due_by_then() -> None:
    suite = judge([installed(site) for site in SITES])
    suite.finish(quiet_end(instant(1) + 100 * MS)._replace(correct=()))
    assert [violation.property for violation in suite.violations] == ["F3"]


def test_the_same_trace_gives_the_same_verdict() -> None:
    facts = [fact for place, fact in enumerate(quiet_run()) if place % 7]
    assert judge(facts).violations == judge(facts).violations
    assert judge(facts).violations


def long_run(tokens: int, silent: int = 0) -> list[Fact]:
    """A long quiet run; from some token on, one site releases nothing."""
    facts: list[Fact] = [installed(site) for site in SITES]
    for number in range(1, tokens + 1):
        at = instant(number)
        one = message(number)
        facts.append(submitted(number, at))
        facts.extend([Completed(at, site, E1, number, digest(E1, number), 1, 1) for site in SITES])
        facts.append(TokenSent(at, owner(number), E1, number, at, digest(E1, number), 1))
        facts.extend([release(site, number, at, (one,)) for site in SITES if site != silent])
    return facts


def release(site: int, number: int, at: int, messages: tuple[Data, ...]) -> Released:
    """One message per token, told at once: timing is not what these runs are about."""
    early = released(site, number, messages, first_sequence=number, at=at)
    return early._replace(clock_kept=False)


def fed(facts: list[Fact]) -> Agreement:
    """S1 to S4 alone, at the end of a run."""
    report = Report()
    agreement = Agreement(law(), View(law()), report)
    for fact in facts:
        if isinstance(fact, Released):
            agreement.on_released(fact)
        elif type(fact).__name__ == "Submitted":
            agreement.on_submitted(fact)  # type: ignore[arg-type]
    assert report.violations == []
    return agreement


def test_what_all_sites_have_released_is_forgotten() -> None:
    agreement = fed(long_run(1_000))
    assert len(agreement._chunks) == len(agreement._firsts) <= 2 * _PRUNE_EVERY  # noqa: SLF001
    assert sum(map(len, agreement._submissions.values())) == 0  # noqa: SLF001


def test_a_site_that_lags_is_remembered_within_limits() -> None:
    agreement = fed(long_run(view.WINDOW_TOKENS + 500, silent=3))
    assert len(agreement._chunks) <= view.WINDOW_TOKENS + 2 * _PRUNE_EVERY  # noqa: SLF001
    assert "everything from sequence 1 on" in (agreement.missing(3, 1 << 62) or "")
    assert agreement.missing(2, 1 << 62) is None


def test_memory_stays_bounded_over_many_tokens() -> None:
    suite = judge(long_run(2 * view.WINDOW_TOKENS + 500))
    assert suite.violations == []
    tokens = suite._handlers[TokenSent][0].__self__  # type: ignore[attr-defined]  # noqa: SLF001
    assert len(tokens._contents) <= 2 * view.WINDOW_TOKENS  # noqa: SLF001
    assert len(tokens._instants) <= 2 * view.WINDOW_TOKENS  # noqa: SLF001
    assert len(suite._view.site(1).digests) < view.WINDOW_TOKENS  # noqa: SLF001
    assert len(suite._punctuality._watches) < 5  # noqa: SLF001


def test_a_stranger_may_begin_anywhere() -> None:
    """A site that joins later starts from a snapshot; the sites of the law start at 1."""
    facts = [*quiet_run(), Promised(instant(7) + 100 * MS, 9, E1), released(9, 6)]
    assert [violation.property for violation in judge(facts).violations] == []
