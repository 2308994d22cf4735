/* SPDX-License-Identifier: MIT
 * Loads of whole cache lines: which of a line's slots have a tag, and whether all four are as
 * asked. On x86-64 by vectors of 16 bytes, each word of which is loaded whole; else by words. */
#ifndef STINT_LINE_SCAN_H
#define STINT_LINE_SCAN_H

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "sys/atomic.h"

/* Compares the first, third, fifth and seventh word of a cache line with a value. Returns 0 if none
 * is equal; else match4_offset gives the offset in bytes of the first that is, and match4_rest the
 * others. No order: like four relaxed loads, each whole in itself (aligned halves of a 16-byte load
 * are, on every x86-64).
 *
 * On x86-64 all but the mask stays in vector registers: out of cache it is the integer registers
 * that run out first while the processor works ahead of a miss. */
#if defined(__SSE2__) && !defined(STINT_THREAD_SANITIZER)
static inline uint32_t atomic_match4(const uint64_t *line, uint64_t value) {
    const __m128i *pair = (const __m128i *)(const void *)line;
    __m128i wanted = _mm_set1_epi64x((long long)value);
    __m128i low = _mm_unpacklo_epi64(_mm_load_si128(pair), _mm_load_si128(pair + 1));
    __m128i high = _mm_unpacklo_epi64(_mm_load_si128(pair + 2), _mm_load_si128(pair + 3));
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

/* Test builds may stop a thread between the loads of a line's words (testing.h). */
#ifdef STINT_TESTING
static inline uint32_t atomic_match4_stepped(const uint64_t *line, uint64_t value) {
    _Alignas(CACHE_LINE) uint64_t seen[8] = {0};
    if (stint_test_step == NULL)
        return atomic_match4(line, value);
    for (uint32_t i = 0; i < 8; i += 2)
        seen[i] = atomic_load_acquire(&line[i]);
    return atomic_match4(seen, value);
}
#define atomic_match4(line, value) atomic_match4_stepped(line, value)

static inline bool atomic_all_match_stepped(const uint64_t *line,
                                            const struct slot_pattern *asked) {
    _Alignas(CACHE_LINE) uint64_t seen[8];
    if (stint_test_step == NULL)
        return atomic_all_match(line, asked);
    for (uint32_t i = 0; i < 8; i++)
        seen[i] = atomic_load_acquire(&line[i]);
    return atomic_all_match(seen, asked);
}
#define atomic_all_match(line, asked) atomic_all_match_stepped(line, asked)
#endif

#endif
