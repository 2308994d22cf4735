/* SPDX-License-Identifier: MIT
 * A limiter and its twin of models (model.h), and drawn operations under policies of all kinds on
 * both: start_round(), do_operation() as often as wanted, end_round(). Every field of every verdict
 * is compared. */
#ifndef STINT_TESTS_TWIN_H
#define STINT_TESTS_TWIN_H

#include "fixture.h"

/* ---- Where the draws come from: whoever links this has these ------------------------------- */

/* 64 bits of a secret. */
uint64_t random_bits(void);

/* A draw from [0, n). */
uint64_t below(uint64_t n);

/* ---- Operations ---------------------------------------------------------------------------- */

void start_round(void);
void do_operation(void);
void end_round(void);

/* The file of the tables of the rounds that begin from then on; NULL: they are in memory. */
extern const char *twin_path;
/* Somebody does something to it while nobody has it open. All stays as it is to the twin. */
void twin_closed(void (*meanwhile)(void));

/* What a failure tells to repeat it; and how many verdicts were compared. */
extern struct twin_run { uint64_t seed, round, operation, compared; } twin_run;

#endif
