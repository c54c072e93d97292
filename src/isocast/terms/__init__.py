"""The nouns of §2–4: ids, instants, quantities, timing with its formulas, places, market events, topology, errors.

Every other room speaks in these words. It knows no packet and no file format, imports no other room, and holds values
and formulas only: nothing here changes with time.
"""
