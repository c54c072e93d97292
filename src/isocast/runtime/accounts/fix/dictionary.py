"""What FIX 4.4 says of the messages that a gateway hears: their fields, types, values and groups, as tables.

Tags that FIX 4.4 does not have, tags that a message does not have, missing and malformed ones are each refused with
their own reason. Messages that only a gateway sends are not here: what arrives of them is known, and not supported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from isocast.runtime.accounts.fix.messages import Field, Message, instant_of

__all__ = ["ADMIN", "APPLICATION", "FAULT_TEXTS", "GROUP_ENTRIES_MAX", "KNOWN", "Fault", "fault_of", "group_entries"]

GROUP_ENTRIES_MAX: Final = 64
"""Of one group: an order has a handful of parties."""
ADMIN: Final = frozenset("012345A")
APPLICATION: Final = frozenset("DFGHq")
"""What a gateway takes."""
_KNOWN_TEXT: Final = (
    "0 1 2 3 4 5 6 7 8 9 A B C D E F G H J K L M N P Q R S T V W X Y Z a b c d e f g h i j k l m n o p q r s t"
    " u v w x y z AA AB AC AD AE AF AG AH AI AJ AK AL AM AN AO AP AQ AR AS AT AU AV AW AX AY AZ BA BB BC BD BE"
    " BF BG BH"
)
KNOWN: Final = frozenset(_KNOWN_TEXT.split())
"""All message types of FIX 4.4."""

INVALID_TAG, MISSING, NOT_DEFINED, NO_VALUE, OUT_OF_RANGE, FORMAT = 0, 1, 2, 4, 5, 6
COMP_ID, SENDING_TIME, INVALID_TYPE, REPEATED, OUT_OF_ORDER, GROUP_COUNT = 9, 10, 11, 13, 14, 16
FAULT_TEXTS: Final[Mapping[int, str]] = MappingProxyType(
    {
        INVALID_TAG: "Invalid tag number",
        MISSING: "Required tag missing",
        NOT_DEFINED: "Tag not defined for this message type",
        NO_VALUE: "Tag specified without a value",
        OUT_OF_RANGE: "Value is incorrect (out of range) for this tag",
        FORMAT: "Incorrect data format for value",
        COMP_ID: "CompID problem",
        SENDING_TIME: "SendingTime accuracy problem",
        INVALID_TYPE: "Invalid MsgType",
        REPEATED: "Tag appears more than once",
        OUT_OF_ORDER: "Tag specified out of required order",
        GROUP_COUNT: "Incorrect NumInGroup count for repeating group",
    }
)
"""SessionRejectReason (373) with its words."""


class Fault(NamedTuple):
    """What is wrong with a message."""

    reason: int
    """SessionRejectReason (373)."""
    tag: int | None = None


def _tags(text: str) -> frozenset[int]:
    """Numbers and ranges: `1 3-5` is 1, 3, 4 and 5."""
    found: set[int] = set()
    for part in text.split():
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


_NEVER: Final = _tags(
    "20 24 46-47 51 76 86 92 101 105 109 125 166 173-187 204-205 219 261 314 319 370 439-440 449-450 465 653"
    " 685 809 831"
)
"""Numbers below the last one of FIX 4.4 that are no tags of it."""
_TAGS: Final = _tags("1-956") - _NEVER

_HEADER: Final = _tags("8 9 34 35 43 49 50 52 56 57 90 91 97 115 116 122 128 129 142-145 212 213 347 369 627-630")
_TRAILER: Final = _tags("10 89 93")
_HEADER_NEEDS: Final = (8, 9, 34, 35, 49, 52, 56)

_INSTRUMENT: Final = _tags(
    "22 48 55 65 106 107 167 200-202 206 207 223-228 231 239 240 255 348-351 454-456 460 461 470-472 541 543"
    " 667 691 762 864-868 873-876 947"
)
_UNDERLYING: Final = _tags(
    "241-247 256 305-313 315-318 362-365 435 436 457-459 462 463 542 592-595 763 810 877-879 882-889 941"
)
_FINANCING: Final = _tags("788 898 913-919")
_PARTIES: Final = _tags("447 448 452 453 523 802 803")
_ORDER: Final = (
    _tags(
        "1 11-13 15 18 21 38 40 44 54 58-60 63 64 70 75 77-80 99 100 110 111 114 120 121 126 152 168 192 193 203"
        " 210 211 218 220-222 229 235 236 336 354 355 376 377 386 388 389 423 427 432 467-469 479-481 494 497 513"
        " 516 524-526 528 529 538 539 544 545 581-583 589-591 625 635 640 660-663 696-699 701 711 736 761 775 804"
        " 805 835-838 840-844 846-849 854"
    )
    | _INSTRUMENT
    | _UNDERLYING
    | _FINANCING
    | _PARTIES
)
_BODIES: Final[Mapping[str, frozenset[int]]] = MappingProxyType(
    {
        "0": _tags("112"),
        "1": _tags("112"),
        "2": _tags("7 16"),
        "3": _tags("45 58 354 355 371-373"),
        "4": _tags("36 123"),
        "5": _tags("58 354 355"),
        "A": _tags("95 96 98 108 141 372 383-385 464 553 554 789"),
        "D": _ORDER | _tags("23 81 117 140 232-234"),
        "F": _tags("1 11 37 38 41 54 58 60 66 152 354 355 376 468 469 516 526 581 583 586 660 711")
        | _INSTRUMENT
        | _UNDERLYING
        | _FINANCING
        | _PARTIES,
        "G": _ORDER | _tags("37 41 66 586"),
        "H": _tags("1 11 37 54 526 583 660 711 790") | _INSTRUMENT | _UNDERLYING | _FINANCING | _PARTIES,
        "q": _tags("11 54 58 60 336 354 355 526 530 625") | _INSTRUMENT | _UNDERLYING,
    }
)
_NEEDS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "1": (112,),
        "2": (7, 16),
        "3": (45,),
        "4": (36,),
        "A": (98, 108),
        "D": (11, 40, 54, 55, 60),
        "F": (11, 41, 54, 55, 60),
        "G": (11, 40, 41, 54, 55, 60),
        "H": (11, 54, 55),
        "q": (11, 60, 530),
    }
)
"""In ascending order: the lowest that is missing is named. OrderQty is one of several ways to say how much, so that
an order without it is refused as an order."""

_GROUPS: Final[Mapping[int, tuple[int, ...]]] = MappingProxyType(
    {
        78: (79, 80, 467, 524, 525, 538, 539, 545, 661, 736, 804, 805),
        232: (233, 234),
        384: (372, 385),
        386: (336, 625),
        453: (448, 447, 452, 523, 802, 803),
        454: (455, 456),
        457: (458, 459),
        539: (524, 525, 538, 545, 804, 805),
        627: (628, 629, 630),
        711: (311, *sorted(_UNDERLYING - {311})),
        802: (523, 803),
        804: (545, 805),
        864: (865, 866, 867, 868),
        887: (888, 889),
    }
)
"""The members of a group by its count; each entry begins with the first of them."""

_PATTERNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "int": r"-?[0-9]{1,18}",
        "count": r"[0-9]{1,18}",
        "decimal": r"-?(?:[0-9]{1,24}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})",
        "char": r"[\x21-\x7e]",
        "boolean": r"[YN]",
        "date": r"[0-9]{4}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])",
        "month": r"[0-9]{4}(?:0[1-9]|1[0-2])(?:[0-3][0-9]|w[1-5])?",
        "currency": r"[A-Z]{3}",
        "values": r"[\x21-\x7e](?: [\x21-\x7e])*",
    }
)
_TYPES: Final[Mapping[str, frozenset[int]]] = MappingProxyType(
    {
        "count": _tags("7 9 16 34 36 45 90 93 95 212 348 350 354 362 364 369 383 630 789")
        | _tags("78 232 384 386 453 454 457 539 627 711 802 804 864 887"),
        "int": _tags(
            "98 108 201 203 226 244 315 371 373 380 423 427 452 460 462 538 581 582 660 661 663 698 775 788 803 805"
            " 835-838 840-844 846 847 854 865 875 919"
        ),
        "decimal": _tags(
            "12 38 44 80 99 110 111 140 152 192 202 210 211 218 223 227 228 231 236 245 246 316 389 435 436 469 516"
            " 640 662 697 810 849 867 879 882-886 898"
        ),
        "char": _tags("13 21 40 54 59 63 77 81 206 317 385 388 447 468 480 481 497 525 528 530 544 589-591"),
        "boolean": _tags("43 97 114 121 123 141 377 464"),
        "date": _tags("64 75 193 224 225 229 240-242 247 432 541 542 696 701 866 873 874 915-917"),
        "month": _tags("200 313 667"),
        "currency": _tags("15 120 220 318 479 736 918 941 947"),
        "values": _tags("18 529"),
    }
)
"""Everything else is text, which needs only not to be empty, or one of these instants."""
_INSTANTS: Final = _tags("52 60 122 126 168 586 629")
_FORMATS: Final = {
    tag: re.compile(rf"(?:{_PATTERNS[kind]})\Z", re.ASCII) for kind, tags in _TYPES.items() for tag in tags
}

_SECURITY_TEXT: Final = (
    "FUT OPT EUSUPRA FAC FADN PEF SUPRA CORP CPP CB DUAL EUCORP XLINKD STRUCT YANK FOR CS PS BRADY EUSOV TBOND"
    " TINT TIPS TCAL TPRN UST USTB TNOTE TBILL REPO FORWARD BUYSELL SECLOAN SECPLEDGE TERM RVLV RVLVTRM BRIDGE"
    " LOFC SWING DINP DEFLTED WITHDRN REPLACD MATURED AMENDED RETIRED BA BN BOX CD CL CP DN EUCD EUCP LQN MTN"
    " ONITE PN PZFJ STN TD XCN YCD ABS CMBS CMO IET MBS MIO MPO MPP MPT PFAND TBA AN COFO COFP GO MT RAN REV"
    " SPCLA SPCLO SPCLT TAN TAXA TECP TRAN VRDN WAR MF MLEG NONE"
)
_SECURITY_TYPES: Final = frozenset(_SECURITY_TEXT.split())
_VALUES: Final[Mapping[int, frozenset[str]]] = MappingProxyType(
    {
        18: frozenset("1234567890ABCDEFGHIJKLMNOPQRSUVWXYZabcde"),
        21: frozenset("123"),
        22: frozenset("123456789ABCDEFGHIJ"),
        40: frozenset("12346789DEGIJKLMP"),
        54: frozenset("123456789ABCDEFG"),
        59: frozenset("01234567"),
        63: frozenset("0123456789"),
        77: frozenset("OCRF"),
        81: frozenset("0123456"),
        98: frozenset("0123456"),
        167: _SECURITY_TYPES,
        385: frozenset("SR"),
        388: frozenset("0123456"),
        427: frozenset("012"),
        447: frozenset("BCDEFGH123456789AI"),
        480: frozenset("YNMO"),
        481: frozenset("YN123"),
        497: frozenset("YN"),
        528: frozenset("AGIPRW"),
        529: frozenset("123456789A"),
        530: frozenset("1234567"),
        544: frozenset("123"),
        581: frozenset("1234678"),
        582: frozenset("1234"),
        775: frozenset("012"),
    }
)


_ALLOWED: Final = {kind: _HEADER | _TRAILER | body for kind, body in _BODIES.items()}
_INNER: Final = {
    kind: frozenset(tag for counter, members in _GROUPS.items() if counter in allowed for tag in members)
    for kind, allowed in _ALLOWED.items()
}
"""Tags that a message has inside a group alone."""
_GROUP_TAGS: Final = frozenset(tag for members in _GROUPS.values() for tag in members) | frozenset(_GROUPS)
_ALL_NEEDS: Final = {kind: (*_HEADER_NEEDS, *_NEEDS.get(kind, ())) for kind in _BODIES}


def fault_of(message: Message) -> Fault | None:
    """The first thing that is wrong: structure, type, what is missing, then field by field; None if all is well."""
    kind = message.kind
    header_end = _header_end(message.fields)
    misplaced = _misplaced(message.fields, header_end)
    if misplaced is not None:
        return Fault(OUT_OF_ORDER, misplaced)
    if not kind:
        return Fault(NO_VALUE, 35)
    if kind not in KNOWN:
        return Fault(INVALID_TYPE)
    for tag in _ALL_NEEDS.get(kind, _HEADER_NEEDS):
        if tag not in message.first:
            return Fault(MISSING, tag)
    allowed = _ALLOWED.get(kind)
    # Of a type that is not supported nothing but the header is read.
    fields = message.fields[:header_end] if allowed is None else message.fields
    fault = _wrong_field(fields, allowed or _HEADER)
    has_groups = not message.first.keys().isdisjoint(_GROUP_TAGS)
    if fault is None and (has_groups or len(message.first) != len(message.fields)):
        fault = _repeated(fields, _INNER.get(kind, frozenset()))
    return fault


def _header_end(fields: list[Field]) -> int:
    for index, (tag, _) in enumerate(fields):
        if tag not in _HEADER:
            return index
    return len(fields)


def _misplaced(fields: list[Field], header_end: int) -> int | None:
    """A header's tag in the body, or a body's in the trailer."""
    is_trailer = False
    for tag, _ in fields[header_end:]:
        if tag in _HEADER or (is_trailer and tag not in _TRAILER):
            return tag
        is_trailer = is_trailer or tag in _TRAILER
    return None


def _wrong_field(fields: list[Field], allowed: frozenset[int]) -> Fault | None:
    for tag, value in fields:
        if not value:
            return Fault(NO_VALUE, tag)
        if tag not in allowed:
            return Fault(NOT_DEFINED if tag in _TAGS else INVALID_TAG, tag)
        pattern = _FORMATS.get(tag)
        if pattern is not None and pattern.match(value) is None:
            return Fault(FORMAT, tag)
        if tag in _INSTANTS and instant_of(value) is None:
            return Fault(FORMAT, tag)
        values = _VALUES.get(tag)
        if values is not None and not (
            value in values if tag not in _TYPES["values"] else values.issuperset(value[::2])
        ):
            return Fault(OUT_OF_RANGE, tag)
    return None


def _repeated(fields: list[Field], inner: frozenset[int]) -> Fault | None:
    """Groups are counted, no tag outside them is there twice, and no tag of theirs is outside them."""
    seen: set[int] = set()
    index = 0
    while index < len(fields):
        tag, value = fields[index]
        if tag in inner:
            return Fault(NOT_DEFINED, tag)
        if tag in seen:
            return Fault(REPEATED, tag)
        seen.add(tag)
        index += 1
        if tag in _GROUPS:
            index, fault = _past_group(fields, index, tag, int(value))
            if fault is not None:
                return fault
    return None


def _past_group(fields: list[Field], index: int, counter: int, count: int) -> tuple[int, Fault | None]:
    """Where the group that begins at `index` ends, and what is wrong with it."""
    members = _GROUPS[counter]
    wrong = Fault(GROUP_COUNT, counter)
    entries = 0
    in_entry: set[int] = set()
    while index < len(fields) and fields[index][0] in members:
        tag, value = fields[index]
        if tag == members[0]:
            entries += 1
            in_entry = set()
        elif not entries or tag in in_entry:
            return index, wrong if not entries else Fault(REPEATED, tag)
        in_entry.add(tag)
        index += 1
        if tag in _GROUPS:
            index, fault = _past_group(fields, index, tag, int(value))
            if fault is not None:
                return index, fault
    return index, wrong if entries != count or entries > GROUP_ENTRIES_MAX else None


def group_entries(message: Message, counter: int) -> list[dict[int, str]]:
    """The entries of a group of a message without fault, those of groups inside it left out."""
    entries: list[dict[int, str]] = []
    tags = [tag for tag, _ in message.fields]
    if counter not in tags:
        return entries
    members = _GROUPS[counter]
    for tag, value in message.fields[tags.index(counter) + 1 :]:
        if tag not in members:
            break
        if tag == members[0]:
            entries.append({})
        if entries:
            entries[-1].setdefault(tag, value)
    return entries
