"""Which ONNX operators are supported: the answer agrees with what importing and running does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from flexnn.graph import GraphError, contrib, support, supported
from flexnn.graph.contrib import MODULES, expanded
from flexnn.graph.evaluate import EVALUATORS
from flexnn.graph.lower import LOWERINGS
from tests.support.compare import load, model_of


def onnx_names(domain: str) -> list[str]:
    return sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == domain})


def test_every_operator_of_onnx_has_an_answer() -> None:
    answers = support(onnx_names(""))
    assert list(answers) == onnx_names("")
    parted = {"Compress", "NonMaxSuppression", "NonZero", "Unique"}
    assert {name for name, how in answers.items() if how == "native"} <= LOWERINGS.keys() | parted | {"Constant"}
    assert {name for name, how in answers.items() if how == "numpy"} <= EVALUATORS.keys() - LOWERINGS.keys()
    assert [name for name, how in answers.items() if how == "walked"] == ["If", "Loop", "Scan"]
    assert answers["Conv"] == answers["Constant"] == "native"
    assert answers["NonMaxSuppression"] == "native"
    assert answers["Det"] == "numpy"
    assert answers["StringSplit"] == "unsupported"
    assert answers["SequenceAt"] == "rewritten"


@pytest.mark.parametrize("domain", ["", "com.microsoft", "ai.onnx.ml"])
def test_supported_names_all_that_is_and_no_more(domain: str) -> None:
    listed = supported(domain)
    assert list(listed) == sorted(listed)
    assert "unsupported" not in listed.values()
    known = support(onnx_names(domain), domain)
    assert {name for name, how in known.items() if how != "unsupported"} <= listed.keys()
    if domain:
        assert listed == dict.fromkeys(sorted(expanded(domain)), "rewritten")
    else:
        standard = {name for name in (*LOWERINGS, *EVALUATORS) if "." not in name}
        assert listed.keys() == {*standard, *expanded(""), "If", "Loop", "Scan", "Constant"}


def test_expansions_are_imported_with_their_domain() -> None:
    """A module that no domain names would have its operators refused."""
    folder = Path(contrib.__file__).parent
    named = [name for names in MODULES.values() for name in names]
    assert sorted(named) == sorted({path.stem for path in folder.glob("*.py")} - {"__init__", "expansion"})
    script = """
import sys
from flexnn.graph import contrib
def found():
    return sorted(n.rpartition(".")[2] for n in sys.modules if n.startswith("flexnn.graph.contrib.") and "exp" not in n)
before, names = found(), [contrib.expanded(""), contrib.expanded("elsewhere")]
print(before, "NonZero" in names[0], len(names[1]), found())
for domain in contrib.MODULES:
    print(sorted(contrib.expanded(domain)) == sorted(n for owner, n in contrib.expansion.EXPANSIONS if owner == domain))
"""
    said = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == [f"[] True 0 {sorted(MODULES[''])}", *["True"] * len(MODULES)]


def test_domains_are_told_apart() -> None:
    assert support(["Conv", "Gelu"], "com.microsoft") == {"Conv": "unsupported", "Gelu": "rewritten"}
    assert support(["Conv"], "ai.onnx") == {"Conv": "native"}
    assert support(["Conv"], "elsewhere") == {"Conv": "unsupported"}


def test_an_unsupported_operator_is_refused_by_its_name() -> None:
    node = helper.make_node("Bernoulli", ["x"], ["y"], dtype=TensorProto.FLOAT)
    with pytest.raises(GraphError, match="Bernoulli"):
        load(model_of([node], {"x": (2, 3)}, ["y"]))


def test_the_answer_needs_no_onnx() -> None:
    code = "import sys, flexnn.graph; flexnn.graph.supported(); sys.exit('onnx' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
