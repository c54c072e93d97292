"""`isocast accounts export`: a gateway's books for the lake, without saying whose they are."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from isocast.cli.accounts import BooksPlace
from isocast.cli.databases import needing_extra
from isocast.cli.options import Flag
from isocast.cli.render import show_json, show_table, working
from isocast.terms.errors import ConfigurationError

__all__ = ["export"]

_KEPT = BooksPlace()
_SECRET_MAX = 4_096
_EXAMPLES = """Examples:

    head -c 32 /dev/urandom > pseudonyms.key && chmod 600 pseudonyms.key

    isocast accounts export books --pseudonyms pseudonyms.key --database sqlite:///accounts.db

Exit code: 0 written, 2 bad input.
"""

export = App(name="export", help_epilogue=_EXAMPLES)


@export.default
def _export(
    folder: Path,
    /,
    *,
    kept: BooksPlace = _KEPT,
    pseudonyms: Path | None = None,
    clear: Flag = False,
    json: Flag = False,
) -> int:
    """Write orders, reports, refusals and reservations as Parquet files, with pseudonyms for accounts and ids.

    Pseudonyms are keyed hashes: the same account is the same text in every export, and in the frames of the lake that
    have the same secret.

    Parameters
    ----------
    folder
        Where the files go; those of an earlier export are replaced.
    pseudonyms
        A file that only you can read, with a secret of 16 bytes or more.
    clear
        Write accounts and ids as they are.
    json
        Print one JSON object instead of a table.
    """
    if (pseudonyms is None) == (not clear):
        rule = "name a file with a secret, or say --clear: accounts leave as pseudonyms, or as they are"
        raise ConfigurationError("command line", "--pseudonyms", rule)
    secret = b"" if pseudonyms is None else _secret(pseudonyms)
    with kept.place() as database, working("writing", quiet=json):
        with needing_extra("accounts"):
            from isocast.runtime.accounts.export import export_books
        counts = export_books(database, folder, secret)
    if json:
        show_json(counts)
    else:
        rows = [(str(folder / f"{name}.parquet"), f"{count:,}") for name, count in counts.items()]
        show_table("Exported", ("file", "rows"), rows)
    return 0


def _secret(file: Path) -> bytes:
    from isocast.orders.accounts import PSEUDONYM_SECRET_MIN
    from isocast.runtime.market.secret_files import OTHERS, read_file

    secret = read_file(file, _SECRET_MAX, OTHERS)
    if len(secret) < PSEUDONYM_SECRET_MIN:
        rule = f"has {len(secret)} bytes: a secret for pseudonyms has at least {PSEUDONYM_SECRET_MIN}"
        raise ConfigurationError(str(file), "--pseudonyms", rule)
    return secret
