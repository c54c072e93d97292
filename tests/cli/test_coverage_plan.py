"""`isocast plan coverage`: the plan as tables, JSON, SVG and PNG, and its adjustment."""

from __future__ import annotations

import json
import re
import struct
import textwrap
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from isocast.cli.main import main

ROOT = Path(__file__).parents[2]
CITIES = ROOT / "worlds" / "cities.toml"
SVG = "{http://www.w3.org/2000/svg}"


def plan(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:  # noqa: ANN401  # JSON
    assert main(["plan", "coverage", "--json", *arguments]) == 0
    return json.loads(capsys.readouterr().out)


def pixels(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A PNG as another program would read it."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, kinds, packed, size = 8, [], b"", (0, 0)
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length)[0] == zlib.crc32(kind + body)
        kinds.append(kind)
        if kind == b"IHDR":
            size = struct.unpack_from(">II", body)
            assert body[8:] == b"\x08\x02\x00\x00\x00"
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    assert kinds == [b"IHDR", b"IDAT", b"IEND"]
    rows = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(size[1], 1 + 3 * size[0])
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(size[1], size[0], 3)


def test_tables_name_scopes_customers_and_who_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "coverage", str(CITIES)]) == 0
    out = capsys.readouterr().out
    for text in ("Twelve cities", "dubai-2", "239.192.0.0", "TTL", "Customers by the sources they hear", "Sydney"):
        assert text in out
    assert "0 of them on one address" in out
    assert "1 of 2,002 customers hear fewer than 2." in out
    assert "\x1b" not in out


def test_json_has_summary_scopes_and_plan(capsys: pytest.CaptureFixture[str]) -> None:
    value = plan([str(CITIES), "--now", "100", "--customers"], capsys)
    summary = value["summary"]
    assert (summary["receivers"], summary["customers"], summary["clashes"]) == (12, 2002, 0)
    assert summary["short"] == [{"customer": "Sydney", "lines": 0, "reason": "Singapore: 32.8 ms away, 30 ms allowed"}]
    assert sum(summary["customers_by_lines"].values()) == 2002
    assert value["plan"]["made_at_ns"] == 100_000_000_000
    assert len(value["scopes"]) == len(value["plan"]["scopes"]) == 12
    assert len(value["lines"]["pension-fund"]) >= 2
    assert "London" not in value["lines"]["pension-fund"], "the measured link is too slow"
    assert all(scope["ttl"] >= 1 for scope in value["scopes"])


def test_the_same_seed_gives_the_same_plan(capsys: pytest.CaptureFixture[str]) -> None:
    first, again = (plan([str(CITIES), "--now", "1"], capsys) for _ in range(2))
    assert first == again


def test_a_failure_changes_little_and_its_address_drains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    before = plan([str(CITIES), "--now", "100", "--out", str(file)], capsys)
    after = plan([str(CITIES), "--from", str(file), "--without", "London", "--now", "101"], capsys)
    assert after["changes"]["kept"] >= 9
    assert after["changes"]["lost"] == 1
    (rest,) = [entry for entry in after["plan"]["draining"] if entry["receiver"] == "London"]
    assert rest["free_at_ns"] == 131_000_000_000
    old = next(scope for scope in before["plan"]["scopes"] if scope["receiver"] == "London")
    assert rest["group"] == old["group"]
    lost = [entry for entry in after["changed"] if entry["receiver"] == "London"]
    assert lost == [
        {
            "receiver": "London",
            "what": "lost",
            "before": {"radius_km": old["radius_km"], "group": old["group"]},
            "after": None,
        }
    ]


def test_an_adjusted_plan_is_shown_by_its_changes_and_can_be_adjusted_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "1.json", tmp_path / "2.json"
    base = ["plan", "coverage", str(CITIES), "--now", "5"]
    assert main([*base, "--out", str(first)]) == 0
    capsys.readouterr()
    command = [*base, "--from", str(first), "--without", "London", "--without", "Tokyo", "--out", str(second)]
    assert main(command) == 0
    got = capsys.readouterr()
    assert "Changes" in got.out
    assert "lost 2" in got.out
    assert "rest where it was heard; the last is free in 30 s" in got.out
    assert got.err == f"Written: {second}\n"
    assert main([*base, "--from", str(second)]) == 0
    assert "new 2" in capsys.readouterr().out


def test_the_svg_is_well_formed_and_shows_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = tmp_path / "w.toml"
    world.write_text(
        textwrap.dedent("""\
            title = "<A> & B"
            [scopes]
            delay_max = "14ms"
            [[receiver]]
            name = "date & line"
            latitude = 10
            longitude = 179.5
            [[receiver]]
            name = "pole"
            latitude = 88
            longitude = 20
            [[customer]]
            name = "fiji"
            latitude = 9
            longitude = -178
            [[customer]]
            name = "station"
            latitude = 70
            longitude = -100
        """),
        encoding="utf-8",
    )
    file = tmp_path / "map.svg"
    value = plan([str(world), "--svg", str(file), "--width", "400"], capsys)
    assert len(value["summary"]["short"]) == 2
    root = ET.fromstring(file.read_text(encoding="utf-8"))  # noqa: S314  # our own file
    assert (root.get("width"), root.get("height")) == ("400", "200")
    assert [node.text for node in root.iter(f"{SVG}text")] == ["date & line", "pole"]
    assert len(list(root.iter(f"{SVG}circle"))) == 2
    scopes = [group for group in root.iter(f"{SVG}g") if group.get("fill-opacity")]
    # The one over the date line is drawn on both sides of the map.
    assert sum([len(group.findall(f"{SVG}polygon")) for group in scopes]) == 3
    (crosses,) = root.findall(f"{SVG}path")
    assert (crosses.get("d") or "").count("M") == 2


def test_the_png_is_a_png_of_the_right_size_with_land_scopes_and_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "map.png"
    plan([str(CITIES), "--png", str(file), "--width", "720"], capsys)
    picture = pixels(file.read_bytes())
    assert picture.shape == (360, 720, 3)

    def at(latitude: float, longitude: float) -> tuple[int, ...]:
        return tuple(picture[int((90 - latitude) * 2), int((longitude + 180) * 2)].tolist())

    assert at(35, -40) == (16, 22, 34), "sea"
    assert at(-10, -55) == (52, 60, 72), "land"
    assert at(41.9, -87.6) == (244, 246, 250), "a receiver"
    assert at(-33.87, 151.2) == (255, 48, 48), "a customer without sources"
    assert at(45, -100) not in ((16, 22, 34), (52, 60, 72)), "a scope"


def test_a_scope_over_pole_and_date_line_is_whole_in_the_png(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = tmp_path / "w.toml"
    places = [("receiver", "a", 80, 170), ("receiver", "b", 81, 170), ("customer", "c", 80, -10)]
    lines = [f'[[{kind}]]\nname = "{name}"\nlatitude = {y}\nlongitude = {x}\n' for kind, name, y, x in places]
    world.write_text("".join(lines), encoding="utf-8")
    file = tmp_path / "map.png"
    plan([str(world), "--png", str(file), "--width", "360"], capsys)
    picture = pixels(file.read_bytes())
    assert (picture[0] != picture[90]).any(axis=1).all(), "the pole's row is inside, all round"
    assert tuple(picture[12, 0].tolist()) != (16, 22, 34), "west of the date line too"


def test_the_hexagonal_world_meets_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    summary = plan([str(ROOT / "worlds" / "hexagonal.toml")], capsys)["summary"]
    assert summary["radius_km"]["greatest"] == 100
    assert (summary["addresses"], summary["bounds"]["addresses"]) == (7, 7)
    ratios = {entry["figure"]: entry["ratio"] for entry in summary["against_bounds"]}
    assert ratios["greatest radius, km"] == pytest.approx(1, abs=0.02)
    assert ratios["ground of all scopes / ground"] == pytest.approx(1, abs=0.03)


def test_the_example_plans_as_it_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "coverage", "--example"]) == 0
    file = tmp_path / "world.toml"
    file.write_text(capsys.readouterr().out, encoding="utf-8")
    assert main(["plan", "coverage", str(file), "--strict"]) == 0
    assert "Every one of 500 customers hears at least 2." in capsys.readouterr().out


def test_the_world_of_the_how_to_plans_as_the_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "how-to" / "plan-coverage.md").read_text(encoding="utf-8")
    (world,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    file = tmp_path / "europe.toml"
    file.write_text(world, encoding="utf-8")
    value = plan([str(file), "--customers"], capsys)
    assert value["lines"]["Paris"] == ["Frankfurt", "lisbon"]
    assert [short["customer"] for short in value["summary"]["short"]] == ["Lagos"]


def test_strict_makes_a_customer_without_sources_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "coverage", str(CITIES), "--strict", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["summary"]["short"]


@pytest.mark.parametrize(
    "arguments, error",
    [
        ([], "command line: WORLD: is missing"),
        (["nowhere.toml"], "nowhere.toml: file: cannot be read"),
        ([str(CITIES), "--without", "Lodnon"], 'has no receiver "Lodnon"; did you mean "London"?'),
        ([str(CITIES), "--width", "50"], "--width: must be from 100"),
        ([str(CITIES), "--rows", "0"], "--rows: must be at least 1"),
        ([str(CITIES), "--now", "nan"], "--now: must be from 0"),
        ([str(CITIES), "--from", "nowhere.json"], "nowhere.json: file: cannot be read"),
        ([str(CITIES), "--from", str(CITIES)], "not valid JSON"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "coverage", *arguments]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert error in got.err
    assert got.err.count("\n") == 1


def test_a_plan_that_is_none_names_file_and_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"version": 1, "scopes": []}', encoding="utf-8")
    assert main(["plan", "coverage", str(CITIES), "--from", str(file)]) == 2
    assert capsys.readouterr().err.startswith(f"isocast: {file}: plan surface: ")


def test_a_map_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "coverage", str(CITIES), "--svg", str(tmp_path / "no" / "map.svg")]) == 3
    assert capsys.readouterr().err.startswith("isocast: cannot go on: ")
