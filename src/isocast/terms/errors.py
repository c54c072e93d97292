"""Every error that Isocast raises, in one place."""

from __future__ import annotations

__all__ = ["ConfigurationError", "IsocastError", "LocalProtocolError", "RemoteProtocolError"]


class IsocastError(Exception):
    """Base of all errors of this package."""


class LocalProtocolError(IsocastError):
    """This program asked its own machine for something that the protocol forbids."""


class RemoteProtocolError(IsocastError):
    """Bytes from the network that this version cannot accept: count them and drop them."""


class ConfigurationError(IsocastError):
    """A key of a file breaks a rule; the message names file, key and rule."""

    def __init__(self, file: str, key: str, rule: str) -> None:
        """Remember the three parts, so that a command can print them alike."""
        super().__init__(f"{file}: {key}: {rule}")
        self.file = file
        self.key = key
        self.rule = rule

    def __reduce__(self) -> tuple[type[ConfigurationError], tuple[str, str, str]]:
        """Pass from a worker process to its parent with all three parts."""
        return ConfigurationError, (self.file, self.key, self.rule)
