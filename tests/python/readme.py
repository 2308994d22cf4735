# SPDX-License-Identifier: MIT
"""The programs of src/python/README.md. Those of servers are run by workers.py."""
import os
import re
import sys
import unittest
from pathlib import Path

import commands

README = Path(os.environ["STINT_SOURCE"]) / "src" / "python" / "README.md"


def blocks():
    """The code blocks in order: language and text of each."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)


def program(name):
    """The one that begins with its file's name."""
    [found] = [text for language, text in blocks() if language == "python" and text.startswith(f"# {name}\n")]
    return found


def placed(text, directory):
    """With the table elsewhere: others run this test, too."""
    return text.replace("/run/app/", f"{directory}/")


class Readme(commands.Case):
    def test_programs(self):
        """Each prints the block after it; the others have a file's name, for a server."""
        run, servers = 0, 0
        found = blocks()
        for (language, text), (after, printed) in zip(found, found[1:]):
            if language != "python":
                continue
            if text.startswith("# with_"):
                servers += 1
                continue
            self.assertEqual(after, "text")
            directory = self.directory / str(run)
            directory.mkdir()
            told = commands.must(sys.executable, "-W", "error", "-c", placed(text, directory))
            self.assertEqual(re.sub(r"\d+ s\b", "N s", told), re.sub(r"\d+ s\b", "N s", printed))
            run += 1
        self.assertEqual((run, servers), (4, 3))

    def test_second_run_is_refused(self):
        first = placed(blocks()[0][1], self.directory)
        commands.must(sys.executable, "-c", first)
        self.assertNotIn("allowed", commands.must(sys.executable, "-c", first))


if __name__ == "__main__":
    unittest.main()
