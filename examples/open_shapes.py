"""Run a model at several shapes: python examples/open_shapes.py MODEL.flexnn 1,3,320,320 1,3,640,640 1,3,320,320

The model has one input with open dimensions. The program prints, for each shape, the outputs' shapes, what the session
owns after the run, and how long the first and the second run at that shape took.
"""

import sys
import time

import numpy as np

import flexnn


def main(path: str, shapes: list[str]) -> None:
    """Run the model at ``path`` twice at each of the ``shapes``."""
    with flexnn.Session(path) as session:
        model_input = session.get_inputs()[0]
        for shape in shapes:
            x = np.zeros([int(size) for size in shape.split(",")], model_input.numpy_dtype)
            times_ms = []
            for _ in range(2):
                start = time.perf_counter()
                outputs = session.run(None, {model_input.name: x})
                times_ms.append(1e3 * (time.perf_counter() - start))
            owned_mib = session.session_bytes / 2**20
            print(f"{shape:>14}  gives {', '.join(str(output.shape) for output in outputs)}")
            print(f"{'':>14}  owns {owned_mib:.1f} MiB; took {times_ms[0]:.1f}, then {times_ms[1]:.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
