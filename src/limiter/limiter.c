/* SPDX-License-Identifier: MIT
 * A table's lock for set-up, and what set-up needs to look at. No decision takes the lock. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "limiter/limiter.h"
#include "sys/message.h"

bool stint_limiter_lost(const struct stint_limiter *limiter) {
    struct mapping *mapping = limiter->memory.mapping;

    if (mapping == NULL)
        return false;
    if (atomic_load_acquire(&limiter->header->magic) != HEADER_MAGIC) /* M15 */
        (void)stint_mapping_lose(mapping);
    return atomic_load_acquire(&mapping->lost) != 0; /* M15 */
}

int stint_limiter_whole(const struct stint_limiter *limiter) {
    return stint_limiter_lost(limiter)
               ? stint_failed(EPROTO, "the table's file was cut off while it was open: close the "
                                      "limiter, remove the file, and open the path again")
               : 0;
}

int stint_limiter_no_policy(const struct stint_limiter *limiter) {
    const int error = stint_limiter_whole(limiter);
    return error != 0 ? error
                      : stint_failed(ENOENT, "there is no policy of that id (it was removed, or "
                                             "never was): find it by its name");
}

void stint_limiter_lock_make(pthread_mutex_t *lock) {
    pthread_mutexattr_t robust;

    (void)pthread_mutexattr_init(&robust);
    (void)pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    (void)pthread_mutex_init(lock, &robust);
    (void)pthread_mutexattr_destroy(&robust);
}

/* The process of the lock's holder if it is stopped; else 0: it may be in another pid namespace. */
static long lock_holder(const pthread_mutex_t *lock) {
    char text[512] = "";
    FILE *status = NULL;

#ifdef __GLIBC__
    (void)snprintf(text, sizeof(text), "/proc/%d/status", lock->__data.__owner);
    status = fopen(text, "re");
#else
    (void)lock;
#endif
    if (status != NULL) {
        text[fread(text, 1, sizeof(text) - 1, status)] = '\0';
        (void)fclose(status);
    }
    const char *process = strstr(text, "\nTgid:");
    return process != NULL && strstr(text, "\nState:\tT") != NULL ? strtol(process + 6, NULL, 10)
                                                                  : 0;
}

int stint_limiter_lock(struct stint_limiter *limiter) {
    pthread_mutex_t *lock = &limiter->header->lock;

    for (unsigned tries = 0; tries < SET_UP_TRIES; tries++) {
        int error = pthread_mutex_trylock(lock);
        if (error == 0 || error == EOWNERDEAD)
            return error;
        if (error != EBUSY)
            return stint_failed(EPROTO, "the table is damaged: its lock does not work");
        set_up_pause();
    }
    return stint_failed_held(lock_holder(lock),
                             "has held the table's lock for set-up for 10 s: is it stopped?");
}

int stint_limiter_unlock(struct stint_limiter *limiter, int error) {
    (void)pthread_mutex_unlock(&limiter->header->lock);
    const int whole = stint_limiter_whole(limiter);
    return whole != 0 ? whole : error;
}
