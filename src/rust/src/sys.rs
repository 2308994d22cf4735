// SPDX-License-Identifier: MIT
//! `stint.h`, as it is. The header is the contract: what each function does, its threads, its cost.
#![allow(non_camel_case_types)]

use std::os::raw::{c_char, c_int, c_uint, c_void};

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct stint_key {
    pub hash: u64,
}

pub const STINT_KEY_GLOBAL_HASH: u64 = 0;
pub const STINT_NOW: u64 = u64::MAX - 2;
pub const STINT_NEVER: u64 = u64::MAX;
pub const STINT_ALL_MAX: usize = 64;
pub const STINT_SECRET_SIZE: usize = 192;
pub const STINT_NAME_SIZE: usize = 64;

pub const STINT_FULL_ADMIT: u32 = 0;
pub const STINT_FULL_REFUSE: u32 = 1;
pub const STINT_FULL_REPLACE: u32 = 2;

pub const STINT_PREFAULT: u32 = 1 << 17;
pub const STINT_SMALL_PAGES: u32 = 1 << 18;
pub const STINT_PRECISE_CLOCK: u32 = 1 << 19;
pub const STINT_READ_ONLY: u32 = 1 << 20;

pub const STINT_DRY_RUN: u32 = 1 << 22;
pub const STINT_PRUNE: u32 = 1 << 23;

pub const STINT_POLICY_UNCHANGED: u32 = 0;
pub const STINT_POLICY_ADDED: u32 = 1;
pub const STINT_POLICY_CHANGED: u32 = 2;
pub const STINT_POLICY_REPLACED: u32 = 3;
pub const STINT_POLICY_REMOVED: u32 = 4;

pub const STINT_FIRST_REFUSAL: u32 = 1 << 0;
pub const STINT_SHADOWED: u32 = 1 << 1;
pub const STINT_UNTRACKED: u32 = 1 << 2;
pub const STINT_REPLACED: u32 = 1 << 3;
pub const STINT_UNKNOWN_POLICY: u32 = 1 << 4;
pub const STINT_NEAR_LIMIT: u32 = 1 << 5;
pub const STINT_BAD_REQUEST: u32 = 1 << 6;
pub const STINT_BANNED: u32 = 1 << 7;
pub const STINT_OVERRIDDEN: u32 = 1 << 8;
pub const STINT_MISTAKEN_NOW: u32 = 1 << 9;

pub const STINT_PEEK: u32 = 1 << 9;
pub const STINT_PARTIAL: u32 = 1 << 10;
pub const STINT_DRAIN: u32 = 1 << 11;
pub const STINT_RESERVE: u32 = 1 << 12;
pub const STINT_CHARGE: u32 = 1 << 13;
pub const STINT_TENTATIVE: u32 = 1 << 14;

pub const STINT_METRICS_NO_EOF: u32 = 1 << 25;
pub const STINT_METRICS_NO_SCAN: u32 = 1 << 26;

pub const STINT_HEADERS_DRAFT: u32 = 1 << 28;
pub const STINT_HEADERS_LEGACY: u32 = 1 << 29;

#[repr(C)]
pub struct stint_limiter {
    _opaque: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct stint_options {
    pub size: usize,
    pub max_entries: u64,
    pub shards: u32,
    pub max_policies: u32,
    pub on_full: u32,
    pub flags: u32,
    pub path: *const c_char,
    pub clock: Option<extern "C" fn() -> u64>,
    pub secret: *const c_void,
    pub mode: u32,
    pub labels: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct stint_policy {
    pub size: usize,
    pub name: [c_char; STINT_NAME_SIZE],
    pub limit: u32,
    pub capacity: u32,
    pub max_reserved: u32,
    pub stripes: u32,
    pub window: u64,
    pub start: i64,
    pub flags: u32,
    pub near_limit: u32,
    pub jitter: u32,
    pub calendar: u32,
    pub offset: i32,
    pub ban_after: u32,
    pub ban: u64,
    pub burst: u32,
    pub reserved: u32,
    pub ban_within: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct stint_verdict {
    pub allowed: bool,
    pub flags: u32,
    pub capacity: u32,
    pub used: u32,
    pub remaining: u32,
    pub granted: u32,
    pub window: u64,
    pub reset_after: u64,
    pub retry_after: u64,
    pub policy: u32,
    pub generation: u32,
    pub unit: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct stint_request {
    pub key: stint_key,
    pub policy: u32,
    pub cost: u32,
    pub limit: u32,
    pub flags: u32,
    pub burst: u32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct stint_stats {
    pub size: usize,
    pub memory: u64,
    pub slots: u64,
    pub used: u64,
    pub live: u64,
    pub placed: u64,
    pub untracked: u64,
    pub replaced: u64,
    pub clock_steps: u64,
    pub stray_tokens: u64,
    pub unknown_policy: u64,
    pub resets: u64,
    pub shards: u32,
    pub policies: u32,
    pub bad_requests: u64,
    pub processes: u32,
    pub lost: u32,
    pub overrides: u64,
    pub barred: u64,
    pub banned: u64,
    pub max_entries: u64,
    pub labels: u64,
    pub used_labels: u64,
    pub max_policies: u32,
    pub policy_ids: u32,
    pub gone_ids: u32,
    pub reach: u32,
    pub max_reach: u32,
    pub removed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct stint_policy_stats {
    pub size: usize,
    pub allowed: u64,
    pub refused: u64,
    pub shadowed: u64,
    pub first_refusals: u64,
    pub untracked: u64,
    pub near_limit: u64,
    pub charged: u64,
    pub refunded: u64,
    pub bans: u64,
    pub strikes_lost: u64,
    pub refunds_lost: u64,
    pub mistaken_nows: u64,
}

#[repr(C)]
pub struct stint_change {
    pub size: usize,
    pub kind: u32,
    pub id: u32,
    pub name: *const c_char,
    pub text: *const c_char,
    pub was: *const c_char,
    pub decided: u64,
}

#[repr(C)]
pub struct stint_entry {
    pub key: stint_key,
    pub policy: u32,
    pub flags: u32,
    pub used: u64,
    pub end: u64,
    pub label: *const c_char,
    pub label_length: u32,
    pub refused_windows: u32,
    pub limit: u64,
    pub since: u64,
    pub refused_last: u64,
    pub reserved: [u64; 1],
}

#[repr(C)]
pub struct stint_metrics_options {
    pub size: usize,
    pub labels: *const *const c_char,
    pub flags: u32,
    pub reserved: u32,
}

extern "C" {
    pub fn stint_open(options: *const stint_options, limiter: *mut *mut stint_limiter) -> c_int;
    pub fn stint_attach(options: *const stint_options, limiter: *mut *mut stint_limiter) -> c_int;
    pub fn stint_memory_size(options: *const stint_options) -> usize;
    pub fn stint_open_in(
        options: *const stint_options,
        memory: *mut c_void,
        size: usize,
        limiter: *mut *mut stint_limiter,
    ) -> c_int;
    pub fn stint_resize(path: *const c_char, options: *const stint_options) -> c_int;
    pub fn stint_close(limiter: *mut stint_limiter);
    pub fn stint_policy_parse(
        text: *const c_char,
        policy: *mut stint_policy,
        wrong: *mut *const c_char,
    ) -> c_int;
    pub fn stint_policy_format(
        policy: *const stint_policy,
        buffer: *mut c_char,
        size: usize,
    ) -> c_int;
    pub fn stint_policy_note(
        policy: *const stint_policy,
        buffer: *mut c_char,
        size: usize,
    ) -> c_int;
    pub fn stint_policy_add(
        limiter: *mut stint_limiter,
        policy: *const stint_policy,
        id: *mut u32,
    ) -> c_int;
    pub fn stint_policy_change(
        limiter: *mut stint_limiter,
        id: u32,
        policy: *const stint_policy,
    ) -> c_int;
    pub fn stint_policy_change_check(
        limiter: *mut stint_limiter,
        id: u32,
        policy: *const stint_policy,
    ) -> c_int;
    pub fn stint_policy_remove(limiter: *mut stint_limiter, id: u32) -> c_int;
    pub fn stint_policies_apply(
        limiter: *mut stint_limiter,
        text: *const c_char,
        flags: u32,
        wrong: *mut *const c_char,
        told: Option<unsafe extern "C" fn(context: *mut c_void, change: *const stint_change)>,
        context: *mut c_void,
    ) -> c_int;
    pub fn stint_policy_find(
        limiter: *const stint_limiter,
        name: *const c_char,
        id: *mut u32,
    ) -> c_int;
    pub fn stint_policy_get(
        limiter: *const stint_limiter,
        id: u32,
        policy: *mut stint_policy,
    ) -> c_int;
    pub fn stint_key_of(
        limiter: *const stint_limiter,
        bytes: *const c_void,
        length: usize,
    ) -> stint_key;
    pub fn stint_key_of_id(limiter: *const stint_limiter, id: u64) -> stint_key;
    pub fn stint_key_join(
        limiter: *const stint_limiter,
        key: stint_key,
        bytes: *const c_void,
        length: usize,
    ) -> stint_key;
    /// `address` is a `struct sockaddr *`.
    pub fn stint_key_address(
        limiter: *const stint_limiter,
        address: *const c_void,
        prefix4: c_uint,
        prefix6: c_uint,
    ) -> stint_key;
    pub fn stint_key_equal(a: stint_key, b: stint_key) -> bool;
    pub fn stint_take(
        limiter: *mut stint_limiter,
        policy: u32,
        key: stint_key,
        cost: u32,
        now: u64,
        verdict: *mut stint_verdict,
    ) -> bool;
    pub fn stint_decide(
        limiter: *mut stint_limiter,
        request: *const stint_request,
        now: u64,
        verdict: *mut stint_verdict,
    ) -> bool;
    pub fn stint_request_check(
        limiter: *const stint_limiter,
        request: *const stint_request,
    ) -> c_int;
    pub fn stint_decide_batch(
        limiter: *mut stint_limiter,
        requests: *const stint_request,
        n: usize,
        now: u64,
        verdicts: *mut stint_verdict,
    ) -> usize;
    pub fn stint_decide_all(
        limiter: *mut stint_limiter,
        requests: *const stint_request,
        n: usize,
        now: u64,
        verdicts: *mut stint_verdict,
    ) -> bool;
    pub fn stint_decide_groups(
        limiter: *mut stint_limiter,
        requests: *const stint_request,
        n: usize,
        sizes: *const usize,
        groups: usize,
        now: u64,
        verdicts: *mut stint_verdict,
    ) -> usize;
    pub fn stint_refund(
        limiter: *mut stint_limiter,
        key: stint_key,
        verdict: *mut stint_verdict,
        tokens: u32,
    ) -> u32;
    pub fn stint_refund_all(
        limiter: *mut stint_limiter,
        requests: *const stint_request,
        verdicts: *mut stint_verdict,
        n: usize,
    ) -> u64;
    pub fn stint_reset(limiter: *mut stint_limiter, policy: u32, key: stint_key) -> bool;
    pub fn stint_override(
        limiter: *mut stint_limiter,
        policy: u32,
        key: stint_key,
        limit: u32,
        until: u64,
    ) -> c_int;
    pub fn stint_override_get(
        limiter: *const stint_limiter,
        policy: u32,
        key: stint_key,
        limit: *mut u32,
        until: *mut u64,
    ) -> c_int;
    pub fn stint_override_clear(limiter: *mut stint_limiter, policy: u32, key: stint_key) -> c_int;
    pub fn stint_prefetch(limiter: *const stint_limiter, key: stint_key);
    pub fn stint_now(limiter: *const stint_limiter) -> u64;
    pub fn stint_stats_get(limiter: *mut stint_limiter, stats: *mut stint_stats) -> c_int;
    pub fn stint_policy_stats_get(
        limiter: *mut stint_limiter,
        id: u32,
        stats: *mut stint_policy_stats,
    ) -> c_int;
    pub fn stint_each(
        limiter: *mut stint_limiter,
        callback: Option<
            unsafe extern "C" fn(context: *mut c_void, entry: *const stint_entry) -> bool,
        >,
        context: *mut c_void,
    ) -> c_int;
    pub fn stint_each_of(
        limiter: *mut stint_limiter,
        key: stint_key,
        callback: Option<
            unsafe extern "C" fn(context: *mut c_void, entry: *const stint_entry) -> bool,
        >,
        context: *mut c_void,
    ) -> c_int;
    pub fn stint_label(
        limiter: *mut stint_limiter,
        key: stint_key,
        bytes: *const c_void,
        length: usize,
    ) -> c_int;
    pub fn stint_metrics(
        limiter: *mut stint_limiter,
        options: *const stint_metrics_options,
        buffer: *mut c_char,
        size: usize,
    ) -> c_int;
    pub fn stint_tightest(verdicts: *const stint_verdict, n: usize) -> usize;
    pub fn stint_headers(
        limiter: *const stint_limiter,
        style: u32,
        verdicts: *const stint_verdict,
        n: usize,
        buffer: *mut c_char,
        size: usize,
    ) -> c_int;
    pub fn stint_strerror(error: c_int) -> *const c_char;
    pub fn stint_reason() -> *const c_char;
    pub fn stint_version() -> *const c_char;
}
