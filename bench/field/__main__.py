"""Models as they are found, against onnxruntime, float64 and the official suite.

    trained   trained models out of packages that people install (default)
    double    who is right where FlexNN and onnxruntime differ
    suite     counts of the official ONNX backend suite
    broken    models that each break one rule of the ONNX standard
    records   makes the records of onnxruntime's own operators

python -m bench.field PART --help tells of each.
"""

from __future__ import annotations

import sys

from bench.cli import dispatch

if __name__ == "__main__":
    PARTS = {part: f"bench.field.{part}" for part in ("trained", "double", "suite", "broken", "records")}
    sys.exit(dispatch("bench.field", __doc__, PARTS, default="trained"))
