"""Plans in tests do not depend on what a busy machine measures, nor on what a user's cache folder holds; nor do tests
fail because the machine, which may be emulated, is slow.
"""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).resolve().parents[1]))  # bench and tests; last, so that the installed flexnn wins
os.environ["FLEXNN_PROFILE"] = "analytic"
settings.register_profile("slow machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("slow machine")
