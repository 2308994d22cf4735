/* SPDX-License-Identifier: MIT
 * Single interleavings of the slot protocol: what the model (tests/spin), the world or a review has
 * found to go wrong when a step is missing. The stories of the known mistakes come first. */
#include "fixture.h"
#include "random.h"
#include "stories.h"

/* ---- Known mistakes -------------------------------------------------------------------------- */

static void fail_outcome(const char *name, const struct outcome *outcome) {
    fail_msg("%s: %s (stopped at %u, %u, %u)", name, outcome->broken, outcome->stops[0],
             outcome->stops[1], outcome->stops[2]);
}

static bool same_text(const char *one, const char *other) {
    return one == other || (one != NULL && other != NULL && strcmp(one, other) == 0);
}

static bool same_scene(const struct scene *one, const struct scene *other) {
    return same_text(one->before, other->before) && same_text(one->a, other->a) &&
           same_text(one->b, other->b) && same_text(one->c, other->c) &&
           one->stops == other->stops && one->on_full == other->on_full;
}

/* Whether a scene's instant comes: that of an add does not, where all is a swap. */
static bool comes(const struct scene *scene) {
#ifdef STINT_SWAPS_ONLY
    return !scene->at_instant || scene->instant != INSTANT_LOADED;
#else
    (void)scene;
    return true;
#endif
}

/* Each known mistake of the protocol does harm in its story if its guard is taken away; and none
 * if not, wherever the threads of the story are stopped. Stories with two threads that are stopped
 * have many plays: the stress suite's run tries all, and takes their guards away; here some are
 * tried. (With a patch: mutants.py.) */
TEST(test_known_mistakes) {
    const uint64_t factor = environment_number("STINT_TEST_FACTOR", 1);
    const uint64_t divisor = environment_number("STINT_TEST_DIVISOR", 1);
    const uint64_t one_in = factor > 1 ? 1 : 48 * divisor;
    const uint64_t seed = test_seed();
    for (unsigned i = 0; i < story_count; i++) {
        const struct story *story = &stories[i];
        bool played = !comes(&story->scene);
        for (unsigned j = 0; j < i; j++)
            played |= same_scene(&stories[j].scene, &story->scene);
        struct outcome with = {.plays = 0};
        if (!played)
            with = scene_play(&story->scene, 0, one_in, seed);
        if (with.broken[0] != '\0')
            fail_outcome(story->scene.name, &with);
        if (story->patches != NULL || divisor > 1 || !comes(&story->scene) ||
            (factor == 1 && story->scene.stops == 3))
            continue;
        struct outcome without = scene_play(&story->scene, story->guards, 1, seed);
        if (without.broken[0] == '\0' && without.plays != 0)
            fail_msg("%s: no harm in %u plays without the guard", story->scene.name, without.plays);
    }
}

/* ---- Others ---------------------------------------------------------------------------------- */

/* clang-format off */
#define LAST_SLOT                                                                                  \
    .before = "add never 1/10000s; turn 100000; add five 10/100s; take five h0 cost 5; take five " \
              "h1 cost 5;"                                                                         \
              "take five h2 cost 5"

static const struct scene scenes[] = {
    /* Between the search for the key and the end of the search for a free slot, others put the key
     * into the last slot. `a` is so late that it asks the clock about the first one. If keys are
     * replaced, the key's own slot, just opened, is the one with the fewest tokens. */
    {"the last slot, admit", .stops = 1, .on_full = STINT_FULL_ADMIT, LAST_SLOT,
     .a = "take never key at 0", .b = "take never key", .after = "take never key = no"},
    {"the last slot, refuse", .stops = 1, LAST_SLOT,
     .a = "take never key at 0", .b = "take never key", .after = "take never key = no"},
    {"the last slot, replace", .stops = 1, .on_full = STINT_FULL_REPLACE, LAST_SLOT,
     .a = "take never key at 0", .b = "take never key", .after = "take never key = no"},

    /* The key's slot is lost while a late thread has a claim. */
    {"a late commit", .stops = 1,
     .before = "hold 2", .a = "take one key; take one key at 0", .b = "turn 10; hold 4"},

    /* A claim from before the clock was stepped back, whose thread died, is a window of now. */
    {"a dead claim before a step back",
     .before = "die one key; turn -360000", .a = "take one key = yes window -359990"},

    /* H: whoever gives a time, at any step behind which the clock is set back and the key begins
     * anew, is told a window that is not over, and ends within its length. */
    {"a clock that is set back", .stops = 1, .before = "add p 10/100s; take p key",
     .a = "take p key = soon", .b = "turn -100000; take p key"},
    {"a clock that is set back, a cost", .stops = 1, .before = "add p 10/100s; take p key",
     .a = "take p key cost 2 = soon", .b = "turn -100000; take p key"},

    /* What is given back is room again, and no more than that, for callers with a limit of their
     * own above the policy's; and when the limit was lowered for a while. */
    {"a refund of an own limit",
     .a = "take once key cost 20 limit 20 = yes; refund once key 1 of 10000 = back 1;"
          "take once key limit 20 = yes; take once key limit 20 = no"},
    {"a refund of a lowered limit",
     .a = "take long key cost 10 = yes; change long 4/100s; refund long key 1 of 10000 = back 1;"
          "change long 10/100s; take long key = yes; take long key = no"},

    /* A lease that is changed while work is in flight leaves no hold, and refuses nobody. */
    {"a longer lease", .stops = 1, .before = "add p 1/3000ms in-flight; take p key; back p key",
     .a = "take p key quiet = yes; back p key", .b = "apply 1/6000ms in-flight name=p",
     .after = "take p key look quiet = used 0 yes"},
    {"a shorter lease, and a higher limit", .stops = 1,
     .before = "add p 1/3000ms in-flight",
     .a = "take p key quiet = yes; back p key; take p key quiet = yes; back p key",
     .b = "apply 1/1500ms in-flight name=p; apply 2/12s in-flight name=p",
     .after = "take p key look quiet = used 0 yes"},

    /* A refund is under way when the limit is raised and more is granted: none of that is lost. */
    {"a refund while the limit is raised", .stops = 1,
     .before = "take long key cost 10", .a = "refund long key 1 of 10000 = back 1",
     .b = "change long 25/100s; take long key x15 = yes",
     .after = "take long key = yes; take long key = no"},

    /* A group's requests that carry over are taken last. A policy that changes in between is still
     * charged once. */
    {"a group whose policy carries otherwise", .stops = 1, .of_policies = true,
     .before = "add p 10/100s capacity=20", .a = "all p key cost 3 + once key = yes + yes",
     .b = "change p 10/100s reserve=1", .after = "take p key look = used 3"},

    /* The last of its requests gets no slot. Nothing is taken of the first, which carries: after a
     * boundary it could not be given back. */
    {"a group that takes what is carried last", .stops = 1, .on_full = STINT_FULL_REFUSE,
     .before = "add p 10/100s capacity=40; add q 1/1000s; take p key cost 20; take q h0; take q h1",
     .a = "all p key cost 9 + q other + q third = yes + yes + no", .b = "turn 10001; take p key",
     .after = "take p key look = used 11"},

    /* A request has the tokens of one stripe, and does not get enough of the other, because others
     * took them. It gives back what it took, no more. */
    {"stripes that give back", .stops = 1, .before = "add s 20/20000s stripes=2",
     .a = "take s key cost 11", .b = "take s key rest",
     .after = "take s key rest; take s key look = counted used 20"},

    /* ... because another was faster. That one gives back meanwhile: what it gets of the other's
     * tokens in one stripe is not lost to the key in the next. */
    {"stripes lose no token", .stops = 2, .before = "add s 8/20000s stripes=2",
     .a = "as 2; take s key cost 8", .b = "take s key", .c = "back s key",
     .after = "take s key look = counted"},

    /* A charge of several stripes, whose window turns meanwhile: its verdict tells the window in
     * which it was made. Given back by that, it is no token of those that others took in the
     * next. */
    {"stripes that are charged in one window", .stops = 1, .before = "add s 8/20000s stripes=2",
     .a = "take s key cost 6 charge; back s key", .b = "turn 2000000; take s key x2 = yes",
     .after = "take s key rest; take s key look = counted used 8"},

    /* A charge tells what all stripes have, also those that gave it nothing. */
    {"a charge beside tokens of another stripe",
     .a = "as 2; take striped key; as 3; take striped key charge = used 2"},

    /* A slot that nobody touched for 2^33 ticks has the id of an end near now, which is none of the
     * policy's. */
    {"stripes that were left for 994 days", .in_file = true,
     .a = "take striped key; turn 8589934597; take striped key x4 = yes"},

    /* By a now that is early by the whole allowance another key gets the slot of this one. Its next
     * request, a tick earlier, finds another slot, and no window that it has had. */
    {"a slot that is taken a minute early",
     .before = "add p 1/100s; add never 1/10000s; turn 4000; take p key; take one h0;"
               "take never h1; take never h2",
     .a = "take p other at 10000 = placed; take p key at 9999 = window 20000"},

    /* What was charged past the shares of a striped key is in its first stripe. When that has
     * passed into the next window, or is another key's, it is not given back from the other
     * stripes: their tokens were granted, and could be granted once more to one who is late (A). */
    {"stripes that give back no others' tokens",
     .a = "add s 8/10s stripes=2; as 2; take s key x4 = yes; turn 999; as 3; take s key x4 = yes;"
          "take s key cost 2 charge = used 10; turn 1001; as 2; take s key = yes;"
          "as 3; refund s key 2 of 1000 = back 0; take s key at 999 = window 2000"},
    {"stripes whose first is lost",
     .before = "add s 8/10s stripes=2; add p 10/20s",
     .a = "as 2; take s key x4 = yes; turn 999; as 3; take s key x4 = yes;"
          "take s key cost 2 charge = used 10; turn 1001; take p h0; take p h1; take p h2;"
          "as 3; refund s key 2 of 1000 = back 0; take s key at 999 quiet"},

    /* A request whose policy is replaced on its way is judged by the override that its key has by
     * the new one, and told so. */
    {"an override of the replacement", .stops = 1, .of_policies = true,
     .before = "add o 1/100s overrides", .a = "take o key cost 3 quiet = ruled",
     .b = "apply 1/250ms name=o overrides; find o; override o key 5 100"},


    /* What a bucket has used is kept while its rate changes, and others take or are given back. */
    {"a bucket whose rate is raised", .stops = 3,
     .before = "add b 2/100ms burst=20; take b key x4", .a = "change b 20/100ms burst=20",
     .b = "take b key x2", .after = "take b key look cost 0 = used 6"},
    {"a bucket whose rate changes twice", .stops = 3,
     .before = "add b 20/100ms burst=20; take b key x4",
     .a = "change b 2/100ms burst=20; change b 5/100ms burst=20",
     .b = "take b key x2", .after = "take b key look cost 0 = used 6"},
    {"a bucket that holds less, with an override", .stops = 3,
     .before = "add b 2/100ms burst=20 overrides; override b key 20 1000; take b key cost 150",
     .a = "change b 2/100ms burst=2 overrides", .b = "take b key cost 0",
     .after = "take b key look cost 0 = used 20"},
    {"a new key while the rate changes", .stops = 2, .before = "add b 20/100ms burst=20",
     .a = "take b key x2 = yes", .b = "change b 2/100ms burst=20; change b 5/100ms burst=20",
     .after = "take b key look cost 0 = used 2"},

    /* What a bucket has used is kept while others take, are given back, or set another override. */
    {"an override of a bucket, raised", .stops = 3,
     .before = "add b 2/100ms burst=2 overrides; take b key", .a = "override b key 20 100",
     .b = "take b key rest", .after = "take b key rest; take b key look cost 0 = used 20"},
    {"an override of a bucket, lifted", .stops = 3,
     .before = "add b 20/100ms burst=20 overrides; override b key 2 100; take b key",
     .a = "clear b key", .b = "take b key rest",
     .after = "take b key rest; take b key look cost 0 = used 20"},
    {"an override of a bucket that is given back", .stops = 3,
     .before = "add b 2/100ms burst=2 overrides; take b key x2", .a = "override b key 20 100",
     .b = "refund b key 1 of 10; take b key rest", .after = "take b key rest"},
    {"two overrides of a bucket at once", .stops = 3,
     .before = "add b 2/100ms burst=2 overrides; take b key", .a = "override b key 20 100",
     .b = "override b key 10 100; take b key rest", .after = "take b key rest"},

    /* A group that is refused after all gives a bucket back what it took, to the ns, though the
     * rate or the key's override is another by then; so does who gives it back. */
    {"a group that gives a bucket back", .stops = 1,
     .before = "add b 10/s burst=10; add o 2/1000s; take o key; take b key cost 9",
     .a = "all b key + o key; back b key; take b key look cost 0 = used 9 window 90",
     .b = "take o key"},
    {"a group that gives a bucket back by a limit of its own", .stops = 1,
     .before = "add b 10/s burst=10; add o 2/1000s; take o key",
     .a = "all b key limit 1 + o key; back b key; take b key look cost 0", .b = "take o key"},
    {"a group that gives back to a bucket that is larger", .stops = 1, .of_policies = true,
     .before = "add b 10/s burst=10; add o 2/1000s; take o key; take b key cost 9",
     .a = "all b key + o key; back b key; take b key look cost 0 = used 9",
     .b = "take o key; change b 100/s burst=100"},
    {"a group that gives back to a bucket that is smaller", .stops = 1, .of_policies = true,
     .before = "add b 10/s burst=10; add o 2/1000s; take o key; take b key cost 9",
     .a = "all b key + o key", .b = "take o key; change b 1/s burst=1",
     .after = "turn 100; take b key = yes"},
    {"a group that gives back by an override", .stops = 1,
     .before = "add b 10/s burst=10 overrides; add o 2/1000s; take o key; take b key cost 9",
     .a = "all b key + o key", .b = "take o key; override b key 1 1000",
     .after = "take b key look cost 0 = used 1 capacity 1"},

    /* The policy of a key's first request goes while the request claims a slot. Nothing is left of
     * the claim when the policy is swept. */
    {"a claim by a policy that is removed", .stops = 1, .of_policies = true,
     .before = "add s 8/20000s; take s other", .a = "take s key", .b = "remove s", .after = "tidy"},
    {"a claim by a policy that is replaced", .stops = 1, .of_policies = true,
     .before = "add s 8/20000s; take s other", .a = "take s key", .b = "apply 8/10000s name=s",
     .after = "tidy"},

    /* At any step of a replacement, its name is that of the policy by which decisions are made. */
    {"a name amid a replacement", .stops = 1, .at_instant = true, .instant = INSTANT_SET_UP,
     .before = "add p 10/100s",
     .a = "apply 10/50s name=p", .b = "find p"},

    /* A late request's slot goes to a rival who uses it up, and back to its key, which has 9 tokens
     * of 10. */
    {"a group by the state of another", .stops = 2,
     .before = "turn -10000; take long key; hold 3; turn 0",
     .a = "all long key at 0 + once other = yes + yes", .b = "take long third cost 10",
     .c = "turn 10100; take long key"},

    /* A key is told once that it was refused first, if only in the shadow, also by a part of a
     * group that is given back: no look tells it. The statistics count those that were told. */
    {"a first refusal in a group, in the shadow", .stops = 1,
     .before = "add p 1/100s shadow; take long key cost 9; take p key", .a = "all long key + p key",
     .b = "take long key", .after = "take p key"},
    {"a first refusal of a shadow that is lifted, and given back", .stops = 1, .of_policies = true,
     .before = "add s 1/100s shadow; add o 1/1000s", .a = "all s key cost 2 + o key",
     .b = "change s 9/100s; take o key", .after = "take s other"},
    {"a first refusal of a shadow that is given back", .stops = 1,
     .before = "add s 2/100s shadow stripes=2; add o 1/1000s", .a = "all s key + o key",
     .b = "take s key cost 2; take o key"},
    {"a first refusal in a group", .stops = 1,
     .before = "add p 5/100s; take long key cost 9; take p key", .a = "all long key + p key",
     .b = "take long key", .after = "take p key look = counted"},

    /* "A shadow counts no strikes, and bans nobody." Who was refused in the window in which it is
     * lifted is banned in the next one. A ban from before lets through meanwhile. */
    {"a shadow that is lifted", .stops = 1, .of_policies = true,
     .before = "add p 1/100ms shadow ban=1s; take p key x2 quiet; take p other",
     .a = "take p other quiet", .b = "change p 1/100ms ban=1s",
     .after = "take p key = no; take p key look = capacity 1; turn 10; take p key = yes;"
              "take p key = no first; take p key look = no capacity 0"},
    {"a ban from before a shadow", .stops = 1, .of_policies = true,
     .before = "add p 1/100ms ban=1s; take p key x2 quiet", .a = "take p key quiet",
     .b = "change p 1/100ms shadow ban=1s",
     .after = "turn 10; take p key quiet = yes capacity 0; change p 1/100ms ban=1s;"
              "take p key = no capacity 0"},

    /* "2^28 never refuses": what is let through takes nothing, whoever decides meanwhile. */
    {"a key that is never refused for a while", .stops = 1,
     .before = "add p 5/100s capacity=10 overrides; take p key cost 10",
     .a = "take p key quiet; take p key charge cost 3 quiet",
     .b = "override p key 268435456 100000; take p key drain cost 4 quiet = yes granted 0",
     .after = "clear p key; take p key look = used 10; take p key = no"},

    /* Who is late and has no slot is told by a look in which window he would be: another key was
     * done with a slot near it later than his now. */
    {"a late look at a key without a slot",
     .before = "add q 5/20ms; take two key; take q h1; take two other; take two third; turn 10;"
               "take two h2",
     .a = "take two h3 look at 5 = window 20; take two h3 look at 5 long = window 20",
     .after = "take two h3 at 5 = window 20"},

    /* A reset takes the mark, too: whoever is refused again is told so, and banned again. */
    {"a reset beside a first refusal", .stops = 1, .before = "take one key",
     .a = "take one key quiet", .b = "reset one key",
     .after = "take one key x2 quiet; take one key look = used 1"},
    {"a key that is banned again after a reset",
     .before = "add p 1/100s ban=2000s; take p key x2 quiet; take p key look = no capacity 0",
     .a = "reset p key",
     .after = "take p key = yes; take p key = no first; take p key look = capacity 0"},
    {"a bucket's key that is banned again after a reset",
     .before = "add p 1/100s burst=2 ban=2000s; take p key x3 quiet;"
               "take p key look = no capacity 0",
     .a = "reset p key",
     .after = "take p key x2 = yes; take p key = no first; take p key look = capacity 0"},

    /* Each part that does not fit is decided as a request alone, and no other. */
    {"a refused group", .before = "add p 3/100s; add q 1/100s; take q key",
     .a = "all p key cost 2 + q key = yes used 0 granted 0 + no first used 1;"
          "all p key cost 4 + q other = no first used 0 + yes used 0;"
          "take p key look cost 0 = used 0; take q other look cost 0 = used 0"},

    /* A group that has lost a race, and fits nevertheless, is charged once. */
    {"a group after a race", .stops = 1,
     .before = "add p 5/100s; take long key x2; take long other x2; take p key",
     .a = "all long key + p key + long other = yes + yes + yes", .b = "take long key",
     .after = "take long key look = used 4; take long other look = used 3"},
    {"a group after a race, in the next window", .stops = 1,
     .before = "add p 5/100s; take long key x2; take long other x2; take p key",
     .a = "all long key + p key + long other = yes + yes + yes", .b = "turn 10000; take long key",
     .after = "take long key look = counted; take p key look = counted;"
              "take long other look = counted"},
    {"a group after a race, unasked", .stops = 1,
     .before = "add p 5/100s; take long key x2; take long other x2; take p key",
     .a = "all long key + p key + long other unasked", .b = "take long key quiet",
     .after = "take long key look quiet = used 4; take p key look quiet = used 2;"
              "take long other look quiet = used 3"},
};
/* clang-format on */

/* Plays one in so many if two threads are stopped. Returns the number of plays. */
static unsigned play_drawn(const struct scene *scene, uint64_t one_in, uint64_t seed) {
    const struct outcome outcome = scene_play(scene, 0, one_in, seed);
    if (outcome.broken[0] != '\0')
        fail_outcome(scene->name, &outcome);
    return outcome.plays;
}

static unsigned play(const struct scene *scene) {
    return play_drawn(scene, 1, 0);
}

/* Those of two threads that are stopped have up to 100,000 plays: here some of them, by the stress
 * suite all. */
TEST(test_scenes) {
    const uint64_t divisor = environment_number("STINT_TEST_DIVISOR", 1);
    const uint64_t one_in = environment_number("STINT_TEST_FACTOR", 1) > 1 ? 1 : 16 * divisor;
    const uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        (void)play_drawn(&scenes[i], one_in, seed);
}

/* ---- Deaths ---------------------------------------------------------------------------------- */

/* Whoever comes after a death is granted what is left and never more, and finds at most what the
 * dead was about to take gone (A, B). With the next window all of it is over. */
/* clang-format off */
#define THEN_TWO \
    "take two key rest x8; turn 40; take two key x2 = yes; take two key = no"
#define THEN_STRIPED \
    "take striped key rest x8; turn 40; take striped key x4 = yes; take striped key = no"
#define STRUCK "take r key cost 100"
#define THEN_RULED \
    "; turn 11; override r key 3 21; take r key look cost 0 = capacity 3; clear r key;" \
    "take r key look cost 0 = capacity 2"
#define RULED "add r 2/100ms ban=1s after=2"
#define THEN_HELD \
    "; take held key rest x8; turn 60; take held key look cost 0 = used 0;" \
    "take held key x2 = yes; take held key = no"

static const struct scene deaths[] = {
    {"a new key", .dies = true, .a = "take two key", .after = THEN_TWO},
    {"a new key and a cost", .dies = true, .a = "take two key cost 2", .after = THEN_TWO},
    {"a key that is there", .dies = true, .before = "take two key", .a = "take two key",
     .after = THEN_TWO},
    {"up to a refusal", .dies = true, .a = "take two key x3", .after = THEN_TWO},
    {"a new window", .dies = true, .before = "take two key x3; turn 10", .a = "take two key",
     .after = THEN_TWO},
    {"a new window and a cost", .dies = true, .before = "take two key x3; turn 10",
     .a = "take two key cost 2", .after = THEN_TWO},
    {"a slot that is taken over", .dies = true, .before = USED_LINE, .a = "take two key",
     .after = THEN_TWO},
    {"a slot that is replaced", .dies = true, .on_full = STINT_FULL_REPLACE,
     .before = "hold 4 cost 9", .a = "take two key", .after = THEN_TWO},
    {"stripes", .dies = true, .a = "take striped key cost 2", .after = THEN_STRIPED},
    {"a window of the first request", .dies = true, .before = "take first key; turn 10",
     .a = "take first key", .after = "take first key; turn 40; take first key = yes"},
    {"a month", .dies = true, .before = "take month key; turn 674560005", .a = "take month key",
     .after = "take month key; take month other = yes"},
    {"tokens that roll over", .dies = true, .before = "add p 2/100ms capacity=4",
     .a = "take p key cost 2",
     .after = "take p key rest x8; turn 40; take p key x4 = yes; take p key = no"},
    {"a group", .dies = true, .a = "all two key + striped key + long h0", .after = THEN_TWO},
    {"a refund", .dies = true, .before = "take two key", .a = "take two key; back two key",
     .after = THEN_TWO},
    {"a reset", .dies = true, .before = "take two key x3", .a = "reset two key quiet",
     .after = "take two key look cost 0 quiet = used 2 or 0"},

    /* The key has the one limit or the other, and the next one does the same without being held up.
     * Whoever is refused a second time is banned. */
    {"an override", .dies = true, .before = RULED, .a = "override r key 5 20",
     .after = "take r key look cost 0 = capacity 2 or 5" THEN_RULED},
    {"an override in a slot that is taken over", .dies = true, .before = RULED "; " USED_LINE,
     .a = "override r key 5 20", .after = "take r key look cost 0 = capacity 2 or 5" THEN_RULED},
    {"an override that is lifted", .dies = true, .before = RULED "; override r key 5 30",
     .a = "clear r key", .after = "take r key look cost 0 = capacity 5 or 2" THEN_RULED},
    {"an override of a bucket", .dies = true,
     .before = "add b 2/100ms burst=2 overrides; take b key x2", .a = "override b key 20 20",
     .after = "take b key look cost 0 = used 20 or 2; override b key 20 20;"
              "take b key look cost 0 = used 20 or 2; turn 10; take b key cost 20 = yes;"
              "take b key = no"},
    {"an override of a bucket that is lifted", .dies = true,
     .before = "add b 20/100ms burst=20 overrides; override b key 2 20; take b key x2",
     .a = "clear b key",
     .after = "take b key look cost 0 = used 20 or 2; turn 10; clear b key;"
              "take b key cost 20 = yes; take b key = no"},
    {"a strike", .dies = true, .before = RULED, .a = STRUCK,
     .after = "take r key look cost 0 = capacity 2" THEN_RULED},
    {"a ban", .dies = true, .before = RULED "; " STRUCK "; turn 10", .a = STRUCK,
     .after = "take r key look cost 0 = capacity 2 or 0" THEN_RULED},
    {"an override of a banned key", .dies = true, .before = RULED "; " STRUCK "; turn 10; " STRUCK,
     .a = "override r key 5 20", .after = "take r key look cost 0 = capacity 0 or 5" THEN_RULED},
    {"a reset of a banned key", .dies = true, .before = RULED "; " STRUCK "; turn 10; " STRUCK,
     .a = "reset r key", .after = "take r key look cost 0 = capacity 0 or 2" THEN_RULED},
    {"a ban that is lifted", .dies = true, .before = RULED "; " STRUCK "; turn 10; " STRUCK,
     .a = "clear r key", .after = "take r key look cost 0 = capacity 0 or 2" THEN_RULED},

    /* What the dead held is counted as a whole or not at all, and forgotten within two leases. */
    {"what is held", .dies = true, .a = "take held key cost 2",
     .after = "take held key look cost 0 = used 0 or 2" THEN_HELD},
    {"what is given back", .dies = true, .before = "take held key x2",
     .a = "refund held key 1 of 10 quiet",
     .after = "take held key look cost 0 = used 2 or 1" THEN_HELD},
    {"what is given back in the next window", .dies = true, .before = "take held key x2; turn 10",
     .a = "refund held key 1 of 10 quiet",
     .after = "take held key look cost 0 = used 2 or 1" THEN_HELD},
    {"what is held and given back", .dies = true, .before = "take held key",
     .a = "take held key quiet; back held key",
     .after = "take held key look cost 0 = used 2 or 1; refund held key 1 of 10" THEN_HELD},
    {"what is held as one", .dies = true, .a = "all two key + held key + long h0; back held key",
     .after = "take held key look cost 0 = used 1 or 0" THEN_HELD},
};
/* clang-format on */

TEST(test_deaths) {
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++)
        assert_true(play(&deaths[i]) > 3);
}

/* ---- Scenes of one form ---------------------------------------------------------------------- */

enum { FORM_MAX = 300 };

/* A part of a group tells its look, if another is refused after all: at any step somebody takes the
 * last token of the other's key. */
TEST(test_looks_of_a_refused_group) {
    static const char *const policies[] = {
        "20/100s near=30%",    "20/100s stripes=2", "20/100s smooth",      "20/100s burst=20",
        "15/100s capacity=20", "20/100s in-flight", "20/100s start=first", "20/100s overrides"};
    static const char *const groups[] = {
        "all p key cost 2 + o key = else yes used 5 granted 0 capacity 20 plain",
        "all o key + p key cost 2 = + else yes used 5 granted 0 capacity 20 plain"};
    for (unsigned i = 0; i < 2 * sizeof policies / sizeof policies[0]; i++) {
        char before[FORM_MAX];
        FORM(before, "add p %s; add o 2/100s; take p key cost 5 = yes; take o key = yes",
             policies[i / 2]);
        (void)play(&(struct scene){
            policies[i / 2], .stops = 1, .before = before, .a = groups[i % 2], .b = "take o key",
            .after = i / 2 == 3 || i / 2 == 4 ? "take p key look cost 0"
                                              : "take p key look cost 0 = counted"});
    }
}

/* A claim of an override that its process has left is the next one's, whenever that comes. */
TEST(test_left_claims_of_overrides) {
    static const uint64_t days[] = {0, 1, 576, 700, 1600};
    for (size_t i = 0; i < sizeof days / sizeof *days; i++) {
        const uint64_t ticks = days[i] * 8640000;
        char after[FORM_MAX];
        FORM(after,
             "turn %" PRIu64 "; override ruled key 1 %" PRIu64 "; turn %" PRIu64
             "; take ruled key look cost 0 quiet = capacity 1; turn %" PRIu64
             "; take ruled key look cost 0 quiet = capacity 2",
             ticks, ticks + 360000, ticks + 359999, ticks + 360000);
        (void)play(&(struct scene){"a claim that was left", .dies = true,
                                   .a = "override ruled key 9 6000", .after = after});
    }
}

/* B: what never fits takes nothing on the way to its refusal. Whoever takes one of the key's last 4
 * tokens meanwhile, at whichever step, gets it. */
TEST(test_stripes_refuse_nobody) {
    static const char *const words[] = {"", "look", "look charge"};
    for (unsigned stripes = 2; stripes <= 4; stripes *= 2)
        for (unsigned i = 0; i < 9; i++) {
            char before[FORM_MAX], request[FORM_MAX];
            FORM(before, "add s 8/20000s stripes=%u; take s key x4 = yes", stripes);
            FORM(request, "take s key cost %u %s = no", 5 + 2 * (i / 3), words[i % 3]);
            (void)play(&(struct scene){request, .stops = 1, .before = before, .a = request,
                                       .b = "take s key = yes; back s key"});
        }
}

/* One of two tokens is used. Others give it back and take one, of another stripe perhaps: the
 * second one is there all the time. */
TEST(test_stripes_see_the_last_token) {
    for (unsigned pair = 0; pair < 8; pair++) {
        const unsigned number = 2 + pair / 4;
        char before[FORM_MAX], a[FORM_MAX], b[FORM_MAX];
        FORM(before,
             "add s 2/20000s stripes=2; as %u; take s key cost 2 = yes;"
             "refund s key 2 of 2000000 = back 2; as %u; take s key = yes",
             number, 2 + pair / 2 % 2);
        FORM(a, "as %u; take s key = yes", number);
        FORM(b, "as %u; refund s key 1 of 2000000 = back 1; take s key = yes", 2 + pair % 2);
        (void)play(&(struct scene){"stripes see the last token", .stops = 1, .before = before,
                                   .a = a, .b = b});
    }
}

/* A request is judged by one rule, the old or the new: what neither grants it does not get, what
 * both let through is, and what neither says is not said, wherever the change comes. */
TEST(test_by_one_rule) {
    static const struct {
        const char *from, *to;
        unsigned held;
        const char *request, *expected;
    } rows[] = {
        {"10/100s capacity=100", "95/100s capacity=96", 95, "cost 100", "most 0"},
        {"10/100s capacity=100", "95/100s capacity=96", 95, "cost 100 partial", "most 96"},
        {"10/100s reserve=1", "5/100s reserve=6", 0, "cost 16 reserve", "most 0"},
        {"4/100s in-flight", "1/100s in-flight shadow", 2, "cost 1", "most 1 yes"},
        {"10/100s reserve=1", "1/100s reserve=1 shadow", 5, "reserve", "most 1 yes"},
        {"4/100s near=50%", "4/100s", 0, "cost 1", "most 1 yes far"},
    };
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        char before[FORM_MAX], a[FORM_MAX], b[FORM_MAX];
        FORM(before, "add p %s; take p key cost %u; turn 10000", rows[i / 2].from,
             rows[i / 2].held);
        FORM(a, "%s p key %s%s quiet = %s", i % 2 == 0 ? "take" : "all", rows[i / 2].request,
             i % 2 == 0 ? "" : " + once other", rows[i / 2].expected);
        FORM(b, "change p %s", rows[i / 2].to);
        (void)play(&(struct scene){rows[i / 2].to, .stops = 1, .of_policies = true,
                                   .before = before, .a = a, .b = b});
    }
}

/* A: the last tokens go to others, and then the policy goes; who is on his way has none of them. */
TEST(test_no_more_of_a_removed_policy) {
    static const char *const requests[] = {"take s key", "take s key cost 3",
                                           "all s key + once other"};
    for (unsigned i = 0; i < 12; i++) {
        char before[FORM_MAX];
        FORM(before, "add s 8/20000s%s%s", i % 2 == 1 ? " stripes=2" : "",
             i / 2 % 2 == 1 ? "; take s key" : "");
        (void)play(&(struct scene){requests[i / 4], .stops = 1, .of_policies = true,
                                   .before = before, .a = requests[i / 4],
                                   .b = "take s key rest; remove s"});
    }
}

/* While a request is stopped its policy is replaced, comes back under its id, and is used up. A key
 * finds all of its limit there, and no more, whatever was counted before. */
TEST(test_policy_that_comes_back) {
    static const char *const kinds[] = {
        "8/20000s",         "8/20000s stripes=2",     "8/20000s smooth",    "8/20000s start=first",
        "8/20000s burst=8", "8/20000s count-refused", "8/20000s overrides", "8/20000s in-flight"};
    static const char *const requests[] = {"take s key quiet", "take s key cost 2 quiet",
                                           "take s key cost 3 partial quiet",
                                           "all s key cost 3 + two other quiet"};
    for (size_t i = 0; i < 4 * sizeof kinds / sizeof kinds[0]; i++) {
        char before[FORM_MAX], b[FORM_MAX];
        FORM(before, "add s %s; take s key x6 quiet", kinds[i / 4]);
        FORM(b, "apply 8/10000s name=s; apply %s name=s; turn 2; take s key x8 quiet = yes",
             kinds[i / 4]);
        (void)play(&(struct scene){kinds[i / 4], .stops = 1, .of_policies = true, .before = before,
                                   .a = requests[i % 4], .b = b, .after = "take s key quiet = no"});
    }
}

/* ---- Pairs of calls -------------------------------------------------------------------------- */

/* What a thread does: the time is 2, and 12 is in the next window. */
static const char *const calls[] = {
    "take p key at 2",
    "take p key cost 2 at 2",
    "take p key cost 3 partial at 2",
    "take p key cost 2 drain at 2",
    "take p key limit 2 at 2",
    "take p key limit 5 at 2",
    "take p key cost 2 reserve at 2",
    "take p key look at 2",
    "take p key cost 2 charge at 2",
    "take p key look charge at 2",
    "take p key cost 2 tentative at 2",
    "take p key at 12",
    "take p key cost 2 at 12",
    "take p key at -1",
    "take p key cost 2 at -1",
    "take p other at 2",
    "take p other at 12",
    "all p key + second key at 2",
    "refund p key 1 of 10",
    "refund p key 3 of 10",
    "reset p key",
    "override p key 2 32",
    "override p key 5 32",
    "override p key 0 32",
    "clear p key",
    "change p 2", /* and what its policy has */
    "change p 5",
    "remove p",
    "apply 2/250ms name=p",
};
enum { CALLS = sizeof calls / sizeof calls[0], SET_UP = CALLS - 4 };

/* By which policy. */
static const char *const rules[] = {
    "/100ms",
    "/100ms count-refused",
    "/100ms shadow",
    "/100ms near=50%",
    "/100ms reserve=2",
    "/100ms capacity=5",
    "/100ms smooth",
    "/100ms start=first",
    "/month",
    "/100ms start=per-key",
    "/100ms stripes=2",
    "/100ms in-flight",
    "/100ms overrides",
    "/100ms ban=200ms",
    "/100ms burst=4",
    "/70ms burst=2 reserve=2",
    "/100ms burst=3 overrides",
    "/40ms burst=4 ban=80ms",
};

/* In which table: an empty one; one whose last slot falls free, all have, or the last has and all
 * will in the next window; a full one; the key has taken some; it did in the window before; it has
 * used up the second policy; it has an override. */
static const char *const tables[] = {
    "turn 2",
    "take brief h10 at -3; hold 3",
    "take brief h0 at -3; take brief h1 at -3; take brief h2 at -3; take brief h3 at -3",
    "take second h0; take second h1; take second h2; take brief h10 at -3",
    "hold 4",
    "take p key",
    "take p key x2",
    "take p key x3",
    "take p key x4",
    "take p key x2 at -8",
    "take second key x3; take p key",
    "override p key 2 32; take p key",
};
enum { RULES = sizeof rules / sizeof rules[0], TABLES = sizeof tables / sizeof tables[0] };

static bool is_of_overrides(const char *act) {
    return strncmp(act, "override", 8) == 0 || strncmp(act, "clear", 5) == 0;
}

/* Plays the pair, its first thread stopped at each step in turn, and then both at some. */
static void play_pair(const char *rule, const char *table, uint64_t a, uint64_t b, uint64_t seed) {
    char before[FORM_MAX], name[FORM_MAX], acts[2][FORM_MAX];
    const bool rules_keys = strstr(rule, "overrides") != NULL || strstr(rule, "ban") != NULL;
    const bool next = strstr(calls[a], "at 12") != NULL || strstr(calls[b], "at 12") != NULL;
    const bool sets_up = a >= SET_UP || b >= SET_UP;
    if ((a >= SET_UP && b >= SET_UP) || /* one waits for the other */
        (!rules_keys &&
         (is_of_overrides(table) || is_of_overrides(calls[a]) || is_of_overrides(calls[b]))))
        return;
    FORM(before, "add p 3%s; add second 3/100ms; add brief 10/10ms; turn 2; %s; turn %d", rule,
         table, next ? 12 : 2);
    for (unsigned i = 0; i < 2; i++) {
        const char *call = calls[i == 0 ? a : b];
        FORM(acts[i], "%s%s", call, strncmp(call, "change", 6) == 0 ? rule : "");
    }
    FORM(name, "3%s, %s: %s | %s", rule, table, acts[0], acts[1]);
    struct scene scene = {name,
                          .stops = 1,
                          .in_order = true,
                          .of_policies = sets_up,
                          .before = before,
                          .a = acts[0],
                          .b = acts[1],
                          .after = "take p key look; take p key"};
    (void)play(&scene);
    scene.stops = 3;
    if (!sets_up)
        (void)play_drawn(&scene, 1000, seed);
}

/* Some of them, the same ones each time: what fails comes from a change. STINT_TEST_SEED=N begins
 * elsewhere. */
TEST(test_pairs) {
    enum { PAIRS = RULES * TABLES * CALLS * CALLS, STRIDE = 48611 /* prime */, PLAYED = 250 };
    const uint64_t pairs = PLAYED * environment_number("STINT_TEST_FACTOR", 1) /
                           environment_number("STINT_TEST_DIVISOR", 1);
    struct random random = {environment_number("STINT_TEST_SEED", 1)};
    uint64_t pair = random_below(&random, PAIRS);
    for (uint64_t i = 0; i < pairs; i++, pair = (pair + STRIDE) % PAIRS)
        play_pair(rules[pair % RULES], tables[pair / RULES % TABLES], pair / RULES / TABLES % CALLS,
                  pair / RULES / TABLES / CALLS, pair);
}
