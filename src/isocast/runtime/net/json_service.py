"""JSON services described once: a table of routes says who may ask what, and all else follows from it.

From the same rows come the route of a request, the check of its body and query, the description as OpenAPI 3.1 and a
page for people that needs nothing from elsewhere. What is not described is refused, with the nearest word that is.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from html import escape
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from isocast import __version__
from isocast.runtime.net.http import Answer, Request
from isocast.terms.errors import RemoteProtocolError
from isocast.terms.quantities import suggestion

__all__ = [
    "ANYONE",
    "FLAG",
    "REQUIRED",
    "TEXT",
    "TEXTS",
    "WHOLE",
    "BadRequestError",
    "Field",
    "Fields",
    "Kind",
    "NoRouteError",
    "Route",
    "bearer_token",
    "described",
    "find_route",
    "json_answer",
    "object_schema",
    "page_for_people",
    "read_body",
    "read_fields",
    "read_query",
]

ANYONE: Final = "anyone"
"""Who may ask on a route that needs no token."""
REQUIRED: Final = ...
_BEARER: Final = "bearer "
_SHOWN_MAX = 40

ActT = TypeVar("ActT")
WhoT = TypeVar("WhoT", bound=StrEnum)
RouteT = TypeVar("RouteT", bound="Route[Any, Any]")


class BadRequestError(RemoteProtocolError):
    """What a request says is not what its route wants; the message says what it does want."""

    def __init__(self, message: str, field: str = "") -> None:
        """`field` is the one that is meant; empty if it is all of it."""
        super().__init__(message)
        self.field = field


class NoRouteError(RemoteProtocolError):
    """Nothing is served at this path, or not by this method."""

    def __init__(self, message: str, methods: tuple[str, ...]) -> None:
        """`methods` are those that the path has; none if there is no such path."""
        super().__init__(message)
        self.methods = methods


@dataclass(frozen=True, slots=True)
class Kind:
    """What a field may be."""

    schema: Mapping[str, object]
    """As JSON Schema."""
    wanted: str
    """After "must be"."""
    read: Callable[[Any], object]
    """The value; ValueError for any other, with a message only where `wanted` does not say enough."""


class Field(NamedTuple):
    """One field of a body or a query."""

    kind: Kind
    default: object = REQUIRED
    """Of a field that is left out; REQUIRED if it must be there."""
    says: str = ""
    """What it means, for readers of the description."""


Fields = Mapping[str, Field]


@dataclass(frozen=True, slots=True)
class Route(Generic[ActT, WhoT]):
    """One way in."""

    method: str
    path: str
    """One part of it may stand for a name, as in /v1/orders/{client_id}."""
    who: WhoT
    """Who may ask; `anyone` needs no token."""
    summary: str
    act: ActT
    """What it does, in whatever shape its service calls it."""
    body: Fields | None = None
    query: Fields = field(default_factory=dict)
    headers: Fields = field(default_factory=dict)
    """That are described beside the token; the service reads them itself."""
    answer: Mapping[str, object] = field(default_factory=dict)
    """JSON Schema of what is answered."""
    content_type: str = "application/json"

    @property
    def needs_token(self) -> bool:
        """Whether a request must say whose it is."""
        return self.who != ANYONE


# ---- a request


def bearer_token(request: Request) -> str:
    """What the header Authorization carries; empty if it carries none."""
    given = request.headers.get("authorization", "")
    return given[len(_BEARER) :].strip() if given.lower().startswith(_BEARER) else ""


def find_route(routes: Iterable[RouteT], request: Request) -> tuple[RouteT, str]:
    """The route of a request, and the name in its path; NoRouteError if there is none."""
    methods: list[str] = []
    for route in routes:
        fits, name = _fits(route.path, request.path)
        if fits and route.method == request.method:
            return route, name
        methods += [route.method] if fits else []
    what = "is asked for in another way" if methods else "is nowhere here"
    message = f"{request.path[:80]!r} {what}: /v1/openapi.json describes all there is"
    raise NoRouteError(message, tuple(methods))


def _fits(pattern: str, path: str) -> tuple[bool, str]:
    before, brace, rest = pattern.partition("{")
    if not brace:
        return path == pattern, ""
    after = rest.partition("}")[2]
    fits = path.startswith(before) and path.endswith(after) and len(path) > len(before) + len(after)
    return fits, path[len(before) : len(path) - len(after)] if fits else ""


def read_body(raw: bytes, fields: Fields | None) -> dict[str, Any]:
    """What a body says, as its route wants it; BadRequestError, which names the field, for anything else."""
    if fields is None:
        return {}
    try:
        said = json.loads(raw or b"{}", object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is no JSON object") from None
    if not isinstance(said, dict):
        raise BadRequestError("the body is no JSON object")
    return _values(said, fields)


def read_fields(said: object, fields: Fields) -> dict[str, Any]:
    """The same of an object within a body."""
    if not isinstance(said, dict):
        raise BadRequestError("this is no JSON object")
    return _values(said, fields)


def read_query(query: str, fields: Fields) -> dict[str, Any]:
    """The same of what follows the question mark; whole numbers are read as such."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict", max_num_fields=16)
    except ValueError:
        raise BadRequestError("the query is not of the form name=value&name=value") from None
    said = _once([(name, _plain_value(value, fields.get(name))) for name, value in pairs])
    return _values(said, fields)


def _plain_value(text: str, known: Field | None) -> object:
    kind = None if known is None else known.kind.schema.get("type")
    if kind == "integer" and text.isascii() and text.isdigit() and len(text) < 20:  # noqa: PLR2004 - of 64 bits
        return int(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Readers differ in which of two values counts: neither does."""
    said = dict(pairs)
    if len(said) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRequestError(f"{twice[:_SHOWN_MAX]!r} is there twice: say it once", twice[:_SHOWN_MAX])
    return said


def _no_constant(text: str) -> object:
    raise ValueError(text)


def _values(said: Mapping[str, Any], fields: Fields) -> dict[str, Any]:
    for name in said:
        if name not in fields:
            known = ", ".join(fields) or "no fields"
            hint = suggestion(name[:_SHOWN_MAX], fields)
            shown = name[:_SHOWN_MAX]
            raise BadRequestError(f"{shown!r} is not known here: there are {known}{hint}", shown)
    return {name: _value(said, name, wanted) for name, wanted in fields.items()}


def _value(said: Mapping[str, Any], name: str, wanted: Field) -> object:
    if name not in said:
        if wanted.default is REQUIRED:
            raise BadRequestError(f"{name!r} is missing: it must be {wanted.kind.wanted}", name)
        return wanted.default
    value = said[name]
    if value is None and wanted.default is None:
        return None
    try:
        return wanted.kind.read(value)
    except ValueError as reason:
        rule = str(reason) or f"must be {wanted.kind.wanted}"
        raise BadRequestError(f"{name!r} {rule}", name) from None


# ---- kinds


def _text(value: object) -> str:
    if not is_text(value):
        raise ValueError
    return str(value)


def is_text(value: object) -> bool:
    """Whether a database takes it: no NUL, and nothing that is half a character."""
    return isinstance(value, str) and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - one error for whatever a field may not be
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError  # noqa: TRY004
    return value


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise ValueError  # noqa: TRY004
    return [_text(part) for part in value]


TEXT: Final = Kind({"type": "string"}, "a text", _text)
WHOLE: Final = Kind({"type": "integer"}, "an integer", _whole)
FLAG: Final = Kind({"type": "boolean"}, "true or false", _flag)
TEXTS: Final = Kind({"type": "array", "items": {"type": "string"}}, "a list of texts", _texts)


# ---- an answer, and what is described


def json_answer(value: object, status: HTTPStatus = HTTPStatus.OK, *headers: str) -> Answer:
    """Something as JSON. Half a character that a client sent goes back to it as the escape that it was."""
    raw = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
    return Answer(raw, "application/json", status, headers)


def described(
    title: str,
    routes: Sequence[Route[Any, Any]],
    problem: Mapping[str, object],
    schemas: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """All ways in, as OpenAPI 3.1; `problem` is the schema of whatever is not done, `schemas` are others by name."""
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": bearer}, "schemas": {"Problem": problem, **(schemas or {})}},
    }


def _operation(route: Route[Any, Any]) -> dict[str, object]:
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    content = {"schema": dict(route.answer)} if route.answer else {}
    found: dict[str, object] = {
        "summary": route.summary,
        "tags": [route.who.value],
        "responses": {
            "200": {"description": "Done.", "content": {route.content_type: content}},
            "default": {"description": "Not done; the message says what to do.", "content": problem},
        },
    }
    if route.needs_token:
        found["security"] = [{"token": []}]
    name = route.path.partition("{")[2].partition("}")[0]
    parameters = [_parameter(name, "path", Field(TEXT))] if name else []
    parameters += [_parameter(name, "query", one) for name, one in route.query.items()]
    parameters += [_parameter(name, "header", one) for name, one in route.headers.items()]
    if parameters:
        found["parameters"] = parameters
    if route.body:
        content = {"application/json": {"schema": object_schema(route.body)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def object_schema(fields: Fields) -> dict[str, object]:
    """An object with these fields and no other, as JSON Schema."""
    properties = {name: _schema(one) for name, one in fields.items()}
    required = [name for name, one in fields.items() if one.default is REQUIRED]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _parameter(name: str, place: str, one: Field) -> dict[str, object]:
    return {"name": name, "in": place, "required": one.default is REQUIRED, "schema": _schema(one)}


def _schema(one: Field) -> dict[str, object]:
    found = dict(one.kind.schema)
    if one.says:
        found["description"] = one.says
    if one.default is not REQUIRED and one.default is not None:
        found["default"] = one.default
    elif one.default is None and isinstance(found.get("type"), str):
        found["type"] = [found["type"], "null"]
    return found


_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0 1rem}
th,td{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0;border-bottom:1px solid #ccc}
h2 code{font-size:1rem}.who{color:#666;font-size:.9rem;font-weight:normal}
pre{overflow:auto;padding:.8rem;border:1px solid #ccc}
@media(prefers-color-scheme:dark){body{background:#111;color:#eee}.who{color:#aaa}a{color:#8bf}}"""
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"Content-Security-Policy: default-src 'none'; style-src 'sha256-{_STYLE_HASH}'"
    "; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def page_for_people(title: str, introduction: str, routes: Sequence[Route[Any, Any]], begin: str) -> Answer:
    """The routes as one page of plain HTML: no script, and nothing from elsewhere. `begin` is a first example."""
    sections = "".join([_section(route) for route in routes])
    html = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n<p>{escape(introduction)}</p>\n<pre>{escape(begin)}</pre>\n"
        f'<p>For programs: <a href="/v1/openapi.json">/v1/openapi.json</a>.</p>\n{sections}</body></html>\n'
    )
    return Answer(html.encode(), "text/html; charset=utf-8", headers=(_POLICY, "Referrer-Policy: no-referrer"))


def _section(route: Route[Any, Any]) -> str:
    rows = [
        (name, place, one)
        for place, fields in (("body", route.body or {}), ("query", route.query), ("header", route.headers))
        for name, one in fields.items()
    ]
    head = (
        f'<h2><code>{route.method} {escape(route.path)}</code> <span class="who">{escape(route.who.value)}</span></h2>'
    )
    table = "".join([_row(name, place, one) for name, place, one in rows])
    if table:
        table = f"<table><tr><th>field</th><th>in</th><th>value</th><th>meaning</th></tr>{table}</table>"
    return f"{head}\n<p>{escape(route.summary)}</p>\n{table}\n"


def _row(name: str, place: str, one: Field) -> str:
    needed = "" if one.default is REQUIRED else " (may be left out)"
    cells = (f"<code>{escape(name)}</code>", place, escape(one.kind.wanted + needed), escape(one.says))
    return f"<tr>{''.join([f'<td>{cell}</td>' for cell in cells])}</tr>"
