#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package for Python, built by Debian's Python and tested by it.

    run.py SOURCE BUILD MESON CC NAME [TEST...]     tests/python/NAME.py, with the library of this build
    run.py SOURCE BUILD MESON CC costs              prints the table of costs (costs.py)
    run.py SOURCE BUILD MESON CC install            as the page of the package says, which compiles the library; and
                                                    its sdist, which brings the library along

The tests of the library of this build install the sdist, too.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "kit"))
import commands  # noqa: E402

PYTHON = "/usr/bin/python3"  # Debian's, which has Debian's packages
FIRST = """
import stint
table = stint.open(None, max_entries=10, policies=["1/366d name=once"])
assert [table["once"].allow("a") for _ in range(2)] == [True, False]
"""


def missing(*modules):
    """The modules that this Python does not have."""
    return [name for name in modules
            if subprocess.run([PYTHON, "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode != 0]


def pip(package, to, **environment):
    """Installs the package there. It takes nothing from the network, and leaves the tree alone."""
    commands.must(PYTHON, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps", "--quiet",
                  "--disable-pip-version-check", "--root-user-action=ignore", "--target", to, package,
                  env={**os.environ, "PIP_NO_CACHE_DIR": "1", **environment}, timeout=170)


def copy(source, to, *folders):
    for folder in folders:
        shutil.copytree(source / folder, to / folder, ignore=shutil.ignore_patterns("build*", "*.egg-info", "target"))


def sdist(source, directory):
    """Makes the sdist of a copy of the tree, which is left as it was."""
    copy(source, directory, "src", "include")
    shutil.copy(source / "LICENSE", directory)
    before = {path for path in directory.rglob("*") if "egg-info" not in str(path)}
    commands.must(PYTHON, "setup.py", "--quiet", "sdist", "--dist-dir", directory, cwd=directory / "src" / "python")
    [made] = directory.glob("*.tar.gz")
    left = {path for path in directory.rglob("*") if "egg-info" not in str(path)} - before
    assert left == {made}, left
    return made


def main(source, build, meson, cc, name, *tests):
    if not os.path.exists(PYTHON) or missing("setuptools", "wheel", "pip", "ensurepip"):
        print("skipped: there is no Debian's Python with setuptools, wheel, pip and venv")
        return 77
    compiler = {"CC": cc, "CCACHE_NOHASHDIR": "1"}  # each run has another directory
    with tempfile.TemporaryDirectory(prefix="stint-python-") as directory:
        directory = Path(directory)
        site = directory / "site"
        package = sdist(source, directory)
        if name == "install":
            [how] = re.findall(r"^apt-get.*\n((?:.+\n)+)```$", (source / "src/python/README.md").read_text(), re.MULTILINE)
            commands.must("bash", "-ec", how.replace("python3 -m", f"{PYTHON} -m"), cwd=directory, timeout=550,
                          env={**os.environ, **compiler, "PIP_NO_INDEX": "1", "STINT_SYSTEM": ""})
            commands.must(directory / "env" / "bin" / "python", "-c", FIRST, cwd=directory)
            [wheel] = directory.rglob("stint-*.dist-info/WHEEL")
            assert "cp311-abi3" in wheel.read_text(), wheel.read_text()
            pip(package, site, **compiler, STINT_SYSTEM="")
            commands.must(PYTHON, "-c", FIRST, cwd=directory, env={**os.environ, "PYTHONPATH": str(site)})
            return 0
        of_pkg_config, libraries = commands.installed(meson, build, directory / "installed")
        pip(package, site, **compiler, STINT_SYSTEM="1", **of_pkg_config)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "PYTHONDONTWRITEBYTECODE": "1",
                       "PYTHONPATH": ":".join(map(str, (site, HERE, HERE.parent / "kit", HERE.parent / "nginx"))),
                       "STINT_SOURCE": str(source),
                       "STINT_MODULE": str(build / "src" / "nginx" / "ngx_http_stint_module.so"),
                       "PATH": f"{build / 'src' / 'tool'}:/usr/bin:{os.environ['PATH']}"}
        how = [HERE / "costs.py"] if name == "costs" else ["-X", "dev", "-m", "unittest", *(tests or [name])]
        return subprocess.run([PYTHON, *how], cwd=directory, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), *sys.argv[3:]))
