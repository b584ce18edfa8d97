"""Watch a camera for faces, and follow a budget that others change while it runs.

    flexnn compile centerface.onnx --shape input.1=1,3,256,256
    echo 24MiB > budget
    python examples/camera.py centerface.flexnn --budget budget        (a camera: needs the package opencv-python)
    python examples/camera.py centerface.flexnn pictures/*.png --budget budget
    echo 12MiB > budget                                                (from another terminal, at any time)

Each frame is looked at with the budget that the file says then: the session plans again in place, and gives back or
takes memory between two frames. Without a camera, pictures are its frames, again and again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

import flexnn

SCORE_MIN = 0.5


def frames(pictures: list[str]) -> Iterator[Image.Image]:
    """Yield frames of the first camera, or the pictures again and again."""
    if pictures:
        opened = [Image.open(path).convert("RGB") for path in pictures]
        yield from itertools.cycle(opened)
    import cv2

    camera = cv2.VideoCapture(0)
    while True:
        is_there, frame = camera.read()
        if not is_there:
            raise SystemExit("error: no picture from the camera; give pictures instead")
        yield Image.fromarray(frame[..., ::-1])


def resident_mib() -> float:
    """Resident memory of this process in MiB."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def follow(session: flexnn.Session, path: str, last: str) -> str:
    """Give the session the budget that a file says, if it is new and large enough; return what it says."""
    with open(path, encoding="ascii") as file:
        wanted = file.read().strip()
    if wanted != last:
        try:
            session.memory = wanted
            print(f"budget   {wanted}")
        except (flexnn.BudgetError, ValueError) as error:
            print(f"budget   stays: {error}")
    return wanted


def faces(session: flexnn.Session, frame: Image.Image) -> int:
    """Return the number of faces in a frame."""
    _, _, height, width = session.get_inputs()[0].shape
    x: Any = np.asarray(frame.resize((int(width), int(height))), np.float32).transpose(2, 0, 1)[None]
    heat = session.run(None, {session.get_inputs()[0].name: np.ascontiguousarray(x)})[0][0, 0]
    padded = np.pad(heat, 1)
    shifts = [padded[1 + dy : 1 + dy + len(heat), 1 + dx : 1 + dx + len(heat[0])] for dy, dx in _NEAR]
    return int(((heat >= SCORE_MIN) & (heat >= np.max(shifts, axis=0))).sum())


_NEAR = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx]


def main() -> None:
    """Read the command line; look at frames until Ctrl-C, or at so many."""
    parser = argparse.ArgumentParser(description="Watches a camera for faces; a file says the budget.")
    parser.add_argument("model", help="centerface.flexnn")
    parser.add_argument("pictures", nargs="*", help="frames, where there is no camera")
    parser.add_argument("--budget", required=True, help="file that says the budget, like 24MiB")
    parser.add_argument("--frames", type=int, help="default: until Ctrl-C")
    options = parser.parse_args()
    before = resident_mib()
    with flexnn.Session(options.model) as session:
        last = ""
        for number, frame in enumerate(itertools.islice(frames(options.pictures), options.frames)):
            last = follow(session, options.budget, last)
            start = time.perf_counter()
            count = faces(session, frame)
            took = 1e3 * (time.perf_counter() - start)
            line = f"frame {number:3}  {count} faces, {took:6.1f} ms, {resident_mib() - before:6.1f} MiB added"
            print(line, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped")
