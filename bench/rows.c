/* SPDX-License-Identifier: MIT
 * stint-bench: it measures what bench.py asks it for, row by row. */
#include "bed.h"
#include "contest.h"
#include "jobs.h"
#include "load.h"
#include "measure.h"
#include "ticks.h"

/* ---- What is asked ---- */

static struct row row_read(json_t *asked) {
    const char *names[WORKLOADS], *floor_names[FLOORS];
    struct row row = {.keys = 0};
    json_int_t keys;
    int key_length, threads, policies, stripes, latency, bare;

    for (size_t i = 0; i < WORKLOADS; i++)
        names[i] = workloads[i].name;
    for (size_t i = 0; i < FLOORS; i++)
        floor_names[i] = floors[i].name;
    job_read(asked, "{s:I, s:i, s:i, s:F, s:i, s:i, s:F, s:b, s:b}", "keys", &keys, "threads",
             &threads, "key_length", &key_length, "load", &row.load, "policies", &policies,
             "stripes", &stripes, "refused_part", &row.refused_part, "latency", &latency, "bare",
             &bare);
    row.workload = (enum workload)job_read_name(asked, "workload", names, WORKLOADS);
    row.distribution =
        (enum distribution)job_read_name(asked, "distribution", distribution_names, DISTRIBUTIONS);
    row.floor_given = json_is_string(json_object_get(asked, "floor"));
    if (row.floor_given)
        row.floor = (enum floor)job_read_name(asked, "floor", floor_names, FLOORS);
    row.keys = (uint64_t)keys;
    row.key_length = (size_t)key_length;
    row.threads = (unsigned)threads;
    row.policies = (unsigned)policies;
    row.stripes = (unsigned)stripes;
    row.latency = latency;
    row.bare = bare;
    if (workloads[row.workload].path != NULL)
        row.stripes = workloads[row.workload].path->stripes;
    return row;
}

/* ---- What came out ---- */

static json_t *ticks_answer(void) {
    ticks_open();
    return json_pack("{s:s, s:f, s:f}", "timer", ticks_name(), "overhead_ns", ticks.overhead_ns,
                     "step_ns", ticks.step_ns);
}

static void answer_tails(json_t *answer, const struct row *row) {
    if (row->checked) {
        json_object_set_new(answer, "call", tail_answer(&row->call));
        json_object_set_new(answer, "empty", tail_answer(&row->empty));
    }
    json_object_set_new(answer, "calls", json_integer((json_int_t)row->calls));
    json_object_update_new(answer, ticks_answer());
}

static void answer_times(json_t *answer, const struct row *row) {
    bool good = row->checked;

    json_object_update_new(
        answer,
        json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o}", "ns_per_op",
                  job_real(good, row->ns_per_op), "ns_min", job_real(good, row->ns_min), "ns_max",
                  job_real(good, row->ns_max), "mops", job_real(good, row->mops), "floor",
                  floors[row->floor].name, "floor_ns", job_real(good, row->floor_ns), "ratio",
                  job_real(good, row->ns_per_op / row->floor_ns), "ratio_median",
                  job_real(good, row->ratio), "ratio_min", job_real(good, row->ratio_min),
                  "ratio_max", job_real(good, row->ratio_max)));
    if (row_goal(row) != 0)
        json_object_update_new(
            answer, json_pack("{s:f, s:s, s:o, s:b}", "goal", row_goal(row), "locked",
                              floors[workloads[row->workload].path->locked].name, "locked_ns",
                              job_real(good, row->locked_ns), "reached", good && row_reached(row)));
}

static json_t *row_answer(const struct row *row) {
    json_t *answer = json_object();

    if (row->latency)
        answer_tails(answer, row);
    else
        answer_times(answer, row);
    json_object_update_new(
        answer, json_pack("{s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:b}", "stripes",
                          row->stripes > 1 ? (int)row->stripes : 1, "repeats", (int)row->repeats,
                          "allowed", (json_int_t)row->allowed, "refused", (json_int_t)row->refused,
                          "unplaced", (json_int_t)row->unplaced, "reach", (json_int_t)row->reach,
                          "preempted", (json_int_t)row->preempted, "checked", row->checked));
    if (!row->checked)
        json_object_set_new(answer, "wrong", json_string(row->wrong));
    return answer;
}

/* ---- Jobs ---- */

static json_t *tell_kinds(json_t *asked) {
    json_t *kinds = json_array();

    (void)asked;
    for (size_t i = 0; i < WORKLOADS; i++) {
        const struct workload_kind *kind = &workloads[i];
        double none[2] = {0, 0};
        const double *goal = kind->path != NULL ? kind->path->goal : none;
        json_array_append_new(kinds, json_pack("{s:s, s:s, s:b, s:[f, f], s:b, s:b, s:b, s:b}",
                                               "name", kind->name, "help", kind->help, "path",
                                               kind->path != NULL, "goal", goal[0], goal[1],
                                               "uniform_only", kind->windows || kind->path != NULL,
                                               "run", kind->run != NULL, "timed",
                                               kind->timed != NULL, "new_keys", kind->new_keys));
    }
    return json_pack("{s:o, s:o}", "workloads", kinds, "peers", contest_peers());
}

static json_t *tell_ticks(json_t *asked) {
    (void)asked;
    return ticks_answer();
}

/* Bytes that measuring the row takes. */
static json_t *tell_memory(json_t *asked) {
    struct row row = row_read(asked);
    return json_pack("{s:I}", "bytes", (json_int_t)row_memory(&row));
}

static void show_part(void *context, double part) {
    (void)context;
    jobs_progress("", part);
}

static json_t *measure_row(json_t *asked) {
    struct row row = row_read(asked);
    json_int_t cache;
    double seconds;

    job_read(asked, "{s:F, s:I}", "seconds", &seconds, "cache", &cache);
    row_measure(&row, seconds, (uint64_t)cache, show_part, NULL);
    return row_answer(&row);
}

static json_t *measure_beside(json_t *asked) {
    struct ratio ratio = {0};
    json_t *both[2];
    double seconds;

    job_read(asked, "{s:F, s:o, s:o}", "seconds", &seconds, "a", &both[0], "b", &both[1]);
    struct row a = row_read(both[0]), b = row_read(both[1]);
    rows_measure_beside(&a, &b, seconds, &ratio);
    return json_pack("{s:f, s:f, s:f, s:o, s:o}", "median", ratio.median, "min", ratio.min, "max",
                     ratio.max, "a", row_answer(&a), "b", row_answer(&b));
}

int main(int argc, char **argv) {
    static const struct job jobs[] = {
        {"kinds", tell_kinds}, {"ticks", tell_ticks},        {"memory", tell_memory},
        {"row", measure_row},  {"beside", measure_beside},   {"rehearse", contest_rehearse},
        {"load", load_run},    {"contest", contest_measure},
    };
    return jobs_run(argc, argv, jobs, sizeof(jobs) / sizeof(jobs[0]));
}
