"""Shuffle keys of tokens: any, or one under which a few events enter as they are written down."""

from collections.abc import Iterable
from itertools import count
from typing import Final

from isocast.floor.codec import encode_event
from isocast.floor.events import Event
from isocast.floor.following import FloorMessage, read_token

KEY: Final = bytes(range(1, 17))
"""Any key."""
_FEW: Final = 5
"""Events of which some key keeps the order: one of 120."""


def key_in_order(topic: str, messages: Iterable[tuple[str, bytes]]) -> bytes:
    """A key under which the events of accounts, if they are few, enter in their order; for many of them any key."""
    payloads = [payload for found, payload in messages if found == topic]
    for number in count(1):
        key = number.to_bytes(16)
        told, _ = read_token([FloorMessage(place, topic, payload, key) for place, payload in enumerate(payloads)])
        places = [one.sequence for one in told if hasattr(one.event, "account")]
        if places == sorted(places) or len(places) > _FEW:
            return key
    raise AssertionError


def in_order(topic: str, *events: Event) -> list[FloorMessage]:
    """Messages of a token with these events, which enter in this order if they are few; sequences count from 1."""
    messages = [(topic, encode_event(event)) for event in events]
    key = key_in_order(topic, messages)
    return [FloorMessage(place, *message, key) for place, message in enumerate(messages, 1)]
