/* SPDX-License-Identifier: MIT */
#include "screen.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "common.h"

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
enum { ENDING = sizeof(ending) / sizeof(ending[0]) };

/* Signals come during a wait only. */
static volatile sig_atomic_t ended, resized, stopped;
static sigset_t before;
static struct termios saved;
static bool keys; /* standard input is a terminal, whose keys are asked for */
static bool entered;

static void on_signal(int number) {
    if (number == SIGWINCH)
        resized = 1;
    else if (number == SIGTSTP)
        stopped = 1;
    else
        ended = number;
}

static void enter(void) {
    struct termios raw;

    keys = tcgetattr(STDIN_FILENO, &saved) == 0;
    if (keys) {
        raw = saved;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    }
    fputs("\x1b[?1049h\x1b[?25l", stdout); /* another screen, and no cursor */
    entered = true;
}

static void leave(void) {
    if (!entered)
        return;
    entered = false;
    fputs("\x1b[?25h\x1b[?1049l", stdout);
    fflush(stdout);
    if (keys)
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
}

void screen_begin(void) {
    struct sigaction action = {.sa_handler = on_signal}, old;
    sigset_t blocked;

    /* What goes wrong is said when the screen is left, which goes before. */
    setvbuf(stderr, NULL, _IOFBF, BUFSIZ);
    atexit(leave);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGWINCH);
    sigaddset(&blocked, SIGTSTP);
    for (unsigned i = 0; i < ENDING; i++)
        sigaddset(&blocked, ending[i]);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGTSTP, &action, NULL);
    for (unsigned i = 0; i < ENDING; i++)
        if (sigaction(ending[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(ending[i], &action, NULL);
    enter();
}

void screen_end(void) {
    leave();
    if (ended != 0) { /* what was blocked is not, so it ends here */
        signal(ended, SIG_DFL);
        raise(ended);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

/* The key of what a terminal sends: a character, or a sequence. */
static int key_of(const char *typed) {
    static const struct {
        const char *sent;
        int key;
    } sequences[] = {
        {"\x1b[A", SCREEN_UP},     {"\x1bOA", SCREEN_UP},       {"\x1b[B", SCREEN_DOWN},
        {"\x1bOB", SCREEN_DOWN},   {"\x1b[5~", SCREEN_PAGE_UP}, {"\x1b[6~", SCREEN_PAGE_DOWN},
        {"\x1b[H", SCREEN_HOME},   {"\x1bOH", SCREEN_HOME},     {"\x1b[1~", SCREEN_HOME},
        {"\x1b[F", SCREEN_BOTTOM}, {"\x1bOF", SCREEN_BOTTOM},   {"\x1b[4~", SCREEN_BOTTOM},
    };

    for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
        if (strcmp(typed, sequences[i].sent) == 0)
            return sequences[i].key;
    return typed[1] == '\0' ? (unsigned char)typed[0] : 0;
}

/* One key, as far as it was sent at once. A terminal that is gone ends the program. */
static int key_read(void) {
    char typed[8] = "";

    if (read(STDIN_FILENO, typed, 1) != 1)
        return SCREEN_END;
    struct pollfd more = {.fd = STDIN_FILENO, .events = POLLIN};
    for (unsigned i = 1; typed[0] == '\x1b' && i < sizeof(typed) - 1; i++)
        if (poll(&more, 1, 0) != 1 || read(STDIN_FILENO, &typed[i], 1) != 1 || typed[i] == '~' ||
            (i > 1 && typed[i] >= 'A'))
            break;
    return key_of(typed);
}

int screen_wait(uint64_t until_ns) {
    struct pollfd input = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};

    fflush(stdout);
    for (;;) {
        const uint64_t now = monotonic_ns(), left = until_ns > now ? until_ns - now : 0;
        const struct timespec time = {.tv_sec = (time_t)(left / 1000000000u),
                                      .tv_nsec = (long)(left % 1000000000u)};
        const int ready = ppoll(&input, 1, &time, &before);
        if (ended != 0)
            return SCREEN_END;
        if (stopped != 0) {
            stopped = 0;
            leave();
            raise(SIGSTOP);
            enter();
            resized = 1;
        }
        if (resized != 0) {
            resized = 0;
            return SCREEN_SIZE;
        }
        if (ready > 0)
            return key_read();
        if (ready == 0)
            return SCREEN_TIME;
    }
}

struct screen_size screen_size(void) {
    struct winsize window;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_row == 0 || window.ws_col == 0)
        return (struct screen_size){.rows = 24, .columns = 80};
    return (struct screen_size){.rows = window.ws_row, .columns = window.ws_col};
}
