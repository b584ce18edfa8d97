"""llama.cpp in a process of its own, by llama-cpp-python: a script, as its interpreter need not have this project.

PYTHON llama.py footprint: resident bytes of Python and numpy.
PYTHON llama.py FILE THREADS CONTEXT TOKENS SECONDS ID,ID,...: greedy text after these tokens; prints one object.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np


def resident() -> int:
    """Return the resident bytes of this process."""
    with open("/proc/self/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    """Print what the arguments ask for."""
    if sys.argv[1] == "footprint":
        print(resident())
        return
    import llama_cpp

    path, threads, context, count, most = sys.argv[1], *map(int, sys.argv[2:6])
    prompt = [int(word) for word in sys.argv[6].split(",")]
    model = llama_cpp.Llama(
        path, n_ctx=context, n_batch=min(context, 512), n_threads=threads, n_threads_batch=threads, verbose=False
    )
    if len(prompt) > 1:
        model.eval(prompt[:2])  # the first pass makes what later ones use
        model.reset()
    start = time.perf_counter()
    model.eval(prompt)
    prefill, times, text = time.perf_counter() - start, [], []
    end = time.perf_counter() + most
    while len(times) < count and time.perf_counter() < end:
        start = time.perf_counter()
        logits = np.ctypeslib.as_array(model._ctx.get_logits(), shape=(model.n_vocab(),))
        text.append(int(np.argmax(logits)))
        model.eval([text[-1]])
        times.append(time.perf_counter() - start)
    print(json.dumps({"prefill_s": prefill, "times_s": times, "text": text}))


if __name__ == "__main__":
    main()
