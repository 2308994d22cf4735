/* SPDX-License-Identifier: MIT
 * What the library says to people: errors, reasons, its version. */
#include <errno.h>
#include <string.h>

#include "limiter.h"

static _Thread_local const char *last_reason = "";

int failed(int error, const char *reason) {
    last_reason = reason;
    return -error;
}

int struct_check(const void *given, size_t given_size, size_t known_size, const char *reason) {
    if (given_size < known_size)
        return failed(EINVAL, reason);
    for (size_t i = known_size; i < given_size; i++)
        if (((const char *)given)[i] != 0)
            return failed(EINVAL, reason);
    return 0;
}

void struct_write(void *given, size_t given_size, const void *known, size_t known_size) {
    memcpy(given, known, known_size);
    memcpy(given, &given_size, sizeof(given_size)); /* `size` is the first member of each */
    memset((char *)given + known_size, 0, given_size - known_size);
}

const char *stint_reason(void) {
    return last_reason;
}

const char *stint_strerror(int error) {
    switch (error < 0 ? -(long)error : error) {
    case 0:
        return "no error";
    case EINVAL:
        return "an argument is out of range, contradictory, or of another version";
    case ENOMEM:
        return "the memory cannot be had";
    case EEXIST:
        return "a policy of that name exists";
    case ENOSPC:
        return "there is no room for another policy";
    case ENOENT:
        return "there is no such policy";
    case EAGAIN:
        return "the system has no random bytes to give for the secret";
    default:
        return "not an error of stint";
    }
}

const char *stint_version(void) {
    return STINT_VERSION;
}
