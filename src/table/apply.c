/* SPDX-License-Identifier: MIT
 * Adds, changes, replaces and removes policies: all from one text (stint_policies_apply), or one.
 *
 *     1  lines_read     every line is parsed, and names are unique; nothing of the table was read
 *     2  changes_plan   under the table's lock: what each line does, and whether there is room
 *     3  all_make       one by one, each at once (policy.c), between two sweeps (sweep.c)
 *     4  change_tell    without the lock */
#include <stdlib.h>
#include <string.h>

#include "feature/rate.h"
#include "limiter/counters.h"
#include "policy/check.h"
#include "policy/policy.h"
#include "sys/message.h"
#include "table/parts.h"

struct change {
    const char *at;           /* its line in the caller's text; NULL: it has none, and is removed */
    unsigned line;            /* number */
    struct stint_change told; /* kind, id and decided; the rest when it is told */
    struct policy_ids ids;    /* as they are planned */
    char name[STINT_NAME_SIZE]; /* by which it is found */
    struct stint_policy policy; /* as it is to be */
    struct stint_policy was;
};

struct changes {
    size_t lines; /* the first ones are those of the text, in its order */
    size_t count;
    struct change *all;
    const char *wrong; /* the character of the text about which an error is; NULL: none */
};

/* ---- 1  The text ----------------------------------------------------------------------------- */

#define BLANKS " \t\r"

/* Ends a line before its comment: at a # that stands first or after a blank, and in no quotes. */
static void comment_cut(char *line) {
    bool quoted = false;

    for (char *at = line; *at != '\0'; at++) {
        if (quoted && *at == '\\' && at[1] != '\0')
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (*at == '#' && !quoted && (at == line || strchr(BLANKS, at[-1]) != NULL))
            *at = '\0';
    }
    for (size_t length = strlen(line); length > 0 && strchr(BLANKS, line[length - 1]); length--)
        line[length - 1] = '\0';
}

/* Puts the line before the reason of the last call, which is about a character of the text. */
static int failed_in_line(struct changes *changes, int error, unsigned line, const char *at) {
    changes->wrong = at;
    return stint_failed_with(-error, "line %u: %s", line, stint_reason());
}

static int by_name(const void *one, const void *other) {
    const struct change *const *a = one, *const *b = other;
    int order = strcmp((*a)->name, (*b)->name);
    return order != 0 ? order : (*a)->line < (*b)->line ? -1 : 1;
}

static int names_check(struct changes *changes) {
    const struct change *twice = NULL, *first = NULL;
    const struct change **sorted = malloc((changes->lines + 1) * sizeof(struct change *));

    if (sorted == NULL)
        return stint_failed(ENOMEM, "no memory to look at the text");
    for (size_t i = 0; i < changes->lines; i++)
        sorted[i] = &changes->all[i];
    qsort(sorted, changes->lines, sizeof(struct change *), by_name);
    for (size_t i = 1; i < changes->lines; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0 &&
            (twice == NULL || sorted[i]->line < twice->line)) {
            first = sorted[i - 1];
            twice = sorted[i];
        }
    free(sorted);
    if (twice == NULL)
        return 0;
    changes->wrong = twice->at;
    return stint_failed_with(EINVAL,
                             "line %u: line %u has a policy of the name %s already (one without a "
                             "name is named by its rate)",
                             twice->line, first->line, twice->name);
}

/* Parses each line. `copy` is that of `text`, and is cut into lines. `changes->all` has room. */
static int lines_parse(struct changes *changes, const char *text, char *copy) {
    unsigned number = 0;

    for (char *line = copy, *next; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        number++;
        comment_cut(line);
        const char *letter = line + strspn(line, BLANKS);
        if (*letter == '\0')
            continue;
        struct change *change = &changes->all[changes->lines++];
        *change = (struct change){.at = text + (line - copy), .line = number};
        change->policy.size = sizeof(change->policy);
        int error = stint_policy_parse(line, &change->policy, &letter);
        if (error != 0)
            return failed_in_line(changes, error, number, text + (letter - copy));
        stint_policy_name_of(&change->policy, change->name);
    }
    return names_check(changes);
}

static int lines_read(struct changes *changes, const char *text, uint32_t more) {
    const size_t size = strlen(text) + 1;
    size_t room = more + 1;
    char *copy = malloc(size);

    if (copy == NULL)
        return stint_failed(ENOMEM, "no memory for a copy of the text");
    memcpy(copy, text, size);
    for (const char *at = text; *at != '\0'; at++)
        room += *at == '\n';
    changes->all = calloc(room, sizeof(*changes->all));
    int error = changes->all == NULL
                    ? stint_failed(ENOMEM, "no memory for the policies of the text")
                    : lines_parse(changes, text, copy);
    free(copy);
    changes->count = changes->lines;
    /* A file that was cut to nothing takes no policy away. */
    return GUARD(APPLY_EMPTY, error == 0 && changes->lines == 0)
               ? stint_failed(EINVAL, "the text has no policy")
               : error;
}

/* ---- 2  What is to be done ------------------------------------------------------------------- */

/* Notes what there is under the old id, as a text would say it. */
static void was_read(const struct stint_limiter *limiter, struct change *change) {
    const uint32_t id = change->ids.old;

    change->was = stint_policy_read(limiter, id);
    if ((record_flags(limiter, id) & RECORD_UNNAMED) != 0)
        change->was.name[0] = '\0';
    change->told.decided = stint_limiter_counted(limiter, id, COUNT_ALLOWED) +
                           stint_limiter_counted(limiter, id, COUNT_REFUSED) +
                           stint_limiter_counted(limiter, id, COUNT_SHADOWED);
}

/* Adds a removal for each policy that no line is about. `changes->all` has room. */
static int removals_plan(const struct stint_limiter *limiter, struct changes *changes) {
    bool *named = calloc(limiter->max_policies, sizeof(*named));

    if (named == NULL)
        return stint_failed(ENOMEM, "no memory for the policies to be removed");
    for (size_t i = 0; i < changes->lines; i++)
        if (changes->all[i].ids.old != POLICY_NONE)
            named[changes->all[i].ids.old] = true;
    for (uint32_t id = 0; id < limiter_policy_count(limiter); id++) {
        if (named[id] || !limiter_decides_by(limiter, id))
            continue;
        struct change *change = &changes->all[changes->count++];
        *change = (struct change){.told = {.kind = STINT_POLICY_REMOVED, .id = id}, .ids.old = id};
        memcpy(change->name, limiter->records[id].name, sizeof(change->name) - 1);
        was_read(limiter, change);
    }
    free(named);
    return 0;
}

static int changes_plan(const struct stint_limiter *limiter, struct changes *changes, bool prune) {
    uint32_t room = stint_limiter_free_ids(limiter);

    for (size_t i = 0; i < changes->lines; i++) {
        struct change *change = &changes->all[i];
        const uint32_t old = stint_limiter_find(limiter, change->name);
        change->ids = stint_policy_ids(limiter, &change->policy, old);
        change->told.id = change->ids.id;
        change->told.kind = old == POLICY_NONE       ? STINT_POLICY_ADDED
                            : change->told.id != old ? STINT_POLICY_REPLACED
                            : stint_policy_difference(limiter, old, &change->policy) != NULL
                                ? STINT_POLICY_CHANGED
                                : STINT_POLICY_UNCHANGED;
        if (old != POLICY_NONE)
            was_read(limiter, change);
        int error = stint_policy_room(limiter, &change->policy, &change->ids, &room);
        if (error != 0)
            return failed_in_line(changes, error, change->line, change->at);
    }
    return prune ? removals_plan(limiter, changes) : 0;
}

/* ---- 3  Doing it ----------------------------------------------------------------------------- */

static void all_make(struct stint_limiter *limiter, struct changes *changes) {
    bool again = false;

    for (size_t i = 0; i < changes->lines; i++)
        again |= changes->all[i].ids.again;
    if (again)
        (void)stint_sweep(limiter);
    stint_rate_sweep(limiter); /* if a death left slots of two rates */
    for (size_t i = 0; i < changes->count; i++) {
        struct change *change = &changes->all[i];
        if (change->told.kind == STINT_POLICY_REMOVED)
            stint_policy_end(limiter, change->told.id);
        else if (change->told.kind != STINT_POLICY_UNCHANGED)
            change->told.id = stint_policy_make(limiter, &change->policy, &change->ids);
    }
    stint_policies_link(limiter);
    stint_rate_sweep(limiter);
    (void)stint_sweep(limiter);
}

/* Plans the changes, and makes them if this is no dry run. A reader's dry run takes no lock: it may
 * tell of a table that is being changed, of which each policy is read whole. */
static int changes_make(struct stint_limiter *limiter, struct changes *changes, uint32_t flags) {
    const bool dry = (flags & STINT_DRY_RUN) != 0, locks = !dry || !limiter->memory.read_only;
    int error = locks ? stint_policies_begin(limiter) : stint_limiter_whole(limiter);

    if (error != 0)
        return error;
    error = changes_plan(limiter, changes, (flags & STINT_PRUNE) != 0);
    if (error == 0 && !dry)
        all_make(limiter, changes);
    return locks ? stint_limiter_unlock(limiter, error) : error;
}

/* ---- 4  Telling of it ------------------------------------------------------------------------ */

/* More than the longest policy in a text: a name of 63 letters, each escaped, and all options. */
#define TEXT_SIZE 512

static void change_tell(const struct change *change,
                        void (*told)(void *context, const struct stint_change *change),
                        void *context) {
    char text[TEXT_SIZE] = "", was[TEXT_SIZE] = "";
    struct stint_change tells = change->told;

    tells.size = sizeof(tells);
    tells.name = change->name;
    if (change->told.kind != STINT_POLICY_REMOVED) {
        (void)stint_policy_format(&change->policy, text, sizeof(text));
        tells.text = text;
    }
    if (change->ids.old != POLICY_NONE) {
        (void)stint_policy_format(&change->was, was, sizeof(was));
        tells.was = was;
    }
    told(context, &tells);
}

int stint_policies_apply(struct stint_limiter *limiter, const char *text, uint32_t flags,
                         const char **wrong,
                         void (*told)(void *context, const struct stint_change *change),
                         void *context) {
    if (limiter == NULL || text == NULL)
        return stint_failed(EINVAL, "limiter or text is NULL");
    if ((flags & ~(uint32_t)(STINT_DRY_RUN | STINT_PRUNE)) != 0)
        return stint_failed(
            EINVAL, "flags has a flag that is none of enum stint_apply_flags: leave it out");
    struct changes changes = {0};

    int error = lines_read(&changes, text, (flags & STINT_PRUNE) != 0 ? limiter->max_policies : 0);
    if (error == 0)
        error = changes_make(limiter, &changes, flags);
    for (size_t i = 0; error == 0 && told != NULL && i < changes.count; i++)
        change_tell(&changes.all[i], told, context);
    if (error != 0 && wrong != NULL)
        *wrong = changes.wrong;
    free(changes.all);
    return error;
}

/* ---- One policy ------------------------------------------------------------------------------ */

/* Whether a policy may be added. `id` receives that of one that is the same, or POLICY_NONE. */
static int may_add(const struct stint_limiter *limiter, const struct stint_policy *policy,
                   uint32_t *id) {
    char name[STINT_NAME_SIZE];

    stint_policy_name_of(policy, name);
    *id = stint_limiter_find(limiter, name);
    const char *what = *id != POLICY_NONE ? stint_policy_difference(limiter, *id, policy) : NULL;
    return what == NULL
               ? 0
               : stint_failed_with(EEXIST,
                                   "a policy named %s exists with another %s: if that is to be "
                                   "changed, stint_policy_change or stint_policies_apply does it",
                                   name, what);
}

static int may_change(const struct stint_limiter *limiter, const struct stint_policy *policy,
                      uint32_t id) {
    if (policy->name[0] != '\0' && strcmp(policy->name, limiter->records[id].name) != 0)
        return stint_failed(EINVAL, "policy.name is not the name of the policy of that id");
    const char *stays = stint_policy_stays(limiter, id, policy);
    return stays == NULL ? 0 : stint_failed(EINVAL, stays);
}

enum call { TO_ADD, TO_CHANGE, TO_CHECK, TO_REMOVE };

static int one_make(struct stint_limiter *limiter, const struct stint_policy *policy,
                    enum call call, uint32_t *id) {
    if (call != TO_ADD) {
        *id = stint_limiter_policy_now(limiter, *id);
        if (*id == POLICY_NONE)
            return stint_limiter_no_policy(limiter);
    }
    if (call == TO_REMOVE) {
        stint_policy_end(limiter, *id);
        (void)stint_sweep(limiter);
        return 0;
    }
    int error = call == TO_ADD ? may_add(limiter, policy, id) : may_change(limiter, policy, *id);
    if (error != 0 || (call == TO_ADD && *id != POLICY_NONE))
        return error;
    const struct policy_ids ids = stint_policy_ids(limiter, policy, *id);
    uint32_t room = stint_limiter_free_ids(limiter);
    error = stint_policy_room(limiter, policy, &ids, &room);
    if (error != 0 || call == TO_CHECK)
        return error;
    if (ids.again)
        (void)stint_sweep(limiter);
    stint_rate_sweep(limiter); /* as in all_make */
    *id = stint_policy_make(limiter, policy, &ids);
    stint_rate_sweep(limiter);
    return 0;
}

static int one_given(struct stint_limiter *limiter, const struct stint_policy *given,
                     enum call call, uint32_t *id) {
    struct stint_policy policy;

    if (limiter == NULL)
        return stint_failed(EINVAL, "limiter is NULL");
    int error = call == TO_REMOVE ? 0 : stint_policy_given(given, &policy);
    if (error == 0)
        error = stint_policies_begin(limiter);
    return error != 0 ? error : stint_limiter_unlock(limiter, one_make(limiter, &policy, call, id));
}

int stint_policy_add(struct stint_limiter *limiter, const struct stint_policy *policy,
                     uint32_t *id) {
    uint32_t added;
    int error = one_given(limiter, policy, TO_ADD, &added);

    if (error == 0 && id != NULL)
        *id = added;
    return error;
}

int stint_policy_change(struct stint_limiter *limiter, uint32_t id,
                        const struct stint_policy *policy) {
    return one_given(limiter, policy, TO_CHANGE, &id);
}

int stint_policy_change_check(struct stint_limiter *limiter, uint32_t id,
                              const struct stint_policy *policy) {
    return one_given(limiter, policy, TO_CHECK, &id);
}

int stint_policy_remove(struct stint_limiter *limiter, uint32_t id) {
    return one_given(limiter, NULL, TO_REMOVE, &id);
}
