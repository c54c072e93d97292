"""The market's file and what it says of every node, and the key files.

It reads, checks and explains. It opens no socket, starts no process, and writes nothing but key files and the mark of
a node that is new.
"""
