"""A whole market on one machine for people to look at: staged, fed, disturbed, watched, and judged by its journals."""
