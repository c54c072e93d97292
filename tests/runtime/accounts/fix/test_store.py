"""The store of numbers and messages: durable, bounded, and clear about what is wrong with it."""

import asyncio
import sqlite3
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from isocast.runtime.accounts.fix import store as module
from isocast.runtime.accounts.fix.store import SESSIONS_MAX, Change, Kept, SessionName, SessionStore
from isocast.terms.errors import StoreError, StoreGone

ANNA = SessionName(7, "ANNA", "ISOCAST")


def run(path: Path, story: Callable[[SessionStore], Awaitable[None]]) -> None:
    is_new = not path.exists()

    async def all_of_it() -> None:
        store = SessionStore(path, is_new=is_new)
        try:
            await story(store)
        finally:
            await store.close()

    asyncio.run(all_of_it())


def test_numbers_and_messages_survive(tmp_path: Path) -> None:
    async def before(store: SessionStore) -> None:
        assert await store.load(ANNA) == Kept(1, 1, 1, 0)
        await store.write(Change(1, 5, 9, 3, frames=[(2, b"two"), (7, b"seven")]))

    async def after(store: SessionStore) -> None:
        assert await store.load(ANNA) == Kept(1, 5, 9, 3)
        assert await store.read(1, 1, 8) == [(2, b"two"), (7, b"seven")]
        assert await store.read(1, 3, 6) == []
        assert await store.read(1, 1, 8, limit=1) == [(2, b"two")]

    run(tmp_path / "fix.db", before)
    run(tmp_path / "fix.db", after)


def test_sessions_of_others_are_others(tmp_path: Path) -> None:
    async def story(store: SessionStore) -> None:
        anna, ben = await store.load(ANNA), await store.load(SessionName(8, "ANNA", "ISOCAST"))
        assert anna is not None
        assert ben is not None
        await store.write(Change(anna.id, 5, 9, 3, frames=[(2, b"two")]))
        assert await store.read(ben.id, 1, 99) == []
        assert await store.load(SessionName(8, "ANNA", "ISOCAST")) == Kept(ben.id, 1, 1, 0)

    run(tmp_path / "fix.db", story)


def test_a_reset_forgets_messages_and_keeps_the_place_in_the_reports(tmp_path: Path) -> None:
    async def story(store: SessionStore) -> None:
        await store.load(ANNA)
        await store.write(Change(1, 5, 9, 3, frames=[(2, b"two")]))
        await store.write(Change(1, 2, 3, 0, forgets=True, frames=[(2, b"new")]))
        assert await store.load(ANNA) == Kept(1, 2, 3, 3)
        assert await store.read(1, 1, 99) == [(2, b"new")]

    run(tmp_path / "fix.db", story)


def test_changes_that_come_together_are_all_made(tmp_path: Path) -> None:
    async def story(store: SessionStore) -> None:
        await store.load(ANNA)
        changes = [Change(1, 1, number + 1, number, frames=[(number, b"%d" % number)]) for number in range(1, 201)]
        await asyncio.gather(*map(store.write, changes))
        assert len(await store.read(1, 1, 999)) == 200
        assert await store.load(ANNA) == Kept(1, 1, 201, 200)

    run(tmp_path / "fix.db", story)


def test_old_messages_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 10)
    monkeypatch.setattr(module, "_PRUNED_EVERY", 5)

    async def story(store: SessionStore) -> None:
        await store.load(ANNA)
        for number in range(1, 101):
            await store.write(Change(1, 1, number + 1, 0, frames=[(number, b"x")]))
            assert len(await store.read(1, 1, 999)) <= 15
        assert [number for number, _ in await store.read(1, 1, 999)] == list(range(91, 101))

    run(tmp_path / "fix.db", story)


def test_an_account_has_so_many_sessions(tmp_path: Path) -> None:
    async def story(store: SessionStore) -> None:
        for number in range(SESSIONS_MAX):
            assert await store.load(SessionName(7, f"A{number}", "ISOCAST")) is not None
        assert await store.load(SessionName(7, "ONE MORE", "ISOCAST")) is None
        assert await store.load(SessionName(7, "A3", "ISOCAST")) is not None
        assert await store.load(SessionName(8, "A3", "ISOCAST")) is not None

    run(tmp_path / "fix.db", story)


def test_only_its_owner_reads_it(tmp_path: Path) -> None:
    def modes() -> set[int]:
        return {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

    async def story(store: SessionStore) -> None:
        await store.load(ANNA)
        assert modes() == {0o600}

    run(tmp_path / "fix.db", story)


def test_a_store_that_is_gone_is_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is gone: restore it, or say that it is new"):
        SessionStore(tmp_path / "fix.db", is_new=False)
    assert list(tmp_path.iterdir()) == []


def test_a_new_store_replaces_none(tmp_path: Path) -> None:
    (tmp_path / "fix.db").write_bytes(b"")
    with pytest.raises(StoreError, match="is there already"):
        SessionStore(tmp_path / "fix.db", is_new=True)


def test_a_file_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "fix.db"
    path.write_text("these are minutes of a meeting" * 100)
    with pytest.raises(StoreError, match="damaged, or is no store"):
        SessionStore(path, is_new=False)
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE session (id INTEGER)")
    other.close()
    with pytest.raises(StoreError, match="another program's file"):
        SessionStore(path, is_new=False)


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "fix.db"

    async def fill(store: SessionStore) -> None:
        await store.load(ANNA)
        await store.write(Change(1, 1, 501, 0, frames=[(number, bytes(100)) for number in range(1, 500)]))

    run(path, fill)
    content = bytearray(path.read_bytes())
    content[8_192:12_288] = b"\xff" * 4_096
    path.write_bytes(content)
    with pytest.raises(StoreError, match="restore it from a copy"):
        SessionStore(path, is_new=False)


def test_a_store_that_is_removed_while_in_use_takes_nothing_more(tmp_path: Path) -> None:
    async def story(store: SessionStore) -> None:
        await store.load(ANNA)
        (tmp_path / "fix.db").unlink()
        with pytest.raises(StoreGone, match="was removed"):
            await store.write(Change(1, 2, 2, 0))

    run(tmp_path / "fix.db", story)


def test_a_write_that_fails_fails_for_those_who_wait_and_leaves_no_half(tmp_path: Path) -> None:
    async def story(store: SessionStore) -> None:
        await store.load(ANNA)
        good = Change(1, 2, 2, 0, frames=[(1, b"one")])
        bad = Change(1, 2, 3, 0, frames=[(2, None)])  # type: ignore[list-item]
        results = await asyncio.gather(store.write(good), store.write(bad), return_exceptions=True)
        assert [type(result) for result in results] == [StoreError, StoreError]
        assert await store.load(ANNA) == Kept(1, 1, 1, 0)
        await store.write(good)
        assert await store.load(ANNA) == Kept(1, 2, 2, 0)

    run(tmp_path / "fix.db", story)
