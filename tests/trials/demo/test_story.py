"""The story: the owner of the next token dies just before it, and is let back when the others go on."""

import asyncio
import time
from types import SimpleNamespace

from isocast.terms.instants import MILLISECOND
from isocast.trials.demo.cast import Tone
from isocast.trials.demo.story import Story
from isocast.trials.demo.watching import WatchedRing

RING = ("a", "b", "c")
PERIOD = 1_000 * MILLISECOND
"""Long enough that the moment before a token is not missed by a process that is kept waiting."""


class Market:
    """A stage and a watch in one, which re-forms when one is killed and takes it back when it is let."""

    def __init__(self) -> None:
        now = time.time_ns()
        self.ring: WatchedRing | None = WatchedRing("1.1", RING, 1, now - 10 * PERIOD, PERIOD)
        self.whole = True
        self.acts: list[str] = []
        self.killed_at = 0
        self.children = {name: SimpleNamespace(ready=asyncio.Event()) for name in RING}

    def kill(self, name: str) -> int:
        self.killed_at = time.time_ns()
        self.acts.append(f"kill {name}")
        self.whole = False
        left = tuple(member for member in RING if member != name)
        self.ring = WatchedRing("2.1", left, 20, time.time_ns(), PERIOD)
        return 4_711

    def let(self, name: str) -> None:
        self.acts.append(f"let {name}")
        self.children[name].ready.set()
        self.ring = WatchedRing("3.1", RING, 30, time.time_ns(), PERIOD)
        self.whole = True

    def is_whole(self) -> bool:
        return self.whole

    def title(self, name: str) -> str:
        return name.upper()


def test_the_owner_dies_before_its_token_and_comes_back() -> None:
    market, story, notes = Market(), Story(), list[tuple[Tone, str]]()
    before = market.ring
    assert before is not None

    async def play() -> None:
        await story.play(market, market, lambda tone, text: notes.append((tone, text)), 0.0)  # type: ignore[arg-type]

    asyncio.run(asyncio.wait_for(play(), 120))
    assert market.acts == [f"kill {story.victim}", f"let {story.victim}"]
    assert story.victim == before.owner(story.token_number)
    assert before.token_at(market.killed_at) < story.token_number, "its token was still to come"
    assert 0 < story.killed_at <= story.reformed_at <= story.started_at <= story.whole_at
    assert [tone for tone, _ in notes] == [Tone.TROUBLE, Tone.RING, Tone.RING]
    assert "kill -9 4711" in notes[0][1]
    (absence,) = story.absences()
    assert (absence.name, absence.since, absence.until) == (story.victim, story.killed_at, story.whole_at)


def test_nobody_is_away_before_anything_happened() -> None:
    assert Story().absences() == ()


def test_who_never_came_back_is_away_to_the_end() -> None:
    (absence,) = Story(victim="a", killed_at=5).absences()
    assert absence.until > time.time_ns()
