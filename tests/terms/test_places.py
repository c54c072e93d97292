"""Places: a path is a path, and an object store is no folder."""

from pathlib import Path

import pytest

from isocast.terms.errors import ConfigurationError
from isocast.terms.places import local_path, scheme_of


@pytest.mark.parametrize(
    "given, meant",
    [
        ("data", "data"),
        ("/srv/a:b/data", "/srv/a:b/data"),
        ("s3a", "s3a"),
        ("file:///srv/my%20data", "/srv/my data"),
        ("file:/srv/data", "/srv/data"),
        ("file://localhost/srv/data", "/srv/data"),
        ("FILE:///srv", "/srv"),
        ("  data ", "data"),
    ],
)
def test_a_path_is_itself_and_a_file_url_is_its_path(given: str, meant: str) -> None:
    assert local_path(given, "command line", "--lake") == Path(meant)


def test_a_path_that_was_a_file_url_is_its_path() -> None:
    assert local_path(Path("file:///srv/data"), "command line", "--lake") == Path("/srv/data")


@pytest.mark.parametrize(
    "given", ["s3a://bucket/lake", "S3://bucket", "hdfs:///lake", "dbfs:/lake", "gs://b/l", "file://other/srv"]
)
def test_what_is_in_no_folder_of_this_machine_is_refused_with_what_to_do(given: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^command line: --lake: .* mount it and give the folder") as error:
        local_path(given, "command line", "--lake")
    assert given in str(error.value)
    if not given.startswith("file"):  # A Path has one slash for two: the host of a file is not to be seen any more.
        with pytest.raises(ConfigurationError, match="mount it"):
            local_path(Path(given), "command line", "--lake")


def test_the_scheme_of_a_url() -> None:
    assert scheme_of("S3A://bucket") == "s3a"
    assert scheme_of(Path("s3a://bucket")) == "s3a"
    assert scheme_of("c:/drive") == ""
