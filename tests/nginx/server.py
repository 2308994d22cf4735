# SPDX-License-Identifier: MIT
"""The real nginx with the stint module, in a directory of its own, for the tests."""
import contextlib
import http.client
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
PATIENCE = 20  # s; for what takes milliseconds unless the machine is busy

CONFIGURATION = """\
load_module {module};
daemon off;
pid nginx.pid;
error_log error.log {log_level};
worker_processes {workers};
{main}
events {{
    worker_connections 512;
}}
http {{
    log_format stint '$pid $status "$request_uri" $stint_status $stint_policy $stint_limit '
                     '$stint_used $stint_remaining $stint_reset $stint_retry_after';
    access_log access.log stint;
    add_header X-Stint "$stint_status $stint_policy $stint_used/$stint_limit $stint_remaining" always;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
{http}
    server {{
        listen 127.0.0.1:{port} reuseport backlog=1024;
        root www;
{server}
    }}
}}
"""


def until(condition, what):
    """Waits for it. Returns what it returned."""
    deadline = time.monotonic() + PATIENCE
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.01)


def free_port():
    """Below those that the system gives to clients, which might take it before it is used."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Response:
    def __init__(self, response):
        self.status = response.status
        self.fields = [(name.lower(), value) for name, value in response.getheaders()]
        self.body = response.read()

    def all(self, name):
        return [value for field, value in self.fields if field == name.lower()]

    def __getitem__(self, name):
        """The one field of that name, or None."""
        found = self.all(name)
        if len(found) > 1:
            raise AssertionError(f"{name} is there {len(found)} times: {found}")
        return found[0] if found else None

    @property
    def stint(self):
        """Status, policy, used/limit and remaining, as $stint_* had them."""
        return " ".join(self["X-Stint"].split())


class Server:
    """with Server(module, http="...", server="...") as server: ...; each location may be a file of
    the directory www, which has `file` and `other`."""

    def __init__(self, module, http="", server="", workers=2, main="", log_level="notice"):
        self.module, self.workers, self.log_level = module, workers, log_level
        self.main = main + ("user root;\n" if os.geteuid() == 0 else "")
        self.port = free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="stint-nginx-"))
        self.configuration = self.directory / "nginx.conf"
        self.error_log = self.directory / "error.log"
        www = self.directory / "www"
        www.mkdir()
        for name in "file", "other":
            (www / name).write_text(name + "\n")
        self.process = None
        self.configure(http, server)

    def configure(self, http, server):
        """Writes the configuration, which a start or a reload will read."""
        self.configuration.write_text(CONFIGURATION.format(
            module=self.module, workers=self.workers, main=self.main, log_level=self.log_level,
            http=http, server=server, port=self.port))

    @property
    def command(self):
        return [NGINX, "-p", str(self.directory), "-c", str(self.configuration),
                "-e", str(self.error_log)]

    def test(self):
        """nginx -t. Returns its exit status and what it said."""
        done = subprocess.run([*self.command, "-t"], capture_output=True, text=True,
                              timeout=PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def start(self):
        self.process = subprocess.Popen(self.command, cwd=self.directory,
                                        stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until(self.listens, "nginx to listen")
        until(lambda: len(self.worker_pids()) == self.workers, "the workers")

    def listens(self):
        if self.process.poll() is not None:
            raise AssertionError("nginx ended:\n" + self.process.stderr.read().decode())
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                for pid in self.worker_pids():
                    os.kill(pid, signal.SIGKILL)
                self.process.kill()
                self.process.wait()
        if self.process is not None:
            self.process.stderr.close()

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def worker_pids(self):
        with contextlib.suppress(OSError):
            path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
            return sorted(map(int, Path(path).read_text().split()))
        return []

    def log(self):
        return self.error_log.read_text(errors="replace")

    def logged(self, pattern):
        return re.findall(pattern, self.log())

    def access_log(self, count):
        """The lines of the access log, each a list of its words, once there are so many: nginx
        writes them after the responses."""
        path = self.directory / "access.log"
        until(lambda: path.read_text().count("\n") >= count, f"{count} lines in the access log")
        return [line.split() for line in path.read_text().splitlines()]

    def reload(self):
        """Returns once only workers of the new configuration are left."""
        old = set(self.worker_pids())
        self.process.send_signal(signal.SIGHUP)
        until(lambda: len(self.worker_pids()) == self.workers and not old & set(self.worker_pids()),
              "new workers")

    def reload_refused(self):
        """A reload that fails. Returns the lines of level emerg that it logged."""
        before = len(self.log())
        old = self.worker_pids()
        self.process.send_signal(signal.SIGHUP)
        until(lambda: "[emerg]" in self.log()[before:], "an emerg in the log")
        # nginx takes the next signal when it has done with this one.
        marks = len(self.logged("reopening logs"))
        self.process.send_signal(signal.SIGUSR1)
        until(lambda: len(self.logged("reopening logs")) > marks, "the end of the reload")
        assert self.worker_pids() == old, "the workers have changed"
        return [line for line in self.log()[before:].splitlines() if "[emerg]" in line]

    def connect(self, source="127.0.0.1"):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE,
                                          source_address=(source, 0))

    def get(self, path="/file", method="GET", source="127.0.0.1", headers=None):
        connection = self.connect(source)
        try:
            connection.request(method, path, headers=headers or {})
            return Response(connection.getresponse())
        finally:
            connection.close()

    def statuses(self, count, path="/file", **more):
        return [self.get(path, **more).status for _ in range(count)]

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.port}{path}"
