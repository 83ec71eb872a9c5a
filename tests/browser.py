"""A headless Chromium, where one is installed, steered through its own pipe: no driver needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import time
from contextlib import suppress

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATH = next((found for name in NAMES if (found := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(PATH is None, reason=f"none of {', '.join(NAMES)} is installed")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--no-first-run",
    "--hide-scrollbars",
    "--window-size=1400,900",
    "--remote-debugging-pipe",
)
PATIENCE = 120  # seconds for one answer, on a busy machine


class Browser:
    """One tab. `errors` has what the page complained about, `requests` what it asked for."""

    def __init__(self, home) -> None:
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (read, write)]
        silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        # The browser reads commands from descriptor 3 and writes answers to 4.
        pipes = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate(high, 3)]
        command = [PATH, *FLAGS, f"--user-data-dir={home}", "about:blank"]
        environment = {**os.environ, "HOME": str(home)}
        self._pid = os.posix_spawn(PATH, command, environment, file_actions=silent + pipes)
        for fd in (read, write, *high):
            os.close(fd)
        os.set_blocking(self._read, False)
        self._held = b""
        self._count = 0
        self._events: list[dict] = []
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = session["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        size = {"width": 1400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method, **params):
        self._count += 1
        sent = {"id": self._count, "method": method, "params": params}
        if self._session:
            sent["sessionId"] = self._session
        data = json.dumps(sent).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while (answer := self._next()).get("id") != self._count:
            self._events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _next(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._held:
            assert time.monotonic() < end, "the browser does not answer"
            assert not self._has_ended(), "the browser has ended"
            try:
                self._held += os.read(self._read, 1 << 20)
            except BlockingIOError:
                time.sleep(0.005)
        message, self._held = self._held.split(b"\0", 1)
        return json.loads(message)

    def open(self, path) -> None:
        """Open a file and wait until all of it has run."""
        self._events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(e.get("method") == "Page.loadEventFired" for e in self._events):
            self._events.append(self._next())
        self.settle()

    def settle(self) -> None:
        """Wait for two frames, after which what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        """Return the value of a JavaScript expression."""
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def mouse(self, kind, x, y, **more) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y) -> None:
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)
        self.settle()

    def drag(self, x, y, dx, dy) -> None:
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for part in (0.3, 0.7, 1):
            self.mouse("mouseMoved", x + dx * part, y + dy * part, button="left", buttons=1)
        self.mouse("mouseReleased", x + dx, y + dy, button="left", clickCount=1)
        self.settle()

    def wheel(self, x, y, by) -> None:
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=by)
        self.settle()

    def type(self, text) -> None:
        self.call("Input.insertText", text=text)
        self.settle()

    def press(self, key) -> None:
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = {"windowsVirtualKeyCode": 13} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text, **code)
        self.settle()

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    @property
    def errors(self) -> list[str]:
        """What the page threw, logged as an error or was refused."""
        self.run("0")  # what came before has arrived then
        found = [e["params"] for e in self._events if e.get("method") == "Runtime.exceptionThrown"]
        logged = [e["params"]["entry"] for e in self._events if e.get("method") == "Log.entryAdded"]
        return [str(e) for e in found] + [e["text"] for e in logged if e["level"] == "error"]

    @property
    def requests(self) -> list[str]:
        """The addresses asked for."""
        sent = [e for e in self._events if e.get("method") == "Network.requestWillBeSent"]
        return [e["params"]["request"]["url"] for e in sent]

    def _has_ended(self) -> bool:
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0
        return not self._pid

    def close(self) -> None:
        self._session = None
        with suppress(AssertionError, OSError):
            self.call("Browser.close")
        end = time.monotonic() + 20
        while not self._has_ended() and time.monotonic() < end:
            time.sleep(0.01)
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._read)
        os.close(self._write)
