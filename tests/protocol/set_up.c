/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Set-up in scenes: a process dies before each step of a call that adds, changes, replaces or
 * removes policies, opens the table or names a key, and whoever comes next finishes or undoes what
 * it has begun; and readers at each step of what others set up. (Beside decisions: scenes.c.) */
#include "fixture.h"
#include "random.h"
#include "scene.h"

enum { FORM_MAX = 400 };

/* The stress suite's run stops at all steps, but of those that look at the many slots of a table in
 * a file one by one at one in 16. Here some are tried. They are others each time. */
static void play(const struct scene *scene) {
    const bool all = environment_number("STINT_TEST_FACTOR", 1) > 1;
    const uint64_t divisor = environment_number("STINT_TEST_DIVISOR", 1);
    static uint64_t seed;
    if (seed == 0) {
        seed = test_seed();
        scene_one_in = all ? 1 : 6;
    }
    const uint64_t one_in = !all ? 48 * divisor : scene->in_file ? 16 : 1;
    const struct outcome outcome = scene_play(scene, 0, one_in, seed);
    if (outcome.broken[0] != '\0')
        fail_msg("%s: %s (stopped at %u, %u, %u)", scene->name, outcome.broken, outcome.stops[0],
                 outcome.stops[1], outcome.stops[2]);
    assert_true(outcome.plays > 3 || scene->stops == 3);
}

/* ---- Deaths ---------------------------------------------------------------------------------- */

/* clang-format off */
#define DIES .dies = true, .of_policies = true

/* All that there was decides as before, and what is added next does. */
#define THEN_ALL \
    "take two key rest; take two key look = used 2; add q 3/100s; take q key x3 = yes;" \
    "take q key = no"

/* Three policies, of which the key has used something. */
#define THREE \
    "add p 7/100s; add s 9/100s stripes=4; add c 5/100s capacity=10; take p key; take s key;" \
    "take c key"

static const struct scene deaths[] = {
    {"a policy that is added", DIES, .before = "take two key",
     .a = "add n 7/100s", .after = THEN_ALL "; add n 7/100s; take n key x7 = yes; take n key = no"},
    {"attaching", DIES, .before = "take two key", .a = "open; take two key",
     .after = THEN_ALL "; open; take two key = no; take q key look = used 3"},

    /* A change is made whole or not at all, and what comes after it finds one or the other. */
    {"a limit that is changed", DIES, .before = "add p 5/100s; take p key", .a = "change p 4/100s",
     .after = "add q 1/100s; find p 5/100s or 4/100s; take p key rest;"
              "take p key look = capacity 5 or 4; change p 8/100s; find p 8/100s;"
              "take p key rest; take p key look = used 8"},
    {"a policy that carries more", DIES, .before = "add p 5/100s capacity=10; take p key x10",
     .a = "change p 15/100s capacity=20", /* a debt by one rule */
     .after = "turn 10000; take p key rest; take p key look = used 10 or 20; add q 1/100s;"
              "find p 5/100s capacity=10 or 15/100s capacity=20"},

    /* What a bucket's key has used stays used, in tokens, whoever dies while its rate changes; and
     * when it changes again. */
    {"a bucket's rate", DIES, .before = "add b 10/100s burst=10; take b key x4",
     .a = "change b 100/100s burst=10",
     .after = "take b key look cost 0 = used 4; take b other x2; change b 5/100s burst=10;"
              "take b key look cost 0 = used 4; take b other look cost 0 = used 2;"
              "change b 10/100s burst=3; take b key look cost 0 = used 3; take b key = no"},

    /* Of each policy that another one takes the place of, or none, there is the old one or the new
     * one at any instant, and applying again finishes. */
    {"a policy that is replaced", DIES, .before = THREE, .a = "apply 5/200s name=p",
     .after = "find p 7/100s or 5/200s; find s 9/100s stripes=4; take p key; apply 5/200s name=p;"
              "find p 5/200s; take p key rest; find p 5/200s; tidy; open; find p 5/200s;"
              "find s 9/100s stripes=4; take p key = no"},
    {"several that are replaced, added and removed", DIES, .before = THREE,
     .a = "prune 6/s name=n\n5/100s name=p\n8/200s name=s stripes=2",
     .after = "find p 7/100s or 5/100s; find s 9/100s stripes=4 or 8/200s stripes=2;"
              "find c 5/100s capacity=10 or none; find n none or 6/s; take p key; take s key;"
              "prune 6/s name=n\n5/100s name=p\n8/200s name=s stripes=2;"
              "find p 5/100s; find s 8/200s stripes=2; find c none; find n 6/s; tidy;"
              "take s key rest; take n key = yes; open;"
              "find p 5/100s; find s 8/200s stripes=2; find c none; find n 6/s"},
    {"a policy that is removed", DIES, .before = THREE, .a = "remove p",
     .after = "find p 7/100s or none; take s key; take c key;"
              "prune 9/100s name=s stripes=4\n5/100s name=c capacity=10; find p none;"
              "find s 9/100s stripes=4; find c 5/100s capacity=10; tidy; turn 2; open; find p none;"
              "take s other = placed; take c other = placed"},

    /* Whose ids are used again: nothing that was counted or set before is there. */
    {"a policy that is back", DIES,
     .before = THREE "; apply 5/200s name=p; turn 2; take p key x2 quiet",
     .a = "apply 7/100s name=p",
     .after = "find p 5/200s or 7/100s; find s 9/100s stripes=4; take p key quiet; turn 4;"
              "apply 7/100s name=p; find p 7/100s; take p key rest quiet;"
              "take p key look quiet = used 7;"
              "apply 5/200s name=p; turn 6; find p 5/200s; take p key look quiet = used 0;"
              "tidy 4"},
    {"a policy that is added again", DIES, .before = THREE "; remove p; turn 2",
     .a = "add p 9/100s", .after = "find p none or 9/100s; add p 9/100s; find p 9/100s;"
                                   "take p key rest quiet; take p key look quiet = used 9; tidy 3"},
    {"a sweep that is cut off", DIES, .before = "add p 7/100s; take p key x6",
     .a = "apply 5/200s name=p",
     .after = "turn 2; take p key quiet; apply 7/100s name=p; take p key look quiet = used 7 or 0"},
    {"overrides that are back", DIES,
     .before = "add r 2/100s overrides; override r other 0 10000; apply 4/200s name=r",
     .a = "apply 2/100s overrides name=r",
     .after = "find r 4/200s or 2/100s overrides; apply 2/100s overrides name=r; turn 4;"
              "take r other quiet = yes; override r other 3 10000;"
              "take r other cost 4 look quiet = capacity 3; tidy 3"},

    /* A policy gets its companion, or the next one gives it. */
    {"a policy that gets overrides", DIES, .before = "add r 2/100s", .a = "change r 2/100s ban=1h",
     .after = "open; change r 2/100s ban=1h; override r key 3 10000;"
              "take r key cost 4 look = capacity 3; tidy 2; open; take r key look = over"},
    {"a policy that is added with overrides", DIES, .a = "add r 2/100s ban=1h",
     .after = "open; add r 2/100s ban=1h; override r key 3 10000;"
              "take r key cost 4 look = capacity 3; tidy 2; open; take r key look = over"},

    /* An opener who is alone makes ids free, and the next one finishes that. */
    {"ids that fall free", DIES, .in_file = true,
     .before = THREE "; take p key rest; prune 8/200s name=s stripes=2\n7/100s name=p;"
               "take s key rest; close",
     .a = "open",
     .after = "open; tidy 2; find p 7/100s; find s 8/200s stripes=2; find c none;"
              "take p key look = used 7; take s key look = used 8; add x 3/100s; add y 3/100s;"
              "tidy 4; find x 3/100s; find y 3/100s; take x key x3 = yes; take x key = no;"
              "take y key x3 = yes; take y key = no"},
    {"an id that falls free with its slots", DIES, .in_file = true,
     .before = "add c 5/100s; take c key rest", .a = "remove c",
     .after = "close; open; tidy; add x 3/100s; take x key x3 = yes; take x key = no"},
};
/* clang-format on */

TEST(test_deaths) {
    if (emulated("robust mutexes"))
        skip();
    for (size_t i = 0; i < sizeof deaths / sizeof deaths[0]; i++)
        play(&deaths[i]);
}

/* Whoever dies while a policy with overrides and bans is changed, replaced or removed, or while
 * one gets them: there is the old one, with all that was set, or the new one, with it if that has
 * overrides. Applying again finishes, and in the end no id is lost; there may be free ones between
 * those in use. */
TEST(test_deaths_in_hand_over) {
    static const struct {
        const char *name, *before, *after; /* the policy */
        const char *then;                  /* what was set for `r` */
        unsigned ids;                      /* in use afterwards */
    } rows[] = {
#define RULED "2/100s ban=1h"
#define STAYS "take r other look cost 0 quiet = capacity 3; take r third look quiet = no"
        {"r", RULED, "4/200s ban=2h", STAYS, 3},
        {"r", RULED, "4/200s", "take r other look cost 0 quiet = capacity 3 or 4", 2},
        {"r", RULED, "5/100s ban=2h after=3", STAYS, 3},
        {"r", RULED, "5/100s", "take r other look cost 0 quiet = capacity 3 or 5", 3},
        {"r", RULED, "none", "take p key", 1},
        {"n", "none", "4/200s ban=3h after=2", STAYS, 5},
        {"p", "5/100s", "4/200s ban=3h after=2", STAYS, 4},
    };
    if (emulated("robust mutexes"))
        skip();
    for (size_t i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        const bool removed = strcmp(rows[i / 2].after, "none") == 0;
        const char *name = rows[i / 2].name, *old = rows[i / 2].before, *new = rows[i / 2].after;
        char before[FORM_MAX], a[FORM_MAX], after[FORM_MAX], again[FORM_MAX], ids[FORM_MAX] = "";
        FORM(before,
             "%s add p 5/100s; add r " RULED
             "%s; override r other 3 100000; take r third cost 3 quiet; find r",
             i % 2 == 0 ? "" : "add x 1/100s; add y 1/100s;",
             i % 2 == 0 ? "" : "; remove x; remove y; close; open");
        FORM(a, removed ? "remove r" : "apply %s name=%s", new, name);
        FORM(again, removed ? "prune 5/100s name=p" : "apply %s name=%s", new, name);
        if (strcmp(old, "none") == 0)
            FORM(ids, " %u", rows[i / 2].ids); /* all are in use */
        FORM(after,
             "find %s %s or %s; %s; %s; find %s %s; %s; tidy%s; close; open; tidy %u; find %s %s",
             name, old, new, rows[i / 2].then, again, name, new, rows[i / 2].then, ids,
             rows[i / 2].ids, name, new);
        play(&(struct scene){after, DIES, .in_file = true, .before = before, .a = a,
                             .after = after});
    }
}

/* ---- Costs ----------------------------------------------------------------------------------- */

static uint64_t steps;

static void count_step(const void *word) {
    (void)word;
    steps++;
}

static void replace(struct stint_limiter *limiter, unsigned seconds) {
    char text[FORM_MAX];
    FORM(text, "7/%us name=x", seconds);
    assert_int_equal(stint_policies_apply(limiter, text, 0, NULL, NULL, NULL), 0);
}

/* The atomic operations of a decision by the name's first id, and of finding it. */
static void costs_count(struct stint_limiter *limiter, uint64_t costs[2]) {
    const stint_key key = number_key(limiter, 7);
    uint32_t found;
    for (unsigned i = 0; i < 2; i++) {
        (void)stint_take(limiter, 0, key, 1, STINT_NOW, NULL); /* it has a slot */
        steps = 0;
        stint_test_step = count_step;
        if (i == 0)
            (void)stint_take(limiter, 0, key, 1, STINT_NOW, NULL);
        if (i == 1)
            assert_int_equal(stint_policy_find(limiter, "x", &found), 0);
        stint_test_step = NULL;
        costs[i] = steps;
        assert_true(steps > 3);
    }
}

/* They are after 2,000 replacements what they are after one, within a tenth. */
TEST(test_costs_of_replacements) {
    struct stint_options options = fixture_options(100000, STINT_FULL_REFUSE);
    uint64_t first[2], last[2];
    options.max_policies = 2100;
    struct stint_limiter *limiter = open_with(&options);
    replace(limiter, 1000);
    replace(limiter, 1001);
    costs_count(limiter, first);
    for (unsigned i = 1; i <= 2000; i++)
        replace(limiter, 1001 + i);
    costs_count(limiter, last);
    assert_int_equal(get_stats(limiter).gone_ids, 2001);
    for (unsigned i = 0; i < 2; i++)
        if (last[i] * 10 > first[i] * 11)
            fail_msg("cost %u: %" PRIu64 " steps, and then %" PRIu64, i, first[i], last[i]);
    stint_close(limiter);
}

/* ---- Readers --------------------------------------------------------------------------------- */

/* While somebody looks who takes no lock, at each of his steps in turn, the policy is removed, a
 * server opens the table alone, which makes the id free, and another policy may be given it. */
TEST(test_removed_while_looked_at) {
    static const char *const kinds[] = {
        "3/100s",  "3/100s smooth",      "3/100s start=per-key",
        "3/month", "3/100s start=first", "3/100s capacity=9 reserve=9"};
    static const char *const reads[] = {"take p key cost 9 look quiet", "each", "headers p"};
    for (unsigned i = 0; i < 12 * sizeof kinds / sizeof kinds[0]; i++) {
        char before[FORM_MAX], b[FORM_MAX];
        FORM(before, "add p %s; take p key cost 3 quiet%s", kinds[i / 12],
             i % 2 == 0 ? "" : "; turn 10000"); /* the next window, into which tokens carry over */
        FORM(b, "remove p; close; open%s", i / 2 % 2 == 0 ? "" : "; add q 7/20ms; tidy 1");
        play(&(struct scene){kinds[i / 12], .stops = 1, .of_policies = true, .in_file = true,
                             .reads = true, .before = before, .a = reads[i / 4 % 3], .b = b});
    }
}

/* ---- Names of keys --------------------------------------------------------------------------- */

/* What stands in the set of four before a name is written. */
static const struct {
    const char *before;
    unsigned own;                        /* windows of the key */
    const char *killed, *others, *other; /* what is seen then: of the key, of others */
} sets[] = {
    {"", 0, "0 or 3", "", ""},
    {"label h0 1; label h1 1 x2; label key 2", 1, "0 2 or 3",
     "; seen h0 1 = used 1; seen h1 1 = used 2", ""},
    {"label h0 1; label h1 1 x2; label h2 1 x3; label h3 1 x4", 0, "0 or 3",
     "; seen h0 0 1 or 0; seen h1 1 = used 2; seen h2 1 = used 3; seen h3 1 = used 4", ""},
    {"label h0 1; label h1 1 x2; label h2 1 x3; label key 2 x2", 2, "0 2 or 3",
     "; seen h0 1 = used 1; seen h1 1 = used 2; seen h2 1 = used 3", ""},
};
enum { SETS = sizeof sets / sizeof sets[0] };

/* Who names a key dies before each of its atomic operations and stores. The name is shown whole or
 * not at all, others keep theirs, and whoever names it next heals it. */
TEST(test_deaths_in_names) {
    for (unsigned i = 0; i < SETS; i++) {
        char after[FORM_MAX];
        FORM(after, "seen key %s = used %u or %u%s; label key 3; seen key 3", sets[i].killed,
             sets[i].own, sets[i].own + 1, sets[i].others);
        play(&(struct scene){"a name", .dies = true, .before = sets[i].before, .a = "label key 3",
                             .after = after});
    }
}

/* While one names a key, another does, or looks, at each step of the first, and then at its own.
 * At each step of both a name is one that the key was given. Of one key no window is lost, though
 * it may have got two places. And then all is well again. */
TEST(test_two_name) {
    static const char *const rivals[] = {"label key 1", "label key 3", "label other 2",
                                         "label h0 3"};
    for (unsigned i = 0; i < SETS * 4 * 2; i++) {
        const char *b = rivals[i / 2 % 4];
        char counted[FORM_MAX] = "", after[FORM_MAX];
        if (i / 2 % 4 < 2)
            FORM(counted, "= used %u", sets[i / 8].own + 2);
        FORM(after, "seen key 0 1 3 %s; label key 1; seen key 1; %s; seen %.5s %c", counted, b,
             b + 6, b[strlen(b) - 1]);
        play(&(struct scene){b, .stops = i % 2 == 0 ? 1 : 3, .before = sets[i / 8].before,
                             .a = "label key 1", .b = b, .after = after});
    }
    play(&(struct scene){"a look", .stops = 1, .before = sets[3].before, .a = "seen key 0 1 2",
                         .b = "label key 1"});
}

/* Of two texts of one length the last one counts. */
TEST(test_named_anew) {
    play(&(struct scene){"anew", .stops = 1,
                         .a = "label key 3; seen key 3; label key 4; seen key 4;"
                              "label key 4; label key 3; seen key 3 = used 4",
                         .b = ""});
}
