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

enum { CURVES_MAX = 16, POINTS_MAX = 64, WIDTH = 880, HEIGHT = 420 };

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
    unsigned dash; /* gnuplot's number; 1: a line */
    struct point {
        double x, y, low, high;
    } points[POINTS_MAX];
};

struct picture {
    const char *file, *title, *x, *y; /* y: NULL: the axis needs none */
    unsigned height;                  /* 0: HEIGHT */
    bool across;                      /* points with errors in x, without lines */
    bool full;                        /* there was no room for another curve */
    char setup[2048];                 /* gnuplot's, of the axes */
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
    if (picture->n == CURVES_MAX) {
        picture->full = true;
        return NULL;
    }
    struct curve *curve = &picture->curves[picture->n];
    *curve = (struct curve){.faint = faint, .colour = colour == GREY ? GREY : colour % COLOURS};
    curve->dash = 1;
    for (unsigned i = 0; i < picture->n; i++)
        curve->dash += faint && picture->curves[i].colour == curve->colour;
    curve->dash += faint && curve->dash == 1;
    picture->n++;
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

static bool is_uniform_alone(const json_t *row) {
    return number(row, "threads") == 1 && strcmp(text(row, "distribution"), "uniform") == 0;
}

static const struct {
    const char *workload, *name;
} named[] = {{"take", "take: one at a time"}, {"batch", "batch: 16 in a call"}};
enum { NAMED = sizeof(named) / sizeof(named[0]) };

static struct curve *keys_curve(struct picture *picture, const json_t *row) {
    const char *name = text(row, "workload");

    for (unsigned i = 0; i < NAMED; i++)
        if (strcmp(name, named[i].workload) == 0)
            name = named[i].name;
    return curve_of(picture, name, false, picture->n);
}

/* What it is measured beside, in the colour of what it is the floor of. */
static void keys_floor(struct picture *picture, const json_t *row) {
    const char *floor = text(row, "floor");
    const struct curve *of = keys_curve(picture, row);
    double y = 1000 / number(row, "floor_ns");
    char name[64];

    if (of == NULL)
        return;
    snprintf(name, sizeof(name), "%s",
             strcmp(floor, floors[FLOOR_TAKE].name) == 0   ? "floor: clock, hash, atomic add"
             : strcmp(floor, floors[FLOOR_XADD].name) == 0 ? "floor: atomic add"
             : strcmp(floor, floors[FLOOR_LOAD].name) == 0 ? "loads, each after the last"
                                                           : floor);
    put_point(curve_of(picture, name, true, of->colour), number(row, "keys"), y, y, y);
}

static void keys_picture(struct picture *picture, const json_t *rows) {
    *picture = (struct picture){
        .file = "keys",
        .title = "Decisions a second of one core, as the keys grow",
        .x = "keys in the table",
        .y = "millions a second",
        .setup = "set logscale xy\nset format y '%g'\nset autoscale fix\n"
                 "set offsets graph 0.04,graph 0.04,graph 0.08,graph 0.08\n"
                 "set xtics ('10' 10,'100' 100,'1k' 1e3,'10k' 1e4,'100k' 1e5,"
                 "'1M' 1e6,'10M' 1e7,'100M' 1e8,'1G' 1e9)\n"
                 "set ytics (0.5,1,2,5,10,20,50,100,200,500,1000)\n",
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (in_series(row, "keys") && is_uniform_alone(row))
            put_point(keys_curve(picture, row), number(row, "keys"),
                      1000 / number(row, "ns_per_op"), 1000 / number(row, "ns_max"),
                      1000 / number(row, "ns_min"));
    }
    for (unsigned k = 0; k < NAMED; k++)
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            if (in_series(row, "keys") && is_uniform_alone(row) &&
                strcmp(text(row, "workload"), named[k].workload) == 0)
                keys_floor(picture, row);
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
        .title = "Decisions a second, as the threads grow",
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

#define PERCENTILE_AXES                                                                            \
    "set logscale xy\nset xrange [1.6:1.3e5]\n"                                                    \
    "set ytics ('1 ns' 1,'10 ns' 10,'100 ns' 100,'1 µs' 1e3,'10 µs' 1e4,"                        \
    "'100 µs' 1e5,'1 ms' 1e6,'10 ms' 1e7,'100 ms' 1e8,'1 s' 1e9)\n"                               \
    "set xtics ('50%%' 2,'90%%' 10,'99%%' 100,'99.9%%' 1e3,'99.99%%' 1e4,'max' 1e5)\n"

static void put_tail(struct picture *picture, const json_t *row, const char *tail, const char *name,
                     bool faint, unsigned colour) {
    const json_t *points = json_object_get(row, tail);

    if (points == NULL)
        return;
    struct curve *curve = curve_of(picture, name, faint, colour);
    for (unsigned p = 0; p < TAIL_POINTS; p++) {
        const json_t *point = json_object_get(points, tail_names[p]);
        double x = tail_percents[p] < 100 ? 100 / (100 - tail_percents[p]) : 1e5;
        /* Nothing is below 1 on a logarithmic axis. */
        double y = number(point, "ns"), low = number(point, "min"), high = number(point, "max");
        put_point(curve, x, y < 1 ? 1 : y, low < 1 ? 1 : low, high < 1 ? 1 : high);
    }
}

static void tails_picture(struct picture *picture, const json_t *rows) {
    *picture = (struct picture){
        .file = "tails",
        .title = "Time of a single call, and of an empty section",
        .x = "percentile",
        .y = "time",
        .setup = PERCENTILE_AXES,
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        char name[48], empty[64], keys[24];
        if (!json_is_true(json_object_get(row, "latency")))
            continue;
        format_count((uint64_t)number(row, "keys"), keys, sizeof(keys));
        bool uniform = strcmp(text(row, "distribution"), "uniform") == 0;
        snprintf(name, sizeof(name), "%s%s%s, %s keys, %.0f thr", text(row, "workload"),
                 uniform ? "" : " ", uniform ? "" : text(row, "distribution"), keys,
                 number(row, "threads"));
        snprintf(empty, sizeof(empty), "%s: empty", name);
        put_tail(picture, row, "call", name, false, (unsigned)i);
        put_tail(picture, row, "empty", empty, true, (unsigned)i);
    }
}

static void load_picture(struct picture *picture, const json_t *rows) {
    *picture = (struct picture){
        .file = "load",
        .title = "Arrivals on a schedule: how late each was begun, and how long it took",
        .x = "percentile",
        .y = "time",
        .setup = PERCENTILE_AXES,
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(text(row, "workload"), "arrivals") != 0)
            continue;
        put_tail(picture, row, "call", "a decision", false, 0);
        put_tail(picture, row, "empty", "no decision in its place", true, 0);
        put_tail(picture, row, "late", "begun after it was due", false, 1);
        put_tail(picture, row, "late_without", "begun, without decisions", true, 1);
    }
}

/* ---- Peers ---- */

static unsigned line_of(const char *labels[], unsigned *n, const char *label) {
    unsigned line = 0;

    while (line < *n && strcmp(labels[line], label) != 0)
        line++;
    if (line == *n && *n < POINTS_MAX)
        labels[(*n)++] = label;
    return line;
}

static void peers_axes(struct picture *picture, const char *const labels[], const bool absent[],
                       unsigned lines) {
    enum { LINE = 34, AROUND = 100 }; /* pixels */
    size_t at, size = sizeof(picture->setup);

    at = (size_t)snprintf(
        picture->setup, size,
        "set logscale x\nset autoscale xfix\nset offsets graph 0.03,graph 0.03,0,0\n"
        "set xtics ('1k' 1e3,'10k' 1e4,'100k' 1e5,'1M' 1e6,'10M' 1e7,'100M' 1e8,'1G' 1e9,"
        "'10G' 1e10)\nset yrange [%u.5:-0.5]\nset ytics scale 0 (",
        lines - 1);
    for (unsigned i = 0; i < lines && at < size; i++)
        at += (size_t)snprintf(picture->setup + at, size - at, "%s'%.40s%s' %u", i == 0 ? "" : ",",
                               labels[i], absent[i] ? " (not installed)" : "", i);
    if (at < size)
        snprintf(picture->setup + at, size - at, ")\n");
    picture->height = AROUND + LINE * lines;
}

/* Each peer has a line of the picture, in the order of the rows, and on it a point for each number
 * of keys and threads. */
static void peers_picture(struct picture *picture, const json_t *rows) {
    const char *labels[POINTS_MAX];
    bool absent[POINTS_MAX] = {false};
    unsigned lines = 0;

    *picture = (struct picture){
        .file = "peers",
        .title = "Decisions a second, stint beside others",
        .x = "decisions a second, all threads together",
        .across = true,
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (json_object_get(row, "peer") == NULL)
            return;
        unsigned line = line_of(labels, &lines, text(row, "label"));
        if (line == lines)
            continue;
        absent[line] = json_is_true(json_object_get(row, "absent"));
        if (!json_is_number(json_object_get(row, "ns_per_op")))
            continue;
        double threads = number(row, "threads"), second = threads * 1e9;
        char name[64], keys[24];
        format_count((uint64_t)number(row, "keys"), keys, sizeof(keys));
        snprintf(name, sizeof(name), "%s keys, %.0f %s", keys, threads,
                 threads > 1 ? "threads" : "thread");
        put_point(curve_of(picture, name, false, picture->n), second / number(row, "ns_per_op"),
                  line, second / number(row, "ns_max"), second / number(row, "ns_min"));
    }
    /* Points of one line stand one above the other. */
    for (unsigned i = 0; i < picture->n; i++)
        for (unsigned p = 0; p < picture->curves[i].n; p++)
            picture->curves[i].points[p].y += 0.6 * ((i + 0.5) / picture->n - 0.5);
    if (picture->n != 0)
        peers_axes(picture, labels, absent, lines);
}

/* ---- Fleets ---- */

#define FLEET_AXES                                                                                 \
    "set logscale xy\nset autoscale xfix\nset offsets graph 0.04,graph 0.04,0,0\n"                 \
    "set ytics ('0.01%%' 0.01,'0.1%%' 0.1,'1%%' 1,'10%%' 10,'100%%' 100,'1000%%' 1000)\n"          \
    "set xtics (2,3,5,10,30,100,300,1000,3000,10000)\n"

static void fleet_point(struct curve *curve, const json_t *row, const char *restart) {
    double y = number(json_object_get(row, restart), "mean");

    if (y > 0) /* nothing else has a place on a logarithmic axis */
        put_point(curve, number(row, "nodes"), y, y, y);
}

/* What consistent hashing leads one to expect where one node dies and returns in each window. */
static void fleet_theory(struct picture *picture, const json_t *rows) {
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        double y = number(json_object_get(row, "forgets"), "theory");
        if (y > 0 && strcmp(text(row, "churn"), "death") == 0 &&
            strcmp(text(row, "balancer"), "haproxy") == 0)
            put_point(curve_of(picture, "two limits for 1 of N keys", true, GREY),
                      number(row, "nodes"), y, y, y);
    }
}

/* One balancer, whatever happens to the nodes. */
static void churn_picture(struct picture *picture, const json_t *rows) {
    static const char *const churns[] = {"deploy", "death", "crashes", "flap"};
    static const char *const restarts[] = {"forgets", "keeps"};

    *picture = (struct picture){
        .file = "fleet",
        .title = "What a key gets above its limit in a window, in the mean, if it takes all it can",
        .x = "nodes behind HAProxy, consistent hashing",
        .y = "in percent of the limit",
        .setup = FLEET_AXES,
    };
    for (unsigned c = 0; c < sizeof(churns) / sizeof(churns[0]); c++)
        for (unsigned r = 0; r < 2; r++)
            for (size_t i = 0; i < json_array_size(rows); i++) {
                const json_t *row = json_array_get(rows, i);
                char name[64];
                if (strcmp(text(row, "balancer"), "haproxy") != 0 ||
                    strcmp(text(row, "demand"), "greedy") != 0 ||
                    strcmp(text(row, "churn"), churns[c]) != 0 ||
                    json_object_get(row, restarts[r]) == NULL)
                    continue;
                bool restarted = json_object_get(row, "forgets") != NULL;
                snprintf(name, sizeof(name), "%s%s%s", churns[c], restarted ? ", node " : "",
                         restarted ? restarts[r] : "");
                fleet_point(curve_of(picture, name, restarted && r == 1, c), row, restarts[r]);
            }
}

/* All balancers, by the same deaths. */
static void balancer_picture(struct picture *picture, const json_t *rows) {
    *picture = (struct picture){
        .file = "balancers",
        .title = "What a key gets above its limit if one node dies and returns in each window",
        .x = "nodes",
        .y = "in percent of the limit",
        .setup = FLEET_AXES,
    };
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (strcmp(text(row, "churn"), "death") == 0 && strcmp(text(row, "demand"), "greedy") == 0)
            fleet_point(curve_of(picture, text(row, "balancer"), false, picture->n % COLOURS), row,
                        "forgets");
    }
    if (picture->n < 2) /* nothing to compare */
        picture->n = 0;
    else
        fleet_theory(picture, rows);
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

static void write_data(FILE *out, const struct picture *picture) {
    for (unsigned i = 0; i < picture->n; i++) {
        fprintf(out, "$c%u << EOD\n", i);
        for (unsigned p = 0; p < picture->curves[i].n; p++)
            fprintf(out, "%.9g %.9g %.9g %.9g\n", picture->curves[i].points[p].x,
                    picture->curves[i].points[p].y, picture->curves[i].points[p].low,
                    picture->curves[i].points[p].high);
        fputs("EOD\n", out);
    }
}

/* Error bars are always of both axes: those of one are drawn with a white ring around the point. */
static void write_curve(FILE *out, const struct picture *picture, unsigned at) {
    static const unsigned shapes[] = {7, 5, 9, 13}; /* circle, square, triangle, diamond; filled */
    const struct curve *curve = &picture->curves[at];
    const char *colour = curve->colour < COLOURS ? colours[curve->colour] : "#808080";

    if (picture->across) {
        fprintf(out, "$c%u using 1:2:3:4:2:2 with xyerrorbars lc rgb '%s' lw 1 pt %u ps 0.8 title ",
                at, colour, shapes[at % 4]);
        quoted(out, curve->name);
        return;
    }
    fprintf(out, "$c%u using 1:2 with lines lc rgb '%s' lw %s dt %u title ", at, colour,
            curve->faint ? "1.2" : "2.2", curve->dash);
    quoted(out, curve->name);
    fprintf(out, ", $c%u using 1:2:1:1:%s with xyerrorbars notitle lc rgb '%s' lw 1 pt 7 ps %s", at,
            curve->faint ? "2:2" : "3:4", colour, curve->faint ? "0.3" : "0.5");
}

/* Title, then the legend in as many columns as it has room for, then what it is of. */
static void write_frame(FILE *out, const struct picture *picture, const char *caption) {
    enum { LETTER = 10, SAMPLE = 60, LINE = 20, TITLE = 38, AXIS = 20 }; /* pixels */
    size_t longest = 1;

    for (unsigned i = 0; i < picture->n; i++)
        if (strlen(picture->curves[i].name) > longest)
            longest = strlen(picture->curves[i].name);
    unsigned columns = (unsigned)(WIDTH / (longest * LETTER + SAMPLE));
    columns = columns < 1 ? 1 : columns > picture->n ? picture->n : columns;
    unsigned head = TITLE + LINE * ((picture->n + columns - 1) / columns);
    unsigned height = (picture->height != 0 ? picture->height : HEIGHT) + head;
    fprintf(out,
            "set terminal svg size %d,%u dynamic font 'sans-serif,14' noenhanced\n"
            "set label 2 ",
            WIDTH, height);
    quoted(out, picture->title);
    fprintf(out,
            " at screen 0.5,%.4f center font ',17'\n"
            "set key at screen 0.5,%.4f center top horizontal maxcols %u Left reverse samplen 2\n"
            "set tmargin at screen %.4f\nset bmargin 5\nset label 1 ",
            1 - 18.0 / height, 1 - (double)TITLE / height, columns,
            1 - (double)(head + AXIS) / height);
    quoted(out, caption);
    fputs(" at character 1,0.8 font ',11'\n", out);
}

static void write_script(FILE *out, const struct picture *picture, const char *caption) {
    fputs("set encoding utf8\n", out);
    write_frame(out, picture, caption);
    fprintf(out,
            "set border %d lc rgb '#808080'\nset tics nomirror\n"
            "set grid lc rgb '#808080' lw 0.4 dt 3\nset errorbars small\n",
            picture->across ? 1 : 3);
    fputs(picture->setup, out);
    fputs("set xlabel ", out);
    quoted(out, picture->x);
    if (picture->y != NULL) {
        fputs("\nset ylabel ", out);
        quoted(out, picture->y);
    }
    fputc('\n', out);
    write_data(out, picture);
    fputs("plot ", out);
    for (unsigned i = 0; i < picture->n; i++) {
        fputs(i == 0 ? "" : ", ", out);
        write_curve(out, picture, i);
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
        fprintf(stderr, "drawn: %s%s\n", path,
                picture->full ? ", without what it has no room for" : "");
    else
        fprintf(stderr, "stint-bench: %s cannot be drawn%s%s\n", path, errno != 0 ? ": " : "",
                errno != 0 ? strerror(errno) : "");
    return good ? EXIT_GOOD : EXIT_FAILED;
}

/* Each takes the rows that it has a place for, which may be none. */
static void (*const all_pictures[])(struct picture *, const json_t *) = {
    keys_picture,  threads_picture, tails_picture,    load_picture,
    peers_picture, churn_picture,   balancer_picture,
};
enum { PICTURES = sizeof(all_pictures) / sizeof(all_pictures[0]) };

int plot_result(const json_t *result, const char *directory) {
    static struct picture pictures[PICTURES];
    const json_t *machine = json_object_get(result, "machine");
    char caption[256];
    int outcome = EXIT_GOOD;
    unsigned drawn = 0;

    snprintf(caption, sizeof(caption), "%.80s, %.0f cores; %.10s; stint %.20s, commit %.20s",
             text(machine, "cpu"), number(machine, "cores"), text(result, "date"),
             text(json_object_get(result, "build"), "version"),
             text(json_object_get(result, "build"), "commit"));
    for (unsigned i = 0; i < PICTURES; i++) {
        all_pictures[i](&pictures[i], json_object_get(result, "rows"));
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
