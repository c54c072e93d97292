"""A step of the floor as a transcript for the judges of `checks`, who know nothing of the floor itself."""

from __future__ import annotations

from collections.abc import Sequence

from isocast.checks.floor_acts import FloorAct, FloorMoment, FloorSaid, FloorTranscript
from isocast.floor.following import Applied, FloorStep

__all__ = ["transcript_of", "transcript_of_step"]


def transcript_of_step(step: FloorStep) -> FloorTranscript:
    """What was done in a token, and what came of it."""
    return transcript_of(step.token, step.instant, step.applied, step.shuffle_key)


def transcript_of(token: int, instant: int, applied: Sequence[Applied], shuffle_key: bytes = b"") -> FloorTranscript:
    """The same from events with their reports: the beginning first, the end last."""
    acts = [_act(one, FloorMoment.EVENT, instant) for one in applied]
    acts[0] = acts[0]._replace(moment=FloorMoment.BEGIN)
    acts[-1] = acts[-1]._replace(moment=FloorMoment.END)
    return FloorTranscript(token, instant, tuple(acts), shuffle_key)


def _act(applied: Applied, moment: FloorMoment, instant: int) -> FloorAct:
    event = applied.event
    said = tuple([FloorSaid(type(one).__name__.lower(), one._asdict()) for one in applied.reports])
    if event is None:
        return FloorAct(moment, "", {"at": instant}, said)
    return FloorAct(moment, type(event).__name__.lower(), event._asdict(), said, applied.place)
