"""The world of a coverage plan: its file, its places, its land."""
