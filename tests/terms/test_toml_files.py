"""The reader of TOML files: each kind of value, what is said of a wrong one, and how a file is read as a whole."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path

import pytest

from isocast.terms.errors import ConfigurationError
from isocast.terms.instants import MILLISECOND, SECOND
from isocast.terms.toml_files import SECONDS_MAX, Faults, Key, Kind, Table, Values, read_list, read_tables, read_toml
from isocast.terms.topology import city

TIME = 'must be a time with its unit, such as "5ms" or "1.5s", in quotes'
SIZE = 'must be a size with its unit, such as "4MiB" or "10GB", in quotes'


class Mode(StrEnum):
    FAST = "fast"
    SAFE = "safe"


KEYS = {
    key.name: key
    for key in (
        Key("text", Kind.TEXT, "A text.", "usual"),
        Key("short", Kind.TEXT, "A short text.", minimum=1, maximum=5),
        Key("flag", Kind.FLAG, "A flag."),
        Key("count", Kind.COUNT, "A count.", minimum=1, maximum=1_000),
        Key("counts", Kind.COUNTS, "Counts.", (0,), maximum=9),
        Key("number", Kind.NUMBER, "A number.", minimum=-90, maximum=90, unit="degrees"),
        Key("rate", Kind.NUMBER, "A rate.", positive=True),
        Key("any", Kind.NUMBER, "Any number.", minimum=-inf),
        Key("loss", Kind.PROBABILITY, "A share."),
        Key("span", Kind.SPAN, "A span.", minimum=-90, maximum=90),
        Key("time", Kind.TIME, "A time.", minimum=1, maximum=SECOND),
        Key("seconds", Kind.SECONDS, "Seconds.", minimum=1),
        Key("signed", Kind.SIGNED_SECONDS, "Seconds."),
        Key("size", Kind.SIZE, "A size.", minimum=1 << 10, maximum=1 << 30),
        Key("choice", Kind.CHOICE, "A choice.", choices=tuple(Mode)),
        Key("address", Kind.ADDRESS, "An address."),
        Key("group", Kind.GROUP, "A group."),
        Key("names", Kind.NAMES, "Names."),
        Key("texts", Kind.TEXTS, "Texts."),
        Key("city", Kind.CITY, "A city."),
        Key("cities", Kind.CITIES, "Cities."),
        Key("nodes", Kind.NODES, "Nodes."),
    )
}


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("text", 5, "must be a text, in quotes, not 5"),
        ("text", "", "must not be empty: leave it out for its default"),
        ("text", ["x"], "must be a text, in quotes, not a list"),
        ("text", "x" * 2000, "must have at most 1,000 letters, not 2,000"),
        ("text", "a\nb", 'must be one line without control characters, not "a\\nb"'),
        ("short", " ", "must have from 1 to 5 letters, not 0"),
        ("short", "letters", "must have from 1 to 5 letters, not 7"),
        ("flag", "true", 'must be true or false, not "true"'),
        ("count", 0, "must be from 1 to 1,000, not 0"),
        ("count", 3.0, "must be a whole number, not 3.0"),
        ("count", True, "must be a whole number, not true"),
        ("counts", 0, "must be a list of whole numbers, not 0"),
        ("counts", [], "must not be empty"),
        ("counts", [0, 1, 0], "0 occurs twice"),
        ("counts", [10], "must be from 0 to 9, not 10"),
        ("number", 91, "must be a number of degrees from -90 to 90, not 91"),
        ("number", inf, "must be a number of degrees from -90 to 90, not inf"),
        ("rate", 0, "must be a number, more than 0, not 0"),
        ("any", "x", 'must be a number, not "x"'),
        ("loss", 1, "must be a probability, 0 or more and less than 1, not 1"),
        ("loss", float("nan"), "must be a probability, 0 or more and less than 1, not nan"),
        ("loss", False, "must be a probability, 0 or more and less than 1, not false"),
        ("span", [2, 1], "must be two numbers, the lower first, from -90 to 90"),
        ("span", [1], "must be two numbers, the lower first, from -90 to 90"),
        ("span", [True, 2], "must be two numbers, the lower first, from -90 to 90"),
        ("time", 5, f"{TIME}, not 5"),
        ("time", "5", f'{TIME}, not "5"'),
        ("time", "2s", 'must be at least 1ns and at most 1s, not "2s"'),
        ("seconds", -1, "must not be negative: a time in seconds, not -1"),
        ("seconds", 1e-12, "must be more than 0: a time in seconds, to the nanosecond, not 1e-12"),
        ("seconds", SECONDS_MAX + 1, "must be at most 10,000,000 s, not 10000001"),
        ("seconds", "1s", 'must be a time in seconds, not "1s"'),
        ("size", 4, f"{SIZE}, not 4"),
        ("size", "1B", 'must be at least 1KiB and at most 1GiB, not "1B"'),
        ("choice", "sefe", 'must be one of "fast", "safe", not "sefe"; did you mean "safe"?'),
        ("choice", True, 'must be one of "fast", "safe", not true'),
        ("address", "::1", 'must be an IPv4 address such as "10.1.2.3", not "::1"'),
        ("address", {"x": 1}, 'must be an IPv4 address such as "10.1.2.3", not a table'),
        ("group", "10.1.2.3", 'must be a multicast group, from 224.0.1.0 to 239.255.255.255, not "10.1.2.3"'),
        ("names", "a", 'must be a list of names of nodes, not "a"'),
        ("names", ["a", "a"], '"a" occurs twice'),
        ("texts", ["a", 1], "must be a list of texts"),
        ("city", 3, "must be the name of a city, in quotes, not 3"),
        ("city", "Lodnon", 'unknown city "Lodnon"; did you mean "London"?'),
        ("cities", "London", 'must be a list of cities, not "London"'),
        ("nodes", 3, "must be a list of nodes, not 3"),
    ],
)
def test_a_value_of_the_wrong_kind_is_told_what_it_must_be(name: str, value: object, rule: str) -> None:
    faults = Faults("x.toml")
    values = Values({name: value}, KEYS.values(), faults, "t.")
    assert [(fault.file, fault.key, fault.rule) for fault in faults] == [("x.toml", f"t.{name}", rule)]
    assert name in values.broken
    assert name not in values


def test_values_come_in_the_units_of_the_program() -> None:
    faults = Faults("x.toml", collect=False)
    said = {
        "flag": True,
        "count": 7,
        "number": 3,
        "any": -0.5,
        "span": [1, 2.5],
        "time": "1.5ms",
        "seconds": 0.25,
        "signed": -1,
        "size": "2KiB",
        "choice": "safe",
        "texts": ["a\nb", "a\nb"],
        "city": "LDN",
        "cities": ["London"],
        "nodes": [1, "site2"],
    }
    values = Values(said, KEYS.values(), faults)
    assert values.given == set(said)
    assert values.flag("flag")
    assert (values.count("count"), values.number("number"), values.number("any")) == (7, 3.0, -0.5)
    assert values.span("span") == (1.0, 2.5)
    assert (values.count("time"), values.count("size")) == (1_500_000, 2048)
    assert (values.count("seconds"), values.count("signed")) == (250 * MILLISECOND, -SECOND)
    assert values.text("choice") is Mode.SAFE
    assert values.names("texts") == ("a\nb", "a\nb")
    assert values.cities("city") == values.cities("cities") == (city("London"),)
    assert values.items("nodes") == (1, "site2")


def test_a_key_that_is_left_out_has_its_default_or_what_the_caller_says() -> None:
    values = Values({}, KEYS.values(), Faults("x.toml"))
    assert values.text("text") == "usual"
    assert values.counts("counts") == (0,)
    assert (values.count("count"), values.count("count", 5), values.number("rate", inf)) == (0, 5, inf)
    assert not values.given
    assert not values.broken


def test_a_key_that_must_be_given_is_a_fault_when_it_is_not() -> None:
    faults = Faults("x.toml")
    Values({}, (Key("choice", Kind.CHOICE, "A choice.", required=True, choices=tuple(Mode)),), faults)
    (fault,) = faults
    assert (fault.key, fault.rule) == ("choice", 'must be given: one of "fast", "safe"')


def test_faults_are_collected_or_the_first_is_raised() -> None:
    mapping = {"cuont": 1, "flag": 3, "count": 0}
    faults = Faults("x.toml")
    Values(mapping, KEYS.values(), faults, "t.")
    assert [fault.key for fault in faults] == ["t.cuont", "t.flag", "t.count"]
    assert faults.touch("t.")
    assert not faults.touch("u.")
    with pytest.raises(ConfigurationError) as raised:
        Values(mapping, KEYS.values(), Faults("x.toml", collect=False), "t.")
    assert str(raised.value) == 'x.toml: t.cuont: unknown key; did you mean "count"?'


def test_the_same_fault_counts_once_and_is_one_line() -> None:
    faults = Faults("x")
    faults.add("a.\x1b", "is\nwrong")
    faults.add("a.\x1b", "is\nwrong")
    assert len(faults) == 1
    assert str(next(iter(faults))) == "x: a.\\x1b: is\\nwrong"


@dataclass(frozen=True)
class Settings:
    mode: Mode
    time_ns: int
    count: int = 3
    place: str = "here"


def test_values_fill_a_dataclass_whose_fields_may_have_units() -> None:
    values = Values({"choice": "fast", "time": "5ms"}, KEYS.values(), Faults("x"))
    assert values.into(Settings, mode=values.text("choice")) == Settings(Mode.FAST, 5 * MILLISECOND)


TABLES = (Table("", "Top.", (KEYS["text"],)), Table("ring", "Ring.", (KEYS["count"], KEYS["flag"])))
LIST = Table("links", "A link.", (KEYS["loss"], KEYS["count"]))


@pytest.mark.parametrize(
    "mapping, key, rule",
    [
        ({"ring": 3}, "ring", "must be a table, [ring], not 3"),
        ({"rnig": {}}, "rnig", 'unknown table; did you mean "ring"?'),
        ({"link": 3}, "link", 'unknown key; did you mean "links"?'),
        ({"count": 3}, "count", "unknown key: it belongs into [ring]"),
        ({"ring": {"text": "x"}}, "ring.text", "unknown key: it belongs before the first table"),
        ({"ring": {"coutn": 1}}, "ring.coutn", 'unknown key; did you mean "count"?'),
    ],
)
def test_a_wrong_table_or_a_key_in_the_wrong_table(mapping: dict[str, object], key: str, rule: str) -> None:
    faults = Faults("x")
    read_tables(mapping, TABLES, faults, ("links",))
    assert [(fault.key, fault.rule) for fault in faults] == [(key, rule)]


def test_tables_are_read_by_name_and_lists_by_number() -> None:
    mapping = {"text": "a", "ring": {"count": 2}, "links": [{"loss": 0}, {"loss": 2}]}
    faults = Faults("x")
    found = read_tables(mapping, TABLES, faults, ("links",))
    assert (found[""].text("text"), found["ring"].count("count")) == ("a", 2)
    first, _ = read_list(mapping, LIST, faults)
    assert first.number("loss") == 0
    assert [fault.key for fault in faults] == ["links[2].loss"]
    assert read_list({}, LIST, faults) == []
    assert read_list({"links": {}}, LIST, faults) == []
    assert [fault.rule for fault in faults][1:] == ["must be tables, each of them headed [[links]]"]


@pytest.mark.parametrize(
    "data, key, rule",
    [
        (b'a = "x"\nb = = 1\n', "line 2", "not valid TOML"),
        (b'\n\na = "x', "line 3", "not valid TOML"),
        (b"\na = \xff", "line 2", "TOML is UTF-8 text, and this is not"),
        (b"a = " + b"[" * 40, "line 1", "not valid TOML"),
        (b"#" * 101, "file", "is longer than 100 bytes"),
        (None, "file", "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_is_no_toml(data: bytes | None, key: str, rule: str, tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigurationError) as caught:
        read_toml(file, 100)
    assert caught.value.file == str(file)
    assert caught.value.key.startswith(key)
    assert caught.value.rule.startswith(rule)


def test_a_key_documents_itself() -> None:
    assert KEYS["count"].type_text == "1 to 1,000"
    assert KEYS["choice"].type_text == '"fast" | "safe"'
    assert KEYS["number"].type_text == "degrees"
    assert KEYS["counts"].default_text == "[0]"
    assert Key("a", Kind.TIME, "A.", otherwise="derived").default_text == "derived"
    assert Key("a", Kind.TIME, "A.", section="§5").meaning == "A. (§5)"
    assert Key("a", Kind.TIME, "A.", roles=("customer",)).meaning == "A. Of customer."
