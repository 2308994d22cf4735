/* SPDX-License-Identifier: MIT
 * All live keys of a table, or one, slot by slot; then striped keys, whose slots are added up. */
#include <stdlib.h>

#include "decision.h"
#include "feature/labels.h"
#include "feature/override.h"
#include "feature/rate.h"
#include "feature/stripe.h"
#include "sys/message.h"

struct stripe {
    uint64_t index; /* base of the key, and number of the stripe (stripe_index) */
    uint64_t hash;
    uint64_t used;
    uint64_t end;
    uint64_t since; /* of the entry */
    uint32_t policy;
    uint32_t flags; /* of the entry */
    bool zero;      /* this is stripe 0 */
};

/* A Bloom filter: 16 bits for each number of a set. It saves the cache misses of most questions,
 * which are about other numbers: a million keys in two stripes take 430 ms, else 640 (26 November
 * 2026, AMD EPYC), 10 million of which 1% have labels 1.0 s, else 1.9 (28 November, Intel Xeon). */
struct bloom {
    uint64_t *bits; /* NULL: there is no memory; anything may be in the set */
    uint64_t count;
};

static void bloom_make(struct bloom *bloom, uint64_t members) {
    bloom->count = members * 16 + 64;
    bloom->bits = calloc(bloom->count / 64 + 1, sizeof(*bloom->bits));
}

static void bloom_add(const struct bloom *bloom, uint64_t number) {
    uint64_t bit = hash_pick(mix(number, 1), bloom->count);
    if (bloom->bits != NULL)
        bloom->bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

static bool bloom_has(const struct bloom *bloom, uint64_t number) {
    uint64_t bit = hash_pick(mix(number, 1), bloom->count);
    return bloom->bits == NULL || (bloom->bits[bit / 64] >> bit % 64 & 1) != 0;
}

struct telling {
    struct stint_limiter *limiter;
    uint64_t now;
    bool one; /* this key alone */
    uint64_t key;
    bool told;    /* something was */
    bool stopped; /* the callback wants no more, or there was an error */
    int error;
    bool (*callback)(void *context, const struct stint_entry *entry);
    void *context;
    struct stripe *stripes;
    size_t count, room;
    struct bloom labelled; /* keys that had a label when the walk began; one: anything */
};

static bool label_of(const struct telling *telling, uint64_t key, struct label_read *label) {
    if (telling->limiter->labels == NULL || !bloom_has(&telling->labelled, key))
        return false;
    stint_label_read(telling->limiter, key, label);
    return label->refused != 0;
}

static void entry_tell(struct telling *telling, struct stint_entry *entry) {
    struct label_read label;

    if ((entry->flags & STINT_ENTRY_KEY_STRIPE) == 0 &&
        label_of(telling, entry->key.hash, &label)) {
        entry->refused_windows = label.refused;
        entry->refused_last = label.last;
        entry->label_length = label.length;
        entry->label = label.length == 0 ? NULL : label.bytes;
    }
    telling->told = true;
    telling->stopped = !telling->callback(telling->context, entry);
}

/* Tag and state of a slot, of one occupant and one window. False: it is changing hands. */
static bool slot_read(const struct slot *slot, uint64_t *tag, uint64_t *state) {
    do {
        *tag = atomic_load_acquire(&slot->tag); /* M15: its policy is read */
        if (*tag == 0)
            return false;
        *state = atomic_load_acquire(&slot->state); /* M1 */
        if (atomic_load_acquire(&slot->tag) != *tag)
            return false;
    } while (!state_same_window(atomic_load_relaxed(&slot->state), *state)); /* M2, I1 */
    return true;
}

/* The instant after which a slot whose window has this end was refused. A bucket was empty then,
 * and its end has not passed a multiple of the window since. */
static uint64_t refused_since(const struct stint_limiter *limiter, const struct policy *policy,
                              uint32_t traits, tick_t end) {
    const uint64_t length = tick_ns(policy_length(policy));

    if ((traits & TRAIT_CALENDAR) != 0)
        return tick_ns(limiter_calendar_window(limiter, policy, end - 1).begin);
    const uint64_t most = (traits & RULE_BUCKET) != 0 ? length + policy->window : length;
    return tick_ns(end) > most ? tick_ns(end) - most : 1;
}

/* What a slot holds by the limiter's clock, as a look at its key would tell. */
static void slot_count(const struct telling *telling, const struct policy *policy, uint32_t traits,
                       uint64_t hash, uint64_t state, struct stint_entry *entry) {
    const tick_t now = tick_of(telling->now), end = end_of(state_id(state), now);
    uint64_t count = state_used(state);

    entry->end = tick_ns(end);
    if (end > now && (state & STATE_REFUSED) != 0) {
        entry->flags |= STINT_ENTRY_REFUSED;
        entry->since = refused_since(telling->limiter, policy, traits, end);
    }
    if ((traits & RULE_BUCKET) != 0) {
        entry->end = bucket_full(end, bucket_ns(state));
        entry->used = stint_bucket_used(telling->limiter, policy, state, telling->now);
        if ((traits & STINT_OVERRIDES) != 0) { /* by the rate of the key's own */
            const struct stint_request look = {
                .key = {hash}, .policy = entry->policy, .flags = STINT_PEEK};
            struct stint_verdict verdict;
            (void)stint_decide(telling->limiter, &look, telling->now, &verdict);
            entry->used = verdict.used;
        }
        return;
    }
    if (end <= now) { /* what is carried into the window of now */
        const struct rule rule = policy_rule(policy);
        tick_t later = stint_window_at(telling->limiter, policy, traits, hash, now);
        count = count_carry(&rule, count, (uint64_t)((later - end) / policy_length(policy)));
        entry->end = tick_ns(later);
    }
    entry->used = (traits & TWO_COUNTS) != 0
                      ? stint_total_of_two(policy, count, entry->end - telling->now)
                      : count;
}

static void stripe_keep(struct telling *telling, const struct stint_entry *entry) {
    if (telling->count == telling->room) {
        size_t room = telling->room == 0 ? 1024 : 2 * telling->room;
        struct stripe *stripes = realloc(telling->stripes, room * sizeof(*stripes));
        if (stripes == NULL) {
            telling->error =
                stint_failed(ENOMEM, "no memory for the slots of striped keys: 56 bytes each");
            telling->stopped = true;
            return;
        }
        telling->stripes = stripes;
        telling->room = room;
    }
    telling->stripes[telling->count++] = (struct stripe){
        .index = stripe_index(entry->key.hash),
        .hash = entry->key.hash,
        .used = entry->used,
        .end = entry->end,
        .since = entry->since,
        .policy = entry->policy,
        .flags = entry->flags,
    };
}

static void override_each(struct telling *telling, uint64_t tag, uint64_t state,
                          struct stint_entry *entry) {
    if (!stint_override_told(telling->limiter, tag, state, telling->now, entry) ||
        (entry->flags == STINT_ENTRY_STRIKES && !telling->one))
        return;
    if (entry->flags != STINT_ENTRY_OVERRIDE) { /* the library has written it */
        const struct ban ban = limiter_ban(telling->limiter, entry->policy);
        const bool within = entry->flags == STINT_ENTRY_STRIKES && ban.within != 0;
        const uint64_t lasts = within ? ban.within : tick_ns((tick_t)(ban.word >> BAN_TICKS));
        entry->since = entry->end > lasts ? entry->end - lasts : 1;
    }
    entry_tell(telling, entry);
}

static void slot_each(struct telling *telling, uint64_t line, struct slot *slot) {
    const struct stint_limiter *limiter = telling->limiter;
    const struct table *table = &limiter->table;
    uint64_t tag, state, hash = telling->key;

    if (!slot_read(slot, &tag, &state) ||
        !stint_slot_live(limiter, tag, state, tick_of(telling->now)))
        return;
    if (telling->one ? tag != table_tag(table, hash, tag_policy(table, tag))
                     : !table_hash(table, line, tag, &hash))
        return;
    struct stint_entry entry = {.key = {hash}, .policy = tag_policy(table, tag)};
    const struct policy *policy = limiter_policy(limiter, entry.policy);
    const uint32_t traits = policy == NULL ? 0 : (uint32_t)policy_word(policy);
    if (UNLIKELY((traits & TRAIT_COMPANION) != 0))
        override_each(telling, tag, state, &entry);
    if ((traits & (TRAIT_EXISTS | TRAIT_COMPANION)) != TRAIT_EXISTS) /* or gone, not swept yet */
        return;
    struct bucket bucket;
    if ((traits & RULE_BUCKET) != 0 && stint_bucket_rule(limiter, entry.policy, &bucket) &&
        UNLIKELY(rate_differs(state, bucket.rate))) {
        state = stint_rate_means(limiter, entry.policy, hash, state, &bucket);
        if (!stint_slot_live(limiter, tag, state, tick_of(telling->now)))
            return;
    }
    const bool striped = traits_striped(traits);
    if (striped && telling->one) /* stripes_of */
        return;
    slot_count(telling, policy, traits, hash, state, &entry);
    if (striped)
        stripe_keep(telling, &entry);
    else
        entry_tell(telling, &entry);
}

static int stripe_compare(const void *a, const void *b) {
    const struct stripe *one = a, *other = b;
    if (one->policy != other->policy)
        return one->policy < other->policy ? -1 : 1;
    return one->index < other->index ? -1 : one->index > other->index;
}

/* Indexes of the stripes of one key are in one of these, or in two that are next to each other. */
static uint64_t neighbourhood(const struct stripe *stripe, uint64_t index) {
    return mix(index / STRIPES_OF_KEY_MAX, stripe->policy);
}

/* Compares the stripe 1 of a key with another stripe: 0 if that is of the same key. */
static int stripe_seek(const void *a, const void *b) {
    const struct stripe *first = a, *other = b;
    return other->policy == first->policy && other->index - first->index < STRIPES_OF_KEY_MAX - 1
               ? 0
               : stripe_compare(first, other);
}

/* Whether another stripe was kept of the key that has this one as stripe 0. They are sorted. */
static bool is_stripe_0(const struct telling *telling, const struct bloom *indexes,
                        const struct stripe *stripe) {
    const uint64_t base = stripe_base(stripe->hash);
    const struct stripe asked = {.policy = stripe->policy, .index = base + 1};

    return (bloom_has(indexes, neighbourhood(stripe, base)) ||
            bloom_has(indexes, neighbourhood(stripe, base + STRIPES_OF_KEY_MAX))) &&
           bsearch(&asked, telling->stripes, telling->count, sizeof(asked), stripe_seek) != NULL;
}

/* Finds the key of the stripes `first` to `last`. Returns false if several keys could be it. */
static bool stripes_key(const struct telling *telling, const struct stripe *first,
                        const struct stripe *last, uint64_t *key) {
    const uint64_t traits = policy_word(&telling->limiter->policies[first->policy]);
    const uint32_t stripes = traits_stripes((uint32_t)traits);
    struct label_read label;

    *key = first->hash;
    /* Refusals are marked in stripe 0. */
    if (first->zero || (first == last && ((first->flags & STINT_ENTRY_REFUSED) != 0 ||
                                          label_of(telling, *key, &label))))
        return true;
    /* The first is stripe 1, or as much later as there is room behind the last. */
    const uint64_t span = last->index - first->index;
    for (uint32_t number = 1; number + span < stripes; number++) {
        uint64_t asked = stripe_base_key(first->index - number);
        if (label_of(telling, asked, &label) || (span != 0 && span + 2 == stripes)) {
            *key = asked;
            return true;
        }
    }
    return false;
}

static void stripe_add(struct stint_entry *entry, uint64_t end, uint64_t used, uint32_t flags,
                       uint64_t since) {
    if (end > entry->end) { /* else it is in a window that was just over */
        entry->end = end;
        entry->used = entry->since = 0;
        entry->flags = 0;
    }
    if (end == entry->end) {
        entry->used += used;
        entry->flags |= flags;
        entry->since |= since; /* of one window: the same, or 0 */
    }
}

static void stripes_tell(struct telling *telling) {
    struct stripe *stripes = telling->stripes;
    const size_t count = telling->count;
    struct bloom indexes;

    if (count == 0)
        return;
    bloom_make(&indexes, count);
    for (size_t i = 0; i < count; i++)
        bloom_add(&indexes, neighbourhood(&stripes[i], stripes[i].index));
    qsort(stripes, count, sizeof(*stripes), stripe_compare);
    for (size_t i = 0; i < count; i++)
        stripes[i].zero = is_stripe_0(telling, &indexes, &stripes[i]);
    free(indexes.bits);
    for (size_t i = 0; i < count; i++)
        if (stripes[i].zero)
            stripes[i].index = stripe_base(stripes[i].hash);
    qsort(stripes, count, sizeof(*stripes), stripe_compare);
    for (size_t i = 0, next; i < count && !telling->stopped; i = next) {
        struct stint_entry entry = {.policy = stripes[i].policy};
        for (next = i; next < count && stripes[next].policy == entry.policy &&
                       stripes[next].index - stripes[i].index < STRIPES_OF_KEY_MAX;
             next++)
            stripe_add(&entry, stripes[next].end, stripes[next].used, stripes[next].flags,
                       stripes[next].since);
        if (!stripes_key(telling, &stripes[i], &stripes[next - 1], &entry.key.hash))
            entry.flags |= STINT_ENTRY_KEY_STRIPE;
        entry_tell(telling, &entry);
    }
}

int stint_each(struct stint_limiter *limiter,
               bool (*callback)(void *context, const struct stint_entry *entry), void *context) {
    if (limiter == NULL || callback == NULL)
        return stint_failed(EINVAL, "limiter or callback is NULL");
    const struct table *table = &limiter->table;
    const uint64_t labels = limiter->label_sets * LABELS_IN_SET;
    struct telling telling = {
        .limiter = limiter, .now = limiter_now(limiter), .callback = callback, .context = context};

    bloom_make(&telling.labelled, labels);
    for (uint64_t i = 0; i < labels; i++) {
        uint64_t seen[2];
        label_load(&limiter->labels[i], seen);
        if (seen[1] != 0)
            bloom_add(&telling.labelled, seen[0]);
    }
    for (uint64_t i = 0; i < table->line_count * LINE_SLOTS && !telling.stopped; i++)
        slot_each(&telling, i / LINE_SLOTS, &table->lines[i / LINE_SLOTS].slots[i % LINE_SLOTS]);
    if (!telling.stopped)
        stripes_tell(&telling);
    free(telling.labelled.bits);
    free(telling.stripes);
    return telling.error != 0 ? telling.error : stint_limiter_whole(limiter);
}

static void stripes_of(struct telling *telling, uint32_t id) {
    const struct table *table = &telling->limiter->table;
    const struct policy *policy = &telling->limiter->policies[id];
    const uint32_t traits = (uint32_t)policy_word(policy);
    struct stint_entry entry = {.key = {telling->key}, .policy = id};

    for (uint32_t i = 0; traits_striped(traits) && i < traits_stripes(traits); i++) {
        const uint64_t hash = stripe_key(telling->key, i), asked = table_tag(table, hash, id);
        const struct slot *slot = slot_of(table, hash, asked);
        struct stint_entry stripe = {0};
        uint64_t tag, state;
        if (slot == NULL || !slot_read(slot, &tag, &state) || tag != asked ||
            !stint_slot_live(telling->limiter, tag, state, tick_of(telling->now)))
            continue;
        slot_count(telling, policy, traits, hash, state, &stripe);
        stripe_add(&entry, stripe.end, stripe.used, stripe.flags, stripe.since);
    }
    if (entry.end != 0)
        entry_tell(telling, &entry);
}

int stint_each_of(struct stint_limiter *limiter, stint_key key,
                  bool (*callback)(void *context, const struct stint_entry *entry), void *context) {
    if (limiter == NULL || callback == NULL)
        return stint_failed(EINVAL, "limiter or callback is NULL");
    const struct table *table = &limiter->table;
    struct telling telling = {.limiter = limiter,
                              .now = limiter_now(limiter),
                              .one = true,
                              .key = key.hash,
                              .callback = callback,
                              .context = context};
    const uint32_t slots = sequence_reach(table, key.hash) * LINE_SLOTS;

    for (uint32_t i = 0; i < slots && !telling.stopped; i++)
        slot_each(&telling, 0, sequence_slot(table, key.hash, i));
    for (uint32_t id = 0; id < limiter_policy_count(limiter) && !telling.stopped; id++)
        stripes_of(&telling, id);
    struct stint_entry labelled = {.key = key, .policy = POLICY_NONE, .flags = STINT_ENTRY_LABEL};
    struct label_read label;
    if (!telling.told && label_of(&telling, key.hash, &label))
        (void)entry_tell(&telling, &labelled);
    return stint_limiter_whole(limiter);
}
