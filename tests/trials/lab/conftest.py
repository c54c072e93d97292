"""Tests of a real lab are skipped only where the kernel refuses one, and say what it refuses."""

import pytest

from isocast.trials.lab.readiness import check_machine, missing


@pytest.fixture(scope="session")
def machine() -> None:
    """A lab runs here, as whoever we are."""
    refused = missing(check_machine())
    if refused:
        pytest.skip(f"no lab on this machine: {refused}")


@pytest.fixture(scope="session")
def machine_without_root() -> None:
    """A lab runs here in a user namespace."""
    refused = missing(check_machine(user_namespace=True))
    if refused:
        pytest.skip(f"no lab without root on this machine: {refused}")
