/* SPDX-License-Identifier: MIT
 * stint-bench peers: what a decision costs elsewhere. One contest a combination of keys and
 * threads; contest.c runs it, peer_*.c are the peers. */
#include <stint.h>

#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "contest.h"
#include "machine.h"
#include "options.h"
#include "peer.h"
#include "report.h"
#include "server.h"

static const char command[] = "peers";

#define PEER_KEYS_MAX UINT64_C(1000000000)

/* In the order of the table: each after what it is to be compared with. */
static const struct peer *const peers[] = {
    &peer_stint,          &peer_stint_verdict, &peer_stint_ahead,  &peer_stint_batch,
    &peer_stint_batch_64,
#ifdef STINT_BENCH_DPDK
    &peer_dpdk,
#endif
    &peer_counter,        &peer_open_64,       &peer_open_64_huge, &peer_rwlock,
    &peer_mutex_64,       &peer_mutex,         &peer_memcached,    &peer_memcached_16,
    &peer_redis_incr,     &peer_redis_incr_16, &peer_redis_lua,    &peer_redis_lua_16,
};
enum { PEERS = sizeof(peers) / sizeof(peers[0]) };

/* The same, by several limits at once. */
static const struct peer *const peers_all[] = {
    &peer_stint_all,   &peer_stint_takes,      &peer_stint_groups,
    &peer_open_64_all, &peer_open_64_huge_all, &peer_mutex_64_all,
    &peer_mutex_all,   &peer_redis_all,        &peer_redis_all_16,
};

/* Who takes part, and the two that all are compared with. */
static const struct league {
    const struct peer *const *peers;
    size_t n;
    const struct peer *take, *batch;
    const char *x_take, *x_batch; /* above those ratios */
} leagues[] = {
    {peers, PEERS, &peer_stint, &peer_stint_batch, "x take", "x batch"},
    {peers_all, sizeof(peers_all) / sizeof(peers_all[0]), &peer_stint_all, &peer_stint_groups,
     "x all", "x groups"},
};

struct options {
    const struct league *league;
    const char *peers; /* of --peer; NULL: all */
    bool chosen[PEERS];
    unsigned limits;
    struct list keys, threads;
    double seconds;
    struct output output;
};

static void print_help(FILE *out) {
    fputs("Usage: stint-bench peers [OPTIONS]\n"
          "\n"
          "Asks stint and others for the same decisions: the same keys in the same order, by the\n"
          "same policy, by turns in one run. Every peer's answers are checked: each key must be\n"
          "granted the smaller of its demand and its limit, counted key by key.\n"
          "\n"
          "  --peer P,..          (all)\n",
          out);
    for (size_t league = 0; league < 2; league++) {
        if (league != 0)
            fputs("     with --limits 2 or 3:\n", out);
        for (size_t i = 0; i < leagues[league].n; i++)
            fprintf(out, "      %-14s %s\n", leagues[league].peers[i]->name,
                    leagues[league].peers[i]->help);
    }
    fputs(
        "      stint and stint-batch (stint-all and stint-groups) are always measured, for the\n"
        "      ratios.\n"
        "  --dpdk               DPDK's rte_hash among them (dpdk-64), which stint-bench must have\n"
        "                       been built with: `bench/run peers --dpdk` sees to it\n"
        "  --limits N           of each request, 1 to 3: it is granted if all grant it (1)\n"
        "  --keys N,..          keys that are live, 1 to 1G, as in 500, 1k, 10M (1k,1M)\n"
        "  --threads N,..       that ask, each pinned to a core of its own (1, and 2 where there\n"
        "                       are 2)\n"
        "  --seconds S          timed work a row, 0.001 to 3600 (0.5). Filling a server with a\n"
        "                       million keys takes several seconds more.\n" OUTPUT_HELP "\n"
        "Servers are found in PATH, started on unix sockets in temporary directories, with no\n"
        "configuration but what keeps them off the network and the disk, and stopped at the\n"
        "end, Ctrl-C included. A server that is not installed is reported as absent;\n"
        "`bench/run peers` installs them. Each thread has one connection.\n"
        "\n"
        "Every key is asked for once before the time is taken, and none comes to its limit\n"
        "while it is: all pay for a request that is granted. (Before that a small table with a\n"
        "limit of 3 is asked for six tokens a key.)\n"
        "\n"
        "Exit codes: 0 good, 1 wrong answers or a server that failed, 2 wrong usage.\n",
        out);
}

/* ---- Options ---- */

/* Once it is known how many limits there are. */
static int choose_peers(struct options *options) {
    const struct league *league = &leagues[options->limits > 1];
    const char *names[PEERS];
    char wrong[64];
    struct list list;

    options->league = league;
    for (size_t i = 0; i < league->n; i++) {
        names[i] = league->peers[i]->name;
        options->chosen[i] = options->peers == NULL || league->peers[i] == league->take ||
                             league->peers[i] == league->batch;
    }
    if (options->peers == NULL)
        return EXIT_GOOD;
    if (!list_read(&list, options->peers, names, league->n, 0, wrong, sizeof(wrong)))
        return usage_error(command, "--peer: '%s' is no peer%s", wrong,
                           options->limits > 1 ? " that decides by several limits" : "");
    for (size_t i = 0; i < list.n; i++)
        options->chosen[list.values[i]] = true;
    return EXIT_GOOD;
}

static int read_options(int argc, char **argv, struct options *options) {
    static const char *const known[] = {"--peer",   "--keys",   "--threads", "--seconds",
                                        "--limits", "--format", "--plot",    "--compare"};
    struct option option;
    char wrong[64];
    uint64_t limits;
    int result = EXIT_GOOD;

    for (int at = 1; at < argc && result == EXIT_GOOD; at++) {
        if (strcmp(argv[at], "--dpdk") == 0) {
#ifdef STINT_BENCH_DPDK
            continue;
#else
            return usage_error(command, "--dpdk: this stint-bench was built without DPDK; "
                                        "`bench/run peers --dpdk` builds one with it");
#endif
        }
        result =
            option_next(command, argc, argv, &at, known, sizeof(known) / sizeof(known[0]), &option);
        if (result != EXIT_GOOD)
            break;
        switch (option.which) {
        case 0:
            options->peers = option.value;
            break;
        case 1:
            if (!list_read(&options->keys, option.value, NULL, 0, PEER_KEYS_MAX, wrong,
                           sizeof(wrong)))
                return usage_error(command, "--keys: '%s' is not a count from 1 to 1G", wrong);
            break;
        case 2:
            if (!list_read(&options->threads, option.value, NULL, 0, UINT64_MAX, wrong,
                           sizeof(wrong)))
                return usage_error(command, "--threads: '%s' is not a count of at least 1", wrong);
            break;
        case 4:
            if (!parse_count(option.value, 1, PEER_LIMITS, &limits))
                return usage_error(command, "--limits: '%s' is not a count from 1 to %d",
                                   option.value, PEER_LIMITS);
            options->limits = (unsigned)limits;
            break;
        default:
            result = measure_option(command, &option, &options->seconds, &options->output);
        }
    }
    return result == EXIT_GOOD ? choose_peers(options) : result;
}

/* ---- Report ---- */

/* A row: an entrant of a contest. */
struct shown {
    const struct contest *contest;
    const struct entrant *entrant, *take, *batch; /* it, and what it is compared with */
};

struct ratios {
    double take, batch; /* how many times the decisions per second; 0: not known */
};

static struct ratios ratios_of(const struct shown *shown) {
    const struct entrant *entrant = shown->entrant;
    struct ratios ratios = {0, 0};

    if (entrant->checked && shown->take->checked)
        ratios.take = shown->take->per_second / entrant->per_second;
    if (entrant->checked && shown->batch->checked)
        ratios.batch = shown->batch->per_second / entrant->per_second;
    return ratios;
}

/* Four digits or so, in at most 8 columns. */
static void format_number(double number, char *text, size_t size) {
    snprintf(text, size, number < 10 ? "%.2f" : number < 1000 ? "%.1f" : "%.0f", number);
}

static void format_rate(double rate, char *text, size_t size) {
    if (rate < 1e6)
        snprintf(text, size, "%.1f k", rate / 1e3);
    else
        snprintf(text, size, "%.2f M", rate / 1e6);
}

/* Servers and their versions, for the foot; and for the head, what is compared. */
static char versions[256];
static const struct league *reported;

static void table_head(FILE *out, double seconds) {
    (void)seconds;
    fputs("ns are the median of the repeats\n\n", out);
    fprintf(out, "%-14s %5s %3s %11s %9s %9s %8s %8s %8s\n", "peer", "keys", "thr", "decisions/s",
            "ns/op", "CPU s/M", "B/key", reported->x_take, reported->x_batch);
}

static void table_row(FILE *out, const void *item) {
    const struct shown *shown = item;
    const struct entrant *entrant = shown->entrant;
    char keys[24], rate[24], ns[24], cpu[24], bytes[24], take[24], batch[24];
    struct ratios ratios = ratios_of(shown);

    format_count(shown->contest->keys, keys, sizeof(keys));
    fprintf(out, "%-14s %5s %3u ", entrant->peer->name, keys, shown->contest->threads);
    if (entrant->absent) {
        fprintf(out, "absent: %s is not installed\n", entrant->peer->program);
        return;
    }
    if (!entrant->checked) {
        fprintf(out, "FAILED\n");
        return;
    }
    format_rate(entrant->per_second, rate, sizeof(rate));
    format_number(entrant->ns_per_op, ns, sizeof(ns));
    snprintf(cpu, sizeof(cpu), entrant->cpu_seconds < 0.1 ? "%.4f" : "%.3f", entrant->cpu_seconds);
    format_number(entrant->bytes_per_key, bytes, sizeof(bytes));
    if (entrant->peer->one_count)
        snprintf(bytes, sizeof(bytes), "-");
    format_number(ratios.take, take, sizeof(take));
    format_number(ratios.batch, batch, sizeof(batch));
    fprintf(out, "%11s %9s %9s %8s %8s %8s\n", rate, ns, cpu, bytes, take, batch);
}

static void table_foot(FILE *out) {
    fputs("\ndecisions/s: all threads together. ns/op: of one decision on its thread. CPU s/M: "
          "seconds of\n"
          "CPU for a million decisions, the server's included. B/key: growth of resident memory / "
          "keys,\n"
          "the server's if there is one. ",
          out);
    fprintf(out, "%s, %s: %s's, %s's decisions/s for\none of its own.\n", reported->x_take,
            reported->x_batch, reported->take->name, reported->batch->name);
    if (versions[0] != '\0')
        fprintf(out, "%s\n", versions);
}

static void json_row(FILE *out, const void *item) {
    const struct shown *shown = item;
    const struct contest *contest = shown->contest;
    const struct entrant *entrant = shown->entrant;
    bool good = entrant->checked;
    struct ratios ratios = ratios_of(shown);

    fprintf(out,
            "{\"peer\": \"%s\", \"label\": \"%s\", \"keys\": %llu, \"threads\": %u, "
            "\"limits\": %u, \"depth\": %u, "
            "\"window\": %llu, \"absent\": %s",
            entrant->peer->name, entrant->peer->label, (unsigned long long)contest->keys,
            contest->threads, contest->limits, entrant->peer->depth,
            (unsigned long long)contest->window, entrant->absent ? "true" : "false");
    put_json_real(out, "decisions_per_second", good, entrant->per_second);
    put_json_real(out, "ns_per_op", good, entrant->ns_per_op);
    put_json_real(out, "ns_min", good, entrant->ns_min);
    put_json_real(out, "ns_max", good, entrant->ns_max);
    put_json_real(out, "cpu_seconds_per_million", good, entrant->cpu_seconds);
    put_json_real(out, "bytes_per_key", good && !entrant->peer->one_count, entrant->bytes_per_key);
    put_json_real(out, "ratio_take", ratios.take != 0, ratios.take);
    put_json_real(out, "ratio_batch", ratios.batch != 0, ratios.batch);
    fprintf(out, ", \"granted\": %llu, \"refused\": %llu, \"version\": ",
            (unsigned long long)entrant->granted, (unsigned long long)entrant->refused);
    put_json_string(out, entrant->version, strlen(entrant->version));
    fprintf(out, ", \"checked\": %s", good ? "true" : "false");
    if (!good && !entrant->absent) {
        fputs(", \"wrong\": ", out);
        put_json_string(out, entrant->wrong, strlen(entrant->wrong));
    }
    fputc('}', out);
}

static const struct report_format report_format = {
    .head = table_head,
    .table = table_row,
    .json = json_row,
    .foot = table_foot,
};

/* ---- Run ---- */

struct view {
    struct progress progress;
    char label[96], contest[32];
    size_t at, of; /* contests */
};

enum { PARTS = 1000 }; /* of a contest, in the progress bar */

static void show_part(void *context, const char *label, double part) {
    struct view *view = context;

    snprintf(view->label, sizeof(view->label), "%s %s", view->contest, label);
    progress_update(&view->progress, view->at * PARTS + (uint64_t)(part * PARTS));
}

/* Adds a server's version, once. */
static void add_version(const char *version) {
    size_t length = strlen(versions), size = sizeof(versions);

    if (version[0] != '\0' && strstr(versions, version) == NULL)
        snprintf(versions + length, size - length, "%s%s", length == 0 ? "" : ", ", version);
}

static const struct entrant *entrant_of(const struct entrant *entrants, const struct peer *peer) {
    while (entrants->peer != peer)
        entrants++;
    return entrants;
}

/* Each is refused that cannot be measured here, before anything is. */
static int refuse_impossible(const struct options *options, const struct machine *machine,
                             const struct entrant *entrants, size_t n) {
    for (size_t i = 0; i < options->threads.n; i++)
        if (options->threads.values[i] > machine->cores)
            return usage_error(command, "--threads %llu: there are %u cores to pin them to",
                               (unsigned long long)options->threads.values[i], machine->cores);
    for (size_t i = 0; i < options->keys.n; i++) {
        struct contest contest = {
            .keys = options->keys.values[i], .threads = 1, .limits = options->limits};
        double need = contest_memory(&contest, entrants, n) / 0x1p30;
        double have = (double)machine->available / 0x1p30;
        char keys[24];
        format_count(options->keys.values[i], keys, sizeof(keys));
        if (need > have)
            return usage_error(command,
                               "--keys %s needs %.1f GiB of memory for %zu peers, and %.1f GiB are "
                               "free",
                               keys, need, n, have);
    }
    return EXIT_GOOD;
}

static int run_contests(struct options *options, const struct machine *machine,
                        struct entrant *entrants, size_t n) {
    struct report report;
    struct view view = {.of = options->threads.n * options->keys.n};
    struct contest contest = {
        .limits = options->limits,
        .seconds = options->seconds,
        .window = contest_window(),
        .progress = show_part,
        .progress_context = &view,
    };
    int result = EXIT_GOOD;

    reported = options->league;
    report_start_other(&report, &report_format, &options->output, machine, options->seconds);
    for (size_t at = 0; at < view.of; at++) {
        contest.threads = (unsigned)options->threads.values[at / options->keys.n];
        contest.keys = options->keys.values[at % options->keys.n];
        char keys[24];
        format_count(contest.keys, keys, sizeof(keys));
        snprintf(view.contest, sizeof(view.contest), "%s/%u", keys, contest.threads);
        view.at = at;
        progress_start(&view.progress, view.label, view.of * PARTS);
        contest_run(&contest, entrants, n);
        progress_end(&view.progress);
        if (at != 0 && options->output.format == FORMAT_TABLE)
            putchar('\n');
        for (size_t i = 0; i < n; i++) {
            struct shown shown = {&contest, &entrants[i],
                                  entrant_of(entrants, options->league->take),
                                  entrant_of(entrants, options->league->batch)};
            if (!entrants[i].absent && !entrants[i].checked) {
                fprintf(stderr, "stint-bench peers: %s, %s keys, %u %s: %s\n",
                        entrants[i].peer->name, keys, contest.threads,
                        contest.threads == 1 ? "thread" : "threads", entrants[i].wrong);
                result = EXIT_FAILED;
            }
            add_version(entrants[i].version);
            report.preempted += entrants[i].preempted;
            report_other(&report, &shown);
        }
    }
    int ended = report_end(&report);
    return result != EXIT_GOOD ? result : ended;
}

int bench_peers(int argc, char **argv) {
    struct options options = {
        .limits = 1, .keys = {{1000, 1000000}, 2}, .threads = {{1, 2}, 0}, .seconds = 0.5};
    struct entrant entrants[PEERS];
    struct machine machine;
    size_t n = 0;

    if (help_wanted(argc, argv)) {
        print_help(stdout);
        return EXIT_GOOD;
    }
    int result = read_options(argc, argv, &options);
    if (result != EXIT_GOOD)
        return result;
    machine_read(&machine);
    if (options.threads.n == 0)
        options.threads.n = machine.cores >= 2 ? 2 : 1;
    for (size_t i = 0; i < options.league->n; i++)
        if (options.chosen[i])
            entrants[n++] = (struct entrant){.peer = options.league->peers[i]};
    result = refuse_impossible(&options, &machine, entrants, n);
    if (result == EXIT_GOOD)
        result = output_open(&options.output, command);
    if (result == EXIT_GOOD)
        result = run_contests(&options, &machine, entrants, n);
    output_close(&options.output);
    return result;
}
