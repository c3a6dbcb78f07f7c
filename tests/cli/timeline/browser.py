"""Drives a real Chromium without a window, to test the timeline's page as readers use it.

It speaks Chromium's DevTools protocol over two pipes: messages of JSON, each ended by a NUL. A pipe
needs no port, no package, and ends the browser when it is closed. Calls block until the browser has
answered; pytest's time-out interrupts one that never does.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any, Final, final

PROGRAMS: Final = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
"""Where a Chromium may be."""
FLAGS: Final = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # it cannot be had as root; the only pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
CTRL: Final = 2
"""The protocol's number of the key Ctrl."""


class NoBrowserError(Exception):
    """No Chromium was found."""


def find_browser(environment: Mapping[str, str]) -> str:
    """The program of a Chromium: ``KGROUP_BROWSER`` if it is set, or else the first that is found.

    Raises:
        NoBrowserError: there is none; it says what to install.
    """
    named = environment.get("KGROUP_BROWSER")
    for program in [named] if named else PROGRAMS:
        found = shutil.which(program, path=environment.get("PATH"))
        if found is not None:
            return found
    what = f"KGROUP_BROWSER={named} is no program" if named else "no Chromium was found"
    raise NoBrowserError(
        f"{what}. The tests of the timeline's page need a Chromium or Chrome. On Debian and Ubuntu:"
        " apt-get install chromium-headless-shell (or chromium). Elsewhere install Chrome, or set"
        " KGROUP_BROWSER to the path of the program."
    )


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A running browser with an empty profile in a folder; it ends with the context.

    Raises:
        NoBrowserError: there is none.
    """
    # The browser reads from descriptor 3 and writes to 4, so the shell moves its own 0 and 1 there.
    shell = ("sh", "-c", 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1', "sh")
    program = find_browser(os.environ)
    with subprocess.Popen(
        [*shell, program, *FLAGS, f"--user-data-dir={profile}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield Browser(process.stdin, process.stdout)
        finally:
            process.kill()


@final
class Browser:
    """A browser at the other end of two pipes."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests = requests
        self._answers = answers
        self._numbers = count(1)
        self._buffer = bytearray()
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol, and wait for its result.

        Raises:
            RuntimeError: the browser refused the call, or has ended.
        """
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            request["sessionId"] = session
        self._requests.write(json.dumps(request).encode() + b"\0")
        self._requests.flush()
        while True:
            message = self._receive()
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                result: dict[str, Any] = message["result"]
                return result

    def wait_for(self, event: str, session: str) -> None:
        """Wait for an event of a page that has not come yet."""
        while not any(
            one.get("method") == event and one.get("sessionId") == session for one in self.events
        ):
            self._receive()

    def _receive(self) -> dict[str, Any]:
        """The next message; events are kept."""
        while b"\0" not in self._buffer:
            chunk = os.read(self._answers.fileno(), 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._buffer += chunk
        line, _, rest = self._buffer.partition(b"\0")
        self._buffer = rest
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, file: Path, width: int = 1300, height: int = 900) -> Page:
        """A new tab with a file, once it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.call("Page.navigate", url=file.resolve().as_uri())
        self.wait_for("Page.loadEventFired", session)
        return page


@final
class Page:
    """One tab of a browser."""

    def __init__(self, owner: Browser, session: str) -> None:
        self._browser = owner
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the protocol for this tab."""
        return self._browser.call(method, self._session, **parameters)

    def run(self, program: str) -> Any:
        """The value of an expression of JavaScript, awaited if it is a promise.

        Raises:
            RuntimeError: it raised.
        """
        result = self.call(
            "Runtime.evaluate", expression=program, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(str(result["exceptionDetails"]))
        return result["result"].get("value")

    def complaints(self) -> list[dict[str, Any]]:
        """What the page wrote to the console, and its exceptions, so far."""
        self.run("1")  # an answer comes after the events that precede it
        names = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [
            one
            for one in self._browser.events
            if one.get("sessionId") == self._session and one["method"] in names
        ]

    def resize(self, width: int, height: int) -> None:
        """Give the window a size in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Make the reader prefer the ``light`` or the ``dark`` scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press and release a key; a key of one character types it."""
        text = {"text": key} if len(key) == 1 and not modifiers else {}
        # Tab moves the focus only with its number of old.
        number = {"windowsVirtualKeyCode": 9} if key == "Tab" else {}
        both = {"key": key, "modifiers": modifiers, **number}
        self.call("Input.dispatchKeyEvent", type="keyDown", **both, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **both)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """Send an event of the mouse: ``mouseMoved``, ``mousePressed``, ``mouseWheel``..."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """Send an event of fingers: ``touchStart``, ``touchMove`` or ``touchEnd``."""
        fingers = [{"x": x, "y": y, "id": index} for index, (x, y) in enumerate(points)]
        self.call("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)

    def screenshot(self) -> bytes:
        """What is in the window, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def close(self) -> None:
        """Close the tab."""
        self.call("Page.close")
