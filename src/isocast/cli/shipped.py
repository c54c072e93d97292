"""Files that come with the package, under the names that they have in the repository: scenarios and worlds."""

from __future__ import annotations

from pathlib import Path

__all__ = ["shipped"]

_FOLDERS = ("scenarios", "worlds")
_ROOTS = (Path(__file__).parent / "shipped", Path(__file__).parents[3])
"""Where a wheel has them, and a clone of the repository."""


def shipped(path: Path) -> Path:
    """The file itself or, if there is none, the one of that name that came with the package.

    `isocast sim run scenarios/quiet.toml` means the same in every folder.
    """
    if not path.exists() and path.parts[:1] and path.parts[0] in _FOLDERS and ".." not in path.parts:
        for root in _ROOTS:
            if (root / path).is_file():
                return root / path
    return path
