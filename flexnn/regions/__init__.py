"""Models whose shapes or path are known only at run time: cut into segments that are bound when their inputs are there.

No engine and no onnx here: what runs a segment is handed in (flexnn/runner, and sampling.py when compiling).
"""

from .region import Region
from .segment import Segment
from .walk import SegmentRunner, Walker

__all__ = ["Region", "Segment", "SegmentRunner", "Walker"]
