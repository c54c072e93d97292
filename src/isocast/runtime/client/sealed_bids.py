"""What a bidder keeps of a sealed bid until its lot is closed: price and nonce, in a file that only he can read.

Whoever loses them cannot reveal the bid, and forfeits. So the file is on the disk before the bid is sent, and a program
that was ended can reveal after its next start.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Final

from isocast.floor.rules.second_price import NONCE_BYTES, commitment
from isocast.runtime.market.secret_files import OTHERS, create_file, read_file
from isocast.terms.errors import ConfigurationError

__all__ = ["KeptBid", "kept_bids"]

_SUFFIX: Final = ".bid"
_BYTES_MAX: Final = 4_096
_FILES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class KeptBid:
    """A sealed bid, with its secret."""

    client_id: str
    """Of the bid."""
    lot: int
    account: int
    price: int
    """In price units."""
    nonce: str
    closes_at: int
    reveal_until: int

    @classmethod
    def new(cls, client_id: str, lot: int, account: int, price: int, closes_at: int, reveal_until: int) -> KeptBid:
        """A bid with a nonce of its own."""
        return cls(client_id, lot, account, price, token_bytes(NONCE_BYTES).hex(), closes_at, reveal_until)

    def __repr__(self) -> str:
        return f"<KeptBid {self.client_id} for lot {self.lot}>"  # Without its secret.

    @property
    def commitment(self) -> str:
        """What is told before the close."""
        return commitment(self.price, bytes.fromhex(self.nonce), self.account, self.lot).hex()

    def file_in(self, folder: Path) -> Path:
        """Where it is kept."""
        name = "".join(
            letter if letter.isalnum() or letter in "-_" else f"%{ord(letter):02x}" for letter in self.client_id
        )
        return folder / f"{self.lot}-{name}{_SUFFIX}"

    def keep(self, folder: Path) -> KeptBid:
        """Write it, for nobody else to read; the one that is there, where the same was kept before.

        ConfigurationError where it cannot be written, or another bid was kept under its id.
        """
        file = self.file_in(folder)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not file.exists():
                create_file(file, json.dumps(asdict(self)).encode())
                return self
        except OSError as reason:
            raise ConfigurationError(str(file), "bid", f"cannot be written: {reason.strerror}") from None
        kept = KeptBid.read(file)
        if (kept.lot, kept.account, kept.price) != (self.lot, self.account, self.price):
            raise ConfigurationError(str(file), "bid", "is another bid: take another id for this one")
        return kept

    @classmethod
    def read(cls, file: Path) -> KeptBid:
        """A bid that was kept; ConfigurationError for a file that is none, or that others may read."""
        try:
            return cls(**json.loads(read_file(file, _BYTES_MAX, OTHERS)))
        except (ValueError, TypeError) as reason:
            raise ConfigurationError(str(file), "bid", "is no sealed bid that this program kept") from reason


def kept_bids(folder: Path) -> list[tuple[Path, KeptBid]]:
    """All that are kept in a folder, those that close first before others."""
    files = sorted(folder.glob(f"*{_SUFFIX}"))[:_FILES_MAX] if folder.is_dir() else []
    found = [(file, KeptBid.read(file)) for file in files]
    return sorted(found, key=lambda one: (one[1].closes_at, one[0].name))
