/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * Notes of overrides: whose they are, how long, and what is seen of them at each step of a call. */
#include "note.h" /* before cmocka, which defines fail() as well */

#include "directory.h"
#include "told.h"

#define MANY  "1/minute overrides name=p"
#define LATER (T0 + HOUR)
#define KEY   STINT_KEY_GLOBAL_HASH /* as the key of a place that was never used */

/* What is told of a key's override. */
struct told {
    uint64_t limit;                 /* UINT64_MAX: it has none */
    char note[STINT_NOTE_SIZE + 1]; /* empty: none */
};

static bool tell(void *context, const struct stint_entry *entry) {
    struct told *told = context;

    if ((entry->flags & STINT_ENTRY_OVERRIDE) == 0)
        return true;
    told->limit = entry->limit;
    (void)snprintf(told->note, sizeof told->note, "%s", entry->note == NULL ? "" : entry->note);
    return true;
}

static struct told told_of(struct stint_limiter *limiter, uint64_t key) {
    struct told told = {.limit = UINT64_MAX};
    assert_int_equal(stint_each_of(limiter, key, tell, &told), 0);
    return told;
}

static void assert_note(struct stint_limiter *limiter, uint64_t key, const char *note) {
    assert_string_equal(told_of(limiter, key).note, note);
}

static uint64_t taken(const struct stint_limiter *limiter) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < limiter->note_sets * NOTES_IN_SET; i++)
        count += limiter->notes[i / NOTES_IN_SET].places[i % NOTES_IN_SET].whose != 0;
    return count;
}

TEST_OF(test_a_note_goes_with_its_override, 100, STINT_FULL_ADMIT, MANY) {
    char text[STINT_NOTE_SIZE + 2] = {0};

    memset(text, 'x', STINT_NOTE_SIZE);
    assert_int_equal(stint_override_note(limiter, id, KEY, 5, LATER, text), 0);
    assert_note(limiter, KEY, text);
    assert_note(limiter, 2, "");
    assert_int_equal(stint_override_note(limiter, id, KEY, 7, LATER, "two"), 0);
    assert_note(limiter, KEY, "two");
    struct told told = {0}; /* whose key is not known */
    assert_int_equal(stint_each(limiter, tell, &told), 0);
    assert_true(told.limit == 7 && told.note[0] == '\0');

    /* Set anew until the same instant, lifted, and over. */
    assert_int_equal(stint_override(limiter, id, KEY, 7, LATER), 0);
    assert_note(limiter, KEY, "");
    assert_int_equal(stint_override_note(limiter, id, KEY, 7, LATER, "three"), 0);
    assert_int_equal(stint_override_clear(limiter, id, KEY), 0);
    assert_int_equal(taken(limiter), 0);
    assert_int_equal(stint_override(limiter, id, KEY, 7, LATER), 0);
    assert_note(limiter, KEY, "");
    assert_int_equal(stint_override_note(limiter, id, KEY, 7, T0 + MINUTE, "four"), 0);
    test_time = T0 + MINUTE;
    assert_int_equal(told_of(limiter, KEY).limit, UINT64_MAX);
    assert_int_equal(stint_override_note(limiter, id, KEY, 7, LATER, "Zo\xC3\xAB"), 0);
    assert_note(limiter, KEY, "Zo\xC3\xAB");
    assert_int_equal(taken(limiter), 1);

    text[STINT_NOTE_SIZE] = 'x';
    const char *const wrong[] = {"", "\n", "a\033[2J", "\x7F", text};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(stint_override_note(limiter, id, KEY, 9, LATER, wrong[i]), -EINVAL);
        assert_reason("1 to 120 bytes");
    }
    assert_note(limiter, KEY, "Zo\xC3\xAB");

    /* A policy takes the notes of its keys with it. */
    assert_int_equal(stint_policy_remove(limiter, id), 0);
    assert_int_equal(taken(limiter), 0);
    assert_int_equal(stint_override_note(limiter, id, KEY, 5, LATER, "late"), -ENOENT);
}

/* In a full set there is no room, and nothing is changed. A place is free when its override is
 * lifted, or over. */
static void fill_set(struct stint_limiter *limiter, uint32_t id, uint64_t set) {
    uint64_t keys[NOTES_IN_SET + 1];

    test_time = T0;
    for (uint64_t number = 0, count = 0; count <= NOTES_IN_SET; number++) {
        keys[count] = number_key(limiter, number).hash;
        count += hash_pick(mix(keys[count], 2), limiter->note_sets) == set;
    }
    const uint64_t last = keys[NOTES_IN_SET];
    for (unsigned i = 0; i < NOTES_IN_SET; i++)
        assert_int_equal(stint_override_note(limiter, id, keys[i], 5, LATER, "x"), 0);
    assert_int_equal(stint_override(limiter, id, last, 5, T0 + MINUTE), 0);
    assert_int_equal(stint_override_note(limiter, id, last, 7, LATER, "x"), -ENOSPC);
    assert_reason("set the limit without a note");
    assert_int_equal(told_of(limiter, last).limit, 5);
    assert_int_equal(stint_override_clear(limiter, id, keys[5]), 0);
    assert_int_equal(stint_override_note(limiter, id, keys[9], 7, LATER, "y"), 0);
    assert_int_equal(taken(limiter), NOTES_IN_SET - 1);
    assert_int_equal(stint_override_note(limiter, id, last, 7, T0 + MINUTE, "z"), 0);
    assert_note(limiter, last, "z");
    test_time = T0 + MINUTE;
    assert_int_equal(stint_override_note(limiter, id, keys[5], 5, LATER, "new"), 0);
    for (unsigned i = 0; i < NOTES_IN_SET; i++)
        assert_note(limiter, keys[i], i == 9 ? "y" : i == 5 ? "new" : "x");
    assert_int_equal(taken(limiter), NOTES_IN_SET);
}

TEST(test_no_room) {
    for (uint64_t last = 0; last < 2; last++) {
        struct stint_limiter *limiter = open_limiter(4000, STINT_FULL_REFUSE);
        const uint32_t id = add_text(limiter, MANY);
        fill_set(limiter, id, last * (limiter->note_sets - 1));
        assert_int_equal(stint_policy_remove(limiter, id), 0);
        assert_int_equal(taken(limiter), 0);
        stint_close(limiter);
    }
}

/* Notes that were set by a clock that was ahead leave room once it is right, even in its first
 * second. One that is over, or was never used, is taken before them. */
TEST_OF(test_set_by_a_clock_ahead, 1000, STINT_FULL_ADMIT, MANY) {
    const uint64_t aheads[] = {10 * MINUTE, 3650 * DAY};

    for (unsigned i = 0; i < 2; i++) {
        test_time = T0 + aheads[i];
        for (uint64_t key = 0; key < 300; key++)
            (void)!stint_override_note(limiter, id, number_key(limiter, key + 1000 * (i + 1)), 5,
                                       test_time + MINUTE, "ahead");
        assert_true(taken(limiter) > 100);
        test_time = T0;
        for (uint64_t key = 0; key < 40; key++)
            assert_int_equal(
                stint_override_note(limiter, id, number_key(limiter, key), 5, LATER, "x"), 0);
        for (uint64_t key = 0; key < 40; key++)
            assert_note(limiter, number_key(limiter, key).hash, "x");
    }
    assert_int_equal(stint_override_note(limiter, id, KEY, 5, T0 + 366 * DAY, "long"), 0);
    assert_note(limiter, KEY, "long");
}

/* Two threads that give a key its first note at one instant may give it two places. */
TEST_OF(test_two_places, 100, STINT_FULL_ADMIT, MANY) {
    struct note_set *set = &limiter->notes[hash_pick(mix(1, 2), limiter->note_sets)];

    assert_int_equal(stint_override_note(limiter, id, 1, 5, LATER, "one"), 0);
    assert_int_not_equal(set->places[0].whose, 0);
    set->places[7] = set->places[0];
    set->texts[7] = set->texts[0];
    assert_int_equal(stint_override_note(limiter, id, 1, 5, LATER, "two"), 0);
    assert_note(limiter, 1, "two");
    assert_int_equal(stint_override_clear(limiter, id, 1), 0);
    assert_int_equal(taken(limiter), 0);
}

/* ---- At each step ---------------------------------------------------------------------------- */

static struct {
    struct stint_limiter *limiter;
    char *left; /* the table as a thread leaves it that dies before step `at` */
    uint64_t steps, at;
    const char *note; /* of the limit that is set */
} stepping;

static void look_at_step(const void *word) {
    void (*const hook)(const void *) = stint_test_step;
    (void)word;

    stint_test_step = NULL;
    const struct told told = told_of(stepping.limiter, 1);
    if (told.limit == 5)
        assert_true(told.note[0] == '\0' || strcmp(told.note, "of five") == 0);
    else
        assert_string_equal(told.note, told.limit == 7 ? stepping.note : "");
    if (stepping.steps++ == stepping.at)
        memcpy(stepping.left, stepping.limiter->header, stepping.limiter->memory.size);
    stint_test_step = hook;
}

/* Another process sees an override with its own note, or none, at each step of a call; a limit that
 * is set with a note is never seen without it. What a thread leaves that dies there holds nobody
 * up. */
TEST_OF(test_at_each_step, 100, STINT_FULL_ADMIT, MANY) {
    static const struct {
        uint64_t limit, until; /* UINT64_MAX: lifted */
        const char *note;
    } calls[] = {{7, LATER, "a longer one, of seven"},
                 {7, LATER, ""},
                 {7, LATER + HOUR, "of seven"},
                 {UINT64_MAX, 0, ""}};
    const size_t size = limiter->memory.size;
    char *before = malloc(size);

    stepping.limiter = limiter;
    stepping.left = malloc(size);
    for (unsigned i = 0; i < 8; i++) {
        const unsigned call = i / 2;
        const char *note = calls[call].note[0] == '\0' ? NULL : calls[call].note;
        if (told_of(limiter, 1).limit != UINT64_MAX)
            assert_int_equal(stint_override_clear(limiter, id, 1), 0);
        if (i % 2 == 0 && call != 3) {
            assert_int_equal(stint_override_note(limiter, id, 1, 5, LATER + MINUTE, "old"), 0);
            assert_int_equal(stint_override(limiter, id, 1, 5, LATER), 0);
        } else {
            assert_int_equal(stint_override_note(limiter, id, 1, 5, LATER, "of five"), 0);
        }
        memcpy(before, limiter->header, size);
        stepping.note = calls[call].note;
        stepping.at = stepping.steps = 0;
        for (; stepping.at <= stepping.steps; stepping.at++) {
            memcpy(limiter->header, before, size);
            stepping.steps = 0;
            stint_test_step = look_at_step;
            const int error = calls[call].limit == UINT64_MAX
                                  ? stint_override_clear(limiter, id, 1)
                                  : stint_override_note(limiter, id, 1, 7, calls[call].until, note);
            stint_test_step = NULL;
            assert_int_equal(error, 0);
            assert_int_equal(told_of(limiter, 1).limit, calls[call].limit);
            assert_note(limiter, 1, calls[call].note);
            if (stepping.at >= stepping.steps)
                break;
            memcpy(limiter->header, stepping.left, size);
            assert_int_equal(stint_override_note(limiter, id, 1, 3, LATER, "after"), 0);
            assert_note(limiter, 1, "after");
            assert_int_equal(taken(limiter), 1);
        }
        assert_true(stepping.steps > 5);
    }
    free(before);
    free(stepping.left);
}

/* ---- In a file ------------------------------------------------------------------------------- */

/* Notes move with a table that is resized, unless they find no room. */
TEST_IN_DIRECTORY(test_resized) {
    enum { NOTED = 150, KEYS = 600000 }; /* more than the fewest notes */
    struct stint_options options = fixture_options(KEYS, STINT_FULL_ADMIT);
    struct stint_options resized = STINT_OPTIONS_INIT;

    test_time = T0;
    options.path = path;
    struct stint_limiter *limiter = open_with(&options);
    const uint32_t id = add_text(limiter, MANY);
    for (uint64_t i = 0; i < NOTED; i++)
        assert_int_equal(stint_override_note(limiter, id, number_key(limiter, i), 5,
                                             i < 20 ? LATER : T0 + MINUTE, i < 20 ? "stays" : "x"),
                         0);
    stint_close(limiter);
    resized.max_entries = KEYS / 10;
    resized.clock = options.clock;
    assert_int_equal(stint_resize(path, &resized), -ENOSPC);
    assert_reason("a note of an override finds no place");
    for (uint64_t keys = KEYS / 10; keys <= KEYS; keys *= 10) {
        test_time = T0 + MINUTE;
        options.max_entries = resized.max_entries = keys;
        assert_int_equal(stint_resize(path, &resized), 0);
        limiter = open_with(&options);
        struct told told = {0};
        for (uint64_t i = 0; i < 20; i++)
            assert_note(limiter, number_key(limiter, i).hash, "stays");
        assert_int_equal(taken(limiter), 20);
        assert_int_equal(stint_each(limiter, tell, &told), 0);
        assert_string_equal(told.note, "stays");
        stint_close(limiter);
    }
}
