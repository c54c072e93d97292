"""Letters of the US consolidated tapes to market identifier codes (ISO 10383)."""

from __future__ import annotations

from types import MappingProxyType

__all__ = ["US_TAPE"]

US_TAPE = MappingProxyType(
    {
        "A": "XASE",
        "B": "XBOS",
        "C": "XCIS",
        "D": "XADF",
        "H": "EPRL",
        "I": "XISX",
        "J": "EDGA",
        "K": "EDGX",
        "L": "LTSE",
        "M": "XCHI",
        "N": "XNYS",
        "P": "ARCX",
        "Q": "XNAS",
        "T": "XNAS",
        "U": "MEMX",
        "V": "IEXG",
        "W": "CBSX",
        "X": "XPSX",
        "Y": "BATY",
        "Z": "BATS",
    }
)
"""D is FINRA: trades off the exchanges. W was the CBOE Stock Exchange until 2014."""
