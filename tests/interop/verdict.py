"""What must be true of the journals of a market, whatever happened to it."""

from collections import Counter

from tests.interop.released import JournalWatch, ReleasedMessage
from tests.interop.stage import Stage

from isocast.terms.ids import Label

__all__ = ["check_journals"]


def check_journals(stage: Stage, promised: dict[Label, bytes]) -> list[ReleasedMessage]:
    """The journals tell one sequence, with everything that was promised in it once; the sequence."""
    whole: list[ReleasedMessage] = []
    for name, watch in stage.watches.items():
        messages = _over_all_lives(name, watch)
        assert [message.sequence for message in messages] == list(range(1, len(messages) + 1)), name
        assert len({message.label for message in messages}) == len(messages), f"{name}: a message twice"
        shorter = min(len(whole), len(messages))
        assert _content(messages[:shorter]) == _content(whole[:shorter]), f"{name}: another sequence"
        whole = max(whole, messages, key=len)
        found = Counter(message.payload for message in messages)
        assert {found[payload] for payload in promised.values()} <= {1}, f"{name}: lost or repeated"
    for name, watch in stage.edges.items():
        _check_edge(name, _over_all_lives(name, watch), whole)
    _check_sources(whole, promised)
    return whole


def _over_all_lives(name: str, watch: JournalWatch) -> list[ReleasedMessage]:
    """A whole journal, in which everything that was ever seen there still is."""
    before = list(watch.look())
    messages = watch.again()
    assert messages[: len(before)] == before, f"{name}: what was in the journal has changed"
    return messages


def _content(messages: list[ReleasedMessage]) -> list[tuple[object, ...]]:
    """What every receiver must agree on; a late one's `due` and `released_at` are its own."""
    return [(m.sequence, m.label, m.digest, m.payload, m.token_number, m.epoch, m.instant) for m in messages]


def _check_edge(name: str, messages: list[ReleasedMessage], whole: list[ReleasedMessage]) -> None:
    """Archives and complete customers have the same messages under the same numbers, without a gap."""
    assert messages, f"{name}: nothing"
    first, last = messages[0].sequence, messages[-1].sequence
    assert [message.sequence for message in messages] == list(range(first, last + 1)), f"{name}: a gap"
    heard = [(m.sequence, m.payload, m.token_number, m.epoch) for m in messages]
    told = [(m.sequence, m.payload, m.token_number, m.epoch) for m in whole[first - 1 : last]]
    assert heard[: len(told)] == told, f"{name}: another sequence"


def _check_sources(messages: list[ReleasedMessage], promised: dict[Label, bytes]) -> None:
    """Each source's messages in its order, from the first on, in one incarnation, and with what was published."""
    numbers: dict[int, list[int]] = {}
    for message in messages:
        numbers.setdefault(message.label.source, []).append(message.label.number)
        assert promised.get(message.label, message.payload) == message.payload, message.label
    assert len(numbers) == len({source >> 32 for source in numbers}), f"more than one incarnation: {sorted(numbers)}"
    for source, found in numbers.items():
        assert found == list(range(1, len(found) + 1)), f"source {source} is out of order"
