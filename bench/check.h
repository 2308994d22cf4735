/* SPDX-License-Identifier: MIT
 * Were the answers right? Nothing here is timed. All are jobs about a bed, and a key's demand is
 * "each" for each time that the sequence asked for it, and "base" or, of a key that has used up its
 * limit, "used_up". */
#ifndef STINT_BENCH_CHECK_H
#define STINT_BENCH_CHECK_H

#include <jansson.h>

/* The keys that shall be refused take all that is left, and are refused once: the first refusal,
 * which marks the slot, is not what is measured. */
json_t *keys_use_up(json_t *asked);

/* What each key was granted, against what it asked for: "right" is the smaller of demand and limit
 * ("limit"), the demand ("all"), or the demand of those that leave something of the limit ("rest").
 * Forgets what was granted, and starts the sequence again. */
json_t *keys_granted(json_t *asked);

/* What each key has used, against the smaller of demand and limit, and what the limiter counted.
 * With "present", demand has the floor's part too. */
json_t *keys_audit(json_t *asked);

#endif
