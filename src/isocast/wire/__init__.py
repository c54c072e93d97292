"""Bytes: packets and their codec, doors, the fixed event record, journal blocks, and a limit on every length and count.

It decides whether bytes are well-formed and authentic, and never what a well-formed packet means. Whatever the bytes,
a reader returns a value that keeps every rule or raises RemoteProtocolError. It opens no socket and no file.
"""
