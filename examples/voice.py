"""Tell where somebody speaks in a recording of a microphone.

    python -m bench.models fetch silero_vad_v6                       (or silero_vad.onnx of the package silero-vad)
    arecord -f S16_LE -r 16000 -d 10 speech.wav
    python examples/voice.py silero_vad_v6.onnx speech.wav --memory 8MiB

The model takes 32 ms of sound and its state; the state goes from run to run in the same arrays (``run(out=…)``).
"""

from __future__ import annotations

import argparse
import time
import wave

import numpy as np

import flexnn

RATE, STEP, BEFORE = 16_000, 512, 64
"""Samples of a second, of a step, and of the step before that the model wants again."""
SPEECH_MIN = 0.5


def samples(path: str) -> np.ndarray:
    """Return a recording's first channel as numbers from -1 to 1, at 16,000 a second."""
    with wave.open(path, "rb") as file:
        if file.getsampwidth() != 2:
            raise SystemExit(f"error: {path}: samples have {file.getsampwidth()} bytes, not 2")
        raw = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        sound, rate = raw[:: file.getnchannels()].astype(np.float32) / 32768, file.getframerate()
    places = np.arange(int(len(sound) * RATE / rate)) * rate / RATE
    return np.interp(places, np.arange(len(sound)), sound).astype(np.float32)


def peak_rss() -> int:
    """Most bytes that this process has had resident (VmHWM)."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def main() -> None:
    """Read the command line and the recording; print spans of speech, the time of a step and the memory."""
    parser = argparse.ArgumentParser(description="Tells where somebody speaks, inside a memory budget.")
    parser.add_argument("model", help="silero_vad_v6.onnx")
    parser.add_argument("recording", help="WAV file")
    parser.add_argument("--memory", help="budget; default: no limit")
    options = parser.parse_args()
    sound = np.concatenate([np.zeros(BEFORE, np.float32), samples(options.recording)])
    before = peak_rss()
    with flexnn.Session(options.model, options.memory, 1) as session:
        states = [np.zeros((2, 1, 1, 128), np.float32) for _ in range(2)]  # two sets: one is read, one written
        speech, times = [], []
        for number, first in enumerate(range(0, len(sound) - STEP - BEFORE + 1, STEP)):
            (h, c), (hn, cn) = states[number % 2], states[1 - number % 2]
            feed = {"input": sound[None, first : first + STEP + BEFORE], "h": h, "c": c}
            start = time.perf_counter()
            likely = session.run(["speech_probs"], feed, out={"hn": hn, "cn": cn})[0]
            times.append(1e3 * (time.perf_counter() - start))
            speech.append(float(likely.reshape(-1)[0]) >= SPEECH_MIN)
        added = peak_rss() - before
    edges = np.flatnonzero(np.diff([False, *speech, False]))
    for begin, end in edges.reshape(-1, 2) * STEP / RATE:
        print(f"speech   from {begin:.2f} to {end:.2f} s")
    if not len(edges):
        print("speech   none")
    print(f"latency  {np.median(times):.2f} ms for 32 ms of sound")
    print(f"memory   {added / 2**20:.1f} MiB added to the process; budget {options.memory or 'none'}")


if __name__ == "__main__":
    main()
