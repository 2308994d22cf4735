/* SPDX-License-Identifier: MIT
 * A state is all that what follows depends on. A node is a state, and which of the threads goes on
 * from there: what it does up to the next choice is the node's only successor, a state with a node
 * for each thread that may go on then. Nodes are played in the order of the preemptions that lead
 * to them, so one that is met again has all that could follow it behind it, or before it in the
 * queue, with as many preemptions left or more: the play ends there. Once all preemptions are
 * taken, there is one way until a thread ends, and one in eight of its states is a node.
 *
 * A state cannot be gone back to, so each play begins anew and makes the choices that led to its
 * node. How many schedules the plays stand for is counted over the nodes in the end: a play of each
 * without memory (`forgets`) makes as many. Two states of one hash would be taken for one: of a
 * million nodes, a chance of one in 10 million. */
#include "schedule_search.h"

#include <stdlib.h>
#include <string.h>

enum { NONE = -1, END = -2, UNSEEN = UINT8_MAX, CHANGES = 64, ONE_IN = 8 };

struct node {
    uint64_t key;
    int32_t choice; /* that it leads to; END: to none; NONE: not known */
    uint8_t level;  /* fewest preemptions that lead to it */
};

struct choice {
    int32_t nodes[SCHEDULED_MAX]; /* NONE: too many preemptions */
    uint8_t count, going_on;      /* `count`: nobody was */
};

/* A node that is to be played, and the choices that lead there. */
struct branch {
    int32_t before, next; /* a branch that it is one of; in the queue */
    int32_t node;
    uint16_t at; /* a choice of the play */
    uint8_t option, level;
};

#define LIST(type)                                                                                 \
    struct {                                                                                       \
        type *all;                                                                                 \
        int32_t count, space;                                                                      \
    }

static LIST(struct node) nodes;
static LIST(struct choice) choices;
static LIST(struct branch) branches;
static int32_t *places, place_mask = -1; /* of nodes, by key; NONE: of none */

static struct search *search;
static struct {
    int32_t branch, node;
    unsigned level;
    unsigned given, met, made;
    struct branch changes[CHANGES]; /* that are given */
    bool stopped;                   /* by state() */
    bool left;                      /* nothing new follows */
} play;

#define GROW(list)                                                                                 \
    do {                                                                                           \
        if ((list).count == (list).space) {                                                        \
            (list).space = (list).space == 0 ? 1024 : 2 * (list).space;                            \
            (list).all = realloc((list).all, sizeof((list).all[0]) * (size_t)(list).space);        \
            if ((list).all == NULL)                                                                \
                abort();                                                                           \
        }                                                                                          \
    } while (0)

static void place(int32_t node) {
    int32_t at = (int32_t)(nodes.all[node].key & (uint64_t)place_mask);
    while (places[at] != NONE)
        at = (at + 1) & place_mask;
    places[at] = node;
}

static void make_places(int32_t space) {
    place_mask = space - 1;
    free(places);
    places = malloc(sizeof(places[0]) * (size_t)space);
    if (places == NULL)
        abort();
    memset(places, 0xff, sizeof(places[0]) * (size_t)space); /* NONE */
    for (int32_t i = 0; i < nodes.count; i++)
        place(i);
}

static int32_t node_of(uint64_t key) {
    for (int32_t at = (int32_t)(key & (uint64_t)place_mask); places[at] != NONE && !search->forgets;
         at = (at + 1) & place_mask)
        if (nodes.all[places[at]].key == key)
            return places[at];
    GROW(nodes);
    nodes.all[nodes.count] = (struct node){key, NONE, UNSEEN};
    if (nodes.count * 2 > place_mask)
        make_places(2 * (place_mask + 1));
    if (!search->forgets)
        place(nodes.count);
    return nodes.count++;
}

static int32_t queues[PREEMPTIONS_MAX + 1];

static void enqueue(int32_t node, unsigned at, unsigned option, unsigned level) {
    GROW(branches);
    branches.all[branches.count] = (struct branch){play.branch,  queues[level],   node,
                                                   (uint16_t)at, (uint8_t)option, (uint8_t)level};
    queues[level] = branches.count++;
}

/* Nothing that follows is to be seen. */
static unsigned leave(unsigned usual) {
    play.left = true;
    if (!search->to_the_end)
        schedule_leave();
    return usual;
}

static unsigned choose(unsigned count, unsigned now) {
    const bool is_free = now == count; /* nobody was going on: the choice preempts nobody */
    const unsigned usual = is_free ? 0 : now;
    if (count == 1 || play.left)
        return usual;
    const unsigned at = play.made++;
    if (play.met < play.given)
        return at < play.changes[play.met].at ? usual : play.changes[play.met++].option;

    const uint64_t state = search->state();
    if (state == 0) {
        play.stopped = true;
        return leave(usual);
    }
    if (play.level == search->preemptions && !is_free && state >> 32 & (ONE_IN - 1))
        return usual;
    struct choice next = {{NONE, NONE, NONE, NONE}, (uint8_t)count, (uint8_t)now};
    bool is_new = false;
    for (unsigned i = 0; i < count; i++) {
        const unsigned level = play.level + (is_free || i == now ? 0 : 1);
        if (level > search->preemptions)
            continue;
        const int32_t node = node_of((state + i) * UINT64_C(0x9E3779B97F4A7C15));
        next.nodes[i] = node;
        if (nodes.all[node].level <= level)
            continue;
        nodes.all[node].level = (uint8_t)level;
        if (i == usual)
            is_new = true;
        else
            enqueue(node, at, i, level);
    }
    GROW(choices);
    choices.all[choices.count] = next;
    nodes.all[play.node].choice = choices.count++;
    if (!is_new)
        return leave(usual);
    play.node = next.nodes[usual];
    return usual;
}

static const char *play_branch(int32_t branch) {
    struct schedule schedule = {
        .threads = search->threads,
        .body = search->body,
        .switched = search->switched,
        .most_steps = UINT64_MAX,
        .choose = choose,
    };
    play.branch = branch;
    play.given = play.met = play.made = 0;
    play.stopped = play.left = false;
    for (int32_t i = branch; i != NONE; i = branches.all[i].before)
        play.given++;
    if (play.given > CHANGES)
        abort();
    for (int32_t i = branch, at = (int32_t)play.given; i != NONE; i = branches.all[i].before)
        play.changes[--at] = branches.all[i];
    play.node = branch == NONE ? 0 : branches.all[branch].node;
    play.level = nodes.all[play.node].level;
    search->taken = play.level;
    search->plays++;
    search->begin();
    schedule_run(&schedule);
    if (play.left && !play.stopped)
        return NULL;
    if (!schedule.stuck)
        nodes.all[play.node].choice = END;
    return search->end(schedule.stuck && !play.stopped);
}

/* ---- How many schedules ---------------------------------------------------------------------- */

static uint64_t *counts; /* by node and preemptions left, plus one */

static uint64_t count_from(int32_t node, unsigned left) {
    if (nodes.all[node].choice < 0)
        return 1;
    uint64_t *known = &counts[(uint64_t)node * (search->preemptions + 1) + left], sum = 0;
    if (*known != 0)
        return *known - 1;
    const struct choice *choice = &choices.all[nodes.all[node].choice];
    for (unsigned i = 0; i < choice->count; i++)
        if (choice->going_on == choice->count || choice->going_on == i)
            sum += count_from(choice->nodes[i], left);
        else if (left > 0)
            sum += count_from(choice->nodes[i], left - 1);
    *known = sum + 1;
    return sum;
}

static uint64_t count_schedules(void) {
    counts = calloc((size_t)nodes.count * (search->preemptions + 1), sizeof(counts[0]));
    if (counts == NULL)
        abort();
    const uint64_t all = count_from(0, search->preemptions);
    free(counts);
    return all;
}

const char *search_all(struct search *of) {
    const char *ended = NULL;

    search = of;
    if (search->preemptions > PREEMPTIONS_MAX)
        abort();
    search->plays = search->schedules = 0;
    search->left = false;
    nodes.count = choices.count = branches.count = 0;
    make_places(1024);
    for (unsigned level = 0; level <= search->preemptions; level++)
        queues[level] = NONE;
    (void)node_of(0); /* nobody has begun */
    nodes.all[0].level = 0;
    ended = play_branch(NONE);
    for (unsigned level = 0; level <= search->preemptions; level++) {
        while (ended == NULL && queues[level] != NONE) {
            const int32_t branch = queues[level];
            if (search->plays == search->most && search->most != 0) {
                search->left = true;
                break;
            }
            queues[level] = branches.all[branch].next;
            if (nodes.all[branches.all[branch].node].level == level)
                ended = play_branch(branch);
        }
    }
    search->nodes = (uint64_t)nodes.count;
    if (ended == NULL && !search->left)
        search->schedules = count_schedules();
    return ended;
}

void search_tell(FILE *file) {
    fprintf(file, "  threads changed at choices");
    for (unsigned i = 0; i < play.given; i++)
        fprintf(file, " %u", play.changes[i].at);
    fprintf(file, " of %u\n", play.made);
}

void search_free(void) {
    free(nodes.all);
    free(choices.all);
    free(branches.all);
    free(places);
    memset(&nodes, 0, sizeof(nodes));
    memset(&choices, 0, sizeof(choices));
    memset(&branches, 0, sizeof(branches));
    places = NULL;
    place_mask = -1;
}
