/* SPDX-License-Identifier: MIT
 * Notes of overrides, which operators leave in the table for readers. No decision reads them. */
#ifndef STINT_NOTE_H
#define STINT_NOTE_H

#include "limiter/limiter.h"

/* An override has its note in one of the places of a set. The first two words of each stand
 * together, in four lines: a search reads no text. */
#define NOTES_IN_SET 16

struct note_set {
    struct note_place {
        _Alignas(2 * sizeof(uint64_t)) uint64_t key;
        uint64_t whose; /* the tick at which the override ends 42 | bits of the number of ticks that
                         * it was to last 6 | its companion 16; 0: nobody's */
    } places[NOTES_IN_SET];
    struct note_text {
        uint64_t seal; /* of the override and the bytes (sealed.h) */
        uint64_t bytes[STINT_NOTE_SIZE / sizeof(uint64_t)];
    } texts[NOTES_IN_SET];
};
static_assert(sizeof(struct note_set) % CACHE_LINE == 0, "sets begin with a line");

/* Keys for each note of a table, and the fewest notes. An operator sets few limits by hand: 144
 * bytes for 1,024 keys are 0.4% of their lines. */
#define NOTE_KEYS UINT64_C(1024)
#define NOTES_MIN UINT64_C(128)

/* Gives the override of a key, with this limit and end, a note of at most STINT_NOTE_SIZE bytes in
 * place of what it has. Returns false if there is no room. */
bool stint_note_write(struct stint_limiter *limiter, uint32_t companion, uint64_t key, tick_t end,
                      uint32_t limit, const char *note);

/* Frees the place of a key's note. */
void stint_note_erase(struct stint_limiter *limiter, uint32_t companion, uint64_t key);

/* Frees the places of all notes by companions that are gone. */
void stint_notes_erase(struct stint_limiter *limiter);

/* Reads the note of an override with this limit and end. Returns false if there is none. */
bool stint_note_read(const struct stint_limiter *limiter, uint32_t companion, uint64_t key,
                     tick_t end, uint32_t limit, char note[STINT_NOTE_SIZE + 1]);

/* Moves the notes of overrides that are there to a table that nobody uses yet. Returns false if one
 * finds no room. */
bool stint_notes_move(const struct stint_limiter *from, struct stint_limiter *to);

#endif
