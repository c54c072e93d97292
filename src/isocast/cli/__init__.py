"""The command line: parse, call, render; no protocol logic."""
