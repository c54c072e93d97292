"""The command as a user meets it: help that teaches, errors in one line, exit codes that mean something."""

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from time import monotonic, sleep

import pytest
from cyclopts import App

from isocast import __version__
from isocast.cli.app import app
from isocast.cli.main import main
from isocast.cli.overview import COMMANDS
from isocast.simulation.scenario import scenario_from_mapping

ROOT = Path(__file__).parents[2]


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"isocast {__version__}\n"


def test_the_list_of_commands_says_what_each_command_says_of_itself() -> None:
    for name, (_, text) in COMMANDS.items():
        assert text == " ".join(app[name].help.partition("\n\n")[0].split()), name


@pytest.mark.parametrize(
    "words, heavy",
    [
        ([], "cyclopts rich numpy asyncio dataclasses pathlib json"),
        (["--help"], "cyclopts rich numpy asyncio dataclasses pathlib json"),
        (["--version"], "cyclopts rich numpy asyncio dataclasses pathlib json"),
        (
            ["publish", "--config", "none.toml", "--source", "a"],
            "rich structlog pyarrow isocast.feeds isocast.ring.effects isocast.ring.receiver isocast.security.packages",
        ),
        (["keys", "check", "--config", "none.toml"], "rich numpy structlog"),
    ],
)
def test_a_command_imports_what_it_needs_and_no_more(words: list[str], heavy: str) -> None:
    """bench/start.py has the times that follow."""
    program = (
        "import sys; from isocast.cli.main import main; main(sys.argv[1:]); print('\\n', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, encoding="utf-8", check=True)
    assert sorted(set(heavy.split()) & set(done.stderr.split())) == []


def test_the_list_of_commands_says_what_each_is_for() -> None:
    done = subprocess.run([sys.executable, "-m", "isocast"], capture_output=True, encoding="utf-8", check=True)
    assert re.search(r"keys +Make and check the key files", done.stdout)
    assert "isocast config example" in done.stdout


@pytest.mark.parametrize(
    "command, key",
    [
        ("lake run --journals data --lake s3a://bucket/lake", "--lake"),
        ("lake run --journals=s3a://bucket/data --lake lake", "--journals"),
        ("lake bars --lake lake --out hdfs://name/bars.parquet", "--out"),
        ("lake audit --journals gs://bucket/data --report audit.html", "--journals"),
        ("lake audit --journals data --report s3://bucket/audit.html", "--report"),
        ("journal verify s3a://bucket/journal", "path"),
        ("feed show abfss://box@host/a.gz", "path"),
        ("config example --out dbfs:/market.toml", "--out"),
    ],
)
def test_a_place_in_an_object_store_is_refused_by_every_command_and_nothing_is_made(
    command: str, key: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    got = capsys.readouterr()
    assert (got.out, got.err.count("\n")) == ("", 1)
    assert got.err.startswith(f"isocast: command line: {key}: ")
    assert "mount it and give the folder" in got.err
    assert list(tmp_path.iterdir()) == []


def test_the_url_of_a_file_is_refused_with_its_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "verify", "file:///srv/data"]) == 2
    assert "give the path itself: /srv/data" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command, rule",
    [
        ("simm", 'Did you mean "sim"?'),
        ("sim rnu", 'Did you mean "run"?'),
        ("sim run", "requires an argument"),
        ("sim run x.toml --sede 3", "Did you mean --seed?"),
        ("sim run x.toml --seed -1", "Must be >= 0"),
        ("sim run x.toml --seed one", 'unable to convert "one"'),
        ("sim swarm --seeds 0", "Must be >= 1"),
        ("plan timing --gate sometimes", "Choose from"),
        ("plan timing 3", "'3' is more than this command takes. (isocast plan timing --help explains it)"),
    ],
)
def test_a_mistake_in_the_command_line_is_one_line_and_exit_2(
    command: str, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command.split()) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert got.err.startswith("isocast: ")
    assert rule in got.err


@pytest.mark.parametrize(
    "text, key, rule",
    [
        ("recievers = 10\n", "recievers", 'unknown key; did you mean "receivers"?'),
        ("detect = -0.1\n", "detect", "must not be negative"),
        ("token_period = 2.0\n", "token_period", "τ_t must be at least δ_N+2ε+k_r·τ_r = 0.375+2·0+3·0.8 = 2.775 s"),
        ("receivers = 1\n", "receivers", "a ring needs at least 2 receivers, not 1"),
        ('ring = ["London"]\n', "ring", "a ring needs at least 2 cities, not 1"),
        ("loss = 0.1\nloss = = 2\n", "line 2", "not valid TOML"),
    ],
)
def test_a_bad_scenario_names_file_key_and_rule_and_exits_2(
    text: str, key: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text, encoding="utf-8")
    assert main(["sim", "run", str(file), "--json"]) == 2
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.count("\n") == 1
    assert got.err.startswith(f"isocast: {file}: {key}")
    assert rule in got.err


def test_a_process_of_its_own_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text("receivers = 1\n", encoding="utf-8")
    command = "import sys; from isocast.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", command, "sim", "run", str(file)], capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"isocast: {file}: receivers: a ring needs at least 2 receivers, not 1\n"


def test_a_terminal_without_greek_letters_still_gets_its_numbers() -> None:
    command = "import sys; from isocast.cli.main import main; sys.exit(main(['plan', 'timing']))"
    done = subprocess.run(
        [sys.executable, "-c", command],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert b"2.775 s" in done.stdout


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = "import sys; from isocast.cli.main import main; sys.exit(main(['sim', 'keys', '--json']))"
    with subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
    assert process.returncode in (0, 141)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_an_output_that_is_full_is_one_line() -> None:
    command = [sys.executable, "-m", "isocast", "floor", "rules"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (3, b"isocast: cannot go on: No space left on device\n")


def test_ctrl_c_ends_a_command_and_its_workers_with_one_line() -> None:
    """A terminal sends it to everybody; none of them has a traceback."""
    command = [sys.executable, "-m", "isocast", "sim", "swarm", "--seeds", "100000", "--jobs", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", start_new_session=True
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until = monotonic() + 60
        while len(workers := children.read_text(encoding="ascii").split()) < 2:
            assert monotonic() < until
            sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60) == ("", "isocast: interrupted\n")
    assert process.returncode == 130
    for worker in workers:
        assert not Path(f"/proc/{worker}/cmdline").is_file() or not Path(f"/proc/{worker}/cmdline").read_bytes()


def until_it_hears(process: subprocess.Popen[str]) -> None:
    """Before a command hears signals it is Python that starts."""
    until = monotonic() + 60
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        if caught >> signal.SIGTERM - 1 & 1:
            return
        assert monotonic() < until
        sleep(0.005)


@pytest.mark.long
@pytest.mark.parametrize(
    "command", ["plan timing", "sim swarm --seeds 50 --jobs 2", "feed --help", "sim show --headless"]
)
def test_a_signal_at_any_moment_is_one_line_within_a_second(command: str) -> None:
    draws = random.Random(7)
    for _ in range(10):
        number = draws.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        whole = [sys.executable, "-m", "isocast", *command.split()]
        with subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8") as process:
            until_it_hears(process)
            sleep(draws.uniform(0, 1.35))
            process.send_signal(number)
            _, said = process.communicate(timeout=120)
        assert said in ("", "isocast: interrupted\n")
        assert process.returncode in (0, 130, -number)


# ---- the documentation


def commands(group: App, path: str = "isocast") -> list[tuple[str, App]]:
    found = []
    for name in group:
        if not name.startswith("-"):
            command = group[name]
            found += commands(command, f"{path} {name}") or [(f"{path} {name}", command)]
    return found


@pytest.mark.parametrize("path, command", commands(app), ids=lambda value: value if isinstance(value, str) else "")
def test_the_reference_lists_every_command_with_all_its_options(path: str, command: App) -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    _, found, rest = page.partition(f"\n## {path}\n")
    assert found, path
    section = rest.partition("\n## ")[0]
    for argument in command.assemble_argument_collection():
        for name in argument.names:
            assert name == "*" or f"| `{name}` |" in section, name


HELPS = sorted({tuple(path.split()[1:][:length]) for path, _ in commands(app) for length in range(9)})


@pytest.mark.parametrize("words", HELPS, ids=" ".join)
def test_every_help_has_an_example_of_its_command_for_any_folder(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """An installed package has no folder with the repository's files."""
    assert main([*words, "--help"]) == 0
    out = capsys.readouterr().out
    command = " ".join(["isocast", *words])
    assert f"Usage: {command}" in out
    assert command in " ".join(out[max(out.find("Start with:"), out.find("Example")) :].split())
    assert re.findall(r"isocast [a-z ]*(?:bench|examples|scenarios|worlds)/\S+", out) == []


def test_the_scenario_of_the_how_to_is_valid() -> None:
    page = (ROOT / "docs" / "how-to" / "write-a-scenario.md").read_text(encoding="utf-8")
    blocks = [textwrap.dedent(block) for block in re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)]
    scenario = scenario_from_mapping(tomllib.loads("".join(blocks)))
    assert (scenario.receivers, len(scenario.faults)) == (5, 2)
