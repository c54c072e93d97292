"""Steps of the pipeline, each a function from frames to a frame; none of them makes a session or writes a file."""
