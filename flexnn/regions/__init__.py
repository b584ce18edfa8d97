"""Models whose shapes or path are known only at run time, recorded as stretches of segments, branches and loops.

This package knows neither the engine nor onnx: OpenShapesRun (flexnn/run) runs what is recorded here.
"""

from .record import Recorder
from .region import Region
from .scope import Scope, Value
from .segment import Segment
from .stretch import Control, Host, Output, Read, Stretch, Turns

__all__ = ["Control", "Host", "Output", "Read", "Recorder", "Region", "Scope", "Segment", "Stretch", "Turns", "Value"]
