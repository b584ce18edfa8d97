"""``python -m flexnn``."""

import sys

from flexnn.cli import main

sys.exit(main())
