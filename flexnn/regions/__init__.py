"""Models whose shapes or path are known only at run time, cut into segments that are bound when their inputs are there.

This package knows neither the engine nor onnx: the walk is given a ``SegmentRunner`` (``OpenShapesRun`` in flexnn/run,
or that of sampling.py when compiling).
"""

from .region import Region
from .segment import Segment
from .walk import SegmentRunner, Walker

__all__ = ["Region", "Segment", "SegmentRunner", "Walker"]
