"""Who may come in at a gateway: passwords, API tokens, sessions, and delays for those who guess.

A password is kept as argon2id, a token as a digest: neither can be read from the database. An unknown name takes as
long as a wrong password, and after some failures each further try waits longer, by name and by address.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from secrets import token_urlsafe
from time import time_ns
from typing import Final, NamedTuple

from sqlalchemy import delete, insert, select

from isocast.orders.desk import Login, Scope
from isocast.runtime.accounts.tables import ACCOUNTS, LOGINS, TOKENS, AccountsDatabase
from isocast.runtime.disk.database import NAME_LENGTH
from isocast.runtime.net.sign_in import PASSWORD_STRETCHING, hash_password, is_password
from isocast.runtime.net.tls import is_this_machine
from isocast.security.packages import Stretching
from isocast.terms.errors import LedgerError, LedgerFault

__all__ = ["LoginDelays", "Logins", "Sessions", "token_digest"]

_SECOND: Final = 1_000_000_000
_PASSWORD_MIN: Final = 10
_PASSWORD_MAX: Final = 1_024
"""Characters: longer ones cost time to hash, and nobody types them."""
_REMEMBERED: Final = 4_096
"""Names, and addresses, of which failures are counted: the oldest is forgotten."""


def token_digest(token: str) -> str:
    """What is kept of a token: long and random, it needs no salt."""
    return blake2b(token.encode(errors="replace"), digest_size=32, person=b"isocast token").hexdigest()


class Logins:
    """Names, passwords and API tokens of a gateway's accounts."""

    def __init__(
        self,
        database: AccountsDatabase,
        clock: Callable[[], int] = time_ns,
        stretching: Stretching = PASSWORD_STRETCHING,
    ) -> None:
        """`stretching` is what a guess costs."""
        self._database = database
        self._clock = clock
        self._stretching = stretching
        self._nobodys = hash_password(token_urlsafe(16), stretching)
        """Compared for names that nobody has: it takes as long."""

    def set_password(self, name: str, account: int, password: str) -> None:
        """Let somebody in by this password, and by no other."""
        if not _PASSWORD_MIN <= len(password) <= _PASSWORD_MAX:
            rule = f"a password has from {_PASSWORD_MIN} to {_PASSWORD_MAX:,} characters"
            raise LedgerError(LedgerFault.UNKNOWN, rule)
        if not 0 < len(name) <= NAME_LENGTH:
            raise LedgerError(LedgerFault.UNKNOWN, f"a name has from 1 to {NAME_LENGTH} characters")
        kept = hash_password(password, self._stretching)
        with self._database.writing() as connection:
            connection.execute(delete(LOGINS).where(LOGINS.c.name == name))
            row = {"name": name, "account": account, "password": kept, "changed_ns": self._clock()}
            connection.execute(insert(LOGINS), [row])

    def make_token(self, account: int, label: str, scopes: Iterable[Scope], expires_ns: int) -> str:
        """A new API token, which can be read this once."""
        token = token_urlsafe(32)
        row = {
            "digest": token_digest(token),
            "account": account,
            "label": label[:NAME_LENGTH],
            "scopes": " ".join(sorted(scopes)),
            "made_ns": self._clock(),
            "expires_ns": expires_ns,
        }
        with self._database.writing() as connection:
            connection.execute(insert(TOKENS), [row])
        return token

    def revoke_tokens(self, account: int, label: str | None = None) -> int:
        """Let nobody in by the API tokens of an account any more, or by those of a label: how many they were."""
        gone = delete(TOKENS).where(TOKENS.c.account == account)
        if label is not None:
            gone = gone.where(TOKENS.c.label == label[:NAME_LENGTH])
        with self._database.writing() as connection:
            return connection.execute(gone).rowcount

    def account_by_password(self, name: str, password: str) -> int | None:
        """Whose name and password these are; slow, and as slow for what is wrong."""
        with self._database.reading() as connection:
            row = connection.execute(select(LOGINS).where(LOGINS.c.name == name[:NAME_LENGTH])).first()
        fits = is_password(password[:_PASSWORD_MAX], self._nobodys if row is None else row.password)
        return row.account if row is not None and fits else None

    def login_by_token(self, token: str) -> Login | None:
        """Whose API token it is."""
        digest = token_digest(token)
        query = select(TOKENS, ACCOUNTS.c.name).join(ACCOUNTS, ACCOUNTS.c.number == TOKENS.c.account)
        with self._database.reading() as connection:
            row = connection.execute(query.where(TOKENS.c.digest == digest)).first()
        if row is None or row.expires_ns <= self._clock():
            return None
        scopes = frozenset(Scope(scope) for scope in row.scopes.split())
        return Login(row.account, row.name, scopes, token_urlsafe(32))


class _Session(NamedTuple):
    login: Login
    ends: int


class Sessions:
    """Who is in. A session's name is a token by which it comes back until it ends; only its digest is kept."""

    def __init__(self, lifetime_s: float) -> None:
        """Sessions end after this time."""
        self._lifetime = int(lifetime_s * _SECOND)
        self._open: dict[str, _Session] = {}

    def begin(self, account: int, name: str, now: int) -> Login:
        """Somebody comes in by a password, and may do everything."""
        for digest in [digest for digest, one in self._open.items() if one.ends <= now]:
            del self._open[digest]
        login = Login(account, name, frozenset(Scope), token_urlsafe(32))
        self._open[token_digest(login.session)] = _Session(login, now + self._lifetime)
        return login

    def find(self, token: str, now: int) -> Login | None:
        """Whose session this is; None once it has ended."""
        found = self._open.get(token_digest(token))
        return found.login if found is not None and found.ends > now else None

    def end(self, login: Login) -> None:
        """Nobody comes back by it."""
        self._open.pop(token_digest(login.session), None)


class LoginDelays:
    """How long a try to come in has to wait: longer after each failure, by name and by address. Time is passed in."""

    FREE = 3
    """Failures without a delay."""
    FIRST_S = 0.5
    LONGEST_S = 30.0
    FORGOTTEN_S = 900.0
    AT_ONCE = 4
    """Tries from one address, or of one name from there, that may wait at the same time; a further one fails at once.

    There is no such bound of a name alone: whoever guesses elsewhere would keep its owner out. How many may wait in all
    is for the ways in to bound.
    """

    def __init__(self) -> None:
        self._failed: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """How often, and when last."""
        self._waiting: Counter[str] = Counter()

    def begin(self, name: str, address: str, now: int) -> float | None:
        """A try begins: seconds that it must wait; None where too many wait already. `end` follows, unless None."""
        _, *by_address = keys = _keys(name, address)
        here = _here(name, address)
        if any(self._waiting[key] >= self.AT_ONCE for key in (here, *by_address)):
            return None
        self._waiting.update((here, *keys))
        return max(self._delay(self._failures(key, now) + self._waiting[key] - 1) for key in keys)

    def end(self, name: str, address: str, now: int, *, failed: bool | None) -> None:
        """A try is over; None: nobody could say whether it was right."""
        keys = _keys(name, address)
        for key in (_here(name, address), *keys):
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
        for key in keys if failed is not None else ():
            count = self._failures(key, now)
            self._failed.pop(key, None)
            if failed:
                self._failed[key] = count + 1, now
                if len(self._failed) > 2 * _REMEMBERED:
                    self._failed.popitem(last=False)

    def _failures(self, key: str, now: int) -> int:
        count, last = self._failed.get(key, (0, now))
        return count if now - last < self.FORGOTTEN_S * _SECOND else 0

    def _delay(self, failures: int) -> float:
        beyond = failures - self.FREE
        return 0.0 if beyond < 0 else min(self.LONGEST_S, self.FIRST_S * 2.0 ** min(beyond, 16))


def _keys(name: str, address: str) -> tuple[str, ...]:
    """By which failures are counted.

    Behind a TLS proxy everybody comes from loopback: one who guesses there must not make all others wait, and each
    name is guarded by itself.
    """
    by_name = f"name {name[:NAME_LENGTH]}"
    return (by_name,) if is_this_machine(address) else (by_name, f"address {address[:NAME_LENGTH]}")


def _here(name: str, address: str) -> str:
    """A name from an address, which no name that somebody gives can look like."""
    return f"from {address[:NAME_LENGTH]} {name[:NAME_LENGTH]}"
