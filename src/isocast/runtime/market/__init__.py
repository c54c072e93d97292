"""The market's file and what it says of every node, and the keys. Opens no socket and starts no process."""
