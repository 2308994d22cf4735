/* SPDX-License-Identifier: MIT
 * Copyright (c) 2026 The stint authors
 *
 * The library for Node.js: what index.cjs calls, by Node-API 8.
 *
 * Who calls is index.cjs alone. It has checked all numbers; what is checked here are keys, which
 * only C can look into at the speed of a decision. A table is an `external`. Each thread of Node
 * (worker_threads) has an `addon` of its own.
 *
 * A verdict goes through one array of doubles, `out`, which index.cjs and this file share: nothing
 * is allocated for it. Its 16 places are told once in `enum place` and once in index.cjs. */
#include "addon.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Where `out` has what of a verdict. A number of 64 bits is two. */
enum place {
    ALLOWED,
    FLAGS,
    LIMIT,
    USED,
    REMAINING,
    GRANTED,
    WINDOW, /* 2 */
    RESET_AFTER = 8,
    RETRY_AFTER,
    POLICY,
    GENERATION,
    UNIT,     /* 2 */
    KEY = 14, /* 2 */
    PLACES = 16,
};

/* ---- Values ---- */

static napi_value number(napi_env env, double value) {
    napi_value result = NULL;
    (void)napi_create_double(env, value, &result);
    return result;
}

static napi_value text(napi_env env, const char *value) {
    napi_value result = NULL;
    (void)napi_create_string_utf8(env, value, NAPI_AUTO_LENGTH, &result);
    return result;
}

static void set(napi_env env, napi_value object, const char *name, napi_value value) {
    (void)napi_set_named_property(env, object, name, value);
}

char *stint_addon_copy_of(napi_env env, napi_value value, size_t *length) {
    char *copy = NULL;
    *length = 0;
    if (napi_get_value_string_utf8(env, value, NULL, 0, length) == napi_ok &&
        (copy = malloc(*length + 1)) != NULL)
        (void)napi_get_value_string_utf8(env, value, copy, *length + 1, length);
    if (copy == NULL)
        (void)napi_throw_error(env, "ENOMEM", "there is no memory for the copy of a text");
    return copy;
}

static struct addon *addon_of(napi_env env) {
    void *addon = NULL;
    (void)napi_get_instance_data(env, &addon);
    return addon;
}

bool stint_addon_begin(struct call *call, napi_env env, napi_callback_info info) {
    size_t count = ARGUMENTS;
    void *table = NULL;

    call->env = env;
    if (napi_get_cb_info(env, info, &count, call->arguments, NULL, NULL) != napi_ok ||
        napi_get_value_external(env, call->arguments[0], &table) != napi_ok)
        return napi_throw_type_error(env, NULL, "this is no table"), false;
    call->addon = addon_of(env);
    call->table = table;
    call->limiter = call->table->limiter;
    if (call->limiter == NULL)
        return napi_throw_error(env, "EBADF", "the table is closed"), false;
    return true;
}

/* ---- Verdicts ---- */

static void put_64(double *to, uint64_t value) {
    to[0] = (double)(value >> 32);
    to[1] = (double)(uint32_t)value;
}

static void put(double *to, const struct stint_verdict *verdict, stint_key key) {
    to[ALLOWED] = verdict->allowed;
    to[FLAGS] = verdict->flags;
    to[LIMIT] = verdict->capacity;
    to[USED] = verdict->used;
    to[REMAINING] = verdict->remaining;
    to[GRANTED] = verdict->granted;
    put_64(to + WINDOW, verdict->window);
    to[RESET_AFTER] = (double)verdict->reset_after;
    to[RETRY_AFTER] = verdict->retry_after == STINT_NEVER ? INFINITY : (double)verdict->retry_after;
    to[POLICY] = verdict->policy;
    to[GENERATION] = verdict->generation;
    put_64(to + UNIT, verdict->unit);
    put_64(to + KEY, key.hash);
}

/* What a program has put into a verdict may be any number. */
static uint32_t get_32(double from) {
    return from >= 0 && from < 4294967296.0 ? (uint32_t)from : 0;
}

static uint64_t get_64(const double *from) {
    return (uint64_t)get_32(from[0]) << 32 | get_32(from[1]);
}

static uint64_t get_ns(double from) {
    return from < 18446744073709551616.0 ? from >= 0 ? (uint64_t)from : 0
           : isinf(from)                 ? STINT_NEVER
                                         : STINT_NEVER - 1;
}

static struct stint_verdict get(const double *from) {
    struct stint_verdict verdict = {
        .allowed = from[ALLOWED] != 0,
        .flags = get_32(from[FLAGS]),
        .capacity = get_32(from[LIMIT]),
        .used = get_32(from[USED]),
        .remaining = get_32(from[REMAINING]),
        .granted = get_32(from[GRANTED]),
        .window = get_64(from + WINDOW),
        .reset_after = get_ns(from[RESET_AFTER]),
        .retry_after = get_ns(from[RETRY_AFTER]),
        .policy = get_32(from[POLICY]),
        .generation = get_32(from[GENERATION]),
        .unit = get_64(from + UNIT),
    };
    return verdict;
}

/* ---- Deciding ---- */

/* Of arguments (table, policy, key, cost, limit, burst, flags). */
static bool request_of(const struct call *call, struct stint_request *request) {
    stint_key key;
    if (!stint_addon_key_of(call, call->arguments[2], &key))
        return false;
    *request = (struct stint_request)STINT_REQUEST(number_of(call, 1), key, number_of(call, 3));
    request->limit = number_of(call, 4);
    request->burst = number_of(call, 5);
    request->flags = number_of(call, 6);
    return true;
}

/* allow(table, policy, key, cost, counts): a take that tells more only if there is more to tell.
 *   counts  the id of a policy that is known to hold nothing in flight; UINT32_MAX: none */
static napi_value call_allow(napi_env env, napi_callback_info info) {
    const uint32_t more = STINT_FIRST_REFUSAL | STINT_UNTRACKED | STINT_REPLACED |
                          STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST;
    struct stint_verdict verdict;
    struct call call;
    stint_key key;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    if (!stint_addon_key_of(&call, call.arguments[2], &key))
        return small(env, NO_KEY);
    bool allowed = stint_take(call.limiter, number_of(&call, 1), key, number_of(&call, 3),
                              STINT_NOW, &verdict);
    if ((verdict.flags & more) == 0 && verdict.policy == number_of(&call, 4))
        return small(env, allowed ? YES : NO);
    put(call.addon->out, &verdict, key);
    return small(env, LOOK);
}

/* decide(table, policy, key, cost, limit, burst, flags): the verdict is in `out`. */
static napi_value call_decide(napi_env env, napi_callback_info info) {
    struct stint_verdict verdict;
    struct stint_request request;
    struct call call;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    if (!request_of(&call, &request))
        return small(env, NO_KEY);
    (void)stint_decide(call.limiter, &request, STINT_NOW, &verdict);
    put(call.addon->out, &verdict, request.key);
    return small(env, LOOK);
}

/* stage(table, policy, key, cost, limit, burst, flags, place): one request of a group. */
static napi_value call_stage(napi_env env, napi_callback_info info) {
    struct call call;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    return small(env, request_of(&call, &call.addon->requests[number_of(&call, 7)]) ? YES : NO_KEY);
}

/* all(table, count): decides the requests that were staged; their verdicts are in `out`. */
static napi_value call_all(napi_env env, napi_callback_info info) {
    struct stint_verdict verdicts[STINT_ALL_MAX];
    struct call call;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    const struct stint_request *requests = call.addon->requests;
    const uint32_t count = number_of(&call, 1);
    bool allowed = stint_decide_all(call.limiter, requests, count, STINT_NOW, verdicts);
    for (uint32_t i = 0; i < count; i++)
        put(call.addon->out + (size_t)i * PLACES, &verdicts[i], requests[i].key);
    return small(env, allowed ? YES : NO);
}

/* check(table, policy, limit, burst, flags): why a request is a bad one, 0 if it is none. */
static napi_value call_check(napi_env env, napi_callback_info info) {
    struct call call;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    struct stint_request request = STINT_REQUEST(number_of(&call, 1), STINT_KEY_GLOBAL, 1);
    request.limit = number_of(&call, 2);
    request.burst = number_of(&call, 3);
    request.flags = number_of(&call, 4);
    return small(env, stint_request_check(call.limiter, &request));
}

/* refund(table, tokens): gives back by the verdict in `out`, which is changed. Returns how many. */
static napi_value call_refund(napi_env env, napi_callback_info info) {
    struct call call;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    double *out = call.addon->out;
    struct stint_verdict verdict = get(out);
    const stint_key key = {get_64(out + KEY)};
    uint32_t back = stint_refund(call.limiter, key, &verdict, number_of(&call, 1));
    put(out, &verdict, key);
    return number(env, back);
}

/* label(table, high, low, text): the name of a key that was refused, for operators. */
static napi_value call_label(napi_env env, napi_callback_info info) {
    struct call call;
    size_t length;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    char *name = stint_addon_copy_of(env, call.arguments[3], &length);
    if (name == NULL)
        return NULL;
    const stint_key key = {(uint64_t)number_of(&call, 1) << 32 | number_of(&call, 2)};
    bool kept = stint_label(call.limiter, key, name, length);
    free(name);
    return small(env, kept ? YES : NO);
}

static napi_value call_reset(napi_env env, napi_callback_info info) {
    struct call call;
    stint_key key;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    if (!stint_addon_key_of(&call, call.arguments[2], &key))
        return small(env, NO_KEY);
    return small(env, stint_reset(call.limiter, number_of(&call, 1), key) ? YES : NO);
}

/* headers(table, style, count): the lines of a response, of the verdicts in `out`. */
static napi_value call_headers(napi_env env, napi_callback_info info) {
    struct stint_verdict verdicts[STINT_ALL_MAX];
    char lines[STINT_HEADERS_SIZE(STINT_ALL_MAX)];
    struct call call;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    const uint32_t count = number_of(&call, 2);
    for (uint32_t i = 0; i < count; i++)
        verdicts[i] = get(call.addon->out + (size_t)i * PLACES);
    int length =
        stint_headers(call.limiter, number_of(&call, 1), verdicts, count, lines, sizeof(lines));
    return length < 0 ? small(env, length) : text(env, lines);
}

/* ---- Policies ---- */

/* Begins a call about the policy that is named behind the table, and finds its id. `error` receives
 * 0, or why there is none. Returns false if there is an exception. */
static bool begin_named(struct call *call, napi_env env, napi_callback_info info, uint32_t *id,
                        int *error) {
    size_t length;

    if (!stint_addon_begin(call, env, info))
        return false;
    char *name = stint_addon_copy_of(env, call->arguments[1], &length);
    if (name == NULL)
        return false;
    *error = stint_policy_find(call->limiter, name, id);
    free(name);
    return true;
}

/* find(table, name): its id, or an error. */
static napi_value call_find(napi_env env, napi_callback_info info) {
    struct call call;
    uint32_t id;
    int error;

    if (!begin_named(&call, env, info, &id, &error))
        return NULL;
    return error < 0 ? small(env, error) : number(env, id);
}

/* remove(table, name): 0, or an error. */
static napi_value call_remove(napi_env env, napi_callback_info info) {
    struct call call;
    uint32_t id;
    int error;

    if (!begin_named(&call, env, info, &id, &error))
        return NULL;
    return small(env, error != 0 ? error : stint_policy_remove(call.limiter, id));
}

/* inFlight(table, id): whether it counts what is held at once. */
static napi_value call_in_flight(napi_env env, napi_callback_info info) {
    struct stint_policy policy = STINT_POLICY_INIT;
    struct call call;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    bool held = stint_policy_get(call.limiter, number_of(&call, 1), &policy) == 0 &&
                (policy.flags & STINT_IN_FLIGHT) != 0;
    return small(env, held ? YES : NO);
}

/* policy(table, id): its name and text, or an error. */
static napi_value call_policy(napi_env env, napi_callback_info info) {
    struct stint_policy policy = STINT_POLICY_INIT;
    char notation[512];
    struct call call;
    napi_value result;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    int error = stint_policy_get(call.limiter, number_of(&call, 1), &policy);
    if (error < 0 || (error = stint_policy_format(&policy, notation, sizeof(notation))) < 0)
        return small(env, error);
    (void)napi_create_object(env, &result);
    set(env, result, "name", text(env, policy.name));
    set(env, result, "text", text(env, notation));
    return result;
}

struct changes {
    napi_env env;
    napi_value array;
    uint32_t count;
};

static void told(void *context, const struct stint_change *change) {
    static const char *const kinds[] = {"unchanged", "added", "changed", "replaced", "removed"};
    struct changes *changes = context;
    napi_env env = changes->env;
    napi_value object, none;

    (void)napi_create_object(env, &object);
    (void)napi_get_null(env, &none);
    set(env, object, "kind", text(env, kinds[change->kind]));
    set(env, object, "name", text(env, change->name));
    set(env, object, "text", change->text == NULL ? none : text(env, change->text));
    set(env, object, "was", change->was == NULL ? none : text(env, change->was));
    (void)napi_set_element(env, changes->array, changes->count++, object);
}

/* apply(table, text, flags): the changes, or an error. */
static napi_value call_apply(napi_env env, napi_callback_info info) {
    struct changes changes = {.env = env};
    struct call call;
    size_t length;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    char *policies = stint_addon_copy_of(env, call.arguments[1], &length);
    if (policies == NULL)
        return NULL;
    (void)napi_create_array(env, &changes.array);
    int error =
        stint_policies_apply(call.limiter, policies, number_of(&call, 2), NULL, told, &changes);
    free(policies);
    return error < 0 ? small(env, error) : changes.array;
}

/* ---- Tables ---- */

/* No table has a finalizer of Node's. Node 20 frees an addon's environment before it runs a
 * finalizer that the garbage collector queued as the process ended: a segmentation fault. index.cjs
 * says when a table is collected, and addon_free closes those that are left. */
static void table_free(struct table *table) {
    stint_close(table->limiter);
    free(table);
}

/* The clock that a test moves (testing.cjs), for all threads of Node. */
static _Atomic uint64_t test_now; /* ns since the epoch; tables opened by it read it ever after */
static _Atomic bool testing;

static uint64_t test_clock(void) {
    return test_now;
}

/* clock(now): sets it, to a BigInt of ns; null: the test is over. Without an argument it says
 * whether there is a test. */
static napi_value call_clock(napi_env env, napi_callback_info info) {
    napi_valuetype type = napi_undefined;
    napi_value argument;
    size_t count = 1;
    uint64_t now;
    bool whole;

    if (napi_get_cb_info(env, info, &count, &argument, NULL, NULL) != napi_ok ||
        napi_typeof(env, argument, &type) != napi_ok)
        return NULL;
    if (type == napi_bigint && napi_get_value_bigint_uint64(env, argument, &now, &whole) == napi_ok)
        test_now = now;
    if (type != napi_undefined)
        testing = type == napi_bigint;
    return small(env, testing ? YES : NO);
}

/* open(path, max_entries, on_full, flags, max_policies, mode, labels): a table, or an error.
 * Without max_entries it is one that is there. */
static napi_value call_open(napi_env env, napi_callback_info info) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct call call = {.env = env};
    size_t count = ARGUMENTS, length;
    napi_value result = NULL;
    napi_valuetype type;
    double max_entries = 0;
    char *path = NULL;

    if (napi_get_cb_info(env, info, &count, call.arguments, NULL, NULL) != napi_ok ||
        napi_typeof(env, call.arguments[0], &type) != napi_ok)
        return NULL;
    if (type == napi_string &&
        (path = stint_addon_copy_of(env, call.arguments[0], &length)) == NULL)
        return NULL;
    struct table *table = calloc(1, sizeof(*table));
    if (table == NULL) {
        free(path);
        return small(env, -ENOMEM);
    }
    (void)napi_get_value_double(env, call.arguments[1], &max_entries);
    options.path = path;
    options.clock = testing ? test_clock : NULL;
    options.max_entries = (uint64_t)max_entries;
    options.on_full = number_of(&call, 2);
    options.flags = number_of(&call, 3);
    options.max_policies = number_of(&call, 4);
    options.mode = number_of(&call, 5);
    options.labels = number_of(&call, 6);
    int error = options.max_entries == 0 ? stint_attach(&options, &table->limiter)
                                         : stint_open(&options, &table->limiter);
    free(path);
    if (error == 0 && napi_create_external(env, table, NULL, NULL, &result) == napi_ok) {
        struct addon *addon = addon_of(env);
        table->next = addon->tables;
        addon->tables = table;
        return result;
    }
    table_free(table);
    return small(env, error);
}

/* The table of a call that has no other argument, which may be closed; NULL if it has none. */
static struct table *table_of(napi_env env, napi_callback_info info) {
    size_t count = 1;
    napi_value argument;
    void *table = NULL;

    if (napi_get_cb_info(env, info, &count, &argument, NULL, NULL) != napi_ok ||
        napi_get_value_external(env, argument, &table) != napi_ok)
        return NULL;
    return table;
}

/* close(table) */
static napi_value call_close(napi_env env, napi_callback_info info) {
    struct table *table = table_of(env, info);

    if (table != NULL) {
        stint_close(table->limiter);
        table->limiter = NULL;
    }
    return NULL;
}

/* forget(table): nothing uses it any more. */
static napi_value call_forget(napi_env env, napi_callback_info info) {
    struct table *table = table_of(env, info);

    if (table == NULL)
        return NULL;
    struct table **link = &addon_of(env)->tables;
    while (*link != table)
        link = &(*link)->next;
    *link = table->next;
    table_free(table);
    return NULL;
}

/* stats(table): its counts, or an error. */
static napi_value call_stats(napi_env env, napi_callback_info info) {
    struct stint_stats stats = STINT_STATS_INIT;
    struct call call;
    napi_value result;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    int error = stint_stats_get(call.limiter, &stats);
    if (error < 0)
        return small(env, error);
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"maxEntries", stats.max_entries},
        {"live", stats.live},
        {"replaced", stats.replaced},
        {"untracked", stats.untracked},
        {"policies", stats.policies},
        {"maxPolicies", stats.max_policies},
        {"processes", stats.processes},
        {"memory", stats.memory},
        {"labels", stats.labels},
        {"removed", stats.removed},
        {"lost", stats.lost},
    };
    (void)napi_create_object(env, &result);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        set(env, result, counts[i].name, number(env, (double)counts[i].value));
    return result;
}

static napi_value call_reason(napi_env env, napi_callback_info info) {
    (void)info;
    return text(env, stint_reason());
}

static napi_value call_version(napi_env env, napi_callback_info info) {
    (void)info;
    return text(env, stint_version());
}

/* ---- A file that is cut off ---- */

static struct sigaction sigbus_before;

/* A fault that is not of a table is whose it was before. */
static void on_sigbus(int number, siginfo_t *fault, void *context) {
    if (stint_on_sigbus(fault))
        return;
    if ((sigbus_before.sa_flags & SA_SIGINFO) != 0) {
        sigbus_before.sa_sigaction(number, fault, context);
    } else if (sigbus_before.sa_handler != SIG_DFL && sigbus_before.sa_handler != SIG_IGN) {
        sigbus_before.sa_handler(number);
    } else {
        (void)sigaction(number, &sigbus_before, NULL);
        (void)raise(number);
    }
}

/* Once for all threads of Node. The addon is never unloaded (install.cjs). */
static void __attribute__((constructor)) handle_sigbus(void) {
    const struct sigaction action = {.sa_sigaction = on_sigbus,
                                     .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigaction(SIGBUS, &action, &sigbus_before);
}

/* ---- The module ---- */

static void addon_free(napi_env env, void *data, void *hint) {
    struct addon *addon = data;

    (void)env;
    (void)hint;
    for (struct table *next, *table = addon->tables; table != NULL; table = next) {
        next = table->next;
        table_free(table);
    }
    free(addon); /* the array of `out` is Node's */
}

NAPI_MODULE_INIT() {
    static const struct {
        const char *name;
        napi_callback call;
    } calls[] = {
        {"open", call_open},          {"close", call_close},
        {"stats", call_stats},        {"apply", call_apply},
        {"find", call_find},          {"policy", call_policy},
        {"key", stint_addon_key},     {"address", stint_addon_address},
        {"allow", call_allow},        {"decide", call_decide},
        {"stage", call_stage},        {"all", call_all},
        {"check", call_check},        {"refund", call_refund},
        {"reset", call_reset},        {"headers", call_headers},
        {"inFlight", call_in_flight}, {"reason", call_reason},
        {"label", call_label},        {"clock", call_clock},
        {"remove", call_remove},      {"version", call_version},
        {"forget", call_forget},
    };
    const size_t places = (size_t)PLACES * STINT_ALL_MAX;
    napi_value buffer, array, call;
    void *out;

    struct addon *addon = calloc(1, sizeof(*addon));
    if (addon == NULL)
        return napi_throw_error(env, "ENOMEM", "there is no memory for the addon"), NULL;
    if (napi_set_instance_data(env, addon, addon_free, NULL) != napi_ok ||
        napi_create_arraybuffer(env, places * sizeof(double), &out, &buffer) != napi_ok ||
        napi_create_typedarray(env, napi_float64_array, places, buffer, 0, &array) != napi_ok ||
        napi_create_reference(env, array, 1, &addon->out_array) != napi_ok)
        return napi_throw_error(env, NULL, "the addon cannot be set up"), NULL;
    addon->out = out;
    set(env, exports, "out", array);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (napi_create_function(env, calls[i].name, NAPI_AUTO_LENGTH, calls[i].call, NULL,
                                 &call) != napi_ok)
            return NULL;
        set(env, exports, calls[i].name, call);
    }
    return exports;
}
