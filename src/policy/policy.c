/* SPDX-License-Identifier: MIT
 * Policies: added, changed, replaced, removed, found, read. Set-up takes the table's lock, which no
 * decision takes. A decision reads a rule, or its traits, by the policy's version (limiter.h). The
 * hot way reads what policy_heat makes of them. */
#include <errno.h>
#include <string.h>

#include "base/counters.h"
#include "base/message.h"
#include "policy/check.h"
#include "policy/names.h"
#include "policy/notation.h"
#include "policy/policy.h"

static struct rule rule_of(const struct stint_policy *policy) {
    return (struct rule){
        .limit = policy->limit,
        .capacity = policy_capacity(policy),
        .max_reserved = policy->max_reserved,
        .stripes = policy->stripes == 0 ? 1 : policy->stripes,
        .flags = policy->flags | (policy->burst != 0 ? RULE_BUCKET : 0),
        .near_limit = policy->near_limit,
        .jitter = policy->jitter,
        .capacity_given = policy->capacity != 0,
    };
}

/* The longest window, in ticks. */
static tick_t longest_of(const struct stint_policy *policy) {
    return policy->calendar != 0 ? calendar_longest(policy->calendar)
                                 : (tick_t)(policy->window / STINT_TICK_NS);
}

static uint64_t traits_of(const struct stint_limiter *limiter, uint32_t id,
                          const struct rule *rule) {
    const uint64_t traits =
        rule->flags | TRAIT_EXISTS | (uint64_t)__builtin_ctz(rule->stripes) << TRAIT_STRIPES |
        (rule_carries(rule) ? TRAIT_CARRIES : 0) | (rule->near_limit != 0 ? TRAIT_NEAR : 0) |
        (rule->jitter != 0 ? TRAIT_JITTER : 0) |
        (limiter->records[id].calendar != 0 ? TRAIT_CALENDAR : 0);
    return (uint64_t)rule->capacity << 32 | traits | (traits == TRAIT_EXISTS ? TRAIT_PLAIN : 0);
}

/* How far ahead of now a bucket's slot may be, ticks: until the bucket and its reserve are full, or
 * one token by an override of 1. */
static tick_t bucket_reach(uint64_t window, const struct rule *rule) {
    const uint64_t tokens = (uint64_t)rule->capacity + rule->max_reserved;
    const uint64_t full = tokens * bucket_unit(window, rule->limit);
    return tick_of(full > window ? full : window) + 2;
}

/* Raises what bulk checks of a full table go by. Notes a rule that counts refusals. */
static void policy_raise(struct stint_limiter *limiter, uint32_t id, const struct rule *rule,
                         uint64_t window) {
    struct policy *policy = &limiter->policies[id];

    /* M12: all of these before the rule is stored. */
    atomic_raise(&limiter->records[id].refusals_count, (rule->flags & STINT_COUNT_REFUSED) != 0);
    atomic_raise(&limiter->header->smooth, (rule->flags & (TWO_COUNTS | RULE_BUCKET)) != 0);
    if ((rule->flags & RULE_BUCKET) != 0) {
        atomic_raise(&policy->window, window);                                           /* M12 */
        atomic_raise((uint64_t *)&policy->length, (uint64_t)bucket_reach(window, rule)); /* M12 */
    }
    /* M12 */
    atomic_raise(&limiter->header->bulk_window,
                 (uint64_t)(policy->length < BULK_WINDOW_MAX ? policy->length : BULK_WINDOW_MAX));
}

/* Opens or closes the hot way to a policy whose rule has these traits. It is for rules by which a
 * key has one slot with one count, all windows are the policy's and of one length, nothing is
 * carried over, and the verdict says no more. */
static void policy_heat(struct policy *policy, uint64_t traits) {
    const uint64_t cold = TRAITS_OWN_WINDOW | TWO_COUNTS | UINT64_C(7) << TRAIT_STRIPES |
                          TRAIT_CARRIES | TRAIT_NEAR | TRAIT_CALENDAR;
    const bool hot = (traits & (cold | TRAIT_EXISTS)) == TRAIT_EXISTS;
    /* A capacity without a window: only for keys that have no override (take.c, window_ruled). */
    const bool all = (traits & STINT_OVERRIDES) == 0;

    INSTANT(INSTANT_SET_UP);
    atomic_store_relaxed(&policy->hot_capacity, hot ? traits >> 32 : 0); /* M12 */
    INSTANT(INSTANT_SET_UP);
    atomic_store_relaxed(&policy->hot_window, hot && all ? policy->window : 0); /* M12 */
}

/* The window of a bucket, under the lock. */
static uint64_t bucket_window(const struct stint_limiter *limiter, uint32_t id) {
    return limiter_bucket_window(limiter, id,
                                 atomic_load_relaxed(&limiter->policies[id].version)); /* M12 */
}

/* Writes a rule, its traits, the window of a bucket and its ban. The store of the version makes a
 * new policy known, or changes one that exists, at once. Until then the hot way is closed. If this
 * process dies here, the policy is slower, but decides by one whole rule. */
static void rule_write(struct stint_limiter *limiter, uint32_t id, const struct rule *rule,
                       uint64_t traits, uint64_t window, struct ban ban) {
    struct policy *policy = &limiter->policies[id];
    /* Under the lock: M12 and M14 are for readers. */
    const uint64_t version = atomic_load_relaxed(&policy->version) + 1;
    uint64_t words[RULE_WORDS], bucket[2] = {0};

    if ((rule->flags & RULE_BUCKET) == 0)
        window = 0;
    else {
        bucket[0] = bucket_unit(window, rule->limit);
        bucket[1] = reciprocal_of(bucket[0]);
    }
    rule_pack(rule, words);
    words[RULE_TRAITS] = traits;
    policy_raise(limiter, id, rule, window);
    policy_heat(policy, 0);
    INSTANT(INSTANT_SET_UP);
    struct policy_record *record = &limiter->records[id];
    atomic_store_release(&record->bans[version % 2], ban.word);         /* M14 */
    atomic_store_release(&record->ban_within[version % 2], ban.within); /* M14 */
    atomic_store_release(&record->bucket_window[version % 2], window);  /* M14 */
    for (uint32_t i = 0; i < 2; i++)
        atomic_store_release(&record->bucket[version % 2][i], bucket[i]); /* M14 */
    for (uint32_t i = 0; i < RULE_WORDS; i++) {
        INSTANT(INSTANT_SET_UP);
        atomic_store_release(&policy->rules[version % 2][i], words[i]); /* M14 */
    }
    INSTANT(INSTANT_SET_UP);
    atomic_store_release(&policy->version, version); /* M12 */
    policy_heat(policy, traits);
}

/* Ends a policy: its next rule has no traits, so no decision is made by it. A request by its id is
 * led to the policy that its record names, or refused. A thread that read the rule before goes on
 * by it, in slots that are nobody's any more. */
static void policy_end(struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct rule rule = policy_rule(policy);
    /* No slot that counts is further ahead of the clock (search.c, stint_beyond_clock). */
    const uint64_t until =
        (uint64_t)tick_of(limiter_now(limiter)) + (uint64_t)policy_reach(policy) + ALLOWANCE_TICKS;

    INSTANT(INSTANT_SET_UP);
    atomic_store_relaxed(&limiter->records[id].until, until); /* M12 */
    rule_write(limiter, id, &rule, 0, bucket_window(limiter, id), limiter_ban(limiter, id));
}

/* Frees an id that no slot and no other policy names. */
static void id_free(struct stint_limiter *limiter, uint32_t id) {
    struct policy *policy = &limiter->policies[id];

    INSTANT(INSTANT_SET_UP);
    atomic_store_release(&policy->version, 0); /* M12: then what else it was */
    INSTANT(INSTANT_SET_UP);
    memset(policy, 0, sizeof(*policy));
    INSTANT(INSTANT_SET_UP);
    memset(&limiter->records[id], 0, sizeof(limiter->records[id]));
}

void stint_policy_name_of(const struct stint_policy *policy, char name[STINT_NAME_SIZE]) {
    memset(name, 0, STINT_NAME_SIZE);
    if (policy->name[0] == '\0')
        stint_rate_format(policy, name, STINT_NAME_SIZE);
    else
        memcpy(name, policy->name, strlen(policy->name));
}

#define REPLACE_IT ": stint_policies_apply replaces a policy under its name, which then counts anew"

struct stint_policy stint_policy_read(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    /* The caller trusts it, and the table may have been written over. */
    const uint32_t said = (uint32_t)atomic_load_relaxed_32(&record->calendar); /* M15 */
    const uint32_t calendar = GUARD(READ_CALENDAR, said > STINT_CALENDAR_YEAR) ? 0 : said;
    struct rule rule;
    struct ban ban;
    uint64_t version, window;

    do {                                                 /* all are of one version */
        version = atomic_load_acquire(&policy->version); /* M15 */
        rule = policy_rule(policy);
        ban = limiter_ban(limiter, id);
        window = limiter_bucket_window(limiter, id, version);
    } while (atomic_load_relaxed(&policy->version) != version); /* M13 */
    const bool bucket = (rule.flags & RULE_BUCKET) != 0;
    struct stint_policy read = {
        .size = sizeof(read),
        .limit = rule.limit,
        .capacity = rule.capacity_given ? rule.capacity : 0,
        .max_reserved = rule.max_reserved,
        .stripes = rule.stripes == 1 ? 0 : rule.stripes,
        .window = calendar != 0 ? 0
                  : bucket      ? window
                                : tick_ns(policy_length(policy)),
        .start = policy_start(policy) * (int64_t)STINT_TICK_NS,
        .flags = rule.flags & ~RULE_BUCKET,
        .burst = bucket ? rule.capacity : 0,
        .near_limit = rule.near_limit,
        .jitter = rule.jitter,
        .calendar = calendar,
        .offset = record->offset,
        .ban_after = ban.word & STINT_BAN_AFTER_MAX,
        .ban = tick_ns((tick_t)(ban.word >> BAN_TICKS)),
        .ban_within = ban.within,
    };
    memcpy(read.name, record->name, sizeof(read.name) - 1); /* a NUL follows, whatever is there */
    return read;
}

struct stint_policy stint_policy_told(const struct stint_limiter *limiter, uint32_t id) {
    uint32_t now = stint_limiter_policy_now(limiter, id);
    if (now == POLICY_NONE) /* it was there a moment ago */
        now = id;
    struct stint_policy policy = stint_policy_read(limiter, now);
    if ((limiter->records[now].flags & RECORD_UNNAMED) != 0)
        (void)stint_rate_format(&policy, policy.name, sizeof(policy.name));
    return policy;
}

static uint32_t ban_after(const struct stint_policy *policy) {
    return policy->ban_after == 0 ? 1 : policy->ban_after;
}

const char *stint_policy_difference(const struct stint_limiter *limiter, uint32_t id,
                                    const struct stint_policy *policy) {
    const struct stint_policy old = stint_policy_read(limiter, id);
    struct rule rule = rule_of(policy), old_rule = rule_of(&old);

    return rule.limit != old_rule.limit                 ? "limit"
           : policy->window != old.window               ? "window"
           : policy->calendar != old.calendar           ? "calendar"
           : policy->offset != old.offset               ? "offset"
           : policy->start != old.start                 ? "start"
           : policy->burst != old.burst                 ? "burst"
           : rule.capacity != old_rule.capacity         ? "capacity"
           : rule.max_reserved != old_rule.max_reserved ? "max_reserved"
           : rule.stripes != old_rule.stripes           ? "stripes"
           : rule.flags != old_rule.flags               ? "flags"
           : rule.near_limit != old_rule.near_limit     ? "near_limit"
           : rule.jitter != old_rule.jitter             ? "jitter"
           : policy->ban != old.ban                     ? "ban"
           : ban_after(policy) != ban_after(&old)       ? "ban_after"
           : policy->ban_within != old.ban_within       ? "ban_within"
                                                        : NULL;
}

const char *stint_policy_stays(const struct stint_limiter *limiter, uint32_t id,
                               const struct stint_policy *policy) {
    const struct stint_policy old = stint_policy_read(limiter, id);
    const struct rule rule = rule_of(policy), old_rule = rule_of(&old);

    if (policy->calendar != old.calendar || policy->offset != old.offset)
        return "policy.calendar and policy.offset cannot change" REPLACE_IT;
    /* A bucket is an instant, which means the same by any rate. */
    if (policy->window != old.window && (rule.flags & old_rule.flags & RULE_BUCKET) == 0)
        return "policy.window cannot change" REPLACE_IT;
    if (policy->start != old.start)
        return "policy.start cannot change" REPLACE_IT;
    if (rule.stripes != old_rule.stripes)
        return "policy.stripes cannot change" REPLACE_IT;
    if (((rule.flags ^ old_rule.flags) & RULE_BUCKET) != 0)
        return "a token bucket cannot become a window, nor the other way round" REPLACE_IT;
    if (((rule.flags ^ old_rule.flags) & (TRAITS_OWN_WINDOW | TWO_COUNTS)) != 0)
        return "STINT_START_PER_KEY, STINT_START_FIRST, STINT_SMOOTH and STINT_IN_FLIGHT cannot "
               "change" REPLACE_IT;
    if (limiter->records[id].refusals_count != 0 && rule_carries(&rule))
        return "policy.capacity above the limit, and max_reserved, cannot come to a policy that "
               "has ever counted refusals, which would be carried over as debts" REPLACE_IT;
    return NULL;
}

int stint_policies_begin(struct stint_limiter *limiter) {
    if (limiter->memory.read_only)
        return stint_failed(EROFS, READ_ONLY);
    int error = stint_policies_lock(limiter);
    if (error == 0)
        stint_limiter_lanes_reclaim(limiter, false);
    return error;
}

/* Writes the windows of a new policy, whose record is written. */
static void windows_write(struct stint_limiter *limiter, uint32_t id, tick_t length, int64_t start,
                          uint32_t flags) {
    struct policy *policy = &limiter->policies[id];

    policy->length = length;
    policy->start = start / (int64_t)STINT_TICK_NS;
    /* A request for the id may look at these two already (M12). */
    atomic_store_relaxed(&policy->window, tick_ns(length));
    INSTANT(INSTANT_SET_UP);
    policy->reciprocal = reciprocal_of(policy->window);
    policy->fade = count_fade(flags, policy->window);
    INSTANT(INSTANT_SET_UP);
    atomic_store_relaxed(&policy->current_end, /* M12 */
                         stint_limiter_hint_first(limiter, policy));
    limiter_raise_latest_begin(limiter, hint_begin(policy, policy->current_end));
}

/* Whether a policy has what windows_write writes for this length. */
static bool windows_whole(const struct policy *policy, tick_t length, uint32_t flags) {
    const uint64_t window = tick_ns(length);

    return policy->length == length && policy->window == window &&
           policy->reciprocal == reciprocal_of(window) && policy->fade == count_fade(flags, window);
}

/* ---- Companions ------------------------------------------------------------------------------ */

/* A policy with overrides has a companion (override.h): a hidden policy without a name. The records
 * of the two name each other. A policy that is replaced leaves its companion to the one in its
 * place, if that has overrides. */

#define COMPANION_TICKS ((tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS))

/* Makes the companion of a policy under a free id. Its traits let nothing be decided by it. */
static void companion_make(struct stint_limiter *limiter, uint32_t id, uint32_t of) {
    const struct rule none = {.stripes = 1};

    INSTANT(INSTANT_SET_UP);
    limiter->records[id] = (struct policy_record){.flags = RECORD_COMPANION, .companion = of + 1};
    windows_write(limiter, id, COMPANION_TICKS, 0, 0);
    rule_write(limiter, id, &none, TRAIT_COMPANION, 0, (struct ban){0});
}

/* Gives a policy its companion: the one that it has or takes over (`has`: its id + 1; 0: none), or
 * a new one if it needs one. */
static void companion_give(struct stint_limiter *limiter, uint32_t id,
                           const struct stint_policy *policy, uint32_t has) {
    if (has == 0 && (policy->flags & STINT_OVERRIDES) != 0) {
        const uint32_t made = stint_names_free_id(limiter, id);
        companion_make(limiter, made, id);
        has = made + 1;
        INSTANT(INSTANT_SET_UP);
        if (made == limiter_policy_count(limiter))
            atomic_store_release(&limiter->header->policy_count, has); /* M12 */
    }
    INSTANT(INSTANT_SET_UP);
    atomic_store_relaxed_32(&limiter->records[id].companion, has); /* M12: then comes the rule */
}

/* Whether the companion of a policy is there, and is this policy's or about to be. If not,
 * companion_mend would end it, and its id would become another policy's. */
static bool companion_leads(const struct stint_limiter *limiter, uint32_t id, uint32_t count) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *records = limiter->records;
    /* A reader may see all of this being written (M12; open.c, table_look). */
    const uint32_t companion = (uint32_t)atomic_load_relaxed_32(&records[id].companion) - 1;

    if (companion == POLICY_NONE)
        return (policy_traits(policy) & STINT_OVERRIDES) == 0;
    if (policy_gone(policy)) /* its companion's id may be another's by now */
        return true;
    if (companion >= count || !is_companion(limiter, companion) ||
        policy_traits(&limiter->policies[companion]) == 0)
        return false;
    /* M12 */
    const uint32_t of = (uint32_t)atomic_load_relaxed_32(&records[companion].companion) - 1;
    return stint_limiter_policy_now(limiter, of) == id ||
           (of < limiter->max_policies &&
            (uint32_t)atomic_load_relaxed_32(&records[of].alias) == id + 1); /* M12 */
}

/* Whether a companion is one that companion_make makes. */
static bool companion_whole(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    const uint32_t of = (uint32_t)atomic_load_relaxed_32(&record->companion) - 1; /* M12 */

    return of < limiter->max_policies && of != id && record->name[0] == '\0' &&
           policy->start == 0 && windows_whole(policy, COMPANION_TICKS, 0) &&
           (policy_gone(policy) || policy_traits(policy) == TRAIT_COMPANION);
}

/* Finishes or takes back what a death left half done with a companion: gives it to its policy, or
 * lets it go with that. If that never was, makes its id free. All policies were mended before. */
static void companion_mend(struct stint_limiter *limiter, uint32_t id) {
    const uint32_t of = limiter->records[id].companion - 1;
    const uint32_t now = stint_limiter_policy_now(limiter, of);

    if (policy_gone(&limiter->policies[id]))
        return;
    const uint32_t has = now == POLICY_NONE ? 0 : limiter->records[now].companion;

    if (limiter_policy(limiter, of) == NULL) /* the companion has no slot */
        id_free(limiter, id);
    else if (has == id + 1)
        atomic_store_relaxed_32(&limiter->records[id].companion, now + 1); /* M12 */
    else if (has == 0 && now == of)
        atomic_store_relaxed_32(&limiter->records[now].companion, id + 1); /* M12 */
    else
        policy_end(limiter, id);
}

/* ---- Add, change, replace, remove ------------------------------------------------------------ */

static void policy_write(struct stint_limiter *limiter, uint32_t id,
                         const struct stint_policy *policy) {
    const struct rule rule = rule_of(policy);

    rule_write(limiter, id, &rule, traits_of(limiter, id, &rule), policy->window,
               (struct ban){policy->ban / STINT_TICK_NS << BAN_TICKS | policy->ban_after,
                            policy->ban_within});
}

int stint_policy_room(const struct stint_limiter *limiter, const struct stint_policy *policy,
                      uint32_t old, bool another, uint32_t *room) {
    const bool companion = (policy->flags & STINT_OVERRIDES) != 0 &&
                           (old == POLICY_NONE || limiter_companion(limiter, old) == POLICY_NONE);

    if (another && *room == 0)
        return stint_failed_with(ENOSPC,
                                 "options.max_policies ids of policies are taken: those of "
                                 "removed and replaced ones %s",
                                 limiter->memory.file < 0
                                     ? "stay taken, as the table has no file"
                                     : "are free again when a process opens the table's file and "
                                       "nobody else has it open");
    if ((uint32_t)another + companion > *room)
        return stint_failed(ENOSPC, "STINT_OVERRIDES takes a second one of options.max_policies, "
                                    "and there is none left");
    *room -= (uint32_t)another + companion;
    return 0;
}

/* A death leaves the old policy, or the new one for both ids (policy_mend). Until the old one ends,
 * it decides, and is found by the name. Both have the same companion, so no override is missed. */
void stint_policy_create(struct stint_limiter *limiter, const struct stint_policy *policy,
                         uint32_t id, uint32_t old) {
    const uint32_t count = limiter_policy_count(limiter);
    const uint32_t companion = old == POLICY_NONE ? POLICY_NONE : limiter_companion(limiter, old);
    struct policy_record *record = &limiter->records[id];

    if (old != POLICY_NONE) {
        INSTANT(INSTANT_SET_UP);
        atomic_store_relaxed_32(&limiter->records[old].alias, id + 1); /* M12 */
    }
    INSTANT(INSTANT_SET_UP);
    *record = (struct policy_record){0}; /* a process that died here may have written some of it */
    INSTANT(INSTANT_SET_UP);
    stint_policy_name_of(policy, record->name);
    record->flags = policy->name[0] == '\0' ? RECORD_UNNAMED : 0;
    INSTANT(INSTANT_SET_UP);
    record->calendar = policy->calendar;
    record->offset = policy->offset;
    windows_write(limiter, id, longest_of(policy), policy->start, policy->flags);
    companion_give(limiter, id, policy, /* POLICY_NONE + 1 is 0 */
                   (policy->flags & STINT_OVERRIDES) != 0 ? companion + 1 : 0);
    policy_write(limiter, id, policy);
    INSTANT(INSTANT_SET_UP);
    if (id != count)
        stint_names_refilled(limiter, id);
    else /* a companion that was made for this policy has the next id */
        atomic_store_release(&limiter->header->policy_count, /* M12 */
                             record->companion == id + 2 ? id + 2 : id + 1);
    if (old != POLICY_NONE)
        policy_end(limiter, old);
    if (companion != POLICY_NONE)
        companion_mend(limiter, companion);
}

void stint_policy_rewrite(struct stint_limiter *limiter, uint32_t id,
                          const struct stint_policy *policy) {
    companion_give(limiter, id, policy, limiter_companion(limiter, id) + 1);
    policy_write(limiter, id, policy);
}

void stint_policy_end(struct stint_limiter *limiter, uint32_t id) {
    const uint32_t companion = limiter_companion(limiter, id);

    policy_end(limiter, id);
    if (companion != POLICY_NONE)
        policy_end(limiter, companion);
}

static int add(struct stint_limiter *limiter, const struct stint_policy *policy, uint32_t *id) {
    char name[STINT_NAME_SIZE];

    stint_policy_name_of(policy, name);
    int old = stint_names_find(limiter, name);
    if (old >= 0) {
        *id = (uint32_t)old;
        const char *what = stint_policy_difference(limiter, *id, policy);
        if (what == NULL)
            return 0;
        return stint_failed_with(EEXIST,
                                 "a policy named %s exists with another %s: if that is to be "
                                 "changed, stint_policy_change or stint_policies_apply does it",
                                 name, what);
    }
    uint32_t room = stint_names_free_ids(limiter);
    int error = stint_policy_room(limiter, policy, POLICY_NONE, true, &room);
    if (error != 0)
        return error;
    *id = stint_names_free_id(limiter, POLICY_NONE);
    stint_policy_create(limiter, policy, *id, POLICY_NONE);
    return 0;
}

static int change_check(struct stint_limiter *limiter, const struct stint_policy *policy,
                        uint32_t *id) {
    *id = stint_limiter_policy_now(limiter, *id);
    if (*id == POLICY_NONE)
        return stint_limiter_no_policy(limiter);
    if (policy->name[0] != '\0' && strcmp(policy->name, limiter->records[*id].name) != 0)
        return stint_failed(EINVAL, "policy.name is not the name of the policy of that id");
    const char *stays = stint_policy_stays(limiter, *id, policy);
    if (stays != NULL)
        return stint_failed(EINVAL, stays);
    uint32_t room = stint_names_free_ids(limiter);
    return stint_policy_room(limiter, policy, *id, false, &room);
}

static int change(struct stint_limiter *limiter, const struct stint_policy *policy, uint32_t *id) {
    int error = change_check(limiter, policy, id);

    if (error == 0)
        stint_policy_rewrite(limiter, *id, policy);
    return error;
}

/* Calls one of these with a caller's policy, under the lock. */
static int with_lock(struct stint_limiter *limiter, const struct stint_policy *given, uint32_t *id,
                     int (*make)(struct stint_limiter *limiter, const struct stint_policy *policy,
                                 uint32_t *id)) {
    struct stint_policy policy;

    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    int error = stint_policy_given(given, &policy);
    if (error == 0)
        error = stint_policies_begin(limiter);
    if (error != 0)
        return error;
    return stint_limiter_unlock(limiter, make(limiter, &policy, id));
}

int stint_policy_add(struct stint_limiter *limiter, const struct stint_policy *policy,
                     uint32_t *id) {
    uint32_t added;
    int error = with_lock(limiter, policy, &added, add);

    if (error == 0 && id != NULL)
        *id = added;
    return error;
}

int stint_policy_change(struct stint_limiter *limiter, uint32_t id,
                        const struct stint_policy *policy) {
    return with_lock(limiter, policy, &id, change);
}

int stint_policy_change_check(struct stint_limiter *limiter, uint32_t id,
                              const struct stint_policy *policy) {
    return with_lock(limiter, policy, &id, change_check);
}

/* Whether a bucket, whose policy was read, is one that stint_policy_add can have made. */
static bool bucket_whole(const struct stint_limiter *limiter, uint32_t id,
                         const struct stint_policy *read) {
    const struct policy *policy = &limiter->policies[id];
    const struct rule right = rule_of(read);
    const tick_t reach = policy_reach(policy);
    struct bucket bucket;

    if (stint_policy_check(read, NULL) != 0 || policy->window < read->window ||
        policy->window > STINT_WINDOW_MAX || policy->window % STINT_TICK_NS != 0 ||
        reach < bucket_reach(read->window, &right) ||
        reach > (tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS) + 2)
        return false;
    const uint64_t traits = policy_traits(policy);
    return policy_gone(policy) || (traits == traits_of(limiter, id, &right) &&
                                   limiter_bucket(limiter, id, (uint32_t)traits, &bucket) &&
                                   bucket.unit == bucket_unit(read->window, bucket.limit) &&
                                   bucket.reciprocal == reciprocal_of(bucket.unit));
}

/* Whether a policy is one that stint_policy_add can have made. */
static bool policy_whole(const struct stint_limiter *limiter, uint32_t id, uint32_t count) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];

    if (!companion_leads(limiter, id, count) || record->name[0] == '\0' ||
        memchr(record->name, '\0', sizeof(record->name)) == NULL ||
        policy->start != policy_start(policy))
        return false;
    const struct stint_policy read = stint_policy_read(limiter, id);
    const struct rule rule = policy_rule(policy), right = rule_of(&read);
    const tick_t length = longest_of(&read);
    /* A hint is the end of a window (I7). By another, stripes would never agree on a window. */
    const uint64_t hint = atomic_load_relaxed(&policy->current_end);
    if (read.burst != 0)
        return bucket_whole(limiter, id, &read);
    return windows_whole(policy, length, read.flags) &&
           (record->calendar != 0 || (tick_t)(hint - (uint64_t)policy->start) % length == 0) &&
           rule.capacity == right.capacity && rule.capacity_given == right.capacity_given &&
           (policy_gone(policy) || policy_traits(policy) == traits_of(limiter, id, &right)) &&
           stint_policy_check(&read, NULL) == 0;
}

/* Whether this version knows all that a record has. */
static bool policy_known(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy_record *record = &limiter->records[id];
    const bool bucket = (policy_rule(&limiter->policies[id]).flags & RULE_BUCKET) != 0;
    static const struct policy_record none;
    const size_t from = offsetof(struct policy_record, reserved);
    const size_t to = offsetof(struct policy_record, bucket_window);

    return (record->flags & ~(uint32_t)(RECORD_UNNAMED | RECORD_COMPANION)) == 0 &&
           record->calendar <= STINT_CALENDAR_YEAR &&
           memcmp((const char *)record + from, (const char *)&none + from, to - from) == 0 &&
           (bucket || (memcmp(record->bucket, none.bucket, sizeof(none.bucket)) == 0 &&
                       record->bucket_window[0] == 0 && record->bucket_window[1] == 0));
}

int stint_policies_check(const struct stint_limiter *limiter) {
    /* stint_policies_repair removes what is beyond the count. A reader decides by it. */
    uint32_t count =
        limiter->memory.read_only ? limiter->max_policies : limiter_policy_count(limiter);
    const struct table *table = &limiter->table;

    for (uint64_t shard = 0; shard >> table->shard_bits == 0; shard++)
        if (atomic_load_acquire(&table->shards[shard].reach) >= table->probe_lines) /* I6 */
            return stint_failed_with(EPROTO, "the table is damaged: shard %llu reaches too far",
                                     (unsigned long long)shard);
    /* Under the lock, as its writer (M12). */
    if (atomic_load_relaxed(&limiter->header->policy_count) > limiter->max_policies)
        return stint_failed(EPROTO, "the table is damaged: it has more policies than it can hold");
    for (uint32_t id = 0; id < count; id++) {
        if (limiter_policy(limiter, id) == NULL) /* free */
            continue;
        if (!policy_known(limiter, id))
            return stint_failed_with(EPROTO, "policy %u of the table has " LATER_TABLE,
                                     (unsigned)id);
        /* A reader may see it being written (M12; open.c, table_look). */
        const uint32_t alias = (uint32_t)atomic_load_relaxed_32(&limiter->records[id].alias);
        if (alias > limiter->max_policies ||
            !(is_companion(limiter, id) ? companion_whole(limiter, id)
                                        : policy_whole(limiter, id, count)))
            return stint_failed_with(
                EPROTO, "the table is damaged: policy %u is none that stint makes", (unsigned)id);
    }
    return 0;
}

/* Finishes or takes back what a death left half done with a policy. */
static void policy_mend(struct stint_limiter *limiter, uint32_t id) {
    struct policy *policy = &limiter->policies[id];
    struct policy_record *record = &limiter->records[id];
    const struct rule rule = policy_rule(policy);

    policy_raise(limiter, id, &rule, bucket_window(limiter, id));
    policy_heat(policy, policy_traits(policy));
    if (policy_gone(policy) || record->alias == 0)
        return;
    /* It was to be replaced. If the other policy decides, it is. */
    const uint32_t other = record->alias - 1;
    if (other != id && other < limiter->max_policies &&
        policy_traits(&limiter->policies[other]) != 0)
        policy_end(limiter, id);
    else
        atomic_store_relaxed_32(&record->alias, 0); /* M12 */
}

void stint_policies_repair(struct stint_limiter *limiter) {
    uint32_t count = limiter_policy_count(limiter);

    /* First what is not yet a policy, and what is left under free ids. */
    for (uint32_t id = 0; id < limiter->max_policies; id++) {
        /* Under the lock, as its writer (M12). */
        if ((atomic_load_relaxed(&limiter->policies[id].version) == 0) != (id >= count))
            id_free(limiter, id);
    }
    for (uint32_t id = 0; id < count; id++)
        if (limiter_policy(limiter, id) != NULL && !is_companion(limiter, id))
            policy_mend(limiter, id);
    for (uint32_t id = 0; id < count; id++)
        if (limiter_policy(limiter, id) != NULL && is_companion(limiter, id))
            companion_mend(limiter, id);
}

void stint_policies_free(struct stint_limiter *limiter) {
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        if (!policy_gone(&limiter->policies[id]))
            continue;
        /* First: what a table counts never falls, even if this process dies in between. */
        if (GUARDED(COUNT_GONE))
            limiter_add(limiter, limiter->max_policies, COUNT_UNTRACKED_GONE,
                        stint_limiter_counted(limiter, id, COUNT_UNTRACKED));
        stint_limiter_counters_clear(limiter, id);
        id_free(limiter, id);
    }
}

int stint_policies_lock(struct stint_limiter *limiter) {
    int error = stint_limiter_whole(limiter);

    if (error == 0)
        error = stint_names_inherited(limiter) ? EOWNERDEAD : stint_limiter_lock(limiter);
    if (error != EOWNERDEAD)
        return error;
    error = stint_policies_check(limiter);
    if (error == 0) {
        stint_policies_repair(limiter);
        stint_names_forget(limiter);
        (void)pthread_mutex_consistent(&limiter->header->lock);
    } else { /* the lock is of no more use, and says so from now on */
        error = stint_limiter_unlock(limiter, error);
    }
    return error;
}

int stint_policy_find(const struct stint_limiter *limiter, const char *name, uint32_t *id) {
    if (limiter == NULL || name == NULL)
        return stint_failed(EINVAL, "limiter or name is NULL");
    int found = stint_names_find(limiter, name);
    if (found < 0) {
        const int error = stint_limiter_whole(limiter);
        return error != 0 ? error : stint_failed(ENOENT, "there is no policy of that name");
    }
    if (id != NULL)
        *id = (uint32_t)found;
    return 0;
}

int stint_policy_get(const struct stint_limiter *limiter, uint32_t id,
                     struct stint_policy *policy) {
    if (limiter == NULL || policy == NULL)
        return stint_failed(EINVAL, "limiter or policy is NULL");
    int error = stint_struct_check(policy, POLICY_LEAST, sizeof(*policy), "policy");
    if (error != 0)
        return error;
    id = stint_limiter_policy_now(limiter, id);
    if (id == POLICY_NONE)
        return stint_limiter_no_policy(limiter);
    const struct stint_policy known = stint_policy_read(limiter, id);
    error = stint_limiter_whole(limiter);
    if (error == 0)
        stint_struct_write(policy, &known, sizeof(known));
    return error;
}
