#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The corpora of the fuzz targets: many small inputs, packed into a file for each target. An input
is its length, four bytes little-endian, and its bytes. Inputs with a name of their own are files
beside the pack.

    corpus.py unpack PACK DIRECTORY          one file an input, named by its SHA-1 as libFuzzer does
    corpus.py pack PACK DIRECTORY...         all files of the directories"""
import hashlib
import sys
from pathlib import Path


def unpack(pack, directory):
    directory.mkdir(parents=True, exist_ok=True)
    rest = pack.read_bytes()
    while rest:
        end = 4 + int.from_bytes(rest[:4], "little")
        assert end <= len(rest), f"{pack} is cut off"
        (directory / hashlib.sha1(rest[4:end]).hexdigest()).write_bytes(rest[4:end])
        rest = rest[end:]


def pack(pack, directories):
    inputs = {path.read_bytes() for directory in directories for path in directory.iterdir()}
    inputs = sorted(inputs, key=lambda data: (len(data), data))
    pack.write_bytes(b"".join(len(data).to_bytes(4, "little") + data for data in inputs))
    print(f"{len(inputs)} inputs")


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    if sys.argv[1] == "pack":
        pack(Path(sys.argv[2]), [Path(directory) for directory in sys.argv[3:]])
    else:
        unpack(Path(sys.argv[2]), Path(sys.argv[3]))
