"""A headless Chromium, driven through two pipes: no driver, no port and no package is needed."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
_SECONDS = 120.0

# the protocol's own file descriptors are 3 (in) and 4 (out)
_ON_PIPES = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


@dataclass
class Browser:
    """One tab of a running browser.

    Args:
        commands: File descriptor that commands go to.
        replies: File descriptor that replies and events come from.
        told: What the page logged: errors, warnings and addresses it asked for.
    """

    commands: int
    replies: int
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._number, self._rest, self._session, self._loaded = 0, b"", "", False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        joined = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = joined["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **given: object) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session:
            message["sessionId"] = self._session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (reply := self._hear()).get("id") != self._number:
            pass
        assert "error" not in reply, (method, reply["error"])
        return reply["result"]

    def open(self, page: Path, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Show a page at a width in CSS pixels, in a colour scheme."""
        self._wish("screen", dark)
        metrics = {"width": width, "height": height, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, **metrics)
        self.told.clear()
        self._loaded = False
        self.call("Page.navigate", url=page.resolve().as_uri())
        while not self._loaded:
            self._hear()

    def as_printed(self, *, dark: bool) -> None:
        """Lay the page out as for paper, for a reader whose screen is dark or not."""
        self._wish("print", dark)

    def _wish(self, media: str, dark: bool) -> None:
        wishes = {"color-scheme": "dark" if dark else "light", "reduced-motion": "reduce"}
        features = [{"name": f"prefers-{name}", "value": value} for name, value in wishes.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press a key and let it go."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type=kind, **given, **text)

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """Return the page as it prints on paper, a PDF."""
        return base64.b64decode(
            self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69)["data"]
        )

    def _hear(self) -> dict[str, Any]:
        """Return the next message; keep in mind what the page tells by it."""
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self.replies], [], [], _SECONDS)
            assert ready, "the browser does not answer"
            more = os.read(self.replies, 1 << 20)
            assert more, "the browser has died"
            self._rest += more
        whole, _, self._rest = self._rest.partition(b"\0")
        heard: dict[str, Any] = json.loads(whole)
        self._note(heard.get("method", ""), heard.get("params", {}))
        return heard

    def _note(self, event: str, given: dict[str, Any]) -> None:
        if event == "Runtime.consoleAPICalled":
            self.told.append(f"console: {given['args']}")
        elif event == "Runtime.exceptionThrown":
            self.told.append(f"exception: {given['exceptionDetails']['text']}")
        elif event == "Log.entryAdded":
            self.told.append(f"log: {given['entry']['text']}")
        elif event == "Page.loadEventFired":
            self._loaded = True
        elif event == "Network.requestWillBeSent":
            address = given["request"]["url"]
            if not address.startswith(("file:", "data:")):
                self.told.append(f"asked for {address}")


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start a browser with a fresh profile, and end it."""
    assert PROGRAM is not None
    ours, theirs = os.pipe(), os.pipe()  # read and write end of each
    ends = ours[0], theirs[1]
    words = [sys.executable, "-S", "-c", _ON_PIPES, *map(str, ends), PROGRAM, *_FLAGS]
    words += [f"--user-data-dir={profile}", "about:blank"]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, pass_fds=ends, stdout=quiet, stderr=quiet)
    for end in ends:
        os.close(end)
    try:
        yield Browser(ours[1], theirs[0])
    finally:
        process.terminate()
        process.wait(timeout=_SECONDS)
        os.close(ours[1])
        os.close(theirs[0])
