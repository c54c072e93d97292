"""Identities, rosters and signatures; keys and what is derived from them; seals and packages (§6).

It computes with keys that it is given. It reads no key file (`runtime.market.key_files` does) and decides nothing about
who may have which.
"""
