"""Why the trading service refuses: a word for programs, a sentence for people, and what HTTP calls it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from isocast.orders.desk import Reason, ReportKind, TradeReport
from isocast.runtime.accounts.web_forms import ORDER
from isocast.runtime.net.http import Answer
from isocast.runtime.net.json_service import json_answer

__all__ = ["STATUSES", "Fault", "ServiceError", "refusal_of"]


class Fault(StrEnum):
    """Why a request is refused before anybody looks at an order; for what comes after it see `Reason`."""

    UNAUTHORISED = "unauthorised"
    """No token, or one that nobody knows any more."""
    FORBIDDEN = "forbidden"
    """A token without the scope that this needs."""
    UNKNOWN_PATH = "unknown path"
    METHOD = "method"
    LIMITED = "limited"
    """Too many requests, attempts or watchers: wait."""
    HTTP = "http"
    """It cannot be read as a request at all."""
    FAILED = "failed"
    """A fault of the service; the same request may be sent again."""
    UNSUPPORTED = "unsupported"


STATUSES: Final[Mapping[Reason | Fault, HTTPStatus]] = {
    **dict.fromkeys(Reason, HTTPStatus.UNPROCESSABLE_ENTITY),
    Reason.MALFORMED: HTTPStatus.BAD_REQUEST,
    Reason.CLIENT_ID_USED: HTTPStatus.CONFLICT,
    Reason.UNKNOWN_SYMBOL: HTTPStatus.NOT_FOUND,
    Reason.UNKNOWN_ORDER: HTTPStatus.NOT_FOUND,
    Reason.RATE: HTTPStatus.TOO_MANY_REQUESTS,
    Reason.BLOCKED: HTTPStatus.FORBIDDEN,
    Reason.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    Fault.UNAUTHORISED: HTTPStatus.UNAUTHORIZED,
    Fault.FORBIDDEN: HTTPStatus.FORBIDDEN,
    Fault.UNKNOWN_PATH: HTTPStatus.NOT_FOUND,
    Fault.METHOD: HTTPStatus.METHOD_NOT_ALLOWED,
    Fault.LIMITED: HTTPStatus.TOO_MANY_REQUESTS,
    Fault.HTTP: HTTPStatus.BAD_REQUEST,
    Fault.FAILED: HTTPStatus.INTERNAL_SERVER_ERROR,
    Fault.UNSUPPORTED: HTTPStatus.NOT_IMPLEMENTED,
}
"""What HTTP calls each refusal."""


class ServiceError(Exception):
    """A request that is refused, with a word for programs and a sentence for people."""

    def __init__(self, reason: Reason | Fault, message: str, field: str = "", *headers: str) -> None:
        """`field` is the one that is meant; `headers` are further lines of the head."""
        super().__init__(message)
        self.reason = reason
        self.field = field
        self.headers = headers

    def answer(self, status: HTTPStatus | None = None) -> Answer:
        """As JSON: one shape for whatever is refused."""
        return json_answer({"error": self.problem()}, status or STATUSES[self.reason], *self.headers)

    def problem(self) -> dict[str, str | None]:
        """What is wrong, alone."""
        return {"reason": self.reason.value, "message": str(self), "field": self.field or None}


def refusal_of(report: TradeReport) -> ServiceError | None:
    """What a refused request hears; None: it was accepted."""
    if report.kind not in (ReportKind.REFUSED, ReportKind.CHANGE_REFUSED):
        return None
    reason = report.reason or Reason.UNAVAILABLE
    return ServiceError(reason, report.text or f"refused: {reason.value}", _field_of(report.text))


def _field_of(text: str) -> str:
    """The field that a desk's sentence is about, where it begins with one: "price: ..." or "'price' ..."."""
    word = text.replace(":", " ").partition(" ")[0].strip("'\"")
    return word if word in ORDER else ""
