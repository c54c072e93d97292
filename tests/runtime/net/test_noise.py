"""Refused datagrams by address: the right address, bounded memory, and an alarm that names the noisiest."""

from hypothesis import given
from hypothesis import strategies as st

from isocast.runtime.net.channels import ADDRESSES_MAX, LOUD, Noise

bursts = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), min_size=1, max_size=20)


@given(bursts, st.data())
def test_what_is_refused_counts_for_whoever_sent_it(origins: list[tuple[str, int]], data: st.DataObject) -> None:
    senders = [address for address, count in origins for _ in range(count)]
    refused = sorted(data.draw(st.sets(st.integers(0, len(senders) - 1))))
    noise = Noise()
    noise.note(origins, refused)
    expected: dict[str, int] = {}
    for place in refused:
        expected[senders[place]] = expected.get(senders[place], 0) + 1
    assert noise.loudest() == expected


def test_of_too_many_addresses_the_quietest_are_forgotten() -> None:
    noise = Noise()
    for _ in range(3):
        noise.note([("loud", 1)], [0])
    for number in range(3 * ADDRESSES_MAX):
        noise.note([(f"quiet {number}", 1)], [0])
    assert next(iter(noise.loudest().items())) == ("loud", 3)
    assert len(noise._counts) == ADDRESSES_MAX  # noqa: SLF001


def test_only_a_flood_is_worth_an_alarm_and_each_is_told_once() -> None:
    noise = Noise()
    noise.note([("loud", LOUD), ("some", LOUD - 1)], range(2 * LOUD - 1))
    assert noise.fresh() == {"loud": LOUD}
    assert noise.fresh() == {}
    noise.note([("some", LOUD)], range(LOUD))
    assert noise.fresh() == {"some": LOUD}
