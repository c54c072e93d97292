"""A database for tests, by both names: SQLite in a file, and a PostgreSQL of our own where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.runtime.postgres import PostgreSQL, postgresql_missing

from isocast.runtime.disk.database import sqlite_url


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    """One server for all tests of a process; each empties it first, and whoever kills it starts it again."""
    if missing := postgresql_missing():
        pytest.skip(missing)
    with TemporaryDirectory(prefix="isocast-pg-", dir="/tmp") as folder:
        server = PostgreSQL(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgresql_url(postgresql: PostgreSQL) -> str:
    return postgresql.url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database."""
    if request.param == "sqlite":
        return sqlite_url(tmp_path / "books.db")
    server: PostgreSQL = request.getfixturevalue("postgresql")
    server.empty()
    return server.url
