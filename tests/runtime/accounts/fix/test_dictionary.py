"""The tables of FIX 4.4: consistent in themselves; what is wrong with a message is found in the right order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.accounts.fix.transcripts import framed

from isocast.runtime.accounts.fix import dictionary
from isocast.runtime.accounts.fix.dictionary import (
    ADMIN,
    APPLICATION,
    FAULT_TEXTS,
    GROUP_ENTRIES_MAX,
    KNOWN,
    Fault,
    fault_of,
    group_entries,
)
from isocast.runtime.accounts.fix.messages import Message, decode

ORDER = "35=D|34=2|11=ID|40=1|54=1|55=XISO|60=20231114-22:13:20"


def message(line: str) -> Message:
    found = decode(framed(line))
    assert found is not None
    return found


def test_the_tables_agree_with_each_other() -> None:
    assert set(dictionary._BODIES) == ADMIN | APPLICATION  # noqa: SLF001
    assert ADMIN | APPLICATION <= KNOWN
    for kind, needs in dictionary._NEEDS.items():  # noqa: SLF001
        assert set(needs) <= dictionary._BODIES[kind]  # noqa: SLF001
        assert list(needs) == sorted(needs)
    typed = [tag for tags in dictionary._TYPES.values() for tag in tags]  # noqa: SLF001
    assert len(typed) == len(set(typed)), "one type for each tag"
    assert set(dictionary._GROUPS) <= dictionary._TYPES["count"]  # noqa: SLF001
    for counter, members in dictionary._GROUPS.items():  # noqa: SLF001
        assert counter not in members


@pytest.mark.parametrize(
    "line,fault",
    [
        (ORDER, None),
        # Structure goes before type, type before what is missing, what is missing before values.
        ("35=*|58=x|34=2", Fault(14, 34)),
        ("35=*|34=2|49=-", Fault(11)),
        ("35=D|34=2|40=w", Fault(1, 11)),
        ("35=D|34=2|49=-|40=w", Fault(1, 49)),
        (f"{ORDER}|44=", Fault(4, 44)),
        (f"{ORDER}|44=x|21=9", Fault(6, 44)),
        (f"{ORDER}|21=9|44=x", Fault(5, 21)),
        (f"{ORDER}|112=x", Fault(2, 112)),
        (f"{ORDER}|957=x", Fault(0, 957)),
        (f"{ORDER}|9999=x", Fault(0, 9999)),
        (f"{ORDER}|44=1|44=1", Fault(13, 44)),
        (f"{ORDER}|44=1.", None),
        (f"{ORDER}|44=.5", None),
        (f"{ORDER}|44=-.5", None),
        (f"{ORDER}|44=.", Fault(6, 44)),
        (f"{ORDER}|44=1 ", Fault(6, 44)),
        (f"{ORDER}|44=1,5", Fault(6, 44)),
        (f"{ORDER}|44=NaN", Fault(6, 44)),
        (f"{ORDER}|44={'9' * 30}", Fault(6, 44)),
        (f"{ORDER}|18=6 G", None),
        (f"{ORDER}|18=6G", Fault(6, 18)),
        (f"{ORDER}|18=6 ", Fault(6, 18)),
        (f"{ORDER}|15=EUR", None),
        (f"{ORDER}|15=eur", Fault(6, 15)),
        (f"{ORDER}|114=y", Fault(6, 114)),
        (f"{ORDER}|432=20230230", None),  # The day of a month is not looked up: nothing here depends on it.
        (f"{ORDER}|432=20231301", Fault(6, 432)),
        (f"{ORDER}|126=20230230-00:00:00", Fault(6, 126)),
        (f"{ORDER}|453=1|447=D|448=a", Fault(16, 453)),
        (f"{ORDER}|453=1|448=a|448=b", Fault(16, 453)),
        (f"{ORDER}|453=1|448=a|447=D|447=D", Fault(13, 447)),
        (f"{ORDER}|453=-1", Fault(6, 453)),
        (f"{ORDER}|453=1|448=a|802=2|523=x", Fault(16, 802)),
        (f"{ORDER}|453=1|448=a|58=x|448=b", Fault(2, 448)),
        (f"{ORDER}|448=a", Fault(2, 448)),
        ("35=3|34=2|45=1|372=D", None),
        ("35=A|34=1|98=0|108=30|372=D", Fault(2, 372)),
        ("35=q|34=2|11=m|60=20231114-22:13:20|530=7|336=x|311=y", None),
        (f"{ORDER}|453=1|448=a|453=1|448=b", Fault(13, 453)),
        (f"{ORDER}|453={GROUP_ENTRIES_MAX}" + "|448=a" * GROUP_ENTRIES_MAX, None),
        (f"{ORDER}|453={GROUP_ENTRIES_MAX + 1}" + "|448=a" * (GROUP_ENTRIES_MAX + 1), Fault(16, 453)),
        ("35=0|34=2|627=1|628=a|629=20231114-22:13:20|630=5", None),
        ("35=0|34=2|627=2|628=a", Fault(16, 627)),
        ("35=A|34=1|98=0|108=30|384=2|372=D|385=S|372=8|385=R", None),
        ("35=A|34=1|98=0|108=30|95=3|96=a~b", None),
    ],
)
def test_the_first_fault_is_found(line: str, fault: Fault | None) -> None:
    assert fault_of(message(line)) == fault
    assert fault is None or fault.reason in FAULT_TEXTS


def test_entries_of_a_group() -> None:
    found = message(f"{ORDER}|453=2|448=a|447=D|802=1|523=x|448=b|452=3|58=text")
    assert group_entries(found, 453) == [{448: "a", 447: "D", 802: "1", 523: "x"}, {448: "b", 452: "3"}]
    assert group_entries(found, 386) == []


@given(st.lists(st.tuples(st.integers(-5, 1_000), st.text("0123456789.-YN D", max_size=6)), max_size=30))
def test_no_fields_make_it_fail(fields: list[tuple[int, str]]) -> None:
    body = "|".join(f"{tag}={value}" for tag, value in fields if tag not in (8, 9, 10, 34, 35, 49, 52, 56))
    for kind in ("D", "0", "A", "V", "*"):
        found = decode(framed(f"35={kind}|34=2|{body}" if body else f"35={kind}|34=2"))
        if found is not None:
            fault = fault_of(found)
            assert fault is None or fault.reason in FAULT_TEXTS
