/* SPDX-License-Identifier: MIT
 * A table of another size, which takes the place of one that nobody has open. It is made beside it,
 * in a file without a name, and published whole. */
#include <string.h>

#include "feature/labels.h"
#include "feature/override.h"
#include "sys/message.h"
#include "table/parts.h"

/* Nobody else sees the new table, or writes to the old one unless it is of the layout before. So
 * but for slots of that, all loads and stores are plain. */
struct move {
    struct stint_limiter *from, *to;
    tick_t now;
    uint64_t live, lost;
};

/* Copies the policies with their ids. Those that are gone became free when `from` was opened. */
static int policies_move(const struct move *move) {
    struct stint_limiter *from = move->from, *to = move->to;
    uint32_t count = limiter_policy_count(from);

    while (count > 0 && limiter_policy(from, count - 1) == NULL)
        count--;
    if (count > to->max_policies)
        return stint_failed_with(
            EINVAL,
            "options.max_policies must be at least %u: so many ids of policies "
            "are taken in the table",
            (unsigned)count);
    memcpy(to->policies, from->policies, count * sizeof(*to->policies));
    for (uint32_t id = 0; id < from->max_policies && id < to->max_policies; id++)
        to->records[id] = from->records[id]; /* a free one has a generation */
    to->header->policy_count = count;
    to->header->smooth = from->header->smooth;
    to->header->known = from->header->known;
    return 0;
}

/* Sums the counters of all lanes into lane 0, which is for all threads. Rare counts have none. */
static void counters_move(const struct move *move) {
    const struct stint_limiter *from = move->from;
    uint32_t policies = limiter_policy_count(move->to);

    for (uint32_t counter = 0; counter < CACHE_LINE / sizeof(uint64_t); counter++) {
        for (uint32_t id = 0; id < policies; id++)
            move->to->counters[id].count[counter] = stint_limiter_counted(from, id, counter);
        move->to->counters[move->to->max_policies].count[counter] =
            stint_limiter_counted(from, from->max_policies, counter);
    }
    memcpy(move->to->rare, from->rare, policies * sizeof(*from->rare));
}

/* Gives a new shard the latest watermark of all shards that had its keys, and at least now: keys
 * whose window is over lose their slots here, as to another key (claim.h, watermark_raise). */
static void watermarks_move(const struct move *move) {
    const struct table *from = &move->from->table, *to = &move->to->table;
    uint64_t from_end = UINT64_C(1) << from->shard_bits, to_end = UINT64_C(1) << to->shard_bits;

    for (uint64_t shard = 0; shard < to_end; shard++) {
        uint64_t *watermark = &to->shards[shard].watermark;
        *watermark = (uint64_t)move->now;
        for (uint64_t old = shard * from_end / to_end; old * to_end < (shard + 1) * from_end; old++)
            atomic_raise(watermark, from->shards[old].watermark); /* M7 */
    }
}

/* Puts a key in the first never-used slot of its lines. Returns false if there is none. */
static bool slot_place(const struct table *table, uint64_t hash, const struct slot *placed) {
    for (uint32_t i = 0; i < sequence_length(table); i++) {
        struct slot *slot = sequence_slot(table, hash, i);
        if (slot->tag == placed->tag) { /* I3 does not hold across a step of the clock */
            if ((int64_t)(placed->state - slot->state) > 0)
                slot->state = placed->state; /* of the later window, or the larger count */
            return true;
        }
        if (slot->tag != 0)
            continue;
        *slot = *placed;
        reach_raise(table, hash, i / LINE_SLOTS); /* I6 */
        atomic_raise(&table_shard_of(table, hash)->reach, i / LINE_SLOTS);
        return true;
    }
    return false;
}

/* Moves a slot, if it still counts, as one that is far ahead does: the clock may be behind. */
static int slot_move(struct move *move, uint64_t number) {
    const struct table *from = &move->from->table, *to = &move->to->table;
    const uint64_t line = number / LINE_SLOTS;
    const struct slot *slot = &from->lines[line].slots[number % LINE_SLOTS];
    uint64_t tag, state, hash;

    do {
        tag = atomic_load_acquire(&slot->tag);     /* M1 */
        state = atomic_load_acquire(&slot->state); /* M2 */
    } while (atomic_load_relaxed(&slot->tag) != tag);
    if (tag == 0 || tag == table_tombstone(from) || state_pending(state))
        return 0;
    const struct policy *policy = limiter_tag_policy(move->from, tag);
    const bool told = policy != NULL && override_says(policy, state);
    const tick_t over = move->now - (told ? ALLOWANCE_TICKS : 0); /* by all clocks */
    if (policy == NULL || slot_lifted(policy, state) ||
        /* Void: 0.4's strikes and bans of shadows. */
        (told && (state & (STATE_REFUSED | OVERRIDE_ENDLESS / 2)) == OVERRIDE_ENDLESS / 2) ||
        (slot_end(move->from, policy, state, move->now) <= over &&
         !slot_carries(policy, state, move->now)))
        return 0;
    if (!table_hash(from, line, tag, &hash)) /* it is a file's, of whole hashes (open.c) */
        return stint_failed_with(
            EPROTO, "the table is damaged: no key of a slot in line %llu belongs there",
            (unsigned long long)line);
    struct slot placed = {table_tag(to, hash, tag_policy(from, tag)), state};
    if ((policy_word(policy) & TRAIT_COMPANION) != 0)
        filter_mark(to, hash, table_shard_of(to, hash)->filter);
    move->live++;
    move->lost += !slot_place(to, hash, &placed);
    return 0;
}

/* In the order of the lines, which is that of the hashes: both tables are read from end to end. */
static int slots_move(struct move *move) {
    for (uint64_t i = 0; i < move->from->table.line_count * LINE_SLOTS; i++) {
        int error = slot_move(move, i);
        if (error != 0)
            return error;
    }
    if (move->lost != 0)
        return stint_failed_with(ENOSPC,
                                 "options.max_entries is too small: the table has %llu live keys, "
                                 "and %llu of them find no slot",
                                 (unsigned long long)move->live, (unsigned long long)move->lost);
    return 0;
}

/* Makes the new table, and puts it in the place of the old one, which has the options `made`. */
static int resize(const struct stint_options *given, const struct stint_options *made,
                  struct stint_limiter *from) {
    struct stint_limiter *to = NULL;
    struct stint_options options = *given;

    options.max_entries = given->max_entries != 0 ? given->max_entries : made->max_entries;
    options.shards = given->shards != 0 ? given->shards : made->shards;
    options.max_policies = given->max_policies != 0 ? given->max_policies : made->max_policies;
    options.labels = given->labels != 0 ? given->labels : made->labels;
    options.path = made->path;
    options.secret = from->secret;
    int error = stint_table_make(&options, &to);
    struct move move = {.from = from, .to = to, .now = tick_of(limiter_now(from))};
    if (error == 0)
        error = policies_move(&move);
    if (error == 0)
        error = slots_move(&move);
    if (error == 0) {
        counters_move(&move);
        stint_labels_move(from, to);
        watermarks_move(&move);
        error = stint_table_whole(from); /* or some of what was moved is zeros */
    }
    if (error == 0)
        error = stint_memory_file_replace(&to->memory, &from->memory, options.mode, options.path);
    stint_close(to);
    return error;
}

int stint_resize(const char *path, const struct stint_options *given) {
    struct stint_options options = STINT_OPTIONS_INIT, made = STINT_OPTIONS_INIT;
    struct stint_limiter *from = NULL;

    if (path == NULL || path[0] == '\0')
        return stint_failed(EINVAL, "path is NULL or empty");
    int error = given == NULL ? 0 : stint_options_read(given, &options);
    if (error != 0)
        return error;
    if (options.path != NULL)
        return stint_failed(EINVAL, "options.path must be NULL: the path is an argument");
    made.clock = options.clock;
    made.secret = options.secret;
    made.path = path;
    error = stint_table_copy(&made, &from);
    if (error == 0)
        error = resize(&options, &made, from);
    stint_close(from);
    return error == 0 ? 0 : stint_failed_at(error, path);
}
