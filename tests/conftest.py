"""What all tests share."""

from hypothesis import settings

# A busy machine is slow, not wrong; a failure prints the line that reproduces it.
settings.register_profile("isocast", deadline=None, print_blob=True)
settings.load_profile("isocast")
