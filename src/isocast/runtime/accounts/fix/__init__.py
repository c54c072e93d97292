"""FIX 4.4 on both sides: framing, session, durable numbers, and the orders behind it.

`messages` and `dictionary` know bytes, `session` is a machine without sockets or clocks, `store` keeps numbers and sent
messages, `connection` performs what a session says, `server` listens and `initiator` connects; `orders_door` translates
to and from the gateway's desk. Outside this folder `runtime.exchange` alone knows what FIX is. It refuses: FIX of other
versions, encryption by FIX itself (TLS does that), and market data.
"""
