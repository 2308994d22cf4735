# SPDX-License-Identifier: MIT
"""Real servers with the applications of src/python/README.md: exactly the limit passes over all
workers, whatever happens to the workers and to the master."""
import collections
import concurrent.futures
import http.client
import os
import shutil
import signal
import socket
import subprocess
import unittest
from pathlib import Path

import commands
import readme
import server
import servers
import stint

LIMIT = 300
WORKERS = 4
CLIENTS = 8  # that ask at once
PATIENCE = 150  # s; on a busy machine it takes half a minute until an application's modules are there


def until(condition, what):
    return servers.until(condition, what, PATIENCE)


def children(pid):
    try:
        return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}
    except OSError:
        return set()


class Server(commands.Case):
    def start(self, app, *command):
        """The application of this name under a server that listens on self.port."""
        program = readme.placed(readme.program(f"{app}.py"), self.directory)
        # Of stint's windows none ends during the test; those of limits begin with the first request.
        program = program.replace("1000/day name", f"{LIMIT}/366d name").replace("1000/day", f"{LIMIT}/day")
        self.write(f"{app}.py", program)
        return self.run_server(*command)

    def run_server(self, *command):
        self.log = open(self.directory / "log", "ab")
        self.addCleanup(self.log.close)
        process = subprocess.Popen([str(part) for part in command], cwd=self.directory, stdout=self.log, stderr=self.log,
                                   stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        until(self.listens, "the server listens")
        return process

    def listens(self):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def one(self, port):
        """The status of an answer; 0: there was none, as its worker was killed."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", "/", headers={"X-User": "ann"})
            answer = connection.getresponse()
            answer.read()
            self.fields = dict(answer.getheaders())
            return answer.status
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    def statuses(self, ports):
        """What was answered at each."""
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            return list(pool.map(self.one, ports))

    def ask(self, n):
        """How often which status came."""
        return collections.Counter(self.statuses([self.port] * n))

    def tearDown(self):
        failed = self._outcome.result.failures + self._outcome.result.errors
        if failed and failed[-1][0] is self:
            print((self.directory / "log").read_text()[-5000:])


class Gunicorn(Server):
    def setUp(self):
        super().setUp()
        self.need("gunicorn")
        self.port, self.pid = servers.free_port(), self.directory / "pid"

    def master(self):
        """Of two (after USR2) the new one, whose file is renamed when the old one has ended."""
        new = self.directory / "pid.2"
        return int((new if new.exists() else self.pid).read_text())

    def workers(self, old=frozenset()):
        """Of the master that runs now, once there are as many as there are to be, all new."""
        found = set()

        def there():
            nonlocal found
            try:
                found = children(self.master())
            except (OSError, ValueError):
                return False
            return len(found) == WORKERS and not found & old

        until(there, "the workers run")
        return found

    def check(self, app, *options):
        """A quarter of the limit in each of four states of the server, a worker killed in the middle of the first."""
        self.addCleanup(self.stop)
        self.start(app, "/usr/bin/gunicorn", "--workers", WORKERS, "--bind", f"127.0.0.1:{self.port}", "--pid", self.pid,
                   "--graceful-timeout", 5, "--timeout", PATIENCE, *options, f"{app}:app")
        workers = self.workers()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self.ask, LIMIT // 4)
            os.kill(min(workers), signal.SIGKILL)
            answers = asked.result()
        workers = self.workers(old={min(workers)})
        answers += self.ask(LIMIT // 4)
        os.kill(self.master(), signal.SIGHUP)
        workers = self.workers(old=workers)
        answers += self.ask(LIMIT // 4)
        old = self.master()
        os.kill(old, signal.SIGUSR2)
        workers = self.workers(old=workers)
        os.kill(old, signal.SIGTERM)
        until(lambda: not children(old), "the old master ends")
        answers += self.ask(LIMIT // 2)
        # A request whose worker was killed was counted, or was not: nobody else's is lost.
        self.assertEqual(set(answers) - {0}, {200, 429})
        self.assertLessEqual(answers[0], 1 + WORKERS)
        self.assertLessEqual(answers[200], LIMIT)
        self.assertGreaterEqual(answers[200], LIMIT - answers[0])
        self.assertEqual(self.ask(20), {429: 20})

    def stop(self):
        """The masters: the last is no child of this process."""
        for path in self.directory.glob("pid*"):
            try:
                os.kill(int(path.read_text()), signal.SIGTERM)
            except (OSError, ValueError):
                pass
        until(lambda: not self.listens(), "the server ends")

    def test_flask_limiter(self):
        self.check("with_flask_limiter")

    def test_flask_limiter_preload(self):
        self.check("with_flask_limiter", "--preload")

    def test_decorator(self):
        """And a policy that is changed meanwhile, from outside or by a deploy, holds for all workers."""
        self.check("with_flask")
        self.assertEqual(self.fields["RateLimit-Policy"].split(";")[:2], ['"api"', f"q={LIMIT}"])
        self.assertIn("Retry-After", self.fields)
        with stint.open(self.directory / "limits") as table:
            self.assertEqual(table["api"].peek(table.address("127.0.0.1")).used, LIMIT)
            self.assertEqual(table.apply([f"{LIMIT + 60}/366d name=api"]), {"api": "changed"})
            self.assertEqual(self.ask(100), {200: 60, 429: 40})
        # A deploy: another text, and HUP.
        app = self.directory / "with_flask.py"
        app.write_text(app.read_text().replace(f"{LIMIT}/366d", f"{LIMIT + 100}/366d"))
        workers = self.workers()
        os.kill(self.master(), signal.SIGHUP)
        self.workers(old=workers)
        self.assertEqual(self.ask(100), {200: 40, 429: 60})

    def test_decorator_preload(self):
        self.check("with_flask", "--preload")


class Stream(Server):
    def test_flask(self):
        """A view that streams is in flight until its answer was sent, or its client has gone."""
        self.need("gunicorn")
        self.write("stream.py", """
import stint, time
from flask import Flask, Response
table = stint.open("TABLE", 100, policies=["1/60s in-flight name=busy"])
app = Flask(__name__)
@app.get("/")
@stint.limited(table["busy"], key="all")
def stream():
    return Response(b"x" * 100 for _ in iter(lambda: time.sleep(0.01), 0))
""".replace("TABLE", str(self.directory / "limits")))
        self.port = servers.free_port()
        self.run_server("/usr/bin/gunicorn", "--threads", 2, "--bind", f"127.0.0.1:{self.port}", "stream:app")
        with stint.open(self.directory / "limits", 100, ["1/60s in-flight name=busy"]) as table:
            with socket.create_connection(("127.0.0.1", self.port)) as client:
                client.sendall(b"GET / HTTP/1.0\r\n\r\n")
                until(lambda: client.recv(100), "the answer")
                self.assertEqual(table["busy"].peek("all").used, 1)
            until(lambda: table["busy"].peek("all").used == 0, "the answer is over")


class Front(Server):
    APP = """
import stint
import stint.web


def hello(environ, start_response):
    start_response("200 OK", [])
    return [b"hello"]


app = stint.web.WSGI(hello, stint.open("TABLE")["api"], key=lambda environ: environ["HTTP_X_USER"])
"""

    def test_nginx(self):
        """Every other request is decided by nginx's module, the others by gunicorn's workers: one count."""
        self.need("nginx", "gunicorn")
        if not os.path.exists(os.environ["STINT_MODULE"]):
            self.skipTest("the module is not built")
        table = self.directory / "limits"
        with server.Server(os.environ["STINT_MODULE"], f"""
    stint_zone shared entries=1000 file={table};
    stint_policy shared {LIMIT}/366d name=api;
""", "location / { stint_limit shared api $http_x_user; try_files /file =404; }") as nginx:
            self.write("front.py", self.APP.replace("TABLE", str(table)))
            self.port = servers.free_port()
            self.run_server("/usr/bin/gunicorn", "--workers", WORKERS, "--bind", f"127.0.0.1:{self.port}", "front:app")
            answers = self.statuses([self.port, nginx.port] * LIMIT)
        self.assertEqual(collections.Counter(answers), {200: LIMIT, 429: LIMIT})
        # By turns: none is ahead by more than those that ask at once.
        for side in answers[::2], answers[1::2]:
            self.assertGreaterEqual(side.count(200), LIMIT // 2 - CLIENTS)


class Uvicorn(Server):
    def test_asgi(self):
        """As add_middleware has it. Three workers, of which one is killed. This uvicorn starts no other in its place."""
        self.need("uvicorn")
        self.port = servers.free_port()
        process = self.start("with_starlette", shutil.which("uvicorn", path="/usr/bin"), "--workers", 3, "--host", "127.0.0.1",
                             "--port", self.port, "--log-level", "warning", "with_starlette:app")
        self.addCleanup(lambda: [os.kill(child, signal.SIGKILL) for child in children(process.pid)])
        answers = self.ask(LIMIT // 2)
        self.assertEqual(answers, {200: LIMIT // 2})
        self.assertIn("ratelimit", {name.lower() for name in self.fields})
        serving = until(lambda: len(found := [child for child in children(process.pid) if b"spawn_main" in
                                              Path(f"/proc/{child}/cmdline").read_bytes()]) == 3 and found, "three workers")
        os.kill(serving[0], signal.SIGKILL)
        answers += self.ask(LIMIT)
        self.assertEqual(set(answers) - {0}, {200, 429})
        self.assertLessEqual(answers[200], LIMIT)
        self.assertGreaterEqual(answers[200], LIMIT - answers[0])
        with stint.open(self.directory / "limits") as table:
            self.assertEqual(table["api"].peek(table.address("127.0.0.1")).used, LIMIT)


if __name__ == "__main__":
    unittest.main()
