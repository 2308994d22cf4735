#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Rust crate, built and tested offline against the installed library that pkg-config tells of.
Debian's cargo comes first.

    rust.py SOURCE BUILD MESON CC [TEST...]
"""
import os
import re
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, f"{Path(__file__).resolve().parents[1]}/kit")
import commands  # noqa: E402

SOURCE, BUILD = Path("."), Path("build")
MESON, CC = "meson", "cc"


class Crate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["PATH"] = "/usr/bin:" + os.environ["PATH"]
        if shutil.which("cargo") is None or shutil.which("pkg-config") is None:
            raise unittest.SkipTest("there is no cargo, or no pkg-config")
        temporary = tempfile.TemporaryDirectory(prefix="stint-rust-")
        cls.addClassCleanup(temporary.cleanup)
        cls.directory = Path(temporary.name)
        cls.crate = cls.directory / "crate"
        shutil.copytree(SOURCE / "src" / "rust", cls.crate, ignore=shutil.ignore_patterns("target"))
        environment, libraries = commands.installed(MESON, BUILD, cls.directory / "installed")
        cls.environment = {**os.environ, **environment, "CC": CC, "CARGO_HOME": str(cls.directory / "home"),
                           "CARGO_NET_OFFLINE": "true", "LD_LIBRARY_PATH": str(libraries)}
        for name in "RUSTC", "RUSTFLAGS", "RUSTUP_TOOLCHAIN", "CARGO_TARGET_DIR":
            cls.environment.pop(name, None)

    def cargo(self, *arguments, **more):
        done = commands.run("cargo", *arguments, cwd=self.crate, timeout=200,
                            env={**self.environment, **more})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_crate(self):
        """Its tests, those of the layout beside C's among them, and the README's programs."""
        said = self.cargo("test", "--offline")
        self.assertNotIn("warning", said)
        results = re.findall(r"test result: ok\. (\d+) passed; 0 failed; 0 ignored", said)
        self.assertEqual(len(results), 4, said)  # lib, layout, limiter, README
        self.assertGreaterEqual(int(results[3]), 3, said)

    def test_linked_into_the_program(self):
        said = self.cargo("test", "--offline", "--test", "limiter", "--target-dir", "static",
                          STINT_STATIC="1", LD_LIBRARY_PATH="/nowhere")
        self.assertIn("test result: ok", said)

    def test_version_is_the_librarys(self):
        version = re.search(r"version: '([\d.]+)'", (SOURCE / "meson.build").read_text())[1]
        self.assertIn(f'\nversion = "{version}"', (self.crate / "Cargo.toml").read_text())
        minor = ".".join(version.split(".")[:2])
        self.assertIn(f'"stint >= {minor}.0"', (self.crate / "build.rs").read_text())

    def test_clippy_and_format(self):
        if shutil.which("cargo-clippy") is None or shutil.which("rustfmt") is None:
            self.skipTest("there is no clippy, or no rustfmt")
        self.cargo("clippy", "--offline", "--all-targets", "--", "-D", "warnings")
        self.cargo("fmt", "--check")


if __name__ == "__main__":
    SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    MESON, CC = sys.argv[3], sys.argv[4].split()[-1]
    result = unittest.main(argv=sys.argv[:1] + sys.argv[5:], exit=False).result
    sys.exit(77 if result.testsRun == 0 and result.skipped else not result.wasSuccessful())
