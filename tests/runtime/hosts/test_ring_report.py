"""What a receiver says of U: who joins a market that does not run, and whom force left out."""

from pathlib import Path

from tests.runtime.hosts.contexts import Surroundings, new_market, run

from isocast.ring.effects import UniverseForced
from isocast.runtime.hosts.receiver_reports import RingReport
from isocast.terms.ids import Epoch
from isocast.terms.instants import SECOND

NOW = 1_700_000_000 * SECOND


def report_of(surroundings: Surroundings) -> RingReport:
    async def made() -> RingReport:
        return RingReport(surroundings.context())

    return run(made)


def test_who_joins_a_market_that_does_not_run_says_so_once_and_not_at_once(tmp_path: Path) -> None:
    surroundings = Surroundings(new_market(tmp_path), "a")
    report = report_of(surroundings)
    report.tick((), NOW)
    report.tick((), NOW + 5 * SECOND)
    assert surroundings.codes == []
    report.tick((), NOW + 6 * SECOND)
    report.tick((), NOW + 60 * SECOND)
    assert surroundings.codes == ["join-waits"]


def test_who_hears_of_the_market_in_time_says_nothing(tmp_path: Path) -> None:
    surroundings = Surroundings(new_market(tmp_path), "a")
    report = report_of(surroundings)
    report.tick((), NOW)
    report.tick((1, 2, 3), NOW + 4 * SECOND)
    report.tick((1, 2, 3), NOW + 60 * SECOND)
    assert surroundings.codes == []


def test_numbers_that_force_left_out_are_remembered_over_restarts(tmp_path: Path) -> None:
    surroundings = Surroundings(new_market(tmp_path), "a")
    report = report_of(surroundings)
    assert report.left_out.sites == ()
    report.tell(UniverseForced(Epoch(4, 1), 9, (1, 2), (4, 3)))
    report.tell(UniverseForced(Epoch(6, 1), 19, (1, 5), (2,)))
    assert report_of(surroundings).left_out.sites == (2, 3, 4)
    assert surroundings.codes == ["forced", "forced"]
