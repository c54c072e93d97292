"""Scopes and addresses (§4.3): who remulticasts how far, and on which multicast group; planned, then kept up to date.

It computes plans and their changes from distances and from who is alive. It sends nothing itself.
"""
