# SPDX-License-Identifier: MIT
"""A fleet on this host: the configurations of this directory, as they are but for addresses, paths and
times, each in a real nginx or HAProxy of its own, in a temporary directory.

What a test changes in a configuration it replaces as text, and what is not there to be replaced is an
error: so the files that are tested are the files that people use.
"""
import http.client
import socket
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, f"{HERE.parent}/kit")
from servers import HAPROXY, PATIENCE, PLACES, Nginx, Process, replaced, until  # noqa: E402

# In all nginx configurations.
HTTP = ("http {\n", "http {\n    access_log off;\n" + PLACES)

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


class Server(Nginx):
    def __init__(self, name):
        super().__init__(name)
        (self.directory / "html").mkdir()

    def command(self):
        return [*super().command(), "-g", f"daemon off; pid {self.directory}/nginx.pid;"]


class Application(Server):
    def __init__(self):
        super().__init__("application")
        self.configuration.write_text(replaced(
            APPLICATION, HTTP, ("127.0.0.1:9000;", f"127.0.0.1:{self.port};")))


class Node(Server):
    def __init__(self, module, application, policy):
        super().__init__("node")
        self.drain = self.directory / "drain"
        self.configuration.write_text((HERE / "node.conf").read_text())
        self.edit(HTTP,
                  ("/usr/lib/nginx/modules/ngx_http_stint_module.so", module),
                  ("worker_processes auto", "worker_processes 2"),
                  ("100/hour name=client", policy),
                  ("10.0.0.11:8080", f"127.0.0.1:{self.port}"),
                  ("10.0.0.1 0;", "127.0.0.1 0;"),
                  ("127.0.0.1:9000", f"127.0.0.1:{application.port}"),
                  ("/run/stint/clients", str(self.directory / "clients")),
                  ("/run/stint-drain", str(self.drain)))

    def forgetful(self):
        """Its counts are in memory of its own, and go with it."""
        return self.edit((f" file={self.directory}/clients", ""))


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
        (self.directory / "haproxy.cfg").write_text(with_nodes(text, nodes))

    def command(self):
        return [HAPROXY, "-db", "-f", str(self.directory / "haproxy.cfg")]

    def up(self):
        """For each node whether it gets requests."""
        with socket.socket(socket.AF_UNIX) as admin:
            admin.connect(str(self.directory / "admin.sock"))
            admin.sendall(b"show servers state nodes\n")
            lines = admin.makefile().read().splitlines()
        names = lines[1].split()[1:]
        states = {}
        for line in lines[2:]:
            if line:
                row = dict(zip(names, line.split()))
                states[row["srv_name"]] = row["srv_op_state"] == "2"
        return [states[f"node{i + 1}"] for i in range(len(self.nodes))]

    def sees(self, node, up):
        until(lambda: self.up()[self.nodes.index(node)] == up, f"a node to be {'up' if up else 'gone'}")


class NginxBalancer(Server):
    """nginx sees nothing until it is asked for something."""

    def __init__(self, nodes, *edit):
        super().__init__("balancer")
        text = replaced((HERE / "nginx-balancer.conf").read_text(), HTTP,
                        ("worker_processes auto", "worker_processes 2"),
                        ("listen 10.0.0.1:80", f"listen 127.0.0.1:{self.port}"),
                        ("max_fails=2 fail_timeout=10s", "max_fails=2 fail_timeout=1s"), *edit)
        self.configuration.write_text(with_nodes(text, nodes))

    def sees(self, node, up):
        pass
