# SPDX-License-Identifier: MIT
"""Pictures of a result, drawn by gnuplot. The SVG has no background and, outside the curves, no
colour that a page could hide: grey lines, and text that follows the reader's colour scheme."""
import os
import subprocess
import sys

from driver import Failed

WIDTH, HEIGHT = 880, 420
# Mid-tones, apart in hue and in lightness, legible on white and on black.
COLOURS = ["#3b82c4", "#d9822b", "#3a9d5d", "#c2528b", "#8a6fd1", "#8a8a2e"]
GREY = "#808080"
# Where the scheme is not known, a grey that is legible on both.
STYLE = ("<style>text{fill:#7a828c}"
         "@media(prefers-color-scheme:light){text{fill:#24292f}}"
         "@media(prefers-color-scheme:dark){text{fill:#d7dde3}}</style>")


class Curve:
    def __init__(self, colour, faint, dash):
        self.colour, self.faint, self.dash, self.points = colour, faint, dash, []

    def add(self, x, y, low=None, high=None):
        self.points.append((x, y, y if low is None else low, y if high is None else high))


class Picture:
    def __init__(self, file, title, x, y, setup=""):
        self.file, self.title, self.x, self.y, self.setup = file, title, x, y, setup
        self.curves = {}

    def curve(self, name, colour=None, faint=False):
        """The curve of that name; a new one has the colour, a number or grey, or the next one. What
        is faint is a reference: the lines of one colour are dashed each in its own way."""
        if name not in self.curves:
            if colour is None:
                colour = len(self.curves)
            if isinstance(colour, int):
                colour = COLOURS[colour % len(COLOURS)]
            dash = 1
            if faint:
                dash = max(2, 1 + sum(curve.colour == colour for curve in self.curves.values()))
            self.curves[name] = Curve(colour, faint, dash)
        return self.curves[name]


# ---- From rows to curves ----

KEYS_CURVES = {"take": "take: one at a time", "batch": "batch: 16 in a call"}
KEYS_REFERENCES = {"take": "reference: clock, hash, atomic add",
                   "batch": "reference: hash, atomic add"}


def keys_picture(rows):
    picture = Picture(
        "keys", "Decisions a second of one core, as the keys grow", "keys in the table",
        "millions a second",
        "set logscale xy\nset format y '%g'\nset autoscale fix\n"
        "set offsets graph 0.04,graph 0.04,graph 0.08,graph 0.08\n"
        "set xtics ('10' 10,'100' 100,'1k' 1e3,'10k' 1e4,'100k' 1e5,'1M' 1e6,'10M' 1e7,"
        "'100M' 1e8,'1G' 1e9)\nset ytics (0.5,1,2,5,10,20,50,100,200,500,1000)\n")
    rows = [row for row in rows if row.get("ns_per_op") and row.get("workload") in KEYS_CURVES and
            row["threads"] == 1 and row["distribution"] == "uniform" and row["load"] == 0.5]

    def curve(row):
        return picture.curve(KEYS_CURVES[row["workload"]])

    for row in rows:
        curve(row).add(row["keys"], 1000 / row["ns_per_op"], 1000 / row["ns_max"],
                       1000 / row["ns_min"])
    for row in rows:
        # in the colour of what it stands beside
        picture.curve(KEYS_REFERENCES[row["workload"]], curve(row).colour, True).add(
            row["keys"], 1000 / row["reference_ns"])
    return picture


# ---- From curves to SVG ----

def quoted(text):
    """In single quotes, in which gnuplot takes everything as it is."""
    text = "".join(" " if letter < " " else letter for letter in text)
    return "'" + text.replace("'", "''") + "'"


def frame(picture, caption):
    """Title, then the legend in as many columns as it has room for, then what it is of."""
    letter, sample, line, title, axis = 10, 60, 20, 38, 20  # pixels
    curves = len(picture.curves)
    columns = WIDTH // (max(map(len, picture.curves)) * letter + sample)
    columns = min(max(columns, 1), curves)
    head = title + line * -(-curves // columns)
    height = HEIGHT + head
    return (f"set terminal svg size {WIDTH},{height} dynamic font 'sans-serif,14' noenhanced\n"
            f"set label 2 {quoted(picture.title)} at screen 0.5,{1 - 18 / height:.4f} center "
            "font ',17'\n"
            f"set key at screen 0.5,{1 - title / height:.4f} center top horizontal "
            f"maxcols {columns} Left reverse samplen 2\n"
            f"set tmargin at screen {1 - (head + axis) / height:.4f}\nset bmargin 5\n"
            f"set label 1 {quoted(caption)} at character 1,0.8 font ',11'\n")


def curve_plot(i, name, curve):
    """Error bars are always of both axes: those of one have a white ring around the point."""
    width, ends, size = ("1.2", "2:2", "0.3") if curve.faint else ("2.2", "3:4", "0.5")
    return (f"$c{i} using 1:2 with lines lc rgb '{curve.colour}' lw {width} dt {curve.dash} "
            f"title {quoted(name)}, $c{i} using 1:2:1:1:{ends} with xyerrorbars notitle "
            f"lc rgb '{curve.colour}' lw 1 pt 7 ps {size}")


def script(picture, caption):
    text = "set encoding utf8\n" + frame(picture, caption)
    text += (f"set border 3 lc rgb '#808080'\nset tics nomirror\n"
             "set grid lc rgb '#808080' lw 0.4 dt 3\nset errorbars small\n")
    text += picture.setup + f"set xlabel {quoted(picture.x)}\nset ylabel {quoted(picture.y)}\n"
    for i, curve in enumerate(picture.curves.values()):
        points = sorted(curve.points, key=lambda point: point[0])  # rows come in any order
        lines = [" ".join(f"{number:.9g}" for number in point) for point in points]
        text += f"$c{i} << EOD\n" + "\n".join(lines) + "\nEOD\n"
    return text + "plot " + ", ".join(curve_plot(i, name, curve) for i, (name, curve)
                                      in enumerate(picture.curves.items())) + "\n"


def draw(picture, directory, caption):
    path = os.path.join(directory, picture.file + ".svg")
    try:
        svg = subprocess.run(["gnuplot"], input=script(picture, caption).encode(), check=True,
                             stdout=subprocess.PIPE).stdout.decode()
        cut = svg.index(">", svg.index("<svg")) + 1
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg[:cut] + STYLE + svg[cut:])
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise Failed(f"{path} cannot be drawn: {error}") from None
    print(f"drawn: {path}", file=sys.stderr)


def draw_all(pictures, result, directory):
    """Draws the pictures that the result has data for, and says which."""
    machine, build = result["machine"], result["build"]
    caption = (f"{machine['cpu']:.80}, {machine['cores']} cores; {result['date']:.10}; "
               f"stint {build['version']:.20}, commit {build['commit']:.20}")
    pictures = [make(result["rows"]) for make in pictures]
    pictures = [picture for picture in pictures if picture.curves]
    for picture in pictures:
        draw(picture, directory, caption)
    if not pictures:
        print("--plot: these rows make no picture", file=sys.stderr)
