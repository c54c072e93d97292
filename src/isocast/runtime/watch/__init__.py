"""What a node says of itself, and who looks: counters, metrics, status, health, logs, doctor.

It observes and explains. It changes nothing in a machine, a file or a setting.
"""
