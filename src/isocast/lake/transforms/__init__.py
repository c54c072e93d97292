"""The steps of the pipeline, each a function from frames to a frame.

None of them makes a session, reads a path or writes a file: `lake.pipeline` does.
"""
