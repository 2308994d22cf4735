# SPDX-License-Identifier: MIT
"""Builds the extension: with the sources of the library beside it (an sdist takes them along), or,
where there are none or STINT_SYSTEM is set, with the library that pkg-config tells of."""
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.sdist import sdist

if sys.platform != "linux":
    sys.exit(f"stint is for Linux: its tables are files that processes share as only Linux does. This is {sys.platform}.")

HERE = Path(__file__).resolve().parent
os.chdir(HERE)
TREE = Path("library" if Path("library").exists() else "../..")  # setuptools wants the paths of sources to be relative
LIBRARY = TREE / "src"
FOLDERS = "", "feature", "limiter", "map", "policy", "rule", "sys", "table", "text"


def version():
    return re.search(r'^version = "([\d.]+)"', Path("pyproject.toml").read_text(), re.MULTILINE)[1]


def pkg_config(*arguments):
    """The flags of an installed library of this minor version, whose header is the same."""
    major, minor, _ = version().split(".")
    try:
        done = subprocess.run(["pkg-config", *arguments, f"stint >= {major}.{minor}.0", f"stint < {major}.{int(minor) + 1}.0"],
                              capture_output=True, text=True)
    except FileNotFoundError:
        sys.exit("pkg-config is needed to find the library: install it (pkgconf)")
    if done.returncode != 0:
        sys.exit(f"pkg-config does not find stint {major}.{minor}: install it (libstint-dev), or name the directory of "
                 f"its stint.pc in PKG_CONFIG_PATH.\n{done.stderr}")
    return shlex.split(done.stdout)


def built_in():
    """What compiles the library into the extension."""
    for name, package in ("ck_pr.h", "libck-dev"), ("xxhash.h", "libxxhash-dev"):
        if not any(Path(folder, name).exists() for folder in INCLUDES):
            sys.exit(f"{name} is missing: install {package}")
    numbers = [int(number) for number in version().split(".")]
    return {
        "sources": [str(path) for folder in FOLDERS
                    for path in sorted((LIBRARY / folder).glob("*.c"))],
        "include_dirs": [str(LIBRARY), str(TREE / "include")],
        "define_macros": [("_GNU_SOURCE", None), ("BUILD_VERSION", "({}*1000000+{}*1000+{})".format(*numbers))],
        "extra_compile_args": ["-std=gnu11", "-O3", "-Wno-unused-function"],
    }


class WithLibrary(sdist):
    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, [file for file in files if not file.startswith("..")])
        for folder in ("include", *(f"src/{folder}" for folder in FOLDERS)):
            to = Path(base_dir, "library", folder)
            to.mkdir(parents=True, exist_ok=True)
            for path in (TREE / folder).glob("*.[ch]"):
                shutil.copy(path, to)
        shutil.copy(TREE / "LICENSE", Path(base_dir, "library"))


INCLUDES = [folder for folder in os.environ.get("C_INCLUDE_PATH", os.environ.get("CPATH", "")).split(":") if folder]
INCLUDES += ["/usr/include", "/usr/local/include"]
if (LIBRARY / "take.c").exists() and not os.environ.get("STINT_SYSTEM"):
    how = built_in()
else:
    how = {"sources": [], "include_dirs": [], "define_macros": [], "extra_compile_args": pkg_config("--cflags"),
           "extra_link_args": pkg_config("--libs")}
how["sources"] += sorted(map(str, Path("c").glob("*.c")))
how.setdefault("extra_link_args", [])
how["extra_link_args"] += ["-Wl,--version-script=stint.map"]

setup(
    ext_modules=[Extension("stint._stint", py_limited_api=True, depends=["c/python.h", "stint.map"], **how)],
    cmdclass={"sdist": WithLibrary},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
