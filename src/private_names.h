/* SPDX-License-Identifier: MIT
 * The shared library hides what is not public. An archive cannot, so that functions which several files
 * share have names there that no program of others will have. */
#ifndef STINT_PRIVATE_NAMES_H
#define STINT_PRIVATE_NAMES_H

#define decision_end                 stint_private_decision_end
#define slot_added_ours              stint_private_slot_added_ours
#define slot_claim_unused            stint_private_slot_claim_unused
#define slot_count                   stint_private_slot_count
#define slot_decide                  stint_private_slot_decide
#define slot_decide_added            stint_private_slot_decide_added
#define slot_refund                  stint_private_slot_refund
#define slot_reset                   stint_private_slot_reset
#define stripes_decide               stint_private_stripes_decide
#define policy_check                 stint_private_policy_check
#define rate_format                  stint_private_rate_format
#define limiter_count_shared         stint_private_limiter_count_shared
#define limiter_counted              stint_private_limiter_counted
#define limiter_thread_numbers_begin stint_private_limiter_thread_numbers_begin
#define limiter_thread_number_new    stint_private_limiter_thread_number_new
#define failed                       stint_private_failed
#define struct_check                 stint_private_struct_check
#define struct_write                 stint_private_struct_write

#endif
