/* SPDX-License-Identifier: MIT
 * Ids by name, in a hash table: one for each name, from which its alias leads to the policy that
 * decides.
 *
 * A policy's name is written once, before its version, by any process. Each search first adds the
 * policies that came since, in the order of ids. When an id becomes free, or another policy's,
 * header.refilled tells all handles to begin their index anew. */
#include <stdlib.h>
#include <string.h>

#include "limiter/counters.h"
#include "policy/names.h"

/* The process's lock guards all of it but `given`, which the table's lock guards. A reader does not
 * take that one, and leaves `given` 0. */
struct names {
    uint64_t forks;      /* stint_limiter_process_lock, when the index was begun */
    uint64_t lock_forks; /* and when the lock of private memory was made */
    uint64_t refilled;   /* that of the header, when the index was begun */
    uint32_t known;      /* ids below are in */
    uint32_t given;      /* ids below are not free */
    uint32_t places;     /* a power of two: at most half of them have one, but in a table that was
                          * written over, where an id can come more than once */
    uint32_t ids[];      /* each plus one, in the first free place from its hash on; 0: free */
};

struct names *stint_names_make(uint32_t max_policies) {
    uint32_t places = 2;
    while (places < 2 * max_policies)
        places *= 2;
    struct names *names = calloc(1, sizeof(*names) + places * sizeof(names->ids[0]));
    if (names == NULL)
        return NULL;
    names->places = places;
    names->forks = names->lock_forks = stint_limiter_process_lock();
    stint_limiter_process_unlock();
    return names;
}

static uint64_t name_hash(const char *name) {
    uint64_t hash = 0;
    for (size_t i = 0; i < STINT_NAME_SIZE && name[i] != '\0'; i++)
        hash = mix(hash, (unsigned char)name[i]);
    return hash;
}

/* The place of a name, or the free one where it belongs. NULL: the table was written over. */
static uint32_t *place_of(const struct stint_limiter *limiter, const char *name) {
    struct names *names = limiter->names;
    const uint64_t hash = name_hash(name);

    for (uint32_t i = 0; i < names->places; i++) {
        uint32_t *place = &names->ids[(hash + i) & (names->places - 1)];
        if (*place == 0 || strncmp(limiter->records[*place - 1].name, name, STINT_NAME_SIZE) == 0)
            return place;
    }
    return NULL;
}

/* Gives a policy's name to it, unless it has one that leads to another policy. */
static void insert(const struct stint_limiter *limiter, uint32_t id) {
    const char *name = limiter->records[id].name;
    uint32_t *place = *name == '\0' ? NULL : place_of(limiter, name); /* a companion has none */

    if (place == NULL)
        return;
    const uint32_t now = *place == 0 ? POLICY_NONE : stint_limiter_policy_now(limiter, *place - 1);
    if (now == POLICY_NONE || now == id)
        *place = id + 1;
}

/* Adds the policies that came since to the index. */
static void catch_up(const struct stint_limiter *limiter) {
    struct names *names = limiter->names;
    uint64_t refilled = atomic_load_acquire(&limiter->header->refilled); /* M15 */
    uint32_t count = limiter_policy_count(limiter);

    if (names->refilled != refilled) {
        memset(names->ids, 0, names->places * sizeof(names->ids[0]));
        names->known = 0;
        names->refilled = refilled;
    }
    for (; names->known < count; names->known++)
        if (limiter_policy(limiter, names->known) != NULL)
            insert(limiter, names->known);
}

/* Locks the index. After a fork it begins anew: a thread of the parent may have been in it. */
static void index_lock(struct names *names) {
    const uint64_t forks = stint_limiter_process_lock();
    if (names->forks != forks)
        names->refilled = UINT64_MAX; /* of no header */
    names->forks = forks;
}

bool stint_names_inherited(const struct stint_limiter *limiter) {
    struct names *names = limiter->names;
    const uint64_t forks = stint_limiter_process_lock();
    const bool inherited = !limiter->memory.shared && names->lock_forks != forks;

    if (inherited) {
        stint_limiter_lock_make(&limiter->header->lock);
        (void)pthread_mutex_trylock(&limiter->header->lock); /* new, so it is free */
    }
    names->lock_forks = forks;
    stint_limiter_process_unlock();
    return inherited;
}

uint32_t stint_names_find(const struct stint_limiter *limiter, const char *name) {
    struct names *names = limiter->names;
    uint32_t id = POLICY_NONE;

    index_lock(names);
    for (uint32_t round = 0; round < 2; round++) {
        catch_up(limiter);
        const uint32_t *place = place_of(limiter, name);
        if (place == NULL || *place == 0)
            break;
        id = stint_limiter_policy_now(limiter, *place - 1);
        if (id != POLICY_NONE)
            break;
        names->refilled = UINT64_MAX; /* it is gone: another id may have the name by now */
    }
    stint_limiter_process_unlock();
    return id;
}

bool stint_names_had(const struct stint_limiter *limiter, const char *name) {
    index_lock(limiter->names);
    catch_up(limiter);
    const uint32_t *place = place_of(limiter, name);
    const bool had = place == NULL || *place != 0;
    stint_limiter_process_unlock();
    return had;
}

uint32_t stint_names_free_id(const struct stint_limiter *limiter) {
    struct names *names = limiter->names;
    const uint32_t count = limiter_policy_count(limiter);
    uint32_t id = names->given;

    while (id < count && limiter_policy(limiter, id) != NULL)
        id++;
    if (!limiter->memory.read_only)
        names->given = id;
    return id;
}

uint32_t stint_names_free_ids(const struct stint_limiter *limiter) {
    const uint32_t count = limiter_policy_count(limiter);
    uint32_t free_ids = limiter->max_policies - count;

    for (uint32_t id = stint_names_free_id(limiter); id < count; id++)
        free_ids += limiter_policy(limiter, id) == NULL;
    return free_ids;
}

void stint_names_forget(const struct stint_limiter *limiter) {
    uint64_t *refilled = &limiter->header->refilled;
    INSTANT(INSTANT_SET_UP);
    /* Under the lock, as its writer; after the policy's version (M12). */
    atomic_store_release(refilled, atomic_load_relaxed(refilled) + 1);
}

void stint_names_refilled(const struct stint_limiter *limiter, uint32_t id) {
    struct names *names = limiter->names;
    const uint64_t before = atomic_load_relaxed(&limiter->header->refilled); /* M12 */

    stint_names_forget(limiter);
    index_lock(names);
    if (names->refilled == before) {
        if (id < names->known)
            insert(limiter, id);
        names->refilled = before + 1;
    }
    stint_limiter_process_unlock();
}
