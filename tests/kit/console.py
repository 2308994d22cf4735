# SPDX-License-Identifier: MIT
"""What documents say that commands print."""
import re
import subprocess


def sections(page, place):
    """Title to the commands of a section of a page, with what they print: those of blocks that have the place."""
    found = {}
    for section in page.split("\n## ")[1:]:
        for block in re.findall(r"^```console\n(.*?)^```", section, re.DOTALL | re.MULTILINE):
            if place in block:
                found.setdefault(section.partition("\n")[0], []).extend(
                    (command, expected) for command, _, expected in
                    (part.partition("\n") for part in ("\n" + block).split("\n$ ")[1:]))
    return found


def shape(text):
    """Numbers, times and hashes are told apart by nothing; so are columns."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "HASH", text)
    text = re.sub(r"[-+\d.,:]*\d( (d|h|min|s|ms|us|ns)\b)?( \d+ (h|min|s|ms|us|ns)\b)*", "N", text)
    return [" ".join(re.sub(r"[#.]{24}", "BAR", line).split()) for line in text.splitlines()]


def check(case, command, expected, place, real, environment):
    """Runs a command of a document, whose paths begin with `place`, at the real one. It must print what the
    document says, and fail if that is what it says."""
    done = subprocess.run(command.replace(place, real), shell=True, env=environment, capture_output=True, text=True,
                          timeout=20)
    told = (done.stdout + done.stderr).replace(real, place)
    told = re.sub(r"^Not seen .*\n", "", told, flags=re.MULTILINE)  # as the machine is
    case.assertEqual(shape(told), shape(expected), f"{command}\n{told}")
    failed = re.search(r"^stint \w+: |\Arefused: ", told, re.MULTILINE)
    case.assertEqual(done.returncode, bool(failed), f"{command}\n{told}")
