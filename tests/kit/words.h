/* SPDX-License-Identifier: MIT
 * Features in words: a sentence of the contract, a policy or more, and steps that say what is asked
 * at what time and what must come of it.
 *
 *     {"a fresh window at the very nanosecond", "the tokens granted in one window never exceed",
 *      "2/m", "take = used 1 until 1m; take = used 2; 1m-1ns: take = no first wait 1ns"}
 *
 * Steps are divided by ';'. "TIME:" before one is the `now` of it and of all that follow; the clock
 * says the latest of them. A time is a date (2024-02-01) or counts from T0 (90s, 1h+10ms, 2m-1ns).
 *
 *     take [N] [WORD ...] [= DUE ...]  N tokens, or one. Words: peek, partial, drain, reserve,
 *                                      charge, tentative, look (before a charge), limit N, burst N;
 *                                      of KEY, by POLICY (else the key `a`, by the first)
 *     all take ... + take ... [= DUE ... + DUE ...]   a group
 *     back N of TIME [of KEY] [by POLICY] [= N]       given back into the window that ends then
 *     give N [of KEY] [by POLICY] [= N]               given back by its last verdict that granted
 *     reset [of KEY] [by POLICY] = forgot, or nothing
 *     override N until TIME [of KEY] [by POLICY] [= ERROR]
 *     clear [of KEY] [by POLICY] [= ERROR]
 *     rule [of KEY] [by POLICY] = N until TIME, or ERROR: what stint_override_get tells
 *     change NOTATION [= ERROR]        of the policy of that name, or the first
 *     apply NOTATION [, NOTATION ...] [= ERROR]       stint_policies_apply; `prune` removes others,
 *                                      `dry` only tells
 *     add NOTATION [= ERROR], remove POLICY [= ERROR]
 *     clock TIME                       what it says, also back
 *     fill N [by POLICY]               new keys take a token each
 *     kept N [by POLICY]               of each of the first N of these its token
 *     counts [by POLICY] = FIELD N ... of stint_policy_stats
 *     table = FIELD N ...              of stint_stats
 *     fields = [q N [w N] r N t N] [retry N]          of the last verdict, in both styles
 *     metrics = LINE, or no PART       is one of stint_metrics, or stands nowhere in them
 *     entries [of KEY] = none, or ENTRY + ENTRY ...   of stint_each_of, in any order: by POLICY,
 *                                      used N, limit N, since TIME, until TIME, and its flags
 *
 * Of a table in a file:
 *     close, open [= ERROR]
 *     as one, two or reader            by this handle from now on, which is opened if it is closed
 *     resize [N [POLICIES]] [= ERROR]  what is refused leaves the file as it is
 *
 * A POLICY is a name, or an id, also an old one. Behind an ERROR may stand words of its reason.
 *
 * What must come of a request:
 *     yes, no      allowed; no word is yes
 *     used N, of N (capacity), until TIME (window): else that of the key's last verdict; `used` and
 *                  what is granted more
 *     granted N    else what was asked, or nothing if it takes nothing
 *     wait TIME, or never              else 0
 *     first, shadowed, near, overridden, banned, untracked, replaced, bad, unknown: flags
 *     by POLICY    that decided, where an old id was asked
 *     generation N of its id; else 0, or that of the key's last verdict
 *     at TIME      it is decided at that time, by the clock
 *
 * All fields of all verdicts are compared, in each way to ask. And C: a look, and a refusal that is
 * no first one, write nothing. */
#ifndef STINT_TESTS_WORDS_H
#define STINT_TESTS_WORDS_H

#include "fixture.h"

struct feature {
    const char *name;
    const char *sentence; /* of include/stint.h or doc/promises.md, word by word; or SAME */
    /* In the notation, divided by ';'. `table N admit [P];` before them: for N entries and P
     * policies; when it is full it may `refuse` or `replace`, too. `file` for `table`: in one. */
    const char *policies;
    const char *steps;
};

/* The sentence is that of the feature before. */
#define SAME NULL

/* The tests of an array of them. */
#define TEST_FEATURES(features)                                                                    \
    TEST(test_scripts) {                                                                           \
        print_message("%zu verdicts\n",                                                            \
                      play_features(features, sizeof(features) / sizeof *(features)));             \
    }                                                                                              \
    TEST(test_sentences) {                                                                         \
        assert_sentences(features, sizeof(features) / sizeof *(features));                         \
    }

/* Plays all of them in all ways. Returns the number of verdicts that were compared. */
size_t play_features(const struct feature *features, size_t count);

/* Each sentence is in the contract. */
void assert_sentences(const struct feature *features, size_t count);

#endif
