# SPDX-License-Identifier: MIT
"""A page as a browser shows it: headless Chromium, asked through its pipes (the DevTools protocol)."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium")


class Browser:
    """One page. Whatever it asks for besides its own file is in `requested`, what it complains of in `said`."""

    def __init__(self, path):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True, prefix="stint-chromium-")
        there, self.write = os.pipe()
        self.read, here = os.pipe()
        # The browser reads commands from descriptor 3 and answers on 4.
        self.process = subprocess.Popen(
            ["sh", "-c", 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"', "sh", str(there), str(here), CHROMIUM,
             "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(there, here), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(there)
        os.close(here)
        self.number, self.rest, self.session = 0, b"", None
        self.requested, self.said, self.loaded = [], [], 0
        target = next(target for target in self.ask("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self.session = self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Network", "Log":
            self.ask(domain + ".enable")
        self.url = f"file://{os.path.abspath(path)}"
        self.ask("Page.navigate", url=self.url)
        self.wait(lambda: self.loaded)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()

    def wait(self, done, seconds=60):
        """Takes what the browser tells until `done`."""
        until = time.monotonic() + seconds
        while not done():
            if not select.select([self.read], [], [], max(0, until - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            got = os.read(self.read, 1 << 20)
            if not got:
                raise EOFError("the browser has ended")
            *messages, self.rest = (self.rest + got).split(b"\0")
            for message in map(json.loads, messages):
                self.take(message)

    def take(self, message):
        if "id" in message:
            self.answers[message["id"]] = message
        elif message["method"] == "Page.loadEventFired":
            self.loaded += 1
        elif message["method"] == "Network.requestWillBeSent":
            self.requested.append(message["params"]["request"]["url"])
        elif message["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.said.append(message["params"])

    answers = {}

    def ask(self, method, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        self.wait(lambda: number in self.answers)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def value(self, expression):
        """What an expression of JavaScript is."""
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def show(self, width, height=900, dark=False):
        """Lays the page out for a screen of that width."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        """Saves the whole page as PNG."""
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True,
                        clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
