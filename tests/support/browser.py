"""A headless Chromium driven over the DevTools protocol: open a page, run JavaScript in it, take its picture."""

from __future__ import annotations

import base64
import io
import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from websockets.sync.client import connect

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)


def chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """One page of its own browser; `folder` is a new empty profile."""

    def __init__(self, folder: Path, size: tuple[int, int] = (1000, 700), limit: float = 60.0):
        program = chromium()
        assert program is not None
        self.limit = limit
        flags = [*FLAGS, f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "about:blank"]
        self.process = subprocess.Popen([program, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            port, path = self.wait_for(lambda: _endpoint(folder))
            self._socket = connect(f"ws://127.0.0.1:{port}{path}", max_size=2**26, open_timeout=limit)
            self._ids = itertools.count(1)
            self._session = ""
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        except BaseException:
            self.close()
            raise

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        i = next(self._ids)
        message = {"id": i, "method": method, "params": params} | ({"sessionId": self._session} if self._session else {})
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=self.limit))
            if answer.get("id") == i:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self) -> np.ndarray:
        """The page as RGB, (height, width, 3)."""
        data = base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def wait_for(self, condition: Any, what: str = "it") -> Any:
        """Poll until `condition()` is true, and return what it gave."""
        end = time.monotonic() + self.limit
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            time.sleep(0.1)
        raise AssertionError(f"waited {self.limit:g} s for {what}")

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _endpoint(folder: Path) -> tuple[int, str] | None:
    file = folder / "DevToolsActivePort"
    lines = file.read_text().split() if file.exists() else []
    return (int(lines[0]), lines[1]) if len(lines) == 2 else None
