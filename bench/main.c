/* SPDX-License-Identifier: MIT
 * stint-bench: it measures what bench.py asks it for. */
#include "bed.h"
#include "check.h"
#include "contest.h"
#include "jobs.h"
#include "load.h"
#include "span.h"
#include "ticks.h"

static json_t *tell_ticks(json_t *asked) {
    ticks_open(job_flag(asked, "tsc"));
    return json_pack("{s:s, s:f, s:f}", "timer", ticks_name(), "overhead_ns", ticks.overhead_ns,
                     "step_ns", ticks.step_ns);
}

int main(int argc, char **argv) {
    static const struct job jobs[] = {
        {"ticks", tell_ticks},
        {"open", bed_open},
        {"renew", bed_renew},
        {"close", bed_close},
        {"tails", bed_tails},
        {"spans", spans_run},
        {"use-up", keys_use_up},
        {"granted", keys_granted},
        {"audit", keys_audit},
        {"peers", contest_peers},
        {"peer-prepare", contest_prepare},
        {"peer-open", contest_open},
        {"peer-ask", contest_ask},
        {"peer-audit", contest_audit},
        {"peer-close", contest_close},
        {"load", load_run},
    };
    return jobs_run(argc, argv, jobs, sizeof(jobs) / sizeof(jobs[0]));
}
