/* SPDX-License-Identifier: MIT
 * The atomic operations that stint uses, with the memory order in the name.
 *
 * They are ConcurrencyKit's, inline assembly. ThreadSanitizer cannot see through that, and has the
 * compiler's builtins. Other sanitizers check what users run, but not whether an operation's word
 * is within its memory, which guard pages show (attacks.c).
 *
 * The contract, on which ordering.md builds:
 *   relaxed   the word is read or written whole; loads of one word by one thread never go back.
 *   acquire   the load is done before all loads and stores that follow in the program.
 *   release   all loads and stores that precede in the program are done before the store.
 *   seq       all that precedes is done before the operation, which is done before all that
 *             follows, also when a compare-and-swap fails: a full barrier. That is more than C11's
 *             seq_cst gives, whose operations order nothing against relaxed loads: on aarch64 a
 *             load may be done before the store of an earlier ldaxr/stlxr.
 *
 * On x86-64 seq is the lock prefix. Plain loads and stores have the other orders, so a fence binds
 * the compiler only. On aarch64 a read-modify-write of ConcurrencyKit is a loop of ldxr/stxr, which
 * orders nothing: each stands between two fences. Every fence there is `dmb ish`, a full barrier.
 * (Its variants for LSE do not compile in 0.7.1. The loops are right on processors with LSE.) */
#ifndef STINT_ATOMIC_H
#define STINT_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <ck_cc.h>
#include <ck_md.h>
#include <ck_pr.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "sys/testing.h"

#if !defined(__LP64__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "stint is for 64-bit little-endian machines: a slot is swapped as two words of 64 bits"
#endif
#if defined(__aarch64__) && !defined(CK_MD_RMO)
#error "ck_md.h is another machine's, whose fences are nothing: the build machine's libck-dev?"
#endif

#define CACHE_LINE CK_MD_CACHELINE /* bytes */

#ifdef STINT_THREAD_SANITIZER
#define WORD_LOAD(word)             __atomic_load_n(word, __ATOMIC_RELAXED)
#define WORD_LOAD_32(word)          __atomic_load_n(word, __ATOMIC_RELAXED)
#define WORD_STORE(word, value)     __atomic_store_n(word, value, __ATOMIC_RELAXED)
#define WORD_STORE_32(word, value)  __atomic_store_n(word, value, __ATOMIC_RELAXED)
#define WORD_FETCH_ADD(word, value) __atomic_fetch_add(word, value, __ATOMIC_SEQ_CST)
#define WORD_ADD(word, value)       (void)__atomic_fetch_add(word, value, __ATOMIC_RELAXED)
#define WORD_CAS(word, expected, desired)                                                          \
    __atomic_compare_exchange_n(word, &(expected), desired, false, __ATOMIC_SEQ_CST,               \
                                __ATOMIC_SEQ_CST)
#define RELEASE(word, value, store) __atomic_store_n(word, value, __ATOMIC_RELEASE)
#else
#define WORD_LOAD(word)                   ck_pr_load_64(word)
#define WORD_LOAD_32(word)                ck_pr_load_32(word)
#define WORD_STORE(word, value)           ck_pr_store_64(word, value)
#define WORD_STORE_32(word, value)        ck_pr_store_32(word, value)
#define WORD_FETCH_ADD(word, value)       ck_pr_faa_64(word, value)
#define WORD_ADD(word, value)             ck_pr_add_64(word, value)
#define WORD_CAS(word, expected, desired) ck_pr_cas_64(word, expected, desired)
#define RELEASE(word, value, store)       (ck_pr_fence_release(), store(word, value))
#endif

static inline uint64_t atomic_load_relaxed(const uint64_t *word) {
    return WORD_LOAD(word);
}

static inline uint64_t atomic_load_acquire(const uint64_t *word) {
#ifdef STINT_THREAD_SANITIZER
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#else
    uint64_t value = WORD_LOAD(word);
    ck_pr_fence_acquire();
    return value;
#endif
}

static inline uint64_t atomic_load_relaxed_32(const uint32_t *word) {
#if defined(__x86_64__) && !defined(STINT_THREAD_SANITIZER)
    /* What ck_pr_load_32 is, but the compiler knows that the upper half of the register is 0. */
    uint64_t value;
    __asm__ volatile("movl %1, %k0" : "=r"(value) : "m"(*word) : "memory");
    return value;
#else
    return WORD_LOAD_32(word);
#endif
}

typedef uint64_t words_2 __attribute__((vector_size(16)));

/* A word, and 0 above it: on x86-64 in a vector register, as the hot way has no other left. */
static inline words_2 atomic_load_widened(const uint64_t *word) {
#if defined(__SSE2__) && !defined(STINT_THREAD_SANITIZER)
    words_2 value;
    __asm__ volatile("movq %1, %0" : "=x"(value) : "m"(*word) : "memory");
    return value;
#else
    return (words_2){WORD_LOAD(word), 0};
#endif
}

static inline void atomic_store_relaxed(uint64_t *word, uint64_t value) {
    WORD_STORE(word, value);
}

static inline void atomic_store_relaxed_32(uint32_t *word, uint32_t value) {
    WORD_STORE_32(word, value);
}

static inline void atomic_store_release(uint64_t *word, uint64_t value) {
    RELEASE(word, value, WORD_STORE);
}

static inline void atomic_store_release_32(uint32_t *word, uint32_t value) {
    RELEASE(word, value, WORD_STORE_32);
}

static inline void atomic_add_relaxed(uint64_t *word, uint64_t value) {
    WORD_ADD(word, value);
}

/* Nothing that follows is done before the loads that precede. ThreadSanitizer does not know fences:
 * loads on which it must see plain accesses depend are acquires. */
static inline void atomic_fence_acquire(void) {
    ck_pr_fence_acquire();
}

static inline bool atomic_cas_seq(uint64_t *word, uint64_t expected, uint64_t desired) {
    ck_pr_fence_load_atomic();
    bool swapped = WORD_CAS(word, expected, desired);
    ck_pr_fence_atomic_load();
    return swapped;
}

static inline uint64_t atomic_fetch_add_seq(uint64_t *word, uint64_t value) {
    ck_pr_fence_load_atomic();
    uint64_t old = WORD_FETCH_ADD(word, value);
    ck_pr_fence_atomic_load();
    return old;
}

/* A relaxed load and a comparison: on x86-64 one instruction, which needs no integer register. */
#if defined(__x86_64__) && !defined(STINT_THREAD_SANITIZER)
static inline int atomic_differs(const uint64_t *word, uint64_t value) {
    int differs;
    __asm__ volatile("cmpq %2, %1" : "=@ccne"(differs) : "m"(*word), "r"(value) : "memory");
    return differs;
}

static inline int atomic_less(const uint64_t *word, uint64_t value) {
    int less;
    __asm__ volatile("cmpq %2, %1" : "=@ccb"(less) : "m"(*word), "r"(value) : "memory");
    return less;
}
#else
static inline bool atomic_differs(const uint64_t *word, uint64_t value) {
    return atomic_load_relaxed(word) != value;
}

static inline bool atomic_less(const uint64_t *word, uint64_t value) {
    return atomic_load_relaxed(word) < value;
}
#endif

/* Adds to a word that only this thread writes, and its signal handlers. On x86-64 one instruction
 * without a lock prefix is enough: neither these nor a move to another core come in its middle. */
static inline void atomic_add_own(uint64_t *word, uint64_t value) {
#if defined(__x86_64__) && !defined(STINT_THREAD_SANITIZER)
    __asm__ volatile("addq %1, %0" : "+m"(*word) : "er"(value) : "cc");
#else
    atomic_add_relaxed(word, value);
#endif
}

/* Compare-and-swap of two adjacent words, aligned to 16 bytes. If it fails, they may have been
 * loaded at different instants (on aarch64): one was not as expected when it was loaded. */
static inline bool atomic_cas2_seq(void *words, const uint64_t expected[2],
                                   const uint64_t desired[2]) {
#ifdef STINT_THREAD_SANITIZER
    /* ThreadSanitizer's own 16-byte compare-and-swap is a lock that its 8-byte operations do not
     * take, so it is not atomic with them. The instruction is; these calls tell what it orders. */
    void __tsan_acquire(void *);
    void __tsan_release(void *);
    __tsan_release(words);
#endif
#if defined(__x86_64__)
    /* What ck_pr_cas_64_2 is, but the words are in the registers where they are needed. It is a
     * fence itself: one more would move `swapped` out of the processor's flags. */
    __extension__ typedef unsigned __int128 pair;
    uint64_t old[2] = {expected[0], expected[1]};
    bool swapped;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(swapped), "+m"(*(pair *)words), "+a"(old[0]), "+d"(old[1])
                     : "b"(desired[0]), "c"(desired[1])
                     : "memory");
#else
    ck_pr_fence_load_atomic();
    uint64_t old[2] = {expected[0], expected[1]}, new[2] = {desired[0], desired[1]};
    bool swapped = ck_pr_cas_64_2(words, old, new);
    ck_pr_fence_atomic_load();
#endif
#ifdef STINT_THREAD_SANITIZER
    __tsan_acquire(words);
#endif
    return swapped;
}

/* Test builds may stop a thread before each of these (testing.h). */
#ifdef STINT_TESTING
#define atomic_load_relaxed(word)         (STEP(word), atomic_load_relaxed(word))
#define atomic_load_relaxed_32(word)      (STEP(word), atomic_load_relaxed_32(word))
#define atomic_load_widened(word)         (STEP(word), atomic_load_widened(word))
#define atomic_load_acquire(word)         (STEP(word), atomic_load_acquire(word))
#define atomic_differs(word, value)       (STEP(word), atomic_differs(word, value))
#define atomic_less(word, value)          (STEP(word), atomic_less(word, value))
#define atomic_cas_seq(word, old, new)    (STEP(word), atomic_cas_seq(word, old, new))
#define atomic_fetch_add_seq(word, value) (STEP(word), atomic_fetch_add_seq(word, value))
#define atomic_cas2_seq(words, old, new)  (STEP(words), atomic_cas2_seq(words, old, new))
#endif

/* Raises a word to at least a value: what follows is done after it has that, whoever raised it. */
static inline void atomic_raise(uint64_t *word, uint64_t value) {
    uint64_t seen = atomic_load_acquire(word);
    while (seen < value && !atomic_cas_seq(word, seen, value))
        seen = atomic_load_acquire(word);
}

/* ---- Whole cache lines ----------------------------------------------------------------------- */

/* Compares the first, third, fifth and seventh word of a cache line with a value. 0: none is equal;
 * else match4_offset gives the first's offset in bytes, and match4_rest the others. No order.
 *
 * On x86-64 all but the mask stays in vector registers: out of cache it is the integer registers
 * that run out first while the processor works ahead of a miss. A load of 16 bytes would wait for a
 * count in them that was just stored (one key again and again: 11 ns, not 6). */
#if defined(__SSE2__) && !defined(STINT_THREAD_SANITIZER)
static inline __m128i words_apart(const void *one, const void *other) {
    return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(_mm_loadl_epi64(one)), other));
}

static inline uint32_t atomic_match4(const uint64_t *line, uint64_t value) {
    __m128i wanted = _mm_set1_epi64x((long long)value);
    __m128i low = words_apart(line, line + 2), high = words_apart(line + 4, line + 6);
    /* SSE2 compares 32-bit halves. Their results are packed to 16 bits, two for each word, and a
     * word is equal where both are all ones: four bits of the mask. */
    __m128i halves = _mm_packs_epi32(_mm_cmpeq_epi32(low, wanted), _mm_cmpeq_epi32(high, wanted));
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi32(halves, _mm_set1_epi32(-1)));
}

static inline size_t match4_offset(uint32_t match) {
    /* What __builtin_ctzll is, but for the extension of its int, which costs a register. */
    uint64_t index;
    __asm__("rep bsfq %1, %0" : "=r"(index) : "r"((uint64_t)match) : "cc");
    return index * 4;
}

#define MATCH4_EACH 0x11111111
#else
static inline uint32_t atomic_match4(const uint64_t *line, uint64_t value) {
    uint32_t match = 0;
    for (uint32_t i = 0; i < 4; i++)
        match |= (uint32_t)((atomic_load_relaxed)(&line[2 * i]) == value) << i;
    return match;
}

static inline size_t match4_offset(uint32_t match) {
    return (size_t)__builtin_ctzll(match) * 16;
}

#define MATCH4_EACH 0x000f000f
#endif

/* All but the first. Two lines may be asked at once, one of them 16 bits higher. */
static inline uint32_t match4_rest(uint32_t match) {
    const uint32_t each = match & MATCH4_EACH;
    return each & (each - 1);
}

/* What atomic_all_match asks of each of the two words of a pair. Low half: (half ^ flip) & mask <
 * below, where mask and below are less than 2^31. High half: base .. base + range - 1, mod 2^32. */
struct slot_pattern {
    uint32_t flip[2], mask[2], below[2], base[2], range[2];
};

/* Whether all four pairs of words of a cache line are as asked. No order, but that the second word
 * of a pair is not loaded before its first (every x86-64 with AVX loads the two at once; others in
 * effect do). Each word is whole in itself. */
#if defined(__SSE2__) && !defined(STINT_THREAD_SANITIZER)
static inline __m128i pattern_lanes(const uint32_t value[2]) {
    return _mm_set_epi32((int)value[1], (int)value[0], (int)value[1], (int)value[0]);
}

/* All ones where two pairs, a quarter each, are as asked. */
static inline __m128i pattern_half(const uint64_t *pairs, const struct slot_pattern *asked) {
    __m128 one = _mm_load_ps((const float *)(const void *)pairs);
    __m128 two = _mm_load_ps((const float *)(const void *)(pairs + 2));
    /* Loaded once: low and high halves of one instant. */
    __asm__("" : "+x"(one), "+x"(two));
    __m128i low = _mm_castps_si128(_mm_shuffle_ps(one, two, _MM_SHUFFLE(2, 0, 2, 0)));
    __m128i high = _mm_castps_si128(_mm_shuffle_ps(one, two, _MM_SHUFFLE(3, 1, 3, 1)));
    /* SSE2 compares signed numbers only: both sides are moved by 2^31. */
    __m128i sign = _mm_set1_epi32(INT32_MIN);
    __m128i ahead = _mm_sub_epi32(high, _mm_xor_si128(pattern_lanes(asked->base), sign));
    __m128i range = _mm_xor_si128(pattern_lanes(asked->range), sign);
    __m128i part =
        _mm_and_si128(_mm_xor_si128(low, pattern_lanes(asked->flip)), pattern_lanes(asked->mask));
    return _mm_and_si128(_mm_cmpgt_epi32(pattern_lanes(asked->below), part),
                         _mm_cmpgt_epi32(range, ahead));
}

static inline bool atomic_all_match(const uint64_t *line, const struct slot_pattern *asked) {
    __m128i all = _mm_and_si128(pattern_half(line, asked), pattern_half(line + 4, asked));
    return _mm_movemask_epi8(all) == 0xffff;
}
#else
static inline bool atomic_all_match(const uint64_t *line, const struct slot_pattern *asked) {
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t word = (atomic_load_acquire)(&line[i]);
        if ((((uint32_t)word ^ asked->flip[i % 2]) & asked->mask[i % 2]) >= asked->below[i % 2] ||
            (uint32_t)(word >> 32) - asked->base[i % 2] >= asked->range[i % 2])
            return false;
    }
    return true;
}
#endif

/* Test builds may stop a thread between the loads of a line's words (testing.h): every `step`th. */
#ifdef STINT_TESTING
struct seen_line {
    _Alignas(CACHE_LINE) uint64_t words[8];
};

static inline const uint64_t *line_seen(const uint64_t *line, struct seen_line *seen, size_t step) {
    for (size_t i = 0; i < 8 && stint_test_step != NULL; i += step)
        seen->words[i] = atomic_load_acquire(&line[i]);
    return stint_test_step != NULL ? seen->words : line;
}
#define atomic_match4(line, value) atomic_match4(line_seen(line, &(struct seen_line){0}, 2), value)
#define atomic_all_match(line, asked)                                                              \
    atomic_all_match(line_seen(line, &(struct seen_line){0}, 1), asked)
#endif

#endif
