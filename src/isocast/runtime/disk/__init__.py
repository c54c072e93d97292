"""What must survive: log, outbox, journal, snapshots. Written before anything of the same step is sent."""
