"""What commands that keep books in a database have in common: where it is, and which packages it needs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from isocast.terms.errors import ConfigurationError

__all__ = ["BooksUrl", "address_of", "needing_extra"]

_LEFT_OUT = "left out, a file of the market's data directory"
BooksUrl: TypeAlias = Annotated[
    str | None,
    Parameter(help=f"Where the books are kept: sqlite:///FILE or postgresql://USER@HOST/NAME; {_LEFT_OUT}."),
]
_PACKAGES = ("alembic", "sqlalchemy")


def address_of(given: str | None, variable: str) -> str | None:
    """A database's URL, of the command line or the environment; None where neither has one.

    ConfigurationError for a password on the command line, which everybody on this machine could see.
    """
    if given is not None and re.search(r"://[^/@]*:[^/@]*@", given):
        rule = f"has a password in it, which everybody on this machine could see: use {variable} or ~/.pgpass"
        raise ConfigurationError("command line", "--database", rule)
    return given or os.environ.get(variable)


@contextmanager
def needing_extra(command: str) -> Iterator[None]:
    """Name the extra of a command where its packages are missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        rule = f"needs the package {package}: pip install isocast[{command}]"
        raise ConfigurationError("command line", command, rule) from None
