"""Places on a disk as people write them: a path, or the URL of a file; nothing here reads object stores.

`Path("s3a://bucket/lake")` is a relative path to Python, and whoever writes there fills a folder called `s3a:`. So
every place that comes from outside goes through `local_path` before anything is made.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from isocast.terms.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path, PurePath

__all__ = ["local_path", "scheme_of"]

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/.*)", re.DOTALL)
"""A drive has one letter; a Path has made one slash of two."""


def scheme_of(where: str | PurePath) -> str:
    """The scheme of a URL, in small letters; empty for a path."""
    found = _URL.fullmatch(str(where).strip())
    return found[1].lower() if found else ""


def local_path(where: str | PurePath, file: str, key: str) -> Path:
    """The path that somebody gave for `key`; ConfigurationError for what is not in the file system of this machine."""
    # Every command looks at its words by `scheme_of`, also one that needs no path.
    from pathlib import Path  # noqa: PLC0415
    from urllib.parse import unquote  # noqa: PLC0415

    text = str(where).strip() if isinstance(where, str) else str(where)
    found = _URL.fullmatch(text)
    if found is None:
        return Path(text)
    scheme, rest = found[1].lower(), found[2]
    if scheme == "file":
        if rest.startswith("//localhost/"):
            rest = rest.removeprefix("//localhost")
        if not rest.startswith("//") or rest.startswith("///"):
            return Path(unquote("/" + rest.lstrip("/")))
        scheme = "a file of another machine"
    rule = (
        f"{text} is in no folder of this machine ({scheme}): isocast reads and writes a file system; "
        "mount it and give the folder, or copy the files"
    )
    raise ConfigurationError(file, key, rule)
