"""Forming a ring (§4.3): the server that proposes, the members that vote, and how two logs become one.

It decides who is on the ring and where the log goes on, and leaves ordering to `ring`. It knows nothing of customers.
`scopes` plans who remulticasts how far.
"""
