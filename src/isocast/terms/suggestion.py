"""Did you mean: the known word that is nearest to a mistyped one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["suggestion"]


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean "loss"?``, or nothing when nothing is near."""
    by_folded = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f'; did you mean "{by_folded[near[0]]}"?' if near else ""
