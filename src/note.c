/* SPDX-License-Identifier: MIT
 * Notes of overrides. A key's hash picks a set of places, and the note is in one of them, with its
 * text beside (sealed.h).
 *
 * A place says whose the note is, when that override ends, and about how long it lasts. The place
 * is free from that tick on. Where none is free, one counts as free whose override was to begin
 * only after now: a clock that was ahead had set it. Whoever lifts an override, or sets one without
 * a note, frees its place at once. The text is sealed for its override: key, policy, end and limit.
 * So another override of the key does not show it.
 *
 * The note is written before its override (override_set.c). If the thread is killed in between, the
 * place is free when the override would have ended, and the override before has no note. */
#include "note.h"

#include <string.h>

#include "limiter/sealed.h"
#include "override.h"
#include "search.h"

#define NOTE_WORDS     (STINT_NOTE_SIZE / sizeof(uint64_t))
#define COMPANION_BITS 16
#define LASTS_BITS     6
#define END_SHIFT      (COMPANION_BITS + LASTS_BITS)
static_assert(STINT_POLICIES_MAX < 1 << COMPANION_BITS, "a companion's id is an id");

static uint64_t whose_of(uint32_t companion, tick_t end, tick_t now) {
    const uint64_t bits = 64 - (uint64_t)__builtin_clzll((uint64_t)(end - now) | 1);
    return (uint64_t)end << END_SHIFT | bits << COMPANION_BITS | companion;
}

static uint32_t companion_of(uint64_t whose) {
    return (uint32_t)(whose & ((UINT64_C(1) << COMPANION_BITS) - 1));
}

static tick_t place_end(uint64_t whose) {
    return (tick_t)(whose >> END_SHIFT);
}

/* What the text of an override's note is sealed for. */
static uint64_t seal_key(uint32_t companion, uint64_t key, tick_t end, uint32_t limit) {
    return mix(mix(key, (uint64_t)end << COMPANION_BITS | companion), limit);
}

/* Whether there may be notes. */
static bool any(const struct stint_limiter *limiter) {
    return atomic_load_acquire(&limiter->header->noted) != 0;
}

static struct note_set *set_of(const struct stint_limiter *limiter, uint64_t key) {
    return &limiter->notes[hash_pick(mix(key, 2), limiter->note_sets)];
}

static bool is_own(const uint64_t seen[2], uint32_t companion, uint64_t key) {
    return seen[0] == key && seen[1] != 0 && companion_of(seen[1]) == companion;
}

/* How fit a place is for a key's note. */
enum fit { OTHERS, AHEAD_OF_NOW, OVER, OWN };

static enum fit place_fit(const uint64_t here[2], uint32_t companion, uint64_t key, tick_t now) {
    const tick_t end = place_end(here[1]);
    /* Without a sign: the table may be written over. */
    const uint64_t lasts = UINT64_C(1) << (here[1] >> COMPANION_BITS & ((1 << LASTS_BITS) - 1));
    const tick_t begin = (tick_t)((uint64_t)end - lasts);

    return is_own(here, companion, key)    ? OWN
           : end <= now                    ? OVER
           : begin > now + ALLOWANCE_TICKS ? AHEAD_OF_NOW
                                           : OTHERS;
}

/* The place for a key's note: the fittest. NOTES_IN_SET: all are others'. `seen` receives its two
 * words. */
static uint32_t place_find(const struct note_set *set, uint32_t companion, uint64_t key, tick_t now,
                           uint64_t seen[2]) {
    uint32_t found = NOTES_IN_SET;
    enum fit fittest = OTHERS;

    for (uint32_t i = 0; i < NOTES_IN_SET; i++) {
        uint64_t here[2];
        place_load(&set->places[i], here);
        const enum fit fit = place_fit(here, companion, key, now);
        if (fit <= fittest)
            continue;
        found = i;
        fittest = fit;
        memcpy(seen, here, sizeof(here));
    }
    return found;
}

bool stint_note_write(struct stint_limiter *limiter, uint32_t companion, uint64_t key, tick_t end,
                      uint32_t limit, const char *note) {
    struct note_set *set = set_of(limiter, key);
    const tick_t now = tick_of(limiter_now(limiter));
    const uint64_t next[2] = {key, whose_of(companion, end, now)}, length = strlen(note);
    uint64_t words[NOTE_WORDS] = {0}, seen[2];
    uint32_t place;

    memcpy(words, note, length);
    atomic_raise(&limiter->header->noted, 1);
    do { /* each round but the last, another has written the place */
        place = place_find(set, companion, key, now, seen);
        if (place == NOTES_IN_SET)
            return false;
    } while (!atomic_cas2_seq(&set->places[place], seen, next));
    sealed_store(&set->texts[place].seal, set->texts[place].bytes, NOTE_WORDS,
                 seal_key(companion, key, end, limit), words, length);
    return true;
}

static void place_free(struct note_place *place, const uint64_t seen[2]) {
    const uint64_t nobody[2] = {seen[0], 0};
    (void)atomic_cas2_seq(place, seen, nobody); /* or it is another note's */
}

void stint_note_erase(struct stint_limiter *limiter, uint32_t companion, uint64_t key) {
    struct note_set *set = set_of(limiter, key);
    uint64_t seen[2];

    if (!any(limiter))
        return;
    /* Two threads that give a key its first note at the same instant may give it two places. */
    for (uint32_t i = 0; i < NOTES_IN_SET; i++) {
        place_load(&set->places[i], seen);
        if (is_own(seen, companion, key))
            place_free(&set->places[i], seen);
    }
}

void stint_notes_erase(struct stint_limiter *limiter) {
    if (!any(limiter))
        return;
    for (uint64_t i = 0; i < limiter->note_sets * NOTES_IN_SET; i++) {
        struct note_place *place = &limiter->notes[i / NOTES_IN_SET].places[i % NOTES_IN_SET];
        uint64_t seen[2];
        place_load(place, seen);
        const uint32_t companion = companion_of(seen[1]);
        if (seen[1] != 0 && companion < limiter->max_policies &&
            policy_gone(&limiter->policies[companion]))
            place_free(place, seen);
    }
}

/* Reads the text of a place, if it is sealed for this. */
static bool text_read(const struct note_set *set, uint32_t place, uint64_t sealed,
                      char note[STINT_NOTE_SIZE + 1]) {
    uint64_t words[NOTE_WORDS], length;

    if (!sealed_load(&set->texts[place].seal, set->texts[place].bytes, NOTE_WORDS, sealed, words,
                     &length))
        return false;
    memcpy(note, words, length);
    note[length] = '\0';
    return length != 0;
}

bool stint_note_read(const struct stint_limiter *limiter, uint32_t companion, uint64_t key,
                     tick_t end, uint32_t limit, char note[STINT_NOTE_SIZE + 1]) {
    const struct note_set *set = set_of(limiter, key);
    uint64_t seen[2];

    if (!any(limiter))
        return false;
    for (uint32_t i = 0; i < NOTES_IN_SET; i++) {
        place_load(&set->places[i], seen);
        if (is_own(seen, companion, key) && place_end(seen[1]) == end &&
            text_read(set, i, seal_key(companion, key, end, limit), note))
            return true;
    }
    return false;
}

bool stint_notes_move(const struct stint_limiter *from, struct stint_limiter *to) {
    const uint64_t now = limiter_now(from);
    const bool layout_4 = from->header->layout == 4;
    char note[STINT_NOTE_SIZE + 1];

    for (uint64_t i = 0; i < from->note_sets * NOTES_IN_SET; i++) {
        const struct note_set *set = &from->notes[i / NOTES_IN_SET];
        const uint32_t place = (uint32_t)(i % NOTES_IN_SET);
        const uint64_t key = set->places[place].key, whose = set->places[place].whose;
        const uint32_t companion = companion_of(whose);
        const uint64_t tag = table_tag(&to->table, key, companion);
        struct override_told told;
        struct seen seen;
        /* The override must be there: it was moved before. */
        if (whose == 0 || companion >= to->max_policies ||
            !stint_find_committed(&to->table, key, tag, &seen) ||
            !stint_override_told(to, tag, seen.state, now, &told) || !told.set)
            continue;
        const tick_t end = tick_of(told.until);
        if (text_read(set, place,
                      layout_4 ? mix(key, whose) : seal_key(companion, key, end, told.limit),
                      note) &&
            end == (layout_4 ? (tick_t)(whose >> COMPANION_BITS) : place_end(whose)) &&
            !stint_note_write(to, companion, key, end, told.limit, note))
            return false;
    }
    return true;
}
