"""A world as a file: whole, or refused with file, key and rule."""

from pathlib import Path

import pytest

from isocast.terms.errors import ConfigurationError
from isocast.trials.lab.nodes import LabNode
from isocast.trials.lab.world import LinkImpairment
from isocast.trials.lab.world_file import load_world

WHOLE = """
seed = 3
loss = 0.01
jitter = "2ms"
mtu = 9000

[sites]
newyork = "New York"
london = "London"

[[links]]
between = ["newyork", "london"]
delay = "10ms"
loss = 0
one_way = true

[[nodes]]
name = "clock"
site = "london"
command = ["sleep", "1"]
"""
SITES = '[sites]\na = "London"\nb = "Tokyo"\n'


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "world.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_whole_file(tmp_path: Path) -> None:
    world, nodes = load_world(written(tmp_path, WHOLE))
    assert [site.name for site in world.sites] == ["newyork", "london"]
    assert (world.seed, world.mtu) == (3, 9000)
    assert world.impairments[0, 1] == LinkImpairment(10_000_000, 2_000_000, 0.0)
    assert world.impairments[1, 0].loss == 0.01
    assert nodes == (LabNode("clock", "london", ("sleep", "1")),)


@pytest.mark.parametrize(
    "text, key, rule",
    [
        ("", "sites", "from 1 to 64"),
        ("los = 0.1\n", "los", 'unknown key; did you mean "loss"?'),
        ("= 3\n", "line 1, column 1", "not valid TOML"),
        ("sites = 3\n", "sites", "must be a table"),
        ("[sites]\na = 3\n", "sites.a", "must be a text, in quotes, not 3"),
        ('[sites]\na = "Atlantis"\n', "sites.a", 'unknown city "Atlantis"'),
        (f"loss = 2\n{SITES}", "loss", "from 0 to 1"),
        (f"loss = nan\n{SITES}", "loss", "must be a number"),
        (f"jitter = 2\n{SITES}", "jitter", 'a time with its unit, such as "5ms" or "1.5s", in quotes, not 2'),
        (f'jitter = "2 parsec"\n{SITES}', "jitter", "a time with its unit"),
        (f"seed = -1\n{SITES}", "seed", "from 0"),
        (f"mtu = 100\n{SITES}", "mtu", "from 576 to 9000"),
        (f"{SITES}[links]\n", "links", r"each of them headed \[\[links\]\]"),
        (f'{SITES}[[links]]\nbetween = ["a"]\n', "links[1].between", "two different sites"),
        (f'{SITES}[[links]]\nbetween = ["a", "a"]\n', "links[1].between", "two different sites"),
        (f'{SITES}[[links]]\nbetween = ["a", "c"]\n', "links[1].between", 'unknown site "c"'),
        (f'{SITES}[[links]]\nbetween = ["a", "b"]\nloss = 3\n', "links[1].loss", "from 0 to 1"),
        (f'{SITES}[[links]]\nbetween = ["a", "b"]\ndelay = "61s"\n', "links[1].delay", "from 0 to 60 s"),
        (f'{SITES}[[nodes]]\nname = "x"\nsite = "c"\ncommand = ["true"]\n', "nodes[1].site", 'unknown site "c"'),
        (f'{SITES}[[nodes]]\nname = "x"\nsite = "a"\n', "nodes[1].command", "must be given: a list of texts"),
        (f'{SITES}[[nodes]]\nname = "x"\nsite = "a"\ncommand = []\n', "nodes[1].command", "must not be empty"),
        (
            f'{SITES}[[nodes]]\nname = "x"\nsite = "a"\ncommand = "true"\n',
            "nodes[1].command",
            "must be a list of texts",
        ),
        (f'{SITES}[[nodes]]\nname = "../x"\nsite = "a"\ncommand = ["true"]\n', "nodes[1].name", "begins with a letter"),
        (SITES + '[[nodes]]\nname = "x"\nsite = "a"\ncommand = ["true"]\n' * 2, "nodes", '"x" occurs twice'),
    ],
)
def test_a_bad_file_is_refused_with_key_and_rule(text: str, key: str, rule: str, tmp_path: Path) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigurationError, match=rule) as refused:
        load_world(file)
    assert (refused.value.file, refused.value.key) == (str(file), key)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_world(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="TOML is UTF-8 text"):
        load_world(tmp_path / "bytes.toml")
    (tmp_path / "long.toml").write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(ConfigurationError, match="longer than"):
        load_world(tmp_path / "long.toml")


def test_the_world_of_the_how_to_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "lab.md").read_text(encoding="utf-8")
    text = page.partition("```toml\n")[2].partition("```")[0]
    world, nodes = load_world(written(tmp_path, text))
    assert [site.name for site in world.sites] == ["newyork", "london"]
    assert world.impairments[0, 1] == world.impairments[1, 0] == LinkImpairment(35_000_000, 2_000_000, 0.0)
    assert [node.name for node in nodes] == ["listener"]
