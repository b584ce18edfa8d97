"""Plans in tests do not depend on what a busy machine measures, nor on what a user's cache folder holds; nor do tests
fail because the machine, which may be emulated, is slow. Tests that measure time take turns with all others.
"""

import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.append(str(Path(__file__).resolve().parents[1]))  # bench and tests; last, so that the installed flexnn wins
os.environ["FLEXNN_PROFILE"] = "analytic"
os.environ["FLEXNN_CACHE"] = "64MiB"  # of artifacts that sessions of ONNX files leave
os.environ["FLEXNN_FORK"] = "0"  # processes of tests are full of what others left there
os.environ["FLEXNN_LATER"] = "0"  # what an artifact holds does not depend on when a test looks
settings.register_profile("slow machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("slow machine")


def pytest_configure(config: pytest.Config) -> None:
    from tests.support.failures import Failures
    from tests.support.turns import prepare

    prepare(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("LONG"):
        return
    left = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    from tests.support.turns import turn

    with turn(item.get_closest_marker("alone") is not None):
        return (yield)
