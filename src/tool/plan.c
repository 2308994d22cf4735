/* SPDX-License-Identifier: MIT */
#include "plan.h"

#include <stdlib.h>

#include "common.h"

/* Another process' clock may be behind by so much, and a ban ahead by it. */
#define ALLOWANCE_NS UINT64_C(60000000000)

static struct planned *planned_at(const struct plan *plan, const char *name) {
    uint32_t id;

    if (stint_policy_find(plan->limiter, name, &id) != 0)
        return NULL;
    return policies_at(&plan->policies, id) == NULL ? NULL : &plan->of[id];
}

const struct planned *plan_of(const struct plan *plan, const char *name) {
    return planned_at(plan, name);
}

static void read_change(void *context, const struct stint_change *change) {
    struct planned *of = planned_at(context, change->name);
    struct stint_policy policy = STINT_POLICY_INIT;

    if (of == NULL)
        return;
    of->named = true;
    of->anew = change->kind == STINT_POLICY_REPLACED || change->kind == STINT_POLICY_REMOVED;
    if (change->text == NULL || stint_policy_parse(change->text, &policy, NULL) != 0)
        return;
    of->limits = (policy.flags & STINT_OVERRIDES) != 0;
    of->ban = policy.ban;
}

/* Whether a limit of a key's own, which is in force, is over by what is planned. */
static bool limit_ends(const struct plan *plan, const struct planned *of,
                       const struct stint_entry *entry) {
    if ((entry->flags & STINT_ENTRY_BAN) == 0 || !of->limits)
        return !of->limits;
    return entry->end > plan->now + of->ban + ALLOWANCE_NS;
}

static bool count_entry(void *context, const struct stint_entry *entry) {
    struct plan *plan = context;
    const bool limit = (entry->flags & STINT_ENTRY_OVERRIDE) != 0;

    if (policies_at(&plan->policies, entry->policy) == NULL)
        return true;
    struct planned *of = &plan->of[entry->policy];
    if (!of->named || !(limit ? limit_ends(plan, of, entry) : of->anew))
        return true;
    ++*(!limit ? &of->counts : (entry->flags & STINT_ENTRY_BAN) == 0 ? &of->overrides : &of->bans);
    return true;
}

int plan_make(struct plan *plan, struct stint_limiter *limiter, const char *text, uint32_t flags) {
    plan->limiter = limiter;
    policies_read(&plan->policies, limiter);
    plan->of = must_have(calloc(plan->policies.count + 1, sizeof(*plan->of)));
    plan->now = stint_now(limiter);
    int error = stint_policies_apply(limiter, text, flags | STINT_DRY_RUN, NULL, read_change, plan);
    return error != 0 ? error : attach_each(limiter, true, count_entry, plan);
}

void plan_free(struct plan *plan) {
    policies_free(&plan->policies);
    free(plan->of);
}
