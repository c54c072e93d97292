"""Draws the two maps of the code: the house with its layers, and the walk of one trade from a floor to a Spark table.

    python -m tools.maps            write docs/assets/house.svg and docs/assets/trade.svg
    python -m tools.maps --check    exit with 1 if they are not what the code says

The house comes from the layers in pyproject.toml and from the docstrings of the rooms; the walk is the table below,
whose modules and names a test compares with the code. The drawings are plain SVG with the reader's own fonts, for light
and for dark pages.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from tools.house import ROOT, Module, house

WIDTH = 1240
MARGIN = 24
GAP = 12
PAD = 14

# ---- the walk of one trade


@dataclass(frozen=True, slots=True)
class Step:
    """What happens to the trade, and where: `module:Class.method`, below src/isocast."""

    what: str
    where: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A process, or several alike: its steps from left to right, and what leaves it for the next place."""

    name: str
    note: str
    tone: str
    steps: tuple[Step, ...]
    leaves: str = ""


WALK = (
    Place(
        "A floor's program",
        "anywhere; it needs a market file and the floor's key",
        "top",
        (
            Step("A feed file is recognised, and read block by block", ("runtime/client/feed_files:FeedFile.blocks",)),
            Step(
                "Its messages become fixed records, column by column", ("feeds/itch_reader", "wire/events:EVENT_DTYPE")
            ),
            Step("Events are cut into messages, each due at its time", ("runtime/client/replay:Replay",)),
            Step(
                "A batch goes to the source's door, and again until it is accepted",
                ("runtime/client/publisher:Publisher.publish",),
            ),
        ),
        "PUBLISH by TCP; ACCEPTED comes back",
    ),
    Place(
        "The floor's source",
        "S_P, one process",
        "real",
        (
            Step(
                "The door checks the batch; a repeated one gets its old label",
                ("runtime/hosts/publish_door:PublishDoor",),
            ),
            Step(
                "The machine numbers the message; its payload is sealed until release",
                ("ring/source:PrimarySource.step", "security/sealing:Sealer.seal"),
            ),
            Step(
                "The outbox is on disk before anybody hears of it",
                ("runtime/disk/outbox_store:OutboxStore.append_many",),
            ),
            Step(
                "It becomes a packet with a tag; a burst leaves in one system call",
                ("wire/codec:encode", "runtime/net/channels:Channels.multicast"),
            ),
        ),
        "DATA by multicast, to all receivers",
    ),
    Place(
        "Every receiver: hear",
        "R_P on the ring, R_S below it",
        "real",
        (
            Step(
                "Datagrams are checked before they are believed",
                ("runtime/net/channels:Reception.packets", "wire/codec:decode"),
            ),
            Step(
                "The driver steps the node: input and instant in, effects out",
                ("runtime/hosts/driver:Driver", "nodes/primary_receiver:PrimaryReceiver.step"),
            ),
            Step("The message waits until a token names it", ("ring/ledger:Ledger.store",)),
            Step(
                "At T_t the token's owner takes what waits; a keyed shuffle orders it",
                ("ring/token:choose", "ring/token:label_order"),
            ),
        ),
        "TOKEN by multicast; NACK and REPAIR where something is missing",
    ),
    Place(
        "Every receiver: agree and release",
        "the same processes, up to Δ_A later",
        "real",
        (
            Step(
                "Tokens are accepted in order; what is missing is requested on a timetable",
                ("ring/receiver:Receiver", "ring/recovery:Recovery"),
            ),
            Step(
                "Token and messages are logged on disk, then a RECEIPT leaves",
                ("runtime/disk/site_store:SiteStore.append_many",),
            ),
            Step(
                "At T_t + Δ_A, with receipts of a majority, all release it and open its seal",
                ("ring/release:Releaser.poll", "security/sealing:Opener.open"),
            ),
            Step(
                "The journal is written, then the message goes out on the receiver's line",
                ("runtime/disk/journal:Journal.append", "hierarchy/line_sender:LineSender.step"),
            ),
        ),
        "REL on every receiver's line, by multicast",
    ),
    Place(
        "Customers and retransmit servers",
        "R and R_x, any number",
        "real",
        (
            Step(
                "The process hears its lines, and feeds them to its machine",
                ("runtime/hosts/customer:CustomerHost", "runtime/net/channels:Channels.hear_line"),
            ),
            Step(
                "The first copy of any line counts; later ones are deduplicated",
                ("hierarchy/customer:Customer.step", "hierarchy/lines:Arbitration"),
            ),
            Step(
                "A gap is filled by a retransmit server, from its archive",
                ("nodes/retransmit_server:RetransmitServer.step", "hierarchy/archive:Answers.serve"),
            ),
            Step(
                "A program gets it as a numpy or Arrow batch",
                ("runtime/client/listener:Listener", "runtime/client/received:ReceivedBatch"),
            ),
        ),
        "journal blocks, as files or from a retransmit server's door",
    ),
    Place(
        "Spark",
        "no part of the market; nobody waits for it",
        "top",
        (
            Step(
                "Blocks become Arrow batches, from one offset to the next",
                ("lake/source/journal:IsocastSource", "lake/source/archive:read_archive"),
            ),
            Step("Bronze: what was released, with its provenance", ("lake/pipeline_stages:BronzeSink.take",)),
            Step(
                "Silver: the tape with corrections applied, the quotes",
                ("lake/pipeline_stages:advance_tape", "lake/transforms/tape:next_tape"),
            ),
            Step(
                "Gold: bars, VWAP and spreads in a Parquet table",
                ("lake/pipeline_stages:advance_bars", "lake/transforms/bars:bars"),
            ),
        ),
    ),
)


# ---- the layers, as import-linter has them


@dataclass(frozen=True, slots=True)
class Room:
    """One room of a layer, or one part of a room."""

    name: str
    sentence: str
    tone: str
    parts: tuple[Room, ...] = ()

    @property
    def is_planned(self) -> bool:
        """It has a place in the layers, and no code yet."""
        return self.tone == "planned"


def layers(root: Path = ROOT) -> list[list[Room]]:
    """The rooms from the top layer down, siblings in one list."""
    project: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    contracts: dict[str, dict[str, Any]] = {each["id"]: each for each in project["tool"]["importlinter"]["contracts"]}
    tones = {name.removeprefix("isocast."): "pure" for name in contracts["pure"]["source_modules"]}
    tones |= {name.removeprefix("isocast."): "virtual" for name in contracts["virtual"]["source_modules"]}
    tones["runtime"] = "real"
    modules = house(root)
    rows: list[str] = contracts["layers"]["layers"]
    return [[_room(name.strip(), modules, tones) for name in row.split("|")] for row in rows]


def _room(written: str, modules: Mapping[str, Module], tones: dict[str, str]) -> Room:
    name = written.strip("()")
    if name not in modules:
        return Room(name, "planned", "planned")
    tone = tones.get(name, "top")
    inside = sorted(each for each in modules if re.fullmatch(rf"{name}\.\w+", each) and modules[each].is_init)
    parts = tuple(Room(each.partition(".")[2], sentence(modules[each]), tone) for each in inside)
    return Room(name, sentence(modules[name]), tone, parts)


def sentence(module: Module) -> str:
    """The first line of a docstring, without its marks for code."""
    return module.docstring.partition("\n")[0].replace("`", "")


# ---- ink

STYLE = """
  .page { fill: #ffffff }
  .band { fill: #f5f7f9; stroke: #d5dce2 }
  .card { fill: #ffffff; stroke-width: 1.25 }
  .pure { stroke: #3f7cac; fill: #edf5fb }
  .real { stroke: #b97a26; fill: #fdf5ea }
  .virtual { stroke: #3c8f63; fill: #edf8f1 }
  .top { stroke: #7c64b5; fill: #f4f0fb }
  .planned { stroke: #9aa6b1; fill: none; stroke-dasharray: 5 4 }
  .inner { fill: #ffffff; fill-opacity: .75; stroke-width: .9 }
  .bar { stroke: none }
  .bar.pure { fill: #3f7cac }
  .bar.real { fill: #b97a26 }
  .bar.virtual { fill: #3c8f63 }
  .bar.top { fill: #7c64b5 }
  .number { fill: #ffffff; font-size: 11px; font-weight: 600 }
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12.5px; fill: #1c2733 }
  .title { font-size: 21px; font-weight: 650 }
  .head { font-size: 15px; font-weight: 650 }
  .quiet { fill: #566472 }
  .code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 11.5px }
  .name { font-size: 14.5px; font-weight: 650 }
  .line { stroke: #8794a1; stroke-width: 1.5; fill: none }
  .tip { fill: #8794a1 }
"""
DARK = """
  @media (prefers-color-scheme: dark) {
    .page { fill: #0e141a }
    .band { fill: #151d25; stroke: #2c3843 }
    .card { fill: #0e141a }
    .pure { stroke: #5a9bd0; fill: #14283a }
    .real { stroke: #cf9443; fill: #33260f }
    .virtual { stroke: #57b383; fill: #11301f }
    .top { stroke: #9d87d6; fill: #261f3a }
    .planned { stroke: #6b7884; fill: none }
    .inner { fill: #0e141a; fill-opacity: .55 }
    .bar.pure { fill: #5a9bd0 }
    .bar.real { fill: #cf9443 }
    .bar.virtual { fill: #57b383 }
    .bar.top { fill: #9d87d6 }
    .number { fill: #0e141a }
    text { fill: #e4ebf1 }
    .quiet { fill: #a3b1bd }
    .line { stroke: #7d8b98 }
    .tip { fill: #7d8b98 }
  }
"""
SENTENCE_PX = 12.5
CODE_PX = 11.5
LINE = 17
"""From one line of text to the next."""


@dataclass(slots=True)
class Sheet:
    """A drawing as it grows."""

    title: str
    description: str
    pieces: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        """A rounded rectangle."""
        radius = 5 if "bar" in kind.split() else 8
        self.pieces.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}"/>'
        )

    def text(self, x: float, y: float, text: str, kind: str = "", *, anchor: str = "start", turn: bool = False) -> None:
        """One line, its base at y; turned, it reads upwards."""
        more = f' class="{kind}"' if kind else ""
        more += f' text-anchor="{anchor}"' if anchor != "start" else ""
        more += f' transform="rotate(-90 {x:g} {y:g})"' if turn else ""
        self.pieces.append(f'<text x="{x:g}" y="{y:g}"{more}>{escape(text, quote=False)}</text>')

    def heading(self, x: float, y: float, text: str, kind: str, note: str) -> None:
        """A heading, and a note behind it wherever it ends."""
        note_kind, gap = ("code quiet", 8) if kind == "code" else ("quiet", 12)
        note = f'<tspan class="{note_kind}" dx="{gap}">{escape(note, quote=False)}</tspan>'
        text = f'<tspan class="{kind}">{escape(text, quote=False)}</tspan>'
        self.pieces.append(f'<text x="{x:g}" y="{y:g}">{text}{note}</text>')

    def lines(self, x: float, y: float, texts: Iterable[str], kind: str) -> float:
        """Lines below each other; the base of the next one."""
        for text in texts:
            self.text(x, y, text, kind)
            y += LINE
        return y

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """A line with a tip at its end, across or down."""
        tip = 6
        if y == to_y:
            self.pieces.append(f'<path class="line" d="M{x:g} {y:g}H{to_x - tip:g}"/>')
            points = f"{to_x:g},{y:g} {to_x - tip:g},{y - 4:g} {to_x - tip:g},{y + 4:g}"
        else:
            self.pieces.append(f'<path class="line" d="M{x:g} {y:g}V{to_y - tip:g}"/>')
            points = f"{x:g},{to_y:g} {x - 4:g},{to_y - tip:g} {x + 4:g},{to_y - tip:g}"
        self.pieces.append(f'<polygon class="tip" points="{points}"/>')

    def svg(self, height: float) -> str:
        """The whole file."""
        size = f'viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}"'
        return "\n".join(
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title description">',
                f'<title id="title">{escape(self.title)}</title>',
                f'<desc id="description">{escape(self.description)}</desc>',
                f"<style>{STYLE}{DARK}</style>",
                f'<rect class="page" width="{WIDTH}" height="{height:g}" rx="10"/>',
                *self.pieces,
                "</svg>\n",
            )
        )


def width_of(text: str, px: float, *, code: bool = False) -> float:
    """How wide a line may become in the widest of the fonts that readers have."""
    if code:
        return len(text) * px * 0.605
    wide, narrow = set("mwMW—@"), set("ijltfrI.,;:'|()[]-/ ")
    return sum(px * (0.9 if c in wide else 0.38 if c in narrow else 0.72 if c.isupper() else 0.62) for c in text)


def wrapped(text: str, room: float, px: float = SENTENCE_PX) -> list[str]:
    """The words in lines that fit."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", px) <= room:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


# ---- the house

GUTTER = 34
"""At both sides: which way imports go, and what is pure."""


def draw_house(root: Path = ROOT) -> str:
    """The layers from the top down, each room with its sentence and its parts."""
    rows = layers(root)
    sheet = Sheet(
        "The rooms of Isocast and their layers",
        "From the top down: " + "; ".join(" and ".join(room.name for room in row) for row in rows),
    )
    law = "A room imports only rooms of layers below it; siblings never import each other."
    sheet.heading(MARGIN, MARGIN + 18, "The house", "title", law)
    top = y = MARGIN + 40.0
    left, inner = MARGIN + GUTTER, WIDTH - 2 * (MARGIN + GUTTER)
    pure_from = top
    for row in rows:
        width = (inner - GAP * (len(row) - 1)) / len(row)
        height = max(_room_height(room, width) for room in row)
        if all(room.tone in {"pure", "planned"} for room in row) and pure_from == top and row[0].tone == "pure":
            pure_from = y
        for place, room in enumerate(row):
            _draw_room(sheet, room, left + place * (width + GAP), y, width, height)
        y += height + GAP
    bottom = y - GAP
    sheet.arrow(MARGIN + 18, top, MARGIN + 18, bottom)
    sheet.text(MARGIN + 12, (top + bottom) / 2, "imports go down only", "quiet", anchor="middle", turn=True)
    right = WIDTH - MARGIN - GUTTER + 10
    sheet.pieces.append(f'<path class="line" d="M{right:g} {pure_from:g}h8V{bottom:g}h-8"/>')
    note = "pure: no clock, chance, socket, thread or file"
    sheet.text(right + 22, (pure_from + bottom) / 2, note, "quiet", anchor="middle", turn=True)
    return sheet.svg(bottom + MARGIN)


def _room_height(room: Room, width: float) -> float:
    if room.is_planned:
        return 2 * PAD + LINE
    height = 2 * PAD + LINE * (1 + len(wrapped(room.sentence, width - 2 * PAD)))
    if room.name == "runtime":
        return height + sum(each + 8 for each in _part_rows(room, width)) + 2
    return height + (30 if room.parts else 0)


PARTS_IN_ROW = 4


def _part_width(width: float) -> float:
    return (width - 2 * PAD - 8 * (PARTS_IN_ROW - 1)) / PARTS_IN_ROW


def _part_rows(room: Room, width: float) -> list[float]:
    """How high each row of a room's parts is."""
    inside = _part_width(width) - 20
    heights = [20 + LINE * (1 + len(wrapped(part.sentence, inside))) for part in room.parts]
    return [max(heights[at : at + PARTS_IN_ROW]) for at in range(0, len(heights), PARTS_IN_ROW)]


def _draw_room(sheet: Sheet, room: Room, x: float, y: float, width: float, height: float) -> None:
    sheet.box(x, y, width, height, f"card {room.tone}")
    if room.is_planned:
        sheet.heading(x + PAD, y + height / 2 + 5, room.name, "code name quiet", room.sentence)
        return
    sheet.text(x + PAD, y + PAD + 12, room.name, "code name")
    base = sheet.lines(x + PAD, y + PAD + 12 + LINE + 2, wrapped(room.sentence, width - 2 * PAD), "quiet")
    if room.name == "runtime":
        _draw_parts(sheet, room, x + PAD, base - 6, width)
    else:
        at = x + PAD
        for part in room.parts:
            wide = width_of(part.name, CODE_PX, code=True) + 18
            sheet.box(at, base - 6, wide, 22, f"inner {part.tone}")
            sheet.text(at + 9, base + 9, part.name, "code")
            at += wide + 8


def _draw_parts(sheet: Sheet, room: Room, x: float, y: float, width: float) -> None:
    wide = _part_width(width)
    for row, height in enumerate(_part_rows(room, width)):
        for place, part in enumerate(room.parts[row * PARTS_IN_ROW : (row + 1) * PARTS_IN_ROW]):
            at = x + place * (wide + 8)
            sheet.box(at, y, wide, height, f"inner {part.tone}")
            sheet.text(at + 10, y + 20, part.name, "code name")
            sheet.lines(at + 10, y + 20 + LINE + 1, wrapped(part.sentence, wide - 20), "quiet")
        y += height + 8


# ---- the walk

BAND_HEAD = 34
STEP_GAP = 22
BETWEEN = 40


def draw_walk(walk: Sequence[Place] = WALK) -> str:
    """A band for each place, its steps numbered from left to right, and what goes from band to band."""
    sheet = Sheet(
        "The walk of one trade from a floor to a Spark table",
        "; ".join(f"{place.name}: " + ", ".join(w for step in place.steps for w in step.where) for place in walk),
    )
    note = "from a floor to a Spark table; each step names its modules below src/isocast"
    sheet.heading(MARGIN, MARGIN + 18, "The walk of one trade", "title", note)
    y, number = MARGIN + 40.0, 1
    for place in walk:
        height = _place_height(place)
        _draw_place(sheet, place, y, height, number)
        number += len(place.steps)
        y += height
        if place.leaves:
            sheet.arrow(WIDTH / 2, y + 5, WIDTH / 2, y + BETWEEN - 5)
            sheet.text(WIDTH / 2 + 14, y + BETWEEN / 2 + 4, place.leaves, "quiet")
            y += BETWEEN
    return sheet.svg(y + MARGIN)


def _step_width(place: Place) -> float:
    count = len(place.steps)
    return (WIDTH - 2 * MARGIN - 2 * PAD - STEP_GAP * (count - 1)) / count


def code_lines(where: str, room: float) -> list[tuple[str, str]]:
    """A module, and the name in it; on two lines where one is too short."""
    module, _, name = where.partition(":")
    if not name or width_of(f"{module}  {name}", CODE_PX, code=True) <= room:
        return [(module, name)]
    return [(module, ""), ("", name)]


def _step_height(step: Step, width: float) -> float:
    code = sum(len(code_lines(each, width - 24)) for each in step.where)
    return 16 + LINE * (len(wrapped(step.what, width - 52)) + code) + 12


def _place_height(place: Place) -> float:
    width = _step_width(place)
    return BAND_HEAD + max(_step_height(step, width) for step in place.steps) + PAD


def _draw_place(sheet: Sheet, place: Place, y: float, height: float, number: int) -> None:
    sheet.box(MARGIN, y, WIDTH - 2 * MARGIN, height, "band")
    sheet.heading(MARGIN + PAD, y + 23, place.name, "head", place.note)
    width, step_height = _step_width(place), height - BAND_HEAD - PAD
    for at, step in enumerate(place.steps):
        x, top = MARGIN + PAD + at * (width + STEP_GAP), y + BAND_HEAD
        sheet.box(x, top, width, step_height, f"card {place.tone}")
        sheet.box(x + 12, top + 11, 24, 18, f"bar {place.tone}")
        sheet.text(x + 24, top + 24, str(number + at), "number", anchor="middle")
        base = sheet.lines(x + 44, top + 25, wrapped(step.what, width - 52), "")
        code = [line for each in step.where for line in code_lines(each, width - 24)]
        first = max(base + 3, top + step_height - 11 - LINE * (len(code) - 1))
        for offset, line in enumerate(code):
            _draw_code(sheet, x + 12, first + LINE * offset, *line)
        if at + 1 < len(place.steps):
            sheet.arrow(x + width + 3, top + step_height / 2, x + width + STEP_GAP - 3, top + step_height / 2)


def _draw_code(sheet: Sheet, x: float, y: float, module: str, name: str) -> None:
    if module and name:
        sheet.heading(x, y, module, "code", name)
    elif module:
        sheet.text(x, y, module, "code")
    else:
        sheet.text(x + 12, y, name, "code quiet")


# ---- the command


def drawings(root: Path = ROOT) -> dict[Path, str]:
    """What belongs into each file."""
    assets = root / "docs" / "assets"
    return {assets / "house.svg": draw_house(root), assets / "trade.svg": draw_walk()}


def main(arguments: list[str] | None = None) -> int:
    """Write the drawings, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a drawing is out of date")
    check = parser.parse_args(arguments).check
    stale = 0
    for path, drawing in drawings().items():
        if check and (not path.is_file() or path.read_text(encoding="utf-8") != drawing):
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date: python -m tools.maps\n")
            stale = 1
        elif not check:
            path.write_text(drawing, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main())
