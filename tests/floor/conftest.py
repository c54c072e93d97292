"""Both floors: what a test of a case claims holds for the readable one and for the fast one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.floor.cases import Case

from isocast.floor.fast import FastFloor
from isocast.floor.machine import Floor


@pytest.fixture(scope="module", params=(Floor, FastFloor), ids=("readable", "fast"))
def both_floors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Cases of the module's tests run on the one floor, then on the other."""
    before, Case.new_floor = Case.new_floor, request.param
    yield
    Case.new_floor = before
