"""The tape for others: gateways for MoldUDP64 with ITCH and for WebSocket, and the narrow stripes.

It passes on what was released, in the formats and at the rates that others can take. It orders nothing and can hold up
nobody upstream.
"""
