"""`python -m isocast`: the same as the command `isocast`."""

import sys

from isocast.cli.main import main

sys.exit(main())
