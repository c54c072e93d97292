"""The audit log: who changed what and when, added to and never changed, each entry chained to the one before.

The link of an entry is keyed BLAKE2b of it and the link before, under a key of the office's own. So whoever can write
to the database, and has not that key, can neither change an entry, nor take one out, nor add one. The newest link also
stands in the settings: entries cut off at the end are missed. (A whole database put back to an earlier day is not;
compare the last link with one noted down elsewhere.)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from isocast.runtime.box_office.database import AUDIT, SETTINGS
from isocast.security.keys import Purpose, SecretKey

__all__ = ["AuditEntry", "AuditLog"]

_LINK_BYTES = 32
_PERSON = b"isocast audit"
_PART = int.from_bytes(b"audit")


class AuditEntry(NamedTuple):
    """One line of the log."""

    number: int
    at_ns: int
    actor: str
    act: str
    subject: str
    detail: str
    """JSON, without a secret."""
    link: str


class AuditLog:
    """Adds entries, and checks the chain."""

    def __init__(self, secret: SecretKey) -> None:
        """`secret`: the office's own."""
        self._key = secret.derive(Purpose.TAG, 0, _PART)

    def add(self, connection: Connection, at_ns: int, actor: str, act: str, subject: str, **detail: object) -> None:
        """One entry, in the transaction that makes the change: there is no change without its entry."""
        before = connection.execute(select(SETTINGS.c.value).where(SETTINGS.c.name == "audit")).scalar_one()
        number = (connection.execute(select(func.max(AUDIT.c.number))).scalar() or 0) + 1
        text = json.dumps(detail, sort_keys=True, ensure_ascii=False)
        entry = AuditEntry(number, at_ns, actor, act, subject, text, "")
        entry = entry._replace(link=self._link(before, entry))
        connection.execute(insert(AUDIT), [entry._asdict()])
        connection.execute(update(SETTINGS).where(SETTINGS.c.name == "audit").values(value=entry.link))

    def entries(self, connection: Connection, after: int = 0) -> Iterator[AuditEntry]:
        """All entries after one, in order."""
        for row in connection.execute(select(AUDIT).where(AUDIT.c.number > after).order_by(AUDIT.c.number)):
            yield AuditEntry(*row)

    def fault(self, connection: Connection) -> str:
        """What is wrong with the log; empty: it is whole."""
        before, expected = "", 1
        for entry in self.entries(connection):
            if entry.number != expected:
                return f"entry {expected} is missing"
            if not compare_digest(entry.link, self._link(before, entry)):
                return f"entry {entry.number} is not as it was written"
            before, expected = entry.link, expected + 1
        newest = connection.execute(select(SETTINGS.c.value).where(SETTINGS.c.name == "audit")).scalar_one()
        return "" if compare_digest(newest, before) else f"entries after {expected - 1} are missing"

    def _link(self, before: str, entry: AuditEntry) -> str:
        fields: Mapping[str, object] = {**entry._asdict(), "link": before}
        said = json.dumps(fields, sort_keys=True).encode()
        return blake2b(said, digest_size=_LINK_BYTES, key=self._key, person=_PERSON).hexdigest()
