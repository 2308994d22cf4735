/* SPDX-License-Identifier: MIT
 * Pictures of a result, drawn by gnuplot. The SVG has no background and, outside the curves, no
 * colour that a page could hide: grey lines, and text that follows the reader's colour scheme. */
#include "output.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"
#include "row.h"
#include "team.h"

enum { CURVES_MAX = 16, POINTS_MAX = 64 };

/* Mid-tones, apart in hue and in lightness, legible on white and on black. */
static const char *const colours[] = {"#3b82c4", "#d9822b", "#3a9d5d",
                                      "#c2528b", "#8a6fd1", "#8a8a2e"};
enum { COLOURS = sizeof(colours) / sizeof(colours[0]), GREY = COLOURS };

/* Where the scheme is not known, a grey that is legible on both. */
static const char style[] = "<style>"
                            "text{fill:#7a828c}"
                            "@media(prefers-color-scheme:light){text{fill:#24292f}}"
                            "@media(prefers-color-scheme:dark){text{fill:#d7dde3}}"
                            "</style>";

struct curve {
    char name[64];
    bool faint; /* a floor, or noise */
    unsigned colour, n;
    struct point {
        double x, y, low, high;
    } points[POINTS_MAX];
};

struct picture {
    const char *file, *title, *x, *y;
    char setup[1024]; /* gnuplot's, of the axes */
    struct curve curves[CURVES_MAX];
    unsigned n;
};

/* ---- From rows to curves ---- */

static double number(const json_t *row, const char *name) {
    return json_number_value(json_object_get(row, name));
}

static const char *text(const json_t *row, const char *name) {
    const char *value = json_string_value(json_object_get(row, name));
    return value == NULL ? "" : value;
}

static struct curve *curve_of(struct picture *picture, const char *name, bool faint,
                              unsigned colour) {
    for (unsigned i = 0; i < picture->n; i++)
        if (strcmp(picture->curves[i].name, name) == 0)
            return &picture->curves[i];
    if (picture->n == CURVES_MAX)
        return NULL;
    struct curve *curve = &picture->curves[picture->n++];
    *curve = (struct curve){.faint = faint, .colour = colour == GREY ? GREY : colour % COLOURS};
    snprintf(curve->name, sizeof(curve->name), "%s", name);
    return curve;
}

static void put_point(struct curve *curve, double x, double y, double low, double high) {
    if (curve == NULL || curve->n == POINTS_MAX)
        return;
    /* In order: rows come in any. */
    unsigned at = curve->n++;
    for (; at > 0 && curve->points[at - 1].x > x; at--)
        curve->points[at] = curve->points[at - 1];
    curve->points[at] = (struct point){x, y, low, high};
}

/* Whether the row belongs to the series, or to none (`stint-bench run`) and has all that is usual
 * but for what the series changes. */
static bool in_series(const json_t *row, const char *series) {
    if (json_object_get(row, "series") != NULL && strcmp(text(row, "series"), series) != 0)
        return false;
    return json_is_number(json_object_get(row, "ns_per_op")) && number(row, "load") == 0.5 &&
           number(row, "policies") == 1;
}

static void keys_picture(struct picture *picture, const json_t *rows) {
    *picture = (struct picture){
        .file = "keys",
        .title = "Decisions per second of one core, as the keys grow",
        .x = "keys in the table",
        .y = "millions a second",
        .setup = "set logscale xy\nset format y '%g'\nset autoscale xfix\nset offsets graph "
                 "0.04,graph 0.04,0,0\n"
                 "set xtics (\"1k\" 1e3,\"10k\" 1e4,\"100k\" 1e5,\"1M\" "
                 "1e6,\"10M\" 1e7,"
                 "\"100M\" 1e8,\"1G\" 1e9)\nset ytics (1,2,5,10,20,50,100,200,500,1000)\n",
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *workload = text(row, "workload");
        if (!in_series(row, "keys") || number(row, "threads") != 1 ||
            strcmp(text(row, "distribution"), "uniform") != 0)
            continue;
        struct curve *curve = curve_of(picture, workload, false, picture->n);
        put_point(curve, number(row, "keys"), 1000 / number(row, "ns_per_op"),
                  1000 / number(row, "ns_max"), 1000 / number(row, "ns_min"));
    }
    /* What no limiter can beat: the floor that is the same at all sizes. */
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!in_series(row, "keys") || number(row, "threads") != 1 ||
            strcmp(text(row, "distribution"), "uniform") != 0 ||
            strcmp(text(row, "workload"), "batch") != 0)
            continue;
        double y = 1000 / number(row, "floor_ns");
        put_point(curve_of(picture, "nothing but the atomic add", true, GREY), number(row, "keys"),
                  y, y, y);
    }
}

static double alone_mops(const json_t *rows, const json_t *like) {
    static const char *const same[] = {"series", "workload", "distribution", "keys"};

    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        bool found = number(row, "threads") == 1 && in_series(row, "threads") &&
                     (number(row, "stripes") > 1) == (number(like, "stripes") > 1);
        for (size_t j = 0; j < sizeof(same) / sizeof(same[0]) && found; j++) {
            const json_t *a = json_object_get(row, same[j]), *b = json_object_get(like, same[j]);
            found = a == b || json_equal(a, b);
        }
        if (found)
            return number(row, "mops");
    }
    return 0;
}

static void threads_picture(struct picture *picture, const json_t *rows) {
    double most = 1;

    *picture = (struct picture){
        .file = "threads",
        .title = "Decisions per second, as the threads grow",
        .x = "threads, each on a core of its own",
        .y = "times one thread alone",
        .setup = "set yrange [0:*]\nset xtics 1\nset autoscale xfix\nset offsets 0.2,0.2,0.1,0\n",
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double threads = number(row, "threads"), alone = alone_mops(rows, row);
        char name[64], keys[24];
        if (!in_series(row, "threads") || alone == 0)
            continue;
        /* The threads alone and together by turns, if that is what was measured. */
        bool turns = strcmp(text(row, "floor"), "one alone") == 0;
        double y = turns ? threads / number(row, "ratio") : number(row, "mops") / alone;
        double low = turns ? threads / number(row, "ratio_max") : y;
        double high = turns ? threads / number(row, "ratio_min") : y;
        format_count((uint64_t)number(row, "keys"), keys, sizeof(keys));
        snprintf(name, sizeof(name), "%s %s%s, %s keys", text(row, "workload"),
                 text(row, "distribution"), number(row, "stripes") > 1 ? " striped" : "", keys);
        put_point(curve_of(picture, name, false, picture->n), threads, y, low, high);
        most = threads > most ? threads : most;
    }
    if (picture->n == 0 || most == 1) {
        picture->n = 0;
        return;
    }
    struct curve *ideal = curve_of(picture, "as many times as threads", true, GREY);
    put_point(ideal, 1, 1, 1, 1);
    put_point(ideal, most, most, most, most);
}

static void tails_picture(struct picture *picture, const json_t *rows) {
    *picture = (struct picture){
        .file = "tails",
        .title = "Time of a single call, and of an empty section",
        .x = "percentile",
        .y = "time",
        .setup = "set logscale xy\nset xrange [1.6:1.3e5]\n"
                 "set ytics (\"1 ns\" 1,\"10 ns\" 10,\"100 ns\" 100,\"1 µs\" 1e3,"
                 "\"10 µs\" 1e4,\"100 µs\" 1e5,\"1 ms\" 1e6,\"10 ms\" 1e7,\"100 ms\" 1e8,"
                 "\"1 s\" 1e9)\n"
                 "set xtics (\"50%%\" 2,\"90%%\" 10,\"99%%\" 100,\"99.9%%\" 1e3,\"99.99%%\" 1e4,"
                 "\"max\" 1e5)\n",
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        static const char *const sections[] = {"call", "empty"};
        for (unsigned s = 0; s < 2; s++) {
            const json_t *tail = json_object_get(row, sections[s]);
            char name[64], keys[24];
            if (tail == NULL)
                continue;
            format_count((uint64_t)number(row, "keys"), keys, sizeof(keys));
            snprintf(name, sizeof(name), "%s %s, %s keys, %.0f thr%s", text(row, "workload"),
                     text(row, "distribution"), keys, number(row, "threads"),
                     s == 0 ? "" : ": empty");
            struct curve *curve = curve_of(picture, name, s == 1, (unsigned)i);
            for (unsigned p = 0; p < TAIL_POINTS; p++) {
                const json_t *point = json_object_get(tail, tail_names[p]);
                double x = tail_percents[p] < 100 ? 100 / (100 - tail_percents[p]) : 1e5;
                /* Nothing is below 1 on a logarithmic axis. */
                double y = number(point, "ns"), low = number(point, "min");
                double high = number(point, "max");
                put_point(curve, x, y < 1 ? 1 : y, low < 1 ? 1 : low, high < 1 ? 1 : high);
            }
        }
    }
}

/* ---- From curves to SVG ---- */

/* In single quotes, in which gnuplot takes everything as it is. */
static void quoted(FILE *out, const char *value) {
    fputc('\'', out);
    for (; *value != '\0'; value++) {
        if (*value == '\'')
            fputc('\'', out);
        fputc((unsigned char)*value < 0x20 ? ' ' : *value, out);
    }
    fputc('\'', out);
}

static void write_script(FILE *out, const struct picture *picture, const char *caption) {
    fputs("set encoding utf8\nset terminal svg size 1000,480 dynamic font 'sans-serif,14' "
          "noenhanced\n"
          "set pointintervalbox 0\nset border 3 lc rgb '#808080'\nset tics nomirror\n"
          "set grid lc rgb '#808080' lw 0.4 dt 3\n"
          "set key outside right top Left reverse samplen 2\nset bmargin 5\n",
          out);
    fputs(picture->setup, out);
    fputs("set title ", out);
    quoted(out, picture->title);
    fputs(" font ',17'\nset xlabel ", out);
    quoted(out, picture->x);
    fputs("\nset ylabel ", out);
    quoted(out, picture->y);
    fputs("\nset label 1 ", out);
    quoted(out, caption);
    fputs(" at screen 0.01,0.02 font ',11'\n", out);
    for (unsigned i = 0; i < picture->n; i++) {
        fprintf(out, "$c%u << EOD\n", i);
        for (unsigned p = 0; p < picture->curves[i].n; p++)
            fprintf(out, "%.9g %.9g %.9g %.9g\n", picture->curves[i].points[p].x,
                    picture->curves[i].points[p].y, picture->curves[i].points[p].low,
                    picture->curves[i].points[p].high);
        fputs("EOD\n", out);
    }
    fputs("plot ", out);
    for (unsigned i = 0; i < picture->n; i++) {
        const struct curve *curve = &picture->curves[i];
        const char *colour = curve->colour < COLOURS ? colours[curve->colour] : "#808080";
        if (i > 0)
            fputs(", ", out);
        fprintf(out, "$c%u using 1:2 with lines lc rgb '%s' %s title ", i, colour,
                curve->faint ? "lw 1.2 dt 2" : "lw 2.2");
        quoted(out, curve->name);
        if (!curve->faint)
            fprintf(out,
                    ", $c%u using 1:2:3:4 with yerrorbars notitle lc rgb '%s' lw 1 pt 7 ps 0.5", i,
                    colour);
    }
    fputs("\n", out);
}

/* Runs gnuplot on a script. It dies with us, whatever kills us. Returns its output, or NULL. */
static char *run_gnuplot(int script, size_t *size) {
    int ends[2];
    char *drawn = NULL, buffer[4096];
    ssize_t n;

    if (pipe(ends) != 0)
        return NULL;
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        dup2(script, STDIN_FILENO);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("gnuplot", "gnuplot", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *out = must_have(open_memstream(&drawn, size));
    while (child > 0 &&
           ((n = read(ends[0], buffer, sizeof(buffer))) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0)
            fwrite(buffer, 1, (size_t)n, out);
    fclose(out);
    close(ends[0]);
    int status = -1;
    if (child <= 0 || waitpid(child, &status, 0) != child || status != 0 || *size == 0) {
        free(drawn);
        return NULL;
    }
    return drawn;
}

static bool write_svg(const char *path, const char *svg, size_t size) {
    const char *start = strstr(svg, "<svg"), *end = start == NULL ? NULL : strchr(start, '>');
    FILE *file = end == NULL ? NULL : fopen(path, "w");

    if (file == NULL)
        return false;
    size_t head = (size_t)(end + 1 - svg);
    fwrite(svg, 1, head, file);
    fputs(style, file);
    fwrite(svg + head, 1, size - head, file);
    bool good = !ferror(file);
    return fclose(file) == 0 && good;
}

static int draw(const struct picture *picture, const char *directory, const char *caption) {
    char path[4096];
    size_t size = 0;
    int memory = memfd_create("stint-bench-plot", MFD_CLOEXEC);
    FILE *script = memory < 0 ? NULL : fdopen(dup(memory), "w");

    if (script == NULL ||
        snprintf(path, sizeof(path), "%s/%s.svg", directory, picture->file) >= (int)sizeof(path)) {
        fprintf(stderr, "stint-bench: --plot %s: cannot draw %s\n", directory, picture->file);
        return EXIT_FAILED;
    }
    write_script(script, picture, caption);
    fclose(script);
    lseek(memory, 0, SEEK_SET);
    char *svg = run_gnuplot(memory, &size);
    close(memory);
    bool good = svg != NULL && write_svg(path, svg, size);
    free(svg);
    if (good)
        fprintf(stderr, "drawn: %s\n", path);
    else
        fprintf(stderr, "stint-bench: %s cannot be drawn%s%s\n", path, errno != 0 ? ": " : "",
                errno != 0 ? strerror(errno) : "");
    return good ? EXIT_GOOD : EXIT_FAILED;
}

int plot_result(const json_t *result, const char *directory) {
    static struct picture pictures[3];
    const json_t *machine = json_object_get(result, "machine");
    char caption[256];
    int outcome = EXIT_GOOD;
    unsigned drawn = 0;

    snprintf(caption, sizeof(caption), "%.80s, %.0f cores; %.10s; stint %.20s, commit %.20s",
             text(machine, "cpu"), number(machine, "cores"), text(result, "date"),
             text(json_object_get(result, "build"), "version"),
             text(json_object_get(result, "build"), "commit"));
    keys_picture(&pictures[0], json_object_get(result, "rows"));
    threads_picture(&pictures[1], json_object_get(result, "rows"));
    tails_picture(&pictures[2], json_object_get(result, "tails"));
    for (unsigned i = 0; i < 3; i++) {
        if (pictures[i].n == 0)
            continue;
        errno = 0;
        drawn++;
        if (draw(&pictures[i], directory, caption) != EXIT_GOOD)
            outcome = EXIT_FAILED;
    }
    if (drawn == 0)
        fputs("--plot: these rows make no picture\n", stderr);
    return outcome;
}
