"""Errors say what a person needs to know."""

import pickle

from isocast.terms.errors import (
    ConfigurationError,
    FeedError,
    IsocastError,
    JournalError,
    JournalFull,
    LocalProtocolError,
    RemoteProtocolError,
)


def test_a_configuration_error_names_file_key_and_rule() -> None:
    error = ConfigurationError("ring.toml", "retry", "a time is not negative")
    assert str(error) == "ring.toml: retry: a time is not negative"
    assert (error.file, error.key, error.rule) == ("ring.toml", "retry", "a time is not negative")


def test_ours_and_theirs_are_told_apart() -> None:
    for kind in (ConfigurationError, LocalProtocolError, RemoteProtocolError):
        assert issubclass(kind, IsocastError)
    assert not issubclass(RemoteProtocolError, LocalProtocolError)


def test_errors_of_journals_name_their_place_and_pass_between_processes() -> None:
    error = JournalError("a.isoj", "a rule", 64)
    assert str(error) == "a.isoj: byte 64: a rule"
    assert str(JournalError("a.isoj", "a rule")) == "a.isoj: a rule"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  what was pickled one line above
    assert (type(again), str(again), again.offset) == (JournalError, str(error), 64)
    full = pickle.loads(pickle.dumps(JournalFull("a.isoj", "no space")))  # noqa: S301
    assert (type(full), str(full)) == (JournalFull, "a.isoj: no space")
    assert not isinstance(full, JournalError), "an alarm and a stop, not a corruption"


def test_errors_of_feeds_name_their_place_and_pass_between_processes() -> None:
    error = FeedError("day.itch", "unknown-type", 64)
    assert str(error) == "day.itch: byte 64: unknown-type"
    assert str(FeedError("day.itch", "is empty")) == "day.itch: is empty"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  what was pickled one line above
    assert (type(again), str(again), again.offset) == (FeedError, str(error), 64)
