# SPDX-License-Identifier: MIT
"""The package by itself: what its calls return, what they refuse, and what they leave behind."""
import ast
import asyncio
import concurrent.futures
import contextlib
import gc
import inspect
import json
import math
import os
import pickle
import re
import shutil
import sys
import tracemalloc
import unittest
import warnings
from pathlib import Path

import commands
import stint
import stint.testing
import stint.web

SOURCE = Path(os.environ["STINT_SOURCE"])


def python(program, *arguments):
    """What a process of its own prints. A warning is an error in none of them."""
    return commands.must(sys.executable, "-W", "default", "-c", program, *arguments)


class Case(commands.Case):
    def open(self, *policies, max_entries=1000, **options):
        table = stint.open(None, max_entries, policies or None, **options)
        self.addCleanup(table.close)
        return table

    def refused(self, kind, words, call, *arguments, **options):
        """The exception says what is wrong, and what to write, in words of Python."""
        with self.assertRaises(kind) as raised:
            call(*arguments, **options)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, str(raised.exception))
        self.assertNotRegex(str(raised.exception), r"options\.|stint_|STINT_")
        return raised.exception


class Calls(Case):
    def test_take(self):
        api = self.open("3/366d name=api")["api"]
        verdict = api.take("ann", 2)
        self.assertTrue(verdict)
        self.assertEqual((verdict.allowed, verdict.used, verdict.remaining, verdict.capacity, verdict.granted,
                          verdict.retry_after, verdict.policy.name), (True, 2, 1, 3, 2, 0.0, "api"))
        self.assertLess(verdict.reset_after, 366 * 86400)
        self.assertGreater(verdict.resets_at, 1.7e9)
        refused = api.take("ann", 2)
        self.assertFalse(refused)
        self.assertEqual((refused.granted, refused.first_refusal), (0, True))
        self.assertAlmostEqual(refused.retry_after, refused.reset_after)
        self.assertFalse(api.take("ann", 2).first_refusal)
        self.assertEqual(api.take("ann", 4).retry_after, math.inf)
        self.assertEqual([api.allow("ann"), api.allow("ann"), api.allow("bob", cost=3)], [True, False, True])

    def test_all_calls(self):
        api = self.open("5/366d name=api")["api"]
        self.assertEqual((api.peek("ann").used, api.charge("ann", 7).used), (0, 7))
        self.assertFalse(api.peek("ann"))
        self.assertEqual([api.reset("ann"), api.reset("ann")], [True, False])
        self.assertEqual(api.take("ann", 9, partial=True).granted, 5)
        self.assertFalse(api.take("ann", limit=5))
        self.assertTrue(api.take("ann", limit=6))
        api.reset("ann")
        self.assertFalse(api.take("ann", 6, drain=True))
        self.assertEqual((api.peek("ann").used, api.stats()["charged"]), (5, 7))
        # A request has a burst of its own: one bucket for pages, and for logins.
        bucket = self.open("10/366d burst=10 name=bucket")["bucket"]
        self.assertEqual([bucket.take("ann", 9, partial=True, burst=burst).granted for burst in (6, 6, 8, 99)], [6, 0, 2, 2])
        self.assertFalse(bucket.peek("bob", 7, burst=6))
        self.assertEqual([bucket.allow("bob", 7, burst=burst) for burst in (6, None)], [False, True])

    def test_refund(self):
        """Once, by the policy that granted."""
        table = self.open("5/366d name=api", "5/366d name=other")
        api = table["api"]
        verdict = api.take("ann", 3)
        self.assertEqual([api.refund(verdict, 1), api.refund(verdict), api.refund(verdict), api.peek("ann").used], [1, 2, 0, 0])
        self.refused(ValueError, "is of the policy 'api'", table["other"].refund, api.take("ann"))
        self.refused(ValueError, "another table", self.open("5/366d name=api")["api"].refund, api.take("ann"))
        self.refused(TypeError, "what take or charge returned", api.refund, True)

    def test_all(self):
        """All or none; what is in flight comes back, what is counted stays."""
        table = self.open("3/366d name=api", "2/60s in-flight name=busy")
        api, busy = table["api"], table["busy"]
        with table.all((api, "ann"), (busy, "ann")) as group:
            self.assertTrue(group)
            self.assertTrue(group.in_flight)
            self.assertEqual(busy.peek("ann").used, 1)
            with table.all((api, "ann", 2), (busy, "ann")) as inner, table.all((busy, "ann"), (api, "ann")) as refused:
                self.assertEqual((bool(inner), bool(refused)), (True, False))
                self.assertEqual([bool(verdict) for verdict in refused.verdicts], [False, False])
                self.assertGreater(refused.retry_after, 0)
                self.assertEqual(busy.peek("ann").used, 2)
        self.assertEqual((busy.peek("ann").used, api.peek("ann").used, group.in_flight), (0, 3, False))
        with self.assertRaises(ZeroDivisionError), table.all((busy, "ann")):
            1 / 0
        self.assertEqual(busy.peek("ann").used, 0)
        group = table.all((api, "bob", 3), (busy, "bob"))
        self.assertEqual((group.refund(), group.refund(), group.done(), api.peek("bob").used), (4, 0, 0, 0))
        for kind, words, *parts in (
                (TypeError, "table.all((api, user), (busy, user))", api), (ValueError, "1 to 64"),
                (ValueError, "1 to 64", *[(api, n) for n in range(65)]),
                (ValueError, "of another table", (self.open("1/s name=x")["x"], "ann")),
                (ValueError, "add their costs", (api, "zoe"), (busy, "zoe"), (api, "zoe", 2))):
            self.refused(kind, words, table.all, *parts)
        self.assertEqual(api.peek("zoe").used, 0)

    def test_what_is_told(self):
        api = self.open("3/366d name=api")["api"]
        fields = dict(api.take("ann").headers())
        self.assertEqual(fields["RateLimit-Policy"], '"api";q=3;w=31622400')
        self.assertRegex(fields["RateLimit"], r'^"api";r=2;t=\d+$')
        self.assertNotIn("Retry-After", fields)
        fields = dict(api.take("ann", 3).headers(style="legacy"))
        self.assertEqual(fields["X-RateLimit-Remaining"], "2")
        self.assertRegex(fields["Retry-After"], r"^\d+$")
        group = api.table.all((api, "ann"))
        self.assertEqual([name for name, _ in group.headers("both")], ["RateLimit-Policy", "RateLimit", "X-RateLimit-Limit",
                                                                       "X-RateLimit-Remaining", "X-RateLimit-Reset"])
        self.refused(ValueError, "'draft' (RateLimit)", group.headers, "new")
        self.assertEqual((api.table.stats()["live"], api.stats()["allowed"]), (1, 2))
        self.assertIn('stint_decisions_total{policy="api",outcome="allowed"} 2', api.table.metrics())
        self.assertTrue(api.table.metrics().endswith("# EOF\n"))

    def test_policies(self):
        """Found, added, changed, removed; a handle goes on by whatever has its name."""
        table = self.open("3/366d name=api")
        api = table["api"]
        self.assertTrue(api.allow("ann", 3))
        self.assertEqual(table.apply(["5/366d name=api", "1/366d name=new"]), {"api": "changed", "new": "added"})
        self.assertEqual((api.peek("ann").remaining, api.text), (2, '5/366 days name="api"'))
        self.assertEqual(table.apply("9/hour name=api", dry_run=True), {"api": "replaced"})
        self.assertEqual(table.apply("9/hour name=api  # another window\n", prune=True),
                         {"api": "replaced", "new": "removed"})
        self.assertEqual((api.take("ann").capacity, table.policies, "api" in table, "new" in table), (9, ["api"], True, False))
        self.assertEqual(table.add("7/day").name, "7/day")
        table.remove("api")
        for call in (lambda: api.allow("ann"), lambda: api.text, lambda: table.all((api, "ann")), api.stats,
                     lambda: table.remove("api"), lambda: table["api"]):
            self.refused(KeyError, "no policy api; it has: 7/day", call)
        table.add("2/hour name=api")
        self.assertEqual([api.allow("ann") for _ in range(3)], [True, True, False])
        table.remove("api")
        table.add("2/366d name=api")
        self.assertTrue(table.all((api, "ann")))

    def test_closed(self):
        table = self.open("3/366d name=api")
        api = table["api"]
        with table.all((api, "ann")) as group:
            table.close()
        table.close()
        for call in (lambda: api.allow("ann"), lambda: table["api"], table.stats, table.metrics, lambda: table.key("a"),
                     lambda: table.all((api, "a")), lambda: api.reset("a"), group.headers, lambda: table.policies,
                     lambda: table.apply("1/s"), lambda: table.add("1/s"), lambda: "api" in table, lambda: table.address("::1")):
            self.refused(ValueError, "the table is closed", call)
        self.assertIn("closed", repr(table))

    def test_closed_by_what_it_calls(self):
        """An option's truth, a key's text, and a warning are code of others."""
        class Truth:
            def __bool__(self):
                table.close()
                return True

        class Name(str):
            def __str__(self):
                table.close()
                return "ann"

        def show(*_, **__):
            table.close()
            raise ZeroDivisionError

        table = self.open("1/366d name=api")
        self.refused(ValueError, "the table is closed", table["api"].take, "ann", partial=Truth())
        table = self.open("1/366d name=api")
        self.assertFalse(table["api"].take(Name("ann"), 2))
        self.assertIn("closed", repr(table))
        table = self.open("9/366d name=api", max_entries=8, max_policies=1)
        with warnings.catch_warnings(), self.assertRaises(ZeroDivisionError):
            warnings.simplefilter("always")
            warnings.showwarning = show
            for n in range(1000):
                table.all((table["api"], n))

    def test_version(self):
        version = re.search(r"version: '([\d.]+)'", (SOURCE / "meson.build").read_text())[1]
        self.assertEqual(stint.__version__, version)
        self.assertIn(f'\nversion = "{version}"', (SOURCE / "src" / "python" / "pyproject.toml").read_text())

    def test_labels(self):
        """Operators read who was refused, once there is room for names."""
        path = self.directory / "table"
        table = stint.open(path, 100, ["1/366d name=key"], labels=50)
        self.addCleanup(table.close)
        keys = ["ann", b"bob\xff", 7, ("eve", 8, b"x"), table.address("2001:db8::1"), table.key("dan"), "\u00e9" * 30]
        for key in keys:
            for _ in range(3):
                table["key"].allow(key)
        table.all((table["key"], "fay", 2))
        self.assertFalse(self.open("1/366d name=key")["key"].allow("no room", 2))
        if shutil.which("stint") is None:
            self.skipTest("there is no command")
        labels = {json.loads(line)["label"] for line in commands.must("stint", "dump", path).splitlines()}
        self.assertEqual(labels, {"ann", "bob\\xff", "7", "eve 8 x", "2001:db8::1", "dan", "\u00e9" * 20, "fay"})

    def test_stubs(self):
        """They have what there is, with the same signatures, by which it is called; help says something."""
        stub = ast.parse((SOURCE / "src" / "python" / "stint" / "_stint.pyi").read_text())
        said = {None: [node for node in stub.body if isinstance(node, ast.FunctionDef)],
                **{node.name: [part for part in node.body if isinstance(part, ast.FunctionDef)]
                   for node in stub.body if isinstance(node, ast.ClassDef)}}
        for kind in stint.Table, stint.Policy, stint.Verdict, stint.Group, None:
            functions = said[kind and kind.__name__]
            if kind is not None:
                there = {name for name in vars(kind) if not name.startswith("__")}
                self.assertEqual({one.name for one in functions if not one.name.startswith("__")}, there, kind)
                self.assertLessEqual({one.name for one in functions}, set(dir(kind)), kind)
            for one in functions:
                if one.decorator_list or one.name.startswith("__"):
                    continue
                found = getattr(kind or stint._stint, one.name)
                given = {}
                exec(f"from __future__ import annotations\ndef {one.name}({ast.unparse(one.args)}): ...", given)
                signatures = [[(name, part.kind, part.default) for name, part in
                               inspect.signature(function).parameters.items() if name != "self"]
                              for function in (given[one.name], found)]
                if one.name != "all":  # whose arguments have a name in one of them
                    self.assertEqual(*signatures, one.name)
                self.assertGreater(len(found.__doc__), 10, one.name)
        table = self.open("5/366d name=api")
        api = table["api"]
        for call in api.allow, api.take, api.peek:
            self.assertTrue(call("ann", cost=1, limit=None, burst=None, partial=False, drain=False,
                                 reserve=False, tentative=False))
        verdict = api.charge("ann", cost=2)
        self.assertEqual([api.refund(verdict, tokens=1), api.refund(verdict, tokens=None)], [1, 1])
        self.refused(TypeError, "how many tokens", api.refund, verdict, token=1)
        self.refused(TypeError, "how many tokens", api.refund, verdict, 1, tokens=1)

    def test_types(self):
        """A program that uses the stubs is typed."""
        if shutil.which("mypy") is None:
            self.skipTest("there is no mypy")
        [site] = [path for path in sys.path if (Path(path) / "stint" / "py.typed").exists()]
        program = self.write("typed.py", """
import stint, stint.web
table = stint.open("/x", max_entries=1, policies=["1/s name=a"])
a: stint.Policy = table["a"]
wait: float = a.take(("x", 7), 2, partial=True).retry_after
with table.all((a, "x"), (a, b"y", 2)) as group:
    names: list[str] = [verdict.policy.name for verdict in group.verdicts]
def who(name: str) -> str: return name
@stint.limited(a, key=who)
def call(name: str) -> int: return 1
number: int = call("x")
""")
        done = commands.run("mypy", "--strict", "--no-incremental", program, site + "/stint",
                            "--allow-subclassing-any", "--ignore-missing-imports", cwd=self.directory)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.write("wrong.py", "import stint\nstint.open(None, 1)['a'].take(None)\n")
        self.assertIn("incompatible type \"None\"", commands.run("mypy", "wrong.py", cwd=self.directory).stdout)

    def test_no_circle(self):
        """Each file of the extension calls those that python.h lists above it."""
        folder = SOURCE / "src" / "python" / "c"
        parts = re.split(r"(\w+\.c) \*/\n", (folder / "python.h").read_text().partition("/* Of the types")[0])[1:]
        parts = {name: set(re.findall(r"(\w+)\(", text)) for name, text in zip(parts[::2], parts[1::2])}
        self.assertEqual(set(parts) | {"module.c"}, {path.name for path in folder.glob("*.c")})
        above = set()
        for name, own in parts.items():
            above |= own
            called = {one for one in set().union(*parts.values()) if re.search(rf"\b{one}\(", (folder / name).read_text())}
            self.assertLessEqual(called, above, name)


class Keys(Case):
    def same(self, table, one, other):
        """Whether they are one key, as a count tells."""
        policy = table["key"]
        policy.charge(one)
        try:
            return policy.peek(other).used == 1
        finally:
            policy.reset(one)

    def test_kinds(self):
        table = self.open("9/366d name=key")
        keys = ["7", 7, "a:b", ("a", "b"), ("ab",), ("b", "a"), ("a", 7), ("a", "7"), (7, "a"), "", ("a", ""), "\u00e9",
                (7).to_bytes(8, "little"), ("a", (7).to_bytes(8, "little")), 0, 2**64 - 1, ("", "a"), ("a", "b", ""),
                table.address("192.0.2.7"), "192.0.2.7", table.key("x"), "a\0", "a"]
        for i, one in enumerate(keys):
            for j, other in enumerate(keys):
                self.assertEqual(self.same(table, one, other), i == j, (one, other))
        for one, other in (("7", b"7"), ("\u00e9", "\u00e9".encode()), (("a",), "a"), (("a", b"b"), ("a", "b")),
                           (table.key(("a", 7)), ("a", 7)), ((table.key("a"), "b"), ("a", "b")),
                           (table.address("2001:db8::1"), table.address("2001:db8::2")),
                           (table.address("::ffff:192.0.2.7"), table.address("192.0.2.7")),
                           (table.address("192.0.2.7", prefix4=24), table.address("192.0.2.9", 24))):
            self.assertTrue(self.same(table, one, other), (one, other))
        self.assertFalse(self.same(table, table.address("2001:db8::1", prefix6=128),
                                   table.address("2001:db8::2", prefix6=128)))

    def test_made_of_one_another(self):
        """However often: what is made of them, names them and forgets them needs no more stack."""
        self.assertEqual(python("""if True:
            import stint
            table = stint.open(None, 100, ["1/366d name=key"], labels=50)
            same, longer = table.key("a"), table.key("a")
            for _ in range(300_000):
                same, longer = table.key(same), table.key((longer, "b"))
            print([table["key"].allow(key) for key in (same, "a", longer, longer)])
            """), "[True, False, True, False]\n")

    def test_those_of_c(self):
        """The command of the library finds each."""
        if shutil.which("stint") is None:
            self.skipTest("there is no command")
        path = self.directory / "table"
        with stint.open(path, 100, ["9/366d name=key"]) as table:
            for key, option, *parts in (
                    ("a", "--", "a"), (7, "--id", "7"), (("a", "b"), "--", "a", "b"), ((7, "b"), "--id", "7", "b"),
                    (b"\xff", "--hex", "ff"), (table.address("192.0.2.7"), "--address", "192.0.2.7")):
                commands.must("stint", "charge", "--quiet", "--cost", 5, option, path, "key", *parts)
                self.assertEqual(table["key"].peek(key).used, 5, key)
                table["key"].reset(key)

    def test_number_in_a_tuple_as_in_c(self):
        """README.md says how: stint_key_join of the 8 bytes of stint_key_of_id."""
        path = self.directory / "table"
        with stint.open(path, 100, ["9/366d name=key"]) as table:
            program = self.write("join.c", r"""
#include <stdio.h>
#include <stint.h>
int main(int argc, char **argv) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    uint32_t id;
    options.path = argv[argc - 1];
    if (stint_attach(&options, &limiter) != 0 || stint_policy_find(limiter, "key", &id) != 0)
        return 1;
    const stint_key user = stint_key_of(limiter, "user", 4), seven = stint_key_of_id(limiter, 7);
    const stint_key key = stint_key_join(limiter, user, &seven.hash, sizeof(seven.hash));
    struct stint_verdict verdict;
    stint_take(limiter, id, key, 3, STINT_NOW, &verdict);
    printf("%u\n", (unsigned)verdict.used);
    stint_close(limiter);
    return 0;
}
""")
            library = os.environ["LD_LIBRARY_PATH"]
            commands.must("gcc", "-I", SOURCE / "include", program, "-o", self.directory / "join", "-L", library, "-lstint")
            table["key"].take(("user", 7), 2)
            self.assertEqual(commands.must(self.directory / "join", path), "5\n")

    def test_what_is_no_key(self):
        table = self.open("9/366d name=key")
        for key, kind, words in (
                (None, TypeError, ["not None", "unix socket"]), (object(), TypeError, ["not object", "an id"]),
                (1.5, TypeError, "not float"), (True, TypeError, "not bool"), (-1, ValueError, "0 to 2**64 - 1"),
                (2**64, ValueError, "0 to 2**64 - 1"), ((), ValueError, "one part"), (["a"], TypeError, "not list"),
                (("a", None), TypeError, ["a part of a key", "not None"]), ((("a",), "b"), TypeError, "not tuple"),
                (("a", ("b",)), TypeError, "not tuple"), ("\ud800", UnicodeEncodeError, "surrogates"),
                (self.open().key("a"), ValueError, "another table")):
            for call in (table["key"].allow, table["key"].take, table["key"].peek, table["key"].charge,
                         table["key"].reset, table.key, lambda key: table.all((table["key"], key))):
                self.refused(kind, words, call, key)
        self.assertEqual(table.stats()["used"], 0)
        for address in "", "a", "192.0.2.7/24", "1.2.3.4.5", "[::1]", "9" * 99:
            self.refused(ValueError, "no address", table.address, address)
        self.refused(ValueError, "1 to 32", table.address, "::1", 33)
        self.assertTrue(table.address("fe80::1%eth0"))


class Errors(Case):
    def test_arguments(self):
        table = self.open("9/366d name=key", "1/60s in-flight name=busy", "8/366d stripes=2 name=split")
        key = table["key"]
        for words, kind, call in (
                ("key, and a cost", TypeError, lambda: key.take()),
                ("key, and a cost", TypeError, lambda: key.take("a", 1, 1)),
                ("0 to 2**32 - 1", ValueError, lambda: key.take("a", -1)),
                ("0 to 2**32 - 1", ValueError, lambda: key.take("a", 2**32)),
                ("cost is an int", TypeError, lambda: key.take("a", 1.0)),
                ("cost is an int", TypeError, lambda: key.take("a", True)),
                ("limit is at least 1", ValueError, lambda: key.allow("a", limit=0)),
                ("burst is at least 1", ValueError, lambda: key.allow("a", burst=0)),
                ("burst is an int", TypeError, lambda: key.allow("a", burst="6")),
                ("no argument 'burst'", TypeError, lambda: key.charge("a", burst=6)),
                ("burst goes with token buckets only: give the policy a burst", ValueError,
                 lambda: key.take("a", burst=6)),
                ("no argument 'costs'", TypeError, lambda: key.take("a", costs=1)),
                ("no argument 'partial'", TypeError, lambda: key.charge("a", partial=True)),
                ("its name", TypeError, lambda: table[0]),
                ("charge does not go with a policy that is in flight", ValueError, lambda: table["busy"].charge("a")),
                ("drain does not go with a policy of several stripes", ValueError,
                 lambda: table["split"].take("a", drain=True)),
                ("limit does not go with a policy of several stripes", ValueError,
                 lambda: table["split"].allow("a", limit=3)),
                ("has no policy keys; it has: key, busy, split", KeyError, lambda: table["keys"]),
                ("10/m or 10/month", ValueError, lambda: table.add("10/M")),
                ("has a NUL", ValueError, lambda: table["key\0"]),
                ("has a NUL", ValueError, lambda: table.remove("key\0")),
                ("has a NUL", ValueError, lambda: table.add("8/366d name=other\0 shadow")),
                ("has a NUL", ValueError, lambda: table.apply("9/366d name=key\0\n8/366d name=other")),
                ("has a NUL", ValueError, lambda: table.address("192.0.2.7\0")),
                ("a str, not 5", TypeError, lambda: table.remove(5)),
                ("a str, not b'1/s'", TypeError, lambda: table.add(b"1/s")),
                ("366 days", ValueError, lambda: table.add("1/367d")),
                ("another", OSError, lambda: table.add("8/366d name=key")),
                ("line 2", ValueError, lambda: table.apply(["9/366d name=key", "5/ss"])),
                ("'100/minute name=api'", TypeError, lambda: table.apply([1])),
                ("is an int", TypeError, lambda: stint.open(None, "5")),
                ("at least 1", ValueError, lambda: stint.open(None, 0)),
                ("labels is 0 to", ValueError, lambda: stint.open(None, 1, labels=2**32)),
                ("max_policies is 0 to", ValueError, lambda: stint.open(None, 1, max_policies=2**32 + 1)),
                ("mode is 0 to", ValueError, lambda: stint.open(None, 1, mode=-1)),
                ("1 to 128, not 4294967360", ValueError, lambda: table.address("::1", prefix6=2**32 + 64)),
                ("1 to 32 bits, not -1", ValueError, lambda: table.address("::1", prefix4=-1)),
                ("needs max_entries", ValueError, lambda: stint.open(None)),
                ("max_entries must be 1 to 2^40", ValueError, lambda: stint.open(None, 2**41)),
                ("max_policies", OSError, lambda: self.open("1/s", "2/s", "3/s", max_policies=2)),
                ("max_policies must be at most", ValueError, lambda: stint.open(None, 10, max_policies=5000)),
                ("labels must be at most", ValueError, lambda: stint.open(None, 10, labels=2**25)),
                ("mode must be permission bits", ValueError, lambda: stint.open(None, 10, mode=0o1777)),
                ("'replace'", ValueError, lambda: stint.open(None, 1, on_full="drop")),
                ("policies", TypeError, lambda: stint.open(None, 10, policies=5))):
            self.refused(kind, words, call)

    def test_allow_in_flight(self):
        """Nobody could give it back; it is told also of a policy that has become one."""
        table = self.open("9/366d name=key", "1/60s in-flight name=busy", max_policies=3)
        key = table["key"]
        for _ in range(2):
            self.refused(ValueError, ["busy is in flight", "take"], table["busy"].allow, "a")
        self.assertEqual(table["busy"].peek("a").used, 0)
        self.assertTrue(key.allow("a"))
        table.apply("1/60s in-flight name=key")
        self.refused(ValueError, "take", key.allow, "a")

    def test_hardly_meant(self):
        with self.assertWarnsRegex(UserWarning, "2/second smooth.*half"):
            self.open("2/s smooth")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.refused(UserWarning, "half", self.open, "2/s smooth")

    def test_files(self):
        """A path that is not shared, that is not there, or is no table; another shape, another layout."""
        self.refused(ValueError, ["relative", "/run/APP/limits"], stint.open, "limits", 100)
        self.refused(FileNotFoundError, "give max_entries", stint.open, self.directory / "none")
        self.refused(FileNotFoundError, "no table can be made there", stint.open, "/nonexistent/a", 100)
        self.refused(FileNotFoundError, r"/nonexistent/\xff: no table", stint.open, b"/nonexistent/\xff", 100)
        self.refused(OSError, "no table", stint.open, self.write("text", "hello" * 999), 100)
        path = self.directory / "table"
        stint.open(path, 100, ["1/366d name=key"]).close()
        with stint.open(str(path).encode()) as table:
            self.assertEqual((table.policies, table.path), (["key"], str(path)))
        self.refused(OSError, "max_entries 100, not 200", stint.open, path, 200)
        layout = bytearray(path.read_bytes())
        layout[8] = 99  # after the magic number of 8 bytes
        path.write_bytes(layout)
        self.refused(OSError, "layout, 99", stint.open, path, 100)

    def test_full(self):
        """Replaced by default, and told once; the others as the library has them."""
        for on_full, allowed, words in (("replace", True, "taken the place"), ("admit", True, "was not counted"),
                                        ("refuse", False, "was not counted")):
            table = self.open("1/366d name=key", max_entries=8, max_policies=1, on_full=on_full)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                last = [table["key"].take(n) for n in range(1000)][-1]
            self.assertEqual([(one.category, words in str(one.message)) for one in told],
                             [(stint.FullTableWarning, True)], on_full)
            self.assertIn("max_entries", str(told[0].message))
            self.assertEqual((last.allowed, last.replaced, last.untracked),
                             (allowed, on_full == "replace", on_full != "replace"))

    def test_full_is_an_error(self):
        """Then what was asked for was not taken."""
        busy = self.open("2/60s in-flight name=busy", max_entries=8, max_policies=1)["busy"]
        with warnings.catch_warnings(), self.assertRaises(stint.FullTableWarning):
            warnings.simplefilter("error")
            for n in range(1000):
                self.assertEqual(busy.take(n).used, 1)
        self.assertEqual(busy.peek(n).used, 0)


class Limited(Case):
    def test_functions(self):
        table = self.open("3/366d name=api", "1/60s in-flight name=busy")
        api, busy = table["api"], table["busy"]

        @stint.limited(api, busy, key=lambda name, *more: name)
        def call(name, depth=0):
            self.assertEqual(busy.peek(name).used, 1)
            return call(name, depth - 1) if depth else name

        self.assertEqual((call("ann"), call.__name__), ("ann", "call"))
        error = self.refused(stint.Refused, "refused by busy", call, "ann", 1)
        self.assertGreater(error.retry_after, 0)
        self.assertEqual((busy.peek("ann").used, api.peek("ann").used), (0, 2))
        call("ann")
        error = self.refused(stint.Refused, "refused by api", call, "ann")
        self.assertIn("Retry-After", dict(error.headers()))
        there = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
        self.assertEqual(*[(type(one), str(one), one.retry_after, one.headers("both")) for one in (there, error)])
        self.assertIsNone(there.group)
        for words, policies in (("limited takes policies", ["api"]), ("limited takes policies", []),
                                ("each policy once", [api, busy, api]),
                                ("of one table", [api, self.open("1/s name=x")["x"]])):
            self.refused((TypeError, ValueError), words, stint.limited, *policies, key="a")
        self.refused(ValueError, "each policy once", stint.web.WSGI, None, api, api)

        def values():
            yield 1

        self.refused(TypeError, ["generator", "with table.all"], stint.limited(api, key="a"), values)

    def test_what_ends_later(self):
        """Coroutines, also those of a function that only returns them, and streams of werkzeug."""
        busy = self.open("1/60s in-flight name=busy")["busy"]
        limited = stint.limited(busy, key="everyone")

        @limited
        async def later():
            held.append(busy.peek("everyone").used)
            await asyncio.sleep(0)

        @limited
        def wrapped():
            return later.__wrapped__()

        async def call(function):
            await function()

        async def two(function):
            return await asyncio.gather(call(function), call(function), return_exceptions=True)

        for function in later, wrapped:
            held = []
            self.assertEqual([type(result) for result in asyncio.run(two(function))], [type(None), stint.Refused])
            self.assertEqual((held, busy.peek("everyone").used), ([1], 0))

        async def never():
            work = later.__wrapped__()
            work.close()  # so that nobody is warned that it was not awaited
            task = asyncio.ensure_future(limited(lambda: work)())
            task.cancel()
            await asyncio.wait([task])

        asyncio.run(never())
        self.assertEqual(busy.peek("everyone").used, 0)

        class Stream:
            """As it is closed or dropped."""
            is_streamed = True

            def call_on_close(self, function):
                self.close = function

        for end in lambda answer: answer.close(), lambda answer: None:
            answer = limited(Stream)()
            self.assertEqual(busy.peek("everyone").used, 1)
            end(answer)
            del answer
            self.assertEqual(busy.peek("everyone").used, 0)


class Clock(Case):
    def test_windows_and_leases(self):
        """Time stands still until the test moves it, for all tables of the block and no others."""
        with stint.testing.clock() as clock:
            table = stint.open("/nowhere/table", policies=["2/minute name=api", "1/s burst=3 name=bucket"])
            api, bucket = table["api"], table["bucket"]
            self.assertEqual((table.path, [api.allow("a") for _ in range(3)]), (None, [True, True, False]))
            self.assertEqual((api.peek("a", 1).retry_after, api.peek("a").resets_at), (60.0, clock.now + 60))
            clock.advance(59.98)
            self.assertFalse(api.allow("a"))
            clock.advance(0.02)
            self.assertTrue(api.allow("a"))
            self.assertEqual((clock.now, api.peek("a").resets_at), (stint.testing.START + 60, clock.now + 60))
            self.assertTrue(bucket.allow("a", 3))
            clock.advance(1.5)
            self.assertEqual(bucket.peek("a").remaining, 1)
            clock.advance(365 * 86400)
            self.assertTrue(bucket.allow("a", 3))
            self.refused(ValueError, "not by -1", clock.advance, -1)
            now = clock.now
            with stint.testing.clock(now + 60):
                pass
            self.refused(ValueError, "relative", stint.open, "table", 1)
        later = self.open("2/minute name=api")["api"].take("a").resets_at
        self.assertLess(later, now)
        self.assertTrue(api.take("a").resets_at > now)

    def test_lease_ends(self):
        """What is given back after it is nothing, and then nothing is held: loops of refunds end."""
        with stint.testing.clock() as clock:
            table = stint.open(None, 100, ["2/s in-flight name=busy"])
            busy = table["busy"]
            verdict, group = busy.take("a"), table.all((busy, "a"))
            with table.all((busy, "b")) as left:
                clock.advance(3)
                self.assertEqual((busy.take("a").used, busy.take("b").used), (1, 1))
            self.assertEqual((verdict.granted, group.in_flight), (1, True))
            back = 0
            while verdict.granted:
                back += busy.refund(verdict)
            self.assertEqual((back, verdict.granted), (0, 0))
            while group.in_flight:
                back += group.done()
            self.assertEqual((back, left.in_flight, [one.granted for one in left.verdicts]), (0, False, [0]))
            self.assertEqual((busy.peek("a").used, busy.peek("b").used), (1, 1))


class Middleware(Case):
    """By hand; workers.py has the servers."""

    def wsgi(self, app, **environ):
        told = []
        answer = app({"REMOTE_ADDR": "192.0.2.7", **environ}, lambda status, headers, *_: told.append((status, dict(headers))))
        body = b"".join(answer)
        if hasattr(answer, "close"):
            answer.close()
        return told[0][0][:3], told[0][1], body

    def test_wsgi(self):
        table = self.open("2/366d name=api", "1/60s in-flight name=busy")
        busy, seen, address = table["busy"], [], table.address("192.0.2.7")

        def hello(environ, start_response):
            seen.append(busy.peek(address).used)
            start_response("200 OK", [("A", "b")])
            return iter([b"hello"])

        def fails(environ, start_response):
            raise ZeroDivisionError

        app = stint.web.WSGI(hello, table["api"], busy)
        status, fields, body = self.wsgi(app)
        self.assertEqual((status, body, fields["A"]), ("200", b"hello", "b"))
        self.assertIn('"api";r=1', fields["RateLimit"])
        self.wsgi(app)
        self.assertEqual((seen, busy.peek(address).used), ([1, 1], 0))
        status, fields, body = self.wsgi(app)
        self.assertEqual((status, body), ("429", b"Too Many Requests\n"))
        self.assertIn("Retry-After", fields)
        self.assertEqual(self.wsgi(app, REQUEST_METHOD="HEAD")[::2], (status, b""))
        self.assertEqual(self.wsgi(app, REMOTE_ADDR="192.0.2.8")[0], "200")
        self.refused(ValueError, ["unix socket", "key="], self.wsgi, app, REMOTE_ADDR="")
        plain = stint.web.WSGI(hello, table["api"], key=lambda environ: environ.get("USER"), headers=None)
        for user, due in ({}, [("200", ["A"])] * 3), ({"USER": "ann"}, [("200", ["A"])] * 2 + [
                ("429", ["Content-Length", "Content-Type", "Retry-After"])]):
            self.assertEqual([(status, sorted(fields)) for status, fields, _ in (self.wsgi(plain, **user)
                                                                                 for _ in range(3))], due)
        with self.assertRaises(ZeroDivisionError):
            self.wsgi(stint.web.WSGI(fails, busy))
        self.assertEqual(busy.peek(address).used, 0)
        self.refused(ValueError, "'draft'", stint.web.WSGI, hello, table["api"], headers="all")

    FORWARDED = (("192.0.2.7", "192.0.2.7"), ("192.0.2.7:5678", "192.0.2.7"), ("[2001:db8::1]:443", "2001:db8::1"),
                 ("[2001:db8::1]", "2001:db8::1"), ("2001:db8::1", "2001:db8::1"), ("2001:db8::1:443", "2001:db8::1:443"),
                 *((text, None) for text in ("unknown", "[", "[]:1", ":", "[192.0.2.7", "192.0.2.7:", "192.0.2.7:x",
                                             "2001:db8::1:x", "1.2.3:4", "a\0", "\udcff", "9" * 999)))

    def test_forwarded(self):
        """What a proxy hands on may have a port, or be no address: then the peer's counts, or all such are one."""
        table = self.open("9/366d name=api")
        keys = []

        class WSGI(stint.web.WSGI):
            def decide(self, environ):
                keys.append(self.key(environ))

        class ASGI(stint.web.ASGI):
            def decide(self, scope):
                keys.append(self.key(scope))

        async def served(*_):
            pass

        wsgi, asgi = WSGI(lambda *_: [], table["api"]), ASGI(served, table["api"])
        for told, address in self.FORWARDED:
            keys.clear()
            wsgi({"REMOTE_ADDR": told, "werkzeug.proxy_fix.orig": {"REMOTE_ADDR": "198.51.100.1"}}, None)
            wsgi({"REMOTE_ADDR": told}, None)
            self.asgi(asgi, client=(told, 0))
            wanted = table.address(address) if address else table.key("unknown")
            for key, due in zip(keys, (wanted if address else table.address("198.51.100.1"), wanted, wanted), strict=True):
                self.assertEqual((table["api"].charge(due).used, table["api"].peek(key).used), (1, 1), told)
                table["api"].reset(due)
        self.asgi(asgi, client=("", 0))
        self.assertEqual(len(keys), 4)

    def asgi(self, app, kind="http", client=("192.0.2.7", 5)):
        sent = []

        async def receive():
            return {"type": kind + ".connect"}

        async def send(message):
            sent.append(message)

        asyncio.run(app({"type": kind, "client": client}, receive, send))
        return sent

    def test_asgi(self):
        table = self.open("2/366d name=api", "1/60s in-flight name=busy")
        busy, seen, address = table["busy"], [], table.address("192.0.2.7")

        async def hello(scope, receive, send):
            seen.append(busy.peek(address).used)
            if scope["type"] == "websocket":
                await send({"type": "websocket.accept"})
            else:
                await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
                await send({"type": "http.response.body", "body": b"hello"})

        app = stint.web.ASGI(hello, table["api"], busy)
        start, body = self.asgi(app)
        self.assertEqual((start["status"], start["headers"][0], body["body"]), (200, (b"a", b"b"), b"hello"))
        self.assertIn(b"ratelimit", dict(start["headers"]))
        [accept] = self.asgi(app, "websocket")
        self.assertIn(b"ratelimit-policy", dict(accept["headers"]))
        self.assertEqual((seen, busy.peek(address).used), ([1, 1], 0))
        start, body = self.asgi(app)
        self.assertEqual((start["status"], body["body"]), (429, b"Too Many Requests\n"))
        self.assertIn(b"retry-after", dict(start["headers"]))
        self.assertEqual(self.asgi(app, "websocket"), [{"type": "websocket.close", "code": 1013}])
        self.assertEqual(len(self.asgi(app, "lifespan")), 2)
        self.refused(ValueError, ["unix socket", "key="], self.asgi, app, client=None)


class Processes(Case):
    def test_threads(self):
        """Exactly the limit, and nobody who sets up waits for the others' GIL, or closes under them."""
        table = stint.open(self.directory / "table", 1000, ["1000/366d name=api"])
        api = table["api"]

        def work():
            return sum(api.allow("ann") for _ in range(500))

        def set_up():
            for limit in range(50):
                table.apply([f"{limit + 1}/366d name=other"])
                table.stats(), table.metrics()
            return 0

        def until_closed():
            with self.assertRaisesRegex(ValueError, "^the table is closed$"):
                while True:
                    table.stats()

        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            self.assertEqual(sum(pool.map(lambda target: target(), [work] * 4 + [set_up] * 2)), 1000)
            looking = [pool.submit(until_closed) for _ in range(3)]
            table.close()
            for one in looking:
                one.result()

    FORKS = """
import os, sys, warnings, stint
path = sys.argv[1] or None
table = stint.open(path, 100, ["1000/366d name=api"])
table["api"].allow("ann")
read, write = os.pipe()
for _ in range(4):
    if os.fork() == 0:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            granted = sum(table["api"].allow("ann") for _ in range(400))
        os.write(write, f"{granted} {' '.join(one.category.__name__ for one in told)}\\n".encode())
        os._exit(0)
os.close(write)
print(os.fdopen(read).read(), end="")
[os.wait() for _ in range(4)]
print(table["api"].peek("ann").used)
"""

    def test_fork(self):
        """A table that was opened before is one table; in private memory each child is told that it is not."""
        *children, used = python(self.FORKS, self.directory / "table").splitlines()
        self.assertEqual((sum(int(child.split()[0]) for child in children), used), (999, "1000"))
        self.assertEqual([child.split()[1:] for child in children], [[]] * 4)
        *children, used = python(self.FORKS, "").splitlines()
        self.assertEqual((children, used), (["400 NotSharedWarning"] * 4, "1"))

    def test_sub_interpreters(self):
        said = python("""
import _xxsubinterpreters as interpreters, stint
one = interpreters.create()
try:
    interpreters.run_string(one, "import stint")
except Exception as error:
    print(error)
interpreters.destroy(one)
print(stint.open(None, 10, ["1/366d name=a"])["a"].allow("b"))
""")
        self.assertIn("sub-interpreter", said)
        self.assertIn("%{GLOBAL}", said)
        self.assertTrue(said.endswith("True\n"))

    def test_imported_twice(self):
        python("import sys, stint\nfor name in [name for name in sys.modules if name.startswith('stint')]:\n"
               "    del sys.modules[name]\nimport stint\nassert stint.open(None, 10, ['1/s name=a'])['a'].take('b')")


class Leaks(Case):
    ROUNDS = 1_000_000

    def calls(self):
        table = self.open("200M/366d name=api", "16000/60s in-flight name=busy")
        api, busy = table["api"], table["busy"]

        def wrong():
            for call in (lambda: api.take(None), lambda: api.take("a", -1), lambda: table["none"],
                         lambda: table.add("1/q"), lambda: api.take("a", nothing=1), lambda: table.all((api, ())),
                         lambda: busy.charge("a"), lambda: stint.open("x", 1), lambda: stint.open("/nonexistent/x", 1)):
                with contextlib.suppress(TypeError, ValueError, KeyError, OSError):
                    call()

        def everything():
            verdict = api.take(("ann", 7, b"x"), 1, partial=True)
            api.refund(verdict), verdict.headers(), api.peek(7), api.charge("ann"), api.reset("ann")
            with table.all((api, "ann"), (busy, table.key("ann"))) as group:
                group.verdicts, group.retry_after, group.in_flight, group.headers("both"), repr(group)
            table["api"].text, table.address("::1"), table.policies, "api" in table, api.name, api.table, repr(table)
            verdict.policy, verdict.resets_at, verdict.retry_after, repr(verdict), repr(api)

        def set_up():
            table.apply(["200M/366d name=api"]), table.stats(), table.metrics(), api.stats()
            table.add("1/s name=x"), table.remove("x")
            with stint.open(None, 10, ["1/s"]):
                pass

        return {"allow": (lambda: api.allow("192.0.2.7"), self.ROUNDS), "take": (lambda: api.take("192.0.2.7"), 100_000),
                "everything": (everything, 5_000), "wrong": (wrong, 2_000), "set up": (set_up, 300)}

    def test_none(self):
        """Neither of Python's memory, nor of references to the types, nor of the process."""
        kinds = stint.Table, stint.Policy, stint.Verdict, stint.Group, stint.Key
        for name, (call, rounds) in self.calls().items():
            with self.subTest(name=name):
                for _ in range(min(rounds, 100)):
                    call()
                gc.collect()
                references = [sys.getrefcount(kind) for kind in kinds]
                tracemalloc.start()
                before = tracemalloc.get_traced_memory()[0]
                for _ in range(rounds):
                    call()
                gc.collect()
                grown = tracemalloc.get_traced_memory()[0] - before
                tracemalloc.stop()
                self.assertLess(grown, 4096)
                self.assertEqual([sys.getrefcount(kind) for kind in kinds], references)


if __name__ == "__main__":
    unittest.main()
