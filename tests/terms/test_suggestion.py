"""Did you mean."""

import pytest

from isocast.terms.quantities import suggestion


@pytest.mark.parametrize(
    "word, hint", [("los", '; did you mean "loss"?'), ("LOSS", '; did you mean "loss"?'), ("qqq", "")]
)
def test_the_nearest_known_word_is_offered(word: str, hint: str) -> None:
    assert suggestion(word, ["loss", "delay"]) == hint
