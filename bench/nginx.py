#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a limit costs in nginx: without one, with nginx's own limit_req, with stint. Requests per second
and CPU time per request of the workers, measured by turns in one run, with wrk on the same machine.

    nginx.py MODULE_SO [--seconds S] [--rounds N] [--workers N] [--format table|json]
"""
import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from driver import Parser, count, machine

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
KEYS = 10000
CONNECTIONS = 64
TICK = os.sysconf("SC_CLK_TCK")

# What is asked for, and whether it is let through.
SCENARIOS = {
    "one key": ("/one", True),
    f"{KEYS:,} keys": ("/many", True),
    "refused": ("/refused", False),
}

ZONE = "stint_zone z entries=100k; stint_log_level info;"


def stint(policies, more="", shut="shut"):
    return {"http": ZONE + policies, "one": f"stint_limit z open $binary_remote_addr{more};",
            "many": f"stint_limit z open $arg_key{more};",
            "refused": f"stint_limit z {shut} $binary_remote_addr{more};"}


def each(limits, **more):
    """The same with more of each."""
    return {name: text + more.get(name, "") for name, text in limits.items()}


# The limits are never reached, or at once. Neither limiter logs: that would be measured, too.
NGINX_S = {
    "http": "limit_req_zone $binary_remote_addr zone=one:10m rate=1000000r/s;"
            "limit_req_zone $arg_key zone=many:10m rate=1000000r/s;"
            "limit_req_zone $binary_remote_addr zone=refused:10m rate=1r/m;"
            "limit_req_status 429; limit_req_log_level info;",
    "one": "limit_req zone=one burst=1000000 nodelay;",
    "many": "limit_req zone=many burst=1000000 nodelay;",
    "refused": "limit_req zone=refused nodelay;",
}
POLICIES = "stint_policy z 100M/s name=open; stint_policy z 1/52w name=shut;"
LIMITS = {
    "none": {"http": "", "one": "", "many": "", "refused": "return 429;"},
    "limit_req": NGINX_S,
    "stint": stint(POLICIES),
    "limit_req, two": each(
        NGINX_S, http="limit_req_zone $binary_remote_addr zone=one2:10m rate=1000001r/s;"
                      "limit_req_zone $arg_key zone=many2:10m rate=1000001r/s;"
                      "limit_req_zone $binary_remote_addr zone=refused2:10m rate=1000000r/s;",
        **{path: f"limit_req zone={path}2 burst=1000000 nodelay;"
           for path in ("one", "many", "refused")}),
    "stint, two limits": each(
        stint(POLICIES + "stint_policy z 200M/m name=wide;"),
        one="stint_limit z wide $binary_remote_addr;", many="stint_limit z wide $arg_key;",
        refused="stint_limit z wide $binary_remote_addr;"),
    # A request takes 1 when it comes, and settles for 1 when its header is made. In a policy without
    # room none takes.
    "stint, charge": stint(POLICIES + "map $status $charged { default 1; }", " charge=$charged"),
    # Keys that may be banned, and one that is.
    "stint, ban": stint("stint_policy z 100M/s name=open ban=1h;"
                        "stint_policy z 1/52w name=shut ban=366d;"),
    # Requests at once: nobody knows how many are, so limit_conn is not measured refusing.
    "limit_conn": {"http": "limit_conn_zone $binary_remote_addr zone=one:10m;"
                           "limit_conn_zone $arg_key zone=many:10m;",
                   "one": "limit_conn one 1000;", "many": "limit_conn many 1000;", "refused": None},
    "stint, in flight": {**stint("stint_policy z 1000/1h name=open in-flight;"),
                         "refused": "stint_limit z open $binary_remote_addr cost=1001;"},
    "stint, draft fields": stint(POLICIES + "stint_headers draft;"),
}

CONFIGURATION = """\
load_module {module};
daemon off;
pid nginx.pid;
error_log error.log error;
worker_processes {workers};
{user}
events {{
    worker_connections 512;
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    {http}
    server {{
        listen 127.0.0.1:{port} reuseport backlog=1024;
        location /one {{
            {one}
            empty_gif;
        }}
        location /many {{
            {many}
            empty_gif;
        }}
        location /refused {{
            {refused}
            empty_gif;
        }}
    }}
}}
"""

WRK = """\
local requests = {}
init = function()
    for key = 1, %d do
        requests[key] = wrk.format("GET", "/many?key=" .. key)
    end
end
request = function()
    return requests[math.random(#requests)]
end
"""


class Server:
    def __init__(self, directory, module, limits, workers):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        directory.mkdir()
        (directory / "nginx.conf").write_text(CONFIGURATION.format(
            module=module, port=self.port, workers=workers,
            user="user root;" if os.geteuid() == 0 else "",
            **{name: text or "" for name, text in limits.items()}))
        self.log = directory / "error.log"
        self.process = subprocess.Popen(
            [NGINX, "-p", directory, "-c", directory / "nginx.conf", "-e", self.log],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while len(self.worker_pids()) < workers:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                sys.exit("nginx does not start:\n" + self.log.read_text())
            time.sleep(0.01)

    def worker_pids(self):
        try:
            path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            return path.read_text().split()
        except OSError:
            return []

    def cpu(self):
        """CPU time of the workers, user and system, in s."""
        ticks = 0
        for pid in self.worker_pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / TICK

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def load(server, path, seconds, workers, script):
    """Returns the requests that wrk got an answer to, how many were not 2xx, and the s it took."""
    options = ["--script", script] if path == "/many" else []
    done = subprocess.run(
        ["wrk", "--threads", str(workers), "--connections", str(CONNECTIONS), "--duration",
         f"{seconds}s", *options, f"http://127.0.0.1:{server.port}{path}"],
        capture_output=True, text=True)
    counted = re.search(r"(\d+) requests in ([\d.]+)(m?s|m),", done.stdout)
    if done.returncode != 0 or counted is None or "Socket errors" in done.stdout:
        sys.exit(f"wrk failed:\n{done.stdout}{done.stderr}")
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", done.stdout)
    unit = {"ms": 0.001, "s": 1, "m": 60}[counted[3]]
    return int(counted[1]), int(refused[1]) if refused else 0, float(counted[2]) * unit


def measure(server, path, let_through, options, script):
    cpu = server.cpu()
    requests, refused, seconds = load(server, path, options.seconds, options.workers, script)
    cpu = server.cpu() - cpu
    if let_through and refused != 0 or not let_through and requests - refused > CONNECTIONS:
        sys.exit(f"{path}: {refused} of {requests} requests were refused; nothing is measured")
    return {"requests_per_second": requests / seconds, "cpu_us_per_request": cpu / requests * 1e6}


def rows_of(samples):
    """Medians over the rounds. What a limit costs more than none is compared within each round: in
    between the machine may have become slower or faster."""
    rows = []
    for (scenario, limit), taken in samples.items():
        row = {"scenario": scenario, "limit": limit}
        for name in "requests_per_second", "cpu_us_per_request":
            values = [sample[name] for sample in taken]
            row[name] = statistics.median(values)
            row[name + "_min"], row[name + "_max"] = min(values), max(values)
        row["cpu_us_more_than_none"] = statistics.median(
            sample["cpu_us_per_request"] - none["cpu_us_per_request"]
            for sample, none in zip(taken, samples[scenario, "none"]))
        rows.append(row)
    return rows


def table(about, rows):
    print(f"nginx {about['nginx']}, {about['workers']} workers, {about['connections']} connections of "
          f"wrk on the same {about['cores']} cores")
    print(f"{about['cpu']}, {about['kernel']}; medians of {about['rounds']} rounds of "
          f"{about['seconds']:g} s\n")
    print(f"{'':14}{'limit':22}{'requests/s':>12}{'CPU us/request':>16}{'min .. max':>16}"
          f"{'over none':>11}")
    before = None
    for row in rows:
        scenario = row["scenario"] if row["scenario"] != before else ""
        before = row["scenario"]
        spread = f"{row['cpu_us_per_request_min']:.2f} .. {row['cpu_us_per_request_max']:.2f}"
        print(f"{scenario:14}{row['limit']:22}{row['requests_per_second']:>12,.0f}"
              f"{row['cpu_us_per_request']:>16.2f}{spread:>16}{row['cpu_us_more_than_none']:>+11.2f}")
    print(f"\n{KEYS:,} keys: the key is an argument, for which the query is searched if there is a limit."
          "\nrefused, none: nginx answers 429 by `return`, before it looks at limits.")


def main():
    parser = Parser("nginx", __doc__.split("\n\n")[0])
    parser.add_argument("module", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=count(1, 1000, "from 1 to 1000"), default=2, metavar="S",
                        help="of each measurement (2)")
    parser.add_argument("--rounds", type=count(1, 1000, "from 1 to 1000"), default=5, metavar="N",
                        help="in which each is measured once; medians are shown (5)")
    parser.add_argument("--workers", type=count(1, 1000, "from 1 to 1000"), metavar="N",
                        default=len(os.sched_getaffinity(0)),
                        help="of nginx, and threads of wrk (the cores)")
    parser.add_output(plot=False, compare=False)
    options = parser.read(sys.argv[1:])

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that servers are stopped
    samples = {(scenario, limit): [] for scenario, (path, _) in SCENARIOS.items()
               for limit, directives in LIMITS.items() if directives[path[1:]] is not None}
    servers = {}
    with tempfile.TemporaryDirectory(prefix="stint-bench-nginx-") as directory:
        script = Path(directory) / "many.lua"
        script.write_text(WRK % KEYS)
        try:
            for i, (limit, directives) in enumerate(LIMITS.items()):
                servers[limit] = Server(Path(directory) / str(i), os.path.abspath(options.module),
                                        directives, options.workers)
            for server in servers.values():  # warms up
                load(server, "/many", 1, options.workers, script)
            for _ in range(options.rounds):
                for scenario, (path, let_through) in SCENARIOS.items():
                    for limit, server in servers.items():
                        if (scenario, limit) not in samples:
                            continue
                        samples[scenario, limit].append(
                            measure(server, path, let_through, options, script))
        finally:
            for server in servers.values():
                server.stop()
    version = subprocess.run([NGINX, "-v"], capture_output=True, text=True).stderr
    about = {**machine(), "nginx": version.split("/")[-1].strip(), "workers": options.workers,
             "connections": CONNECTIONS, "seconds": options.seconds, "rounds": options.rounds}
    rows = rows_of(samples)
    if options.format == "json":
        print(json.dumps({"machine": about, "rows": rows}, indent=2))
    else:
        table(about, rows)


if __name__ == "__main__":
    main()
