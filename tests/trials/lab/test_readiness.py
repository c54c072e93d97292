"""What a lab needs of a machine, and what to change."""

import errno
from pathlib import Path

import pytest

from isocast.trials.lab import readiness
from isocast.trials.lab.readiness import Check, check_machine, missing

NEEDED = [
    "device of virtual networks",
    "network namespaces",
    "TAP device in a namespace",
    "addresses in a namespace",
]


def tried() -> list[Check]:
    return list(readiness._checks(user_namespace=None))  # noqa: SLF001


def refuse(number: int) -> object:
    def refused(*_: object, **__: object) -> object:
        raise OSError(number, "refused")

    return refused


@pytest.fixture(autouse=True)
def _nothing_real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every step succeeds without touching this process."""
    monkeypatch.setattr(readiness, "become_real_time", lambda: True)
    monkeypatch.setattr(readiness, "_open_device", lambda: "/dev/net/tun")
    monkeypatch.setattr(readiness, "_namespaces", lambda **_: "as root")
    monkeypatch.setattr(readiness, "_tap", lambda: "wan0")
    monkeypatch.setattr(readiness, "_addresses", lambda: "rtnetlink")
    monkeypatch.setattr(readiness, "_SYSTEM", tmp_path)


def test_a_machine_that_has_everything() -> None:
    checks = tried()
    assert [check.name for check in checks if check.needed] == NEEDED
    assert missing(tuple(checks)) == ""


def test_a_machine_without_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_open_device", refuse(errno.ENOENT))
    device, namespaces, tap, addresses, _ = tried()
    assert not device.passed
    assert "modprobe tun" in device.remedy
    assert "mknod /dev/net/tun c 10 200" in device.remedy
    assert namespaces.passed
    assert (tap.passed, addresses.passed) == (False, False)
    assert missing((device, namespaces, tap, addresses)).startswith("device of virtual networks: refused")


def test_a_device_that_we_may_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_open_device", refuse(errno.EACCES))
    assert "chmod 666 /dev/net/tun" in tried()[0].remedy


@pytest.mark.parametrize(
    "file, value, setting",
    [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ],
)
def test_namespaces_that_a_setting_forbids(
    file: str, value: str, setting: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(readiness, "_namespaces", refuse(errno.EPERM))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(f"{value}\n", encoding="ascii")
    assert tried()[1].remedy == f"as root: sysctl -w {setting}"


def test_namespaces_that_a_container_forbids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_namespaces", refuse(errno.EPERM))
    assert "--cap-add SYS_ADMIN" in tried()[1].remedy
    monkeypatch.setattr(readiness, "_namespaces", refuse(errno.EINVAL))
    assert "CONFIG_NET_NS" in tried()[1].remedy


def test_a_device_that_the_kernel_does_not_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "_tap", refuse(errno.EPERM))
    assert "--cap-add NET_ADMIN" in tried()[2].remedy
    monkeypatch.setattr(readiness, "_tap", refuse(errno.EINVAL))
    assert "CONFIG_TUN" in tried()[2].remedy


def test_no_real_time_priority_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "become_real_time", lambda: False)
    checks = tried()
    assert not checks[-1].passed
    assert checks[-1].remedy
    assert missing(tuple(checks)) == ""


def test_another_system_has_no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert missing(tuple(tried())) == "Linux: darwin"


def test_the_trial_takes_a_process_of_its_own_and_leaves_ours_alone() -> None:
    before = Path("/proc/self/ns/net").readlink()
    checks = check_machine()
    assert Path("/proc/self/ns/net").readlink() == before
    assert [check.name for check in checks if check.needed] == NEEDED
