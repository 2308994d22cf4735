/* SPDX-License-Identifier: MIT
 * What the files of the addon share. */
#ifndef STINT_ADDON_H
#define STINT_ADDON_H

#include <node_api.h>
#include <stint.h>

/* What calls return to index.cjs, if it is no value. */
enum answer {
    NO = 0,
    YES = 1,
    LOOK = 2,    /* `out` has the verdict */
    NO_KEY = -1, /* what stands for the key is none */
};

struct table {
    struct stint_limiter *limiter; /* NULL: closed */
    struct table *next;            /* of the thread's */
};

/* Of one thread of Node. */
struct addon {
    struct table *tables; /* that are not collected yet */
    double *out;          /* PLACES for each of STINT_ALL_MAX verdicts */
    napi_ref out_array;
    struct stint_request requests[STINT_ALL_MAX]; /* of the group that is being made */
};

enum { ARGUMENTS = 8 };

/* A call from JavaScript. Its first argument is a table. */
struct call {
    napi_env env;
    struct addon *addon;
    struct table *table;
    struct stint_limiter *limiter;
    napi_value arguments[ARGUMENTS];
};

static inline napi_value small(napi_env env, int32_t value) {
    napi_value result = NULL;
    (void)napi_create_int32(env, value, &result);
    return result;
}

static inline uint32_t number_of(const struct call *call, size_t argument) {
    uint32_t value = 0;
    (void)napi_get_value_uint32(call->env, call->arguments[argument], &value);
    return value;
}

/* A copy of a string, to free; NULL, and an exception is thrown, if there is no memory. */
char *stint_addon_copy_of(napi_env env, napi_value value, size_t *length);

/* Reads a call's arguments. False, and an exception is thrown, if the table is closed. */
bool stint_addon_begin(struct call *call, napi_env env, napi_callback_info info);

/* Makes a key of what JavaScript has for one. False: that is none. */
bool stint_addon_key_of(const struct call *call, napi_value value, stint_key *key);

/* key(table, parts, into): makes a key, which a BigUint64Array receives. */
napi_value stint_addon_key(napi_env env, napi_callback_info info);

/* address(table, text, prefix4, prefix6, into): the same of an IP address. "" is that of all unix
 * sockets. */
napi_value stint_addon_address(napi_env env, napi_callback_info info);

#endif
