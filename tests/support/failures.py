"""A line for each failure when it happens: a run that is cut off before its summary has said what failed."""

from __future__ import annotations

import pytest

WIDTH = 400
"""Characters of a message that are shown."""


class Failures:
    """Plugin of pytest's first process: it sees the reports of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.write_line("")
            terminal.write_line(line(report))


def line(report: pytest.TestReport) -> str:
    """Which test failed, in which phase, after how long, with which message."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(crash.message if crash is not None else report.longrepr)
    shown = " ".join(message.split())[:WIDTH]
    return f"failed after {report.duration:.1f} s: {report.nodeid} ({report.when}): {shown}"
