"""FIX 4.4 at a gateway: framing, session, durable numbers, and the orders behind it.

`messages` and `dictionary` know bytes, `session` is a machine without sockets or clocks, `store` keeps numbers and sent
messages, `orders_door` translates to and from the gateway's desk, `server` listens. Nothing else in the package knows
what FIX is. It refuses: FIX of other versions, encryption by FIX itself (TLS does that), and market data.
"""
