/* SPDX-License-Identifier: MIT
 * Counts of a table and of a policy, for operators. */
#include <stdlib.h>

#include "python.h"

struct count {
    const char *name;
    uint64_t value;
};

static PyObject *counts_made(const struct count *counts, size_t n) {
    PyObject *made = PyDict_New();

    for (size_t i = 0; made != NULL && i < n; i++)
        if (!dict_put(made, counts[i].name, PyLong_FromUnsignedLongLong(counts[i].value)))
            Py_CLEAR(made);
    return made;
}

#define COUNT(of, field)                                                                           \
    { #field, (of).field }
#define COUNTS_MADE(counts) counts_made(counts, sizeof(counts) / sizeof((counts)[0]))

/* table.stats() */
PyObject *table_stats(struct table *table, PyObject *unused) {
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_limiter *limiter = table_use(table);
    int error;

    (void)unused;
    if (limiter == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    error = stint_stats_get(limiter, &stats);
    Py_END_ALLOW_THREADS;
    table_leave(table);
    if (error != 0) {
        failed(error, table->path);
        return NULL;
    }
    const struct count counts[] = {
        COUNT(stats, memory),         COUNT(stats, slots),        COUNT(stats, used),
        COUNT(stats, live),           COUNT(stats, placed),       COUNT(stats, untracked),
        COUNT(stats, replaced),       COUNT(stats, clock_steps),  COUNT(stats, stray_tokens),
        COUNT(stats, unknown_policy), COUNT(stats, resets),       COUNT(stats, shards),
        COUNT(stats, policies),       COUNT(stats, bad_requests), COUNT(stats, processes),
        COUNT(stats, lost),           COUNT(stats, overrides),    COUNT(stats, barred),
        COUNT(stats, banned),         COUNT(stats, max_entries),  COUNT(stats, labels),
        COUNT(stats, used_labels),    COUNT(stats, max_policies), COUNT(stats, policy_ids),
        COUNT(stats, gone_ids),       COUNT(stats, reach),        COUNT(stats, max_reach),
        COUNT(stats, removed),
    };
    return COUNTS_MADE(counts);
}

/* Of a policy. NULL without an exception: there is none. */
PyObject *counts_of_policy(struct stint_limiter *limiter, uint32_t id) {
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;

    if (stint_policy_stats_get(limiter, id, &stats) != 0)
        return NULL;
    const struct count counts[] = {
        COUNT(stats, allowed),        COUNT(stats, refused),      COUNT(stats, shadowed),
        COUNT(stats, first_refusals), COUNT(stats, untracked),    COUNT(stats, near_limit),
        COUNT(stats, charged),        COUNT(stats, refunded),     COUNT(stats, bans),
        COUNT(stats, strikes_lost),   COUNT(stats, refunds_lost), COUNT(stats, mistaken_nows),
    };
    return COUNTS_MADE(counts);
}

/* table.metrics(): OpenMetrics, as Prometheus reads it. Policies may be added between its two
 * calls of the library. */
PyObject *table_metrics(struct table *table, PyObject *unused) {
    struct stint_limiter *limiter = table_use(table);
    char *text = NULL, *larger;
    int length = 0, size = 0;

    (void)unused;
    if (limiter == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    do {
        size = length + 4096;
        larger = realloc(text, (size_t)size);
        if (larger == NULL)
            break;
        text = larger;
        length = stint_metrics(limiter, NULL, text, (size_t)size);
    } while (length >= size);
    Py_END_ALLOW_THREADS;
    table_leave(table);
    PyObject *made = NULL;
    if (larger == NULL)
        PyErr_NoMemory();
    else if (length < 0)
        failed(length, table->path);
    else
        made = PyUnicode_FromStringAndSize(text, length);
    free(text);
    return made;
}
