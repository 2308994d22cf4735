/* SPDX-License-Identifier: MIT
 * stint-bench: it measures what bench.py asks it for. */
#include "bed.h"
#include "jobs.h"

int main(int argc, char **argv) {
    static const struct job jobs[] = {
        {"open", bed_open},      {"renew", bed_renew},    {"close", bed_close},
        {"span", span_run},      {"use-up", keys_use_up}, {"granted", keys_granted},
        {"counts", keys_counts}, {"load", load_run},
    };
    return jobs_run(argc, argv, jobs, sizeof(jobs) / sizeof(jobs[0]));
}
