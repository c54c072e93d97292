"""S1 to S4: what is released."""

from tests.checks.traces import (
    END,
    MS,
    SECOND,
    SOURCE,
    broken,
    changed,
    crashed,
    in_order,
    installed,
    instant,
    judge,
    law,
    message,
    quiet_end,
    quiet_run,
    release_at,
    released,
    restarted,
    ring,
    submitted,
    without,
)

from isocast.checks.facts import Fact, Released
from isocast.terms.ids import source_id

from .traces import E1, E2

GOOD = quiet_run()
ALONE = law(agreement=False)


def test_a_quiet_run_breaks_nothing() -> None:
    assert broken(GOOD, end=quiet_end()) == []
    assert broken(GOOD, ALONE, quiet_end()) == []
