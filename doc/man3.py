#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual's section 3, made of the comments of include/stint.h.

    man3.py --list HEADER           the names of all pages
    man3.py HEADER DIRECTORY        writes them

The comment at the header's top is stint(3). Each part of the header (`/* ---- Keys ---- */`) is a
page, stint-keys(3), with its functions, structs and constants. Each of these has a page of its own
name, which is that of its part. What the comments look like (tests/man.py holds them to it):

    text at the margin              a paragraph; "Returns", "Threads:", "Cost:" begin a new one
      name  text                    an argument: a blank or two before it, two or more behind it
      - text                        an item
        text, four blanks or more   as it is: programs, tables
"""
import re
import sys
from pathlib import Path

DATE = "November 22, 2026"
WIDTH = 78
ABOUT = {  # what each part's page says of itself in its NAME
    "Opening": "open, share and resize a table of limits",
    "Policies": "limits, and how they change while a server runs",
    "Keys": "what is limited: bytes, parts of them, addresses",
    "Deciding": "take tokens, look, charge and give back",
    "Overrides and bans": "keys with limits of their own for a while",
    "Watching": "statistics, live keys, their names, metrics",
    "Telling the client": "response fields of HTTP",
    "Messages": "errors as sentences, and the version",
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
            prototype = " ".join(re.sub(r"\bSTINT_NONNULL\([\d, ]*\)", "", match["function"]).split())
            name = re.match(r"[^(]*?(\w+)\(", prototype)[1]
            found.append(Declaration(comment, "function", name, prototype))
        else:
            found.append(Declaration(comment, match["kind"], match["name"], match["body"]))
        comment = ""
    return found + ([Declaration(comment)] if comment else [])


def parts(header):
    """The top comment, what stands before the first part, and the parts by their titles."""
    top = re.match(r"/\*.*?\*/", header, re.DOTALL)[0]
    pieces = re.split(r"^/\* -{4} (.*?) -+ \*/\n", header[len(top):], flags=re.MULTILINE)
    return top, pieces[0], [(title, declarations(text)) for title, text in zip(pieces[1::2], pieces[2::2])]


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
    return re.sub(r"^(?=[.'])", r"\\&", text)


def argument(text):
    """One argument of a macro."""
    text = text.replace("\\", "\\e").replace('"', "\\(dq")
    return f'"\\&{text}"' if re.fullmatch(r"[A-Z][a-z]|\W", text) else f'"{text}"' if " " in text else text


class Writer:
    """Writes a page. `known` are the names that are set as functions and as constants."""

    def __init__(self, functions):
        self.functions, self.lines = functions, []

    def macro(self, *words):
        self.lines.append("." + " ".join(words))

    def text(self, words):
        """Running text: a line for each sentence at least, functions and constants as such."""
        line = ""
        for word in words.split():
            match = re.fullmatch(r"(\(?)(\w+)(\(\))?([.,;:)]*)", word)
            macro = match and ("Fn" if match[3] or match[2] in self.functions else
                               "Dv" if re.fullmatch(r"STINT_[A-Z_0-9]+", match[2]) else None)
            if macro:
                if line:
                    self.lines.append(literal(line))
                line = ""
                self.macro(*filter(None, [macro, match[1], match[2], *match[4]]))
                continue
            if line and len(literal(line)) + 1 + len(word) > WIDTH:
                self.lines.append(literal(line))
                line = ""
            line = f"{line} {word}" if line else word
            if re.search(r"(?<!\.)[.!?][)\"]*$", word):  # a sentence's end, not the .. of a range
                self.lines.append(literal(line))
                line = ""
        if line:
            self.lines.append(literal(line))

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
                index = self.items(lines, index, bullets=item[0].endswith("- "))
            elif indent >= 4:
                end = index
                while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) >= 4):
                    end += 1
                self.example(lines[index:end])
                index = end
            else:
                end = index + 1
                while end < len(lines) and lines[end].strip() and not re.match(
                        r" {0,5}- \S| {2,3}\S+  +\S| {4}|Returns |Threads: |Cost: |Arguments and Returns", lines[end]):
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

    def head(self, name, names, about):
        self.lines.append('.\\" SPDX-License-Identifier: MIT')
        self.lines.append('.\\" Made of include/stint.h by doc/man3.py.')
        self.macro("Dd", DATE)
        self.macro("Dt", argument(name.upper()), "3")
        self.macro("Os")
        self.macro("Sh", "NAME")
        for index, other in enumerate(names):
            self.macro(*["Nm", other] + ([","] if index + 1 < len(names) else []))
        self.macro("Nd", about)
        self.macro("Sh", "SYNOPSIS")
        self.macro("In", "stint.h")

    def prototype(self, text):
        kind, name, arguments = re.fullmatch(r"(.*?)(\w+)\((.*)\)", text).groups()
        self.macro("Ft", argument(kind.strip()))
        self.macro("Fo", name)
        for one in re.split(r", (?![^(]*\))", arguments):
            self.macro("Fa", f'"{one}"')
        self.macro("Fc")

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


def see_also(page, own, titles):
    """All other pages, by section and name."""
    page.macro("Sh", "SEE ALSO")
    names = [("stint", "1"), ("stint", "3")] + [(name, "3") for name in sorted(page_of(title) for title, _ in titles)]
    names.remove((own, "3"))
    for index, (name, section) in enumerate(names):
        page.macro("Xr", name, section, *([","] if index + 1 < len(names) else []))


def part_page(title, found, titles, functions):
    page = Writer(functions)
    names = [one.name for one in found if one.kind == "function"]
    page.head(page_of(title), names, ABOUT.get(title, title.lower()))
    for one in found:
        if one.kind == "function":
            page.prototype(one.text)
    page.macro("Sh", "DESCRIPTION")
    page.lines += [".Xr stint 3", "tells what all have in common: promises, threads, errors, shared tables."]
    for one in found:
        if one.kind == "function":
            page.macro("Ss", one.name)
        elif one.name:
            page.macro("Ss", one.kind, one.name)
        else:
            page.macro("Pp")
        if one.comment:
            page.comment(one.comment)
        if one.kind in ("struct", "enum"):
            page.members(one)
    see_also(page, page_of(title), titles)
    return page


def top_page(top, between, titles, functions):
    page = Writer(functions)
    page.head("stint", ["stint"], "lock-free in-process fixed-window rate limiter")
    page.macro("Pp")
    page.macro("Dl", "cc server.c $(pkg-config --cflags --libs stint)")
    lines = comment_lines(top)
    sections, name = {"DESCRIPTION": []}, "DESCRIPTION"
    about = lines.index("stint: a lock-free, in-process, fixed-window rate limiter.")  # as NAME says
    for line in lines[about + 1:]:
        match = re.match(r"([A-Z]{4,}(?: [A-Z]+)*)(?:\. +(?=\S)| \(.*\)$|$)", line)
        if match:
            name = match[1]
            sections[name] = []
            line = line[match.end():]
        sections[name].append(line)
    errors = sections.pop("ERRORS")
    for name, body in sections.items():
        page.macro("Sh", name)
        page.block(body)
        if name == "DESCRIPTION":
            page.macro("Pp")
            page.text("The functions, by what they are for:")
            page.macro("Bl", "-tag", "-width", "Ds")
            for title, found in titles:
                page.macro("It", "Xr", page_of(title), "3")
                names = [one.name for one in found if one.kind == "function"]
                page.text(", ".join(names) + ".")
            page.macro("El")
    page.macro("Sh", "TYPES AND CONSTANTS")
    in_list = False
    for comment, type_, name, value, behind in re.findall(
            r"(/\*.*?\*/)\n(?:typedef (.*?);)?|^#define (STINT_[A-Z0-9_]+) +(\d+)U?L?L?\b(?: +(/\*.*?\*/))?$",
            between.split("/* opaque */")[1], re.MULTILINE | re.DOTALL):
        item = bool(type_ or name)  # else it is a comment that stands alone
        if item != in_list:
            page.macro(*(["Bl", "-tag", "-width", "Ds"] if item else ["El"]))
            in_list = item
        page.macro(*(["It", "Vt", argument(type_)] if type_ else
                     ["It", "Dv", argument(f"{name} = {value}")] if name else ["Pp"]))
        if comment or behind:
            page.comment(comment or behind)
    page.macro("El")
    page.macro("Sh", "ERRORS")
    page.block(errors)
    see_also(page, "stint", titles)
    return page


def pages(header):
    """All pages: their text by the names of their files."""
    top, between, titles = parts(header)
    functions = {one.name for _, found in titles for one in found if one.kind == "function"}
    made = {"stint.3": top_page(top, between, titles, functions)}
    for title, found in titles:
        made[page_of(title) + ".3"] = part_page(title, found, titles, functions)
    texts = {name: "\n".join(page.lines) + "\n" for name, page in made.items()}
    for title, found in titles:
        for one in found:
            if one.name:
                texts.setdefault(one.name + ".3", f".so man3/{page_of(title)}.3\n")
    return texts


def main(arguments):
    if arguments[0] == "--list":
        print("\n".join(sorted(pages(Path(arguments[1]).read_text()))))
        return
    header, directory = map(Path, arguments)
    for name, text in pages(header.read_text()).items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
