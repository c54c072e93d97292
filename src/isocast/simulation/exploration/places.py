"""The states of one node, numbered, and what every event makes of each of them.

A state (a place) is a body and the letters that the node ever sent. The body is all the rest: machine, disk, clock and
what the observer remembers. A machine does not know what became of its letters, so an event is run once for each body,
and holds for all places that share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from isocast.reformation.server import ReformationServer
from isocast.simulation.exploration.driver import Driver, Event
from isocast.simulation.exploration.freezing import Freezer
from isocast.simulation.exploration.mail import numbers_in
from isocast.simulation.exploration.node import Local
from isocast.simulation.exploration.properties import Properties
from isocast.terms.ids import NodeId

__all__ = ["Change", "Places"]

Change: TypeAlias = tuple[int, int, int | None]
"""(event, next place, for a restart its kind: 0 plain, 1 with a shorter log, 2 without its disk)."""

_OTHERS = (Event.BALLOT, Event.TIME, Event.RESTART, Event.SHORTER, Event.BLANK)


class Places:
    """Everything known about the states of one node."""

    def __init__(
        self, driver: Driver, freezer: Freezer, properties: Properties, limits: Sequence[int], local: Local
    ) -> None:
        """`limits`: restarts of each kind that the bounds allow; the node's first state is place 0."""
        self._driver = driver
        self._freezer = freezer
        self._properties = properties
        self._limits = limits
        self.steps = 0
        """Steps of the real machine."""
        self.states: list[Local] = []
        self.sent: list[int] = []
        self.memories: list[int] = []
        self.spent: list[tuple[int, int, int]] = []
        """Restarts of each kind."""
        self.idle: list[int] = []
        """Letters that are known to change nothing."""
        self._arrivals: list[dict[int, int]] = []
        """Of other letters, which place they lead to."""
        self._tried: list[int] = []
        self._others: list[list[Change] | None] = []
        self._decisions: list[dict[int, list[tuple[int, int]]]] = []
        self._bodies: list[Local] = []
        """With nothing sent."""
        self._body_numbers: dict[bytes, int] = {}
        self._body_of: list[int] = []
        self._place_numbers: dict[tuple[int, int], int] = {}
        self._changes: dict[tuple[int, int], tuple[int, int, bool] | None] = {}
        """Of a body and an event: the body after it, what was sent, and whether anything durable came of it."""
        self._copy: tuple[int, Local | None] = (-1, None)
        """A body, and a copy of it that nobody has changed yet."""
        self._place(self._body(local), local.sent)

    def __len__(self) -> int:
        """Places that occurred."""
        return len(self.states)

    # What happens -------------------------------------------------------------------------------

    def arrivals(self, place: int, letters: int) -> list[tuple[int, int]]:
        """(event, place after it) for each of these letters that changes anything."""
        unknown = letters & ~self._tried[place]
        if unknown:
            self._try(place, unknown)
        found = self._arrivals[place]
        return [(Event.LETTER + number, found[number]) for number in numbers_in(letters & ~self.idle[place])]

    def receipted(self, place: int, letters: int) -> int:
        """The place after all of these letters arrived, the first of them that is of use each time."""
        while True:
            unknown = letters & ~self._tried[place]
            if unknown:
                self._try(place, unknown)
            useful = letters & ~self.idle[place]
            if not useful:
                return place
            place = self._arrivals[place][(useful & -useful).bit_length() - 1]

    def others(self, place: int) -> list[Change]:
        """What may happen without any letter."""
        found = self._others[place]
        if found is None:
            found = self._others[place] = []
            for event in _OTHERS:
                kind = event - Event.RESTART if event >= Event.RESTART else None
                if kind is not None and self.spent[place][kind] >= self._limits[kind]:
                    continue
                after = self.after(place, event)
                if after is not None and after != place:
                    found.append((event, after, kind))
                    if event == Event.TIME:
                        found += self._later(place, after)
        return found

    def _later(self, place: int, after: int) -> list[Change]:
        """Where time leads that does not stop at a vote: whether the vote is new must not matter to a reduction."""
        found: list[Change] = []
        while True:
            fresh = self.sent[after] & ~self.sent[place]
            if not fresh or fresh & ~self._driver.mail.votes:
                return found
            place = self._place(self._body_of[place], self.sent[place] | fresh)
            later = self._after_time(place)
            if later is None or later == place:
                return found
            found.append((Event.LATER, later, None))
            after = later

    def closed(self, place: int) -> bool:
        """Whether a server will never count a vote again: it holds no ballot, and by itself begins none."""
        machine = self.states[place].machine
        if not isinstance(machine, ReformationServer) or any(kind is None for _, _, kind in self.others(place)):
            return False
        return getattr(machine, "_ballot") is None  # noqa: B009 (a field of another room)

    def heeds(self, place: int, letters: int) -> bool:
        """Whether one of these letters changes a closed server, or anything else makes it count votes again.

        That it answers with a ring which it had sent to everybody changes nothing.
        """
        changed = [after for _, after in self.arrivals(place, letters) if self._body_of[after] != self._body_of[place]]
        return bool(changed) or not all(self.closed(after) for _, after, _ in self.others(place))

    def ballot(self, place: int) -> int:
        """The place after a ballot that may begin here, or the same place."""
        events = self.others(place)
        return events[0][1] if events and events[0][0] == Event.BALLOT else place

    def decisions(self, place: int, votes: int) -> list[tuple[int, int]]:
        """What a server may decide, from any of the votes that are under way to it."""
        known = self._decisions[place]
        found = known.get(votes)
        if found is None:
            found = known[votes] = []
            for some in self._ballots(votes):
                event = Event.VOTES + self._driver.mail.choice(some)
                after = self.after(place, event)
                if after is not None and after != place:
                    found.append((event, after))
        return found

    def after(self, place: int, event: int) -> int | None:
        """The place after an event; None if it cannot happen."""
        if event == Event.TIME:
            return self._after_time(place)
        if event >= Event.VOTES or event == Event.BALLOT:
            return self._run(place, event)
        change = self._change(self._body_of[place], event)
        return None if change is None else self._place(change[0], self.sent[place] | change[1])

    # Single steps -------------------------------------------------------------------------------

    def _ballots(self, votes: int) -> list[int]:
        """Sets of these votes with at most one from each site."""
        bounds, letters = self._driver.bounds, self._driver.mail.letters
        sets = [(0, 0)]
        by_sender: dict[NodeId, list[int]] = {}
        for number in numbers_in(votes):
            by_sender.setdefault(letters[number].packet.sender, []).append(1 << number)
        for cast in by_sender.values():
            sets += [(chosen | vote, size + 1) for chosen, size in sets for vote in cast]
        most = bounds.sites if bounds.more_votes else bounds.sites // 2 + 1
        return [chosen for chosen, size in sets if 0 < size <= most]

    def _try(self, place: int, letters: int) -> None:
        """Let letters arrive whose effect in this place is unknown."""
        self._tried[place] |= letters
        for number in numbers_in(letters):
            after = self.after(place, Event.LETTER + number)
            if after is None or after == place:
                self.idle[place] |= 1 << number
            else:
                self._arrivals[place][number] = after

    def _after_time(self, place: int) -> int | None:
        """Time goes on until something is durable or new: whether a letter is new depends on what was sent."""
        change = self._change(self._body_of[place], Event.TIME)
        if change is None:
            return None
        body, sent, durable = change
        if durable or sent & ~self.sent[place]:
            return self._place(body, self.sent[place] | sent)
        return self._run(place, Event.TIME)

    def but(self, place: int, letters: int) -> tuple[int, int]:
        """One value for all places that differ in nothing but these letters that they sent."""
        return self._body_of[place], self.sent[place] & ~letters

    def _run(self, place: int, event: int) -> int | None:
        self.steps += 1
        local = self._driver.after(self.states[place], event)
        return None if local is None else self._place(self._body(local), local.sent)

    def _change(self, body: int, event: int) -> tuple[int, int, bool] | None:
        key = (body, event)
        try:
            return self._changes[key]
        except KeyError:
            self.steps += 1
            at_hand, copy = self._copy
            local = self._driver.after(self._bodies[body], event, copy if at_hand == body else None)
            change = None if local is None else (self._body(local), local.sent, self._driver.durable)
            self._changes[key] = change
            self._copy = (-1, None)
            if local is not None and change is not None and change[0] == body:
                # Most letters change nothing: the copy that was made for this one will do for the next.
                local.sent = 0
                self._copy = (body, local)
            return change

    def _body(self, local: Local) -> int:
        digest = local.digest(self._freezer)
        known = self._body_numbers.get(digest)
        if known is None:
            known = self._body_numbers[digest] = len(self._bodies)
            self._bodies.append(Local(local.node, local.machine, local.disk, local.now, 0, local.memory))
        return known

    def _place(self, body: int, sent: int) -> int:
        known = self._place_numbers.get((body, sent))
        if known is not None:
            return known
        number = self._place_numbers[body, sent] = len(self.states)
        local = self._bodies[body]
        memory = local.memory
        self.states.append(Local(local.node, local.machine, local.disk, local.now, sent, memory))
        self.sent.append(sent)
        self.memories.append(self._properties.number(memory))
        self.spent.append((memory.restarts, memory.shorter_logs, memory.lost_disks))
        self.idle.append(0)
        self._arrivals.append({})
        self._tried.append(0)
        self._others.append(None)
        self._decisions.append({})
        self._body_of.append(body)
        return number
