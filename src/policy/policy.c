/* SPDX-License-Identifier: MIT
 * Policies: added, changed, replaced, removed, read. Set-up takes a lock, decisions none. */
#include <string.h>
#include <sys/param.h>

#include "policy/check.h"
#include "policy/policy.h"

/* Writes a word for readers, who see what was written before it. A process may die before each. */
static void word_write(uint64_t *word, uint64_t value) {
    INSTANT(INSTANT_SET_UP);
    atomic_store_release(word, value); /* M12, M14 */
}

static void half_write(uint32_t *half, uint32_t value) {
    INSTANT(INSTANT_SET_UP);
    atomic_store_release_32(half, value); /* M12, M14 */
}

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

static tick_t longest_of(const struct stint_policy *policy) {
    return policy->calendar == STINT_CALENDAR_YEAR    ? CALENDAR_YEAR_MAX
           : policy->calendar == STINT_CALENDAR_MONTH ? CALENDAR_MONTH_MAX
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

/* Ticks until a bucket and its reserve are full, or one token by an override of 1 is back. */
static tick_t bucket_reach(uint64_t window, const struct rule *rule) {
    const uint64_t tokens = (uint64_t)rule->capacity + rule->max_reserved;
    const uint64_t full = tokens * bucket_unit(window, rule->limit);
    return tick_of(full > window ? full : window) + 2;
}

/* Raises what only grows, for all versions of a policy's rule. */
static void policy_raise(struct stint_limiter *limiter, uint32_t id, const struct rule *rule,
                         uint64_t window) {
    struct policy *policy = &limiter->policies[id];

    /* M12: all of these before the rule is stored. */
    atomic_raise(&limiter->header->smooth, (rule->flags & (TWO_COUNTS | RULE_BUCKET)) != 0);
    if ((rule->flags & RULE_BUCKET) != 0) {
        atomic_raise(&policy->window, window);                                           /* M12 */
        atomic_raise((uint64_t *)&policy->length, (uint64_t)bucket_reach(window, rule)); /* M12 */
    }
}

/* Opens or closes the hot way: to rules by which a key has one slot with one count, all windows are
 * the policy's and of one length, nothing is carried over, and the verdict says no more. */
static void policy_heat(struct policy *policy, uint64_t traits) {
    const uint64_t cold = TRAITS_OWN_WINDOW | TWO_COUNTS | UINT64_C(7) << TRAIT_STRIPES |
                          TRAIT_CARRIES | TRAIT_NEAR | TRAIT_CALENDAR;
    const bool hot = (traits & (cold | TRAIT_EXISTS)) == TRAIT_EXISTS;

    /* A capacity without a window: only for keys that have no override (fast.h). */
    word_write(&policy->hot_capacity, hot ? traits >> 32 : 0);
    word_write(&policy->hot_window, hot && (traits & STINT_OVERRIDES) == 0 ? policy->window : 0);
}

/* Before the version: whoever reads that reads this (M12). */
static void identity_write(struct stint_limiter *limiter, uint32_t id) {
    word_write(&limiter->policies[id].identity,
               (uint64_t)limiter->records[id].generation << 32 | id);
}

/* What a version of a policy says. */
struct ruling {
    struct rule rule;
    uint64_t window; /* of a bucket, ns */
    struct ban ban;
};

static struct ruling ruling_read(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    struct ruling ruling;
    uint64_t version;

    do {                                                 /* all are of one version */
        version = atomic_load_acquire(&policy->version); /* M15 */
        ruling.rule = policy_rule(policy);
        ruling.ban = limiter_ban(limiter, id);
        ruling.window = limiter_bucket_window(limiter, id, version);
    } while (atomic_load_relaxed(&policy->version) != version); /* M13 */
    return ruling;
}

/* Whether a bucket that decides is to be counted anew: its rate changes, or it holds less. Notes
 * the rate before, and when: 0 while it is written. Verdicts of before are known by the generation
 * (rate.c, stint_rate_verdict), as the identity follows the version. */
static bool rate_note(struct stint_limiter *limiter, uint32_t id, const struct ruling *was,
                      const struct ruling *next) {
    struct policy_record *record = &limiter->records[id];

    if ((policy_word(&limiter->policies[id]) & TRAIT_EXISTS) == 0 ||
        (was->rule.flags & next->rule.flags & RULE_BUCKET) == 0 ||
        (was->window == next->window && was->rule.limit == next->rule.limit &&
         was->rule.capacity <= next->rule.capacity &&
         was->rule.max_reserved <= next->rule.max_reserved))
        return false;
    word_write(&record->rate_changed, 0);
    word_write(&record->rate_before, (uint64_t)tick_of(was->window) << 32 | was->rule.limit);
    half_write(&record->generation, record->generation + 1);
    word_write(&record->rate_changed, limiter_now(limiter));
    half_write(&record->flags, record->flags | RECORD_TWO_RATES);
    return true;
}

static void policy_end(struct stint_limiter *limiter, uint32_t id);

/* Writes a policy's next version, whose number makes it known, or changes it, at once. Until then
 * the hot way is closed: if this process dies, the policy is slower, but decides by one whole rule.
 * `old`, in whose place it decides, ends before that; POLICY_NONE: none. If this process dies in
 * between, a request wakes the policy (records.c, policy_wake), or whoever repairs. */
static void rule_write(struct stint_limiter *limiter, uint32_t id, const struct ruling *ruling,
                       uint64_t traits, uint32_t old) {
    struct policy *policy = &limiter->policies[id];
    struct policy_record *record = &limiter->records[id];
    const struct rule *rule = &ruling->rule;
    const bool bucket = (rule->flags & RULE_BUCKET) != 0;
    const uint64_t unit = bucket ? bucket_unit(ruling->window, rule->limit) : 0;
    /* Under the lock: M12 and M14 are for readers. */
    const uint64_t version = atomic_load_relaxed(&policy->version) + 1;
    uint64_t words[RULE_WORDS];

    rule_pack(rule, words);
    words[RULE_TRAITS] = traits;
    policy_raise(limiter, id, rule, ruling->window);
    policy_heat(policy, 0);
    identity_write(limiter, id);
    const struct ruling was = ruling_read(limiter, id);
    uint64_t number = record->bucket[(version - 1) % 2][0] >> RATE_NUMBER;
    number += rate_note(limiter, id, &was, ruling); /* modulo 16 */
    word_write(&record->bans[version % 2], ruling->ban.word);
    word_write(&record->ban_within[version % 2], ruling->ban.within);
    word_write(&record->bucket_window[version % 2], bucket ? ruling->window : 0);
    word_write(&record->bucket[version % 2][0], bucket ? number << RATE_NUMBER | unit : 0);
    word_write(&record->bucket[version % 2][1], bucket ? reciprocal_of(unit) : 0);
    for (uint32_t i = 0; i < RULE_WORDS; i++)
        word_write(&policy->rules[version % 2][i], words[i]);
    if (old != POLICY_NONE) {
        half_write(&limiter->records[old].alias, (id + 1) | ALIAS_WAKES);
        policy_end(limiter, old);
    }
    INSTANT(INSTANT_SET_UP);
    /* M12. It fails if a request was faster. */
    (void)atomic_cas_seq(&policy->version, version - 1, version);
    identity_write(limiter, id); /* rate_note */
    policy_heat(policy, traits);
    if (id == limiter_policy_count(limiter)) /* it was free */
        word_write(&limiter->header->policy_count, id + 1);
}

/* Ends a policy: its next rule has no traits. A request by its id is led to the policy that its
 * record names, or refused. Who read the rule before goes on by it, in slots that are nobody's. */
static void policy_end(struct stint_limiter *limiter, uint32_t id) {
    const struct ruling ruling = ruling_read(limiter, id);
    rule_write(limiter, id, &ruling, 0, POLICY_NONE);
}

void stint_policy_free(struct stint_limiter *limiter, uint32_t id) {
    struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];

    word_write(&policy->version, 0); /* then what else it was */
    INSTANT(INSTANT_SET_UP);
    memset(policy, 0, sizeof(*policy));
    INSTANT(INSTANT_SET_UP);
    limiter->records[id] = (struct policy_record){.generation = record->generation + 1};
}

void stint_policy_name_of(const struct stint_policy *policy, char name[STINT_NAME_SIZE]) {
    memset(name, 0, STINT_NAME_SIZE);
    memcpy(name, policy->name, strlen(policy->name));
    if (name[0] == '\0')
        stint_rate_format(policy, name, STINT_NAME_SIZE);
}

#define REPLACE_IT ": stint_policies_apply replaces a policy under its name, which then counts anew"

struct stint_policy stint_policy_read(const struct stint_limiter *limiter, uint32_t id) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    /* The caller trusts it, and the table may have been written over. */
    const uint32_t said = (uint32_t)atomic_load_relaxed_32(&record->calendar); /* M15 */
    const uint32_t calendar = GUARD(READ_CALENDAR, said > STINT_CALENDAR_YEAR) ? 0 : said;
    const struct ruling ruling = ruling_read(limiter, id);
    const struct rule rule = ruling.rule;
    const bool bucket = (rule.flags & RULE_BUCKET) != 0;
    struct stint_policy read = {
        .size = sizeof(read),
        .limit = rule.limit,
        .capacity = rule.capacity_given ? rule.capacity : 0,
        .max_reserved = rule.max_reserved,
        .stripes = rule.stripes == 1 ? 0 : rule.stripes,
        .window = calendar != 0 ? 0
                  : bucket      ? ruling.window
                                : tick_ns(policy_length(policy)),
        .start = policy_start(policy) * (int64_t)STINT_TICK_NS,
        .flags = rule.flags & ~RULE_BUCKET,
        .burst = bucket ? rule.capacity : 0,
        .near_limit = rule.near_limit,
        .jitter = rule.jitter,
        .calendar = calendar,
        .offset = record->offset,
        .ban_after = ruling.ban.word & STINT_BAN_AFTER_MAX,
        .ban = tick_ns((tick_t)(ruling.ban.word >> BAN_TICKS)),
        .ban_within = ruling.ban.within,
    };
    memcpy(read.name, record->name, sizeof(read.name) - 1); /* a NUL follows, whatever is there */
    return read;
}

const char *stint_policy_difference(const struct stint_limiter *limiter, uint32_t id,
                                    const struct stint_policy *policy) {
    const struct stint_policy old = stint_policy_read(limiter, id);
    struct rule rule = rule_of(policy), old_rule = rule_of(&old);

    return rule.limit != old_rule.limit                           ? "limit"
           : policy->window != old.window                         ? "window"
           : policy->calendar != old.calendar                     ? "calendar"
           : policy->offset != old.offset                         ? "offset"
           : policy->start != old.start                           ? "start"
           : policy->burst != old.burst                           ? "burst"
           : rule.capacity != old_rule.capacity                   ? "capacity"
           : rule.max_reserved != old_rule.max_reserved           ? "max_reserved"
           : rule.stripes != old_rule.stripes                     ? "stripes"
           : rule.flags != old_rule.flags                         ? "flags"
           : rule.near_limit != old_rule.near_limit               ? "near_limit"
           : rule.jitter != old_rule.jitter                       ? "jitter"
           : policy->ban != old.ban                               ? "ban"
           : MAX(policy->ban_after, 1u) != MAX(old.ban_after, 1u) ? "ban_after"
           : policy->ban_within != old.ban_within                 ? "ban_within"
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
    if (rule_carries(&rule) != rule_carries(&old_rule))
        return "policy.capacity above the limit, and max_reserved, by which tokens carry over, "
               "cannot come to a policy that has neither, nor both leave one" REPLACE_IT;
    return NULL;
}

static struct span window_at(const struct stint_limiter *limiter, const struct policy *policy,
                             tick_t tick) {
    return limiter_record(limiter, policy)->calendar != 0
               ? limiter_calendar_window(limiter, policy, tick)
               : window_span(tick, policy_start(policy), policy_length(policy));
}

/* The window of the clock's time, or one beside it if no hint has that (stint_window_compute). */
static uint64_t hint_first(const struct stint_limiter *limiter, const struct policy *policy) {
    struct span window = window_at(limiter, policy, tick_of(limiter_now(limiter)));
    if (window.begin < 0)
        window = window_at(limiter, policy, window.end);
    else if (window.end > LAST_TICK)
        window = window_at(limiter, policy, window.begin - 1);
    return hint_of(window, limiter_record(limiter, policy)->calendar != 0);
}

static void windows_write(struct stint_limiter *limiter, uint32_t id, tick_t length, int64_t start,
                          uint32_t flags) {
    struct policy *policy = &limiter->policies[id];
    const uint64_t window = tick_ns(length); /* not read back: the table may be cut off */

    policy->length = length;
    policy->start = start / (int64_t)STINT_TICK_NS;
    /* A request for the id may look at these two already (M12). */
    word_write(&policy->window, window);
    INSTANT(INSTANT_SET_UP);
    policy->reciprocal = reciprocal_of(window);
    policy->fade = count_fade(flags, window);
    word_write(&policy->current_end, hint_first(limiter, policy));
}

static bool windows_whole(const struct policy *policy, tick_t length, uint32_t flags) {
    const uint64_t window = tick_ns(length);

    return policy->length == length && policy->window == window &&
           policy->reciprocal == reciprocal_of(window) && policy->fade == count_fade(flags, window);
}

/* A policy with overrides has a companion (override.h), a hidden policy. Their records name each
 * other. It goes to the policy that replaces its own, if that has overrides. */

#define COMPANION_TICKS ((tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS))

/* After the sweep, before the version. */
static void generation_next(struct stint_limiter *limiter, uint32_t id) {
    word_write(&limiter->records[id].rate_changed, 0); /* it is no change of a rate */
    half_write(&limiter->records[id].generation, limiter->records[id].generation + 1);
}

/* Makes the companion of a policy, under a free id or one of a companion that is gone. */
static void companion_make(struct stint_limiter *limiter, uint32_t id, uint32_t of) {
    const struct ruling none = {.rule.stripes = 1};
    struct policy_record *record = &limiter->records[id];

    if (limiter_policy(limiter, id) != NULL) {
        generation_next(limiter, id);
    } else {
        INSTANT(INSTANT_SET_UP);
        *record =
            (struct policy_record){.flags = RECORD_COMPANION, .generation = record->generation};
        windows_write(limiter, id, COMPANION_TICKS, 0, 0);
    }
    half_write(&record->companion, of + 1);
    rule_write(limiter, id, &none, TRAIT_COMPANION, POLICY_NONE);
}

/* Whether a policy's companion is there, its own or about to be (else companion_mend ends it). */
static bool companion_leads(const struct stint_limiter *limiter, uint32_t id, uint32_t count) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *records = limiter->records;
    /* A reader may see all of this being written (M12; open.c, table_look). */
    const uint32_t companion = (uint32_t)atomic_load_relaxed_32(&records[id].companion) - 1;

    if (companion == POLICY_NONE)
        return (policy_word(policy) & STINT_OVERRIDES) == 0;
    if (policy_gone(policy)) /* its companion's id may be another's by now */
        return true;
    if (companion >= count || !is_companion(limiter, companion) ||
        policy_word(&limiter->policies[companion]) == 0)
        return false;
    /* M12 */
    const uint32_t of = (uint32_t)atomic_load_relaxed_32(&records[companion].companion) - 1;
    return stint_limiter_policy_now(limiter, of) == id ||
           /* M15. Without a version, its record may be being written, plainly. */
           (limiter_policy(limiter, of) != NULL &&
            ((uint32_t)atomic_load_relaxed_32(&records[of].alias) & ~ALIAS_WAKES) == id + 1);
}

static void companion_mend(struct stint_limiter *limiter, uint32_t id) {
    const uint32_t now = stint_limiter_policy_now(limiter, limiter_companion(limiter, id));

    if (policy_gone(&limiter->policies[id]))
        return;
    if (now != POLICY_NONE && limiter_companion(limiter, now) == id)
        half_write(&limiter->records[id].companion, now + 1);
    else
        policy_end(limiter, id);
}

/* Whether an id is that of a policy that is gone, and had this name; or, its companion. */
static bool was_named(const struct stint_limiter *limiter, uint32_t id, const char *name,
                      bool companion) {
    if (!policy_gone(&limiter->policies[id]) || is_companion(limiter, id) != companion)
        return false;
    const uint32_t of = companion ? limiter_companion(limiter, id) : id;
    return of < limiter->max_policies &&
           strncmp(limiter->records[of].name, name, STINT_NAME_SIZE) == 0;
}

struct policy_ids stint_policy_ids(const struct stint_limiter *limiter,
                                   const struct stint_policy *policy, uint32_t old) {
    const bool rules = (policy->flags & STINT_OVERRIDES) != 0;
    struct policy_ids ids = {.old = old, .id = old, .companion = POLICY_NONE};
    char name[STINT_NAME_SIZE];

    if (old == POLICY_NONE)
        stint_policy_name_of(policy, name);
    else
        memcpy(name, limiter->records[old].name, sizeof(name));
    if (old != POLICY_NONE && stint_policy_stays(limiter, old, policy) != NULL)
        ids.id = POLICY_NONE;
    if (old != POLICY_NONE && (rules || ids.id == old))
        ids.companion = limiter_companion(limiter, old);
    /* It cannot change, but of a bucket, and tells most policies apart at once. */
    const tick_t length = policy->burst != 0 ? 0 : longest_of(policy);
    const bool all = ids.id != POLICY_NONE && (!rules || ids.companion != POLICY_NONE);
    for (uint32_t id = 0; !all && id < limiter_policy_count(limiter); id++) {
        if (ids.id == POLICY_NONE && (length == 0 || limiter->policies[id].length == length) &&
            was_named(limiter, id, name, false) &&
            stint_policy_stays(limiter, id, policy) == NULL) {
            ids.id = id;
            ids.again = true;
        } else if (rules && ids.companion == POLICY_NONE && was_named(limiter, id, name, true)) {
            ids.companion = id;
            ids.again = true;
        }
    }
    return ids;
}

static int no_room(const struct stint_limiter *limiter, const char *what) {
    const bool file = limiter->memory.file >= 0;
    unsigned gone = 0;

    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++)
        gone += policy_gone(&limiter->policies[id]);
    if (gone == 0)
        return stint_failed_with(ENOSPC, "%s. All are in use: %s", what,
                                 file ? "stint_resize gives the table more of them"
                                      : "open a limiter with more of them");
    return stint_failed_with(
        ENOSPC, "%s. %u of %u are of removed and replaced policies. These %s", what, gone,
        (unsigned)limiter->max_policies,
        file ? "are free again when a process opens the table's file and nobody else has it open: "
               "end all that have (`stint status` tells), and then start one"
             : "stay taken, as the table has no file: open it anew");
}

int stint_policy_room(const struct stint_limiter *limiter, const struct stint_policy *policy,
                      const struct policy_ids *ids, uint32_t *room) {
    const uint32_t another = ids->id == POLICY_NONE;
    const uint32_t companion =
        ids->companion == POLICY_NONE && (policy->flags & STINT_OVERRIDES) != 0;

    if (another > *room)
        return no_room(limiter, "options.max_policies ids of policies are taken");
    if (another + companion > *room)
        return no_room(limiter, "STINT_OVERRIDES takes a second one of options.max_policies, and "
                                "there is none left");
    *room -= another + companion;
    return 0;
}

static void policy_begin(struct stint_limiter *limiter, uint32_t id,
                         const struct stint_policy *policy) {
    struct policy_record *record = &limiter->records[id];

    INSTANT(INSTANT_SET_UP);
    /* A process that died here may have written some of it. */
    *record = (struct policy_record){.generation = record->generation};
    INSTANT(INSTANT_SET_UP);
    stint_policy_name_of(policy, record->name);
    record->flags = policy->name[0] == '\0' ? RECORD_UNNAMED : 0;
    INSTANT(INSTANT_SET_UP);
    record->calendar = policy->calendar;
    record->offset = policy->offset;
    windows_write(limiter, id, longest_of(policy), policy->start, policy->flags);
}

/* An id that was a policy's may be used again. Its slots were swept while the policy was gone
 * (sweep.c), so nothing of before is left. A thread that still decides by the policy of before
 * finds no slot of its key, or one of now, and charges it by what it has read (A3). What it gives
 * back was taken before, which the generation tells (refund.c; occupant.c, stint_token_back). */
uint32_t stint_policy_make(struct stint_limiter *limiter, const struct stint_policy *policy,
                           const struct policy_ids *ids) {
    const uint32_t old = ids->old,
                   id = ids->id == POLICY_NONE ? stint_limiter_free_id(limiter) : ids->id;
    const uint32_t companion = old == POLICY_NONE ? POLICY_NONE : limiter_companion(limiter, old);
    const struct ruling ruling = {
        .rule = rule_of(policy),
        .window = policy->window,
        .ban = {policy->ban / STINT_TICK_NS << BAN_TICKS | policy->ban_after, policy->ban_within},
    };

    if (id != old) {
        if (ids->id == POLICY_NONE)
            policy_begin(limiter, id, policy);
        else
            generation_next(limiter, id);
        rule_write(limiter, id, &ruling, 0, POLICY_NONE);
    }
    /* Its companion: what it has or takes over, one that is gone, or a new one. */
    uint32_t own = ids->companion;
    if (own == POLICY_NONE && (policy->flags & STINT_OVERRIDES) != 0)
        own = stint_limiter_free_id(limiter);
    if (own != POLICY_NONE && policy_word(&limiter->policies[own]) == 0)
        companion_make(limiter, own, id);
    half_write(&limiter->records[id].companion, own + 1); /* then the rule. 0: none */
    if (old == POLICY_NONE)                               /* what took its place is gone, too */
        half_write(&limiter->records[id].alias, 0);
    rule_write(limiter, id, &ruling, traits_of(limiter, id, &ruling.rule),
               id == old ? POLICY_NONE : old);
    if (companion != POLICY_NONE)
        companion_mend(limiter, companion);
    return id;
}

void stint_policies_link(struct stint_limiter *limiter) {
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        uint32_t *own = &limiter->records[id].alias, led = 0;
        if (*own == 0 || limiter_policy(limiter, id) == NULL)
            continue;
        if (policy_gone(&limiter->policies[id])) { /* else it was not replaced, or is back */
            const uint32_t now = stint_limiter_policy_now(limiter, id); /* wakes the next one */
            led = now == POLICY_NONE ? *own : now + 1;
        }
        if (led != *own)
            half_write(own, led); /* M14: after the version of the next one */
    }
}

void stint_policy_end(struct stint_limiter *limiter, uint32_t id) {
    const uint32_t companion = limiter_companion(limiter, id);

    policy_end(limiter, id);
    if (companion != POLICY_NONE)
        policy_end(limiter, companion);
}

static bool bucket_whole(const struct stint_limiter *limiter, uint32_t id,
                         const struct stint_policy *read) {
    const struct policy *policy = &limiter->policies[id];
    const struct rule right = rule_of(read);
    const tick_t reach = policy_reach(policy);
    struct bucket bucket;

    return policy->window >= read->window && policy->window <= STINT_WINDOW_MAX &&
           policy->window % STINT_TICK_NS == 0 && reach >= bucket_reach(read->window, &right) &&
           reach <= (tick_t)(STINT_WINDOW_MAX / STINT_TICK_NS) + 2 &&
           (policy_gone(policy) ||
            (limiter_bucket_load(limiter, id, (uint32_t)policy_word(policy), true, &bucket) &&
             bucket.unit == bucket_unit(read->window, bucket.limit) &&
             bucket.reciprocal == reciprocal_of(bucket.unit)));
}

bool stint_policy_whole(const struct stint_limiter *limiter, uint32_t id, uint32_t count) {
    const struct policy *policy = &limiter->policies[id];
    const struct policy_record *record = &limiter->records[id];
    const uint32_t of = (uint32_t)atomic_load_relaxed_32(&record->companion) - 1; /* M12 */

    if (is_companion(limiter, id))
        return of < limiter->max_policies && of != id && record->name[0] == '\0' &&
               policy->start == 0 && windows_whole(policy, COMPANION_TICKS, 0) &&
               (policy_gone(policy) || policy_word(policy) == TRAIT_COMPANION);
    if (!companion_leads(limiter, id, count) || record->name[0] == '\0' ||
        memchr(record->name, '\0', sizeof(record->name)) == NULL ||
        policy->start != policy_start(policy))
        return false;
    const struct stint_policy read = stint_policy_read(limiter, id);
    const struct rule rule = policy_rule(policy), right = rule_of(&read);
    const tick_t length = longest_of(&read);
    /* A hint is the end of a window. By another, stripes would never agree on a window. */
    const uint64_t hint = atomic_load_relaxed(&policy->current_end); /* M16 */
    if (stint_policy_check(&read, NULL) != 0 ||
        !(policy_gone(policy) || policy_word(policy) == traits_of(limiter, id, &right)))
        return false;
    if (read.burst != 0)
        return bucket_whole(limiter, id, &read);
    return windows_whole(policy, length, read.flags) &&
           (record->calendar != 0 || (tick_t)(hint - (uint64_t)policy->start) % length == 0) &&
           rule.capacity == right.capacity && rule.capacity_given == right.capacity_given;
}

void stint_policy_mend(struct stint_limiter *limiter, uint32_t id) {
    if (is_companion(limiter, id)) {
        companion_mend(limiter, id);
        return;
    }
    struct policy *policy = &limiter->policies[id];
    const struct ruling ruling = ruling_read(limiter, id);

    policy_raise(limiter, id, &ruling.rule, ruling.window);
    identity_write(limiter, id);
    policy_heat(policy, policy_word(policy));
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
        stint_struct_copy(policy, &known, sizeof(known));
    return error;
}
