"""Times, sizes and numbers as people write them in a file (``"5ms"``, ``"64MiB"``), and the nearest known word."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from difflib import get_close_matches

from isocast.terms.instants import MICROSECOND, MILLISECOND, SECOND

__all__ = ["counted", "duration_text", "parse_duration", "parse_size", "size_text", "suggestion"]


_DURATIONS = {
    "ns": 1,
    "us": MICROSECOND,
    "µs": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "min": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86_400 * SECOND,
}
_SIZES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?([A-Za-zµ]{1,3})")


def parse_duration(text: str) -> int:
    """Nanoseconds of a number with a unit (ns, us or µs, ms, s, min, h, d); ValueError for anything else."""
    return _parse(text, _DURATIONS)


def parse_size(text: str) -> int:
    """Bytes of a number with a unit (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB); ValueError for anything else."""
    return _parse(text, _SIZES)


def _parse(text: str, units: dict[str, int]) -> int:
    # U+03BC is a Greek letter, U+00B5 the micro sign; keyboards have either.
    found = _QUANTITY.fullmatch(text.strip().replace("\N{GREEK SMALL LETTER MU}", "\N{MICRO SIGN}"))
    unit = units.get(found[2]) if found else None
    if found is None or unit is None:
        raise ValueError(text)
    amount = Decimal(found[1]) * unit
    if amount != amount.to_integral_value():
        raise ValueError(text)
    return int(amount)


def duration_text(nanoseconds: int) -> str:
    """The same as a file would say it, in the largest unit up to seconds that needs no more than three decimals."""
    for unit in ("s", "ms", "us"):
        if nanoseconds % (_DURATIONS[unit] // 1000) == 0 and nanoseconds >= _DURATIONS[unit]:
            return _amount(nanoseconds, _DURATIONS[unit]) + unit
    return "0s" if nanoseconds == 0 else f"{nanoseconds}ns"


def size_text(size: int) -> str:
    """Bytes as a file would say them, in the largest binary unit that divides them."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZES[unit] == 0:
            return f"{size // _SIZES[unit]}{unit}"
    return f"{size}B"


def _amount(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    return f"{whole}.{rest * 1000 // unit:03}".rstrip("0").rstrip(".")


def counted(number: int, what: str, several: str = "") -> str:
    """So many of something; `several` where an s does not do."""
    return f"{number:,} {what if number == 1 else several or what + 's'}"


# Did you mean: the known word that is nearest to a mistyped one.


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint such as ``; did you mean "loss"?``, or nothing when nothing is near."""
    by_folded = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f'; did you mean "{by_folded[near[0]]}"?' if near else ""
