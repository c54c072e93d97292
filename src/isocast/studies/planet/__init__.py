"""The planet: ten thousand receivers and ten million customers, as arrays instead of machines."""
