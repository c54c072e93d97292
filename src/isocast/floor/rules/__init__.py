"""The rules of trading, one module each, with a worked example in its docstring.

They know books and orders, never phases, tokens or the market: `floor.machine` says when each is asked.
"""
