"""The way in and out for programs: the connection, rows, publisher, listener, batches, tape, replay, files of feeds.

It is what `import isocast` offers, and all of `runtime` that a user's program needs. It takes part in no ring and
decides no order.
"""
