"""A real Chromium without a window, spoken to over its debugging pipe (no port, no library).

with Browser() as browser:
    page = browser.open(path, width=360, dark=True)
    page.evaluate("document.title"), page.requests, page.complaints, page.screenshot(png)
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

__all__ = ["CHROMIUM", "Browser", "Tab", "needs_chromium"]

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (`make system` installs it)")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """Commands go out on the browser's descriptor 3, answers and events come in on its 4, each ended by a zero byte."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_theirs, self._write = os.pipe()
        self._read, write_theirs = os.pipe()
        self._process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={self._home.name}", "about:blank"],
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=lambda: _as_3_and_4(read_theirs, write_theirs),
        )
        os.close(read_theirs)
        os.close(write_theirs)
        self._rest = b""
        self._numbers = itertools.count(1)
        self.listeners: list[Callable[[dict[str, Any]], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.call("Browser.close")
        self._process.wait(timeout=600)
        os.close(self._read)
        os.close(self._write)
        self._home.cleanup()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        return self.wait_for(lambda answer: answer.get("id") == number)["result"]

    def wait_for(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        while True:
            message = self._next()
            for listener in self.listeners:
                listener(message)
            assert "error" not in message, message
            if wanted(message):
                return message

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, "chromium has gone away"
            self._rest += data
        line, self._rest = self._rest.split(b"\0", 1)
        return json.loads(line)

    def open(self, path: Path, width: int = 1000, height: int = 900, dark: bool = False) -> Tab:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self, session, path, width, height, dark)


class Tab:
    """A page as it was loaded: what it asked for, what it complained about."""

    def __init__(self, browser: Browser, session: str, path: Path, width: int, height: int, dark: bool) -> None:
        self._browser, self._session = browser, session
        self.requests: list[str] = []
        self.complaints: list[str] = []
        browser.listeners.append(self._hear)
        for domain in ("Page", "Network", "Runtime", "Log"):
            self._call(f"{domain}.enable")
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=False)
        self._scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.media("screen")
        self._call("Page.navigate", url=path.resolve().as_uri())
        browser.wait_for(lambda message: message.get("method") == "Page.loadEventFired")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **params)

    def _hear(self, message: dict[str, Any]) -> None:
        if message.get("sessionId") != self._session:
            return
        method, params = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(params))

    def media(self, kind: str) -> None:
        """``screen`` or ``print``."""
        self._call("Emulation.setEmulatedMedia", media=kind, features=[self._scheme])

    def evaluate(self, expression: str) -> Any:
        return self._call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page, however long."""
        data = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("Page.printToPDF", printBackground=False)["data"]))


def _as_3_and_4(read: int, write: int) -> None:
    """In the child, before it becomes Chromium: copies far above, so that neither is in the other's way."""
    read, write = (fcntl.fcntl(number, fcntl.F_DUPFD, 64) for number in (read, write))
    os.dup2(read, 3)
    os.dup2(write, 4)
