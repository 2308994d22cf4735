/* SPDX-License-Identifier: MIT
 * What each kind of limit lets through of the same requests: the table and the picture of
 * doc/which-limit.md.
 *
 *     cc doc/which-limit.c $(pkg-config --cflags --libs stint) -o which-limit
 *     ./which-limit                                               the table
 *     ./which-limit picture | gnuplot >doc/which-limit.svg        the picture
 *
 * The library decides by a clock of this program's own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <stint.h>
#include <string.h>

static const uint64_t MS = 1000000, MIDNIGHT = UINT64_C(1700006400000000000);
enum { WORK_MS = 500, EVENTS_MAX = 100000, HELD_MAX = 5 };

static const struct limit {
    const char *text;
    const char *about;
} limits[] = {
    {"10/2s", "a fixed window"},
    {"10/2s smooth", "a sliding window"},
    {"10/2s burst=10", "a token bucket"},
    {"10/2s burst=3", "with a smaller burst"},
    {"10/2s burst=3 reserve=5", "and waits of up to 1 s"},
    {"5/30s in-flight", "of work that takes 0.5 s"},
};
enum { LIMITS = sizeof(limits) / sizeof(limits[0]) };

static uint64_t the_time;

static uint64_t read_time(void) {
    return the_time;
}

/* When work began, ms. */
struct begun {
    size_t count;
    uint64_t at[EVENTS_MAX];
};

/* Asks `each` times every `step` ms from one time to another. */
static void ask(const struct limit *limit, uint64_t from, uint64_t to, uint64_t step, unsigned each,
                struct begun *begun) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_policy policy = STINT_POLICY_INIT;
    struct stint_limiter *limiter;
    uint64_t ends[HELD_MAX]; /* of the work in flight */
    struct stint_verdict holds[HELD_MAX];
    size_t held = 0;
    uint32_t id;

    options.max_entries = 1;
    options.clock = read_time;
    the_time = MIDNIGHT;
    if (stint_policy_parse(limit->text, &policy, NULL) != 0 ||
        stint_open(&options, &limiter) != 0 || stint_policy_add(limiter, &policy, &id) != 0) {
        fprintf(stderr, "%s: %s\n", limit->text, stint_reason());
        exit(1);
    }
    struct stint_request request = STINT_REQUEST(id, stint_key_of(limiter, "ann", 3), 1);
    request.flags = policy.max_reserved != 0 ? STINT_RESERVE : 0;
    begun->count = 0;
    for (uint64_t ms = from; ms < to; ms += step) {
        the_time = MIDNIGHT + ms * MS;
        size_t left = 0;
        for (size_t i = 0; i < held; i++) {
            if (ends[i] <= ms) {
                stint_refund(limiter, request.key, &holds[i], 1);
                continue;
            }
            ends[left] = ends[i];
            holds[left++] = holds[i];
        }
        held = left;
        for (unsigned i = 0; i < each; i++) {
            struct stint_verdict verdict;
            if (!stint_decide(limiter, &request, the_time, &verdict))
                break;
            begun->at[begun->count++] = ms + verdict.retry_after / MS;
            if ((policy.flags & STINT_IN_FLIGHT) != 0) {
                ends[held] = ms + WORK_MS;
                holds[held++] = verdict;
            }
        }
    }
    stint_close(limiter);
}

/* The most in a span of so many ms, its end not included. */
static size_t most_in(const struct begun *begun, uint64_t span) {
    size_t most = 0, first = 0;

    for (size_t i = 0; i < begun->count; i++) {
        while (begun->at[first] + span <= begun->at[i])
            first++;
        most = i - first + 1 > most ? i - first + 1 : most;
    }
    return most;
}

/* The least time in which so many begin, ms. */
static uint64_t least_for(const struct begun *begun, size_t n) {
    uint64_t least = UINT64_MAX;

    for (size_t i = 0; i + n <= begun->count; i++)
        if (begun->at[i + n - 1] - begun->at[i] < least)
            least = begun->at[i + n - 1] - begun->at[i];
    return least;
}

/* ---- The table: a client that is silent, and then asks for more than it can get ---- */

static void print_worst(const struct limit *limit) {
    static struct begun begun;
    size_t at_once = 0, most = 0, all = 0;
    uint64_t least = UINT64_MAX;

    for (uint64_t from = 0; from < 2000; from += 10) { /* in every part of a window */
        ask(limit, from, from + 6000, 10, 30, &begun);
        at_once = most_in(&begun, 11) > at_once ? most_in(&begun, 11) : at_once;
        most = most_in(&begun, 2000) > most ? most_in(&begun, 2000) : most;
        ask(limit, from, from + 60000, 10, 30, &begun);
        all = most_in(&begun, 60000) > all ? most_in(&begun, 60000) : all;
    }
    for (uint64_t from = 0; from < 2000; from += 10) {
        ask(limit, from, from + 6000, 10, 30, &begun);
        least = least_for(&begun, most) < least ? least_for(&begun, most) : least;
    }
    printf("%-26s%4zu%10zu in %.2f s%8zu\n", limit->text, at_once, most, (double)least / 1000, all);
}

static void print_table(void) {
    printf("%-22s within 10 ms   within 2 s  in a minute\n", "limit");
    for (size_t i = 0; i < LIMITS; i++)
        print_worst(&limits[i]);
}

/* ---- The picture: 20 requests a second for five seconds ---- */

static void print_picture(void) {
    static const char *const colours[] = {"#c0504d", "#d98b2b", "#4f81bd",
                                          "#2e6da4", "#3f9142", "#8064a2"};
    static struct begun begun;

    printf("set encoding utf8\n"
           "set terminal svg size 900,460 dynamic font 'sans-serif,14' noenhanced background "
           "'#ffffff'\n"
           "set border 1 lc rgb '#808080'\nset tics nomirror\nunset key\n"
           "set title 'What each limit lets through of 20 requests a second, and how many'\n"
           "set xlabel 'seconds; the grey lines are where windows end'\n"
           "set xrange [1.3:8]\nset xtics 1\nset yrange [-0.6:%d.6]\nset lmargin 30\n"
           "set ytics scale 0 ('requests' %d",
           LIMITS, LIMITS);
    for (size_t i = 0; i < LIMITS; i++)
        printf(", \"%s\\n%s\" %zu", limits[i].text, limits[i].about, LIMITS - 1 - i);
    printf(")\n");
    for (int end = 2; end < 8; end += 2)
        printf("set arrow from %d,graph 0 to %d,graph 1 nohead lc rgb '#c0c0c0'\n", end, end);
    printf("$asked << EOD\n");
    for (uint64_t ms = 1500; ms < 6500; ms += 50)
        printf("%.3f %d\n", (double)ms / 1000, LIMITS);
    printf("EOD\n");
    for (size_t i = 0; i < LIMITS; i++) {
        ask(&limits[i], 1500, 6500, 50, 1, &begun);
        printf("set label '%zu' at 7.9,%zu right\n$begun%zu << EOD\n", begun.count, LIMITS - 1 - i,
               i);
        for (size_t at = 0; at < begun.count; at++)
            printf("%.3f %zu\n", (double)begun.at[at] / 1000, LIMITS - 1 - i);
        printf("EOD\n");
    }
    printf("set label '100' at 7.9,%d right\nplot $asked using 1:2 with points pt 7 ps 0.3 lc rgb "
           "'#808080'",
           LIMITS);
    for (size_t i = 0; i < LIMITS; i++)
        printf(", $begun%zu using 1:2 with points pt 7 ps 0.5 lc rgb '%s'", i, colours[i]);
    printf("\n");
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "picture") == 0)
        print_picture();
    else
        print_table();
    return 0;
}
