"""What a node says of itself, and who looks: counters, metrics, status, health, logs, doctor. Changes nothing."""
