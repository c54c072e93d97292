"""One module for each version of the tables.

A version that was released is never changed: what comes after it is another module.
"""
