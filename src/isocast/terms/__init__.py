"""The nouns of the paper's sections 2 to 4: ids, instants, timing, topology, market terms, errors."""
