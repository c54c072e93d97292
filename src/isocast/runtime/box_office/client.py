"""A customer's side of the box office: log in, buy, fetch the package, and keep it current.

It speaks HTTPS and believes only a certificate that its CA signed; without TLS it speaks to this machine alone.
"""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from isocast.runtime.market.secret_files import replace_file
from isocast.runtime.market.tls_files import OFFICE
from isocast.runtime.net.service_url import believing, plain, read_service_url
from isocast.runtime.net.tls import UnpinnedError, tls_trouble
from isocast.security.packages import PackageLabel, read_label
from isocast.terms.errors import ConfigurationError, OfficeError, OfficeFault, TransportError

__all__ = ["OfficeClient", "write_package"]

_TIMEOUT_S: Final = 30.0
_ANSWER_BYTES_MAX = 4 << 20
_OK = 200


class OfficeClient:
    """One subscriber's way to a box office."""

    def __init__(self, url: str, ca: Path | None = None, roster: Path | None = None) -> None:
        """`ca`: certificates to believe, in PEM; left out, those of this machine. ConfigurationError for a bad URL.

        `roster`: the market's, which says which certificate is the office's.
        """
        where = read_service_url(url, "a box office")
        self._host, self._port, self._place = where.host, where.port, where.place
        self._tls = believing(ca, roster, OFFICE) if where.is_tls else None
        self._token = ""

    def log_in(self, name: str, password: str) -> None:
        """Begin a session."""
        self._token = str(self._asked("POST", "/v1/login", {"name": name, "password": password})["token"])

    def log_out(self) -> None:
        """End it."""
        self._asked("POST", "/v1/logout", {})
        self._token = ""

    def office(self) -> dict[str, Any]:
        """Which market it is, and how long its periods are."""
        return self._asked("GET", "/v1/office")

    def plans(self) -> list[dict[str, Any]]:
        """What is on sale."""
        found: Any = self._asked("GET", "/v1/plans")
        return list(found)

    def account(self) -> dict[str, Any]:
        """What one has bought."""
        return self._asked("GET", "/v1/account")

    def buy(self, plan: str, *, key: str, periods: int, instrument: str, renews: bool) -> dict[str, Any]:
        """Buy periods of a plan; the same key buys once."""
        order = {"plan": plan, "periods": periods, "instrument": instrument, "renews": renews}
        return self._asked("POST", "/v1/orders", order, {"Idempotency-Key": key})

    def stand(self, plan: str, *, renews: bool) -> None:
        """Have a plan renewed by the office, or no longer."""
        self._asked("POST", "/v1/renewals", {"plan": plan, "renews": renews})

    def package(self) -> bytes:
        """The newest package, whole; PackageError for what is none."""
        raw = self._answer("GET", "/v1/package", None, {})
        read_label(raw)
        return raw

    def _asked(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        raw = self._answer(method, path, body, headers or {})
        try:
            found: dict[str, Any] = json.loads(raw)
        except (ValueError, RecursionError):
            raise OfficeError(OfficeFault.UNAVAILABLE, f"what answers at {self._place} is no box office") from None
        return found

    def _answer(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> bytes:
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
            if self._tls is None
            else http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._tls)
        )
        whole = {**headers, **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        if body is not None:
            whole["Content-Type"] = "application/json"
        try:
            connection.request(method, path, None if body is None else json.dumps(body).encode(), whole)
            answer = connection.getresponse()
            raw = answer.read(_ANSWER_BYTES_MAX)
        except UnpinnedError as error:
            raise TransportError(tls_trouble(self._place, error)) from None
        except ssl.SSLCertVerificationError as error:
            rule = f"{self._place} has no certificate that is believed ({error.verify_message}): give its CA by --ca"
            raise TransportError(rule) from None
        except (OSError, http.client.HTTPException) as error:
            trouble = getattr(error, "strerror", None) or type(error).__name__
            raise TransportError(f"no box office answers at {self._place}: {trouble}") from None
        finally:
            connection.close()
        if answer.status != _OK:
            raise _refusal(raw)
        return raw


def _refusal(raw: bytes) -> OfficeError:
    try:
        said = json.loads(raw)
        return OfficeError(OfficeFault(said["error"]), plain(str(said["message"])))
    except (ValueError, KeyError, TypeError, RecursionError):
        return OfficeError(OfficeFault.UNAVAILABLE, plain(raw[:200].decode(errors="replace").strip()))


def write_package(path: Path, raw: bytes) -> PackageLabel:
    """The package as a file, readable by its owner alone; the one before stays until this one is whole."""
    label = read_label(raw)
    try:
        replace_file(path, raw)
    except OSError as error:
        raise ConfigurationError(str(path), "--out", f"cannot be written: {error.strerror}") from None
    return label
