/* SPDX-License-Identifier: MIT
 * Names of keys. A key's hash picks a set of four labels, and its label is one of them.
 *
 * One double-width CAS changes key and count together, so a count is that of the key beside it. The
 * bytes follow, and then a seal of them, their length and the key. If two write over each other, or
 * one dies half-way, the seal is not that of the bytes, and readers show nothing. So nobody waits
 * for a writer, and the loads and stores need no order.
 *
 * In a full set the key that was refused in the fewest windows, which halve each day, makes room;
 * one that is banned only if all are. */
#include "feature/labels.h"

#include <string.h>

#include "feature/override.h"
#include "sys/message.h"

#define LABEL_WORDS (STINT_LABEL_SIZE / sizeof(uint64_t))
#define SEAL_LENGTH UINT64_C(127)    /* the bits of a seal that are the length, in bytes */
#define DAY         UINT32_C(86400)  /* s */
#define DAYS_MAX    UINT32_C(100000) /* tables of earlier versions have days instead of seconds */

static struct label *label_set(const struct stint_limiter *limiter, uint64_t key) {
    return &limiter->labels[hash_pick(mix(key, 2), limiter->label_sets) * LABELS_IN_SET];
}

static uint64_t seal_of(uint64_t key, const uint64_t words[LABEL_WORDS], uint64_t length) {
    uint64_t seal = mix(key, length + 1);
    for (size_t i = 0; i < LABEL_WORDS; i++)
        seal = mix(seal, words[i] + i + 1);
    return (seal & ~SEAL_LENGTH) | length;
}

static bool bytes_load(const struct label *label, uint64_t key, uint64_t words[LABEL_WORDS],
                       uint64_t *length) {
    const uint64_t seal = atomic_load_acquire(&label->seal);
    *length = seal & SEAL_LENGTH;
    for (size_t i = 0; i < LABEL_WORDS; i++)
        words[i] = atomic_load_relaxed(&label->bytes[i]);
    return *length <= STINT_LABEL_SIZE && seal_of(key, words, *length) == seal;
}

static uint32_t last_of(uint64_t refused) {
    const uint32_t time = (uint32_t)refused;
    return time < DAYS_MAX ? time * DAY : time;
}

/* The windows in which a label was refused, of which half are forgotten each day. */
static uint64_t faded(uint64_t refused, uint32_t now) {
    const uint32_t last = last_of(refused);
    /* A clock that was ahead tells nothing of its age: it counts least. */
    const uint32_t age = now >= last ? (now - last) / DAY : last - now > 60 ? 31 : 0;
    return (refused >> 32) >> (age > 31 ? 31 : age);
}

/* The place for a key: its own, else a free one, else that of the key that counts least of those
 * that are not spared (a bit for each place); NULL: all are. `seen` receives its key and count. */
static struct label *place_find(struct label *set, uint64_t key, uint32_t now, uint32_t spared,
                                uint64_t seen[2]) {
    uint64_t least = UINT64_MAX;
    struct label *found = NULL;

    for (uint32_t i = 0; i < LABELS_IN_SET; i++) {
        uint64_t here[2];
        label_load(&set[i], here);
        const bool own = here[0] == key && here[1] != 0;
        uint64_t counts = own || here[1] == 0 ? 0 : 1 + faded(here[1], now);
        if (!own && (counts >= least || (counts != 0 && (spared >> i & 1) != 0)))
            continue;
        least = counts;
        found = &set[i];
        memcpy(seen, here, sizeof(here));
        if (own)
            break;
    }
    return found;
}

static bool key_banned(const struct stint_limiter *limiter, uint64_t key) {
    const struct table *table = &limiter->table;
    const uint32_t slots = filter_has(table, key) ? sequence_reach(table, key) * LINE_SLOTS : 0;
    const uint64_t now = limiter_now(limiter);

    for (uint32_t i = 0; i < slots; i++) {
        const struct slot *slot = sequence_slot(table, key, i);
        const uint64_t tag = atomic_load_acquire(&slot->tag);     /* M1 */
        const uint64_t state = atomic_load_acquire(&slot->state); /* M1: a hint for labels */
        struct stint_entry told;
        if (tag != 0 && tag == table_tag(table, key, tag_policy(table, tag)) &&
            stint_override_told(limiter, tag, state, now, &told) &&
            told.flags != STINT_ENTRY_STRIKES && told.limit == 0)
            return true;
    }
    return false;
}

/* The place for a key that is named now: a banned key makes room only for its like. */
static struct label *place_choose(const struct stint_limiter *limiter, struct label *set,
                                  uint64_t key, uint32_t now, uint64_t seen[2]) {
    uint32_t spared = 0;
    struct label *found;

    while ((found = place_find(set, key, now, spared, seen)) != NULL && seen[1] != 0 &&
           seen[0] != key && key_banned(limiter, seen[0]))
        spared |= UINT32_C(1) << (found - set);
    return found != NULL ? found : place_find(set, key, now, 0, seen);
}

int stint_label(struct stint_limiter *limiter, stint_key key, const void *bytes, size_t length) {
    if (limiter == NULL || (bytes == NULL && length != 0))
        return stint_failed(EINVAL, "limiter or bytes is NULL");
    if (limiter->memory.read_only)
        return stint_failed(EROFS, READ_ONLY);
    if (UNLIKELY(limiter->deciding == 0))
        return stint_limiter_whole(limiter);
    if (limiter->labels == NULL)
        return stint_failed(ENOENT, "the table has no room for labels: it was made with "
                                    "options.labels 0");
    const uint32_t now = (uint32_t)(limiter_now(limiter) / 1000000000);
    struct label *set = label_set(limiter, key.hash), *label;
    uint64_t words[LABEL_WORDS] = {0}, there[LABEL_WORDS], seen[2], there_length;

    if (length > STINT_LABEL_SIZE)
        length = STINT_LABEL_SIZE;
    if (length != 0)
        memcpy(words, bytes, length);
    for (;;) { /* each round but the last, another has written the place */
        label = place_choose(limiter, set, key.hash, now, seen);
        uint64_t windows = seen[0] == key.hash ? seen[1] >> 32 : 0;
        windows += windows < UINT32_MAX;
        const uint64_t next[2] = {key.hash, windows << 32 | now};
        if (atomic_cas2_seq(label, seen, next))
            break;
    }
    if (bytes_load(label, key.hash, there, &there_length) && there_length == length &&
        memcmp(words, there, sizeof(words)) == 0)
        return 0;
    for (size_t i = 0; i < LABEL_WORDS; i++) {
        STEP(&label->bytes[i]); /* stores are none of themselves */
        atomic_store_relaxed(&label->bytes[i], words[i]);
    }
    STEP(&label->seal);
    atomic_store_release(&label->seal, seal_of(key.hash, words, length));
    return 0;
}

void stint_label_read(const struct stint_limiter *limiter, uint64_t key, struct label_read *read) {
    const struct label *set = label_set(limiter, key);

    for (uint32_t i = 0; i < LABELS_IN_SET; i++) /* their misses overlap */
        __builtin_prefetch(&set[i]);
    *read = (struct label_read){0};
    for (uint32_t i = 0; i < LABELS_IN_SET; i++) {
        uint64_t seen[2], words[LABEL_WORDS], length;
        label_load(&set[i], seen);
        if (seen[0] != key || seen[1] == 0)
            continue;
        /* Two threads that name a new key at the same instant may give it two places. */
        const uint64_t last = UINT64_C(1000000000) * last_of(seen[1]);
        read->refused += (uint32_t)(seen[1] >> 32);
        read->last = last > read->last ? last : read->last;
        if (read->length == 0 && bytes_load(&set[i], key, words, &length)) {
            read->length = (uint32_t)length;
            memcpy(read->bytes, words, length);
        }
    }
}

void stint_labels_move(const struct stint_limiter *from, struct stint_limiter *to) {
    const uint32_t now = (uint32_t)(limiter_now(from) / 1000000000);

    for (uint64_t i = 0; to->labels != NULL && i < from->label_sets * LABELS_IN_SET; i++) {
        struct label label = from->labels[i];
        uint64_t words[LABEL_WORDS], seen[2], length;
        if (label.refused == 0)
            continue;
        if (!bytes_load(&label, label.key, words, &length))
            label.seal = 0; /* no key's bytes */
        struct label *place = place_find(label_set(to, label.key), label.key, now, 0, seen);
        if (seen[1] == 0 ||
            (seen[0] != label.key && faded(label.refused, now) > faded(seen[1], now)))
            *place = label;
        else if (seen[0] == label.key) /* two had named it at one instant */
            place->refused += label.refused & ~(uint64_t)UINT32_MAX;
    }
}
