"""Every command and scenario that README and guides name works as written."""

import re
import shlex
from pathlib import Path

import pytest

from isocast.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("[ht]*/*.md"))]
PREFIX = ".venv/bin/isocast "
PLACEHOLDER = re.compile(r"\b(NAME|N|SCENARIO\.toml)\b")


def lines(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def commands() -> list[str]:
    """Once each, in the order of the pages."""
    found = [line.removeprefix(PREFIX) for page in PAGES for line in lines(page) if line.startswith(PREFIX)]
    return list(dict.fromkeys([shlex.join(shlex.split(command, comments=True)) for command in found]))


def own_files(directory: Path) -> dict[str, str]:
    """The scenarios that a page tells its reader to save, by the name under which it runs them."""
    files = {}
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        blocks = re.findall(r"^( *)```toml\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
        names = re.findall(r"[Ss]ave this as `([^`]+\.toml)`", text)
        if names:
            whole = "".join([re.sub(f"^{indent}", "", block, flags=re.MULTILINE) for indent, block in blocks])
            path = directory / Path(names[0]).name
            path.write_text(whole, encoding="utf-8")
            files[names[0]] = str(path)
    return files


def test_the_pages_name_commands_at_all() -> None:
    assert len(commands()) >= 10
    assert {command.split()[0] for command in commands()} == {"demo", "plan", "sim"}


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_pages_works_as_written(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    if PLACEHOLDER.search(command):
        assert main([*PLACEHOLDER.split(command)[0].split()[:2], "--help"]) == 0
        return
    words = shlex.split(command)
    saved = own_files(tmp_path)
    words = [saved.get(word, str(tmp_path / "out.txt") if word.startswith("/tmp/") else word) for word in words]  # noqa: S108
    assert main(words) == 0, capsys.readouterr()
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_of_a_page_exists(page: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in lines(page):
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            assert words[1] in targets, line
        else:
            assert line.startswith(PREFIX), line


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
