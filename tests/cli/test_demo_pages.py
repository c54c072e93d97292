"""Every command and scenario that README and guides name works as written.

What needs nothing (`sim`, `plan`, `feed generate`) is run. What needs a market, or changes something, is parsed: the
command and all its options exist. Whole markets are tested elsewhere.
"""

import re
import shlex
from pathlib import Path

import pytest

from isocast.cli.app import app
from isocast.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("[ht]*/*.md"))]
RUN = ("sim ", "plan ", "feed generate ")
PLACEHOLDER = re.compile(r"\b(NAME|N|SCENARIO\.toml)\b")


def lines(page: str) -> list[str]:
    """What a reader types, without what the shell reads from here-documents; continued lines in one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```(?:sh|console)\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    typed = re.sub(r"<<(\w+)\n.*?^ *\1$", "", "\n".join(blocks), flags=re.DOTALL | re.MULTILINE)
    typed = re.sub(r"([|\\])\n", r"\1", typed)
    return [line.strip().removeprefix("$ ") for line in typed.splitlines() if line.strip()]


def words_of(line: str) -> list[str]:
    """The arguments of `isocast` in a line, if it is there: alone, at the end of a pipe, or in the background."""
    found = re.search(r"(?:^|\| *)(?:\.venv/bin/)?isocast (.*)$", line)
    if found is None:
        return []
    typed = shlex.split(found[1], comments=True)
    ends = [place for place, word in enumerate(typed) if word in {"&", ">", "|"}]
    return typed[: ends[0]] if ends else typed


def all_commands() -> list[str]:
    """Once each, in the order of the pages."""
    found = [words_of(line) for page in PAGES for line in lines(page)]
    return list(dict.fromkeys([shlex.join(words) for words in found if words]))


def commands() -> dict[str, list[str]]:
    """Those that are run, page by page and in its order: one may use what another has made. Simulations once each."""
    seen: set[str] = set()
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for line in lines(page):
            command = shlex.join(words_of(line))
            if command.startswith(RUN) and not (command.startswith("sim ") and command in seen):
                seen.add(command)
                found.setdefault(page, []).append(line)
    return found


def save_files(page: str, directory: Path) -> None:
    """What a page tells its reader to save, under the name that it gives."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^( *)```toml\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    names = re.findall(r"[Ss]ave this as `([^`]+\.toml)`", text)
    if names:
        whole = "".join([re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in blocks])
        (directory / Path(names[0]).name).write_text(whole, encoding="utf-8")
    for name, table in re.findall(
        r"[Ss]ave this as `([^`]+\.csv)`:\n\n```csv\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    ):
        (directory / name).write_text(table, encoding="utf-8")


def test_the_pages_name_commands_at_all() -> None:
    assert sum(map(len, commands().values())) >= 10
    assert {command.split()[0] for command in all_commands()} >= {"config", "keys", "up", "publish", "listen", "top"}


@pytest.mark.parametrize("command", all_commands())
def test_a_command_of_the_pages_exists_with_its_options(command: str) -> None:
    words = ["1" if word == "N" else word for word in shlex.split(command)]
    app.parse_args(words, exit_on_error=False, print_error=False)


SLOW_PAGES = (
    "README.md",
    "docs/how-to/feeds.md",
    "docs/how-to/plan-coverage.md",
    "docs/how-to/plan-stripes.md",
    "docs/how-to/plan-world.md",
    "docs/how-to/reproduce-a-failure.md",
    "docs/how-to/sweep-scenarios.md",
)
"""Their commands run whole stories, swarms and worlds; tests of each command run them, or small ones."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.long] * (page in SLOW_PAGES)) for page in commands()]
)
def test_the_commands_of_a_page_work_as_written(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a directory that looks like the repository, and in which they may write."""
    for name in ("scenarios", "worlds"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    save_files(page, tmp_path)
    for line in commands()[page]:
        words = [Path(word).name if word.startswith("/tmp/") else word for word in words_of(line)]  # noqa: S108
        if PLACEHOLDER.search(" ".join(words)):
            assert main([*words[:2], "--help"]) == 0
            continue
        assert main(words) == 0, (line, capsys.readouterr())
        printed = capsys.readouterr().out
        assert printed or "--out" in words, line
        if redirected := re.search(r"> *(\S+)$", line):
            (tmp_path / Path(redirected[1]).name).write_text(printed, encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_of_a_page_exists(page: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in lines(page):
        words = line.split()
        if words and words[0] == "make":
            assert words[1] in targets, line


def test_the_readme_names_every_everyday_scenario() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"scenarios/[a-z0-9-]+\.toml", text))
    assert named == {f"scenarios/{file.name}" for file in (ROOT / "scenarios").glob("*.toml")}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_the_reference_lists_every_page_of_its_folder() -> None:
    folder = ROOT / "docs" / "reference"
    index = (folder / "index.md").read_text(encoding="utf-8")
    for page in folder.glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in index, page.name
