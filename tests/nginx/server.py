# SPDX-License-Identifier: MIT
"""The real nginx with the stint module, in a directory of its own, for the tests."""
import http.client
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
from servers import PATIENCE, PLACES, Nginx, until  # noqa: E402

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
{places}{http}
    server {{
        listen 127.0.0.1:{port} reuseport backlog=1024;
        root www;
{server}
    }}
}}
"""


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


class Server(Nginx):
    """with Server(module, http="...", server="...") as server: ...; each location may be a file of
    the directory www, which has `file` and `other`, and `long` for answers that take long."""

    CONFIGURATION = CONFIGURATION

    def __init__(self, module, http="", server="", workers=2, main="", log_level="notice", **words):
        super().__init__("nginx")
        self.WORKERS = workers
        self.words = {"module": module, "workers": workers, "log_level": log_level, "port": self.port,
                      "main": main + ("user root;\n" if os.geteuid() == 0 else ""), "places": PLACES, **words}
        self.www = self.directory / "www"
        self.www.mkdir()
        for name in "file", "other":
            (self.www / name).write_text(name + "\n")
        (self.www / "long").write_bytes(b"x" * 1000000)
        self.configure(http, server)

    def configure(self, http, server):
        """Writes the configuration, which a start or a reload will read."""
        self.configuration.write_text(self.CONFIGURATION.format(http=http, server=server, **self.words))
        return self

    def line_of(self, words):
        """The number of the first line that has these words."""
        return self.configuration.read_text().split(words)[0].count("\n") + 1

    def with_http_2(self):
        return self.edit(("reuseport", "http2 reuseport"))

    def test(self):
        """nginx -t. Returns its exit status and what it said."""
        done = subprocess.run([*self.command(), "-t"], capture_output=True, text=True, timeout=PATIENCE)
        return done.returncode, done.stdout + done.stderr

    def start(self):
        super().start()
        until(lambda: len(self.worker_pids()) == self.WORKERS, "the workers")
        return self

    def kill_worker(self, pid, number=signal.SIGKILL):
        """Returns once another has taken its place."""
        os.kill(pid, number)
        until(lambda: pid not in self.worker_pids() and len(self.worker_pids()) == self.WORKERS,
              "another worker")

    def reload_beside(self):
        """Begins a reload that leaves old workers with what they have to do."""
        old = self.worker_pids()
        self.process.send_signal(signal.SIGHUP)
        # One listens no more once it has logged this.
        until(lambda: all(self.logged(f" {pid}#{pid}: gracefully shutting down") for pid in old) and
              len(self.worker_pids()) == len(old) + self.WORKERS, "new workers")

    def master(self, name="nginx.pid"):
        """The pid in the file; 0: there is none, as nginx renames it."""
        try:
            return int((self.directory / name).read_text() or 0)
        except FileNotFoundError:
            return 0

    def daemonize(self, case):
        """Starts it so that its binary can be upgraded, for a test. Returns the master."""
        def stop():
            for name in "nginx.pid", "nginx.pid.oldbin":
                if pid := self.master(name):
                    os.kill(pid, signal.SIGTERM)
            until(lambda: not (self.directory / "nginx.pid").exists(), "the end")
            self.close()
        self.edit(("daemon off;", "daemon on;"))
        case.addCleanup(stop)
        subprocess.run(self.command(), cwd=self.directory, check=True, timeout=20)
        return until(self.master, "a pid")

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

    def begin(self, count, path="/file", **more):
        """Sends requests without waiting for their answers. Returns their connections."""
        connections = [self.connect() for _ in range(count)]
        for connection in connections:
            connection.request("GET", path, **more)
        return connections

    def get(self, path="/file", method="GET", source="127.0.0.1", headers=None):
        connection = self.connect(source)
        try:
            connection.request(method, path, headers=headers or {})
            return Response(connection.getresponse())
        finally:
            connection.close()

    def statuses(self, count, path="/file", **more):
        return [self.get(path, **more).status for _ in range(count)]

    def curl(self, *arguments, path="/file"):
        """Begins requests by HTTP/2."""
        return subprocess.Popen(["curl", "--silent", "--http2-prior-knowledge", *arguments, self.url(path)],
                                stdout=subprocess.PIPE, text=True)

    def url(self, path="/file"):
        return f"http://127.0.0.1:{self.port}{path}"
