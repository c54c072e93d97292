"""Routes, bodies and queries of JSON services: what is described is read, and nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import pytest

from isocast.runtime.net.http import Request
from isocast.runtime.net.json_service import (
    FLAG,
    TEXT,
    TEXTS,
    WHOLE,
    BadRequestError,
    Field,
    Fields,
    NoRouteError,
    Route,
    bearer_token,
    described,
    find_route,
    page_for_people,
    read_body,
    read_query,
)
from isocast.runtime.net.service_url import ServiceUrl, plain, read_service_url
from isocast.terms.errors import ConfigurationError


class Who(StrEnum):
    ANYONE = "anyone"
    OWNER = "owner"


BODY: Fields = {
    "name": Field(TEXT, says="Whose <it> is."),
    "count": Field(WHOLE, 1),
    "on": Field(FLAG, default=False),
    "parts": Field(TEXTS, None),
}
ROUTES = (
    Route("GET", "/v1/things", Who.ANYONE, "All.", "list", query={"after": Field(WHOLE, 0), "on": Field(FLAG, True)}),  # noqa: FBT003
    Route("POST", "/v1/things", Who.OWNER, "Make <one>.", "make", BODY, headers={"Key": Field(TEXT)}),
    Route("GET", "/v1/things/{name}/parts", Who.OWNER, "Of one.", "parts"),
    Route("GET", "/v1/things/{name}", Who.OWNER, "One.", "show"),
)


def request(method: str, path: str, **headers: str) -> Request:
    return Request(method, path, "", headers, b"", "192.0.2.1")


@pytest.mark.parametrize(
    "method, path, act, name",
    [
        ("GET", "/v1/things", "list", ""),
        ("POST", "/v1/things", "make", ""),
        ("GET", "/v1/things/a/parts", "parts", "a"),
        ("GET", "/v1/things/a", "show", "a"),
        ("GET", "/v1/things/a/b", "show", "a/b"),
    ],
)
def test_a_request_finds_its_route_and_the_name_in_its_path(method: str, path: str, act: str, name: str) -> None:
    route, found = find_route(ROUTES, request(method, path))
    assert (route.act, found) == (act, name)


@pytest.mark.parametrize(
    "method, path, methods",
    [("PUT", "/v1/things", ("GET", "POST")), ("GET", "/v1/thing", ()), ("GET", "/v1/things/", ())],
)
def test_where_nothing_is_says_whether_another_way_is(method: str, path: str, methods: tuple[str, ...]) -> None:
    with pytest.raises(NoRouteError) as found:
        find_route(ROUTES, request(method, path))
    assert found.value.methods == methods


def test_a_body_is_read_as_described() -> None:
    assert read_body(b'{"name": "a"}', BODY) == {"name": "a", "count": 1, "on": False, "parts": None}
    assert read_body(b'{"name": "a", "parts": ["x"], "on": true}', BODY)["parts"] == ["x"]
    assert read_body(b'{"name": "a", "parts": null}', BODY)["parts"] is None
    assert read_body(b"anything", None) == {}


@pytest.mark.parametrize(
    "body, field, text",
    [
        (b"{}", "name", "is missing"),
        (b'{"name": null}', "name", "a text"),
        (b'{"name": "a\\u0000"}', "name", "a text"),
        (b'{"name": "\\ud800"}', "name", "a text"),
        (b'{"name": "a", "count": true}', "count", "an integer"),
        (b'{"name": "a", "count": 1.0}', "count", "an integer"),
        (b'{"name": "a", "count": null}', "count", "an integer"),
        (b'{"name": "a", "on": 1}', "on", "true or false"),
        (b'{"name": "a", "parts": [1]}', "parts", "a list of texts"),
        (b'{"name": "a", "parts": "x"}', "parts", "a list of texts"),
        (b'{"nam": "a"}', "nam", 'did you mean "name"?'),
        (b'{"name": "a", "name": "b"}', "name", "there twice"),
        (b'{"name": "a", "parts": {"x": 1, "x": 2}}', "x", "there twice"),
        (b'{"name": Infinity}', "", "no JSON object"),
        (b"\xff", "", "no JSON object"),
        (b"[" * 100_000, "", "no JSON object"),
        (b"null", "", "no JSON object"),
        (b'{"' + b"x" * 500 + b'": 1}', "x" * 40, "is not known here"),
    ],
)
def test_what_a_body_may_not_say_names_its_field(body: bytes, field: str, text: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        read_body(body, BODY)
    assert refused.value.field == field
    assert text in str(refused.value)


@pytest.mark.parametrize(
    "query, wanted",
    [
        ("", {"after": 0, "on": True}),
        ("after=12&on=false", {"after": 12, "on": False}),
        ("on=true", {"after": 0, "on": True}),
    ],
)
def test_a_query_is_read_as_described(query: str, wanted: dict[str, Any]) -> None:
    assert read_query(query, ROUTES[0].query) == wanted


@pytest.mark.parametrize(
    "query",
    [
        *["after", "after=", "after=x", "after=-1", "after=1&after=2", "on=1", "other=1", "%ff=1", "after=\u0661"],
        "&".join(["after=1"] * 20),
        "after=" + "9" * 30,
    ],
)
def test_any_other_query_is_refused(query: str) -> None:
    with pytest.raises(BadRequestError):
        read_query(query, ROUTES[0].query)


def test_a_token_is_what_the_header_carries() -> None:
    assert bearer_token(request("GET", "/", authorization="bearer  x ")) == "x"
    assert bearer_token(request("GET", "/", authorization="Basic x")) == bearer_token(request("GET", "/")) == ""


def test_the_description_has_what_the_table_has() -> None:
    said = described("Things", ROUTES, {"type": "object"}, {"Thing": {"type": "object"}})
    made = said["paths"]["/v1/things"]["post"]
    schema = made["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["name"]
    assert schema["properties"]["count"] == {"type": "integer", "default": 1}
    assert schema["properties"]["parts"]["type"] == ["array", "null"]
    assert [one["in"] for one in made["parameters"]] == ["header"]
    assert [one["name"] for one in said["paths"]["/v1/things/{name}"]["get"]["parameters"]] == ["name"]
    assert "security" not in said["paths"]["/v1/things"]["get"]
    assert set(said["components"]["schemas"]) == {"Problem", "Thing"}


def test_the_page_for_people_escapes_what_it_shows() -> None:
    text = page_for_people("<Things>", "a & b", ROUTES, "<x>").body.decode()
    assert "<h1>&lt;Things&gt;</h1>" in text
    assert "Make &lt;one&gt;." in text
    assert "Whose &lt;it&gt; is." in text


def test_a_place_is_read_and_named_as_it_was_written() -> None:
    assert read_service_url("https://[::1]:8443/", "a thing") == ServiceUrl("::1", 8_443, is_tls=True)
    assert ServiceUrl("::1", 8_443, is_tls=True).place == "[::1]:8443"
    assert read_service_url("https://x.example", "a thing").number == 443
    assert read_service_url("http://localhost", "a thing").number == 80
    with pytest.raises(ConfigurationError, match="of a thing") as refused:
        read_service_url("https://x:99999", "a thing")
    assert "99999" not in str(refused.value)
    assert plain("a\x1b[2Jb") == "a?[2Jb"
