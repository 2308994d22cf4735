/* SPDX-License-Identifier: MIT
 *
 * Keys and names are what strangers typed. Each value stands between quotes; quotes, backslashes
 * and control characters of its own are escaped. */
#include "trail.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "common.h"

static void put(FILE *out, const char *name, const char *text) {
    fprintf(out, " %s=\"", name);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
        fprintf(out,
                *at == '"' || *at == '\\'   ? "\\%c"
                : *at < 0x20 || *at >= 0x7F ? "\\x%02x"
                                            : "%c",
                *at);
    fputc('"', out);
}

/* Whom sudo names; else who is logged in; else whose process it is. */
static void put_user(FILE *out) {
    const char *name = getenv("SUDO_USER");
    char number[16];

    if (name == NULL || *name == '\0')
        name = getlogin();
    if (name == NULL) {
        const struct passwd *entry = getpwuid(getuid());
        snprintf(number, sizeof(number), "%u", (unsigned)getuid());
        name = entry != NULL ? entry->pw_name : number;
    }
    put(out, "user", name);
    fprintf(out, " uid=%u", (unsigned)getuid());
}

/* The KEYs, behind the options that say what they are. */
static void put_key(FILE *out, const struct arguments *arguments) {
    char *text;
    size_t size;
    FILE *key = must_have(open_memstream(&text, &size));

    fputs(arguments->hash   ? "--hash "
          : arguments->id   ? "--id "
          : arguments->name ? "--name "
                            : "",
          key);
    if (arguments->address && arguments->prefix4 != 0 && arguments->prefix6 != 0)
        fprintf(key, "--address=%u,%u ", arguments->prefix4, arguments->prefix6);
    else if (arguments->address && arguments->prefix4 != 0)
        fprintf(key, "--address=%u ", arguments->prefix4);
    else if (arguments->address)
        fputs("--address ", key);
    if (arguments->hex)
        fputs("--hex ", key);
    for (size_t i = 0; i < arguments->key_count; i++)
        fprintf(key, i == 0 ? "%s" : " %s", arguments->keys[i]);
    fclose(key);
    put(out, "key", text);
    free(text);
}

void trail(const struct arguments *arguments, const char *policy, const char *was, const char *is) {
    char *whole = realpath(arguments->file, NULL), *text;
    size_t size;
    FILE *out = must_have(open_memstream(&text, &size));

    put_user(out);
    put(out, "file", whole != NULL ? whole : arguments->file);
    if (policy != NULL)
        put(out, "policy", policy);
    if (arguments->key_count != 0)
        put_key(out, arguments);
    if (arguments->network.text != NULL)
        put(out, "prefix", arguments->network.text);
    if (was != NULL)
        put(out, "was", was);
    if (is != NULL)
        put(out, "is", is);
    if (arguments->reason != NULL)
        put(out, "reason", arguments->reason);
    fclose(out);
    openlog("stint", LOG_PID, LOG_AUTH);
    syslog(LOG_NOTICE, "%s:%s", arguments->command->name, text);
    closelog();
    free(text);
    free(whole);
}
