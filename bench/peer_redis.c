/* SPDX-License-Identifier: MIT
 * Redis, with the two recipes that everybody uses. Its keys carry the number of the window, and
 * expire when the window is over at the latest. */
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer.h"

enum {
    KEY_SIZE = PEER_KEY + 24, /* with ":" and the window */
    SCRIPT_HASH = 40,
};

/* Counts on the server, and tells what a server needs to answer a client: whether the request is
 * allowed, the count, the seconds left. The server's own clock chooses the window. */
static const char script[] = "local now = redis.call('TIME')\n"
                             "local size = tonumber(ARGV[2])\n"
                             "local key = KEYS[1] .. ':' .. math.floor(now[1] / size)\n"
                             "local count = redis.call('INCR', key)\n"
                             "if count == 1 then redis.call('EXPIRE', key, size) end\n"
                             "local left = redis.call('TTL', key)\n"
                             "local allowed = count <= tonumber(ARGV[1]) and 1 or 0\n"
                             "return {allowed, count, left}\n";

/* Several limits: looks at the count of each, then adds to all or to none. */
static const char script_all[] =
    "local now = tonumber(redis.call('TIME')[1])\n"
    "local keys = {}\n"
    "for i = 1, #ARGV, 2 do\n"
    "    local key = KEYS[1] .. ':' .. ARGV[i + 1] .. ':' .. math.floor(now / tonumber(ARGV[i + "
    "1]))\n"
    "    local count = tonumber(redis.call('GET', key) or '0')\n"
    "    if count >= tonumber(ARGV[i]) then return {0, count, redis.call('TTL', key)} end\n"
    "    keys[i] = key\n"
    "end\n"
    "local most = 0\n"
    "for i = 1, #ARGV, 2 do\n"
    "    local count = redis.call('INCR', keys[i])\n"
    "    if count == 1 then redis.call('EXPIRE', keys[i], ARGV[i + 1]) end\n"
    "    most = math.max(most, count)\n"
    "end\n"
    "return {1, most, 0}\n";

struct redis {
    struct peer_setup setup;
    char script_hash[SCRIPT_HASH + 1];
    char limit[PEER_LIMITS][24], window[PEER_LIMITS][24]; /* as arguments */
    char version[64];
    redisContext *connection[];
};

static const char *what_failed(const redisContext *connection, const redisReply *reply) {
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR)
        return reply->str;
    return connection == NULL           ? "no memory"
           : connection->errstr[0] != 0 ? connection->errstr
                                        : "an answer that it should not give";
}

static void redis_close(void *state) {
    struct redis *redis = state;

    for (unsigned i = 0; i < redis->setup.threads * redis->setup.connections; i++)
        if (redis->connection[i] != NULL)
            redisFree(redis->connection[i]);
    free(redis);
}

static bool load_script(struct redis *redis) {
    redisContext *connection = redis->connection[0];
    redisReply *reply =
        redisCommand(connection, "SCRIPT LOAD %s", redis->setup.limits == 1 ? script : script_all);
    bool good = reply != NULL && reply->type == REDIS_REPLY_STRING && reply->len == SCRIPT_HASH;

    if (good)
        snprintf(redis->script_hash, sizeof(redis->script_hash), "%s", reply->str);
    else
        peer_fail("redis-server does not take the script: %s", what_failed(connection, reply));
    freeReplyObject(reply);
    return good;
}

static void read_version(struct redis *redis) {
    redisReply *reply = redisCommand(redis->connection[0], "INFO server");
    const char *at = reply != NULL && reply->type == REDIS_REPLY_STRING
                         ? strstr(reply->str, "redis_version:")
                         : NULL;

    if (at != NULL) {
        at += strlen("redis_version:");
        snprintf(redis->version, sizeof(redis->version), "Redis %.*s (hiredis %d.%d.%d)",
                 (int)strcspn(at, "\r\n"), at, HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
    }
    freeReplyObject(reply);
}

static bool redis_open(const struct peer_setup *setup, void **state) {
    struct redis *redis;

    unsigned connections = setup->threads * setup->connections;
    redis = calloc(1, sizeof(*redis) + connections * sizeof(redis->connection[0]));
    if (redis == NULL)
        return peer_fail("no memory");
    redis->setup = *setup;
    for (unsigned i = 0; i < setup->limits; i++) {
        snprintf(redis->limit[i], sizeof(redis->limit[i]), "%u", setup->each[i].limit);
        snprintf(redis->window[i], sizeof(redis->window[i]), "%llu",
                 (unsigned long long)setup->each[i].window);
    }
    bool good = true;
    for (unsigned i = 0; good && i < connections; i++) {
        redis->connection[i] = redisConnectUnix(setup->socket);
        good = redis->connection[i] != NULL && redis->connection[i]->err == 0;
        if (!good)
            peer_fail("no connection to redis-server: %s", what_failed(redis->connection[i], NULL));
    }
    if (good)
        read_version(redis);
    if (!good || !load_script(redis)) {
        redis_close(redis);
        return false;
    }
    *state = redis;
    return true;
}

static const char *redis_version(void *state) {
    return ((struct redis *)state)->version;
}

/* ---- The recipes ---- */

/* What a recipe sends for a key, and how it reads the answer. */
struct recipe {
    void (*send)(struct redis *redis, redisContext *connection, const char *key, uint64_t window);
    /* 1 granted, 0 refused, -1 failed */
    int (*receive)(struct redis *redis, redisContext *connection);
};

/* INCR key:window, EXPIRE key:window, in one go. */
static void incr_send(struct redis *redis, redisContext *connection, const char *key,
                      uint64_t window) {
    char name[KEY_SIZE];
    int length =
        snprintf(name, sizeof(name), "%.*s:%llu", PEER_KEY, key, (unsigned long long)window);
    const char *incr[] = {"INCR", name}, *expire[] = {"EXPIRE", name, redis->window[0]};
    const size_t lengths[] = {4, (size_t)length};
    const size_t expire_lengths[] = {6, (size_t)length, strlen(redis->window[0])};

    redisAppendCommandArgv(connection, 2, incr, lengths);
    redisAppendCommandArgv(connection, 3, expire, expire_lengths);
}

static int incr_receive(struct redis *redis, redisContext *connection) {
    redisReply *count = NULL, *expires = NULL;
    int granted = -1;

    if (redisGetReply(connection, (void **)&count) == REDIS_OK &&
        redisGetReply(connection, (void **)&expires) == REDIS_OK &&
        count->type == REDIS_REPLY_INTEGER && expires->type == REDIS_REPLY_INTEGER &&
        expires->integer == 1)
        granted = count->integer <= redis->setup.limit;
    else
        peer_fail("redis-server: %s", what_failed(connection, count));
    freeReplyObject(count);
    freeReplyObject(expires);
    return granted;
}

static void lua_send(struct redis *redis, redisContext *connection, const char *key,
                     uint64_t window) {
    enum { FIXED = 4 };
    const char *words[FIXED + 2 * PEER_LIMITS] = {"EVALSHA", redis->script_hash, "1", key};
    size_t lengths[FIXED + 2 * PEER_LIMITS] = {7, SCRIPT_HASH, 1, PEER_KEY}, n = FIXED;

    (void)window;
    for (unsigned i = 0; i < redis->setup.limits; i++, n += 2) {
        words[n] = redis->limit[i];
        words[n + 1] = redis->window[i];
        lengths[n] = strlen(words[n]);
        lengths[n + 1] = strlen(words[n + 1]);
    }
    redisAppendCommandArgv(connection, (int)n, words, lengths);
}

static int lua_receive(struct redis *redis, redisContext *connection) {
    redisReply *reply = NULL;
    int granted = -1;

    (void)redis;
    if (redisGetReply(connection, (void **)&reply) == REDIS_OK &&
        reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
        reply->element[0]->type == REDIS_REPLY_INTEGER)
        granted = reply->element[0]->integer == 1;
    else
        peer_fail("redis-server: %s", what_failed(connection, reply));
    freeReplyObject(reply);
    return granted;
}

/* `depth` requests are sent, spread over the thread's connections; then their answers are read. */
static bool decide(struct redis *redis, unsigned thread, const struct recipe *recipe,
                   const char *keys, size_t n, unsigned depth, uint64_t *answers) {
    unsigned connections = redis->setup.connections;
    redisContext **connection = &redis->connection[thread * connections];

    for (size_t at = 0; at < n; at += depth) {
        size_t end = n - at < depth ? n : at + depth;
        uint64_t window = peer_window(&redis->setup);
        for (size_t i = at; i < end; i++)
            recipe->send(redis, connection[i % connections], keys + i * PEER_KEY, window);
        for (unsigned i = 0; i < connections; i++)
            for (int done = 0; done == 0;)
                if (redisBufferWrite(connection[i], &done) != REDIS_OK)
                    return peer_fail("redis-server: %s", what_failed(connection[i], NULL));
        for (size_t i = at; i < end; i++) {
            int granted = recipe->receive(redis, connection[i % connections]);
            if (granted < 0)
                return false;
            answers[i / PEER_ANSWERS] |= (uint64_t)granted << (i % PEER_ANSWERS);
        }
    }
    return true;
}

static bool decide_incr(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                        uint64_t *answers) {
    static const struct recipe incr = {incr_send, incr_receive};
    return decide(state, thread, &incr, keys, n, depth, answers);
}

static bool decide_lua(void *state, unsigned thread, const char *keys, size_t n, unsigned depth,
                       uint64_t *answers) {
    static const struct recipe lua = {lua_send, lua_receive};
    return decide(state, thread, &lua, keys, n, depth, answers);
}

const struct peer peer_redis_incr = {.name = "redis-incr",
                                     .open = redis_open,
                                     .close = redis_close,
                                     .decide = decide_incr,
                                     .version = redis_version};

const struct peer peer_redis_lua = {.name = "redis-lua",
                                    .open = redis_open,
                                    .close = redis_close,
                                    .decide = decide_lua,
                                    .version = redis_version};
