"""The rules of the consolidated tapes: what each sale condition takes away."""

import pytest

from isocast.terms.conditions import LEAN_CONDITIONS, LEFT_OUT, TAPE_CONDITIONS, left_out_reason
from isocast.terms.market import EventFlag

VOLUME = EventFlag.UNPRINTED
HIGH_LOW = EventFlag.NOT_HIGH_LOW
LAST = EventFlag.NOT_LAST


@pytest.mark.parametrize(
    "letters, taken",
    [
        ("@ADEFKSXY18O56", EventFlag(0)),
        ("GLPZ4", LAST),
        ("BCHINRTUVW7", LAST | HIGH_LOW),
        ("MQ9", VOLUME | LAST | HIGH_LOW),
    ],
)
def test_every_letter_takes_away_what_the_specifications_say(letters: str, taken: EventFlag) -> None:
    for letter in letters:
        assert TAPE_CONDITIONS[letter].flags & (VOLUME | HIGH_LOW | LAST) == taken, letter


def test_every_letter_is_judged() -> None:
    assert set("@ADEFKSXY18O56GLPZ4BCHINRTUVW7MQ9") == set(TAPE_CONDITIONS)


def test_every_bit_of_lean_is_a_condition() -> None:
    assert sorted(LEAN_CONDITIONS) == [1 << bit for bit in range(32)]
    names = {1 << 24: "official close", 1 << 26: "official open", 1 << 31: "odd lot", 1 << 20: "average price"}
    names |= {1 << 7: "closing print", 1 << 17: "bunched trade", 1 << 13: "extended hours", 1 << 18: "contingent"}
    assert {bit: LEAN_CONDITIONS[bit].name for bit in names} == names


@pytest.mark.parametrize("condition", TAPE_CONDITIONS.values())
def test_whatever_is_left_out_has_a_reason(condition: object) -> None:
    flags = condition.flags  # type: ignore[attr-defined]
    assert (left_out_reason(flags) in LEFT_OUT.values()) == bool(flags & (VOLUME | HIGH_LOW | LAST))
