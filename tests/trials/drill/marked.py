"""A drill's market without its processes: journals as a fault would leave them, and what was promised."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from isocast.runtime.disk.journal import Journal
from isocast.runtime.market.model import Market, NodeRole
from isocast.terms.ids import Epoch, source_id
from isocast.terms.instants import SECOND
from isocast.trials.demo.cast import DemoNetwork
from isocast.trials.demo.staging import prepare
from isocast.trials.drill.cast import DrillSettings, market_text
from isocast.trials.drill.trial import AcceptedMessage
from isocast.trials.evidence import is_follower, journal_of
from isocast.wire.journal_blocks import ReleasedBlock
from isocast.wire.packets import SHORT_DIGEST_BYTES, payload_digest

__all__ = ["NOW", "PLAIN", "Mark", "canned_market", "promise", "write_journals"]

NOW = 1_800_000_000 * SECOND
SOURCE = source_id(1, 1)


class Mark(NamedTuple):
    """A message of a journal: its sequence, its number, and what it says."""

    sequence: int
    number: int
    text: str

    @property
    def payload(self) -> bytes:
        return self.text.encode().ljust(40, b".")


PLAIN = [Mark(place, place, f"message {place}") for place in range(1, 7)]


def canned_market(folder: Path) -> Market:
    """On the disk, with keys; nothing is bound."""
    return prepare(folder, market_text(DemoNetwork(16, 17), DrillSettings()))


def promise(*marks: Mark, at: int = NOW) -> list[AcceptedMessage]:
    return [AcceptedMessage(SOURCE, mark.number, payload_digest(mark.payload), at) for mark in marks]


def write_journals(
    market: Market,
    others: Mapping[str, Sequence[Mark]] = {},
    *,
    early_ns: int = 0,
    unlabelled: Sequence[str] = (),
) -> None:
    """Everybody's is plain, but for those that are named; one token for each message."""
    for plan in [plan for plan in market.nodes if plan.role.is_receiver or is_follower(plan)]:
        labelled = plan.role is NodeRole.PRIMARY_RECEIVER and plan.name not in unlabelled
        with Journal.open(journal_of(market, plan.name), 0, plan.node) as journal:
            for place, mark in enumerate(others.get(plan.name, PLAIN), 1):
                journal.append(_block(market, place, mark, early_ns, labelled=labelled))


def _block(market: Market, place: int, mark: Mark, early_ns: int, *, labelled: bool) -> ReleasedBlock:
    timing = market.timing
    instant = NOW + place * timing.token_period_ns
    source, number = (SOURCE, mark.number) if labelled else (0, 0)
    return ReleasedBlock(
        epoch=Epoch(1, 1),
        token_number=place,
        token_count=1,
        place=0,
        first_sequence=mark.sequence,
        instant=instant,
        due=instant + timing.release_delay_ns,
        released_at=instant + timing.release_delay_ns - early_ns,
        clock_bound_ns=timing.clock_error_ns,
        shuffle_key=bytes(SHORT_DIGEST_BYTES),
        messages=[(source, number, payload_digest(mark.payload), mark.payload)],
    )
