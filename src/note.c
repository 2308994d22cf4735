/* SPDX-License-Identifier: MIT
 * Notes of overrides. A key's hash picks a set of places, and the note is in one of them, with its
 * text beside (sealed.h).
 *
 * A place says whose the note is, and when that override ends. So another override of the key does
 * not show it, and the place is free from that tick on. To lift an override, or to set one without
 * a note, frees it at once.
 *
 * The note is written before its override (override_set.c). If the thread is killed in between, the
 * place is free when the override would have ended. */
#include "note.h"

#include <string.h>

#include "base/sealed.h"

#define NOTE_WORDS (STINT_NOTE_SIZE / sizeof(uint64_t))
#define END_SHIFT  16
static_assert(STINT_POLICIES_MAX < 1 << END_SHIFT, "a companion's id is below the end");

static uint64_t whose_of(uint32_t companion, tick_t end) {
    return (uint64_t)end << END_SHIFT | companion;
}

static uint32_t companion_of(uint64_t whose) {
    return (uint32_t)(whose & ((UINT64_C(1) << END_SHIFT) - 1));
}

/* Whether there may be notes. */
static bool any(const struct stint_limiter *limiter) {
    return atomic_load_acquire(&limiter->header->noted) != 0;
}

static struct note_set *set_of(const struct stint_limiter *limiter, uint64_t key) {
    return &limiter->notes[part_of(mix(key, 2), limiter->note_sets)];
}

static bool is_own(const uint64_t seen[2], uint32_t companion, uint64_t key) {
    return seen[0] == key && seen[1] != 0 && companion_of(seen[1]) == companion;
}

/* The place for a key's note: its own, else a free one. NOTES_IN_SET: there is none. `seen`
 * receives what it says. */
static uint32_t place_find(const struct note_set *set, uint32_t companion, uint64_t key, tick_t now,
                           uint64_t seen[2]) {
    uint32_t found = NOTES_IN_SET;

    for (uint32_t i = 0; i < NOTES_IN_SET; i++) {
        uint64_t here[2];
        place_load(&set->places[i], here);
        const bool own = is_own(here, companion, key);
        if (!own && (found != NOTES_IN_SET || here[1] >> END_SHIFT > (uint64_t)now))
            continue;
        found = i;
        memcpy(seen, here, sizeof(here));
        if (own)
            break;
    }
    return found;
}

bool stint_note_write(struct stint_limiter *limiter, uint32_t companion, uint64_t key, tick_t end,
                      const char *note) {
    struct note_set *set = set_of(limiter, key);
    const tick_t now = tick_of(limiter_now(limiter));
    const uint64_t next[2] = {key, whose_of(companion, end)}, length = strlen(note);
    uint64_t words[NOTE_WORDS] = {0}, seen[2];
    uint32_t place;

    memcpy(words, note, length);
    atomic_raise(&limiter->header->noted, 1);
    do { /* each round but the last, another has written the place */
        place = place_find(set, companion, key, now, seen);
        if (place == NOTES_IN_SET)
            return false;
    } while (!atomic_cas2_seq(&set->places[place], seen, next));
    sealed_store(&set->texts[place].seal, set->texts[place].bytes, NOTE_WORDS, mix(key, next[1]),
                 words, length);
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

void stint_notes_erase(struct stint_limiter *limiter, const uint64_t *companions) {
    if (!any(limiter))
        return;
    for (uint64_t i = 0; i < limiter->note_sets * NOTES_IN_SET; i++) {
        struct note_place *place = &limiter->notes[i / NOTES_IN_SET].places[i % NOTES_IN_SET];
        uint64_t seen[2];
        place_load(place, seen);
        const uint32_t companion = companion_of(seen[1]);
        if (seen[1] != 0 && (companions[companion / 64] >> companion % 64 & 1) != 0)
            place_free(place, seen);
    }
}

bool stint_note_read(const struct stint_limiter *limiter, uint32_t companion, uint64_t key,
                     tick_t end, char note[STINT_NOTE_SIZE + 1]) {
    const struct note_set *set = set_of(limiter, key);
    const uint64_t whose = whose_of(companion, end);
    uint64_t words[NOTE_WORDS], seen[2], length;

    if (!any(limiter))
        return false;
    for (uint32_t i = 0; i < NOTES_IN_SET; i++) {
        place_load(&set->places[i], seen);
        if (seen[0] != key || seen[1] != whose ||
            !sealed_load(&set->texts[i].seal, set->texts[i].bytes, NOTE_WORDS, mix(key, whose),
                         words, &length))
            continue;
        memcpy(note, words, length);
        note[length] = '\0';
        return length != 0;
    }
    return false;
}

bool stint_notes_move(const struct stint_limiter *from, struct stint_limiter *to) {
    const tick_t now = tick_of(limiter_now(from));

    to->header->noted = from->header->noted;
    for (uint64_t i = 0; i < from->note_sets * NOTES_IN_SET; i++) {
        const struct note_set *old = &from->notes[i / NOTES_IN_SET];
        const struct note_place place = old->places[i % NOTES_IN_SET];
        uint64_t seen[2];
        if (place.whose >> END_SHIFT <= (uint64_t)now)
            continue;
        struct note_set *set = set_of(to, place.key);
        const uint32_t found = place_find(set, companion_of(place.whose), place.key, now, seen);
        if (found == NOTES_IN_SET)
            return false;
        set->places[found] = place;
        set->texts[found] = old->texts[i % NOTES_IN_SET];
    }
    return true;
}
