"""`python -m isthmus` is `isthmus`."""

import sys

from isthmus.cli.main import main

sys.exit(main())
