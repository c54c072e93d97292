"""Where a running lab is found."""

from pathlib import Path

import pytest

from isocast.terms.errors import ConfigurationError
from isocast.trials.lab.lab import RunDirectory, default_run_directory


def test_one_lab_at_a_time(tmp_path: Path) -> None:
    with (
        RunDirectory(tmp_path / "run"),
        pytest.raises(ConfigurationError, match=r"a lab runs in .* already"),
        RunDirectory(tmp_path / "run"),
    ):
        pass
    with RunDirectory(tmp_path / "run"):
        pass


def test_others_must_not_be_able_to_write_there(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(ConfigurationError, match="yours alone"), RunDirectory(directory):
        pass


def test_a_link_to_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "run").symlink_to(tmp_path / "mine")
    with pytest.raises(ConfigurationError, match="--run"), RunDirectory(tmp_path / "run"):
        pass


def test_a_path_that_no_socket_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too long for a socket"), RunDirectory(tmp_path / ("x" * 100)):
        pass


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(ConfigurationError, match="--run"), RunDirectory(tmp_path / "run"):
        pass


def test_by_itself_a_lab_takes_a_directory_of_its_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_run_directory().parent == tmp_path
