"""Errors say what a person needs to know."""

from isocast.terms.errors import ConfigurationError, IsocastError, LocalProtocolError, RemoteProtocolError


def test_a_configuration_error_names_file_key_and_rule() -> None:
    error = ConfigurationError("ring.toml", "retry", "a time is not negative")
    assert str(error) == "ring.toml: retry: a time is not negative"
    assert (error.file, error.key, error.rule) == ("ring.toml", "retry", "a time is not negative")


def test_ours_and_theirs_are_told_apart() -> None:
    for kind in (ConfigurationError, LocalProtocolError, RemoteProtocolError):
        assert issubclass(kind, IsocastError)
    assert not issubclass(RemoteProtocolError, LocalProtocolError)
