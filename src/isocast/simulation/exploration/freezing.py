"""Copies of machines, and one spelling for each state that they can be in.

Both walk whatever a machine is made of, field by field, so that a field that is added to a machine is part of its
state at once. Values that nobody changes (numbers, bytes, tuples, packets, log entries, settings) are shared.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import is_dataclass
from enum import Enum
from hashlib import blake2b
from types import CellType, FunctionType, MethodType
from typing import Any, TypeAlias

from isocast.ring.ledger import LogEntry
from isocast.wire.packets import Data, Token
from isocast.wire.token_body import token_digest

__all__ = ["Freezer", "clone"]

_PLAIN = frozenset({int, str, bytes, bool, float, type(None)})
_SHARED = (Token, Data, LogEntry)
"""Dataclasses that are written once; what they cache follows from the rest."""
_DIGEST_BYTES = 16
_MARSHAL_VERSION = 2
"""The last version without back references: equal values, equal bytes."""

_Memo: TypeAlias = dict[int, Any]
_Copier: TypeAlias = Callable[[Any, _Memo], Any]


def clone(value: Any) -> Any:  # noqa: ANN401 (whatever a machine is made of)
    """An independent copy: what is mutable in it, closures and bound methods included, refers to the copy alone."""
    return _clone(value, {})


def _clone(value: Any, memo: _Memo) -> Any:  # noqa: ANN401
    cls = type(value)
    if cls in _VALUES:
        return value
    copier = _COPIERS.get(cls)
    if copier is None:
        if _is_value(cls):
            _VALUES.add(cls)
            return value
        copier = _COPIERS[cls] = _clone_object
    return copier(value, memo)


def _clone_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    made: dict[Any, Any] | None = memo.get(id(value))
    if made is not None:
        return made
    made = memo[id(value)] = type(value)()
    values = _VALUES
    for key, part in value.items():
        made[key] = part if type(part) in values else _clone(part, memo)
    return made


def _clone_list(value: list[Any], memo: _Memo) -> list[Any]:
    made: list[Any] | None = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = []
        made.extend([_clone(part, memo) for part in value])
    return made


def _clone_set(value: set[Any], memo: _Memo) -> set[Any]:
    made: set[Any] | None = memo.get(id(value))
    if made is None:
        made = memo[id(value)] = set(value)
    return made


def _clone_method(value: MethodType, memo: _Memo) -> MethodType:
    return MethodType(value.__func__, _clone(value.__self__, memo))


def _clone_function(value: FunctionType, memo: _Memo) -> FunctionType:
    if not value.__closure__:
        return value
    cells = tuple([CellType(_clone(cell.cell_contents, memo)) for cell in value.__closure__])
    return FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)


def _clone_object(value: Any, memo: _Memo) -> Any:  # noqa: ANN401
    known = memo.get(id(value))
    if known is not None:
        return known
    cls = type(value)
    made = memo[id(value)] = object.__new__(cls)
    values = _VALUES
    for name in _slots(cls):
        part = getattr(value, name)
        setattr(made, name, part if type(part) in values else _clone(part, memo))
    held = getattr(value, "__dict__", None)
    if held:
        made.__dict__.update(
            {name: part if type(part) in values else _clone(part, memo) for name, part in held.items()}
        )
    return made


_COPIERS: dict[type, _Copier] = {
    dict: _clone_dict,
    OrderedDict: _clone_dict,
    list: _clone_list,
    set: _clone_set,
    MethodType: _clone_method,
    FunctionType: _clone_function,
}


_JUDGED: dict[type, bool] = {}
_NAMES: dict[type, tuple[str, ...]] = {}
_VALUES: set[type] = set()
"""Classes whose instances nobody changes, as far as they have been met."""


def _is_value(cls: type) -> bool:
    """Whether nobody changes an instance."""
    known = _JUDGED.get(cls)
    if known is None:
        known = _JUDGED[cls] = _judge(cls)
    return known


def _judge(cls: type) -> bool:
    frozen = is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return frozen or cls in _PLAIN or issubclass(cls, (*_SHARED, int, str, bytes, tuple, frozenset, Enum, type))


def _fields(value: object) -> tuple[str, ...]:
    """The names of everything that an object holds, in one order."""
    slots = _slots(type(value))
    return (*slots, *value.__dict__) if hasattr(value, "__dict__") else slots


def _slots(cls: type) -> tuple[str, ...]:
    known = _NAMES.get(cls)
    if known is None:
        known = _NAMES[cls] = _slots_of(cls)
    return known


def _slots_of(cls: type) -> tuple[str, ...]:
    found = [base.__dict__.get("__slots__", ()) for base in cls.__mro__]
    named = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return tuple([name for name in named if name not in ("__dict__", "__weakref__")])


class Freezer:
    """Spells states; remembers the spelling of every value that is shared, for as long as the value lives."""

    def __init__(self) -> None:
        """Nothing is spelled yet."""
        self._known: dict[int, tuple[object, Any]] = {}

    def digest(self, *values: object) -> bytes:
        """16 bytes for what the values hold: equal for equal states, and for others not within our lifetime."""
        spelled = [self._spell(value, {}) for value in values]
        return blake2b(marshal.dumps(spelled, _MARSHAL_VERSION), digest_size=_DIGEST_BYTES).digest()

    def _spell(self, value: Any, seen: dict[int, int]) -> Any:  # noqa: ANN401
        cls = type(value)
        if cls in _PLAIN:
            return value
        known = self._known.get(id(value))
        if known is not None and known[0] is value:
            return known[1]
        if _is_value(cls):
            known = self._known[id(value)] = (value, self._spell_value(value, seen))
            return known[1]
        return self._spell_mutable(value, cls, seen)

    def _spell_value(self, value: Any, seen: dict[int, int]) -> Any:  # noqa: ANN401
        match value:
            case Token():
                return token_digest(value)
            case Data():
                # A source that sends a message again may have a new base and a new epoch by then.
                return (value.sender, value.number, value.digest)
            case LogEntry():
                return (token_digest(value.token), tuple([self._spell(message, seen) for message in value.messages]))
            case Enum():
                return value.name
            case type():
                return value.__qualname__
            case frozenset():
                return tuple(sorted([self._spell(part, seen) for part in value], key=repr))
            case tuple():
                return tuple([self._spell(part, seen) for part in value])
            case int() | str() | bytes():
                return value
            case _:
                return (type(value).__name__, *[self._spell(getattr(value, name), seen) for name in _fields(value)])

    def _spell_mutable(self, value: Any, cls: type, seen: dict[int, int]) -> Any:  # noqa: ANN401
        if cls in (FunctionType, MethodType):
            # What it can reach is spelled where it lives.
            return value.__qualname__
        place = seen.get(id(value))
        if place is not None:
            return (place,)
        seen[id(value)] = len(seen)
        if cls in (dict, OrderedDict):
            return ("{", *[self._spell(part, seen) for pair in value.items() for part in pair])
        if cls is list:
            return ("[", *[self._spell(part, seen) for part in value])
        if cls is set:
            return ("s", *sorted([self._spell(part, seen) for part in value], key=repr))
        spell, plain = self._spell, _PLAIN
        spelled = [cls.__name__]
        for name in _slots(cls):
            part = getattr(value, name)
            spelled.append(part if type(part) in plain else spell(part, seen))
        held = getattr(value, "__dict__", None)
        if held:
            spelled += [part if type(part) in plain else spell(part, seen) for part in held.values()]
        return tuple(spelled)
