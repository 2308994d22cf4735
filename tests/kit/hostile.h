/* SPDX-License-Identifier: MIT
 * What is told of a table that somebody else has written to: all of it can be read, and text for
 * others has no byte that they would take for something else. */
#ifndef STINT_TESTS_HOSTILE_H
#define STINT_TESTS_HOSTILE_H

#include "limiter/limiter.h" /* before cmocka, which defines fail() as well */

#include "fixture.h"
#include "policy/occupant.h"

/* Where the parts of a table begin; and where it ends. */
enum part { HEADER, POLICIES, RECORDS, COUNTERS, SHARDS, LINES, REACH, NAMES, PARTS };

struct layout {
    size_t at[PARTS + 1]; /* bytes */
};

static inline struct layout layout_of(const struct stint_limiter *limiter) {
    const void *const parts[PARTS] = {limiter->header,
                                      limiter->policies,
                                      limiter->records,
                                      limiter->counters,
                                      limiter->table.shards,
                                      limiter->table.lines,
                                      reach_words(&limiter->table),
                                      limiter->labels};
    struct layout layout = {.at = {[PARTS] = limiter->memory.size}};
    for (int part = 0; part < PARTS; part++)
        layout.at[part] = (size_t)((const char *)parts[part] - (const char *)limiter->header);
    return layout;
}

static inline stint_key key_at(const struct stint_limiter *limiter, uint64_t number) {
    return number == 0 ? STINT_KEY_GLOBAL : number_key(limiter, number);
}

static inline void assert_printable(const char *text, const char *besides) {
    for (; *text != '\0'; text++)
        assert_true((*text >= ' ' && *text <= '~') || strchr(besides, *text) != NULL);
}

static inline bool assert_entry(void *context, const struct stint_entry *entry) {
    uint64_t *left = context;
    unsigned sum = 0;
    assert_true((*left)-- != 0 && entry->label_length <= STINT_LABEL_SIZE);
    assert_true((entry->label != NULL) == (entry->label_length != 0));
    assert_true(entry->policy < STINT_POLICIES_MAX || entry->flags == STINT_ENTRY_LABEL);
    for (uint32_t i = 0; i < entry->label_length; i++)
        sum += (unsigned char)entry->label[i];
    return sum != 1; /* so that all are read */
}

/* Of the whole table, and of a key, no more than there can be. */
static inline void assert_entries(struct stint_limiter *limiter, stint_key key) {
    uint64_t left = get_stats(limiter).slots;
    assert_int_equal(stint_each(limiter, assert_entry, &left), 0);
    left = get_stats(limiter).slots;
    assert_int_equal(stint_each_of(limiter, key, assert_entry, &left), 0);
}

static inline void assert_change(void *context, const struct stint_change *change) {
    assert_printable(change->text == NULL ? "" : change->text, "");
    assert_printable(change->was == NULL ? "" : change->was, "");
    ++*(uint32_t *)context;
}

/* Each line is a field, and there are no more than there can be. */
static inline void assert_fields(struct stint_limiter *limiter,
                                 const struct stint_verdict *verdict) {
    char text[STINT_HEADERS_SIZE(1)];
    unsigned lines = 0;
    if (stint_headers(limiter, STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY, verdict, 1, text,
                      sizeof text) <= 0)
        return;
    assert_printable(text, "\r\n");
    for (char *line = strtok(text, "\r\n"); line != NULL; line = strtok(NULL, "\r\n"), lines++)
        assert_true(strncmp(line, "RateLimit", 9) == 0 || strncmp(line, "X-Rate", 6) == 0 ||
                    strncmp(line, "Retry-After: ", 13) == 0);
    assert_in_range(lines, 1, 6);
}

static inline void assert_metrics(struct stint_limiter *limiter) {
    static char text[1 << 16];
    const int length = stint_metrics(limiter, NULL, text, sizeof text);
    assert_true(length > 0 && (size_t)length < sizeof text && strlen(text) == (size_t)length);
    assert_printable(text, "\n");
}

#endif
