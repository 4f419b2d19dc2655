"""A real browser that a test drives: Chromium without a screen, by its DevTools protocol over two pipes.

`Page` opens a file, runs JavaScript in it, presses keys and buttons, takes pictures, and has all that the page said or
asked for. A pipe needs no port, and no package.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import needs
from support.patience import patience

BROWSER = "chromium"
OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-pipe",
)  # fmt: skip
THEIRS = 3, 4  # the file descriptors by which the browser reads and writes
SECONDS = 60  # of an answer


class BrowserError(Exception):
    """The browser refused a command, or did not answer."""


class Pipe:
    """The messages of the protocol, each of which ends with a zero byte."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._commands, data) :]
        while True:
            answer = self._next()
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise BrowserError(f"{method}: {answer['error']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def wait(self, method: str) -> None:
        """Return when an event of that name has come."""
        while all(event.get("method") != method for event in self.events):
            self.events.append(self._next())

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._answers], [], [], patience(SECONDS))[0]:
                raise BrowserError("no answer")
            part = os.read(self._answers, 1 << 20)
            if not part:
                raise BrowserError("the browser has ended")
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


class Page:
    """A tab of the browser."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        target = pipe.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = pipe.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._target = target
        for domain in "Page", "Runtime", "Network", "Log":
            self.call(f"{domain}.enable")
        self.resize(1280, 800)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._pipe.call(method, self._session, **parameters)

    def close(self) -> None:
        self._pipe.call("Target.closeTarget", targetId=self._target)

    def open(self, path: Path) -> None:
        self._pipe.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self._pipe.wait("Page.loadEventFired")
        self.settle()

    def settle(self) -> None:
        """Return when what was asked for is on the screen."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def resize(self, width: int, height: int) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def theme(self, name: str) -> None:
        """Show pages "light" or "dark"."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def run(self, expression: str) -> Any:
        """Return the value of an expression, awaited, as JSON has it."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"].get("exception", answer["exceptionDetails"])))
        return answer["result"].get("value")

    def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements of a selector."""
        found: list[str] = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.innerText)"
        )
        return found

    def place(self, selector: str) -> dict[str, float]:
        """Bring an element into view, and return its place on the screen."""
        found: dict[str, float] = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            " one.scrollIntoView({block: 'center'}); return one.getBoundingClientRect().toJSON(); })()"
        )
        return found

    def click(self, selector: str, across: float = 0.5, down: float = 0.5) -> None:
        """Click into an element, at these shares of its width and height."""
        at = self.place(selector)
        x, y = at["x"] + across * at["width"], at["y"] + down * at["height"]
        self.move(x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def drag(self, selector: str, pixels: float) -> None:
        """Drag from the middle of an element to the right."""
        at = self.place(selector)
        x, y = at["x"] + at["width"] / 2, at["y"] + at["height"] / 2
        self.move(x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        for share in 0.5, 1:
            self.mouse("mouseMoved", x + share * pixels, y, button="left", buttons=1)
        self.mouse("mouseReleased", x + pixels, y, button="left", clickCount=1)
        self.settle()

    def move(self, x: float, y: float) -> None:
        self.mouse("mouseMoved", x, y)
        self.settle()

    def wheel(self, selector: str, pixels: float) -> None:
        """Turn the wheel over the middle of an element."""
        at = self.place(selector)
        self.mouse("mouseWheel", at["x"] + at["width"] / 2, at["y"] + at["height"] / 2, deltaX=0, deltaY=pixels)
        self.settle()

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, *keys: str) -> None:
        """Press keys, by their names in JavaScript."""
        for key in keys:
            text = {"Enter": "\r", "Space": " "}.get(key, key if len(key) == 1 else "")
            name = " " if key == "Space" else key
            code = {"Enter": 13, "Tab": 9, "Space": 32}.get(key, 0)
            common = {"key": name, "windowsVirtualKeyCode": code}
            self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
            self.call("Input.dispatchKeyEvent", type="keyUp", **common)
        self.settle()

    def picture(self, path: Path, whole: bool = False) -> None:
        """Take a picture of the screen, or of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))["data"]
        path.write_bytes(base64.b64decode(data))

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def paper(self) -> bytes:
        """Return the page as it is printed, as a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])

    def requests(self) -> list[str]:
        """Return the addresses that the page has asked for, its own included."""
        return [event["params"]["request"]["url"] for event in self._events("Network.requestWillBeSent")]

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the page."""
        said = [str(event["params"]) for event in self._events("Runtime.exceptionThrown")]
        said += [str(event["params"]) for event in self._events("Runtime.consoleAPICalled")]
        return said + [str(event["params"]["entry"]) for event in self._events("Log.entryAdded")]

    def _events(self, method: str) -> Iterator[dict[str, Any]]:
        return (event for event in self._pipe.events if event.get("method") == method)


@contextmanager
def browser(folder: Path) -> Iterator[Pipe]:
    """Start a browser whose files are in a folder; with the block it ends, and all that it has started."""
    needs.programs([] if shutil.which(BROWSER) else [BROWSER], BROWSER)
    (ours, commands), (answers, theirs) = _pipe_ends()
    process = _start([BROWSER, *OPTIONS, f"--user-data-dir={folder / 'user'}"], ours, theirs, folder / "said")
    os.close(ours)
    os.close(theirs)
    try:
        yield Pipe(commands, answers)
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(commands)
        os.close(answers)


def _pipe_ends() -> list[tuple[int, int]]:
    """Return two pipes, the ends that are read first, none of which has a number that the browser wants."""
    made = []
    for ends in os.pipe(), os.pipe():
        made.append(tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends))
        for end in ends:
            os.close(end)
    return made


def _start(argv: Sequence[str], reads: int, writes: int, said: Path) -> int:
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_DUP2, reads, THEIRS[0]),
        (os.POSIX_SPAWN_DUP2, writes, THEIRS[1]),
        (os.POSIX_SPAWN_OPEN, 1, said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions, setsid=True)
