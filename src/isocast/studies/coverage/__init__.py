"""The world of a coverage plan: its file, its places, its land, its report.

The plan itself is made by `reformation.scopes`.
"""
