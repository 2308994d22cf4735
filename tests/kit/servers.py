# SPDX-License-Identifier: MIT
"""Servers of tests: each on a port of its own, in a directory of its own."""
import concurrent.futures
import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
NGINX = shutil.which("nginx", path=SEARCH)
PATIENCE = 30  # s; for what takes milliseconds unless the machine is busy

# In all configurations of nginx: Debian's writes to /var/lib otherwise.
PLACES = """\
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
"""


def free_port():
    """Below the ports that the kernel gives to connections: it stays free until it is listened on, and
    while the server is away."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port


def until(condition, what, patience=PATIENCE):
    """Waits for it. Returns what it returned."""
    deadline = time.monotonic() + patience
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience} s for {what}")
        time.sleep(0.01)
    return result


@contextlib.contextmanager
def over_and_over(work, threads=1):
    """Threads that do it, with their number, again and again as long as the block lasts. What one raises, this does."""
    over = threading.Event()

    def run(number):
        while not over.is_set():
            work(number)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(run, number) for number in range(threads)]
        try:
            yield
        finally:
            over.set()
        for one in running:
            one.result()


def replaced(text, *pairs):
    """The text with other words; each must be there."""
    for old, new in pairs:
        if old not in text:
            raise AssertionError(f"there is no {old!r} in the text")
        text = text.replace(old, new)
    return text


def wrk(url, *options, seconds=1, connections=64):
    """Starts it. Returns a function that waits for its end and returns how many requests were answered, and
    how many of them refused."""
    process = subprocess.Popen(["wrk", "-t2", f"-c{connections}", f"-d{seconds}s", "--timeout",
                                "20s", *options, url], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def counts():
        said, _ = process.communicate(timeout=100)
        assert process.returncode == 0 and "Socket errors" not in said, said
        refused = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
        return int(re.search(r"(\d+) requests in", said)[1]), int(refused[1]) if refused else 0
    return counts


# What servers write. It goes when the test ends, however it does.
ROOT = tempfile.TemporaryDirectory(prefix="stint-servers-")
os.chmod(ROOT.name, 0o755)  # workers may be another user's


class Process:
    """A server in a process group and a directory of its own. `with` starts and closes it."""

    def __init__(self, name):
        self.directory = Path(tempfile.mkdtemp(prefix=name, dir=ROOT.name))
        self.directory.chmod(0o755)
        self.port = free_port()
        self.process = None

    def start(self):
        # What it says, and the files that it makes, are in its directory.
        with open(self.directory / "output", "ab") as output:
            self.process = subprocess.Popen(self.command(), cwd=self.directory, stdout=output,
                                            stderr=output, stdin=subprocess.DEVNULL,
                                            start_new_session=True)
        until(self.listens, f"{self.directory.name} to listen")
        return self

    def listens(self):
        if self.process.poll() is not None:
            raise AssertionError(f"it ended: {self.said()}")
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def said(self):
        return "\n".join(path.read_text(errors="replace")[-2000:]
                         for path in (self.directory / "output", self.directory / "error.log")
                         if path.exists())

    def stop(self):
        """As it should be done; killed if it does not end."""
        if self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE)
        self.kill()

    def kill(self):
        """As `kill -9` of all its processes, or the loss of its host."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def close(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.stop()
        self.close()


class Nginx(Process):
    """Its configuration is nginx.conf, which a start or a reload reads."""

    WORKERS = None  # so many, if it is said

    def __init__(self, name):
        super().__init__(name)
        self.configuration = self.directory / "nginx.conf"
        self.error_log = self.directory / "error.log"

    def command(self):
        return [NGINX, "-p", str(self.directory), "-c", str(self.configuration), "-e", str(self.error_log)]

    def edit(self, *pairs):
        """Replaces words of the configuration, which must be there."""
        self.configuration.write_text(replaced(self.configuration.read_text(), *pairs))
        return self

    def worker_pids(self, ending=True):
        """The processes of the master; without those that are on their way out if not `ending`."""
        found = []
        with contextlib.suppress(OSError, AttributeError):
            path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
            for pid in sorted(map(int, Path(path).read_text().split())):
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
                if ending or (b"worker process" in title and b"shutting down" not in title):
                    found.append(pid)
        return found

    def reload(self, ending=True):
        """Returns once only workers of the new configuration are left, or work."""
        old = set(self.worker_pids(ending))
        self.process.send_signal(signal.SIGHUP)
        until(lambda: (new := set(self.worker_pids(ending))) and not new & old and
              len(new) == (self.WORKERS or len(new)), "new workers")
