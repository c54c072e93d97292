"""Files that come with the package, under the names that they have in the repository: scenarios and worlds."""

from __future__ import annotations

from pathlib import Path

from isocast.terms.errors import ConfigurationError
from isocast.terms.quantities import suggestion

__all__ = ["shipped"]

_FOLDERS = ("scenarios", "worlds")
_ROOTS = (Path(__file__).parent / "shipped", Path(__file__).parents[3])
"""Where a wheel has them, and a clone of the repository."""


def shipped(path: Path) -> Path:
    """The file itself or, if there is none, the one of that name that came with the package.

    `isocast sim run scenarios/quiet.toml` means the same in every folder. ConfigurationError names one that is meant.
    """
    if path.exists() or path.parts[:1] not in [(folder,) for folder in _FOLDERS] or ".." in path.parts:
        return path
    for root in _ROOTS:
        if (root / path).is_file():
            return root / path
    hint = suggestion(path.stem, [found.stem for root in _ROOTS for found in (root / path.parts[0]).rglob("*.toml")])
    if hint:
        raise ConfigurationError(str(path), "file", f"cannot be read: no such file{hint}")
    return path
