"""Keys and what is derived from them, tags, and seals that keep a payload secret until its release (§6).

It computes with keys that it is given. It reads no key file (`runtime.market.key_files` does) and decides nothing about
who may have which.
"""
