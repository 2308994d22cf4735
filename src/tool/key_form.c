/* SPDX-License-Identifier: MIT */
#include "key_form.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "attach.h"
#include "common.h"
#include "report.h"

enum {
    NAMED_MAX = 8, /* keys of one name that are told apart */
    FORMS_MAX = 4, /* that are told */
};

/* ---- Bytes ---- */

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

/* ---- The first KEY ---- */

struct address {
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    bool is_v4;
};

static bool address_read(struct address *address, const char *text) {
    *address = (struct address){.v4.sin_family = AF_INET, .v6.sin6_family = AF_INET6};
    address->is_v4 = inet_pton(AF_INET, text, &address->v4.sin_addr) == 1;
    return address->is_v4 || inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1;
}

/* ADDRESS/BITS. */
static bool network_read(struct address *address, const char *text, uint64_t *bits) {
    char host[INET6_ADDRSTRLEN];
    const size_t length = strcspn(text, "/");

    if (text[length] == '\0' || length >= sizeof(host))
        return false;
    memcpy(host, text, length);
    host[length] = '\0';
    return address_read(address, host) &&
           parse_count(text + length + 1, 1, address->is_v4 ? 32 : 128, bits);
}

static const void *address_of(const struct address *address) {
    return address->is_v4 ? (const void *)&address->v4 : &address->v6;
}

static bool key_of_id(const struct stint_limiter *limiter, const char *text, stint_key *key) {
    uint64_t id;

    if (text[strspn(text, "0123456789")] != '\0' || !parse_count(text, 0, UINT64_MAX, &id))
        return false;
    *key = stint_key_of_id(limiter, id);
    return true;
}

static bool key_of_hash(const char *text, stint_key *key) {
    if (strlen(text) != 16 || strspn(text, "0123456789abcdefABCDEF") != 16)
        return false;
    key->hash = strtoull(text, NULL, 16);
    return true;
}

/* The key of a part's bytes; joined to `before`, unless that is NULL. */
static bool key_of_bytes(const struct stint_limiter *limiter, const char *part, bool hex,
                         const stint_key *before, stint_key *key) {
    char *bytes = must_have(strdup(part));
    size_t length = strlen(bytes);
    const bool good = !hex || bytes_of_hex(bytes, &length);

    if (good)
        *key = before == NULL ? stint_key_of(limiter, bytes, length)
                              : stint_key_join(limiter, *before, bytes, length);
    free(bytes);
    return good;
}

/* ---- Names ---- */

/* The keys that have a name: its bytes, or what lists show of them. */
struct named {
    const char *name;
    size_t length, count;
    stint_key keys[NAMED_MAX];
};

static bool find_name(void *context, const struct stint_entry *entry) {
    struct named *named = context;
    char shown[REPORT_WIDEST + 1];
    size_t i = 0;

    if (entry->label == NULL)
        return true;
    printable(shown, sizeof(shown), entry->label, entry->label_length);
    text_cut(shown, strlen(named->name));
    if ((entry->label_length != named->length ||
         memcmp(entry->label, named->name, named->length) != 0) &&
        strcmp(shown, named->name) != 0)
        return true;
    while (i < named->count && !stint_key_equal(named->keys[i], entry->key))
        i++;
    if (i == named->count)
        named->keys[named->count++] = entry->key;
    return named->count < NAMED_MAX;
}

static int key_of_name(const struct arguments *arguments, struct stint_limiter *limiter,
                       stint_key *key) {
    struct named named = {.name = arguments->keys[0], .length = strlen(arguments->keys[0])};
    char shown[80], hashes[20 * NAMED_MAX];
    int at = 0;

    if (arguments->hex || arguments->hash || arguments->address || arguments->id ||
        arguments->key_count != 1)
        return usage_error(
            arguments->command->name,
            "--name goes with one KEY, and without --hex, --hash, --address and --id");
    if (named.length > STINT_LABEL_SIZE)
        named.length = STINT_LABEL_SIZE;
    if (attach_each(limiter, true, find_name, &named) != 0)
        return failure(arguments, "%s", reason());
    printable(shown, sizeof(shown), arguments->keys[0], strlen(arguments->keys[0]));
    if (named.count == 0)
        return failure(arguments, "--name '%s': no live key has that name", shown);
    for (size_t i = 0; i < named.count; i++)
        at +=
            snprintf(hashes + at, sizeof(hashes) - (size_t)at, " %016" PRIx64, named.keys[i].hash);
    if (named.count > 1)
        return failure(arguments, "--name '%s': several keys have that name; ask by --hash:%s",
                       shown, hashes);
    *key = named.keys[0];
    return EXIT_GOOD;
}

/* ---- The key that is asked for ---- */

static int wrong_key(const struct arguments *arguments, const char *part, const char *wanted) {
    char shown[80];

    return usage_error(arguments->command->name, "KEY '%s': not %s",
                       printable(shown, sizeof(shown), part, strlen(part)), wanted);
}

/* Joins the other KEYs to the first. */
static int read_rest(const struct arguments *arguments, const struct stint_limiter *limiter,
                     stint_key *key) {
    for (size_t i = 1; i < arguments->key_count; i++)
        if (!key_of_bytes(limiter, arguments->keys[i], arguments->hex, key, key))
            return wrong_key(arguments, arguments->keys[i],
                             "bytes in hexadecimal, two digits each");
    return EXIT_GOOD;
}

int key_read(const struct arguments *arguments, struct stint_limiter *limiter, stint_key *key) {
    const char *name = arguments->command->name, *first = arguments->keys[0], *wanted = NULL;
    struct address address;
    uint64_t bits;

    if (arguments->name)
        return key_of_name(arguments, limiter, key);
    if (arguments->hash && (arguments->hex || arguments->address || arguments->id))
        return usage_error(name, "--hash goes without --hex, --address and --id");
    if (arguments->id && arguments->address)
        return usage_error(name, "--id goes without --address");
    if (arguments->hash) {
        if (arguments->key_count != 1 || !key_of_hash(first, key))
            wanted = "one key of 16 hexadecimal digits";
    } else if (arguments->address) {
        if (!address_read(&address, first))
            wanted = network_read(&address, first, &bits)
                         ? "an address: its bits stand with --address, as in --address=24"
                         : "an IPv4 or IPv6 address";
        else
            *key = stint_key_address(limiter, address_of(&address), arguments->prefix4,
                                     arguments->prefix6);
    } else if (arguments->id) {
        if (!key_of_id(limiter, first, key))
            wanted = "a number from 0 to 18446744073709551615";
    } else if (!key_of_bytes(limiter, first, arguments->hex, NULL, key)) {
        wanted = "bytes in hexadecimal, two digits each";
    }
    return wanted != NULL ? wrong_key(arguments, first, wanted)
                          : read_rest(arguments, limiter, key);
}

/* ---- Other forms ---- */

struct look {
    uint32_t policy; /* UINT32_MAX: any */
    bool used;
};

static bool look(void *context, const struct stint_entry *entry) {
    const uint32_t by_hand = STINT_ENTRY_OVERRIDE, ban = STINT_ENTRY_OVERRIDE | STINT_ENTRY_BAN;
    struct look *asked = context;

    asked->used |= (entry->flags & ban) != by_hand &&
                   (asked->policy == UINT32_MAX || entry->policy == asked->policy);
    return true;
}

bool key_used(struct stint_limiter *limiter, uint32_t policy, stint_key key) {
    struct look asked = {.policy = policy};

    return stint_each_of(limiter, key, look, &asked) == 0 && asked.used;
}

/* A text in all forms that a first KEY may have. */
struct forms {
    const struct stint_limiter *limiter;
    void (*told)(void *context, stint_key key, const char *option, const char *text);
    void *context;
};

/* `option` has the command take the text for that key; empty: none. */
static void tell_form(const struct forms *forms, stint_key key, const char *option,
                      const char *text) {
    forms->told(forms->context, key, option, text);
}

/* An address, by however many bits, and its bytes. */
static void tell_address(const struct forms *forms, const struct address *address) {
    const unsigned char *bytes =
        address->is_v4 ? (const void *)&address->v4.sin_addr : (const void *)&address->v6.sin6_addr;
    const size_t length = address->is_v4 ? 4 : 16;
    char text[INET6_ADDRSTRLEN], hex[33], option[32];

    (void)inet_ntop(address->is_v4 ? AF_INET : AF_INET6, bytes, text, sizeof(text));
    for (size_t i = 0; i < length; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    tell_form(forms, stint_key_of(forms->limiter, bytes, length), "--hex", hex);
    tell_form(forms, stint_key_of(forms->limiter, text, strlen(text)), "", text);
    for (unsigned bits = 8 * (unsigned)length; bits > 0; bits--) {
        snprintf(option, sizeof(option), address->is_v4 ? "--address=%u" : "--address=32,%u", bits);
        tell_form(forms,
                  stint_key_address(forms->limiter, address_of(address), address->is_v4 ? bits : 0,
                                    address->is_v4 ? 0 : bits),
                  option, text);
    }
}

/* Bytes in hexadecimal may be those of an address. */
static bool address_of_hex(struct address *address, const char *bytes, size_t length) {
    *address = (struct address){
        .v4.sin_family = AF_INET, .v6.sin6_family = AF_INET6, .is_v4 = length == 4};
    if (length != 4 && length != 16)
        return false;
    memcpy(length == 4 ? (void *)&address->v4.sin_addr : &address->v6.sin6_addr, bytes, length);
    return true;
}

static void tell_forms(const struct forms *forms, const char *text) {
    char *bytes = must_have(strdup(text));
    struct address address;
    stint_key key;
    size_t length;

    tell_form(forms, stint_key_of(forms->limiter, text, strlen(text)), "", text);
    if (key_of_id(forms->limiter, text, &key))
        tell_form(forms, key, "--id", text);
    if (key_of_hash(text, &key))
        tell_form(forms, key, "--hash", text);
    if (address_read(&address, text))
        tell_address(forms, &address);
    if (bytes_of_hex(bytes, &length)) {
        tell_form(forms, stint_key_of(forms->limiter, bytes, length), "--hex", text);
        if (address_of_hex(&address, bytes, length))
            tell_address(forms, &address);
    }
    free(bytes);
}

struct search {
    const struct arguments *arguments;
    struct stint_limiter *limiter;
    uint32_t policy;
    stint_key tried[FORMS_MAX + 1]; /* what was asked for, and what was found */
    size_t count;
    char *said;
    size_t length;
};

/* Adds a form, if the table has the key that it makes with the other KEYs. */
static void add_form(void *context, stint_key key, const char *option, const char *text) {
    struct search *search = context;
    const struct arguments *arguments = search->arguments;
    char shown[80];

    if (arguments->key_count != 1 && strcmp(option, "--hash") == 0)
        return;
    for (size_t i = 1; i < arguments->key_count; i++)
        (void)key_of_bytes(search->limiter, arguments->keys[i], arguments->hex, &key, &key);
    for (size_t i = 0; i < search->count; i++)
        if (stint_key_equal(key, search->tried[i]))
            return;
    if (search->count > FORMS_MAX || !key_used(search->limiter, search->policy, key))
        return;
    search->length += (size_t)snprintf(search->said + search->length, FORMS_SIZE - search->length,
                                       "%s%s%s%s", search->count == 1 ? ". It is there as: " : ", ",
                                       option, *option == '\0' ? "the text " : " ",
                                       printable(shown, sizeof(shown), text, strlen(text)));
    search->tried[search->count++] = key;
}

const char *key_forms(const struct arguments *arguments, struct stint_limiter *limiter,
                      uint32_t policy, stint_key key, char said[FORMS_SIZE]) {
    struct search search = {arguments, limiter, policy, {key}, 1, said, 0};

    *said = '\0';
    if (!arguments->name)
        tell_forms(&(struct forms){limiter, add_form, &search}, arguments->keys[0]);
    return said;
}

/* ---- The form of a policy's keys ---- */

/* What the names of other addresses tell of how a policy has them. */
struct others {
    struct stint_limiter *limiter;
    uint32_t policy;
    bool is_v4;
    stint_key key;             /* whose option is sought */
    char option[32];           /* empty, too, if none is found */
    char asked[32], other[32]; /* of the KEY; of one that has another */
    bool found, same;
    unsigned seen;
};

static void match(void *context, stint_key key, const char *option, const char *text) {
    struct others *others = context;

    (void)text;
    if (others->found || !stint_key_equal(key, others->key))
        return;
    others->found = true;
    snprintf(others->option, sizeof(others->option), "%s", option);
}

/* Finds the option by which the text is the key. */
static bool find_option(struct others *others, const char *text, stint_key key) {
    others->key = key;
    others->found = false;
    tell_forms(&(struct forms){others->limiter, match, others}, text);
    return others->found;
}

static bool compare_form(void *context, const struct stint_entry *entry) {
    enum { ENOUGH = 16 };
    char text[STINT_LABEL_SIZE + 1];
    struct others *others = context;
    struct address address;

    if (entry->policy != others->policy || entry->label == NULL)
        return true;
    snprintf(text, sizeof(text), "%.*s", (int)entry->label_length, entry->label);
    text[strcspn(text, "/")] = '\0';
    if (!address_read(&address, text) || address.is_v4 != others->is_v4 ||
        !find_option(others, text, entry->key))
        return true;
    others->same = strcmp(others->option, others->asked) == 0;
    if (!others->same)
        strcpy(others->other, others->option);
    return !others->same && ++others->seen < ENOUGH;
}

const char *key_form_of_others(const struct arguments *arguments, struct stint_limiter *limiter,
                               uint32_t policy, stint_key key, char said[FORMS_SIZE]) {
    struct others others = {.limiter = limiter, .policy = policy};
    const char *first = arguments->keys[0];
    struct address address;
    uint64_t bits;

    *said = '\0';
    if (arguments->name || arguments->key_count != 1)
        return said;
    if (!arguments->hex && network_read(&address, first, &bits))
        snprintf(said, FORMS_SIZE, ". A network is asked for as: --address=%s%u %.*s",
                 address.is_v4 ? "" : "32,", (unsigned)bits, (int)strcspn(first, "/"), first);
    if (*said != '\0' || !address_read(&address, first) || !find_option(&others, first, key))
        return said;
    strcpy(others.asked, others.option);
    others.is_v4 = address.is_v4;
    if (attach_each(limiter, true, compare_form, &others) == 0 && !others.same && others.seen != 0)
        snprintf(said, FORMS_SIZE, ". Others are there as: %s",
                 *others.other == '\0' ? "a text" : others.other);
    return said;
}
