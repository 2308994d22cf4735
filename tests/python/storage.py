# SPDX-License-Identifier: MIT
"""stint:// does what the storages of the package limits do: calls and their results, beside its own
storage in memory; and by its strategies."""
import itertools
import sys
import time
import unittest

import commands

try:
    import limits
    import stint.limits
    from limits.errors import ConfigurationError
    from limits.storage import MemoryStorage, storage_from_string
    from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
except ImportError as error:
    raise unittest.SkipTest("there is no package limits") from error

PER_MINUTE, PER_DAY = limits.parse("3/minute"), limits.parse("10/2day")
MINUTE, DAY = PER_MINUTE.key_for("ann"), PER_DAY.key_for("ann", "/login")

# A method, and its arguments; of incr a third is the amount.
CALLS = (
    ("check",),
    ("get", MINUTE), ("get_expiry", MINUTE),  # of nothing: now
    ("incr", MINUTE, 60), ("incr", MINUTE, 60), ("get", MINUTE), ("get_expiry", MINUTE),
    ("incr", MINUTE, 60, 5), ("get", MINUTE), ("incr", MINUTE, 60, 1),  # beyond the limit
    ("incr", DAY, 172800, 3), ("get", DAY), ("get_expiry", DAY), ("get", MINUTE),  # they are two counts
    ("get", PER_MINUTE.key_for("bob")), ("incr", PER_MINUTE.key_for("bob"), 60), ("get", MINUTE),
    ("clear", MINUTE), ("get", MINUTE), ("get_expiry", MINUTE), ("incr", MINUTE, 60, 2), ("get", MINUTE),
    ("clear", "nothing"), ("get", "nothing"),
    ("incr", "a key of its own", 7), ("get", "a key of its own"), ("get_expiry", "a key of its own"),
    ("incr", "a/b/day", 9), ("get", "a/b/day"), ("incr", "a/1/hour", 8), ("get", "a/1/hour"),  # not of that duration
    ("incr", "", 60), ("get", ""), ("incr", "\u00e9/1/minute", 60), ("get", "\u00e9/1/minute"),
    ("incr", "x" * 5000, 60), ("get", "x" * 5000), ("get", "x" * 4999),
    ("reset",), ("get", DAY), ("get", "a key of its own"), ("get_expiry", DAY),
    ("incr", DAY, 172800), ("get", DAY), ("check",),
)


class Case(commands.Case):
    def storage(self, **options):
        storage = storage_from_string(f"stint://{self.directory}/table", **options)
        self.addCleanup(storage.table.close)
        return storage


class Storage(Case):
    def test_calls(self):
        ours, theirs = self.storage(), MemoryStorage()
        for name, *arguments in CALLS:
            options = {"amount": arguments.pop()} if len(arguments) == 3 else {}
            with self.subTest(call=name, arguments=[str(argument)[:20] for argument in arguments]):
                got, wanted = (getattr(storage, name)(*arguments, **options) for storage in (ours, theirs))
                if name == "get_expiry":
                    self.assertLessEqual(abs(got - wanted), 2)
                elif name != "reset":  # which may say how many it forgets
                    self.assertEqual((type(got), got), (type(wanted), wanted))

    def test_each_duration(self):
        """In every order that two durations and two keys are first counted in, by two processes."""
        for number, order in enumerate(itertools.permutations([(MINUTE, 60), (DAY, 172800), ("a", 5), ("b", 6)])):
            one, two = (storage_from_string(f"stint://{self.directory}/{number}", max_entries=100) for _ in range(2))
            for storage, (key, expiry) in zip(itertools.cycle((one, two)), order):
                self.assertEqual(storage.incr(key, expiry), 1)
            for storage in one, two:
                self.assertEqual([storage.get(key) for key, _ in order], [1] * 4)
                storage.table.close()

    def test_window_is_over(self):
        """A second, and up to 10 ms less; the clock may be 10 ms behind."""
        storage, began = self.storage(), time.time()
        storage.incr("a", 1)
        while storage.get("a"):
            time.sleep(0.002)
        self.assertTrue(0.97 < time.time() - began < 3, time.time() - began)
        self.assertEqual(storage.incr("a", 1), 1)

    def test_strategies(self):
        storage = self.storage()
        fixed = FixedWindowRateLimiter(storage)
        self.assertEqual([fixed.hit(PER_MINUTE, "ann") for _ in range(4)], [True, True, True, False])
        self.assertFalse(fixed.test(PER_MINUTE, "ann"))
        self.assertTrue(fixed.test(PER_MINUTE, "bob"))
        reset, remaining = fixed.get_window_stats(PER_MINUTE, "ann")
        self.assertEqual(remaining, 0)
        self.assertTrue(time.time() + 50 < reset < time.time() + 61, reset - time.time())
        self.assertFalse(fixed.hit(PER_DAY, "ann", cost=11))
        fixed.clear(PER_MINUTE, "ann")
        self.assertTrue(fixed.hit(PER_MINUTE, "ann"))
        with self.assertRaisesRegex(NotImplementedError, "MovingWindow"):
            MovingWindowRateLimiter(storage)
        with self.assertRaisesRegex(NotImplementedError, "elastic.*fixed-window"):
            storage.incr(MINUTE, 60, elastic_expiry=True)

    def test_more_than_is_counted(self):
        """The largest limit is refused beyond it; a larger one at its first use, by words that help."""
        storage = self.storage()
        fixed = FixedWindowRateLimiter(storage)  # which holds it weakly
        most = limits.parse(f"{2**28 - 1}/day")
        self.assertEqual([fixed.hit(most, "ann", cost=cost) for cost in (2**28 - 2, 1, 1)], [True, True, False])
        for amount, words in ((2**28, "units of 1000 .*kB.* 268435 per 1 day"), (10**9, "units of 1000 .* 1000000 per"),
                              (10**12, "units of 1000000 .*MB.* 1000000 per 1 day")):
            for ask in fixed.hit, fixed.test, fixed.get_window_stats:
                with self.assertRaisesRegex(ValueError, words):
                    ask(limits.parse(f"{amount}/day"), "ann")

    def test_errors(self):
        for uri in ("stint://", "stint:///", "stint://limits", "stint://localhost/run/limits",
                    "stint:///run/limits?max_entries=9", "stint:limits"):
            with self.assertRaisesRegex(Exception, "stint:///run/app/limits|relative", msg=uri):
                storage_from_string(uri)
        storage = self.storage(max_policies=3)
        for expiry in 0, -1, 367 * 86400:
            with self.assertRaisesRegex(ConfigurationError, "1 second to 366 days"):
                storage.incr("a", expiry)
        self.assertEqual([storage.incr("a", expiry) for expiry in (1, 60, 366 * 86400)], [1, 1, 1])
        with self.assertRaisesRegex(ConfigurationError, "more max_policies.*fewer durations"):
            storage.incr("a", 2)

    def test_reset_by_another(self):
        """The count begins anew, and nobody fails."""
        one, two = self.storage(), self.storage()
        self.assertEqual((one.incr(MINUTE, 60), two.incr(MINUTE, 60)), (1, 2))
        one.reset()
        self.assertEqual((two.get(MINUTE), two.incr(MINUTE, 60), one.get(MINUTE)), (0, 1, 1))
        self.assertEqual(one.incr(MINUTE, 60), 2)

    def test_removed(self):
        storage = self.storage()
        self.assertTrue(storage.check())
        (self.directory / "table").unlink()
        self.assertFalse(storage.check())

    def test_processes(self):
        """Each hit is another number."""
        program = f"""
import os, stint.limits
storage = stint.limits.StintStorage("stint://{self.directory}/many")
for _ in range(3):
    if os.fork() == 0:
        break
os.write(1, "".join(f"{{storage.incr({MINUTE!r}, 86400)}}\\n" for _ in range(500)).encode())  # less than a pipe splits
"""
        numbers = commands.must(sys.executable, "-W", "error", "-c", program).split()
        self.assertEqual(sorted(map(int, numbers)), list(range(1, 2001)))


if __name__ == "__main__":
    unittest.main()
