#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stint.lua: its declarations beside stint.h, its methods, and the programs of its README in Debian's
nginx and dnsdist.

    lua.py SOURCE BUILD CC [TEST...]

Cost, which no suite has, measures dnsdist's CPU time per query by either rule.
"""
import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import shlex
import socket
import statistics
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True  # of what it imports
sys.path[:0] = [f"{TESTS}/nginx", f"{TESTS}/kit"]
import commands  # noqa: E402
from commands import must, run  # noqa: E402
from server import CONFIGURATION, Server  # noqa: E402
from servers import PATIENCE, free_port, replaced, until, wrk  # noqa: E402

SOURCE, BUILD, CC = Path("."), Path("build"), "cc"

# A window that does not end while a test runs.
PER_LONG = "/52w"


def module(name):
    return Path("/usr/lib/nginx/modules") / name


def blocks(language):
    """The blocks of that language in the README."""
    text = (SOURCE / "src" / "lua" / "README.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


class Case(commands.Case):
    PARENT = "/dev/shm"


class Declarations(Case):
    """A compiler reads those of stint.lua beside stint.h."""

    LUA = """
local stint, ffi = require "stint", require "ffi"
local layout = assert(loadstring(arg[1]))()
for name, fields in pairs(layout) do
    print(name, "", ffi.sizeof("struct " .. name), 0)
    for _, field in ipairs(fields) do
        print(name, field, 0, ffi.offsetof("struct " .. name, field))
    end
end
for name, value in pairs(stint) do
    if name == name:upper() then
        print("constant", name, tonumber(value), 0)
    end
end
"""

    def test_fit_the_header(self):
        self.need("luajit")
        script = (SOURCE / "src" / "lua" / "stint.lua").read_text()
        text = re.search(r"DECLARATIONS = \[\[\n(.*?)\]\]", script, re.DOTALL)[1]
        structs = dict(re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL))
        functions = re.findall(r"^(?!struct|typedef)\w[^;]*\([^;]*;", text, re.MULTILINE)
        fields = {name: re.findall(r"(\w+)\)?(?:\[\d+\])?(?:\(void\))?;", body)
                  for name, body in structs.items()}
        self.assertGreater(len(structs), 6)
        self.assertGreater(len(functions), 25)
        self.assertIn("clock", fields["stint_options"])

        # A prototype that differs from the header's does not compile; nor does a field.
        lines = ["#include <stddef.h>", "#include <stint.h>", *functions,
                 '_Static_assert(sizeof(stint_key) == sizeof(uint64_t), "stint_key");']
        for name, body in structs.items():
            lines += [f"struct lua_{name} {{", body, "};",
                      f"_Static_assert(sizeof(struct {name}) == sizeof(struct lua_{name}), \"{name}\");"]
            for field in fields[name]:
                lines += [f'_Static_assert(offsetof(struct {name}, {field}) == '
                          f'offsetof(struct lua_{name}, {field}) && __builtin_types_compatible_p('
                          f'__typeof__(((struct {name} *)0)->{field}), '
                          f'__typeof__(((struct lua_{name} *)0)->{field})), "{name}.{field}");']

        # LuaJIT lays them out as the compiler does, and has the same constants.
        layout = "return {%s}" % ", ".join(
            f"{name} = {{{', '.join(repr(field) for field in names)}}}"
            for name, names in fields.items())
        (self.directory / "layout.lua").write_text(self.LUA)
        constants = 0
        for line in must("luajit", self.directory / "layout.lua", layout).splitlines():
            name, field, size, offset = line.split("\t")
            if name == "constant":
                constants += 1
                field = "KEY_GLOBAL_HASH" if field == "GLOBAL" else field
                lines.append(f'_Static_assert(STINT_{field} == {size}, "{field}");')
            elif field:
                lines.append(f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{field}");')
            else:
                lines.append(f'_Static_assert(sizeof(struct {name}) == {size}, "{name}");')
        self.assertGreater(constants, 10)
        (self.directory / "declarations.c").write_text("\n".join(lines) + "\n")
        must(*shlex.split(CC), "-std=gnu11", "-Wall", "-Werror", "-Wno-redundant-decls",
                  "-I", SOURCE / "include", "-fsyntax-only", self.directory / "declarations.c")

    def test_name_the_library(self):
        [soname] = re.findall(r'ffi\.load "(.*)"', (SOURCE / "src" / "lua" / "stint.lua").read_text())
        self.assertTrue((BUILD / "src" / soname).exists(), soname)


class Methods(Case):
    def test_each(self):
        self.need("luajit")
        # In one run of some LuaJIT finds no room for machine code near its own, and compiles nothing.
        for turn in range(4):
            done = run("luajit", SOURCE / "tests" / "lang" / "lua" / "methods.lua", self.directory / f"table{turn}")
            if "has allocated" not in done.stderr:
                break
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_readme(self):
        """The first program of the README prints what stands under it."""
        self.need("luajit")
        (self.directory / "first.lua").write_text(blocks("lua")[0])
        printed = must("luajit", self.directory / "first.lua")
        self.assertEqual(re.sub(r"\d+ s", "N s", printed), re.sub(r"\d+ s", "N s", blocks("text")[0]))


class LuaServer(Server):
    """nginx with its Lua instead of the stint module."""

    CONFIGURATION = replaced(
        re.sub(r"    log_format.*?always;\n", "    access_log off;\n", CONFIGURATION, flags=re.DOTALL),
        ("load_module {module};", "load_module {ndk};\nload_module {lua};"),
        ("{places}", '{places}\n    lua_package_path "{package};;";'))


class Nginx(Case):
    """Several workers, one table."""

    LIMIT = 700

    def setUp(self):
        super().setUp()
        if not module("ngx_http_lua_module.so").exists():
            self.skipTest("there is no libnginx-mod-http-lua")
        self.need("nginx", "wrk")

    def serve(self, client, network, **more):
        """The README's configuration with these limits, and a location that tells its worker."""
        whole = replaced(blocks("nginx")[0], ("100/minute", client), ("1000/minute", network),
                         ("/run/api.table", str(self.directory / "table")))
        http, server = re.fullmatch(r"http \{\n(.*?)    server \{\n(.*)    \}\n\}\n", whole, re.DOTALL).groups()
        worker = ('header_filter_by_lua_block { ngx.header["X-Worker"] = ngx.worker.pid() }\n')
        return LuaServer(None, http, worker + server, ndk=module("ndk_http_module.so"),
                         lua=module("ngx_http_lua_module.so"), 
                         package=SOURCE / "src" / "lua" / "?.lua", **more)

    def test_exact_counts(self):
        """wrk's requests get through as often as the limit says, whichever worker has them."""
        with self.serve(f"{self.LIMIT}{PER_LONG}", f"100K{PER_LONG}", workers=4) as server:
            requests, refused = wrk(server.url())()
            self.assertEqual(requests - refused, self.LIMIT)
            workers = {server.get()["X-Worker"] for _ in range(50)}
            self.assertGreater(len(workers), 1)
            self.assertEqual(server.logged(r"\[(?:error|alert|emerg)\].*"), [])

    def test_fields_and_networks(self):
        with self.serve(f"2{PER_LONG}", f"3{PER_LONG}") as server:
            first = server.get()
            self.assertEqual((first.status, first["RateLimit-Policy"]),
                             (200, '"client";q=2;w=31449600, "network";q=3;w=31449600'))
            self.assertRegex(first["RateLimit"], r'^"client";r=1;t=\d+, "network";r=2;t=\d+$')
            self.assertEqual(server.statuses(2), [200, 429])
            self.assertGreater(int(server.get()["Retry-After"]), 0)
            self.assertEqual(server.statuses(2, source="127.0.0.2"), [200, 429])
            self.assertEqual(server.statuses(1, source="127.0.1.1"), [200])

    def test_a_request_counts_once(self):
        """Whatever internal redirects it meets; and a rewrite is none."""
        with self.serve(f"9{PER_LONG}", f"1K{PER_LONG}") as server:
            text = server.configuration.read_text()
            [access] = re.findall(r"^            access_by_lua_block \{\n.*?^            \}\n", text,
                                  re.MULTILINE | re.DOTALL)
            server.edit(("        location / {", f"""
        location /old/ {{ rewrite ^/old/(.*) /new/$1 last; }}
        location /new/ {{ {access} error_page 404 =200 /index.html; }}
        location /try/ {{ try_files /none @named; }}
        location @named {{ {access} rewrite ^ /index.html last; }}
        location / {{"""))
            (server.www / "index.html").write_text("index")
            server.reload()
            for left, path in enumerate(["/", "/index.html", "/old/x", "/new/x", "/try/x", "/"], 1):
                answer = server.get(path)
                self.assertEqual(answer.status, 200, path)
                self.assertRegex(answer["RateLimit"], rf'^"client";r={9 - left};t=', path)
            self.assertEqual(server.statuses(4), [200] * 3 + [429])
            self.assertEqual(server.logged(r"\[(?:warn|error|alert|emerg)\].*uninit.*"), [])


DNS_A, REFUSED = 1, 5
IP_PKTINFO = 8  # Linux; Python has no name for it


class Dnsdist:
    """with Dnsdist(directory, rules) as server: ...; dnsdist that answers all queries itself, after
    these rules, in four threads."""

    THREADS = 4

    def __init__(self, directory, rules):
        self.rules = rules
        self.log_path = directory / "dnsdist.log"
        self.configuration = directory / "dnsdist.conf"

    def start(self):
        self.port, self.web = free_port(), free_port()
        listen = f'addLocal("127.0.0.1:{self.port}", {{reusePort = true}})\n' * self.THREADS
        self.configuration.write_text(
            'setACL({"127.0.0.0/8"})\nsetSecurityPollSuffix("")\n'
            f'webserver("127.0.0.1:{self.web}")\nsetWebserverConfig({{apiKey = "key"}})\n{listen}'
            f'{self.rules}\naddAction(AllRule(), SpoofAction("192.0.2.1"))\n')
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                ["dnsdist", "--supervised", "--disable-syslog", "--config", self.configuration],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        until(lambda: self.process.poll() is not None or self.answers(), "dnsdist to answer")

    def __enter__(self):
        try:
            for _ in range(5):  # somebody may be faster to have one of its ports
                self.start()
                if self.process.poll() is None:
                    return self
                if "in use" not in self.log_path.read_text():
                    break
            raise AssertionError("dnsdist ended:\n" + self.log_path.read_text())
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def answers(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.frontends() == [0] * self.THREADS

    def frontends(self):
        """The queries that each UDP thread has had."""
        connection = http.client.HTTPConnection("127.0.0.1", self.web, timeout=PATIENCE)
        try:
            connection.request("GET", "/api/v1/servers/localhost", headers={"X-API-Key": "key"})
            frontends = json.loads(connection.getresponse().read())["frontends"]
            return [one["queries"] for one in frontends if one["udp"]]
        finally:
            connection.close()

    def perf(self, queries, clients, *options, source="127.0.0.1"):
        """Runs dnsperf. Returns how many answers had each code."""
        names = self.configuration.with_name("queries")
        if not names.exists():
            names.write_text("".join(f"www{n}.example.org A\n" for n in range(1000)))
        done = subprocess.run(
            ["dnsperf", "-s", "127.0.0.1", "-p", str(self.port), "-a", source, "-d", names,
             "-c", str(clients), *options, "-n", str(queries // 1000)],
            capture_output=True, text=True, timeout=120, check=True)
        codes = re.search(r"Response codes: +(.*)", done.stdout)[1]
        counts = {name: int(count) for name, count in re.findall(r"(\w+) (\d+) \(", codes)}
        assert sum(counts.values()) == queries, done.stdout
        return counts

    def ask(self, count, source="127.0.0.1", wait=0.5):
        """Sends queries at once. Returns each answer's code and the time that it took, as far as they
        came in `wait` seconds."""
        answers = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind((source, 0))
            client.connect(("127.0.0.1", self.port))
            start = time.monotonic()
            for number in range(count):
                client.send(struct.pack("!6H", number, 0x100, 1, 0, 0, 0)
                            + b"\3www\7example\0" + struct.pack("!2H", DNS_A, 1))
            while len(answers) < count and (left := start + wait - time.monotonic()) > 0:
                client.settimeout(left)
                with contextlib.suppress(TimeoutError):
                    code = client.recv(512)[3] & 15
                    answers.append((code, time.monotonic() - start))
        return answers

    def ask_as_many(self, clients, queries):
        """Sends queries in the name of so many clients by turns, each of a /24 of its own, with 64 under
        way. Returns how many answers had each code."""
        codes = collections.Counter()
        query = [b"\0\0\1\0\0\1\0\0\0\0\0\0\3www\7example\0\0\1\0\1"]
        sources = [[(socket.IPPROTO_IP, IP_PKTINFO, struct.pack(
            "@I4s4s", 0, bytes([127, 1 + n // 256, n % 256, 1]), bytes(4)))] for n in range(clients)]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as load:
            load.settimeout(PATIENCE)
            for first in range(0, queries, 64):
                some = range(first, min(first + 64, queries))
                for number in some:
                    load.sendmsg(query, sources[number % clients], 0, ("127.0.0.1", self.port))
                codes.update(load.recv(512)[3] & 15 for _ in some)
        return codes

    def cpu(self):
        """Seconds that its threads have run, and those of them outside the kernel."""
        process = Path(f"/proc/{self.process.pid}")
        total = sum(int((task / "schedstat").read_text().split()[0])
                    for task in (process / "task").iterdir())
        ticks = int((process / "stat").read_text().rpartition(")")[2].split()[11])
        return total / 1e9, ticks / os.sysconf("SC_CLK_TCK")


class Dns(Case):
    """dnsdist's threads, each with a Lua state of its own, one table."""

    def setUp(self):
        super().setUp()
        self.need("dnsdist", "dnsperf")

    def refusing(self, limit):
        return Dnsdist(self.directory, replaced(blocks("lua")[1], ("100/s", limit)))

    def test_exact_answers_per_client(self):
        with self.refusing(f"70{PER_LONG}") as server:
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                codes = list(pool.map(lambda source: server.perf(4000, 16, "-q", "64", source=source),
                                      ["127.0.0.1", "127.0.1.1", "127.0.2.1"]))
            self.assertEqual(codes, [{"NOERROR": 70, "REFUSED": 3930}] * 3)
            # Another address of the same prefix.
            self.assertEqual(server.perf(1000, 16, source="127.0.2.9"), {"REFUSED": 1000})
            busy = [count for count in server.frontends() if count > 0]
            self.assertGreater(len(busy), 1, "one thread did it all")

    def test_exact_answers_of_many_clients(self):
        with self.refusing(f"2{PER_LONG}") as server:
            self.assertEqual(server.ask_as_many(1500, 4500), {0: 3000, REFUSED: 1500})

    def test_counts_survive_a_restart(self):
        """A table in a file, which two processes have one after the other, and then at once."""
        rules = replaced(blocks("lua")[1], ("100/s", f"3{PER_LONG}"),
                         ("open{", f'open{{path = "{self.directory}/table", '))
        with Dnsdist(self.directory, rules) as server:
            self.assertEqual([code for code, _ in server.ask(2)], [0, 0])
        with Dnsdist(self.directory, rules) as server, Dnsdist(self.directory, rules) as other:
            self.assertEqual([code for code, _ in other.ask(1)], [0])
            self.assertEqual([code for code, _ in server.ask(1)], [REFUSED])

    def test_delays(self):
        """Five at once, five more when their window begins, and no others."""
        rules = replaced(blocks("lua")[2], ("20/s reserve=20", "5/2s reserve=5"))
        with Dnsdist(self.directory, rules) as server:
            window = 2
            for _ in range(10):
                time.sleep(window - time.time() % window + 0.02)
                start = time.time()
                answers = server.ask(20, wait=2 * window)
                if len(answers) >= 15 and answers[14][1] < window / 2:
                    break
            self.assertEqual(collections.Counter(code for code, _ in answers), {0: 10, REFUSED: 10})
            soon = [took for code, took in answers if code == 0 and start % window + took < window]
            late = [took for code, took in answers if code == 0 and start % window + took >= window]
            self.assertEqual((len(soon), len(late)), (5, 5))
            self.assertLess(max(soon), window / 2)

    def test_unknown_policy_refuses(self):
        rules = replaced(blocks("lua")[1], ('allows("queries"', 'allows("none"'))
        with Dnsdist(self.directory, rules) as server:
            self.assertEqual({code for code, _ in server.ask(3)}, {REFUSED})


class Cost(Case):
    """dnsdist's CPU time per query, by hand: lua.py SOURCE BUILD CC Cost"""

    RULES = {
        "no rule": "",
        "a rule of Lua that does nothing": 'addAction(LuaFFIPerThreadRule("return function() return '
                                           'false end"), RCodeAction(DNSRCode.REFUSED))',
        "MaxQPSIPRule": 'addAction(MaxQPSIPRule(1000000, 24, 56), RCodeAction(DNSRCode.REFUSED))',
    }
    CLIENTS = 65000
    QUERIES = 130000

    def test_cost(self):
        rules = dict(self.RULES, stint=replaced(blocks("lua")[1], ("100/s", "100M/s")))
        found = collections.defaultdict(list)
        for _ in range(int(os.environ.get("TURNS", "5"))):
            for name, text in rules.items():
                with Dnsdist(self.directory, text) as server:
                    server.perf(20000, 16)
                    begin = server.cpu()
                    server.perf(self.QUERIES, 16)
                    between = server.cpu()
                    server.ask_as_many(self.CLIENTS, self.CLIENTS)
                    before = server.cpu()
                    server.ask_as_many(self.CLIENTS, self.QUERIES)
                    end = server.cpu()
                    for which in 0, 1:
                        found[name, which, "one client"].append(between[which] - begin[which])
                        found[name, which, "many"].append(end[which] - before[which])
        for (name, which, clients), times in found.items():
            times = [time / self.QUERIES * 1e6 for time in times]
            print(f"{name:32} {clients:10} {('in all', 'outside the kernel')[which]:18} "
                  f"{statistics.median(times):6.2f} us ({min(times):.2f} to {max(times):.2f})")


if __name__ == "__main__":
    SOURCE, BUILD, CC = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]
    os.environ["LD_LIBRARY_PATH"] = str(BUILD / "src")
    os.environ["LUA_PATH"] = f"{SOURCE}/src/lua/?.lua;;"
    done = unittest.main(argv=sys.argv[:1] + sys.argv[4:], exit=False).result
    nothing = done.testsRun > 0 and len(done.skipped) == done.testsRun
    sys.exit(77 if nothing else not done.wasSuccessful())
