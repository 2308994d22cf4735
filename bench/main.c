/* SPDX-License-Identifier: MIT
 * stint-bench: it measures what bench.py asks it for. */
#include "bed.h"
#include "jobs.h"
#include "load.h"
#include "ticks.h"

static json_t *tell_ticks(json_t *asked) {
    ticks_open(job_flag(asked, "tsc"));
    return json_pack("{s:s, s:f, s:f}", "timer", ticks_name(), "overhead_ns", ticks.overhead_ns,
                     "step_ns", ticks.step_ns);
}

static json_t *tell_dpdk(json_t *asked) {
    (void)asked;
#ifdef STINT_BENCH_DPDK
    return json_pack("{s:b}", "dpdk", 1);
#else
    return json_pack("{s:b}", "dpdk", 0);
#endif
}

int main(int argc, char **argv) {
    static const struct job jobs[] = {
        {"ticks", tell_ticks}, {"dpdk", tell_dpdk},     {"dpdk", tell_dpdk},
        {"open", bed_open},    {"renew", bed_renew},    {"close", bed_close},
        {"span", span_run},    {"use-up", keys_use_up}, {"granted", keys_granted},
        {"audit", keys_audit}, {"load", load_run},
    };
    return jobs_run(argc, argv, jobs, sizeof(jobs) / sizeof(jobs[0]));
}
