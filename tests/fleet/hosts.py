# SPDX-License-Identifier: MIT
"""Hosts for a fleet: each has directories /run and /var/log and processes of its own, and all share one
network, in which the addresses of doc/nodes are local. So the files of doc/nodes run as they are, but for
limits and times.

What a test changes in a file it replaces as text, and what is not there to be replaced is an error.
"""
import http.client
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, f"{HERE.parent}/kit")
from servers import PATIENCE, over_and_over, replaced, until  # noqa: E402

NODES = HERE.parents[1] / "doc" / "nodes"
NETWORK = """
ip link set lo up
ip address add 10.0.0.1 dev lo
ip route add local 10.0.0.0/24 dev lo src 10.0.0.1
ip -6 address add 2001:db8::1/128 dev lo nodad
ip -6 route add local 2001:db8::/32 dev lo
echo 1 >/proc/sys/net/ipv6/ip_nonlocal_bind
for clients in 192.0.2.0/24 198.18.0.0/15 203.0.113.0/24; do ip route add local $clients dev lo; done
"""
HOST = """
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
for place in /var/log /var/lib/nginx /var/lib/varnish; do
    [ ! -d $place ] || mount -t tmpfs tmpfs $place
done
mkdir /run/stint /run/haproxy /var/log/nginx
echo ready
exec cat
"""


def enter():
    """Goes on in a network of its own, which ends with this process. Returns whether there is one."""
    if os.environ.get("STINT_FLEET_NETWORK") != str(os.getpid()):
        if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False).returncode != 0:
            return False
        os.environ["STINT_FLEET_NETWORK"] = str(os.getpid())  # `unshare` becomes this program
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    subprocess.run(["sh", "-ec", NETWORK], check=True)
    return True


def ask(address, path="/", headers=(), source=None, method="GET", port=80):
    """One request. Returns its status and the fields of its response. `headers` are (name, value), and a
    name may stand there twice. Status 0: the connection failed."""
    connection = http.client.HTTPConnection(address, port, timeout=PATIENCE, source_address=source and (source, 0))
    try:
        connection.putrequest(method, path)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        response.read()
        return response.status, response.headers
    except (http.client.HTTPException, ConnectionError):
        return 0, {}
    finally:
        connection.close()


def run(command, environment=None):
    """Its status, and what it wrote: to a file, which a server that it starts may keep open."""
    with tempfile.TemporaryFile("w+") as output:
        status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False,
                                timeout=200, env=environment).returncode
        output.seek(0)
        return status, output.read()


class Host:
    def __init__(self):
        self.process = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", HOST],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        pid = self.process.pid
        self.pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def file(self, path):
        return Path(f"/proc/{self.pid}/root{path}")

    def run(self, command, check=True):
        """Returns what it wrote."""
        status, said = run(["nsenter", "--mount", "--pid", "--target", str(self.pid), "sh", "-c", command])
        assert status == 0 or not check, f"{command}: {said}"
        return said

    def kill(self):
        """All of its processes; its files stay."""
        self.run("kill -KILL -1", check=False)

    def close(self):
        self.kill()
        self.process.communicate()


class Node(Host):
    def __init__(self, number, module, limits):
        super().__init__()
        self.address = f"10.0.0.1{number}"
        self.configuration = self.file("/run/nginx.conf")
        self.configuration.write_text(replaced(
            (NODES / "node.conf").read_text(), *limits, ("10.0.0.11:8080", f"{self.address}:8080"),
            ("/usr/lib/nginx/modules/ngx_http_stint_module.so", module)))

    def start(self):
        self.run("nginx -c /run/nginx.conf")

    def edit(self, *pairs):
        self.configuration.write_text(replaced(self.configuration.read_text(), *pairs))
        workers = "cat /proc/$(cat /run/nginx.pid)/task/*/children"
        old = set(self.run(workers).split())
        self.run("nginx -c /run/nginx.conf -s reload")
        until(lambda: not old & set(self.run(workers).split()), "the old workers to end")


class Balancer(Host):
    """A kind of balancer: its file, how it starts, what makes its times short, a line for each node, and
    the command that tells how many nodes it uses."""

    def start(self, *edit):
        self.file("/run/balancer").write_text(replaced((NODES / self.FILE).read_text(), *self.TIMES, *edit))
        self.run(self.START)

    def restart(self, *edit):
        self.kill()
        self.start(*edit)
        until(lambda: ask("10.0.0.1", "/health", port=80)[0] in (204, 400, 404), "the balancer")

    def sees(self, count):
        """Waits until it uses so many nodes."""
        until(lambda: self.run(self.UP, check=False).strip() == str(count), f"{count} nodes to be used")

    def lines(self):
        """The nodes' lines in the file, place by place."""
        text = replaced((NODES / self.FILE).read_text(), *self.TIMES)
        return [[next(f"{line}\n" for line in text.split("\n") if place % number in line) for number in (1, 2, 3)]
                for place in self.PLACES]

    def without(self, node):
        """The edit that leaves a node out."""
        return [(lines[int(node.address[-1]) - 1], "") for lines in self.lines()]

    def turned(self):
        """The edit that lists them in another order."""
        return [("".join(lines), "".join(lines[-1:] + lines[:-1])) for lines in self.lines()]

    @staticmethod
    def home(headers):
        """Which node has a key, or an address; None if none answers."""
        return ask("127.0.0.1", "/health", headers, port=8404)[1].get("X-Node")


class Haproxy(Balancer):
    FILE, PLACES = "haproxy.cfg", ["server node%d"]
    START = "haproxy -f /run/balancer"
    TIMES = [("inter 1s fall 3 rise 10", "inter 100ms fall 3 rise 4"), ("timeout check 1s", "timeout check 20s")]
    UP = "curl -s http://127.0.0.1:8404/up"


class NginxBalancer(Balancer):
    """It sees nothing until it is asked for something."""

    FILE, PLACES = "nginx-balancer.conf", ["server 10.0.0.1%d:"]
    START = "nginx -c /run/balancer"
    TIMES = [("fail_timeout=10s", "fail_timeout=1s")]
    UP = ""

    def sees(self, count):
        keys = [[("X-Api-Key", str(number))] for number in range(30)]
        until(lambda: count < 3 or len({self.home(key) for key in keys}) == 3, "all nodes to be tried again")


class Varnish(Balancer):
    FILE, PLACES = "varnish.vcl", ["backend node%d ", "add_backend(node%d)"]
    START = ("varnishd -a 10.0.0.1:80 -a '[2001:db8::1]:80' -a operators=127.0.0.1:8404 -f /run/balancer")
    TIMES = [(".interval = 1s", ".interval = 0.1s"), (".timeout = 1s", ".timeout = 20s"),
             (".window = 10", ".window = 6"), (".threshold = 8", ".threshold = 4"), (".initial = 10", ".initial = 6")]
    UP = "varnishadm backend.list | grep -c 'node[0-9].*healthy'"


def stand_in_for_ssh(hosts):
    """A directory with an `ssh` that runs its command on one of these hosts, by a shell, as the real one does."""
    directory = Path(tempfile.mkdtemp(dir=tempfile.gettempdir()))
    cases = "\n".join(f"root@{address}) pid={host.pid} ;;" for address, host in hosts.items())
    (directory / "ssh").write_text(f'#!/bin/sh\ncase $1 in\n{cases}\nesac\nshift\n'
                                   'exec nsenter --mount --pid --target "$pid" sh -c "$*"\n')
    (directory / "ssh").chmod(0o755)
    return directory
