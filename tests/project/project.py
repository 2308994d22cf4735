#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The project as its users get it: the header alone, the symbols, what is installed, the documents'
programs word for word, stint inside another meson project.

    project.py SOURCE BUILD MESON CC [TEST...]
"""
import collections
import json
import os
import re
import shlex
import shutil
import sys
import unittest
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / name) for name in ("kit", "protocol")]
import commands  # noqa: E402
import mutants  # noqa: E402
from commands import must  # noqa: E402

SOURCE, BUILD = Path("."), Path("build")
MESON, CC = "meson", "cc"
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]

ANSWER = "allowed 1, refused 1\n"
PROGRAM = """
#include <stint.h>
#include <stdio.h>

int main(void) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_limiter *limiter;
    options.max_entries = 10;
    if (stint_open(&options, &limiter) != 0 || stint_policy_parse("1/day", &policy, NULL) != 0 ||
        stint_policy_add(limiter, &policy, NULL) != 0)
        return 1;
    int allowed = stint_take(limiter, 0, STINT_KEY_GLOBAL, 1, 86400000000000, NULL);
    int refused = !stint_take(limiter, 0, STINT_KEY_GLOBAL, 1, 86400000000000, NULL);
    printf("allowed %d, refused %d\\n", allowed, refused);
    stint_close(limiter);
    return 0;
}
"""

# Takes 7 of a key's tokens in a table, or only looks.
OPENS = """
#include <stint.h>
#include <stdio.h>

int main(int argc, char **argv) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_limiter *limiter = NULL;
    struct stint_verdict verdict;
    const int read = argc > 2 && argv[2][2] == 'a';
    options.path = argv[1];
    options.max_entries = 10;
    if (read)
        options.flags = STINT_READ_ONLY;
    else if (argc > 2 && stint_resize(argv[1], NULL) != 0)
        return 1;
    if (stint_open(&options, &limiter) != 0 ||
        (!read && (stint_policy_parse("100/366d name=a", &policy, NULL) != 0 ||
                   stint_policy_add(limiter, &policy, NULL) != 0)))
        return printf("%s\\n", stint_reason()) < 0;
    struct stint_request request = {.key = STINT_KEY_GLOBAL, .cost = 7, .flags = read ? STINT_PEEK : 0};
    (void)stint_decide(limiter, &request, STINT_NOW, &verdict);
    printf("%u used\\n", (unsigned)verdict.used);
    stint_close(limiter);
    return 0;
}
"""

# PROGRAM by a function that decides in one place, as servers have it.
INLINED = PROGRAM.replace("int main(void) {", """
int decide(struct stint_limiter *limiter, const char *name);
int decide(struct stint_limiter *limiter, const char *name) {
    return stint_take(limiter, 0, stint_key_of(limiter, name, 16), 1, 86400000000000, NULL);
}

int main(void) {
    int (*volatile function)(struct stint_limiter *, const char *) = decide; /* of which nothing is known */
""", 1).replace("stint_take(limiter, 0, STINT_KEY_GLOBAL, 1, 86400000000000, NULL);",
                'function(limiter, "0123456789abcdef");')

def header():
    return (SOURCE / "include" / "stint.h").read_text()


def project_version():
    return re.search(r"version: '([\d.]+)'", (SOURCE / "meson.build").read_text())[1]


def interface():
    """What two versions must have in common to be exchanged: in the soname, and in symbols."""
    major, minor, _ = project_version().split(".")
    return f"0.{minor}" if major == "0" else major


def public_functions():
    """What stint.h declares."""
    found = re.findall(r"^STINT_API\b[^;(]*?(\w+)\(", header(), re.MULTILINE)
    assert len(found) == len(re.findall(r"^STINT_API\b", header(), re.MULTILINE))
    return sorted(found)


def plain_constants():
    """Numbers that stint.h defines, and their text."""
    found = re.findall(r"^#define (STINT_[A-Z0-9_]+) +(.*?)(?: +/\*.*)?$", header(), re.MULTILINE)
    return {name: value for name, value in found if re.match(r"[\d(]", value) and name != "STINT_KEY_GLOBAL"}


def documents():
    """Every document of the project."""
    found = [path for path in sorted(SOURCE.rglob("*.md"))
             if not any(part.startswith((".", "build")) or part in ("subprojects", "node_modules")
                        for part in path.relative_to(SOURCE).parts)]
    assert SOURCE / "README.md" in found
    return found


def blocks(document):
    """Its code blocks in order: language and text of each."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)


def blocks_of(language):
    """The blocks of that language in all documents."""
    return [text for document in documents() for name, text in blocks(document) if name == language]


def anchors(document):
    """What a link into the document may name: each heading as GitHub does it."""
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Case(commands.Case):
    def compiled(self, name, text, *options, compiler=None, library=None):
        """The program of this source, with the library of the build if no other is given, or among the options."""
        program = self.directory / Path(name).stem
        if "-lstint" not in options:
            options += "-I", SOURCE / "include", library or BUILD / "src" / "libstint.a"
        must(*shlex.split(compiler or CC), *STRICT, self.write(name, text), "-o", program, *options,
             "-pthread")
        return program

    def printed(self, name, body):
        """What these lines of C print."""
        return must(self.compiled(name, "#include <stint.h>\n#include <stdio.h>\nint main(void) {\n"
                                  f"    struct stint_options options = STINT_OPTIONS_INIT;\n{body}"
                                  "    return options.size == 0;\n}\n", "-O2"))

    def linked(self, name, text, *options, **more):
        """The program of this source, with the library that is installed."""
        return self.compiled(name, text, *options, *self.pkg_config(self.environment, "--cflags", "--libs"), **more)

    def cxx(self):
        """The C++ compiler."""
        cxx = os.environ.get("CXX", "g++")
        self.need(shlex.split(cxx)[0])
        return cxx

    def install(self):
        """Installs the build. Returns the environment in which pkg-config finds only that."""
        self.destination = self.directory / "installed"
        environment, self.libraries = commands.installed(MESON, BUILD, self.destination)
        self.environment = {**os.environ, **environment}
        self.running = {**os.environ, "LD_LIBRARY_PATH": str(self.libraries)}
        return self.environment

    def built(self, build, source, *options, **environment):
        environment = {**os.environ, "CC": CC, **environment}
        must(MESON, "setup", build, source, *options, env=environment)
        must(MESON, "compile", "-C", build, env=environment)

    def pkg_config(self, environment, *options):
        return shlex.split(must("pkg-config", *options, "stint", env=environment))


class Header(Case):
    def check(self, text, *options):
        must(*shlex.split(CC), *options, *STRICT, "-I", SOURCE / "include", "-c", self.write("alone.c", text), "-o", os.devnull)

    def test_alone_in_c(self):
        """In any C, twice, and with the warnings of others."""
        for options in (["-std=c11"], ["-std=gnu11"], ["-std=c17"],
                        ["-std=c11", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wundef"]):
            self.check("#include <stint.h>\n" * 2 + "extern int unused;\n", *options)

    def test_no_function_has_the_name_of_a_type(self):
        """In C++ that is one name."""
        types = re.findall(r"^(?:struct|enum) (stint_\w+)", header(), re.MULTILINE)
        self.assertIn("stint_stats", types)
        self.assertEqual(set(types) & set(public_functions()), set())

    def test_each_struct_with_a_size_may_be_larger(self):
        """tests/api/api.c tries each with what a later version has behind its end."""
        sized = re.findall(r"^struct stint_(\w+) \{\n    size_t size;", header(), re.MULTILINE)
        tried = re.findall(r"STRUCT_LATER\(stint_(\w+),", (SOURCE / "tests" / "api" / "api.c").read_text())
        self.assertEqual(set(sized) - {"change"}, set(tried))  # that one is the library's own

    def test_constants_are_plain(self):
        """Generators of bindings read numbers, not casts or macros of C."""
        constants = plain_constants()
        self.assertEqual(constants["STINT_NEVER"], "18446744073709551615ULL")
        self.assertGreater(len(constants), 15)
        for name, value in constants.items():
            self.assertRegex(value, r"^\d+(U|ULL)?$", name)

    def test_programs_of_its_comments(self):
        """And those of doc/promises.md: they compile without a warning, among names that they leave to their reader."""
        promises = re.sub("^(?=    |$)", " * ", (SOURCE / "doc" / "promises.md").read_text(), flags=re.MULTILINE)
        programs = [program for program in re.findall(r"((?:^ *\*(?: |     .*)?\n|^ *\*     .*\*/\n)+)", header() + promises,
                                                      re.MULTILINE)
                    if re.search(r"\bstint_\w+\(.*;", program)]
        self.assertEqual(len(programs), 2)
        for number, program in enumerate(programs):
            program = re.sub(r"^ *\* ?|\*/$", "", program, flags=re.MULTILINE).replace("(...)", "()")
            self.check(f"""#include <stint.h>
extern struct stint_limiter *limiter;
extern struct stint_verdict verdict, verdicts[2];
extern const char *client;
extern size_t client_length;
extern stint_key user;
extern uint32_t ten_at_once, per_minute, failed_logins;
void give_up(const char *why), refuse_with_retry_after(uint64_t ns), work(void);
int refuse(const struct stint_verdict *), too_many_failures(const struct stint_verdict *),
    try_later(const struct stint_verdict *), password_is_right(void), serve{number}(void);
int serve{number}(void) {{
{program}
    return 0;
}}
""", "-std=c11")

    def test_every_null_is_tried(self):
        """By each pointer that is not marked as never NULL, tests/api/api.c makes a call with NULL."""
        def arguments(text):
            return [argument.strip() for argument in re.sub(r"\([^()]*\)", "", text).split(",")]

        tests = (SOURCE / "tests" / "api" / "api.c").read_text()
        calls = {name: [] for name in public_functions()}
        for name, given in re.findall(r"\b(stint_\w+)\(((?:[^()]|\([^()]*\))*)\)",
                                      tests[tests.index("/* ---- NULL "):tests.index("/* ---- Messages ")]):
            calls.get(name, []).append(arguments(given))
        pointers = 0
        for name, taken, marks in re.findall(r"^STINT_API\b[^;(]*?(\w+)\(((?:[^()]|\([^()]*\))*)\)([^;]*);", header(),
                                             re.MULTILINE):
            never = [int(number) for mark in re.findall(r"NONNULL\(([^)]*)\)", marks) for number in mark.split(",")]
            taken = re.sub(r"\(\*(\w+)\)", r"*\1", taken)  # a callback
            for at, argument in enumerate(arguments(taken)):
                if "*" in argument and at + 1 not in never:
                    pointers += 1
                    self.assertIn("NULL", [call[at] for call in calls[name]], f"{name}: {argument}")
        self.assertGreater(pointers, 60)

    def test_cxx(self):
        """Alone, and every function and initialiser used and linked."""
        names = public_functions()
        text = "#include <stint.h>\n#include <cstdio>\n\nint main() {\n"
        text += "    void (*volatile function)();\n"
        initialisers = re.findall(r"^#define STINT_(\w+)_INIT\b", header(), re.MULTILINE)
        self.assertIn("OPTIONS", initialisers)
        for name in initialisers:
            text += f"    struct stint_{name.lower()} {name.lower()} = STINT_{name}_INIT;\n"
            text += f"    if ({name.lower()}.size != sizeof({name.lower()}))\n        return 1;\n"
        text += "    const struct stint_request requests[] = {STINT_REQUEST(2, STINT_KEY_GLOBAL, 1), STINT_REQUEST(2, (stint_key{3}), 1)};\n"
        text += "    if (requests[1].key.hash != 3 || requests[1].policy != 2 || requests[1].cost != 1)\n"
        text += "        return 2;\n"
        for name in plain_constants():
            text += f"    if ({name} + 1 < 1)\n        std::puts(\"{name} is the largest\");\n"
        for name in names:
            text += f"    function = reinterpret_cast<void (*)()>(&{name});\n"
            text += '    std::printf("%d\\n", function != nullptr);\n'
        text += "    return 0;\n}\n"
        for standard in "c++11", "c++17", "c++20":
            program = self.compiled("all.cc", text, f"-std={standard}", "-Wold-style-cast",
                                    compiler=self.cxx())
            self.assertEqual(must(program), "STINT_NEVER is the largest\n" + "1\n" * len(names))


class Misuse(Case):
    """Natural mistakes, and what compilers say of them, without any option for warnings."""

    FOUND = {
        "a number as a key": "stint_take(limiter, policy, 7, 1, STINT_NOW, &verdict);",
        "policy and key swapped": "stint_take(limiter, key, policy, 1, STINT_NOW, &verdict);",
        "a policy's name as its id": "stint_take(limiter, name, key, 1, STINT_NOW, &verdict);",
        "no now": "stint_take(limiter, policy, key, 1, &verdict);",
        "an id in a request": "struct stint_request request = STINT_REQUEST(policy, user, 1); (void)request;",
        "an id put into a request": "request.key = user;",
        "an id joined to": "key = stint_key_join(limiter, user, name, 1);",
        "an id for bytes": "key = stint_key_of(limiter, user, 8);",
        "bytes for an id": "key = stint_key_of_id(limiter, name);",
        "keys compared": "if (key == STINT_KEY_GLOBAL) return;",
        "STINT_NOW as a cost": "stint_take(limiter, policy, key, STINT_NOW, 1, &verdict);",
        "STINT_NOW as a request's cost": "request.cost = STINT_NOW;",
    }
    # With the usual warnings: an error that nobody looks at, and NULL where it would crash.
    WARNED = {
        "a limiter that may not be there": "stint_open(NULL, NULL);",
        "a policy that may not be there": "stint_policy_add(NULL, NULL, NULL);",
        "a take by nobody": "stint_take(NULL, 0, STINT_KEY_GLOBAL, 1, STINT_NOW, NULL);",
        "a batch by nobody": "stint_decide_batch(NULL, NULL, 0, STINT_NOW, NULL);",
    }
    ARRAY = {"no verdicts": "stint_tightest(NULL, 2);"}  # which gcc alone sees
    RIGHT = {
        "a take": "stint_take(limiter, policy, key, 1, STINT_NOW, &verdict);",
        "a user": "stint_take(limiter, policy, stint_key_of_id(limiter, user), 1, STINT_NOW, NULL);",
        "all": "stint_take(limiter, policy, STINT_KEY_GLOBAL, 1, STINT_NOW, &verdict);",
        "a request": "struct stint_request all = STINT_REQUEST(policy, STINT_KEY_GLOBAL, 1); request = all;",
        "a key put into a request": "request.key = STINT_KEY_GLOBAL;",
        "keys compared": "if (stint_key_equal(key, STINT_KEY_GLOBAL)) return;",
        "no limiter closed": "stint_close(NULL);",
        "none of no verdicts": "stint_tightest(NULL, 0); stint_headers(NULL, 0, NULL, 0, NULL, 0);",
    }

    TAKES = ("struct stint_limiter *limiter, uint32_t policy, uint64_t user, const char *name, stint_key key, "
             "struct stint_verdict verdict, struct stint_request request")

    def told(self, compiler, statements, *options):
        """What the compiler says of a function of each statement, and the lines of it that it speaks of."""
        name = "misuse.cc" if "++" in compiler else "misuse.c"
        used = "".join(f"(void){word}; " for word in re.findall(r"(\w+)(?:,|$)", self.TAKES))
        source = self.write(name, "#include <stint.h>\n" + "".join(
            f"void call{n}({self.TAKES}); void call{n}({self.TAKES}) {{ {used}{statement} }}\n"
            for n, statement in enumerate(statements)))
        said = commands.run(compiler, *options, "-I", SOURCE / "include", "-c", source, "-o", os.devnull).stderr
        return said, {int(line) - 2 for line in re.findall(rf"{re.escape(name)}:(\d+):\d+: ", said)}

    def test_compilers(self):
        """Errors in C++; in C some are warnings, which any compiler has without being asked."""
        usual = ["-Wall", "-Wextra"]
        for compiler, standard in ("gcc", "c11"), ("clang", "c11"), ("g++", "c++14"), ("clang++", "c++14"):
            if compiler.startswith("clang") and shutil.which(compiler) is None:
                continue
            clang = "clang" in compiler
            for found, options in (self.FOUND, ["-ferror-limit=0"] * clang), (self.WARNED, usual), ({} if clang else self.ARRAY, usual):
                with self.subTest(compiler=compiler):
                    said, lines = self.told(compiler, found.values(), f"-std={standard}", *options)
                    self.assertEqual([what for n, what in enumerate(found) if n not in lines], [], said)
            self.assertEqual(self.told(compiler, self.RIGHT.values(), f"-std={standard}", *STRICT)[0], "")


class Symbols(Case):
    def test_shared_library_has_the_functions_of_the_header_and_nothing_else(self):
        lines = must("nm", "-D", "--defined-only", BUILD / "src" / "libstint.so").splitlines()
        names = [line.split()[-1] for line in lines]
        version = "STINT_" + interface()
        self.assertEqual(sorted(names), [version] + [f"{name}@@{version}" for name in public_functions()])

    def test_attacks_make_every_call_on_a_limiter(self):
        attacks = "".join((SOURCE / "tests" / name).read_text() for name in ("api/attacks.c", "kit/hostile.h"))
        takers = re.findall(r"^STINT_API\b[^;(]*?(\w+)\([^;]*?struct stint_limiter \*", header(),
                            re.MULTILINE)
        self.assertGreater(len(takers), 25)
        self.assertEqual([name for name in takers if name + "(" not in attacks], [])

    def test_static_library_takes_no_name_of_its_users(self):
        lines = must("nm", "-g", "--defined-only", BUILD / "src" / "libstint.a").splitlines()
        names = [line.split()[2] for line in lines if len(line.split()) == 3]
        self.assertLessEqual(set(public_functions()), set(names))
        self.assertEqual([name for name in names if not name.startswith("stint_")], [])

    def test_shared_library_needs_only_the_c_library(self):
        dynamic = must("readelf", "-d", BUILD / "src" / "libstint.so")
        for needed in re.findall(r"NEEDED.*\[(.*)\]", dynamic):
            self.assertRegex(needed, r"^(libc|ld-linux.*|libpthread)\.so")


class Install(Case):
    def test_files(self):
        self.install()
        version = project_version()
        names = sorted(path.name for path in self.destination.rglob("*") if not path.is_dir())
        nginx = ["mod-http-stint.conf", "nginx-stint.conf", "ngx_http_stint_module.so"]  # if that option is on
        if not (BUILD / "src" / "nginx" / nginx[-1]).exists():
            nginx = []
        # The command, its completions, its page.
        tool = (["stint", "stint", "_stint", "stint.fish", "stint.1"] if (BUILD / "src" / "tool" / "stint").exists() else [])
        nodes = [path.name for path in (SOURCE / "doc" / "nodes").iterdir()]
        pages = must("python3", SOURCE / "doc" / "man3.py", "--list",
                     SOURCE / "include" / "stint.h").split()
        self.assertIn("stint_take.3", pages)
        self.assertEqual(names, sorted(nginx + tool + pages + nodes + ["stint-promises.7"] + [
            "stint.h", "stint.lua", "stint.pc", "stintConfig.cmake",
            "stintConfigVersion.cmake", "libstint.a", "libstint.so",
            f"libstint.so.{interface()}", f"libstint.so.{version}"]))
        [installed] = self.destination.rglob("stint.h")
        self.assertEqual(installed.read_text(), header())

    def test_shared(self):
        self.install()
        program = self.linked("program.c", PROGRAM, "-std=c11")
        soname = "libstint.so." + interface()
        self.assertIn(f"[{soname}]", must("readelf", "-d", program))
        self.assertRegex(must("readelf", "-d", self.libraries / soname),
                         rf"SONAME.*\[{re.escape(soname)}\]")
        self.assertEqual(must(program, env=self.running), ANSWER)

    def test_static(self):
        program = self.compiled("program.c", PROGRAM, "-std=c11", "-static",
                                *self.pkg_config(self.install(), "--cflags", "--libs", "--static"))
        self.assertNotIn("NEEDED", must("readelf", "-d", program))
        self.assertEqual(must(program), ANSWER)

    def test_version(self):
        numbers = re.findall(r"^#define STINT_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)$", header(),
                             re.MULTILINE)
        self.assertEqual(".".join(numbers), project_version())
        self.assertEqual(self.pkg_config(self.install(), "--modversion"), [project_version()])
        self.assertEqual(self.printed("version.c", """
    printf("%s %d\\n", stint_version(), STINT_VERSION - STINT_VERSION_MAJOR * 1000000 -
           STINT_VERSION_MINOR * 1000 - STINT_VERSION_PATCH);
"""), project_version() + " 0\n")


class Readme(Case):
    """All documents: README.md and those that it leads to."""

    def test_length(self):
        self.assertLessEqual(len((SOURCE / "README.md").read_text().splitlines()), 250)

    def test_examples(self):
        """Each C block is a program, and the block after it is the text that it prints."""
        def without_times(text):
            return re.sub(r"\d+ s\b", "N s", text)

        self.install()
        programs = 0
        for document in documents():
            found = blocks(document)
            for (language, example), (after, text) in zip(found, found[1:] + [("", "")]):
                if language != "c":
                    continue
                with self.subTest(document=document.name, number=programs):
                    # Its table is this test's own: others run this test, too, and some are killed.
                    example = example.replace('"/dev/shm/', f'"{self.directory}/')
                    printed = must(self.linked(f"example{programs}.c", example, "-std=c11"), env=self.running)
                    self.assertEqual(after, "text")
                    self.assertEqual(without_times(printed), without_times(text))
                programs += 1
        self.assertEqual(programs, 6)

    def test_what_can_never_fit(self):
        """The first program tells of it, when its request asks for more than the limit."""
        [program] = [text for language, text in blocks(SOURCE / "README.md") if language == "c"]
        program = program.replace("client, 1, STINT_NOW", "client, 5, STINT_NOW")
        self.assertEqual(must(self.compiled("never.c", program, "-std=c11")), "refused\n" * 4)

    def test_memory(self):
        """A table takes no more than README.md says, whatever its keys are."""
        [(each, mb, percent)] = re.findall(r"([\d.]+) bytes for each entry, and at most\s+([\d.]+) MB or ([\d.]+)%"
                                           r"\s+besides", (SOURCE / "README.md").read_text())
        self.assertEqual(self.printed("memory.c", f"""
    for (double keys = 1; keys < 1e11; keys *= 1.003) {{
        options.max_entries = (uint64_t)keys;
        double pairs = {each} * (double)options.max_entries, besides = (double)stint_memory_size(&options) - pairs;
        if (besides > {mb}e6 && besides > pairs * {percent} / 100)
            printf("%.0f besides %.0f\\n", besides, pairs);
    }}
"""), "")

    def test_sizing(self):
        """A table of as many entries as README.md says has room for all of these clients, whatever its secret is."""
        [numbers] = re.findall(r"([\d,]+) clients under three policies are ([\d,]+) entries",
                               (SOURCE / "README.md").read_text())
        clients, entries = (int(number.replace(",", "")) for number in numbers)
        self.assertEqual(entries, clients * 3 * 5 / 4)
        self.assertEqual(self.printed("sizing.c", f"""
    unsigned char secret[STINT_SECRET_SIZE];
    uint64_t x = 1;
    for (int round = 0; round < 10; round++) {{
        struct stint_stats stats = STINT_STATS_INIT;
        struct stint_limiter *limiter;
        for (size_t i = 0; i < sizeof(secret); i++) {{
            x = x * 6364136223846793005u + 1442695040888963407u;
            secret[i] = (unsigned char)(x >> 56);
        }}
        options.max_entries = {entries};
        options.secret = secret;
        if (stint_open(&options, &limiter) != 0 ||
            stint_policies_apply(limiter, "5/day\\n9/week\\n99/month", 0, NULL, NULL, NULL) != 0)
            return 1;
        for (uint64_t client = 1; client <= {clients}; client++)
            for (uint32_t policy = 0; policy < 3; policy++)
                stint_take(limiter, policy, stint_key_of_id(limiter, client), 1, STINT_NOW, NULL);
        if (stint_stats_get(limiter, &stats) != 0)
            return 2;
        if (stats.live != 3 * {clients} || stats.untracked != 0)
            printf("round %d: %llu of %llu, untracked %llu\\n", round, (unsigned long long)stats.live,
                   3ull * {clients}, (unsigned long long)stats.untracked);
        stint_close(limiter);
    }}
"""), "")

    def test_one_description(self):
        """Whoever asks what stint is reads the same words."""
        description = re.search(r"^ \* stint: a (.*)\.$", header(), re.MULTILINE)[1]
        what, kinds = description.split(": ")
        self.install()
        [page] = self.destination.rglob("stint.3")
        [pc] = self.destination.rglob("stint.pc")
        self.assertIn(f".Nd {description}\n", page.read_text())
        self.assertIn(f"Description: {description}\n", pc.read_text())
        for name in "rust/Cargo.toml", "python/pyproject.toml":
            self.assertIn(f"The C library stint, a {description}", (SOURCE / "src" / name).read_text())
        self.assertIn(f"\nstint is a {description}.", (SOURCE / "README.md").read_text())
        self.assertIn(kinds, (SOURCE / "src" / "nginx" / "README.md").read_text().split("\n\n")[1])
        packages = re.sub(r"\s+", " ", (SOURCE / "packaging" / "debian" / "control").read_text()).split("Description: ")[1:]
        self.assertGreater(len(packages), 4)
        for package in packages:
            self.assertIn("lock-free", package)
            self.assertIn(kinds, package)
        self.assertIn(f"Description: {what} (shared library)", (SOURCE / "packaging" / "debian" / "control").read_text())

    def test_flags_of_verdicts(self):
        """The table of what a verdict tells has each."""
        flags = re.search(r"^enum stint_verdict_flags \{(.*?)^\};", header(), re.MULTILINE | re.DOTALL)[1]
        flags = re.findall(r"^    (STINT_\w+) =", flags, re.MULTILINE)
        self.assertGreater(len(flags), 8)
        [row] = re.findall(r"^\| `flags` \|.*", (SOURCE / "doc" / "embedding.md").read_text(), re.MULTILINE)
        self.assertEqual([flag for flag in flags if f"`{flag}`" not in row], [])

    def test_minutes_of_tests(self):
        """All documents say the same."""
        text = {name: re.sub(r"\s+", " ", (SOURCE / name).read_text())
                for name in ("README.md", "CONTRIBUTING.md", "tests/run")}
        minutes = [re.findall(r"(\d+) minutes altogether", text["README.md"]),
                   re.findall(r"in (\d+) minutes altogether", text["tests/run"]),
                   re.findall(r"--all # what CI runs \(.ci/run\): (\d+) minutes", text["CONTRIBUTING.md"]),
                   re.findall(r"builds eight times, and takes (\d+) minutes", text["CONTRIBUTING.md"])]
        self.assertEqual(minutes, minutes[:1] * 4)
        self.assertEqual(len(minutes[0]), 1)

    def test_examples_in_cxx(self):
        """Those of README.md are C++11 and C++20."""
        for language, example in blocks(SOURCE / "README.md"):
            for standard in ["-std=c++11", "-std=c++20"] if language == "c" else []:
                must(*shlex.split(self.cxx()), standard, *STRICT, "-I", SOURCE / "include",
                     "-fsyntax-only", self.write("example.cc", example))

    def test_reports_on_logs(self):
        """The reports that the documents show, but for their speed."""
        tool = BUILD / "src" / "tool" / "stint"
        if not tool.exists():
            self.skipTest("the command was not built")

        def without_speed(text):
            return re.sub(r"Speed +[\d,]+", "Speed N", text).strip()

        shown = dict(block.split("\n", 1) for block in blocks_of("console")
                     if re.match(r"\$ stint (advise|replay) (\S+ )*tests/data/", block))
        self.assertEqual(len(shown), 2)
        for command, report in shown.items():
            self.assertEqual(without_speed(report),
                             without_speed(must(tool, *shlex.split(command)[2:], cwd=SOURCE)))

    def test_which_limit(self):
        """The table of the page is what its program prints, and the picture was drawn of the same counts."""
        page, drawn = (SOURCE / "doc" / f"which-limit.{end}" for end in ("md", "svg"))
        program = self.compiled("which-limit.c", (SOURCE / "doc" / "which-limit.c").read_text(), "-std=c11", "-O2")
        self.assertIn(("text", must(program)), blocks(page))
        labels = re.findall(r"^set label '(\d+)'", must(program, "picture"), re.MULTILINE)
        self.assertEqual(labels, re.findall(r"<text>(\d+)</text>", drawn.read_text()))

    def test_notations(self):
        """Every policy in a table of the notation is one."""
        policies = [policy for document in documents()
                    for cell in re.findall(r"^\| (`\d[^|]*) \|", document.read_text(), re.MULTILINE)
                    for policy in re.findall(r"`([^`]*)`", cell)]
        self.assertGreater(len(policies), 15)
        texts = "".join(f'"{policy}", ' for policy in policies)
        self.assertEqual(self.printed("notations.c", f"""
    static const char *const texts[] = {{{texts}}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {{
        struct stint_policy policy = STINT_POLICY_INIT;
        if (stint_policy_parse(texts[i], &policy, NULL) != 0)
            printf("%s: not a policy\\n", texts[i]);
    }}
"""), "")

    def test_links(self):
        """What a document links to or names in the repository is there, the headings too."""
        for document in documents():
            for link in re.findall(r"\]\((?!https?:)([^)]+)\)", document.read_text()):
                name, _, anchor = link.partition("#")
                target = (document.parent / name).resolve() if name else document
                with self.subTest(document=document.name, link=link):
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(target))
            for name in re.findall(r"`((?:src|tests|bench|include|doc)/[\w./-]+)", document.read_text()):
                with self.subTest(document=document.name, name=name):
                    self.assertTrue((SOURCE / name).exists())
        for name in "bench/run", "tests/run", "tests/data/access.log.gz":
            self.assertTrue((SOURCE / name).exists(), name)


    def test_packages(self):
        """Why tests/run installs a package is said in one of the documents beside what needs it."""
        lists = re.findall(r"packages\+?=\((.*?)\)$", (SOURCE / "tests" / "run").read_text(),
                           re.MULTILINE | re.DOTALL)
        packages = " ".join(lists).split()
        self.assertGreater(len(packages), 25)
        said = "".join((SOURCE / name / "README.md").read_text() for name in ("tests", "bench"))
        self.assertEqual([name for name in packages if name not in said], [])


# For what is as true of a library that is compiled in less time. `Optimized` has the others.
QUICK = ["-Doptimization=1", "-Dstint:optimized=false"]


class Inside(Case):
    """A part of another project."""
    program = PROGRAM

    def outer(self, project):
        """Its files. Of stint it has what the library needs, and the tests and benchmark that
        must not be built. The system has no other -dev packages, and so no stint either."""
        self.write("main.c", self.program)
        self.write("meson.build", project)
        inside = self.directory / "subprojects" / "stint"
        for name in "include", "src", "doc", "tests", "bench":
            shutil.copytree(SOURCE / name, inside / name)
        for name in "meson.build", "meson_options.txt":
            shutil.copy(SOURCE / name, inside)

        system = self.directory / "system"
        system.mkdir()
        for name in "ck", "libxxhash":
            where = must("pkg-config", "--variable=pcfiledir", name).strip()
            shutil.copy(Path(where) / f"{name}.pc", system)
        self.alone = {"PKG_CONFIG_LIBDIR": str(system)}


class Subproject(Inside):
    """As the README says."""

    def build(self, *options):
        build = self.directory / "build"
        self.built(build, self.directory, *options, **self.alone)
        self.assertEqual(must(build / "main"), ANSWER)
        for unwanted in "stint", "stint-bench", "test-api":
            self.assertEqual([path for path in build.rglob(unwanted) if path.is_file()], [])

    def test_as_the_readme_says(self):
        [line] = blocks_of("meson")
        self.outer("project('outer', 'c', default_options: ['c_std=c11', 'warning_level=3'])\n" + line
                   + "executable('main', 'main.c', dependencies: stint)\n")
        self.build("--werror", "-Ddefault_library=static", *QUICK)

    def test_the_library_alone(self):
        """What the tests and the benchmark need may be missing."""
        self.outer("")
        build = self.directory / "build"
        self.built(build, SOURCE, "-Dtests=false", "-Dbench=false", "-Doptimization=0", **self.alone)
        self.assertTrue((build / "src" / "libstint.so").exists())
        self.assertFalse((build / "tests").exists() or (build / "bench").exists())

    def installed(self, *options):
        """What the parent installs, a program of its own among it."""
        self.outer("project('outer', 'c', default_options: 'optimization=3')\n"
                   "executable('main', 'main.c', install: true,\n"
                   "  dependencies: dependency('stint'))\n")
        self.build(*options)
        destination = self.directory / "destination"
        must(MESON, "install", "-C", self.directory / "build", "--quiet", "--destdir", destination)
        return sorted(path.name for path in destination.rglob("*") if not path.is_dir())

    def test_one_call_is_inlined(self):
        """The parent links the static library, and link-time optimisation sees into it: a call that
        stands in one place of the program is built into it, with all that is known there."""
        self.program = INLINED
        self.assertEqual(self.installed("-Db_lto=true"), ["main"])  # stint is not installed with it
        main = self.directory / "build" / "main"
        self.assertNotIn("libstint", must("readelf", "-d", main))
        instructions = must("objdump", "-d", "--no-show-raw-insn", "--disassemble=decide", main)
        if os.uname().machine == "x86_64":
            self.assertIn("lock ", instructions)  # the token is taken right here
        called = set(re.findall(r"\b(?:call|jmp) .*<(\w+)(?:\.[\w.]+)?>", instructions))
        self.assertGreater(len(called), 2, instructions)
        for name in called:  # the exceptions: another slot, a race, a full table
            self.assertNotRegex(name, r"^(stint_take$|stint_key_of|stint_decide|XXH)")
        shared = f"libstint.so.{project_version()}"
        self.assertEqual(list((self.directory / "build").rglob(shared)), [])

    def test_shared_and_installed_if_asked(self):
        installed = self.installed("-Dstint:default_library=shared", "-Dstint:install=enabled", *QUICK)
        self.assertLessEqual({"main", "stint.h", "stint.pc", "libstint.a", "libstint.so"},
                             set(installed))
        self.assertIn("libstint", must("readelf", "-d", self.directory / "build" / "main"))


class Optimized(Inside):
    """The library in a project that is built for debugging."""

    def instructions(self, build):
        """Those of each function of the library that was built there."""
        [library] = [path for path in build.rglob("libstint.a") if path.is_file()]
        functions = {}
        for text in must("objdump", "-d", "--no-show-raw-insn", library).split("\n\n"):
            for name, body in re.findall(r"^[0-9a-f]+ <(\w+)>:\n(.*)", text, re.DOTALL):
                found = re.findall(r"^ +[0-9a-f]+:\s+(.*?)\s*$", body, re.MULTILINE)
                functions[name] = sorted(functions.get(name, []) + [found])  # files may share a name
        return functions

    def test_optimized(self):
        """If the parent is built for debugging, the library has the instructions of the installed
        one all the same. An option undoes that."""
        self.need("cmake")
        options = {option["name"]: option["value"]
                   for option in json.loads(must(MESON, "introspect", BUILD, "--buildoptions"))}
        if (options["optimization"], options["b_sanitize"], options["b_coverage"], options["c_args"]) != ("3", "none", False, []):
            self.skipTest("the library to compare with is built in another way")
        installed = self.instructions(BUILD / "src")
        self.outer("project('outer', 'c')\nexecutable('main', 'main.c', dependencies: dependency('stint'))\n")
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.14)\nproject(outer C)\ninclude(FetchContent)\n"
                   f'FetchContent_Declare(stint SOURCE_DIR "{SOURCE}")\nFetchContent_MakeAvailable(stint)\n'
                   "add_executable(main main.c)\ntarget_link_libraries(main stint::stint-static)\n")
        for number, (undone, *options) in enumerate((
                (False, "--buildtype=debug"),
                (True, "--buildtype=debug", "-Dstint:optimized=false"),
                (False, "-DCMAKE_BUILD_TYPE=Debug"),
                (True, "-DCMAKE_BUILD_TYPE=Debug", "-DSTINT_OPTIMIZED=OFF"))):
            with self.subTest(options=options):
                build = self.directory / str(number)
                if "CMAKE" in options[0]:
                    must("cmake", *options, "-S", self.directory, "-B", build, env={**os.environ, "CC": CC, **self.alone})
                    must("cmake", "--build", build, "--parallel", "2")
                else:
                    self.built(build, self.directory, *options, **self.alone)
                self.assertEqual(must(build / "main"), ANSWER)
                built = self.instructions(build)
                others = [name for name in {**installed, **built} if built.get(name) != installed.get(name)]
                if undone:
                    self.assertIn("stint_take", others)
                else:
                    self.assertEqual(others, [])


class Embedding(Case):
    """The installed library in programs that are built in other ways than its own."""

    def setUp(self):
        super().setUp()
        self.install()

    def test_cmake(self):
        self.need("cmake", "musl-gcc")
        self.write("main.c", PROGRAM)
        [text] = blocks_of("cmake")
        part = text.replace("find_package(stint 0.5 REQUIRED)", f'add_subdirectory("{SOURCE}" stint)')
        compiler = next(word for word in shlex.split(CC) if not word.endswith("ccache"))
        static = text.replace("::stint)", "::stint-static)")
        for way, compiler, lines in (("installed", compiler, text), ("static", compiler, static),
                                     ("part", compiler, part), ("musl", "musl-gcc", part)):
            self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.13)\nproject(outer C)\n"
                       "add_executable(server main.c)\n" + lines)
            build = self.directory / way
            must("cmake", "-S", self.directory, "-B", build, "-DCMAKE_C_COMPILER=" + compiler,
                 f"-DCMAKE_PREFIX_PATH={self.destination}/usr/local;{self.destination}", env=self.environment)
            must("cmake", "--build", build)
            self.assertEqual(must(build / "server", env=self.running), ANSWER)

    def test_ctypes(self):
        stint = BUILD / "src" / "tool" / "stint"
        if not stint.exists():
            self.skipTest("the command is not built")
        [text] = [text for language, text in blocks(SOURCE / "doc" / "embedding.md") if language == "python"]
        table = self.directory / "table"
        must(stint, "make", "--entries=1000", "--policies=-", table, input="2/day name=login\n")
        program = self.write("ask.py", text.replace("/dev/shm/stint-ctypes", str(table)))
        self.assertEqual(must(sys.executable, program, env=self.running), "[True, True, False]\n")

    def test_sanitizers_of_the_program(self):
        """They see the program, and find nothing: the library hands nothing from thread to thread."""
        example = (SOURCE / "tests" / "examples" / "limiter.cc").read_text()
        halt = {name + "_OPTIONS": "halt_on_error=1" for name in ("ASAN", "UBSAN", "TSAN")}
        for sanitizers in "address,undefined", "thread":
            with self.subTest(sanitizers=sanitizers):
                program = self.linked("limiter.cc", example, "-std=c++17", f"-fsanitize={sanitizers}", "-g", "-O1",
                                      compiler=self.cxx())
                self.assertIn("1000 done, 3000 not\n", must(program, env={**self.running, **halt}))


class Builds(Case):
    """The library with other compilers, C libraries and options than the tests have."""

    def build(self, *options, **environment):
        build = self.directory / "build"
        self.built(build, SOURCE, "-Dwerror=true", *options, **environment)
        return build / "src" / "libstint.a"

    def test_for_debugging(self):
        self.build("-Dtests=false", "-Dbench=false", "-Dbuildtype=custom", "-Doptimization=g")

    def test_static(self):
        """Who asks for the static library gets no other, built or installed."""
        build = self.build("-Dtests=false", "-Dbench=false", "-Ddefault_library=static", "-Doptimization=1").parents[1]
        installed = self.directory / "installed"
        environment, _ = commands.installed(MESON, build, installed)
        self.assertEqual([path.name for where in (build, installed)
                          for path in where.rglob("libstint.so*")], [])
        program = self.compiled("program.c", PROGRAM, "-std=c11",
                                *self.pkg_config({**os.environ, **environment}, "--cflags", "--libs"))
        self.assertEqual(must(program), ANSWER)

    def test_musl(self):
        """ConcurrencyKit and xxHash are used as headers, which any C library will do for. What the
        system has else is not for this one."""
        self.need("musl-gcc")
        library = self.build(CC="musl-gcc")
        musl = {"compiler": "musl-gcc", "library": library}
        self.assertEqual(must(self.compiled("program.c", PROGRAM, "-std=c11", "-static", **musl)), ANSWER)
        # A table of the one is read by the other, and not written.
        of_glibc = self.compiled("opens.c", OPENS, "-std=c11")
        of_musl = self.compiled("opens-musl.c", OPENS, "-std=c11", "-static", **musl)
        for mine, others in (of_glibc, of_musl), (of_musl, of_glibc):
            table = self.directory / (mine.name + ".table")
            self.assertEqual(must(mine, table), "7 used\n")
            self.assertIn("another C library's", must(others, table))
            self.assertEqual(must(others, table, "read"), "7 used\n")
            self.assertEqual(must(mine, table), "14 used\n")
            self.assertEqual(must(others, table, "resize"), "21 used\n")

    def test_distributed(self):
        """The archive of a release builds, and passes tests."""
        self.need("git")
        if not (SOURCE / ".git").exists():
            self.skipTest("there is no repository to make it from")
        build = self.directory / "build"
        must(MESON, "setup", build, SOURCE, "-Dtests=false", "-Dbench=false", "-Dtool=disabled", env={**os.environ, "CC": CC})
        must(MESON, "dist", "-C", build, "--no-tests", "--allow-dirty")
        [archive] = (build / "meson-dist").glob("*.tar.xz")
        must("tar", "-C", self.directory, "-xf", archive)
        source = self.directory / archive.name.removesuffix(".tar.xz")
        must(MESON, "setup", source / "build", source, "-Dbench=false", "-Doptimization=0", env={**os.environ, "CC": CC})
        must(MESON, "test", "-C", source / "build", "--suite", "unit")


class Manual(Case):
    """Section 3, which doc/man3.py makes of the comments of stint.h and of doc/examples; and stint-promises(7), which
    it makes of doc/promises.md."""

    def setUp(self):
        super().setUp()
        self.pages = {path.name: path.read_text() for path in (BUILD / "doc").glob("*.[37]")}
        self.command = SOURCE / "src" / "tool" / "stint.1"

    def test_each_function_has_a_page(self):
        """With all its sections, each with something in it; and with each argument."""
        lines = must("nm", "-D", "--defined-only", BUILD / "src" / "libstint.so").split("\n")
        exported = {line.split()[-1].split("@")[0] for line in lines if " T " in line}
        self.assertGreater(len(exported), 30)
        self.assertEqual({name[:-2] for name, text in self.pages.items() if ".Fo " in text}, exported)
        for name in exported:
            with self.subTest(page=name):
                page = self.pages[name + ".3"]
                self.assertIn(f".Nm {name}\n.Nd ", page)
                sections = dict(re.findall(r"^\.Sh (.*)\n((?:(?!\.Sh ).*\n)+)", page, re.MULTILINE))
                arguments = re.findall(r'^\.Fa ".*?(\w+)(?:\)\(.*\))?"$', sections["SYNOPSIS"], re.MULTILINE)
                arguments = [argument for argument in arguments if argument != "void"]
                self.assertEqual(re.findall(r"^\.It Fa (\w+)\n(?!\.It|\.El)", sections.get("ARGUMENTS", ""),
                                            re.MULTILINE), arguments)
                self.assertEqual(list(sections), ["NAME", "SYNOPSIS", "DESCRIPTION", *["ARGUMENTS"] * bool(arguments),
                                                  "RETURN VALUES", "ERRORS", "ATTRIBUTES", "EXAMPLE PROGRAM", "SEE ALSO"])
                self.assertIn(name + "(", sections["EXAMPLE PROGRAM"])

    def test_examples_print_what_their_pages_say(self):
        examples = sorted((SOURCE / "doc" / "examples").iterdir())
        self.assertGreater(len(examples), 9)
        for example in examples:
            said = re.search(r"It prints:\n \*\n(.*?)^ \*/", example.read_text(), re.DOTALL | re.MULTILINE)[1]
            self.assertEqual(must(BUILD / "tests" / f"manual-{example.stem}"),
                             re.sub(r"^ \*     ", "", said, flags=re.MULTILINE), example)

    def test_types_have_pages(self):
        types = re.findall(r"^(enum|struct) (stint_\w+) \{", header(), re.MULTILINE)
        self.assertGreater(len(types), 15)
        for kind, name in types:
            self.assertIn(f'.Vt "{kind} {name}"\n', self.pages[name + ".3"])

    def test_nothing_of_the_comments_is_lost(self):
        """Each word of them is in the pages as often as it was, or more."""
        def words(text):
            return collections.Counter(re.findall(r"[a-zA-Z0-9_]{2,}", text))

        body = header()[header().index("A  Never over-admits"):]
        promises = (SOURCE / "doc" / "promises.md").read_text().split("## ", 1)[1]
        comments = re.sub(r"/\* ([-=])\1{3} .*? \1+ \*/|^#.*?INIT.*|/\* STINT_H \*/", "", body,
                          flags=re.MULTILINE)
        top, rest = comments.split("#ifndef STINT_H")
        rest = rest.split("/* opaque */")[1]
        said = words(promises + top + " ".join(re.findall(r"/\*.*?\*/", rest, re.DOTALL)))
        pages = words(" ".join(self.pages.values()))
        lost = {word: (count, pages[word]) for word, count in said.items() if pages[word] < count}
        lost.pop("sys", None)  # <sys/socket.h>, of a declaration that is not stint's
        lost.pop("socket", None)
        self.assertEqual(lost, {})

    def test_references(self):
        for name, text in self.pages.items():
            for page, section in re.findall(r"^\.Xr (\S+) (\d)", text, re.MULTILINE):
                with self.subTest(page=name, reference=page):
                    self.assertTrue((page, section) == ("stint", "1") or
                                    f"{page}.{section}" in self.pages)
        self.assertIn("stint 3", self.command.read_text())

    @unittest.skipUnless(shutil.which("mandoc"), "needs mandoc")
    def test_lint(self):
        """Nothing to complain of, but that stint's pages are not installed here."""
        done = commands.run("mandoc", "-T", "lint", *(BUILD / "doc" / name for name in self.pages), self.command)
        self.assertEqual([line for line in (done.stdout + done.stderr).split("\n")
                          if line and "referenced manual not found: Xr stint" not in line], [])

    @unittest.skipUnless(shutil.which("mandb"), "needs man-db")
    def test_man_finds_them(self):
        """By name and by word; each page begins with its name and ends with stint's."""
        for section in "man3", "man7":
            (self.directory / section).symlink_to(BUILD / "doc")
        must("mandb", "--quiet", "--user-db", "--create", self.directory)
        found = must("man", "-M", self.directory, "-k", "stint")
        self.assertEqual({f"{name}.{section}" for name, section
                          in re.findall(r"^(\S+) \((\d)\)", found, re.MULTILINE)}, self.pages.keys())
        self.assertIn("stint_take (3)", must("man", "-M", self.directory, "-k", "tokens.*window"))
        for page in (["-M", self.directory, "stint_take"], ["-l", self.command]):
            text = must("man", *page, env={**os.environ, "MANWIDTH": "80"})
            self.assertNotIn("BSD", text)
        text = must("man", "-M", self.directory, "stint_take", env={**os.environ, "MANWIDTH": "80"})
        self.assertRegex(text, r"(?s)^STINT_TAKE\(3\).*NAME\n +stint_take .*\nstint \d+\.\d+\.\d+ .*\n$")


class Commands(Case):
    """The commands say what is wrong with how they were called."""

    def refused(self, *command):
        done = commands.run(*command, cwd=SOURCE)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done)
        return done.stderr

    def test_run(self):
        self.assertIn("'--al'", self.refused("tests/run", "--al"))
        self.assertIn("'unit'", self.refused("tests/run", "--all", "unit"))
        self.assertIn("'--all'", self.refused("tests/run", "--protocol", "--all"))
        for file in "src", "src/none.c", "tests/run":
            self.assertIn(f"'{file}' is no file of src/, include/ or bench/", self.refused("tests/run", file))
        self.assertIn("--all", must("tests/run", "--help", cwd=SOURCE))


class Trail(Case):
    """The way to an error of the model that CONTRIBUTING.md tells."""

    def test_trail(self):
        self.need("spin")
        [block] = [block for block in blocks_of("console") if "--trail" in block]
        command, _, way = block.partition("\n...\n")
        told = must(SOURCE / shlex.split(command)[1], *shlex.split(command)[2:])
        self.assertIn(way.removesuffix("...\n"), told)


class Mistakes(Case):
    """The mistakes that the suite `mutants` makes."""

    def test_table_is_not_stale(self):
        """Their page has each by name; `tests/protocol/mutants.py build-tests --write` writes it."""
        self.assertEqual({name.strip("`"): mistake for name, mistake, *_ in mutants.committed()},
                         mutants.mistakes())

    def test_stories_are_of_mistakes(self):
        stories = (SOURCE / "tests" / "protocol" / "stories.c").read_text()
        named = set(re.findall(r'PATCHED\("([^"]+)"\)', stories))
        self.assertTrue(named)
        self.assertLessEqual(named, set(mutants.mistakes()))

    def test_patches_apply(self):
        """Where they were made for: the lines about the change are the same."""
        for patch in sorted((SOURCE / "tests" / "protocol" / "mutants").glob("*.patch")):
            must("patch", "--dry-run", "--strip=1", "--fuzz=0", f"--input={patch}", cwd=SOURCE)

    def test_guards(self):
        """Each is used. And each is a condition in a line: what takes more than that to leave out is a patch."""
        code = "".join(path.read_text() for path in commands.library(SOURCE) if path.name != "testing.h")
        used = set(re.findall(r"\bGUARD(?:ED)?\((\w+)", code))
        self.assertEqual(used, {name for name in mutants.mistakes() if name.isupper()})
        for line in re.findall(r".*\bGUARDED\(.*", code):
            self.assertRegex(line, r"^\s*if \(")


if __name__ == "__main__":
    SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    MESON, CC = sys.argv[3], sys.argv[4]
    unittest.main(argv=sys.argv[:1] + sys.argv[5:])
