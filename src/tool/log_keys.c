/* SPDX-License-Identifier: MIT
 * A table of numbers, as a million keys may take some 40 bytes each: no more than their names and
 * what finds them. */
#include "log_keys.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common.h"

struct log_name {
    size_t at; /* of the bytes of all */
    uint32_t length, hash;
};

/* Finds the slot of a name: its own, or the one where it is to be put. */
static uint32_t *slot_of(const struct log_keys *keys, struct text name, uint32_t hash) {
    for (uint32_t i = hash;; i++) {
        uint32_t *slot = &keys->slots[i & (keys->slot_count - 1)];
        if (*slot == 0)
            return slot;
        const struct log_name *other = &keys->names[*slot - 1];
        if (other->hash == hash && other->length == name.length &&
            memcmp(keys->bytes + other->at, name.bytes, name.length) == 0)
            return slot;
    }
}

/* Makes room for one more, with twice the slots if half of them are taken. */
static void make_room(struct log_keys *keys, size_t length) {
    if (keys->length + length >= keys->room) { /* with the first key, even if it is empty */
        keys->room = 2 * (keys->length + length) + 4096;
        keys->bytes = must_have(realloc(keys->bytes, keys->room));
    }
    if (keys->count == keys->name_room) {
        keys->name_room = 2 * keys->name_room + 1024;
        keys->names = must_have(realloc(keys->names, keys->name_room * sizeof(*keys->names)));
    }
    if (keys->count < keys->slot_count / 2)
        return;
    if (keys->slots == NULL && getrandom(&keys->seed, sizeof(keys->seed), GRND_NONBLOCK) < 0)
        keys->seed = monotonic_ns();
    free(keys->slots);
    keys->slot_count = keys->slot_count == 0 ? 4096 : 2 * keys->slot_count;
    keys->slots = must_have(calloc(keys->slot_count, sizeof(*keys->slots)));
    for (uint32_t i = 0; i < keys->count; i++) {
        const struct log_name *name = &keys->names[i];
        *slot_of(keys, log_key_name(keys, i), name->hash) = i + 1;
    }
}

uint32_t log_key_named(struct log_keys *keys, struct text name) {
    make_room(keys, name.length);
    uint32_t hash = (uint32_t)XXH3_64bits_withSeed(name.bytes, name.length, keys->seed);
    uint32_t *slot = slot_of(keys, name, hash);
    if (*slot == 0) {
        keys->names[keys->count] = (struct log_name){keys->length, (uint32_t)name.length, hash};
        memcpy(keys->bytes + keys->length, name.bytes, name.length);
        keys->length += name.length;
        *slot = ++keys->count;
    }
    return *slot - 1;
}

struct text log_key_name(const struct log_keys *keys, uint32_t number) {
    const struct log_name *name = &keys->names[number];
    return (struct text){keys->bytes + name->at, name->length};
}

void log_keys_free(struct log_keys *keys) {
    free(keys->bytes);
    free(keys->names);
    free(keys->slots);
    *keys = (struct log_keys){.count = 0};
}
