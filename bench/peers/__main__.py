"""``python -m bench.peers``: whole models, FlexNN against the peers installed here."""

from __future__ import annotations

import sys

from bench.peers.compare import main

if __name__ == "__main__":
    sys.exit(main())
