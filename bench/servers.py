# SPDX-License-Identifier: MIT
"""Servers that are measured beside stint, each on a unix socket in a temporary directory.

A guardian stands between: it starts the server, and waits for the end of the benchmark, which it
sees at the end of a pipe whatever the benchmark died of. Then it kills the server and removes the
directory."""
import socket
import subprocess
import time
from pathlib import Path

from driver import Failed

START_SECONDS = 10  # that a server may take until it listens

# Says where the directory is, and the server's process. Ctrl-C in the terminal does not reach it.
GUARDIAN = r"""
directory=$(mktemp -d --tmpdir stint-bench-XXXXXX) || exit 1
trap 'kill -KILL "$server"; wait; rm -rf "$directory"' EXIT
trap '' INT TERM HUP
setpriv --pdeathsig KILL "${@//DIRECTORY/$directory}" </dev/null >"$directory/log" 2>&1 &
server=$!
echo "$server $directory"
read -r _
"""

# As it comes, but that it listens on nothing but the socket and writes nothing to disk.
OPTIONS = ["--port", "0", "--unixsocket", "DIRECTORY/socket", "--dir", "DIRECTORY", "--save", "",
           "--appendonly", "no", "--daemonize", "no"]


class Server:
    def __init__(self, program):
        self.guardian = subprocess.Popen(
            ["/bin/bash", "-c", GUARDIAN, "stint-bench", program, *OPTIONS], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True)
        try:
            pid, _, directory = self.guardian.stdout.readline().rstrip("\n").partition(" ")
            if not directory:
                raise Failed("a temporary directory cannot be made (TMPDIR)")
            self.pid, self.directory = int(pid), Path(directory)
            self.socket = str(self.directory / "socket")
            if not self.listens():
                raise Failed(f"{program} does not start: {self.last_words()}")
        except BaseException:
            self.stop()
            raise

    def listens(self):
        """Waits until it does."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.runs():
            with socket.socket(socket.AF_UNIX) as client:
                try:
                    client.connect(self.socket)
                    return True
                except OSError:
                    time.sleep(0.01)
        return False

    def runs(self):
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] not in "ZX"

    def last_words(self):
        said = (self.directory / "log").read_text(errors="replace").strip()
        return said.splitlines()[-1] if said else "it says nothing"

    def stop(self):
        """Nothing of it is left when this returns."""
        self.guardian.stdin.close()
        self.guardian.wait()
        self.guardian.stdout.close()
