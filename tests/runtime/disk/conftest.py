"""Where the tests of a store write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.runtime.disk.disks import quick_directory


@pytest.fixture
def directory() -> Iterator[Path]:
    """A site's, that nobody has made yet, on a disk that is quick."""
    with quick_directory() as name:
        yield Path(name) / "london"
