/* SPDX-License-Identifier: MIT
 * stint advise: which limits the clients of access logs would need.
 *
 *     options -> read the logs into requests -> the times of each client, side by side -> for each
 *     unit of time: peaks of clients, what limits would refuse -> report, page
 *
 * A limit counts each client apart. So clients are gone through one after the other, and one that
 * has sent no more than the limit in all is passed over. What a window and a bucket refuse is told
 * by the few lines of `fits`; the test compares them with the library's own verdicts. */
#include "advise.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common.h"

enum {
    SUGGESTED_SHARE = 3, /* of advise_shares: 1 client in 1,000 is hit */
    STRICT_SHARE = 2,    /* 1 in 100 */
};

const struct advise_share advise_shares[ADVISE_SHARES] = {
    {"half", 500}, {"90%", 900}, {"99%", 990}, {"99.9%", 999}, {"highest", 1000}};

static const char command[] = "advise";

static const char help[] =
    "Usage: stint advise [OPTIONS] LOG...\n"
    "\n"
    "Reads access logs and says which limits their clients would need: how many requests each\n"
    "sends in a second, a minute, an hour and a day, and whom a limit would hit.\n"
    "\n";
static const char more_help[] =
    "  --html FILE            write a page with pictures, which needs no other file\n"
    "  --format table|json    [table]\n"
    "\n"
    "Exit codes: 0 good, 1 a log cannot be read, or more than 5% of the lines, 2 wrong usage.\n";

/* ---- The times of each client --------------------------------------------------------------- */

struct clients {
    uint32_t count;
    uint32_t *starts; /* the times of a client are those from its start to the next one's */
    uint64_t *times;  /* in order */
    uint64_t *peaks;  /* of the unit in hand */
    uint64_t *sorted; /* the same, the lowest first */
};

static void clients_make(struct clients *clients, const struct requests *requests) {
    const size_t count = clients->count = requests->keys.count;

    clients->starts = must_have(calloc(count + 2, sizeof(*clients->starts)));
    clients->times = must_have(calloc(requests->count, sizeof(*clients->times)));
    clients->peaks = must_have(calloc(count, sizeof(*clients->peaks)));
    clients->sorted = must_have(calloc(count, sizeof(*clients->sorted)));
    /* Counted one place further on, and moved there while they are filled. */
    uint32_t *next = clients->starts + 1;
    for (size_t i = 0; i < requests->count; i++)
        next[requests->all[i].key + 1]++;
    for (size_t key = 0; key < count; key++)
        next[key + 1] += next[key];
    for (size_t i = 0; i < requests->count; i++)
        clients->times[next[requests->all[i].key]++] = requests->all[i].now;
}

static void clients_free(struct clients *clients) {
    free(clients->starts);
    free(clients->times);
    free(clients->peaks);
    free(clients->sorted);
}

static uint64_t requests_of(const struct clients *clients, uint32_t key) {
    return clients->starts[key + 1] - clients->starts[key];
}

/* ---- What limits refuse --------------------------------------------------------------------- */

/* A limit, and what it knows of one client. */
struct rule {
    uint64_t limit, unit_ns;
    bool bucket;
    uint64_t token_ns; /* of a bucket: in which one token comes back */
    uint64_t used;     /* of a window */
    uint64_t end;      /* of the window; of a bucket, when it is full */
};

static struct rule rule_make(uint64_t unit_ns, uint64_t limit, bool bucket) {
    return (struct rule){.limit = limit,
                         .unit_ns = unit_ns,
                         .bucket = bucket,
                         .token_ns = (unit_ns + limit - 1) / limit};
}

static bool fits(struct rule *rule, uint64_t now) {
    if (rule->bucket) {
        uint64_t end = (rule->end > now ? rule->end : now) + rule->token_ns;
        if (end - now > rule->limit * rule->token_ns)
            return false;
        rule->end = end;
        return true;
    }
    if (now >= rule->end) {
        rule->end = now - now % rule->unit_ns + rule->unit_ns;
        rule->used = 0;
    }
    rule->used += rule->used <= rule->limit;
    return rule->used <= rule->limit;
}

/* Where refusals are counted, besides their sum. */
struct sink {
    const struct advice *advice;
    uint64_t *steps;   /* by time */
    uint64_t *refused; /* by client */
};

static struct tally decide(const struct clients *clients, struct rule rule,
                           const struct sink *sink) {
    struct tally tally = {0, 0};

    for (uint32_t key = 0; key < clients->count; key++) {
        if (requests_of(clients, key) <= rule.limit)
            continue;
        uint64_t before = tally.requests;
        rule.used = rule.end = 0;
        for (uint32_t i = clients->starts[key]; i < clients->starts[key + 1]; i++) {
            const uint64_t now = clients->times[i];
            if (fits(&rule, now))
                continue;
            tally.requests++;
            if (sink != NULL) {
                sink->refused[key]++;
                sink->steps[(now - sink->advice->requests.first_ns) / sink->advice->step_ns]++;
            }
        }
        tally.clients += tally.requests != before;
    }
    return tally;
}

static struct advise_row row_of(const struct clients *clients, uint64_t unit_ns, uint64_t limit) {
    return (struct advise_row){.limit = limit,
                               .window = decide(clients, rule_make(unit_ns, limit, false), NULL),
                               .bucket = decide(clients, rule_make(unit_ns, limit, true), NULL)};
}

/* ---- Peaks ---------------------------------------------------------------------------------- */

static int by_number(const void *one, const void *other) {
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* The most that each client has sent in one window of the unit. */
static void find_peaks(struct clients *clients, struct advise_unit *unit) {
    for (uint32_t key = 0; key < clients->count; key++) {
        uint64_t end = 0, used = 0, peak = 0;
        for (uint32_t i = clients->starts[key]; i < clients->starts[key + 1]; i++) {
            const uint64_t now = clients->times[i];
            if (now >= end) {
                end = now - now % unit->ns + unit->ns;
                used = 0;
            }
            peak = ++used > peak ? used : peak;
        }
        clients->peaks[key] = clients->sorted[key] = peak;
    }
    qsort(clients->sorted, clients->count, sizeof(*clients->sorted), by_number);
    for (size_t i = 0; i < ADVISE_SHARES; i++) {
        /* The least that no fewer than this share stay within. */
        uint64_t within = ((uint64_t)clients->count * advise_shares[i].thousandths + 999) / 1000;
        unit->peaks[i] = clients->sorted[within - 1];
    }
}

/* ---- Limits --------------------------------------------------------------------------------- */

/* Rounds up to two digits. */
static uint64_t rounded(uint64_t number) {
    uint64_t unit = 1;

    while (number / unit >= 100)
        unit *= 10;
    return (number + unit - 1) / unit * unit;
}

/* The smallest bucket that hits no more than a share of the clients, but those that it is told. */
static uint64_t smallest_bucket(const struct clients *clients, uint64_t unit_ns, uint64_t high,
                                uint64_t most) {
    uint64_t low = 1;

    while (decide(clients, rule_make(unit_ns, high, true), NULL).clients > most) {
        low = high + 1;
        high *= 2;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (decide(clients, rule_make(unit_ns, middle, true), NULL).clients > most)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

/* Makes the limit that hits no more clients than the share says, rounded up. A second's is a
 * bucket: requests that come together fall on both sides of a second's edge. */
static void limit_make(struct advise_limit *limit, const struct clients *clients,
                       const struct advise_unit *unit, size_t share) {
    uint64_t peak = unit->peaks[share], within = advise_shares[share].thousandths;

    limit->bucket = unit->ns == 1000000000;
    limit->limit = rounded(limit->bucket ? smallest_bucket(clients, unit->ns, peak,
                                                           (1000 - within) * clients->count / 1000)
                                         : peak);
    int length = snprintf(limit->notation, sizeof(limit->notation), "%" PRIu64 "/%s", limit->limit,
                          unit->name);
    if (limit->bucket)
        snprintf(limit->notation + length, sizeof(limit->notation) - (size_t)length,
                 " burst=%" PRIu64, limit->limit);
}

/* Puts a client among those with the highest peaks, if it is one; of equals the first to come. */
static void top_add(struct advise_unit *unit, struct advise_client client) {
    size_t at = unit->top_count;

    if (at == ADVISE_TOP && unit->top[--at].peak >= client.peak)
        return;
    for (; at > 0 && unit->top[at - 1].peak < client.peak; at--)
        unit->top[at] = unit->top[at - 1];
    unit->top[at] = client;
    unit->top_count += unit->top_count < ADVISE_TOP;
}

static void look_closely(struct advice *advice, const struct clients *clients,
                         struct advise_unit *unit) {
    uint64_t *refused = must_have(calloc(clients->count, sizeof(*refused)));

    limit_make(&unit->suggested, clients, unit, SUGGESTED_SHARE);
    limit_make(&unit->strict, clients, unit, STRICT_SHARE);
    for (uint32_t key = 0; key < clients->count; key++)
        top_add(unit, (struct advise_client){.key = key,
                                             .peak = clients->peaks[key],
                                             .requests = requests_of(clients, key)});
    for (int strict = 0; strict < 2; strict++) {
        struct advise_limit *limit = strict ? &unit->strict : &unit->suggested;
        struct sink sink = {advice, limit->steps, refused};
        memset(refused, 0, clients->count * sizeof(*refused));
        limit->tally = decide(clients, rule_make(unit->ns, limit->limit, limit->bucket), &sink);
        for (size_t i = 0; i < unit->top_count; i++)
            *(strict ? &unit->top[i].refused_strictly : &unit->top[i].refused) =
                refused[unit->top[i].key];
    }
    free(refused);
}

/* Adds a limit to rows that grow, once. */
static size_t rows_add(struct advise_row *rows, size_t count, const struct clients *clients,
                       const struct advise_unit *unit, uint64_t limit) {
    size_t at = count;

    while (at > 0 && rows[at - 1].limit > limit)
        at--;
    if (at > 0 && rows[at - 1].limit == limit)
        return count;
    memmove(&rows[at + 1], &rows[at], (count - at) * sizeof(*rows));
    rows[at] = row_of(clients, unit->ns, limit);
    return count + 1;
}

static void judge_unit(struct advice *advice, struct clients *clients, struct advise_unit *unit,
                       bool page) {
    const uint64_t highest = unit->peaks[ADVISE_SHARES - 1];

    for (size_t i = 1; i < ADVISE_SHARES; i++)
        unit->row_count = rows_add(unit->rows, unit->row_count, clients, unit, unit->peaks[i]);
    look_closely(advice, clients, unit);
    unit->row_count = rows_add(unit->rows, unit->row_count, clients, unit, unit->suggested.limit);
    if (!page)
        return;
    memcpy(unit->points, unit->rows, unit->row_count * sizeof(*unit->rows));
    unit->point_count = unit->row_count;
    for (uint64_t limit = 1; limit < highest; limit += (limit + 2) * 2 / 5)
        unit->point_count = rows_add(unit->points, unit->point_count, clients, unit, limit);
}

static void judge(struct advice *advice, bool page) {
    static const struct {
        const char *name;
        uint64_t seconds;
    } units[ADVISE_UNITS] = {{"second", 1}, {"minute", 60}, {"hour", 3600}, {"day", 86400}};
    const struct requests *requests = &advice->requests;
    struct clients clients;
    struct progress progress;

    advice->step_ns = requests_step(requests, ADVISE_STEPS);
    advice->step_count = (requests->last_ns - requests->first_ns) / advice->step_ns + 1;
    clients_make(&clients, requests);
    progress_start(&progress, "judging", ADVISE_UNITS);
    for (size_t i = 0; i < ADVISE_UNITS; i++) {
        struct advise_unit *unit = &advice->units[i];
        unit->name = units[i].name;
        unit->ns = units[i].seconds * 1000000000;
        unit->judged = i == 0 || requests->last_ns - requests->first_ns >= unit->ns;
        find_peaks(&clients, unit);
        if (unit->judged)
            judge_unit(advice, &clients, unit, page);
        progress_update(&progress, i + 1);
    }
    progress_end(&progress);
    clients_free(&clients);
}

/* ---- The command ---------------------------------------------------------------------------- */

struct call {
    struct log_options log;
    advise_print *print;
    const char *page; /* NULL: none */
};

/* Whether the page may take the place of what is there: of a page, or nothing. In "--html LOG LOG"
 * the name of the page was forgotten. */
static bool may_replace(const char *path) {
    char begin[sizeof(ADVISE_PAGE_BEGIN) - 1];
    struct stat about;
    FILE *there = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? fopen(path, "re") : NULL;
    size_t got = there == NULL ? 0 : fread(begin, 1, sizeof(begin), there);

    if (there != NULL)
        fclose(there);
    return got == 0 || (got == sizeof(begin) && memcmp(begin, ADVISE_PAGE_BEGIN, got) == 0);
}

/* Returns EXIT_GOOD, EXIT_USAGE, or -1 if there is nothing more to do. */
static int parse_options(struct call *call, int argc, char **argv) {
    static const char *const formats[] = {"table", "json"};
    static advise_print *const prints[] = {advise_print_table, advise_print_json, NULL};
    enum { HTML = 256, FORMAT, HELP };
    static const struct option options[] = {
        LOG_OPTIONS,
        {"html", required_argument, NULL, HTML},
        {"format", required_argument, NULL, FORMAT},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = tool_option(command, argc, argv, ":h", options)) != OPTIONS_END) {
        switch (option) {
        case LOG_OPTION_KEY:
        case LOG_OPTION_ADDRESS:
        case LOG_OPTION_TIME:
            if (log_option(&call->log, option) != EXIT_GOOD)
                return EXIT_USAGE;
            break;
        case HTML:
            call->page = optarg;
            call->log.agents = true;
            break;
        case FORMAT:
            call->print = prints[parse_word(optarg, formats, 2)];
            if (call->print == NULL)
                return usage_error(command, "--format '%s': not table or json", optarg);
            break;
        case HELP:
        case 'h':
            printf("%s%s%s", help, log_options_help, more_help);
            return -1;
        default:
            return EXIT_USAGE;
        }
    }
    if (call->log.time == LOG_TIMELESS)
        return usage_error(command, "--time none: without times there is no limit to advise");
    if (call->page != NULL && strcmp(call->page, "-") == 0)
        return usage_error(command,
                           "--html '-': give the page a name: the standard output has the report");
    if (call->page != NULL && !may_replace(call->page))
        return usage_error(command,
                           "--html '%s': it is there, and is no page: give the page another name",
                           call->page);
    return log_operands(&call->log, argc, argv);
}

static int write_page(const struct advice *advice, const char *path) {
    FILE *out = fopen(path, "we");
    bool good = out != NULL && advise_print_page(out, advice);

    if (out != NULL && fclose(out) != 0)
        good = false;
    if (!good)
        fprintf(stderr, "stint advise: %s cannot be written: %s\n", path, strerror(errno));
    return good ? EXIT_GOOD : EXIT_FAILED;
}

int tool_advise(int argc, char **argv) {
    struct call call = {.log = {.command = command, .time = LOG_UNKNOWN},
                        .print = advise_print_table};
    struct advice *advice = must_have(calloc(1, sizeof(*advice)));
    int code = parse_options(&call, argc, argv);

    if (code == EXIT_GOOD)
        code = requests_read(&call.log, &advice->requests);
    if (code == EXIT_GOOD) {
        judge(advice, call.page != NULL);
        if (!call.print(stdout, advice) || fflush(stdout) != 0) {
            fprintf(stderr, "stint advise: the report cannot be written: %s\n", strerror(errno));
            code = EXIT_FAILED;
        }
    }
    if (code == EXIT_GOOD && call.page != NULL)
        code = write_page(advice, call.page);
    requests_free(&advice->requests);
    free(advice);
    return code == -1 ? EXIT_GOOD : code;
}
