/* SPDX-License-Identifier: MIT
 * Loads of whole cache lines: which of a line's slots have a tag, whether all four of a line are as
 * asked, and runs of lines. On x86-64 by vectors of 16 or 32 bytes, each word of which is loaded
 * whole; elsewhere word by word. Orders are named as in atomic.h. */
#ifndef STINT_LINE_SCAN_H
#define STINT_LINE_SCAN_H

#ifdef __SSE2__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "base/atomic.h"

/* Compares the first, third, fifth and seventh word of a cache line with a value. Returns 0 if none
 * is equal; else match4_offset gives the offset of the first that is, and match4_rest the others.
 * No order: like four relaxed loads, each whole in itself (aligned halves of a 16-byte load are, on
 * every x86-64).
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

static inline uint32_t match4_index(uint32_t match) {
    return (uint32_t)__builtin_ctz(match) / 4;
}

/* The same in bytes. */
static inline size_t match4_offset(uint32_t match) {
#if defined(__x86_64__)
    /* What __builtin_ctzll compiles to, without the extension of its int, which costs a
     * register. */
    uint64_t index;
    __asm__("rep bsfq %1, %0" : "=r"(index) : "r"((uint64_t)match) : "cc");
    return index * 4;
#else
    return (size_t)__builtin_ctzll(match) * 4;
#endif
}

static inline uint32_t match4_rest(uint32_t match) {
    uint32_t each = match & 0x1111;
    return each & (each - 1);
}
#else
static inline uint32_t atomic_match4(const uint64_t *line, uint64_t value) {
    uint32_t match = 0;
    for (uint32_t i = 0; i < 4; i++)
        match |= (uint32_t)((atomic_load_relaxed)(&line[2 * i]) == value) << i;
    return match;
}

static inline uint32_t match4_index(uint32_t match) {
    return (uint32_t)__builtin_ctz(match);
}

/* The same in bytes. */
static inline size_t match4_offset(uint32_t match) {
    return (size_t)__builtin_ctzll(match) * 16;
}

static inline uint32_t match4_rest(uint32_t match) {
    return match & (match - 1);
}
#endif

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

/* ---- Runs of lines: eight words each, from `line` on to before `end` ------------------------- */

#if defined(__x86_64__) && !defined(STINT_THREAD_SANITIZER)
#define ATOMIC_RUNS_AVX2 __attribute__((target("avx2")))

/* atomic_run_all_match by AVX2: half the instructions. Each word is loaded whole, and on all such
 * processors each pair at once (but nothing depends on that). */
ATOMIC_RUNS_AVX2 static inline __m256i pattern_lanes_avx2(const uint32_t value[2]) {
    return _mm256_broadcastsi128_si256(pattern_lanes(value));
}

ATOMIC_RUNS_AVX2 static inline const uint64_t *
run_all_match_avx2(const uint64_t *line, const uint64_t *end, const struct slot_pattern *asked) {
    const __m256i sign = _mm256_set1_epi32(INT32_MIN);
    const __m256i flip = pattern_lanes_avx2(asked->flip), mask = pattern_lanes_avx2(asked->mask);
    const __m256i below = pattern_lanes_avx2(asked->below);
    const __m256i base = _mm256_xor_si256(pattern_lanes_avx2(asked->base), sign);
    const __m256i range = _mm256_xor_si256(pattern_lanes_avx2(asked->range), sign);

    for (; line != end; line += 8) { /* pattern_half has what each step is for */
        __m256 one = _mm256_load_ps((const float *)(const void *)line);
        __m256 two = _mm256_load_ps((const float *)(const void *)(line + 4));
        __asm__("" : "+x"(one), "+x"(two));
        __m256i low = _mm256_castps_si256(_mm256_shuffle_ps(one, two, _MM_SHUFFLE(2, 0, 2, 0)));
        __m256i high = _mm256_castps_si256(_mm256_shuffle_ps(one, two, _MM_SHUFFLE(3, 1, 3, 1)));
        __m256i part = _mm256_and_si256(_mm256_xor_si256(low, flip), mask);
        __m256i as_asked =
            _mm256_and_si256(_mm256_cmpgt_epi32(below, part),
                             _mm256_cmpgt_epi32(range, _mm256_sub_epi32(high, base)));
        if (_mm256_movemask_epi8(as_asked) != -1)
            break;
    }
    _mm256_zeroupper(); /* not every optimisation level does it of itself */
    return line;
}

/* atomic_run_match4 by AVX2. */
ATOMIC_RUNS_AVX2 static inline const uint64_t *
run_match4_avx2(const uint64_t *line, const uint64_t *end, uint64_t value) {
    const __m256i wanted = _mm256_set1_epi64x((long long)value);

    for (; line != end; line += 8) {
        const __m256i *half = (const __m256i *)(const void *)line;
        __m256i words = _mm256_unpacklo_epi64(_mm256_load_si256(half), _mm256_load_si256(half + 1));
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi64(words, wanted)) != 0)
            break;
    }
    _mm256_zeroupper();
    return line;
}

/* Whether a run is long enough for AVX2: to begin costs as much as a few lines. */
static inline bool atomic_runs_long(const uint64_t *line, const uint64_t *end) {
#ifdef STINT_TESTING
    if (stint_test_step != NULL)
        return false;
#endif
    return end - line >= 8 * 8;
}
#endif

/* Whether runs may be looked at by AVX2: the processor has it, and the system saves its registers.
 * Not __builtin_cpu_supports, which needs a part of the compiler's library that not everybody
 * links. */
static inline bool atomic_runs_avx2(void) {
    bool has = false;
#ifdef ATOMIC_RUNS_AVX2
    enum { OSXSAVE = 1 << 27, SSE_AND_AVX_STATE = 6 };
    unsigned eax, ebx, ecx, edx, saved, high;
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & OSXSAVE) != 0) {
        __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
        has = (saved & SSE_AND_AVX_STATE) == SSE_AND_AVX_STATE &&
              __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx & bit_AVX2) != 0;
    }
#endif
    return has;
}

/* The first line with a pair of words that is not as asked (atomic_all_match); `end` if there is
 * none. `avx2` is what atomic_runs_avx2 says. */
static inline const uint64_t *atomic_run_all_match(const uint64_t *line, const uint64_t *end,
                                                   const struct slot_pattern *asked, bool avx2) {
    (void)avx2;
#ifdef ATOMIC_RUNS_AVX2
    if (avx2 && atomic_runs_long(line, end))
        return run_all_match_avx2(line, end, asked);
#endif
    while (line != end && atomic_all_match(line, asked))
        line += 8;
    return line;
}

/* The first line that has the value among its first, third, fifth and seventh word (atomic_match4);
 * `end` if there is none. */
static inline const uint64_t *atomic_run_match4(const uint64_t *line, const uint64_t *end,
                                                uint64_t value, bool avx2) {
    (void)avx2;
#ifdef ATOMIC_RUNS_AVX2
    if (avx2 && atomic_runs_long(line, end))
        return run_match4_avx2(line, end, value);
#endif
    while (line != end && atomic_match4(line, value) == 0)
        line += 8;
    return line;
}

#endif
