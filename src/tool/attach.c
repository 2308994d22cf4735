/* SPDX-License-Identifier: MIT */
#include "attach.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"

int attach(const struct arguments *arguments, uint32_t flags, struct stint_limiter **limiter) {
    struct stint_options options = STINT_OPTIONS_INIT;

    options.path = arguments->file;
    options.flags = flags;
    options.on_full = arguments->on_full;
    int error = stint_attach(&options, limiter);
    if (error == 0)
        return EXIT_GOOD;
    if (error == -ENOENT)
        return failure(arguments, "%s: there is no table: stint make makes one", arguments->file);
    return failure(arguments, "%s", reason());
}

/* ---- Policies ---- */

/* Gives a policy the name that it has in a table: that of one that nobody else sees. */
static bool name_policy(struct stint_policy *policy) {
    struct stint_options options = STINT_OPTIONS_INIT;
    struct stint_limiter *limiter;
    uint32_t id;

    options.max_entries = 1;
    options.max_policies = 2; /* one with overrides takes two */
    if (stint_open(&options, &limiter) != 0)
        return false;
    bool named =
        stint_policy_add(limiter, policy, &id) == 0 && stint_policy_get(limiter, id, policy) == 0;
    stint_close(limiter);
    return named;
}

/* Whether two policies have the same numbers. */
static bool same(const struct stint_policy *a, const struct stint_policy *b) {
    char texts[2][512];

    stint_policy_format(a, texts[0], sizeof(texts[0]));
    stint_policy_format(b, texts[1], sizeof(texts[1]));
    return strcmp(texts[0], texts[1]) == 0;
}

int attach_policy(const struct arguments *arguments, struct stint_limiter *limiter, bool add,
                  uint32_t *id) {
    struct stint_policy policy = STINT_POLICY_INIT, there = STINT_POLICY_INIT;
    const char *wrong;

    if (stint_policy_find(limiter, arguments->policy, id) == 0)
        return EXIT_GOOD;
    if (stint_policy_parse(arguments->policy, &policy, &wrong) != 0) {
        notation_error(arguments->command->name,
                       "there is no policy of that name, and it is no notation of one:",
                       arguments->policy, wrong);
        return EXIT_USAGE;
    }
    if (add) {
        int error = stint_policy_add(limiter, &policy, id);
        if (error == 0)
            return EXIT_GOOD;
        int code = failure(arguments, "POLICY '%s': %s", arguments->policy, reason());
        return error == -EEXIST ? EXIT_USAGE : code;
    }
    if (!name_policy(&policy))
        return failure(arguments, "POLICY '%s': %s", arguments->policy, reason());
    if (stint_policy_find(limiter, policy.name, id) != 0)
        failure(arguments, "POLICY '%s': the table has no policy of the name '%s'",
                arguments->policy, policy.name);
    else if (stint_policy_get(limiter, *id, &there) != 0 || !same(&policy, &there))
        failure(arguments, "POLICY '%s': the policy '%s' of the table has other numbers",
                arguments->policy, policy.name);
    else
        return EXIT_GOOD;
    return EXIT_USAGE;
}

void policies_read(struct policies *policies, const struct stint_limiter *limiter) {
    struct stint_policy policy = STINT_POLICY_INIT;
    uint32_t room = 0, found;

    *policies = (struct policies){0};
    for (uint32_t id = 0; id < STINT_POLICIES_MAX; id++) {
        /* An id that leads to another is no policy of its own. */
        if (stint_policy_get(limiter, id, &policy) != 0 ||
            stint_policy_find(limiter, policy.name, &found) != 0 || found != id)
            continue;
        if (id >= room) {
            uint32_t more = 2 * id + 16;
            policies->of = must_have(realloc(policies->of, more * sizeof(*policies->of)));
            memset(policies->of + room, 0, (more - room) * sizeof(*policies->of));
            room = more;
        }
        struct policy_here *here = &policies->of[id];
        struct stint_policy unnamed = policy;
        unnamed.name[0] = '\0';
        here->there = true;
        here->policy = policy;
        stint_policy_format(&unnamed, here->notation, sizeof(here->notation));
        policies->count = id + 1;
    }
}

void policies_free(struct policies *policies) {
    free(policies->of);
}

const struct stint_policy *policies_at(const struct policies *policies, uint32_t id) {
    return id < policies->count && policies->of[id].there ? &policies->of[id].policy : NULL;
}

/* ---- Keys ---- */

/* The value of a hexadecimal digit, or -1. */
static int digit(char letter) {
    const char *digits = "0123456789abcdef0123456789ABCDEF", *at = strchr(digits, letter);

    return letter == '\0' || at == NULL ? -1 : (int)(at - digits) % 16;
}

/* Turns hexadecimal digits into the bytes that they stand for, in place. */
static bool bytes_of_hex(char *text, size_t *length) {
    size_t n = strlen(text);

    if (n % 2 != 0)
        return false;
    for (size_t i = 0; i < n; i += 2) {
        int high = digit(text[i]), low = digit(text[i + 1]);
        if (high < 0 || low < 0)
            return false;
        text[i / 2] = (char)(high * 16 + low);
    }
    *length = n / 2;
    return true;
}

static int wrong_key(const struct arguments *arguments, const char *part, const char *wanted) {
    char shown[80];

    usage_error(arguments->command->name, "KEY '%s': not %s",
                printable(shown, sizeof(shown), part, strlen(part)), wanted);
    return EXIT_USAGE;
}

static int key_of_hash(const struct arguments *arguments, stint_key *key) {
    const char *text = arguments->keys[0];

    if (arguments->hex || arguments->address || arguments->id)
        return usage_error(arguments->command->name,
                           "--hash goes without --hex, --address and --id");
    if (arguments->key_count != 1 || strlen(text) != 16 ||
        strspn(text, "0123456789abcdefABCDEF") != 16)
        return wrong_key(arguments, text, "one key of 16 hexadecimal digits");
    key->hash = strtoull(text, NULL, 16);
    return EXIT_GOOD;
}

static bool key_of_address(const struct arguments *arguments, const struct stint_limiter *limiter,
                           const char *text, stint_key *key) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const void *address = &v4;

    if (inet_pton(AF_INET, text, &v4.sin_addr) != 1) {
        if (inet_pton(AF_INET6, text, &v6.sin6_addr) != 1)
            return false;
        address = &v6;
    }
    *key = stint_key_address(limiter, address, arguments->prefix4, arguments->prefix6);
    return true;
}

static bool key_of_id(const struct stint_limiter *limiter, const char *text, stint_key *key) {
    uint64_t id;

    if (text[strspn(text, "0123456789")] != '\0' || !parse_count(text, 0, UINT64_MAX, &id))
        return false;
    *key = stint_key_of_id(limiter, id);
    return true;
}

int attach_key(const struct arguments *arguments, const struct stint_limiter *limiter,
               stint_key *key) {
    if (arguments->hash)
        return key_of_hash(arguments, key);
    if (arguments->id && arguments->address)
        return usage_error(arguments->command->name, "--id goes without --address");
    for (size_t i = 0; i < arguments->key_count; i++) {
        const char *part = arguments->keys[i];
        if (i == 0 && arguments->address) {
            if (!key_of_address(arguments, limiter, part, key))
                return wrong_key(arguments, part, "an IPv4 or IPv6 address");
            continue;
        }
        if (i == 0 && arguments->id) {
            if (!key_of_id(limiter, part, key))
                return wrong_key(arguments, part, "a number from 0 to 18446744073709551615");
            continue;
        }
        char *bytes = must_have(strdup(part));
        size_t length = strlen(bytes);
        bool good = !arguments->hex || bytes_of_hex(bytes, &length);
        if (good)
            *key = i == 0 ? stint_key_of(limiter, bytes, length)
                          : stint_key_join(limiter, *key, bytes, length);
        free(bytes);
        if (!good)
            return wrong_key(arguments, part, "bytes in hexadecimal, two digits each");
    }
    return EXIT_GOOD;
}

const char *entry_kind(const struct stint_entry *entry) {
    return (entry->flags & STINT_ENTRY_OVERRIDE) == 0 ? "count"
           : (entry->flags & STINT_ENTRY_BAN) == 0    ? "override"
           : (entry->flags & STINT_ENTRY_SHADOW) != 0 ? "shadow ban"
                                                      : "ban";
}

/* ---- Texts ---- */

int attach_text(const struct arguments *arguments, const char *path, char **text) {
    enum { TEXT_MAX = 64 << 20 }; /* 65,535 policies are far less */
    bool standard_input = strcmp(path, "-") == 0;
    FILE *file = standard_input ? stdin : fopen(path, "re");
    size_t room = 4096, length = 0, got;
    char *bytes;

    if (file == NULL)
        return failure(arguments, "%s: %s", path, strerror(errno));
    bytes = must_have(malloc(room));
    while ((got = fread(bytes + length, 1, room - length - 1, file)) > 0) {
        length += got;
        if (length + 1 == room && room < TEXT_MAX)
            bytes = must_have(realloc(bytes, room *= 2));
    }
    const char *why = ferror(file)                    ? strerror(errno)
                      : length + 1 >= TEXT_MAX        ? "it is too long"
                      : memchr(bytes, 0, length) != 0 ? "it is no text: it has a byte 0"
                                                      : NULL;
    if (!standard_input)
        fclose(file);
    if (why != NULL) {
        free(bytes);
        return failure(arguments, "%s: %s", standard_input ? "standard input" : path, why);
    }
    bytes[length] = '\0';
    *text = bytes;
    return EXIT_GOOD;
}
