"""The units say what the program does: their command parses, their limits suffice, systemd understands them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

from isocast.cli.app import app
from isocast.runtime.market.file import market_from_mapping
from isocast.runtime.market.key_files import needed_by
from isocast.runtime.net.clock import FIFO_PRIORITY

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "packaging" / "systemd"
HOW_TO = ROOT / "docs" / "how-to" / "several-machines.md"
SERVICE = UNITS / "isocast@.service"


def unit(path: Path) -> ConfigParser:
    parser = ConfigParser(strict=True, interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(path, encoding="utf-8")
    return parser


def words(command: str) -> list[str]:
    program, *rest = command.replace("%i", "london").split()
    assert program == "/opt/isocast/bin/isocast"
    return rest


def test_the_command_line_is_one_that_the_program_takes() -> None:
    command, bound, _ = app.parse_args(words(unit(SERVICE)["Service"]["ExecStart"]), exit_on_error=False)
    assert command.__module__ == "isocast.cli.node"
    assert bound.arguments["name"] == "london"
    assert bound.arguments["config"] == Path("/etc/isocast/market.toml")
    assert bound.arguments.get("new", False) is False


def test_the_commands_of_comments_and_of_the_how_to_parse_too() -> None:
    pages = [SERVICE.read_text(encoding="utf-8"), HOW_TO.read_text(encoding="utf-8")]
    found = [line for page in pages for line in re.findall(r"/opt/isocast/bin/isocast (.+)$", page, re.MULTILINE)]
    found = [line for line in found if not line.startswith("node --config /etc/isocast/market.toml --name %i")]
    assert len(found) >= 6
    for line in found:
        app.parse_args(line.split(" | ")[0], exit_on_error=False, print_error=False)


def test_a_node_is_restarted_unless_its_input_is_bad_and_waits_for_others_as_long_as_it_takes() -> None:
    service = unit(SERVICE)["Service"]
    assert (service["Type"], service["Restart"], service["RestartPreventExitStatus"]) == ("notify", "on-failure", "2")
    assert service["TimeoutStartSec"] == "infinity"
    assert unit(SERVICE)["Unit"]["StartLimitIntervalSec"] == "0"


def test_the_limits_allow_what_the_program_asks_for() -> None:
    service = unit(SERVICE)["Service"]
    assert int(service["LimitRTPRIO"]) >= FIFO_PRIORITY
    assert service["CapabilityBoundingSet"] == ""
    assert {"AF_INET", "AF_UNIX"} <= set(service["RestrictAddressFamilies"].split())


@pytest.mark.parametrize("option", ["ProtectClock", "ProcSubset", "RestrictRealtime", "DynamicUser", "PrivateNetwork"])
def test_what_would_break_a_node_is_not_there(option: str) -> None:
    """Each makes it misjudge its clock or its disk, or miss its instants; the unit says which and why."""
    assert option not in unit(SERVICE)["Service"]


def test_reading_the_clock_s_error_is_allowed() -> None:
    assert "adjtimex" in unit(SERVICE)["Service"]["SystemCallFilter"].split()


def test_nodes_belong_to_the_target() -> None:
    assert unit(SERVICE)["Install"]["WantedBy"] == "isocast.target"
    assert unit(SERVICE)["Unit"]["PartOf"] == "isocast.target"
    assert unit(UNITS / "isocast.target")["Install"]["WantedBy"] == "multi-user.target"


def test_the_how_to_installs_every_file() -> None:
    page = HOW_TO.read_text(encoding="utf-8")
    for path in UNITS.iterdir():
        assert path.name in page, path.name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    isocast = tmp_path / "isocast"
    isocast.symlink_to(sys.executable)
    text = SERVICE.read_text(encoding="utf-8").replace("/opt/isocast/bin/isocast", str(isocast))
    (tmp_path / "isocast@london.service").write_text(text, encoding="utf-8")
    shutil.copy(UNITS / "isocast.target", tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(tmp_path / "isocast@london.service"), str(tmp_path / "isocast.target")],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    mine = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "isocast" in line]
    assert (done.returncode, mine) == (0, [])


# ---- the pages that go with them


def test_the_market_of_the_how_to_is_sound_and_every_machine_has_the_keys_it_needs() -> None:
    page = HOW_TO.read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    reading = market_from_mapping(tomllib.loads(text), "market.toml")
    assert reading.faults == ()
    assert reading.warnings == ()
    market = reading.market
    assert market is not None
    machines = re.findall(r"^\| `\w+` \| (10\.20\.0\.\d+) \| (.+) \|$", page, flags=re.MULTILINE)
    assert len(machines) == 3
    for address, nodes in machines:
        here = {plan.name for plan in market.nodes if plan.address == address}
        assert here == set(re.findall(r"`([\w-]+)`", nodes))
    needed = {name for plan in market.nodes if plan.address == "10.20.0.11" for name in needed_by(market, plan)}
    row = re.search(r"^\| `one` \| (.+\.key.+) \|$", page, flags=re.MULTILINE)
    assert row is not None
    assert needed == set(re.findall(r"`([\w-]+\.(?:key|bin))`", row[1]))
    ports = {plan.port + place for plan in market.nodes for place in range(4)}
    assert (min(ports), max(ports)) == (7_710, 7_721)


def test_every_alarm_is_explained() -> None:
    page = (ROOT / "docs" / "how-to" / "operate.md").read_text(encoding="utf-8")
    explained = {re.sub(r"(REASON|NAME).*", "", code) for code in re.findall(r"`([a-z][\w-]*)`", page)}
    found: set[str] = set()
    for path in (ROOT / "src" / "isocast" / "runtime").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        found |= set(re.findall(r'\balarm\(\s*f?"([a-z-]+)', text))
    assert len(found) > 15
    assert found - explained == set()
