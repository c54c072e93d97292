"""A trader with an unmodified QuickFIX, as a process of its own: commands come in, what it hears goes out, a line each.

    python quickfix_client.py SETTINGS NAME PASSWORD [tls]
    order o1 1 100 10.05      buy 100 at 10.05 (2: sell)
    cancel c1 o1 1            cancel o1, a buy
    replace r1 o1 1 150 10    o1, a buy, to 150 at 10
    stop                      log out, and end

It is no test, and imports nothing of this project: it may run in another environment.
"""

# ruff: noqa: ANN401, N802 - names and types are QuickFIX's.

import json
import sys
from typing import Any

import quickfix as fix
import quickfix44 as fix44

SOH = chr(1)


def say(event: str, message: Any = None) -> None:
    fields = [] if message is None else [part.split("=", 1) for part in message.toString().split(SOH) if part]
    sys.stdout.write(json.dumps({"event": event, "fields": fields}) + "\n")
    sys.stdout.flush()


class Trader(fix.Application):  # type: ignore[misc]
    """Names are QuickFIX's."""

    def __init__(self, name: str, password: str) -> None:
        super().__init__()
        self.name, self.password = name, password
        self.session: Any = None

    def onCreate(self, session: Any) -> None:
        self.session = session

    def onLogon(self, _session: Any) -> None:
        say("logon")

    def onLogout(self, _session: Any) -> None:
        say("logout")

    def toAdmin(self, message: Any, _session: Any) -> None:
        kind = fix.MsgType()
        message.getHeader().getField(kind)
        if kind.getValue() == fix.MsgType_Logon:
            message.setField(fix.Username(self.name))
            message.setField(fix.Password(self.password))

    def fromAdmin(self, message: Any, _session: Any) -> None:
        say("admin", message)

    def toApp(self, _message: Any, _session: Any) -> None:
        pass

    def fromApp(self, message: Any, _session: Any) -> None:
        say("application", message)


def made(words: list[str]) -> Any:
    kind, client_id, *rest = words
    makers = {"order": fix44.NewOrderSingle, "cancel": fix44.OrderCancelRequest}
    message = makers.get(kind, fix44.OrderCancelReplaceRequest)()
    fields = [fix.ClOrdID(client_id), fix.Symbol("XISO"), fix.TransactTime()]
    if kind != "order":
        fields.append(fix.OrigClOrdID(rest.pop(0)))
    fields.append(fix.Side(rest.pop(0)))
    if kind != "cancel":
        quantity, price = rest
        fields += [fix.OrdType("2"), fix.OrderQty(float(quantity)), fix.Price(float(price))]
    for field in fields:
        message.setField(field)
    return message


def main() -> None:
    path, name, password, *tls = sys.argv[1:]
    settings = fix.SessionSettings(path)
    trader = Trader(name, password)
    store, log = fix.FileStoreFactory(settings), fix.FileLogFactory(settings)
    initiator = (fix.SSLSocketInitiator if tls else fix.SocketInitiator)(trader, store, settings, log)
    initiator.start()
    for line in sys.stdin:
        words = line.split()
        if words == ["stop"]:
            break
        fix.Session.sendToTarget(made(words), trader.session)
    initiator.stop()


if __name__ == "__main__":
    main()
