/* SPDX-License-Identifier: MIT
 * The search for a key. Read slot.h first. */
#include "map/search.h"

struct far stint_look_far(const struct table *table, uint64_t hash, uint64_t tag) {
    const uint64_t unused = unused_near(table, hash);

    if (LIKELY(unused != 0))
        return (struct far){NULL, unused};
    return (struct far){
        stint_find_tag(table, hash, tag, UNUSED_LINES, sequence_reach(table, hash)).slot, 0};
}

struct search stint_find_tag(const struct table *table, uint64_t hash, uint64_t tag, uint32_t from,
                             uint32_t lines) {
    struct line *line = sequence_line(table, hash, from), *const end = shard_end(table, hash);

    for (uint32_t i = from; i < lines; i++, line = line_after(table, line, end)) {
        struct slot *slot = line_find(line, tag);
        if (slot != NULL)
            return (struct search){slot, i};
        if (i < UNUSED_LINES && line_match(line, 0) != 0) /* I5 */
            break;
    }
    return (struct search){0};
}

struct search stint_search(const struct table *table, uint64_t hash, uint64_t tag, tick_t now) {
    const struct slot_pattern plain = live_others(table, tag, now, 1);
    /* Most searches end in the home line, unless the table is full. */
    const uint32_t i = sequence_all_match(table, hash, 0, &plain);

    if (i == table->probe_lines)
        return (struct search){NULL, i};
    struct line *line = sequence_line(table, hash, i);
    struct slot *slot = line_find(line, tag);
    if (slot != NULL)
        return (struct search){slot, i};
    struct search rest = {0};
    if (line_match(line, 0) == 0) /* I5 */
        rest = stint_find_tag(table, hash, tag, i + 1, sequence_reach(table, hash));
    return rest.slot != NULL ? rest : (struct search){NULL, i};
}

bool stint_find_again(const struct table *table, uint64_t hash, uint64_t tag) {
    atomic_fence_acquire(); /* M9 */
    return stint_find_tag(table, hash, tag, 0, sequence_reach(table, hash)).slot != NULL;
}

bool stint_find_committed(const struct table *table, uint64_t hash, uint64_t tag,
                          struct seen *seen) {
    struct line *line = home_of(table, hash), *const end = shard_end(table, hash);

    for (uint32_t i = 0, n = sequence_reach(table, hash) * LINE_SLOTS; i < n; i++) {
        if (i != 0 && i % LINE_SLOTS == 0)
            line = line_after(table, line, end);
        struct slot *slot = &line->slots[i % LINE_SLOTS];
        uint64_t has = atomic_load_acquire(&slot->tag); /* I5 */
        if (has == 0)
            return false;
        if (has != tag)
            continue;
        uint64_t state = atomic_load_acquire(&slot->state); /* M1 */
        if (!GUARD(REFUND_TAG, atomic_load_acquire(&slot->tag) != tag) && !state_pending(state)) {
            *seen = (struct seen){.slot = slot, .tag = tag, .state = state, .position = i};
            return true;
        }
    }
    return false;
}
