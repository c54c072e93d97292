"""The state of a reader in the driver: which lanes there are, how far they reach, and what tasks read of them."""

from __future__ import annotations

from isocast.lake.source_catalog import JournalFolder, Lane, find_journals, lanes_of, of_other_markets
from isocast.lake.source_faults import Faults
from isocast.lake.source_options import END, Offsets, Options
from isocast.lake.source_plan import Piece, advance, compare_journals, cut_lane, cut_segments
from isocast.lake.source_tails import Span, Tails, insist_on_end
from isocast.lake.source_walk import Marks
from isocast.terms.errors import ConfigurationError, JournalError

__all__ = ["Lanes"]


class Lanes:
    """The lanes of a folder, looked at again whenever they are asked for: journals come and grow."""

    def __init__(self, options: Options) -> None:
        """Nothing is read yet."""
        self._options = options
        self._marks = Marks()
        self._tails = Tails(self._marks)
        self._compared: tuple[JournalFolder, ...] = ()
        self._strangers: set[JournalFolder] = set()

    def look(self, faults: Faults) -> dict[str, Lane]:
        """By the key of their offsets."""
        options = self._options
        journals = find_journals(*options.paths)
        self._compare(journals, faults)
        kept = [journal for journal in journals if journal not in self._strangers]
        return {lane.key: lane for lane in lanes_of(kept, options.receiver, options.stripes, faults)}

    def _compare(self, journals: list[JournalFolder], faults: Faults) -> None:
        """Once for each set of journals."""
        if tuple(journals) == self._compared:
            return
        self._strangers = of_other_markets(journals, faults)
        for stripe in sorted({journal.stripe for journal in journals}):
            mine = [journal for journal in journals if journal.stripe == stripe]
            self._strangers |= compare_journals(mine, self._tails, self._marks, faults)
        self._compared = tuple(journals)

    def span(self, lane: Lane, faults: Faults) -> Span:
        """What there is of a lane, within what was asked for."""
        span = self._tails.span(lane, faults)
        return Span(max(span.first, self._options.first), min(span.stop, self._options.stop))

    # ---- batch

    def pieces(self, faults: Faults) -> list[Piece]:
        """All that was asked for."""
        options, pieces = self._options, []
        lanes = self.look(faults)
        for lane in lanes.values():
            span = self.span(lane, faults)
            first = options.first or span.first
            if lane.may_miss:
                pieces += cut_segments(lane, Span(first, options.stop))
            elif first < span.stop:
                pieces += self._cut(lane, Span(first, span.stop), len(lanes))
        return pieces

    def _cut(self, lane: Lane, wanted: Span, lanes: int) -> list[Piece]:
        options = self._options
        least = -(-options.min_partitions // lanes)
        return cut_lane(lane, wanted, self._tails, self._marks, options.split_bytes, least)

    # ---- stream

    def earliest(self) -> Offsets:
        """The oldest of every lane, or what was asked for."""
        faults = self._options.faults()
        return {
            key: self._options.first or self._tails.span(lane, faults).first for key, lane in self.look(faults).items()
        }

    def latest(self) -> Offsets:
        """Behind the newest of every lane."""
        faults = self._options.faults()
        return {key: self.span(lane, faults).stop for key, lane in self.look(faults).items()}

    def starting(self) -> Offsets:
        """Where a query without a checkpoint begins."""
        chosen = self._options.starting
        if chosen == "earliest":
            return self.earliest()
        if chosen == "latest":
            return self.latest()
        earliest = self.earliest()
        strangers = sorted(set(chosen) - set(earliest))
        if strangers:
            there = ", ".join(earliest)
            rule = f"there is no stripe {strangers[0]!r}; there are {there}"
            raise ConfigurationError("format isocast", "startingOffsets", rule)
        return {**earliest, **{key: max(at, 1) for key, at in chosen.items()}}

    def reach(self, start: Offsets, target: Offsets | None, rows: int) -> Offsets:
        """How far the next batch goes; `rows` 0 is all that there is."""
        faults = self._options.faults()
        lanes = self.look(faults)
        self._insist(lanes, start)
        begin, end = dict(start), dict(start)
        for key, lane in lanes.items():
            span = self._tails.span(lane, faults)
            if key not in begin:
                begin[key] = self._options.first or span.first
            insist_on_end(lane, begin[key], span)
            stop = min(span.stop, self._options.stop, END if target is None else target.get(key, 0))
            end[key] = max(stop, begin[key])
        if not rows:
            return end
        return {**begin, **advance(lanes, begin, end, rows, self._marks)}

    def between(self, start: Offsets, end: Offsets) -> list[Piece]:
        """What a batch reads."""
        faults = self._options.faults()
        lanes = self.look(faults)
        self._insist(lanes, end)
        pieces: list[Piece] = []
        for key, stop in end.items():
            lane = lanes[key]
            span = self._tails.span(lane, faults)
            insist_on_end(lane, stop, span)
            first = start.get(key) or self._options.first or span.first
            if lane.may_miss and first < stop:
                pieces.append(Piece(lane, first, stop, self._marks.near(first)))
            elif first < stop:
                pieces += self._cut(lane, Span(first, stop), len(end))
        return pieces

    def _insist(self, lanes: dict[str, Lane], offsets: Offsets) -> None:
        missing = sorted(set(offsets) - set(lanes))
        if missing:
            rule = (
                f"the checkpoint has read stripe {', '.join(missing)}, of which there is no journal here: give the"
                " folder and the options that it was made with, or begin with a new checkpoint"
            )
            raise JournalError(", ".join(self._options.paths), rule)
