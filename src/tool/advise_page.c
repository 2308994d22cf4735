/* SPDX-License-Identifier: MIT
 * The page: pictures in SVG and tables, in one file that asks for no other, with no script.
 *
 *     head -> lines to copy, peaks -> for each unit: curves, refusals over time, clients */
#include "advise.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common.h"
#include "report.h"

static const char head[] = ADVISE_PAGE_BEGIN
    "\n"
    "<html lang=\"en\">\n"
    "<head>\n"
    "<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<title>Which limit do these clients need?</title>\n"
    "<style>\n"
    ":root{--page:#f4f5f7;--card:#fff;--ink:#1c2430;--soft:#5b6675;--rule:#dde2e8;--code:#eef1f5;\n"
    "--clients:#1857c4;--requests:#b8480a;--mark:#0b7a4b;\n" /* 3:1 beside the card, each other: */
    "--grid:#8a94a1;--strict:#dd7a35;--refused:#7a2e06}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#12161c;--card:#1b2129;--ink:#e6eaf0;\n"
    "--soft:#9aa6b5;--rule:#323b47;--code:#262e39;--clients:#7db3ff;--requests:#ff9d5c;\n"
    "--mark:#4fd096;--grid:#66707e;--strict:#a9632f;--refused:#ffd9b8}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,\"Segoe UI\",\n"
    "Roboto,\"DejaVu Sans\",sans-serif}\n"
    "main{max-width:1320px;margin:0 auto;padding:28px 16px 48px}\n"
    "h1{font-size:26px;line-height:1.25;margin:0 0 8px}\n"
    "h2{font-size:20px;margin:36px 0 4px}\n"
    "h3{font-size:15px;margin:0 0 6px}\n"
    "p{margin:6px 0;max-width:72ch}.soft{color:var(--soft)}\n"
    ".grid{display:grid;gap:16px;margin-top:12px;grid-template-columns:repeat(auto-fit,\n"
    "minmax(min(100%,400px),1fr))}\n"
    ".card{background:var(--card);border:1px solid var(--rule);border-radius:10px;\n"
    "padding:14px 16px;min-width:0}\n"
    "pre{background:var(--code);border-radius:8px;padding:10px 12px;margin:8px "
    "0;white-space:pre-wrap;\n"
    "font:13px/1.6 ui-monospace,\"DejaVu Sans Mono\",monospace}code{font-family:ui-monospace,\n"
    "\"DejaVu Sans Mono\",monospace;font-size:.93em}\n"
    ".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13px;\n"
    "font-variant-numeric:tabular-nums}th,td{padding:4px 0 4px 10px;text-align:right;\n"
    "border-bottom:1px solid var(--rule);vertical-align:top}th{color:var(--soft);\n"
    "font-weight:600}th:first-child,td:first-child{text-align:left;padding-left:0;\n"
    "min-width:4.5em}tr:last-child td{border-bottom:0}.names td:first-child{min-width:9.5em;\n"
    "overflow-wrap:anywhere}tr.with td{border-bottom:0}td[colspan]{padding-top:0}\n"
    "svg{display:block;width:100%;height:auto;overflow:visible}svg text{fill:var(--soft);\n"
    "font:12px system-ui,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}\n"
    ".axis{stroke:var(--grid);vector-effect:non-scaling-stroke}.line{fill:none;stroke-width:2}\n"
    ".bucket{stroke-dasharray:5 4}.clients{stroke:var(--clients)}.requests{stroke:"
    "var(--requests)}\n"
    "circle.clients{fill:var(--clients)}circle.requests{fill:var(--requests)}\n"
    "circle.bucket{fill:var(--card);stroke-dasharray:none;stroke-width:1.5}\n"
    ".mark{stroke:var(--mark);stroke-width:1.5}svg text.marked{fill:var(--mark);"
    "font-weight:600}\n"
    ".refused{fill:var(--refused)}.strict{fill:var(--strict)}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;color:var(--soft);\n"
    "margin:0 0 6px}.legend svg{width:26px;height:10px;display:inline-block;margin-right:6px}\n"
    ".stack{display:grid;gap:16px;align-content:start;min-width:0}\n"
    "@media(max-width:600px){svg text{font-size:16px}h1{font-size:23px}table{font-size:12px}\n"
    "th:first-child,td:first-child{min-width:3em}.names td:first-child{min-width:8.6em}\n"
    "th,td{padding-left:6px}.spare{display:none}}\n"
    "details{margin-top:8px;font-size:13px}summary{cursor:pointer;color:var(--soft)}\n"
    "</style>\n"
    "</head>\n"
    "<body>\n"
    "<main>\n"
    "<h1>Which limit do these clients need?</h1>\n";

/* ---- Text ----------------------------------------------------------------------------------- */

/* Bytes of a log, which anybody may have written: nothing of them is taken for markup. What is
 * longer is cut. */
static void put_cut(FILE *out, const char *bytes, size_t length, size_t columns) {
    char shown[1024];

    printable(shown, sizeof(shown), bytes, length);
    text_cut(shown, columns);
    for (const char *at = shown; *at != '\0'; at++) {
        if (strchr("<>&\"'", *at) != NULL)
            fprintf(out, "&#%d;", *at);
        else
            fputc(*at, out);
    }
}

static void put_bytes(FILE *out, const char *bytes, size_t length) {
    put_cut(out, bytes, length, 72);
}

static double percent(uint64_t count, uint64_t of) {
    return of == 0 ? 0 : 100 * (double)count / (double)of;
}

/* 12 (0.7%) */
static void put_share(FILE *out, uint64_t count, uint64_t of) {
    char number[32];
    double share = percent(count, of);

    fprintf(out, "%s (%.*f%%)", grouped(number, count), share > 0 && share < 10 ? 2 : 0, share);
}

static void put_summary(FILE *out, const struct advice *advice) {
    const struct requests *requests = &advice->requests;
    uint64_t unreadable = requests->lines - requests->count;
    char a[48], b[48];

    fprintf(out, "<p>%s of %s, ", counted(a, requests->count, "request"),
            counted(b, requests->keys.count, "client"));
    fprintf(out, "%s to %s UTC", time_text(a, requests->first_ns, ' ', ""),
            time_text(b, requests->last_ns, ' ', ""));
    fprintf(out, " (%s).</p>\n<p class=\"soft\">Read from ",
            span_text(a, requests->last_ns - requests->first_ns));
    for (size_t i = 0; i < requests->options->file_count; i++) {
        const struct log_file *file = &requests->files[i];
        const char *name = strcmp(file->path, "-") == 0 ? "standard input" : file->path;
        fputs(i == 0 ? "" : ", ", out);
        put_bytes(out, name, strlen(name));
        fprintf(out, ": %s", file->form.name);
    }
    fputs(". Clients are told apart by ", out);
    for (size_t i = 0; i < requests->options->part_count; i++) {
        const struct log_part *part = &requests->options->parts[i];
        fprintf(out, "%s%s", i == 0 ? "" : ", ", part->kind == PART_FIELD ? "field " : "");
        put_bytes(out, part->name, strlen(part->name));
    }
    if (requests->options->address)
        fprintf(out, ", of which %u bits of IPv4 and %u of IPv6 count", requests->options->prefix4,
                requests->options->prefix6);
    fprintf(out, ". %s of %s could not be read.</p>\n", grouped(a, unreadable),
            counted(b, requests->lines, "line"));
}

static void put_lines(FILE *out, const struct advice *advice) {
    char number[32], line[ADVISE_NOTATION];

    fputs(
        "<div class=\"grid\">\n<section class=\"card\">\n<h3>To copy</h3>\n<p class=\"soft\">Each "
        "hits at most 1 of 1,000 clients. With <code>shadow</code> it counts what it would "
        "refuse, and refuses nothing.</p>\n<pre>",
        out);
    for (size_t i = 0; i < ADVISE_UNITS; i++) {
        const struct advise_unit *unit = &advice->units[i];
        if (!unit->judged)
            continue;
        snprintf(line, sizeof(line), "%.40s shadow", unit->suggested.notation);
        fprintf(out, "%-26s # ", line);
        if (unit->suggested.tally.clients == 0)
            fputs("hits nobody\n", out);
        else
            fprintf(out, "hits %s\n", grouped(number, unit->suggested.tally.clients));
    }
    fputs("</pre>\n", out);
    if (advice->requests.keys.count < 1000)
        fprintf(out, "<p class=\"soft\">%s</p>\n", ADVISE_FEW);
    fputs("</section>\n", out);
}

static void put_peaks(FILE *out, const struct advice *advice) {
    char number[32];

    fputs("<section class=\"card\">\n<h3>The most that a client has sent within one</h3>\n"
          "<div class=\"wide\"><table>\n<tr><th></th>",
          out);
    for (size_t i = 0; i < ADVISE_SHARES; i++)
        fprintf(out, "<th>%s</th>", i == 0 ? "half of them" : advise_shares[i].name);
    fputs("</tr>\n", out);
    for (size_t i = 0; i < ADVISE_UNITS; i++) {
        if (!advice->units[i].judged)
            continue;
        fprintf(out, "<tr><td>%s</td>", advice->units[i].name);
        for (size_t share = 0; share < ADVISE_SHARES; share++)
            fprintf(out, "<td>%s</td>", grouped(number, advice->units[i].peaks[share]));
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n<p class=\"soft\">99%: 99 of 100 clients have never sent more than that."
          "</p>\n</section>\n</div>\n",
          out);
}

/* ---- Curves --------------------------------------------------------------------------------- */

enum { WIDTH = 520, HEIGHT = 340, LEFT = 44, RIGHT = 14, TOP = 42, BOTTOM = 40 };

/* Where limits and shares are drawn: limits by their logarithm, shares by their square root, so
 * that both 0.1% and 50% can be read. */
struct scale {
    double highest; /* limit */
    double most;    /* percent */
};

static double x_of(const struct scale *scale, double limit) {
    return LEFT + (WIDTH - LEFT - RIGHT) * log(limit) / log(scale->highest);
}

static double y_of(const struct scale *scale, double share) {
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * sqrt(share / scale->most);
}

/* A form of limit and what it does: one curve. */
static const struct curve {
    const char *form, *what, *one, *done;
    bool bucket, requests;
} curves[] = {
    {"window", "clients", "client", "hit by a window", false, false},
    {"window", "requests", "request", "refused by a window", false, true},
    {"bucket", "clients", "client", "hit by a bucket", true, false},
    {"bucket", "requests", "request", "refused by a bucket", true, true},
};
enum { CURVES = sizeof(curves) / sizeof(curves[0]) };

static uint64_t count_of(const struct curve *curve, const struct advise_row *row) {
    const struct tally *tally = curve->bucket ? &row->bucket : &row->window;
    return curve->requests ? tally->requests : tally->clients;
}

static double share_of(const struct advice *advice, const struct curve *curve,
                       const struct advise_row *row) {
    return percent(count_of(curve, row),
                   curve->requests ? advice->requests.count : advice->requests.keys.count);
}

static struct scale scale_of(const struct advice *advice, const struct advise_unit *unit) {
    static const double tops[] = {1, 2, 5, 10, 25, 50, 100};
    struct scale scale = {2, 0};

    for (size_t i = 0; i < unit->point_count; i++) {
        scale.highest = fmax(scale.highest, (double)unit->points[i].limit);
        for (size_t n = 0; n < CURVES; n++)
            scale.most = fmax(scale.most, share_of(advice, &curves[n], &unit->points[i]));
    }
    size_t top = 0;
    while (tops[top] < scale.most)
        top++;
    scale.most = tops[top];
    return scale;
}

static void put_axes(FILE *out, const struct scale *scale, const char *unit) {
    static const double shares[] = {0, 0.1, 1, 2, 5, 10, 25, 50, 100};
    static const uint64_t steps[] = {1, 2, 5};
    double last = HEIGHT;
    const bool dense = scale->highest < 2000;

    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]) && shares[i] <= scale->most; i++) {
        double y = y_of(scale, shares[i]);
        if (last - y < 17)
            continue;
        last = y;
        fprintf(out,
                "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" "
                "y=\"%.1f\" text-anchor=\"end\">%g%%</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, shares[i]);
    }
    for (uint64_t ten = 1; (double)ten <= scale->highest; ten *= 10) {
        for (size_t i = 0; i < (dense ? 3 : 1) && (double)(ten * steps[i]) <= scale->highest; i++) {
            double x = x_of(scale, (double)(ten * steps[i]));
            fprintf(out,
                    "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text "
                    "x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%" PRIu64 "</text>\n",
                    x, x, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 5, x, HEIGHT - BOTTOM + 19,
                    ten * steps[i]);
        }
    }
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">limit, requests a%s %s</text>\n",
            WIDTH - RIGHT, HEIGHT - 2, unit[0] == 'h' ? "n" : "", unit);
}

static void put_curve(FILE *out, const struct advice *advice, const struct advise_unit *unit,
                      const struct scale *scale, const struct curve *curve) {
    char number[48];

    fprintf(out, "<polyline class=\"line %s %s\" points=\"", curve->form, curve->what);
    for (size_t i = 0; i < unit->point_count; i++)
        fprintf(out, "%.1f,%.1f ", x_of(scale, (double)unit->points[i].limit),
                y_of(scale, share_of(advice, curve, &unit->points[i])));
    fputs("\"/>\n", out);
    for (size_t i = 0; i < unit->point_count; i++) {
        const struct advise_row *point = &unit->points[i];
        const uint64_t count = count_of(curve, point);
        fprintf(out,
                "<circle class=\"%s %s\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\" data-limit=\"%" PRIu64
                "\" data-count=\"%" PRIu64 "\"><title>%" PRIu64 "/%s",
                curve->form, curve->what, x_of(scale, (double)point->limit),
                y_of(scale, share_of(advice, curve, point)), point->limit, count, point->limit,
                unit->name);
        if (curve->bucket)
            fprintf(out, " burst=%" PRIu64, point->limit);
        fprintf(out, ": %s %s (%.2f%%)</title></circle>\n", counted(number, count, curve->one),
                curve->done, share_of(advice, curve, point));
    }
}

/* A limit that is suggested: a line down to the axis, its name on top. */
static void put_mark(FILE *out, const struct scale *scale, const struct advise_limit *limit,
                     int row) {
    double x = x_of(scale, fmin((double)limit->limit, scale->highest));
    bool left = x > WIDTH / 2.0;

    fprintf(out,
            "<line class=\"mark%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/><text "
            "class=\"marked\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
            row == 0 ? "" : " bucket", x, x, 4 + 18 * row, HEIGHT - BOTTOM, left ? x - 5 : x + 5,
            13 + 18 * row, left ? "end" : "start", limit->notation);
}

static void put_points(FILE *out, const struct advice *advice, const struct advise_unit *unit) {
    fputs("<details><summary>The points as a table</summary><div class=\"wide\"><table>\n"
          "<tr><th>limit</th><th>window: clients</th><th>requests</th><th>bucket: clients</th>"
          "<th>requests</th></tr>\n",
          out);
    for (size_t i = 0; i < unit->point_count; i++) {
        fprintf(out, "<tr><td>%" PRIu64 "</td>", unit->points[i].limit);
        for (size_t n = 0; n < CURVES; n++) {
            fputs("<td>", out);
            put_share(out, count_of(&curves[n], &unit->points[i]),
                      curves[n].requests ? advice->requests.count : advice->requests.keys.count);
            fputs("</td>", out);
        }
        fputs("</tr>\n", out);
    }
    fputs("</table></div></details>\n", out);
}

static void put_curves(FILE *out, const struct advice *advice, const struct advise_unit *unit) {
    const struct scale scale = scale_of(advice, unit);

    fputs("<section class=\"card\">\n<h3>What a limit would refuse</h3>\n<div class=\"legend\">",
          out);
    for (size_t i = 0; i < CURVES; i++)
        fprintf(out,
                "<span><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"line %s %s\" "
                "d=\"M0 5H26\"/></svg>%s %s</span>",
                curves[i].form, curves[i].what, curves[i].what, curves[i].done);
    fprintf(out,
            "</div>\n<svg class=\"curves\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Limits "
            "for a%s %s: clients hit and requests refused\">\n",
            WIDTH, HEIGHT, unit->name[0] == 'h' ? "n" : "", unit->name);
    put_axes(out, &scale, unit->name);
    put_mark(out, &scale, &unit->suggested, 0);
    if (unit->strict.limit != unit->suggested.limit)
        put_mark(out, &scale, &unit->strict, 1);
    for (size_t i = CURVES; i-- > 0;) /* windows on top */
        put_curve(out, advice, unit, &scale, &curves[i]);
    fputs("</svg>\n", out);
    put_points(out, advice, unit);
    fputs("</section>\n", out);
}

/* ---- Refusals over time --------------------------------------------------------------------- */

static void put_bars(FILE *out, const struct advice *advice, const struct advise_limit *limit,
                     const char *class, uint64_t most) {
    enum { BARS = 170, BASE = BARS - 22, ROOF = 14 };
    const double width = (double)(WIDTH - LEFT - RIGHT) / (double)advice->step_count;
    char number[32], time[40];

    for (size_t i = 0; i < advice->step_count; i++) {
        if (limit->steps[i] == 0)
            continue;
        double height = (BASE - ROOF) * (double)limit->steps[i] / (double)most;
        fprintf(out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                "data-count=\"%" PRIu64 "\"><title>%s UTC: %s refuses %s</title></rect>\n",
                class, LEFT + width * (double)i, BASE - height, fmax(width - 1, 1), height,
                limit->steps[i],
                time_text(time, advice->requests.first_ns + i * advice->step_ns, ' ', ""),
                limit->notation, grouped(number, limit->steps[i]));
    }
    if (class[0] != 'r')
        return; /* what follows is drawn once, with the bars in front */
    fprintf(out,
            "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/><text x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">%s</text><text x=\"%d\" y=\"%d\" text-anchor=\"end\">0</text>\n",
            LEFT, WIDTH - RIGHT, BASE, BASE, LEFT - 6, ROOF + 4, grouped(number, most), LEFT - 6,
            BASE + 4);
    fprintf(out, "<text x=\"%d\" y=\"%d\">%.16s</text>", LEFT, BARS - 4,
            time_text(time, advice->requests.first_ns, ' ', ""));
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.16s UTC</text>\n", WIDTH - RIGHT,
            BARS - 4, time_text(time, advice->requests.last_ns, ' ', ""));
}

/* The bars, of those steps that have some. */
static void put_steps(FILE *out, const struct advice *advice, const struct advise_unit *unit) {
    const struct advise_limit *strict = &unit->strict, *suggested = &unit->suggested;
    const bool both = strict->limit != suggested->limit;
    char number[32], time[40];

    fputs("<details><summary>The bars as a table</summary><div class=\"wide\"><table>\n"
          "<tr><th>from (UTC)</th>",
          out);
    if (both)
        fprintf(out, "<th>%s refuses</th>", strict->notation);
    fprintf(out, "<th>%s refuses</th></tr>\n", suggested->notation);
    for (size_t i = 0; i < advice->step_count; i++) {
        if (strict->steps[i] == 0 && suggested->steps[i] == 0)
            continue;
        fprintf(out, "<tr><td>%s</td>",
                time_text(time, advice->requests.first_ns + i * advice->step_ns, ' ', ""));
        if (both)
            fprintf(out, "<td>%s</td>", grouped(number, strict->steps[i]));
        fprintf(out, "<td>%s</td></tr>\n", grouped(number, suggested->steps[i]));
    }
    fputs("</table></div></details>\n", out);
}

static void put_over_time(FILE *out, const struct advice *advice, const struct advise_unit *unit) {
    const struct advise_limit *strict = &unit->strict, *suggested = &unit->suggested;
    const char *whole = NULL;
    uint64_t most = 0;
    char span[40], number[32];

    for (size_t i = 0; i < advice->step_count; i++) {
        most = strict->steps[i] > most ? strict->steps[i] : most;
        most = suggested->steps[i] > most ? suggested->steps[i] : most;
    }
    fputs("<section class=\"card\">\n<h3>When it would refuse</h3>\n", out);
    if (most == 0) {
        fprintf(out, "<p>%s refuses no request of these logs.</p>\n</section>\n",
                suggested->notation);
        return;
    }
    fputs("<div class=\"legend\">", out);
    fprintf(out,
            "<span><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><rect class=\"refused\" "
            "width=\"26\" height=\"10\"/></svg>%s: %s refused</span>",
            suggested->notation, grouped(number, suggested->tally.requests));
    if (strict->limit != suggested->limit)
        fprintf(out,
                "<span><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><rect class=\"strict\" "
                "width=\"26\" height=\"10\"/></svg>%s: %s refused</span>",
                strict->notation, grouped(number, strict->tally.requests));
    fprintf(out,
            "</div>\n<svg class=\"over-time\" viewBox=\"0 0 %d 170\" role=\"img\" "
            "aria-label=\"Requests refused over time\">\n",
            WIDTH);
    put_bars(out, advice, strict, "strict", most);
    put_bars(out, advice, suggested, "refused", most);
    for (size_t i = 0; i < ADVISE_UNITS; i++)
        if (advice->units[i].ns == advice->step_ns)
            whole = advice->units[i].name;
    fprintf(out, "</svg>\n<p class=\"soft\">Each bar is %s%s.</p>\n",
            whole == NULL     ? ""
            : whole[0] == 'h' ? "an "
                              : "a ",
            whole == NULL ? span_text(span, advice->step_ns) : whole);
    put_steps(out, advice, unit);
    fputs("</section>\n", out);
}

/* ---- Clients -------------------------------------------------------------------------------- */

static void put_clients(FILE *out, const struct advice *advice, const struct advise_unit *unit) {
    const bool both = unit->strict.limit != unit->suggested.limit;
    char number[32];

    fprintf(
        out,
        "<section class=\"card\">\n<h3>Whom it would hit first</h3>\n<div class=\"wide\"><table "
        "class=\"names\">\n<tr><th>client, and its first agent</th><th>most in a%s %s</th><th "
        "class=\"spare\">requests</th>",
        unit->name[0] == 'h' ? "n" : "", unit->name);
    if (both)
        fprintf(out, "<th>refused by %s</th>", unit->strict.notation);
    fprintf(out, "<th>refused by %s</th></tr>\n", unit->suggested.notation);
    for (size_t i = 0; i < unit->top_count; i++) {
        const struct advise_client *client = &unit->top[i];
        const struct text name = log_key_name(&advice->requests.keys, client->key);
        const struct text agent = requests_agent(&advice->requests, client->key);
        fputs(agent.length == 0 ? "<tr><td>" : "<tr class=\"with\"><td>", out);
        put_bytes(out, name.bytes, name.length);
        fprintf(out, "</td><td>%s</td>", grouped(number, client->peak));
        fprintf(out, "<td class=\"spare\">%s</td>", grouped(number, client->requests));
        if (both)
            fprintf(out, "<td>%s</td>", grouped(number, client->refused_strictly));
        fprintf(out, "<td>%s</td></tr>\n", grouped(number, client->refused));
        if (agent.length == 0)
            continue;
        fputs("<tr><td class=\"soft\" colspan=\"5\">", out);
        put_cut(out, agent.bytes, agent.length, 120);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n</section>\n", out);
}

static void put_unit(FILE *out, const struct advice *advice, const struct advise_unit *unit) {
    fprintf(out, "<h2 id=\"%s\">Limits for a%s %s</h2>\n<p><code>%s</code> hits ", unit->name,
            unit->name[0] == 'h' ? "n" : "", unit->name, unit->suggested.notation);
    put_share(out, unit->suggested.tally.clients, advice->requests.keys.count);
    fputs(" of the clients and refuses ", out);
    put_share(out, unit->suggested.tally.requests, advice->requests.count);
    fputs(" of the requests", out);
    if (unit->strict.limit != unit->suggested.limit) {
        fprintf(out, "; <code>%s</code>, which 99 of 100 clients stay within, hits ",
                unit->strict.notation);
        put_share(out, unit->strict.tally.clients, advice->requests.keys.count);
        fputs(" and refuses ", out);
        put_share(out, unit->strict.tally.requests, advice->requests.count);
    }
    fputs(".</p>\n<div class=\"grid\">\n<div class=\"stack\">\n", out);
    put_curves(out, advice, unit);
    put_over_time(out, advice, unit);
    fputs("</div>\n<div class=\"stack\">\n", out);
    put_clients(out, advice, unit);
    fputs("</div>\n</div>\n", out);
}

bool advise_print_page(FILE *out, const struct advice *advice) {
    fputs(head, out);
    put_summary(out, advice);
    put_lines(out, advice);
    put_peaks(out, advice);
    for (size_t i = 0; i < ADVISE_UNITS; i++)
        if (advice->units[i].judged)
            put_unit(out, advice, &advice->units[i]);
    fputs("<h2>How to read it</h2>\n"
          "<p>A window, such as <code>20/minute</code>, counts from one full minute to the next. A "
          "bucket, such as <code>20/minute burst=20</code>, is full at first and gets a token back "
          "every three seconds: nobody gets more by coming at the turn of a minute. Both are drawn "
          "for the same numbers. A request that is refused counts for nothing. Times are UTC.</p>\n"
          "</main>\n</body>\n</html>\n",
          out);
    return !ferror(out) && fflush(out) == 0;
}
