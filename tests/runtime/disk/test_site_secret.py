"""A site's own secret: made once, kept, and nobody else's to read."""

from pathlib import Path

import pytest

from isocast.runtime.disk.site_store import site_secret
from isocast.terms.errors import StoreError


def test_it_is_made_at_the_first_start_and_stays(tmp_path: Path) -> None:
    secret = site_secret(tmp_path)
    assert len(secret) == 32
    assert site_secret(tmp_path) == secret
    assert (tmp_path / "nonces.secret").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["nonces.secret"]


def test_two_sites_have_two(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert site_secret(tmp_path / "a") != site_secret(tmp_path / "b")


def test_a_draft_that_a_crash_left_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "nonces.new").write_bytes(b"half")
    assert len(site_secret(tmp_path)) == 32
    assert not (tmp_path / "nonces.new").exists()


def test_one_of_another_length_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "nonces.secret").write_bytes(b"too short a secret")
    with pytest.raises(StoreError, match=r"nonces\.secret: must have 32 bytes") as caught:
        site_secret(tmp_path)
    assert "short" not in str(caught.value)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/nonces\.secret: cannot be used: No such file"):
        site_secret(tmp_path / "nowhere")
