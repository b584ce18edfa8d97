"""Plans in tests do not depend on what a busy machine measures, nor on what a user's cache folder holds."""

import os

os.environ["FLEXNN_PROFILE"] = "analytic"
