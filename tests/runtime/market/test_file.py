"""From the bytes of a file to a market, or to everything that is wrong with it."""

from pathlib import Path

import pytest
from tests.runtime.market.markets import SMALL, changed, faults_of, market_of, reading_of

from isocast.runtime.market import file as market_files
from isocast.runtime.market.file import load_market, market_from_mapping, read_market
from isocast.runtime.market.keys import SETTINGS
from isocast.runtime.market.model import (
    ClockSettings,
    ClockSource,
    DelayModel,
    Durability,
    Impairment,
    JournalSettings,
    NetworkMode,
    NetworkSettings,
    SocketFilter,
    StoreSettings,
    TlsMode,
)
from isocast.terms.errors import ConfigurationError

NODES = """
[nodes.a]
role = "primary-receiver"
[nodes.b]
role = "primary-receiver"
[nodes.x]
role = "reformation-server"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "market.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_is_read(tmp_path: Path) -> None:
    market = load_market(written(tmp_path, f'name = "tiny"\ndata = "/var/tiny"\n{NODES}'))
    assert (market.name, market.profile, market.universe) == ("tiny", "world", (1, 2))
    assert market.data_directory == Path("/var/tiny")
    assert market.keys_directory == tmp_path / "keys", "beside the file"


def test_a_remembered_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks of the process that read it need not read it, and an operator may change it at any time."""
    monkeypatch.setattr(market_files, "_remembered", {})
    path = written(tmp_path, f'name = "tiny"\n{NODES}')
    market_files.remember_market(path)
    assert load_market(path) is load_market(path)
    written(tmp_path, f'name = "other"\n{NODES}')
    assert load_market(path).name == "other"
    path.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_market(path)


def test_what_is_left_out_has_its_default() -> None:
    market = market_of()
    assert (market.network.mode, market.network.groups, market.network.port) == ("multicast", "239.255.77.0", 7700)
    assert (market.network.mtu, market.network.receive_buffer) == (1_500, 4 << 20)
    delay = market.timing.release_delay_ns
    assert market.journal == JournalSettings(durability=Durability.POWER, release_delay_ns=delay)
    assert market.log == StoreSettings(Durability.POWER)
    assert market.impairment == Impairment()
    assert market.clock == ClockSettings(100_000, ClockSource.KERNEL, realtime=True)
    assert (market.seal, market.durability, market.stripes) == (True, Durability.POWER, (0,))
    assert (market.window, market.batch_max, market.release_rate) == (4_096, 16_384, 0)


def test_every_setting_arrives() -> None:
    market = market_of(
        {
            "name": "all",
            "seal": False,
            "durability": "process",
            "network": {
                "mode": "fanout",
                "groups": "239.1.1.0",
                "lines": "239.1.2.0",
                "repairs": "239.1.3.0",
                "port": 9000,
                "ttl": 9,
                "source_specific": True,
                "filter": "frames",
                "tls": "on",
                "mtu": 9000,
                "receive_buffer": "1MiB",
            },
            "clock": {"bound": "50us", "source": "configured", "realtime": False},
            "journal": {"segment_bytes": "1MiB", "keep_bytes": "10GB", "keep_time": "7d"},
            "impairment": {"enabled": True, "loss": 0.25, "jitter": "2ms", "delay": "none", "seed": 8},
            "nodes.a": {
                "role": "primary-receiver",
                "number": 9,
                "city": "Atlantis",
                "latitude": 31,
                "longitude": -24.5,
                "address": "127.9.9.9",
                "port": 1000,
                "http_port": 0,
                "tcp_port": 2000,
                "clock_bound": "10us",
            },
            "nodes.bank.grade": "latest",
            "nodes.c.line": False,
        }
    )
    assert market.network == NetworkSettings(
        NetworkMode.FANOUT,
        "239.1.1.0",
        "239.1.2.0",
        "239.1.3.0",
        0,
        9000,
        9,
        source_specific=True,
        filter=SocketFilter.FRAMES,
        tls=TlsMode.ON,
        mtu=9000,
        stripe_ports=100,
        stripe_groups=1_024,
        receive_buffer=1 << 20,
    )
    assert market.clock == ClockSettings(50_000, ClockSource.CONFIGURED, realtime=False)
    assert market.journal == JournalSettings(
        1 << 20, Durability.PROCESS, 10**10, 7 * 86_400, market.timing.release_delay_ns
    )
    assert market.impairment == Impairment(enabled=True, loss=0.25, jitter_ns=2_000_000, delay=DelayModel.NONE, seed=8)
    assert (market.seal, market.durability) == (False, Durability.PROCESS)
    plan = market.node("a")
    assert (plan.number, plan.address, plan.port, plan.http_port, plan.tcp_port) == (9, "127.9.9.9", 1000, 0, 2000)
    assert plan.place is not None
    assert (plan.place.name, plan.place.latitude, plan.place.longitude) == ("Atlantis", 31.0, -24.5)
    assert plan.clock_error_ns == 10_000
    assert market.node("b").clock_error_ns == 50_000
    assert market.node("bank").grade == "latest"
    assert (market.node("b").line, market.node("c").line) == (True, False)


def test_all_faults_are_told_at_once() -> None:
    found = faults_of(
        {
            "sael": True,
            "network.mtu": 1000,
            "network.ttl": "one",
            "timing.detect": 5,
            "nodes.a.city": "Lodnon",
            "nodes.bank.lines": ["b", "nobody"],
            "nodes.a2.parent": "bank",
            "nodes.broker.role": "broker",
        }
    )
    assert [key for key, _ in found] == [
        "sael",
        "timing.detect",
        "network.ttl",
        "network.mtu",
        "nodes.broker.role",
        "nodes.a.city",
        "nodes.a2.parent",
        "nodes.bank.lines",
    ]


def test_loading_raises_the_first_fault_and_says_how_many_more(tmp_path: Path) -> None:
    file = written(tmp_path, f"seal = 1\ndurability = 2\n{NODES}")
    with pytest.raises(ConfigurationError) as caught:
        load_market(file)
    assert (caught.value.file, caught.value.key) == (str(file), "seal")
    assert caught.value.rule == f"must be true or false, not 1 (and 1 more: isocast config check {file})"
    with pytest.raises(ConfigurationError, match=r"must be true or false, not 1$"):
        load_market(written(tmp_path, f"seal = 1\n{NODES}"))


@pytest.mark.parametrize(
    "content, key, rule",
    [
        (b"name = = 1", "line 1", "not valid TOML"),
        (b"[nodes.a]\nrole='customer'\n[nodes.a]\n", "line 3", "not valid TOML: Cannot declare ('nodes', 'a') twice"),
        (b"name = 'x", "line 1", "not valid TOML"),
        (b"\n\nname = '\xff'", "line 3", "TOML is UTF-8 text"),
        (b"x = " + b"[" * 100_000, "line 1", "not valid TOML"),
        (b"#" * (5 << 20), "file", "is longer than"),
    ],
)
def test_a_file_that_is_no_toml_names_the_line(content: bytes, key: str, rule: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    (fault,) = read_market(file).faults
    assert (fault.file, fault.key.split(",")[0]) == (str(file), key)
    assert rule in fault.rule


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (fault,) = read_market(tmp_path / "none.toml").faults
    assert (fault.key, fault.rule) == ("file", "cannot be read: No such file or directory")
    (fault,) = read_market(tmp_path).faults
    assert fault.rule == "cannot be read: Is a directory"


@pytest.mark.parametrize(
    "changes, key, rule",
    [
        ({"netwrok": {"mtu": 1500}}, "netwrok", 'unknown table; did you mean "network"?'),
        ({"network": 5}, "network", "must be a table, [network], not 5"),
        ({"nodes": [1]}, "nodes", "must be tables, one for each process, such as [nodes.london]"),
        ({"nodes.a": 7}, "nodes.a", "must be a table, [nodes.a], not 7"),
        ({"mtu": 1500}, "mtu", "unknown key: it belongs into [network]"),
        ({"ring.seal": True}, "ring.seal", "unknown key: it belongs before the first table"),
        ({"timing.detekt": "5ms"}, "timing.detekt", 'unknown key; did you mean "detect"?'),
        ({"nodes.a.prot": 1}, "nodes.a.prot", 'unknown key; did you mean "port"?'),
        ({"nodes.a.zzzzzz": 1}, "nodes.a.zzzzzz", "unknown key"),
    ],
)
def test_unknown_keys_and_tables(changes: dict[str, object], key: str, rule: str) -> None:
    assert (key, rule) in faults_of(changes)


def test_a_fault_is_one_line_whatever_the_file_holds() -> None:
    found = faults_of({"a\nb\x1b[31m": 1, "name": "x\ny"})
    assert all(text.isprintable() for fault in found for text in fault)


@pytest.mark.parametrize("table", SETTINGS, ids=lambda table: table.name or "top")
def test_every_table_may_be_left_out_or_be_empty(table: object) -> None:
    name = getattr(table, "name")  # noqa: B009  # parametrised as an object
    if name and name != "timing":
        assert reading_of({name: {}}).market is not None


def test_an_empty_file_says_what_a_market_needs() -> None:
    reading = market_from_mapping({})
    assert [fault.rule.split(":")[0] for fault in reading.faults] == [
        "a market needs at least 2 primary-receivers, not 0",
        "a market needs at least 1 reformation-server, not 0",
    ]


def test_the_example_of_these_tests_is_sound_and_without_a_warning() -> None:
    assert reading_of().warnings == ()
    assert changed({}) == SMALL
