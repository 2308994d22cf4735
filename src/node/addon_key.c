/* SPDX-License-Identifier: MIT
 * Keys of what JavaScript has for them: strings, bytes, numbers, addresses, and arrays of these. */
#include "addon.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { BYTES_AT_HAND = 512 };

/* The bytes of a part of a key. */
struct bytes {
    const void *at;
    size_t length;
    char *copy; /* to free; NULL: none was made */
    char here[BYTES_AT_HAND];
};

/* A whole number from 0 to 2^53, or a BigInt of 64 bits. */
static bool id_of(napi_env env, napi_value value, napi_valuetype type, uint64_t *id) {
    bool whole = false;
    double real;

    if (type == napi_bigint)
        return napi_get_value_bigint_uint64(env, value, id, &whole) == napi_ok && whole;
    if (napi_get_value_double(env, value, &real) != napi_ok || !(real >= 0) ||
        real > 9007199254740992.0 - 1 || real != floor(real))
        return false;
    *id = (uint64_t)real;
    return true;
}

static bool bytes_of_string(napi_env env, napi_value value, struct bytes *bytes) {
    bytes->at = bytes->here;
    if (napi_get_value_string_utf8(env, value, bytes->here, sizeof(bytes->here), &bytes->length) !=
        napi_ok)
        return false;
    /* A character of four bytes may have had no room at the end. */
    if (bytes->length + 4 < sizeof(bytes->here))
        return true;
    bytes->at = bytes->copy = stint_addon_copy_of(env, value, &bytes->length);
    return bytes->copy != NULL;
}

/* The elements of a typed array, if they are of this type: Uint8Array has bytes, so a Buffer. */
static bool elements_of(napi_env env, napi_value value, napi_typedarray_type wanted, void **at,
                        size_t *length) {
    napi_typedarray_type type;
    bool typed = false;

    return napi_is_typedarray(env, value, &typed) == napi_ok && typed &&
           napi_get_typedarray_info(env, value, &type, length, at, NULL, NULL) == napi_ok &&
           type == wanted;
}

/* Of a string, or a Uint8Array, such as a Buffer. */
static bool bytes_of(napi_env env, napi_value value, napi_valuetype type, struct bytes *bytes) {
    void *at;

    bytes->copy = NULL;
    if (type == napi_string)
        return bytes_of_string(env, value, bytes);
    if (type != napi_object || !elements_of(env, value, napi_uint8_array, &at, &bytes->length))
        return false;
    bytes->at = at;
    return true;
}

/* A part of a key: a key by itself (`joined` NULL), or joined to what there is. A number that is
 * joined is the bytes of its own key, so that 7 stays another than "7". A BigUint64Array of one
 * element is a key that was made before (class Key), and can only be first. */
static bool key_of_part(const struct call *call, napi_value value, const stint_key *joined,
                        stint_key *key) {
    napi_valuetype type;
    struct bytes bytes;
    size_t length;
    uint64_t id;
    void *hash;

    if (napi_typeof(call->env, value, &type) != napi_ok)
        return false;
    if (type == napi_number || type == napi_bigint) {
        if (!id_of(call->env, value, type, &id))
            return false;
        stint_key own = stint_key_of_id(call->limiter, id);
        *key = joined == NULL ? own
                              : stint_key_join(call->limiter, *joined, &own.hash, sizeof(own.hash));
        return true;
    }
    if (type == napi_object && joined == NULL &&
        elements_of(call->env, value, napi_biguint64_array, &hash, &length)) {
        if (length != 1)
            return false;
        memcpy(&key->hash, hash, sizeof(key->hash));
        return true;
    }
    if (!bytes_of(call->env, value, type, &bytes))
        return false;
    *key = joined == NULL ? stint_key_of(call->limiter, bytes.at, bytes.length)
                          : stint_key_join(call->limiter, *joined, bytes.at, bytes.length);
    free(bytes.copy);
    return true;
}

/* To read an element may call a getter, which may close the table. */
static bool key_of_parts(const struct call *call, napi_value array, stint_key *key) {
    napi_value part;
    uint32_t parts = 0;

    if (napi_get_array_length(call->env, array, &parts) != napi_ok || parts == 0)
        return false;
    for (uint32_t i = 0; i < parts; i++) {
        if (napi_get_element(call->env, array, i, &part) != napi_ok ||
            call->table->limiter == NULL || !key_of_part(call, part, i == 0 ? NULL : key, key))
            return false;
    }
    return true;
}

bool stint_addon_key_of(const struct call *call, napi_value value, stint_key *key) {
    bool array = false;

    if (napi_is_array(call->env, value, &array) == napi_ok && array)
        return key_of_parts(call, value, key);
    return key_of_part(call, value, NULL, key);
}

napi_value stint_addon_key(napi_env env, napi_callback_info info) {
    struct call call;
    stint_key key;
    size_t length;
    void *into;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    if (!stint_addon_key_of(&call, call.arguments[1], &key) ||
        !elements_of(env, call.arguments[2], napi_biguint64_array, &into, &length))
        return small(env, NO_KEY);
    memcpy(into, &key.hash, sizeof(key.hash));
    return small(env, YES);
}

napi_value stint_addon_address(napi_env env, napi_callback_info info) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr other = {.sa_family = AF_UNIX};
    const void *address = &other;
    struct call call;
    char told[INET6_ADDRSTRLEN + 1];
    size_t length;
    void *into;

    if (!stint_addon_begin(&call, env, info))
        return NULL;
    if (napi_get_value_string_utf8(env, call.arguments[1], told, sizeof(told), &length) !=
            napi_ok ||
        !elements_of(env, call.arguments[4], napi_biguint64_array, &into, &length))
        return small(env, NO_KEY);
    if (inet_pton(AF_INET, told, &v4.sin_addr) == 1)
        address = &v4;
    else if (inet_pton(AF_INET6, told, &v6.sin6_addr) == 1)
        address = &v6;
    else if (told[0] != '\0')
        return small(env, NO_KEY);
    stint_key key =
        stint_key_address(call.limiter, address, number_of(&call, 2), number_of(&call, 3));
    memcpy(into, &key.hash, sizeof(key.hash));
    return small(env, YES);
}
