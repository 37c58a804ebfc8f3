"""Chromium, through its own driver (W3C WebDriver, JSON over HTTP)."""

import base64
import json
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.request


class Browser:
    """Chromium, through its own driver."""

    def __init__(self, width, dark):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.driver.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                self.port = found[1]
                break
        threading.Thread(target=self.driver.stdout.read, daemon=True).start()
        self.profile = tempfile.mkdtemp()
        args = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--window-size={width},1400", f"--user-data-dir={self.profile}"]
        if dark:
            args.append("--blink-settings=preferredColorScheme=0")
        made = self.ask("/session", {"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": args}}}})
        self.base = "/session/" + made["sessionId"]
        self.ask(self.base + "/timeouts", {"script": 60_000})
        # A window is never narrower than 500: what a page has is told apart from it.
        size = {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": False}
        self.ask(self.base + "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})

    def ask(self, path, body=None, method=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)["value"]

    def go(self, url):
        self.ask(self.base + "/url", {"url": url})

    def picture(self, path, whole=False, most=2400):
        """Writes a screenshot; `whole`: of the page from its top to its end, or so many pixels of it."""
        command = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            width, height = self.script("return [innerWidth, Math.ceil(document.body.getBoundingClientRect().bottom)]")
            command["clip"] = {"x": 0, "y": 0, "width": width, "height": min(height, most), "scale": 1}
        shot = self.ask(self.base + "/goog/cdp/execute", {"cmd": "Page.captureScreenshot", "params": command})
        with open(path, "wb") as f:
            f.write(base64.b64decode(shot["data"]))

    def script(self, text):
        return self.ask(self.base + "/execute/sync", {"script": text, "args": []})

    def close(self):
        self.ask(self.base, method="DELETE")
        self.driver.terminate()
        self.driver.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
