/* SPDX-License-Identifier: MIT
 * The shared library hides what is not public. An archive cannot, so that functions which several files
 * share have names there that no program of others will have. */
#ifndef STINT_PRIVATE_NAMES_H
#define STINT_PRIVATE_NAMES_H

#define window_at                    stint_private_window_at
#define window_compute               stint_private_window_compute
#define decision_settle              stint_private_decision_settle
#define decision_void                stint_private_decision_void
#define decision_wait                stint_private_decision_wait
#define decision_read_clock          stint_private_decision_read_clock
#define beyond_clock                 stint_private_beyond_clock
#define find_tag                     stint_private_find_tag
#define find_committed               stint_private_find_committed
#define decide_found                 stint_private_decide_found
#define decide_absent                stint_private_decide_absent
#define decide_nothing               stint_private_decide_nothing
#define decide_full                  stint_private_decide_full
#define claim_short                  stint_private_claim_short
#define claim_slot                   stint_private_claim_slot
#define claim_resolve                stint_private_claim_resolve
#define slot_settle                  stint_private_slot_settle
#define slot_decide                  stint_private_slot_decide
#define slot_settle_added            stint_private_slot_settle_added
#define slot_added_ours              stint_private_slot_added_ours
#define slot_refund                  stint_private_slot_refund
#define slot_reset                   stint_private_slot_reset
#define stripes_decide               stint_private_stripes_decide
#define stripe_decide                stint_private_stripe_decide
#define key_refund                   stint_private_key_refund
#define policy_check                 stint_private_policy_check
#define rate_format                  stint_private_rate_format
#define limiter_count_shared         stint_private_limiter_count_shared
#define limiter_counted              stint_private_limiter_counted
#define limiter_thread_numbers_begin stint_private_limiter_thread_numbers_begin
#define limiter_stripe               stint_private_limiter_stripe
#define limiter_lanes_begin          stint_private_limiter_lanes_begin
#define limiter_lanes_release        stint_private_limiter_lanes_release
#define limiter_lanes_reclaim        stint_private_limiter_lanes_reclaim
#define limiter_lock                 stint_private_limiter_lock
#define limiter_hints_reset          stint_private_limiter_hints_reset
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
#define own_lanes_map                stint_private_own_lanes_map
#define own_lanes_unmap              stint_private_own_lanes_unmap
#define policies_check               stint_private_policies_check
#define policies_repair              stint_private_policies_repair
#define failed                       stint_private_failed
#define failed_with                  stint_private_failed_with
#define struct_check                 stint_private_struct_check
#define struct_write                 stint_private_struct_write

#endif
