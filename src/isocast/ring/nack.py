"""Who may ask when: the sets of receivers that take turns (§5.2; protocol §8)."""

from __future__ import annotations

__all__ = ["nack_sets", "turn"]


def nack_sets(size: int, sets: int, owner: int = 0) -> list[list[int]]:
    """S_{i,t} = {(r+i+1+j·k_p) mod m : 0 ≤ j ≤ ⌊(m-i-2)/k_p⌋}, for a token sent by place r of m."""
    return [
        [(owner + turn_number + 1 + step * sets) % size for step in range((size - turn_number - 2) // sets + 1)]
        for turn_number in range(sets)
    ]


def turn(size: int, sets: int, owner: int, place: int) -> int:
    """I of the set that `place` belongs to for a token of `owner`: it may ask from T_{t+i}+δ_N+2ε on.

    The next owner has turn 0, so that nobody must send a token before it could ask for what it lacks.
    """
    return (place - owner - 1) % size % sets
