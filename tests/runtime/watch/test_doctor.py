"""Every verdict of the doctor, from finds that a test puts there; and the real machine once."""

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.market.markets import market_of

from isocast.runtime.market.model import (
    ClockSettings,
    ClockSource,
    Durability,
    Market,
    NetworkMode,
    NodePlan,
    NodeRole,
)
from isocast.runtime.net.kernel import KernelClock
from isocast.runtime.watch.doctor import (
    CheckOutcome,
    DoctorFinding,
    ListeningNode,
    Probes,
    SecretFile,
    Wants,
    examine,
    wants_of,
)
from isocast.terms.instants import MICROSECOND, MILLISECOND, SECOND
from isocast.terms.timing import Timing

OK, WARN, FAIL = CheckOutcome.OK, CheckOutcome.WARN, CheckOutcome.FAIL
NODE = ListeningNode("london", "127.1.0.1", (("udp", 7710), ("tcp", 7780)), 7780)


class Machine(Probes):
    """A machine on which all is well, except for what a test says."""

    finds: dict[str, Any] = {  # noqa: RUF012
        "python_version": (3, 11, 7),
        "platform": "linux",
        "cpu_count": 8,
        "kernel_clock": KernelClock(synchronised=True, max_error_ns=50 * MICROSECOND),
        "multicast_trouble": "",
        "segmentation_trouble": "",
        "coalescing_trouble": "",
        "receive_buffer_max": 64 << 20,
        "may_force_buffers": False,
        "timer_lateness_ns": [20 * MICROSECOND] * 100,
        "has_address": True,
        "port_trouble": "",
        "running_node": None,
        "open_files_max": 1 << 16,
        "free_bytes": 100 << 30,
        "sync_ns": [MILLISECOND, 2 * MILLISECOND, 3 * MILLISECOND],
        "key_files": [SecretFile(Path("/keys/core.key"), 0o600, owned=True)],
        "may_use_namespaces": True,
        "tun_trouble": "",
        "may_use_fifo": True,
    }

    def __init__(self, **finds: Any) -> None:  # noqa: ANN401
        assert set(finds) <= set(self.finds)
        for name, found in (self.finds | finds).items():
            setattr(self, name, found if callable(found) else lambda *_, found=found: found)


WANTS = Wants(
    nodes=(NODE,),
    clock_bound_ns=MILLISECOND,
    kernel_clock_counts=True,
    timer_limit_ns=50 * MILLISECOND,
    data_directory=Path("/data"),
    durability=Durability.POWER,
    process_ns=20 * MILLISECOND,
    keys_directory=Path("/keys"),
)


def found(check: str, wants: Wants = WANTS, **finds: Any) -> DoctorFinding:  # noqa: ANN401
    (finding,) = [one for one in examine(wants, Machine(**finds)) if one.check == check]
    return finding


def test_every_probe_has_a_find() -> None:
    assert set(Machine.finds) == {name for name in vars(Probes) if not name.startswith("_")}


def test_a_good_machine_passes_every_check() -> None:
    findings = list(examine(WANTS, Machine()))
    assert len(findings) == 16
    for finding in findings:
        assert finding.outcome is OK, finding
        assert finding.found
        assert not finding.change


def test_without_a_market_only_the_machine_is_looked_at() -> None:
    checks = {finding.check for finding in examine(probes=Machine())}
    assert not checks & {"ports", "disk", "keys"}
    assert {"clock", "multicast", "receive buffer", "timers"} <= checks


@pytest.mark.parametrize(
    "check, finds, outcome, change",
    [
        ("python", {"python_version": (3, 10, 9)}, FAIL, "Python 3.11"),
        ("python", {"platform": "darwin"}, FAIL, "Linux"),
        ("processors", {"cpu_count": 1}, WARN, "two"),
        ("clock", {"kernel_clock": None}, WARN, "clock.bound"),
        ("clock", {"kernel_clock": KernelClock(synchronised=False, max_error_ns=16 * SECOND)}, WARN, "chrony"),
        (
            "clock",
            {"kernel_clock": KernelClock(synchronised=True, max_error_ns=2 * MILLISECOND)},
            FAIL,
            "at least 2 ms",
        ),
        ("multicast", {"multicast_trouble": "Network is unreachable"}, FAIL, 'mode = "fanout"'),
        ("UDP segmentation", {"segmentation_trouble": "Protocol not available"}, WARN, "4.18"),
        ("UDP coalescing", {"coalescing_trouble": "Protocol not available"}, WARN, "5.0"),
        ("receive buffer", {"receive_buffer_max": 212_992}, WARN, "sysctl -w net.core.rmem_max=4194304"),
        ("receive buffer", {"receive_buffer_max": None}, WARN, "net.core.rmem_max"),
        ("timers", {"timer_lateness_ns": []}, FAIL, "timerfd"),
        ("timers", {"timer_lateness_ns": [0] * 90 + [2 * MILLISECOND] * 10}, WARN, "real-time priority"),
        ("timers", {"timer_lateness_ns": [0] * 90 + [51 * MILLISECOND] * 10}, FAIL, "δ_N = 50 ms"),
        ("real-time priority", {"may_use_fifo": False}, WARN, "LimitRTPRIO"),
        ("open files", {"open_files_max": 256}, WARN, "ulimit -n"),
        ("open files", {"open_files_max": 32}, FAIL, "ulimit -n"),
        ("ports", {"port_trouble": "Address already in use"}, FAIL, "ss -lnp"),
        ("ports", {"port_trouble": "Address already in use", "running_node": "paris"}, FAIL, "ss -lnp"),
        ("ports", {"has_address": False}, WARN, "ip -brief address"),
        ("disk", {"free_bytes": None}, FAIL, "another data directory"),
        ("disk", {"free_bytes": 100 << 20}, FAIL, "make room"),
        ("disk", {"free_bytes": 1 << 30}, WARN, "make room"),
        ("keys", {"key_files": None}, WARN, "isocast keys init"),
        ("keys", {"key_files": []}, WARN, "isocast keys init"),
        (
            "keys",
            {"key_files": [SecretFile(Path("/keys/core.key"), 0o640, owned=True)]},
            FAIL,
            "chmod 600 /keys/core.key",
        ),
        ("keys", {"key_files": [SecretFile(Path("/keys/core.key"), 0o600, owned=False)]}, WARN, "user who owns"),
        ("lab: namespaces", {"may_use_namespaces": False}, WARN, "sysctl"),
        ("lab: tun", {"tun_trouble": "No such file or directory"}, WARN, "modprobe tun"),
    ],
)
def test_what_is_not_well_is_named_with_what_to_change(
    check: str, finds: dict[str, Any], outcome: CheckOutcome, change: str
) -> None:
    wants = replace(WANTS, nodes=(replace(NODE, ports=NODE.ports[:1]),))
    finding = found(check, wants, **finds)
    assert finding.outcome is outcome
    assert change in finding.change


def test_an_unsynchronised_clock_says_which_bound_counts() -> None:
    bad = KernelClock(synchronised=False, max_error_ns=16 * SECOND)
    assert "the configured bound of 1 ms counts" in found("clock", kernel_clock=bad).found
    assert "counts" not in found("clock", Wants(), kernel_clock=bad).found


def test_a_wide_kernel_bound_matters_only_where_it_counts() -> None:
    wide = KernelClock(synchronised=True, max_error_ns=SECOND)
    assert found("clock", replace(WANTS, kernel_clock_counts=False), kernel_clock=wide).outcome is OK


def test_a_privileged_user_goes_past_the_buffer_limit() -> None:
    finding = found("receive buffer", receive_buffer_max=1, may_force_buffers=True)
    assert finding.outcome is OK
    assert "may go past" in finding.found


def test_a_node_that_runs_already_may_have_its_ports() -> None:
    finding = found("ports", port_trouble="Address already in use", running_node="london")
    assert (finding.outcome, finding.found) == (OK, "of 1 node 1 running already")


def test_a_program_that_listens_may_have_its_customers_place() -> None:
    seat = ListeningNode("desk", "127.1.0.3", (("udp", 7710), ("tcp", 7780)), http_port=7780, is_seat=True)
    wants = replace(WANTS, nodes=(seat,))

    def only_udp(kind: str, _address: str, _port: int) -> str:
        return "Address already in use" if kind == "udp" else ""

    finding = found("ports", wants, port_trouble=only_udp, running_node=None)
    assert (finding.outcome, finding.found) == (OK, "of 1 node 1 taken by a program that listens")
    taken = {"port_trouble": "Address already in use", "running_node": None}
    assert found("ports", wants, **taken).outcome is FAIL


def test_whoever_has_the_ports_is_named() -> None:
    finding = next(
        one
        for one in examine(WANTS, Machine(port_trouble="Address already in use", running_node="paris"))
        if one.check == "ports"
    )
    assert finding.found == "london: udp 127.1.0.1:7710: Address already in use (a node called paris answers there)"


def test_each_node_with_a_clash_is_named_and_the_rest_counted() -> None:
    nodes = (
        NODE,
        ListeningNode("paris", "127.1.0.2", (("udp", 7710),)),
        ListeningNode("tokyo", "10.9.9.9", (("udp", 7710),)),
    )

    def trouble(kind: str, address: str, _port: int) -> str:
        return "Address already in use" if (kind, address) == ("tcp", "127.1.0.1") else ""

    findings = [
        one
        for one in examine(
            replace(WANTS, nodes=nodes),
            Machine(port_trouble=trouble, has_address=lambda address: address.startswith("127.")),
        )
        if one.check == "ports"
    ]
    assert [finding.found for finding in findings] == [
        "london: tcp 127.1.0.1:7780: Address already in use",
        "of 3 nodes 1 free, 1 on other machines",
    ]


def test_multicast_is_tried_on_every_interface_of_this_machine() -> None:
    tried: list[str] = []

    def trouble(address: str) -> str:
        tried.append(address)
        return ""

    wants = replace(WANTS, interfaces=("10.0.0.5", "10.0.0.6", "10.9.9.9"))
    machine = Machine(multicast_trouble=trouble, has_address=lambda address: address != "10.9.9.9")
    assert len([one for one in examine(wants, machine) if one.check == "multicast"]) == 2
    assert tried == ["10.0.0.5", "10.0.0.6"]


def test_a_market_without_multicast_or_priority_is_not_asked_for_them() -> None:
    wants = replace(WANTS, multicast=False, realtime=False)
    checks = {finding.check for finding in examine(wants, Machine(multicast_trouble="x", may_use_fifo=False))}
    assert not checks & {"multicast", "real-time priority"}


# ---- what a market asks


def market(mode: NetworkMode, address: str = "127.1.0.1") -> Market:
    plan = NodePlan("london", NodeRole.PRIMARY_RECEIVER, 1, 1, address, 7710, http_port=7780, tcp_port=7790)
    usual = market_of()
    return replace(
        usual,
        nodes=(plan,),
        timing=Timing(detect_ns=50 * MILLISECOND),
        data_directory=Path("/data"),
        keys_directory=Path("/keys"),
        network=replace(usual.network, mode=mode, receive_buffer=9 << 20),
        clock=ClockSettings(MILLISECOND, ClockSource.CONFIGURED, realtime=False),
    )


def test_a_market_asks_for_what_its_file_says() -> None:
    wants = wants_of(market(NetworkMode.MULTICAST))
    assert wants.nodes == (ListeningNode("london", "127.1.0.1", (("udp", 7710), ("tcp", 7780), ("tcp", 7790)), 7780),)
    assert (wants.receive_buffer, wants.clock_bound_ns, wants.timer_limit_ns) == (
        9 << 20,
        MILLISECOND,
        50 * MILLISECOND,
    )
    assert (wants.multicast, wants.realtime, wants.kernel_clock_counts) == (True, False, False)
    assert (wants.data_directory, wants.keys_directory) == (Path("/data"), Path("/keys"))
    assert wants.interfaces == ("127.0.0.1",)
    fanout = wants_of(market(NetworkMode.FANOUT, "10.0.0.5"))
    assert [port for kind, port in fanout.nodes[0].ports if kind == "udp"] == [7710, 7711, 7712, 7713]
    assert (fanout.multicast, fanout.interfaces) == (False, ("10.0.0.5",))


# ---- the real machine


def test_the_real_probes_answer() -> None:
    findings = list(examine())
    assert {finding.check for finding in findings} >= {"python", "clock", "multicast", "timers", "open files"}
    by_check = {finding.check: finding for finding in findings}
    assert by_check["python"].outcome is OK
    assert by_check["multicast"].outcome is OK, "loopback has it everywhere"
    assert "p99" in by_check["timers"].found


def test_timers_are_never_early() -> None:
    late = Probes().timer_lateness_ns(20 * MILLISECOND)
    assert late
    assert late[0] >= 0


def test_a_port_in_use_is_found() -> None:
    probes = Probes()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        udp.bind(("127.0.0.1", 0))
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        assert probes.port_trouble("udp", *udp.getsockname()) == "Address already in use"
        assert probes.port_trouble("tcp", *tcp.getsockname()) == "Address already in use"
        here = udp.getsockname()
    assert probes.port_trouble("udp", *here) == ""
    assert probes.running_node("127.0.0.1", 1) is None


def test_addresses_of_others_are_not_ours() -> None:
    assert Probes().has_address("127.3.2.1")
    assert not Probes().has_address("192.0.2.1")


def test_multicast_on_an_interface_that_is_not_there_is_trouble() -> None:
    assert Probes().multicast_trouble("192.0.2.1")


def test_key_files_show_their_modes(tmp_path: Path) -> None:
    assert Probes().key_files(tmp_path / "none") is None
    assert Probes().key_files(tmp_path) == []
    (tmp_path / "sources").mkdir()
    for name, mode in (("core.key", 0o600), ("sources/floor.key", 0o644)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    files = Probes().key_files(tmp_path)
    assert files is not None
    assert [(file.path.name, file.mode, file.owned) for file in files] == [
        ("core.key", 0o600, True),
        ("floor.key", 0o644, True),
    ]


def test_free_space_is_that_of_the_nearest_directory(tmp_path: Path) -> None:
    free = Probes().free_bytes(tmp_path / "not" / "yet")
    assert free is not None
    assert free > 0
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        assert Probes().free_bytes(tmp_path) is None


# ---- what the durability means


def test_power_says_what_it_survives_and_what_it_costs_here() -> None:
    finding = found("durability")
    assert finding.outcome is OK
    assert "power: survives kill -9, and a power cut" in finding.found
    assert "takes 2 ms for a write, 3 ms at most of 3" in finding.found


def test_a_disk_slower_than_a_node_may_be_is_a_warning() -> None:
    finding = found("durability", sync_ns=[30 * MILLISECOND])
    assert finding.outcome is WARN
    assert "longer than P = 20 ms is late with its token" in finding.change
    assert found("durability", sync_ns=None).outcome is WARN


@pytest.mark.parametrize("is_trial, outcome", [(True, OK), (False, WARN)])
def test_process_says_what_it_does_not_survive(is_trial: bool, outcome: CheckOutcome) -> None:  # noqa: FBT001 (a parameter)
    finding = found("durability", replace(WANTS, durability=Durability.PROCESS, is_trial=is_trial))
    assert finding.outcome is outcome
    assert "not a power cut" in finding.found
    assert "must come back under a new number" in finding.found
    assert ('durability = "power"' in finding.change) != is_trial


def test_the_disk_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    waits = Probes().sync_ns(tmp_path / "not" / "there", 3)
    assert waits is not None
    assert (len(waits), sorted(waits)) == (3, waits)
    assert list(tmp_path.iterdir()) == []
