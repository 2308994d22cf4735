/* SPDX-License-Identifier: MIT
 * What a change of policies ends: counts, overrides and bans that are in force now. */
#ifndef STINT_TOOL_PLAN_H
#define STINT_TOOL_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include <stint.h>

#include "attach.h"

/* Of one policy, by its present id. */
struct planned {
    bool named;  /* it is among the changes: the text names it, or it is to be removed */
    bool anew;   /* it is to be replaced or removed */
    bool limits; /* keys are to have their overrides */
    uint64_t ban;
    uint64_t counts, overrides, bans; /* that end */
};

struct plan {
    const struct stint_limiter *limiter;
    struct policies policies; /* as they are now */
    struct planned *of;
    uint64_t now;
};

/* Plans what a text would end; it changes nothing. Returns what stint_policies_apply does. */
int plan_make(struct plan *plan, struct stint_limiter *limiter, const char *text, uint32_t flags);
void plan_free(struct plan *plan);

/* What there is of a policy that a change is of; NULL: it is new. */
const struct planned *plan_of(const struct plan *plan, const char *name);

#endif
