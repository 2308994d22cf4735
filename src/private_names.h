/* SPDX-License-Identifier: MIT
 * The shared library hides what is not public. An archive cannot, so that functions which several files
 * share have names there that no program of others will have. */
#ifndef STINT_PRIVATE_NAMES_H
#define STINT_PRIVATE_NAMES_H

#define decision_end                 stint_private_decision_end
#define slot_added_ours              stint_private_slot_added_ours
#define slot_count                   stint_private_slot_count
#define slot_decide                  stint_private_slot_decide
#define slot_decide_added            stint_private_slot_decide_added
#define slot_search                  stint_private_slot_search
#define slot_refund                  stint_private_slot_refund
#define slot_reset                   stint_private_slot_reset
#define stripes_decide               stint_private_stripes_decide
#define policy_check                 stint_private_policy_check
#define rate_format                  stint_private_rate_format
#define limiter_count_shared         stint_private_limiter_count_shared
#define limiter_counted              stint_private_limiter_counted
#define limiter_thread_numbers_begin stint_private_limiter_thread_numbers_begin
#define limiter_stripe               stint_private_limiter_stripe
#define limiter_stripes_begin        stint_private_limiter_stripes_begin
#define limiter_stripes_release      stint_private_limiter_stripes_release
#define limiter_stripes_reclaim      stint_private_limiter_stripes_reclaim
#define limiter_lock                 stint_private_limiter_lock
#define limiter_unlock               stint_private_limiter_unlock
#define memory_map                   stint_private_memory_map
#define memory_prefault              stint_private_memory_prefault
#define memory_free                  stint_private_memory_free
#define memory_file_open             stint_private_memory_file_open
#define memory_file_read             stint_private_memory_file_read
#define memory_file_reserve          stint_private_memory_file_reserve
#define memory_file_make             stint_private_memory_file_make
#define memory_file_publish          stint_private_memory_file_publish
#define memory_file_share            stint_private_memory_file_share
#define own_stripes_map              stint_private_own_stripes_map
#define own_stripes_unmap            stint_private_own_stripes_unmap
#define policies_check               stint_private_policies_check
#define policies_repair              stint_private_policies_repair
#define failed                       stint_private_failed
#define failed_with                  stint_private_failed_with
#define struct_check                 stint_private_struct_check
#define struct_write                 stint_private_struct_write

#endif
