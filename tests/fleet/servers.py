# SPDX-License-Identifier: MIT
"""A fleet on this host: the configurations of this directory, as they are but for addresses, paths and
times, each in a real nginx or HAProxy of its own, in a temporary directory.

What a test changes in a configuration it replaces as text, and what is not there to be replaced is an
error: so the files that are tested are the files that people use.
"""
import contextlib
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SEARCH = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
NGINX = shutil.which("nginx", path=SEARCH)
HAPROXY = shutil.which("haproxy", path=SEARCH)
PATIENCE = 30  # s; for what takes a second unless the machine is busy

# In all nginx configurations. Debian's nginx writes to /var/lib otherwise.
PLACES = """http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_requests 1000000;
"""

APPLICATION = """\
worker_processes 1;
events {
    worker_connections 1024;
}
http {
    server {
        listen 127.0.0.1:9000;
        return 200 "served";
    }
}
"""


def free_port():
    """Below the ports that the kernel gives to connections: it stays free until it is listened on, and
    while a node is away."""
    while True:
        port = random.SystemRandom().randrange(10000, 32000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", port))
            return port


def until(condition, what, patience=PATIENCE):
    """Waits for it. Returns what it returned."""
    deadline = time.monotonic() + patience
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {patience} s for {what}")
        time.sleep(0.01)


def ask(port, headers=(), connection=None, source="127.0.0.1"):
    """One GET. Returns the status and the number that X-Node ends in, None if there is none: a node's
    port. `headers` are (name, value), and a name may stand there twice."""
    own = connection is None
    if own:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE,
                                                source_address=(source, 0))
    try:
        connection.putrequest("GET", "/")
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        response.read()
        node = response.getheader("X-Node")
        return response.status, node and int(node.rpartition(":")[2])
    finally:
        if own:
            connection.close()


def replaced(text, *pairs):
    for old, new in pairs:
        if old not in text:
            raise AssertionError(f"there is no {old!r} in the configuration")
        text = text.replace(old, new)
    return text


# What the servers write. It goes when the test ends, however it does.
ROOT = tempfile.TemporaryDirectory(prefix="stint-fleet-")
os.chmod(ROOT.name, 0o755)  # workers may be another user's

RUNNING = set()


def stop_all(*_):
    """When the test itself is stopped: what it started is in sessions of its own."""
    for server in list(RUNNING):
        server.kill()
    ROOT.cleanup()
    os._exit(1)


class Process:
    """A server in a process group and a directory of its own."""

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
        RUNNING.add(self)
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

    def kill(self):
        """As `kill -9` of all its processes, or the loss of its host."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            RUNNING.discard(self)

    def close(self):
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Nginx(Process):
    def __init__(self, name, text):
        super().__init__(name)
        self.text = text
        (self.directory / "html").mkdir()

    def command(self):
        (self.directory / "nginx.conf").write_text(self.text)
        return [NGINX, "-p", str(self.directory), "-c", str(self.directory / "nginx.conf"),
                "-e", str(self.directory / "error.log"), "-g",
                f"daemon off; pid {self.directory}/nginx.pid;"]

    def workers(self):
        """The process ids of the workers that are not on their way out."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        running = set()
        for child in children.split():
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"worker process" in title and b"shutting down" not in title:
                    running.add(int(child))
        return running

    def reload(self):
        """As `nginx -s reload`; returns when new workers have taken over."""
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        until(lambda: self.workers() and not self.workers() & before, "new workers")


class Application(Nginx):
    """With `addresses` it also listens on 127.0.1.1 to 127.0.1.N, and says on which it was asked."""

    def __init__(self, addresses=0):
        super().__init__("application", "")
        listen = f"        listen 127.0.0.1:{self.port};\n"
        if addresses:
            listen += "".join(f"listen 127.0.1.{i + 1}:{self.port};\n" for i in range(addresses))
            listen += 'if ($server_addr ~ "([0-9]+)$") { set $number $1; }\n'
            listen += 'add_header X-Node "address:$number";\n'
        self.text = replaced(APPLICATION, ("http {\n", PLACES),
                             ("        listen 127.0.0.1:9000;\n", listen))


class Node(Nginx):
    def __init__(self, module, application, policy):
        super().__init__("node", "")
        self.drain = self.directory / "drain"
        self.text = replaced((HERE / "node.conf").read_text(), ("http {\n", PLACES),
                             ("/usr/lib/nginx/modules/ngx_http_stint_module.so", module),
                             ("worker_processes auto", "worker_processes 2"),
                             ("100/hour name=client", policy),
                             ("10.0.0.11:8080", f"127.0.0.1:{self.port}"),
                             ("10.0.0.1 0;", "127.0.0.1 0;"),
                             ("127.0.0.1:9000", f"127.0.0.1:{application.port}"),
                             ("/run/stint-drain", str(self.drain)))


def with_nodes(text, nodes):
    """A balancer's configuration with the addresses of the nodes; it may leave some of them out."""
    for i, node in enumerate(nodes):
        text = text.replace(f"10.0.0.1{i + 1}:8080", f"127.0.0.1:{node.port}")
    if "10.0.0." in text:
        raise AssertionError("there is an address left in the configuration")
    return text


class Haproxy(Process):
    """`edit`: further replacements of text."""

    CHECKS = "inter 1s fall 3 rise 10"

    def __init__(self, nodes, *edit):
        super().__init__("haproxy")
        self.nodes = nodes
        text = replaced((HERE / "haproxy.cfg").read_text(),
                        ("/run/haproxy/admin.sock", str(self.directory / "admin.sock")),
                        ("bind 10.0.0.1:80", f"bind 127.0.0.1:{self.port}"),
                        (self.CHECKS, "inter 50ms fall 3 rise 4"),
                        ("timeout check 1s", "timeout check 20s"), *edit)  # slow is not dead
        self.text = with_nodes(text, nodes)

    def command(self):
        (self.directory / "haproxy.cfg").write_text(self.text)
        return [HAPROXY, "-db", "-f", str(self.directory / "haproxy.cfg")]

    def admin(self, command):
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.directory / "admin.sock"))
            admin.sendall(command.encode() + b"\n")
            answer = b""
            while part := admin.recv(65536):
                answer += part
        return answer.decode()

    def up(self):
        """For each node whether it gets requests."""
        lines = self.admin("show servers state nodes").splitlines()
        names = lines[1].split()[1:]
        states = {}
        for line in lines[2:]:
            if line:
                row = dict(zip(names, line.split()))
                states[row["srv_name"]] = row["srv_op_state"] == "2"
        return [states[f"node{i + 1}"] for i in range(len(self.nodes))]

    def sees(self, node, up):
        until(lambda: self.up()[self.nodes.index(node)] == up, f"a node to be {'up' if up else 'gone'}")


class NginxBalancer(Nginx):
    """nginx sees nothing until it is asked for something."""

    def __init__(self, nodes, *edit):
        super().__init__("balancer", "")
        text = replaced((HERE / "nginx-balancer.conf").read_text(), ("http {\n", PLACES),
                        ("worker_processes auto", "worker_processes 2"),
                        ("listen 10.0.0.1:80", f"listen 127.0.0.1:{self.port}"),
                        ("max_fails=2 fail_timeout=10s", "max_fails=2 fail_timeout=1s"), *edit)
        self.text = with_nodes(text, nodes)

    def sees(self, node, up):
        pass
