"""The report of a plan: what it tells, hostile names, bounded size, and how a browser shows it."""

from __future__ import annotations

import base64
import html.parser
import io
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import flexnn
from flexnn import cli
from flexnn.planning import MachineProfile, Planner, Setting
from flexnn.report.page import POLICY, Subject, page
from tests.support.hangs import HANG_SECONDS
from tests.support.missing import missing
from tests.support.plan_graphs import resnet
from tests.support.sessions import smallest, write_choosing_model, write_model

HOSTILE = '<img src=x onerror=alert(1)>"\'&</title></style><script>document.title="owned"</script>\x1b[31m\u202e'
MACHINE = MachineProfile(5e10, 1e10, 4e8)
SIZE_MAX = 1_000_000


class Parser(html.parser.HTMLParser):
    """Elements and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("page") / "small.onnx")


@pytest.fixture(scope="module")
def report(model: Path) -> str:
    """The report of a plan that streams."""
    target = model.with_suffix(".html")
    memory = smallest(Path(flexnn.compile(model))) + (1 << 20)
    assert cli.main(["plan", str(model), "--memory", str(memory), "--threads", "2", "--html", str(target)]) == 0
    return target.read_text("utf-8")


def is_safe(text: str) -> Parser:
    """No scripts, nothing loaded, a policy that forbids both, no control characters, bounded size."""
    parser = Parser(text)
    assert not {"script", "img", "link", "iframe", "object", "a", "form", "base", "image", "use"} & set(parser.tags)
    assert not [name for name, _ in parser.attributes if name.startswith("on") or name in ("src", "href", "xlink:href")]
    assert ("content", POLICY) in parser.attributes
    assert "url(" not in text
    assert all(c == "\n" or c.isprintable() for c in text)
    assert len(text.encode()) < SIZE_MAX
    return parser


def test_the_report_tells_all(report: str) -> None:
    words = " ".join(is_safe(report).text)
    for title in (
        "Memory over the run",
        "The arena",
        "Loads and steps",
        "Latency against memory",
        "What the next megabytes would buy",
        "The largest tensors",
    ):
        assert title in words
    assert "conv3" in words
    assert re.search(r"w3.*2\.25MiB|conv3.*MiB", words)
    assert report.count("<svg") == 4


def test_json_and_text_stay_what_they_are(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.html"
    assert cli.main(["plan", str(model), "--html", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["feasible"]
    words = " ".join(is_safe(target.read_text("utf-8")).text)
    assert "more memory would buy nothing" in words
    assert os.listdir(tmp_path) == ["report.html"]
    assert cli.main(["plan", str(model), "--memory", "1MiB", "--html", str(tmp_path / "none.html")]) == 2
    assert cli.main(["plan", str(model), "--html", str(tmp_path / "no" / "folder.html")]) == 2
    assert os.listdir(tmp_path) == ["report.html"]


def test_models_that_branch(tmp_path: Path) -> None:
    path = write_choosing_model(tmp_path / "if.onnx")
    target = tmp_path / "if.html"
    assert cli.main(["plan", flexnn.compile(path), "--shape", "x=7", "--html", str(target)]) == 0
    words = is_safe(target.read_text("utf-8")).text
    assert "Parts" in words
    assert any("choose if" in text for text in words)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of a model whose names attack: nodes, weights, tensors and the file."""
    folder = tmp_path_factory.mktemp("hostile")
    found = onnx.load(write_model(folder / "small.onnx"))
    for number, node in enumerate(found.graph.node):
        node.name = f"{number}{HOSTILE}"
        node.input[1] = f"w{number}{HOSTILE}"
        if number:
            node.input[0] = f"t{number - 1}{HOSTILE}"
        if number + 1 < len(found.graph.node):
            node.output[0] = f"t{number}{HOSTILE}"
    for number, weight in enumerate(found.graph.initializer):
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight), f"w{number}{HOSTILE}"))
    path = folder / "<b>&'x.onnx"
    onnx.save(found, path)
    target = folder / "hostile.html"
    assert cli.main(["plan", str(path), "--memory", "6MiB", "--html", str(target)]) == 0
    return target.read_text("utf-8")


def test_names_are_text(hostile: str) -> None:
    words = " ".join(is_safe(hostile).text)
    assert "<script>document.title" in words  # as text
    assert "<b>&'x.onnx" in words


def test_huge_models_have_small_reports() -> None:
    graph = resnet((200, 200, 200, 200), size=32, scale=16)
    for node in graph.nodes:
        node.name = f"{node.name} {'long' * 200}"
    for tensor in graph.tensors:
        tensor.name = f"{tensor.name} {'long' * 200}"
    planner = Planner(graph, Setting(MACHINE, 1))
    plan = planner.plan(int(planner.minimum * 1.2))
    assert len(plan.steps) > 2000
    start = time.process_time()
    text = page(Subject("huge", plan, [("", plan)], MACHINE, 1, [(1 << 20, 5.0), (1 << 24, 3.0)], [(1 << 20, 4.5)]))
    assert time.process_time() - start < 60
    is_safe(text)


# ---- in a browser ----


def browser() -> str:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        missing("no Chromium here: apt install chromium (.ci/run does)")
    return found


def browsed(folder: Path, *arguments: str) -> str:
    """The output of Chromium."""
    command = [browser(), "--headless", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}"]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


FRAME = """<!DOCTYPE html><title>frame</title><body>
<script>
addEventListener("securitypolicyviolation", e => document.title = "violation");
const raw = Uint8Array.from(atob("PAGE"), c => c.charCodeAt(0));
const frame = document.createElement("iframe");
frame.style = "width:WIDTHpx;height:3000px;border:0";
frame.onload = () => {
  const d = frame.contentDocument, found = [];
  for (const e of d.querySelectorAll("section, table, figure, td, h1, dl div"))
    if (e.getBoundingClientRect().right > WIDTH + 0.5) found.push(e.tagName + " " + e.textContent.slice(0, 40));
  const chart = [...d.querySelectorAll("svg")].map(e => e.getBoundingClientRect());
  const names = [...d.querySelectorAll(".across")].map(a => [...a.children].map(s => s.getBoundingClientRect()));
  const out = document.createElement("pre");
  out.id = "out";
  out.textContent = JSON.stringify({
    scroll: d.documentElement.scrollWidth, outside: found, title: d.title, charts: chart.map(r => [r.width, r.height]),
    overlaps: names.flatMap(row => row.slice(1).filter((r, i) => r.left < row[i].right)).length,
    scripts: d.scripts.length, images: d.images.length, font: getComputedStyle(d.body).fontSize,
    shapes: d.querySelectorAll("rect, path").length});
  document.body.append(out);
};
frame.srcdoc = new TextDecoder().decode(raw);
document.body.append(frame);
</script>"""


def laid_out(folder: Path, text: str, width: int) -> dict[str, object]:
    """Measures of the page in a frame of this width."""
    encoded = base64.b64encode(text.encode()).decode()
    (folder / "frame.html").write_text(FRAME.replace("PAGE", encoded).replace("WIDTH", str(width)))
    printed = browsed(folder, "--virtual-time-budget=10000", "--dump-dom", (folder / "frame.html").as_uri())
    assert "<title>frame</title>" in printed
    found = re.search(r'<pre id="out">(.*?)</pre>', printed, re.S)
    assert found, printed[-2000:]
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.parametrize("width", [360, 1200])
@pytest.mark.parametrize("which", ["report", "hostile"])
def test_a_browser_shows_it(request: pytest.FixtureRequest, tmp_path: Path, which: str, width: int) -> None:
    """On a phone and on a desktop nothing lies outside, axes' names do not overlap, and names are text."""
    found = laid_out(tmp_path, request.getfixturevalue(which), width)
    assert found["scroll"] == width, found
    assert found["outside"] == []
    assert found["overlaps"] == 0
    assert found["scripts"] == found["images"] == 0
    assert str(found["title"]).startswith("FlexNN plan of ")
    charts = found["charts"]
    assert isinstance(charts, list)
    assert len(charts) == 4
    assert all(wide > 0.6 * min(width, 900) and high > 100 for wide, high in charts)
    assert int(str(found["shapes"])) > 30


@pytest.mark.parametrize("width", [500, 1200])
def test_pictures_of_it(report: str, tmp_path: Path, width: int) -> None:
    """All kinds of memory are to be seen, in the colours of the legend."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "report.html").write_text(report, "utf-8")
    target = tmp_path / "picture.png"
    browsed(tmp_path, f"--window-size={width},2400", f"--screenshot={target}", (tmp_path / "report.html").as_uri())
    pixels = np.asarray(image.open(io.BytesIO(target.read_bytes())).convert("RGB"), np.int64)
    for name, colour in {"pinned": 0x6E7FF3, "streamed": 0xE16F24, "beside": 0x9AA4AF, "curve": 0x2F81F7}.items():
        wanted = np.array([colour >> 16, colour >> 8 & 255, colour & 255])
        seen = int((np.abs(pixels - wanted).max(axis=2) <= 2).sum())
        assert seen > 200, (name, seen)
