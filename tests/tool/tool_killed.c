/* SPDX-License-Identifier: MIT
 * Runs a command that dies at one of its system calls: before it is made, or after it.
 *
 *     tool-killed N COMMAND ARGUMENT...
 *
 * The command is stopped at the entry and at the exit of each of its system calls, and killed at
 * the N-th stop. Exit codes: 100 it was killed, 101 it could not be run, else its own. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLED = 100, NOT_RUN = 101 };

int main(int argc, char **argv) {
    long stops = argc < 3 ? 0 : atol(argv[1]);
    int status, signal = 0;

    if (stops < 1) {
        fputs("Usage: tool-killed N COMMAND ARGUMENT...\n", stderr);
        return NOT_RUN;
    }
    pid_t child = fork();
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0)
            execv(argv[2], argv + 2);
        perror(argv[2]);
        _exit(NOT_RUN);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return NOT_RUN;
    if (WIFSTOPPED(status)) /* it stands at its first instruction */
        ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)PTRACE_O_TRACESYSGOOD);
    while (WIFSTOPPED(status)) {
        if (WSTOPSIG(status) == (SIGTRAP | 0x80) && --stops == 0) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return KILLED;
        }
        signal = WSTOPSIG(status) == SIGTRAP || WSTOPSIG(status) == (SIGTRAP | 0x80)
                     ? 0
                     : WSTOPSIG(status);
        if (ptrace(PTRACE_SYSCALL, child, NULL, (void *)(long)signal) != 0 ||
            waitpid(child, &status, 0) != child)
            return NOT_RUN;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : NOT_RUN;
}
