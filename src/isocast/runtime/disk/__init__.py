"""What must survive a crash: log, outbox, ballots, journal, snapshots.

A record is on disk before anything of the same step is sent. It stores and restores what machines tell it, names every
damaged file, and decides nothing about the sequence.
"""
