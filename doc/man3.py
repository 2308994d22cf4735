#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual's section 3, made of the comments of include/stint.h and of the programs in doc/examples.
And stint-promises(7), made of doc/promises.md.

    man3.py --list HEADER                           the names of all pages of section 3
    man3.py DIRECTORY HEADER PROMISES [EXAMPLE...]  writes them
    man3.py --promises DIRECTORY HEADER PROMISES    writes stint-promises.7

The comment at the header's top is stint(3), with the constants of the part Numbers. Each function, struct
and enum has a page. Each other part of the header (`/* ---- Keys ---- */`) has one, too, stint-keys(3):
its list of those, and comments that stand alone and begin with words in capitals. What the comments look like (tests/project/project.py holds them to it):

    text at the margin              a paragraph; the first sentence says in NAME what a page is about
      name  text                    an argument: two blanks before it, two or more behind it. What a
                                    function does not say of one, ARGUMENTS of promises.md say
      - text                        an item
        text, four blanks or more   as it is: programs, tables
    Returns                         RETURN VALUE, to the next blank line. ERRORS has the codes of it,
                                    each with what stands in brackets behind it, or ERROR CODES of promises.md
    Threads:, Cost:                 ATTRIBUTES

An example begins with a comment: which functions it is for, "It prints:", and what it prints.
"""
import fnmatch
import re
import sys
from pathlib import Path

DATE = "November 26, 2026"
WIDTH = 70  # before names are kept whole, which takes two characters each
ABOUT = {  # what each part's page says of itself in its NAME
    "Opening": "open and close a limiter",
    "Policies": "rate limits: windows, token buckets",
    "Keys": "what is limited: bytes, parts of them, addresses",
    "Deciding": "take tokens, look and charge",
    "Giving back": "tokens for work that was not done, or in flight is done",
    "Telling the client": "response fields of HTTP",
    "Messages": "errors as sentences, and the version",
    "Tables": "shared memory, tables that are there, their size, cut files",
    "Reloads and checks": "change the policies of a table in use, and say what is wrong with them",
    "Overrides and bans": "keys with limits of their own for a while",
    "Watching": "statistics, live keys, their names, metrics",
}


class Declaration:
    """A function, struct or enum, with the comment before it; or a comment alone (no name)."""

    def __init__(self, comment, kind="", name="", text=""):
        self.comment, self.kind, self.name, self.text = comment, kind, name, text


# ---- What the header says --------------------------------------------------------------------


def comment_lines(comment):
    """The lines of /* ... */, without what makes it a comment and without their common indent."""
    lines = re.sub(r"^\s*/\*+ ?|\s*\*/$", "", comment).split("\n")
    return [lines[0]] + [re.sub(r"^\s*\* ?", "", line) for line in lines[1:]]


def sections_of(lines):
    """The parts of a comment, each of which begins with words in capitals: their lines."""
    sections, name = {"DESCRIPTION": []}, "DESCRIPTION"
    for line in lines:
        match = re.match(r"([A-Z]{4,}(?: [A-Z]+)*)(?:\. +(?=\S)| \(.*\)$|$)", line)
        if match:
            name = match[1]
            sections[name] = []
            line = line[match.end():]
        sections[name].append(line)
    return sections


def declarations(text):
    """What a part of the header declares, in order."""
    found = []
    pattern = re.compile(
        r"(?P<comment>/\*.*?\*/)\n|"
        r"(?P<kind>enum|struct) (?P<name>\w+) \{\n(?P<body>.*?)^\};\n|"
        r"STINT_API (?:STINT_CHECKED )?(?P<function>[^;]*);\n|"
        r"#define (?P<init>STINT_\w+_INIT)\b", re.DOTALL | re.MULTILINE)
    comment, end = "", 0
    for match in pattern.finditer(text):
        if comment and "\n\n" in text[end:match.start() + 1]:  # it stands alone
            found.append(Declaration(comment))
            comment = ""
        end = match.end() - 1
        if match["comment"]:
            comment = match["comment"]
            continue
        if match["init"]:
            found[-1].text += f"INIT {match['init']}"
            continue
        if match["function"]:
            prototype = " ".join(re.sub(r"\bSTINT_(NONNULL|READS|CHANGES|WRITES)\([\d, ]*\)", "", match["function"]).split())
            name = re.match(r"[^(]*?(\w+)\(", prototype)[1]
            found.append(Declaration(comment, "function", name, prototype))
        else:
            found.append(Declaration(comment, match["kind"], match["name"], match["body"]))
        comment = ""
    return found + ([Declaration(comment)] if comment else [])


def parts(header):
    """The top comment, the constants, and the parts by their titles."""
    top = re.match(r"/\*.*?\*/", header, re.DOTALL)[0]
    pieces = re.split(r"^/\* -{4} (.*?) -+ \*/\n", re.sub(r"^/\* ={4} .*\n", "", header[len(top):], flags=re.MULTILINE),
                      flags=re.MULTILINE)
    found = dict(zip(pieces[1::2], pieces[2::2]))
    return top, found.pop("Numbers"), [(title, declarations(text)) for title, text in found.items()]


def page_of(title):
    return "stint-" + title.split()[0].lower()


def fields(body):
    """Of a struct: each field's type and name, and its comment."""
    for code, comment in re.findall(r"\s*([^;]+);[ \n]*(/\*.*?\*/)?", body, re.DOTALL):
        yield " ".join(code.split()), comment


def constants(body):
    """Of an enum: each constant, and its comment, which stands before or behind it."""
    for before, name, value, behind in re.findall(
            r"\s*(/\*.*?\*/)?\s*(STINT_\w+) = ([^,]+),[ \n]*?(/\*[^\n]*(?:\n +\*[^\n]*)*\*/)?\n", body, re.DOTALL):
        yield f"{name} = {value}", before or behind


# ---- The language of manual pages --------------------------------------------------------------


def literal(text):
    """Text in which nothing is a command of roff."""
    text = text.replace("\\", "\\e")
    return re.sub(r"^(?=[.'])|(?<=\.\.)$", r"\\&", text)  # nor a range's .. the end of a sentence


def argument(text):
    """One argument of a macro."""
    text = text.replace("\\", "\\e").replace('"', "\\(dq")
    return f'"\\&{text}"' if re.fullmatch(r"[A-Z][a-z]|\W", text) else f'"{text}"' if " " in text else text


class Writer:
    """Writes a page. `functions` are the names that are set as such."""

    def __init__(self, functions, name, about, version, section=3):
        self.functions, self.lines = functions, []
        self.head(name, about, version, section)

    def macro(self, *words):
        self.lines.append("." + " ".join(words))

    def running(self, line):
        """A line of running text, in which no name is cut in two."""
        self.lines.append(re.sub(r"\b(?=\w+[_.]\w)", r"\\%", literal(line)))

    def text(self, words):
        """Running text: a line for each sentence at least, functions and constants as such."""
        line = ""
        for word in re.findall(r"(?:`[^`]*`|[^\s`])+", words):
            match = re.fullmatch(r"(\(?)(\w+|`[^`]*`)(\(\))?([.,;:)]*)", word)
            macro = match and ("Ql" if match[2][0] == "`" else
                               "Fn" if match[3] or match[2] in self.functions else
                               "Dv" if re.fullmatch(r"STINT_[A-Z_0-9]+", match[2]) else None)
            if macro:
                if line:
                    self.running(line)
                line = ""
                self.macro(*filter(None, [macro, match[1], argument(match[2].strip("`")), *match[4]]))
                continue
            if line and len(literal(line)) + 1 + len(word) > WIDTH:
                self.running(line)
                line = ""
            line = f"{line} {word}" if line else word
            if re.search(r"(?<!\.)[.!?][)\"]*$", word):  # a sentence's end, not the .. of a range
                self.running(line)
                line = ""
        if line:
            self.running(line)

    def block(self, lines):
        """A comment's lines."""
        first = True
        index = 0
        while index < len(lines):
            line = lines[index]
            if not line.strip():
                index += 1
                continue
            indent = len(line) - len(line.lstrip())
            item = re.match(r"( {0,5})- (?=\S)", line) or re.match(r"( {1,3})(\S+|[A-Z]+ \w+)  +(?=\S)", line)
            if item:
                bullets = item[0].endswith("- ")
                if bullets and not first:
                    self.macro("Pp")
                index = self.items(lines, index, bullets)
            elif indent >= 4:
                end = index
                while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) >= 4):
                    end += 1
                self.example(lines[index:end])
                index = end
            else:
                end = index + 1
                while end < len(lines) and lines[end].strip() and not re.match(
                        r" {0,5}- \S| {2,3}\S+  +\S| {4}", lines[end]):
                    end += 1
                if not first:
                    self.macro("Pp")
                self.text(" ".join(lines[index:end]))
                index = end
            first = False

    def example(self, lines):
        while not lines[-1].strip():
            lines = lines[:-1]
        margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
        self.macro("Bd", "-literal", "-offset", "indent")
        self.lines += [literal(line[margin:]) for line in lines]
        self.macro("Ed")

    def items(self, lines, index, bullets):
        """A list, from its first line on. Returns the index of the line after it."""
        pattern = r"( *)(-) (?=\S)" if bullets else r"( {1,3})(\S+|[A-Z]+ \w+)  +(?=\S)"
        margin = len(re.match(pattern, lines[index])[1])
        self.macro(*(["Bl", "-bullet", "-compact"] if bullets else ["Bl", "-tag", "-width", "Ds"]))
        while index < len(lines):
            match = re.match(pattern, lines[index])
            if not match or len(match[1]) != margin:
                break
            column = match.end()
            end = index + 1
            while end < len(lines):
                rest = lines[end:]
                here = next((line for line in rest if line.strip()), "")
                if len(here) - len(here.lstrip()) < column:
                    break
                end += 1
            self.macro(*(["It"] if bullets else ["It", *self.tag(match[2])]))
            self.block([line[column:] for line in lines[index:end]])
            index = end
            while index < len(lines) and not lines[index].strip():
                index += 1
        self.macro("El")
        return index

    @staticmethod
    def tag(word):
        return (["Er", word] if re.fullmatch(r"E[A-Z]+", word) else
                ["Fa", word] if re.fullmatch(r"[a-z]\w*", word) and word != "others" else
                [argument(word)])

    def comment(self, comment):
        self.block(comment_lines(comment))

    def head(self, name, about, version, section):
        self.lines.append('.\\" SPDX-License-Identifier: MIT')
        self.lines.append(f'.\\" Made of {"include/stint.h" if section == 3 else "doc/promises.md"} by doc/man3.py.')
        self.macro("Dd", DATE)
        self.macro("ds", "doc-volume-operating-system", "stint")  # groff says BSD there, and at the foot
        self.macro("Dt", argument(name.upper()), str(section))
        self.macro("Os")
        self.macro("ds", "doc-operating-system", "stint", version)
        self.macro("Sh", "NAME")
        self.macro("Nm", name)
        self.macro("Nd", literal(about))
        if section == 3:
            self.macro("Sh", "SYNOPSIS")
            self.macro("In", "stint.h")

    def prototype(self, text):
        kind, name, arguments = re.fullmatch(r"(.*?)(\w+)\((.*)\)", text).groups()
        self.macro("Ft", argument(kind.strip()))
        self.macro("Fo", name)
        for one in re.split(r", (?![^(]*\))", arguments):
            self.macro("Fa", f'"{one}"')
        self.macro("Fc")

    def tagged(self, items):
        """A list: of each item the words of its tag, and its lines."""
        self.macro("Bl", "-tag", "-width", "Ds")
        for tag, lines in items:
            self.macro("It", *tag)
            self.block(lines)
        self.macro("El")

    def members(self, declaration):
        """The fields of a struct, the constants of an enum."""
        body, _, init = declaration.text.partition("INIT ")
        self.macro("Bl", "-tag", "-width", "Ds")
        for name, comment in (fields if declaration.kind == "struct" else constants)(body):
            self.macro("It", *(["Vt"] if declaration.kind == "struct" else ["Dv"]), argument(name))
            if comment:
                self.comment(comment)
        self.macro("El")
        if init:
            self.macro("Pp")
            self.text(f"{init} sets its size, and all else to 0.")


    def see_also(self, *names):
        self.macro("Sh", "SEE ALSO")
        for name in names[:-1]:
            self.macro("Xr", name, "3", ",")
        self.macro("Xr", names[-1], "3")


# ---- Pages -------------------------------------------------------------------------------------


def said(words, word, one, where):
    """What is said of a word; if nothing is, no page is made."""
    if word not in words:
        sys.exit(f"man3.py: {one.name}: {word} is neither in its comment nor in {where}")
    return words[word]


class Manual:
    """All that the pages are made of."""

    def __init__(self, header, promises, examples):
        self.top, self.numbers, self.parts = parts(header)
        self.before, *found = re.split(r"^## (.*)\n", promises, flags=re.MULTILINE)
        self.promises = dict(zip(found[::2], found[1::2]))
        self.version = ".".join(re.findall(r"STINT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", self.numbers))
        self.declared = {one.name: one for _, found in self.parts for one in found if one.name}
        self.functions = {name for name, one in self.declared.items() if one.kind == "function"}
        lines = comment_lines(self.top)
        about = next(number for number, line in enumerate(lines) if line.startswith("stint: a "))
        self.name = lines[about].removeprefix("stint: a ").removesuffix(".")
        self.sections = sections_of(lines[about + 1:])
        self.common = dict(self.listed(self.promises["ARGUMENTS"]))
        self.errors = dict(self.listed(self.promises["ERROR CODES"]))
        self.signal_safe = re.search(r"signal handlers: ([^.]*)\.", self.promises["THREADS"])[1].split()
        self.signal_safe = [name.strip(",") for name in self.signal_safe]
        self.examples = {}
        for text in examples:
            comment, code = re.fullmatch(r"(/\*.*?\*/)\n(.*)", text, re.DOTALL).groups()
            about, printed = "\n".join(comment_lines(comment)[1:]).split("It prints:\n")
            for name in re.findall(r"stint_\w+", about):
                self.examples[name] = code, printed

    @staticmethod
    def listed(text):
        """Of a list of words: each word, and the lines of what is said of it."""
        for word, said in re.findall(r"^- \*\*(\w+)\*\* (.*\n(?:  .*\n)*)", text, re.MULTILINE):
            yield word, [line.strip() for line in said.rstrip("\n").split("\n")]

    def page(self, name, about):
        return Writer(self.functions, name, about, self.version)

    def function_page(self, part, one):
        sections = {"DESCRIPTION": [], "Returns": [], "Threads:": [], "Cost:": []}
        names = re.findall(r"(\w+)(?:\)\([^)]*\))?[,)]", one.text)
        names = [name for name in names if name != "void"]
        arguments, section = {}, "DESCRIPTION"
        lines = comment_lines(one.comment)
        for line in lines:
            match = re.match(r"  (\w+)  +(?=\S)", line)
            if match and match[1] in names:
                section = match[1]
                arguments[section] = [line[match.end():]]
                continue
            match = re.match(r"(Returns|Threads:|Cost:)( |$)", line)
            if match:
                section, line = match[1], line if match[1] == "Returns" else line[match.end():]
            elif section in arguments and (line.startswith("   ") or not line.strip()):
                arguments[section].append(line.strip())
                continue
            elif section in arguments or not line.strip():
                section = "DESCRIPTION"
            sections[section].append(line)
        page = self.page(one.name, self.about(one))
        page.prototype(one.text)
        page.macro("Sh", "DESCRIPTION")
        page.block(sections["DESCRIPTION"])
        self.where_letters_stand(page, lines)
        if names:
            page.macro("Sh", "ARGUMENTS")
            page.tagged((["Fa", name], arguments.get(name) or said(self.common, name, one, "ARGUMENTS"))
                        for name in names)
        page.macro("Sh", "RETURN VALUES")
        page.block(sections["Returns"] or ["Nothing."])
        page.macro("Sh", "ERRORS")
        codes = re.findall(r"-(E[A-Z]+)(?: \(((?:[^()]|\([^()]*\))*)\))?", " ".join(sections["Returns"]))
        if codes:
            page.tagged((["Er", code], [own] if own else said(self.errors, code, one, "ERROR CODES")) for code, own in codes)
            page.lines += [".Pp", ".Xr stint_reason 3", "tells more: the argument, and its range."]
        else:
            page.lines += ["None."]
        page.macro("Sh", "ATTRIBUTES")
        self.attributes(page, one.name, sections)
        code, printed = said(self.examples, one.name, one, "doc/examples")
        page.macro("Sh", "EXAMPLE PROGRAM")
        page.example(code.strip("\n").split("\n"))
        page.lines += [".Pp", "It prints:"]
        page.example(printed.split("\n"))
        page.see_also(*self.neighbours(part, one))
        return page

    def where_letters_stand(self, page, lines):
        """A paragraph for pages that cite a promise, or a section of promises.md."""
        cited = r"\([A-I]\d?\)|\bA (holds|counts|does|and B)\b|A to I|" + "|".join(rf"\b{name}\b" for name in self.promises)
        if re.search(cited, " ".join(lines)):
            page.lines += [".Pp", "Promises (A to I) and sections in capitals are those of", ".Xr stint-promises 7 ."]

    def neighbours(self, part, one):
        """The pages of what a declaration speaks of, and of enums that speak of it."""
        said = set(re.findall(r"stint_\w+", one.comment + one.text))
        enums = {other.name for other in self.declared.values()
                 if other.kind == "enum" and re.search(one.name + r"\b", other.comment)}
        return "stint", page_of(part), *sorted((said | enums) & self.declared.keys() - {one.name})

    def attributes(self, page, name, sections):
        safe = any(fnmatch.fnmatch(name, "stint_" + pattern) for pattern in self.signal_safe)
        page.tagged([
            (["Sy", "Threads"], sections["Threads:"] or ["Any number may call it at once."]),
            (["Sy", "Signals"], ["A signal handler may call it." if safe else "A signal handler may not call it."]),
            *([(["Sy", "Cost"], sections["Cost:"])] if sections["Cost:"] else [])])

    @staticmethod
    def about(one):
        """The first sentence of its comment."""
        text = " ".join(comment_lines(one.comment)).replace("`", "")
        return text[0].lower() + re.match(r".(.*?)(?:\.(?: |$)|:? *$)", text)[1]

    def type_page(self, part, one):
        page = self.page(one.name, self.about(one))
        page.macro("Vt", argument(f"{one.kind} {one.name}"))
        page.macro("Sh", "DESCRIPTION")
        page.comment(one.comment)
        page.members(one)
        self.where_letters_stand(page, comment_lines(one.comment + one.text))
        page.see_also(*self.neighbours(part, one))
        return page

    def part_page(self, title, found):
        page = self.page(page_of(title), ABOUT[title])
        page.macro("Sh", "DESCRIPTION")
        page.tagged((["Xr", one.name, "3"], [self.about(one) + "."]) for one in found if one.name)
        for one in found:
            if not one.name:
                for name, lines in sections_of(comment_lines(one.comment)).items():
                    if name != "DESCRIPTION":  # else it is of a declaration that is not stint's
                        page.macro("Sh", name)
                        page.block(lines)
        page.see_also("stint")
        return page

    def top_page(self):
        page = self.page("stint", self.name)
        page.macro("Pp")
        page.macro("Dl", "cc server.c $(pkg-config --cflags --libs stint)")
        sections = dict(self.sections)
        errors = sections.pop("ERRORS")
        for name, body in sections.items():
            page.macro("Sh", name)
            page.block(body)
            if name == "DESCRIPTION":
                page.lines += [".Pp", "The functions and types, by what they are for:"]
                page.tagged((["Xr", page_of(title), "3"], [ABOUT[title] + "."]) for title, _ in self.parts)
        self.types(page)
        page.macro("Sh", "ERRORS")
        page.block(errors)
        page.see_also(*sorted(page_of(title) for title, _ in self.parts))
        page.lines.insert(page.lines.index(".Sh SEE ALSO") + 1, ".Xr stint 1 ,")
        page.lines += [page.lines.pop() + " ,", ".Xr stint-promises 7"]
        return page

    def promises_page(self):
        """stint-promises(7), of Markdown whose sections, lists and lines are as in comments."""
        page = Writer(self.functions, "stint-promises", "what a limiter promises, and all that stint.h names in capitals",
                      self.version, 7)
        page.macro("Sh", "DESCRIPTION")
        page.block(re.sub(r"\[(.*?)\]\(.*?\)", r"\1", self.before.split("\n", 1)[1]).split("\n"))
        for title, body in self.promises.items():
            page.macro("Sh", title)
            page.block(list(self.tags(body.split("\n"))))
        page.see_also("stint")
        return "\n".join(page.lines) + "\n"

    @staticmethod
    def tags(lines):
        """Of items that begin with a letter or word in bold: the word as a list's tag, its text in one column."""
        column = 2
        for line in lines:
            word = re.match(r"- \*\*(\w+)\*\* ", line)
            if word:
                column = len(word[1]) + 3
                line = f" {word[1]}  {line[word.end():]}"
            elif not line.startswith("  "):
                column = 2
            elif column > 2:
                line = " " * column + line[2:]
            yield line

    def types(self, page):
        page.macro("Sh", "CONSTANTS")
        in_list = False
        for comment, name, value, behind in re.findall(
                r"(/\*.*?\*/)\n|^#define (STINT_[A-Z0-9_]+) +(\d+)U?L?L?\b(?: +(/\*.*?\*/))?$",
                self.numbers, re.MULTILINE | re.DOTALL):
            if bool(name) != in_list:  # else it is a comment that stands alone
                page.macro(*(["Bl", "-tag", "-width", "Ds"] if name else ["El"]))
                in_list = bool(name)
            if name:
                page.macro("It", "Dv", argument(f"{name} = {value}"))
            elif page.lines[-1][:3] != ".Sh":
                page.macro("Pp")
            if comment or behind:
                page.comment(comment or behind)
        page.macro("El")

    def pages(self):
        """All pages: their text by the names of their files."""
        made = {"stint": self.top_page()}
        for title, found in self.parts:
            made[page_of(title)] = self.part_page(title, found)
            for one in found:
                if one.name:
                    made[one.name] = (self.function_page if one.kind == "function" else self.type_page)(title, one)
        return {name + ".3": "\n".join(page.lines) + "\n" for name, page in made.items()}


def names(header):
    """Of all pages' files."""
    _, _, found = parts(header)
    return ["stint.3", *(page_of(title) + ".3" for title, _ in found),
            *(one.name + ".3" for _, declared in found for one in declared if one.name)]


def main(arguments):
    if arguments[0] == "--list":
        print("\n".join(sorted(names(Path(arguments[1]).read_text()))))
        return
    only_promises = arguments[0] == "--promises"
    directory, *sources = map(Path, arguments[only_promises:])
    header, promises, *examples = [path.read_text() for path in sources]
    manual = Manual(header, promises, examples)
    for name, text in ({"stint-promises.7": manual.promises_page()} if only_promises else manual.pages()).items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
