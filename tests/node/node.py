#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The npm package: packed, installed in a clean folder from its tarball and npm's registry, and tested there with
node's own test runner; and the programs of its README.

    node.py SOURCE CC [TEST...]

Costs, which no suite has, measures a call beside those of what users of Node have.
"""
import collections
import concurrent.futures
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent / "kit"), str(TESTS.parent / "nginx")]
import commands  # noqa: E402
import server  # noqa: E402
from servers import NGINX, free_port, until  # noqa: E402

SOURCE, CC = Path("."), "cc"
TOOL = os.environ.get("STINT")  # the command `stint`
MODULE = os.environ.get("STINT_MODULE")  # of nginx

# What the tests and the README's programs use, beside the package.
OTHERS = "express@5", "express-rate-limit@8", "rate-limiter-flexible@11", "typescript@5", "@types/node@20"


class Installed(unittest.TestCase):
    """The package, packed and installed once, with what it is used with."""

    @classmethod
    def setUpClass(cls):
        for program in "node", "npm":
            if shutil.which(program) is None:
                raise unittest.SkipTest(f"there is no {program}")
        temporary = tempfile.TemporaryDirectory(prefix="stint-node-")
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = Path(temporary.name)
        cls.environment = {**os.environ, "CC": CC, "NO_UPDATE_NOTIFIER": "1", "npm_config_audit": "false",
                           "npm_config_fund": "false", "npm_config_foreground_scripts": "true"}
        for name in "NODE_PATH", "NODE_OPTIONS", "CFLAGS":
            cls.environment.pop(name, None)
        cls.package = cls.pack()
        cls.folder = cls.directory / "installed"
        cls.folder.mkdir()
        (cls.folder / "package.json").write_text('{"private": true}\n')
        cls.npm("install", cls.package, *OTHERS)

    @classmethod
    def npm(cls, *arguments, folder=None, **more):
        return commands.must("npm", *arguments, cwd=folder or cls.folder, timeout=240, env={**cls.environment, **more})

    @classmethod
    def pack(cls):
        """Makes the tarball of a copy of the tree, as `npm pack` in src/node does."""
        tree = cls.directory / "tree"
        for name in "src", "include":
            shutil.copytree(SOURCE / name, tree / name, ignore=shutil.ignore_patterns("node_modules", "build", "target"))
        shutil.copy(SOURCE / "LICENSE", tree)
        before = sorted(tree.rglob("*"))
        cls.npm("pack", "--pack-destination", cls.directory, folder=tree / "src" / "node")
        assert sorted(tree.rglob("*")) == before, "npm pack has left something in the tree"
        [package] = cls.directory.glob("*.tgz")
        return package

    def node(self, *arguments, folder=None, **more):
        return commands.run("node", *arguments, cwd=folder or self.folder, timeout=200,
                            env={**self.environment, **more})


class Costs(Installed):
    def test_costs(self):
        shutil.copy(TESTS / "costs.cjs", self.folder)
        done = self.node("costs.cjs")
        self.assertEqual(done.returncode, 0, done.stderr)
        print(done.stdout)


class Package(Installed):
    def test_runner(self):
        """Its own tests, all of which run."""
        for file in TESTS.glob("*.cjs"):
            shutil.copy(file, self.folder)
        files = sorted(path.name for path in TESTS.glob("*.test.cjs"))
        done = self.node("--test", "--test-reporter=tap", *files)
        failed = re.findall(r"^not ok .*?^  \.\.\.$", done.stdout, re.MULTILINE | re.DOTALL)
        self.assertEqual(done.returncode, 0, "\n".join(failed) + done.stderr)
        count = {name: int(number) for name, number in re.findall(r"^# (\w+) (\d+)", done.stdout, re.MULTILINE)}
        self.assertEqual([count[name] for name in ("fail", "skipped", "cancelled", "todo")], [0] * 4)
        self.assertGreater(count["pass"], len(files))

    def programs(self):
        """Each program of the README and the text under it. Its table is this test's own, and no window ends."""
        found = re.findall(r"^```(\w*)\n(.*?)^```$", (SOURCE / "src" / "node" / "README.md").read_text(),
                           re.MULTILINE | re.DOTALL)
        programs = [(text, after if kind == "text" else None)
                    for (language, text), (kind, after) in zip(found, found[1:] + [("", "")]) if language == "js"]
        for number, (text, printed) in enumerate(programs):
            table = self.directory / f"readme{number}"
            table.mkdir()
            text = text.replace("/dev/shm/", f"{table}/").replace("/minute", "/52w").replace("/day", "/52w")
            file = self.folder / f"readme{number}.cjs"
            file.write_text(text)
            yield file, text, printed

    def test_readme(self):
        """Its programs: what they print, or that of 120 requests over several workers exactly 100 pass."""
        servers = 0
        for file, text, printed in self.programs():
            with self.subTest(program=text):
                if printed is not None:
                    done = self.node(file)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(re.sub(r"\d+ s\b", "N s", done.stdout), re.sub(r"\d+ s\b", "N s", printed))
                    continue
                servers += 1
                port = free_port()
                file.write_text(text.replace("3000", str(port)))
                self.serve(file, port)
        self.assertEqual(servers, 3)

    def serve(self, file, port):
        with subprocess.Popen(["node", file], cwd=self.folder, env=self.environment, start_new_session=True,
                              stderr=subprocess.PIPE, text=True) as server:
            try:
                until(lambda: self.ask(port)[0] == 200, "the first answer")
                answers = [self.ask(port) for _ in range(119)]
            finally:
                os.killpg(server.pid, signal.SIGTERM)
            self.assertEqual(server.stderr.read(), "")
        self.assertEqual([status for status, _ in answers], [200] * 99 + [429] * 20)
        self.assertIn("ratelimit-limit" if "rateLimit(" in file.read_text() else "ratelimit",
                      " ".join(answers[-1][1]).lower())

    def ask(self, port, path="/"):
        """Status and fields; 0: nobody answers."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            response.read()
            return response.status, dict(response.getheaders())
        except OSError:
            return 0, {}
        finally:
            connection.close()

    CLUSTER = """cluster.setupPrimary({ exec: 'worker.cjs', execArgv: [] });
        cluster.on('listening', () => console.log('listens'));
        for (let i = 0; i < 3; i++) cluster.fork();"""

    def test_nginx_beside_a_cluster(self):
        """Half of the requests are decided by nginx's module, the others by a cluster's workers: one count of each
        address, also when nginx has raised the limit."""
        if not NGINX or not MODULE:
            self.skipTest("the module is not built, or there is no nginx")
        shutil.copy(TESTS / "worker.cjs", self.folder)
        limit, port = 300, free_port()
        table = self.directory / "both.table"
        with server.Server(MODULE, f"""
    stint_zone shared entries=10000 file={table};
    stint_policy shared {limit}/366d name=api;
""", "location / { stint_limit shared api $remote_addr prefix=32,64; try_files /file =404; }") as nginx, \
                subprocess.Popen(["node", "-e", self.CLUSTER], cwd=self.folder, start_new_session=True,
                                 env={**self.environment, "TABLE": str(table), "PORT": str(port)},
                                 stdout=subprocess.PIPE, text=True) as cluster:
            try:
                self.assertEqual([cluster.stdout.readline() for _ in range(3)], ["listens\n"] * 3)
                self.check_doors({"nginx": nginx.port, "node": port}, limit, limit)
                nginx.edit((f"{limit}/366d", f"{limit + 100}/366d")).reload()
                self.check_doors({"nginx": nginx.port, "node": port}, limit, 100)
            finally:
                os.killpg(cluster.pid, signal.SIGTERM)

    def check_doors(self, ports, requests, passing):
        """So many requests at each door, of which so many pass, some at each. All workers of the cluster answer."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda name: (name, *self.ask(ports[name], "/address")), list(ports) * requests))
        count = collections.Counter((name, status) for name, status, _ in answers)
        self.assertEqual({status for _, status in count}, {200, 429})
        self.assertEqual(sum(count[name, 200] for name in ports), passing, count)
        self.assertGreater(min(count[name, 200] for name in ports), 0)
        self.assertEqual(len({fields["x-worker"] for name, _, fields in answers if name == "node"}), 3)

    def test_types(self):
        """A program in TypeScript compiles, as a module of either kind, and its mistakes do not."""
        source = (TESTS / "types.ts").read_text()
        for name in "types.cts", "types.mts":
            (self.folder / name).write_text(source)
            done = commands.run(self.folder / "node_modules" / ".bin" / "tsc", "--strict", "--noEmit", "--target", "es2022",
                                "--module", "node16", "--types", "node", name, cwd=self.folder)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_tarball(self):
        """It has the library's C files and no others, and version and description are the library's."""
        with tarfile.open(self.package) as tar:
            names = {name.removeprefix("package/") for name in tar.getnames()}
        wanted = {str(path.relative_to(SOURCE)) for path in commands.library(SOURCE)} | {"include/stint.h", "LICENSE"}
        self.assertEqual({name.removeprefix("library/") for name in names if name.startswith("library/")}, wanted)
        self.assertEqual({name for name in names if "/" not in name},
                         {"README.md", "addon.c", "addon.h", "addon.map", "addon_key.c", "express.cjs", "index.cjs",
                          "index.d.cts", "index.d.mts", "index.mjs", "install.cjs", "package.json", "testing.cjs",
                          "testing.d.cts"})
        about = json.loads((SOURCE / "src" / "node" / "package.json").read_text())
        version = re.search(r"version: '([\d.]+)'", (SOURCE / "meson.build").read_text())[1]
        description = re.search(r"^ \* stint: a (.*)\.$", (SOURCE / "include" / "stint.h").read_text(), re.MULTILINE)[1]
        self.assertEqual([about["version"], about["description"]], [version, f"The C library stint, a {description}"])
        self.assertEqual(list(about["dependencies"]), ["node-api-headers"])
        self.assertIn(f"./stint/src/node/{self.package.name}", (SOURCE / "src" / "node" / "README.md").read_text())

    def test_keys_are_those_of_the_command(self):
        """And so those of C: each kind of key by `stint peek`, as the table of the README has it."""
        if not TOOL:
            self.skipTest("the command was not built")
        table = self.directory / "keys.table"
        program = """const table = require('stint').open(process.argv[1], { maxEntries: 1000, policies: ['99/52w name=a'] });
            const a = table.policy('a');
            a.take('abc', 1); a.take(Buffer.from([0, 255]), 2); a.take(7, 3); a.take(2n ** 64n - 1n, 4);
            a.take(table.address('192.0.2.7'), 5); a.take(['ann', 'login'], 6); a.take([7, 'login'], 7);
            a.take([table.address('2001:db8::1', 24, 48), 'login'], 8); a.take('\u00e9', 9);"""
        done = self.node("-e", program, table)
        self.assertEqual(done.returncode, 0, done.stderr)
        for options, key, used in (
                ([], ["abc"], 1), (["--hex"], ["00ff"], 2), (["--id"], ["7"], 3), (["--id"], [str(2**64 - 1)], 4),
                (["--address"], ["192.0.2.7"], 5), ([], ["ann", "login"], 6), (["--id"], ["7", "login"], 7),
                (["--address=24,48"], ["2001:db8:0:9::", "login"], 8), ([], ["\u00e9"], 9), ([], ["7"], 0)):
            said = commands.must(TOOL, "peek", *options, table, "a", *key)
            self.assertIn(f"allowed: {used} of 99 used", said, key)

    def test_labels(self):
        """Operators read who was refused first in a window, once there is room for names."""
        if not TOOL:
            self.skipTest("the command was not built")
        table = self.directory / "labels.table"
        done = self.node("-e", """const table = require('stint').open(process.argv[1],
                { maxEntries: 100, labels: 50, policies: ['1/52w name=a'] });
            const a = table.policy('a');
            for (const key of ['ann', Buffer.from('bob'), 7, 8n, ['eve', 9, Buffer.from('x')], table.address('2001:db8::1'),
                table.key(table.key('dan'), 'y')]) [1, 2, 3].forEach(() => a.allow(key));
            a.take('gil', 2); table.all([a, 'fay', 2]);
            if (table.stats().labels < 50) throw Error(table.stats().labels);""", table)
        self.assertEqual(done.returncode, 0, done.stderr)
        labels = [json.loads(line)["label"] for line in commands.must(TOOL, "dump", table).splitlines()]
        self.assertEqual(sorted(labels), ["2001:db8::1", "7", "8", "ann", "bob", "dan y", "eve 9 x", "fay", "gil"])

    def test_constants_are_the_headers(self):
        """Those that index.cjs repeats, by name."""
        header = re.sub(r"/\*.*?\*/", "", (SOURCE / "include" / "stint.h").read_text(), flags=re.DOTALL)
        flags = {name: 1 << int(bit) for name, bit in re.findall(r"\b(STINT_\w+) = 1 << (\d+)", header)}
        script = (SOURCE / "src" / "node" / "index.cjs").read_text()

        def shifts(constant):
            body = re.search(rf"^const {constant} = \{{(.*?)\}};", script, re.DOTALL | re.MULTILINE)[1]
            return {re.sub("[A-Z]", lambda letter: "_" + letter[0], name).upper(): 1 << int(bit)
                    for name, bit in re.findall(r"(\w+): 1 << (\d+)", body)}

        for constant, prefix in ("REQUEST", "STINT_"), ("VERDICT", "STINT_"), ("HEADERS", "STINT_HEADERS_"):
            found = shifts(constant)
            self.assertGreater(len(found), 1)
            for name, value in found.items():
                self.assertEqual(flags[prefix + name], value, name)
        for name in "PRECISE_CLOCK", "DRY_RUN", "PRUNE":
            self.assertIn(f"const {name} = 1 << {flags[f'STINT_{name}'].bit_length() - 1};", script)
        for name, value in re.findall(r"\bSTINT_FULL_(\w+) = (\d)", header):
            self.assertRegex(script, rf"ON_FULL = .*\b{name.lower()}: {value}\b")

    def test_installing_the_folder(self):
        """As a link, or as a copy: it says to pack it first."""
        for number, option in enumerate(("--no-install-links", "--install-links")):
            folder = self.directory / f"linked{number}"
            folder.mkdir()
            done = commands.run("npm", "install", option, self.directory / "tree" / "src" / "node", cwd=folder, timeout=100,
                                env=self.environment)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("Run `npm pack` in it first", done.stdout + done.stderr)

    def test_installing_says_what_is_missing(self):
        clean = self.directory / "clean"
        shutil.copytree(self.folder / "node_modules" / "stint", clean / "node_modules" / "stint")
        shutil.copytree(self.folder / "node_modules" / "node-api-headers", clean / "node_modules" / "node-api-headers")
        package = clean / "node_modules" / "stint"
        shutil.rmtree(package / "build")
        for environment, words in (
                ({"CC": "nothing-like-cc"}, ["no C compiler 'nothing-like-cc'", "apt-get install gcc"]),
                ({"CC": f"{CC} -nostdinc"}, ["finds no ck_pr.h", "apt-get install libck-dev", "CFLAGS", "error:"]),
                ({"CFLAGS": "-fsyntax-only -DNO_KEY="}, ["addon.c:", f"The compiler '{CC}' failed"])):
            done = self.node("install.cjs", folder=package, **environment)
            self.assertEqual(done.returncode, 1, done.stderr)
            for word in ["the addon cannot be built", *words]:
                self.assertIn(word, done.stderr)
            self.assertFalse(list(package.glob("build/*")))
        elsewhere = "Object.defineProperty(process, 'platform', { value: 'win32' })"
        preload = clean / "elsewhere.cjs"
        preload.write_text(elsewhere)
        done = self.node("--require", preload, "install.cjs", folder=package)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("win32, and stint runs on Linux", done.stdout)
        done = self.node("-e", "require('stint').open('/dev/shm/x')", folder=clean)
        self.assertIn("npm rebuild stint", done.stderr)


if __name__ == "__main__":
    SOURCE, CC = Path(sys.argv[1]).resolve(), sys.argv[2].split()[-1]
    result = unittest.main(argv=sys.argv[:1] + sys.argv[3:], exit=False).result
    sys.exit(77 if result.testsRun == 0 and result.skipped else not result.wasSuccessful())
