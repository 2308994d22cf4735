/* SPDX-License-Identifier: MIT
 * Policies of all kinds that stint.h allows. (Others: api/windows.c.) */

#include "world.h"

static bool has(uint32_t features, enum feature feature) {
    return features >> feature & 1;
}

static uint64_t window_draw(struct random *random, uint32_t features) {
    static const uint64_t windows[] = {10 * MS,     20 * MS, 50 * MS,     SECOND,
                                       10 * SECOND, MINUTE,  30 * MINUTE, DAY};
    static const uint64_t longer[] = {30 * DAY, 100 * DAY, 250 * DAY, STINT_WINDOW_MAX};
    if (world->idles && !has(features, A_BURST) && random_below(random, 2) == 0)
        return longer[random_below(random, 4)];
    return windows[random_below(random, 8)];
}

static void start_draw(struct random *random, struct stint_policy *policy, uint32_t features) {
    if (has(features, A_MONTH) || has(features, A_YEAR)) {
        policy->window = 0;
        policy->calendar = has(features, A_MONTH) ? STINT_CALENDAR_MONTH : STINT_CALENDAR_YEAR;
        policy->offset = (int32_t)random_below(random, 1561) - 720;
        if (has(features, A_START))
            policy->start = (int64_t)((1 + random_below(random, 27)) * DAY +
                                      random_below(random, 1000) * STINT_TICK_NS);
    } else if (has(features, A_START)) {
        policy->start = (int64_t)((1 + random_below(random, 1000)) * STINT_TICK_NS);
    }
}

static uint32_t flags_of(uint32_t features) {
    static const struct {
        enum feature feature;
        uint32_t flag;
    } flags[] = {{A_REFUSED, STINT_COUNT_REFUSED}, {A_SMOOTH, STINT_SMOOTH},
                 {A_IN_FLIGHT, STINT_IN_FLIGHT},   {A_PER_KEY, STINT_START_PER_KEY},
                 {A_FIRST, STINT_START_FIRST},     {A_SHADOW, STINT_SHADOW},
                 {A_OVERRIDES, STINT_OVERRIDES}};
    uint32_t all = 0;
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++)
        all |= has(features, flags[i].feature) ? flags[i].flag : 0;
    return all;
}

/* The ban that goes with the policy's window. */
static void ban_draw(struct random *random, struct stint_policy *policy) {
    const uint64_t window = policy->calendar != 0 ? 31 * DAY : policy->window;
    const bool yearly = policy->calendar == STINT_CALENDAR_YEAR || /* no ban is longer than two */
                        window > STINT_WINDOW_MAX / 2;
    policy->ban_after = (uint32_t)random_below(random, yearly ? 3 : 4);
    policy->ban = window * (1 + random_below(random, 3)) + 20 * MS;
    if (policy->ban > STINT_WINDOW_MAX)
        policy->ban = STINT_WINDOW_MAX;
}

static uint32_t burst_draw(struct random *random) {
    return 1 + (uint32_t)random_below(random, 16);
}

static struct stint_policy policy_make(struct random *random, unsigned name, uint32_t features) {
    struct stint_policy policy = STINT_POLICY_INIT;
    policy.name[0] = (char)('a' + name);
    policy.window = window_draw(random, features);
    policy.limit =
        2 + (uint32_t)random_below(random, policy.window > DAY ? 2 : 7); /* to owe some */
    policy.flags = flags_of(features);
    policy.stripes = !has(features, A_STRIPES) ? 0 : random_below(random, 2) ? 2 : 4;
    policy.limit += policy.stripes;
    if (has(features, A_ABOVE))
        policy.capacity = policy.limit + 1 + (uint32_t)random_below(random, 2 * policy.limit);
    if (has(features, A_BELOW))
        policy.capacity = policy.limit - 1;
    if (has(features, A_RESERVED))
        policy.max_reserved = 1 + (uint32_t)random_below(random, 5);
    if (has(features, A_NEAR))
        policy.near_limit = 1 + (uint32_t)random_below(random, 100);
    if (has(features, A_JITTER))
        policy.jitter = 1 + (uint32_t)random_below(random, 100);
    start_draw(random, &policy, features);
    if (has(features, A_BURST))
        policy.burst = burst_draw(random);
    if (has(features, A_BAN))
        ban_draw(random, &policy);
    if (has(features, A_WITHIN))
        policy.ban_within = STINT_WINDOW_MAX - random_below(random, 2) * DAY;
    return policy;
}

/* What a policy has with these. */
static uint32_t implied(uint32_t features) {
    return (has(features, A_WITHIN) ? 1 << A_BAN : 0) |
           (has(features, A_WITHIN) || has(features, A_BAN) ? 1 << A_OVERRIDES : 0);
}

/* Whether a policy may have all of these, as the model has it. */
static bool together(uint32_t features) {
    struct random random = {1};
    const struct stint_policy policy = policy_make(&random, 0, features);
    return model_valid(&policy) && (policy_features(&policy) & features) == features;
}

static uint32_t features_draw(struct random *random) {
    uint32_t features = random_below(random, 8) == 0 ? 1 << A_BURST : 0; /* goes with few */
    for (uint64_t tries = random_below(random, 6); tries > 0; tries--) {
        const uint32_t one = UINT32_C(2) << random_below(random, FEATURES_END - 1);
        const uint32_t all = features | one | implied(one);
        features = together(all) ? all : features;
    }
    return features;
}

struct stint_policy policy_draw(struct random *random, unsigned name) {
    return policy_make(random, name, features_draw(random));
}

struct stint_policy policy_vary(struct random *random, const struct stint_policy *policy) {
    struct stint_policy varied = *policy;
    const bool above = policy->capacity > policy->limit;
    varied.limit = 1 + (uint32_t)random_below(random, 12);
    if (varied.stripes > 1 && varied.limit < varied.stripes)
        varied.limit = varied.stripes;
    varied.capacity = above ? varied.limit + 1 + (uint32_t)random_below(random, 8) : 0;
    varied.burst = is_bucket(policy) ? burst_draw(random) : 0;
    if (varied.max_reserved != 0)
        varied.max_reserved = 1 + (uint32_t)random_below(random, 6);
    if (random_below(random, 3) == 0)
        varied.flags ^= STINT_SHADOW;
    if (random_below(random, 3) == 0)
        varied.near_limit = (uint32_t)random_below(random, 101);
    if (varied.ban != 0 && random_below(random, 3) == 0)
        ban_draw(random, &varied);
    return varied;
}

uint32_t policy_features(const struct stint_policy *policy) {
    uint32_t features = 0;
    for (unsigned i = 1; i < FEATURES_END; i++)
        if ((policy->flags & flags_of(UINT32_C(1) << i)) != 0)
            features |= UINT32_C(1) << i;
    features |= policy->capacity > policy->limit ? 1 << A_ABOVE : 0;
    features |= policy->capacity != 0 && policy->capacity < policy->limit ? 1 << A_BELOW : 0;
    features |= policy->max_reserved != 0 ? 1 << A_RESERVED : 0;
    features |= policy->stripes > 1 ? 1 << A_STRIPES : 0;
    features |= policy->start != 0 ? 1 << A_START : 0;
    features |= policy->calendar == STINT_CALENDAR_MONTH ? 1 << A_MONTH : 0;
    features |= policy->calendar == STINT_CALENDAR_YEAR ? 1 << A_YEAR : 0;
    features |= policy->near_limit != 0 ? 1 << A_NEAR : 0;
    features |= policy->jitter != 0 ? 1 << A_JITTER : 0;
    features |= policy->ban != 0 ? 1 << A_BAN : 0;
    features |= policy->ban_within != 0 ? 1 << A_WITHIN : 0;
    features |= is_bucket(policy) ? 1 << A_BURST : 0;
    return features == 0 ? 1 << A_PLAIN : features;
}

static void raise_to(uint64_t *most, uint64_t value) {
    *most = *most < value ? value : *most;
}

void named_limit(struct named *named, uint64_t limit) {
    const uint64_t token = (named->policy.window + limit - 1) / limit;
    raise_to(&named->largest, limit + 5); /* with what may be reserved */
    if (!is_bucket(&named->policy))
        return;
    raise_to(&named->token_most, token);
    named->token_least = named->token_least > token ? token : named->token_least;
}

/* Who decides by the name now may do so by what it becomes: it may be no shadow any more,
 * and grant less. */
static void asked_meets(struct named *named, const struct asked *asked, bool sober) {
    if (&world->names[asked->name] != named)
        return;
    if (sober)
        ledger_asked(asked);
    if ((asked->request.flags & STINT_PEEK) == 0 && asked->request.limit != 0)
        named_limit(named, asked->request.limit);
}

void named_changes(struct named *named, const struct stint_policy *policy) {
    const uint32_t features = policy_features(policy);
    raise_to(&named->largest, (uint64_t)capacity_of(policy) + policy->max_reserved);
    raise_to(&named->longest, longest_window(policy));
    named->mixed |= named->features != 0 && has(named->features, A_BURST) != is_bucket(policy);
    if (is_bucket(policy)) {
        const uint64_t token = token_time(policy);
        raise_to(&named->fills, count_most(policy) * token);
        raise_to(&named->longest, named->fills);
        raise_to(&named->token_most, token);
        if (named->token_least == 0 || named->token_least > token)
            named->token_least = token;
    }
    named->overridable = has(features, A_OVERRIDES) && (named->features == 0 || named->overridable);
    named->features |= features;
    named->sober |= !has(features, A_SHADOW);
    foreach (actor, actor)
        foreach (asked, asked, actor)
            asked_meets(named, asked, !has(features, A_SHADOW));
}

void named_new(struct named *named, const struct stint_policy *policy) {
    named->generations++;
    named_changes(named, policy);
}

void named_moves(struct named *named) {
    named->moved = true;
    foreach (actor, actor) /* who adds it may find that it is gone */
        if (actor->calling && actor->function == F_ADD &&
            &world->names[actor->adding.name[0] - 'a'] == named)
            named_new(named, &actor->adding);
}
