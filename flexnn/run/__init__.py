"""Running programs: the engine from Python, bound segments, models of open shapes, outputs, traces."""
