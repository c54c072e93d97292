"""The command line: parse, call, render; one file for each command.

It owns words, tables, pictures and exit codes. It has no rule of the protocol in it, and offers `--json` beside every
table.
"""
