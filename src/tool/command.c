/* SPDX-License-Identifier: MIT
 *
 * Options come first, or between the operands; but nothing that stands where a key stands is ever
 * taken as an option. A script that passes on what somebody else has typed may otherwise be told
 * "--help", and take its exit code for a grant. */
#include "command.h"

#include <errno.h>
#include <stint.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common.h"

enum {
    REASON_MAX = 200,  /* bytes */
    VALUES_FROM = 256, /* what getopt_long returns for the option 0 of the table */
    HELP_COLUMN = 24,
};

static const struct {
    const char *name;
    const char *value; /* NULL: it takes none; "[..": it may be left out */
    char letter;       /* 0: it has none */
    const char *help;
} about[OPTIONS_COUNT] = {
    [OPTION_JSON] = {"json", NULL, 0, "for programs: times and spans in ns"},
    [OPTION_QUIET] = {"quiet", NULL, 'q', "print nothing: the exit code says it"},
    [OPTION_HEX] = {"hex", NULL, 0, "each KEY is bytes in hexadecimal"},
    [OPTION_HASH] = {"hash", NULL, 0,
                     "KEY is what top and dump call \"key\": 16 hexadecimal digits"},
    [OPTION_ADDRESS] = {"address", "[=PREFIXES]", 0,
                        "the first KEY is an IP address, by its first bits [32,64]"},
    [OPTION_ID] = {"id", NULL, 0, "the first KEY is a number, such as a user's id"},
    [OPTION_NAME] = {"name", NULL, 0, "KEY is the name of a key, as top shows it"},
    [OPTION_COST] = {"cost", "N", 0, "tokens [1]"},
    [OPTION_LIMIT] = {"limit", "N", 0, "a limit in place of the policy's"},
    [OPTION_BURST] = {"burst", "N", 0, "how much of a token bucket may be used, at most all of it"},
    [OPTION_PARTIAL] = {"partial", NULL, 0, "take what is left if that is less than the cost"},
    [OPTION_ADD] = {"add", NULL, 0, "add POLICY, a notation, if it is not there"},
    [OPTION_FULL] = {"full", "admit|refuse|replace", 0, "on a full table [admit]"},
    [OPTION_NUMBER] = {"number", "N", 'n', "how many keys [10]"},
    [OPTION_BY] = {"by", "used|refused|policy", 0,
                   "used: tokens; refused: windows; policy: that refused [used]"},
    [OPTION_POLICY] = {"policy", "NAME", 0, "only keys under this policy"},
    [OPTION_PREFIX] = {"prefix", "NETWORK", 0,
                       "only keys whose name is an address in it: 192.0.2.0/24"},
    [OPTION_BANNED] = {"banned", NULL, 0, "all keys that are banned; POLICY and KEYs are left out"},
    [OPTION_INTERVAL] = {"interval", "SECONDS", 0, "between two looks [1]"},
    [OPTION_COUNT] = {"count", "N", 0, "how many looks; 0: without end [0]"},
    [OPTION_ENTRIES] = {"entries", "N", 0,
                        "live pairs of key and policy that it has room for; k is 1000"},
    [OPTION_LABELS] = {"labels", "N", 0, "names of keys that it has room for"},
    [OPTION_MAX_POLICIES] = {"max-policies", "N", 0, "policies that it has room for"},
    [OPTION_SHARDS] = {"shards", "N", 0, "a power of two"},
    [OPTION_MODE] = {"mode", "OCTAL", 0,
                     "permission bits of the file [0600; resize: as they were]"},
    [OPTION_POLICIES] = {"policies", "FILE", 0, "apply these, one a line; - is the standard input"},
    [OPTION_DRY_RUN] = {"dry-run", NULL, 0, "say what would change, and change nothing"},
    [OPTION_PRUNE] = {"prune", NULL, 0, "remove policies that are not among them"},
    [OPTION_FOR] = {"for", "TIME", 0, "how long: 90s, 10m, 1h30m, 7d"},
    [OPTION_UNTIL] = {"until", "TIME", 0, "UTC: 2026-12-31, 2026-12-31T18:00, or @seconds"},
    [OPTION_CLEAR] = {"clear", NULL, 0, "end it"},
    [OPTION_REPLACE] = {"replace", NULL, 0, "in place of another limit that was set by hand"},
    [OPTION_REASON] = {"reason", "TEXT", 0, "why: the system's log keeps it, with who and what"},
    [OPTION_LABEL] = {"label", "NAME=VALUE", 0, "add to each sample; may be given several times"},
    [OPTION_NO_SCAN] = {"no-scan", NULL, 0, "without the gauges that look at every slot"},
    [OPTION_NO_EOF] = {"no-eof", NULL, 0, "without \"# EOF\": more follows"},
    [OPTION_HELP] = {"help", NULL, 'h', "print this"},
};

/* ---- Help ---- */

static const char *operand_name(char letter) {
    switch (letter) {
    case 'F':
        return "FILE";
    case 'P':
        return "POLICY";
    case 'K':
        return "KEY...";
    case 'L':
        return "LIMIT";
    default:
        return "POLICIES";
    }
}

static bool has(const struct command *command, size_t option) {
    return (command->options >> option & 1) != 0 || option == OPTION_HELP;
}

static void print_help(const struct command *command) {
    char left[HELP_COLUMN + 16];

    printf("Usage: stint %s [OPTIONS]", command->name);
    for (const char *operand = command->operands; *operand != '\0'; operand++)
        printf(" %s", operand_name(*operand));
    printf("\n\n%s\n", command->about);
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        if (!has(command, i))
            continue;
        const char *value = about[i].value;
        int at = snprintf(left, sizeof(left), "  ");
        if (about[i].letter != 0)
            at += snprintf(left + at, sizeof(left) - (size_t)at, "-%c, ", about[i].letter);
        snprintf(left + at, sizeof(left) - (size_t)at, "--%s%s%s", about[i].name,
                 value == NULL || *value == '[' ? "" : " ", value == NULL ? "" : value);
        printf("%-*s %s\n", HELP_COLUMN, left, about[i].help);
    }
    if (strchr(command->operands, 'K') != NULL)
        fputs("\nSeveral KEYs are joined, in their order. Options stand before the KEYs; -- stands "
              "before a\nKEY that begins with '-'.\n",
              stdout);
    printf("\nExit codes: %s\n", command->failed == EXIT_FAILED
                                     ? "0 good, 1 it failed, 2 wrong usage."
                                     : "0 granted, 1 refused, 2 anything else.");
}

/* ---- Values ---- */

/* "24,64" or "24"; nothing: 0, the library's own. */
static bool read_prefixes(const char *text, struct arguments *arguments) {
    if (text == NULL)
        return true;
    arguments->prefix4 = arguments->prefix6 = 0;
    return parse_prefixes(text, &arguments->prefix4, &arguments->prefix6);
}

unsigned address_bytes(const char *text, unsigned char bytes[16]) {
    static const unsigned char mapped[12] = {[10] = 0xFF, 0xFF};

    memcpy(bytes, mapped, sizeof(mapped));
    return inet_pton(AF_INET, text, bytes + sizeof(mapped)) == 1 ? 32
           : inet_pton(AF_INET6, text, bytes) == 1               ? 128
                                                                 : 0;
}

/* ADDRESS/BITS, or an address. */
static bool read_network(const char *text, struct network *network) {
    char address[64];
    const size_t length = strcspn(text, "/");
    uint64_t bits;

    if (length >= sizeof(address))
        return false;
    memcpy(address, text, length);
    address[length] = '\0';
    const unsigned most = address_bytes(address, network->bytes);
    bits = most;
    if (most == 0 || (text[length] == '/' && !parse_count(text + length + 1, 0, most, &bits)))
        return false;
    network->text = text;
    network->bits = (unsigned)bits + 128 - most;
    return true;
}

static bool read_seconds(const char *text, uint64_t *ns) {
    char *end;
    double seconds;

    if ((*text < '0' || *text > '9') && *text != '.')
        return false;
    if (strspn(text, "0123456789.") != strlen(text))
        return false;
    seconds = strtod(text, &end);
    if (*end != '\0' || end == text || seconds > INTERVAL_MAX_S)
        return false;
    *ns = (uint64_t)(seconds * 1e9);
    return true;
}

/* Numbers and units, as windows have them in the notation of policies: 90s, 1h30m. */
static bool read_span(const char *text, uint64_t *ns) {
    *ns = 0;
    do {
        struct stint_policy policy = STINT_POLICY_INIT;
        char rate[32];
        const size_t digits = strspn(text, "0123456789");
        const size_t length = digits + strspn(text + digits, "abcdefghijklmnopqrstuvwxyz");

        if (digits == 0 ||
            snprintf(rate, sizeof(rate), "1/%.*s", (int)length, text) >= (int)sizeof(rate) ||
            stint_policy_parse(rate, &policy, NULL) != 0 || policy.calendar != 0)
            return false;
        *ns += policy.window;
        text += length;
    } while (*text != '\0' && *ns <= STINT_WINDOW_MAX);
    return *ns <= STINT_WINDOW_MAX;
}

/* A time of the calendar in this form. There is no other text of it: what is no day of its month, a
 * blank that strptime passes over or a missing digit comes back as another text. */
static bool read_calendar(const char *text, const char *form, uint64_t *seconds) {
    struct tm time = {0};
    char again[40];
    const char *end = strptime(text, form, &time);

    if (end == NULL || *end != '\0' || time.tm_year < 70)
        return false;
    *seconds = (uint64_t)timegm(&time);
    return strftime(again, sizeof(again), form, &time) != 0 && strcmp(again, text) == 0;
}

/* A time beyond what ns can say is the latest that they can, which is too far for whoever asks. */
static bool read_until(const char *text, uint64_t *ns) {
    static const char *const forms[] = {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S",
                                        "%Y-%m-%dT%H:%MZ", "%Y-%m-%dT%H:%M", "%Y-%m-%d"};
    uint64_t seconds = 0;
    bool good = *text == '@' && text[1 + strspn(text + 1, "0123456789")] == '\0' &&
                parse_count(text + 1, 1, UINT64_MAX, &seconds);

    for (size_t i = 0; !good && i < sizeof(forms) / sizeof(forms[0]); i++)
        good = read_calendar(text, forms[i], &seconds) && seconds != 0;
    if (good && __builtin_mul_overflow(seconds, UINT64_C(1000000000), ns))
        *ns = UINT64_MAX;
    return good;
}

/* What is no text becomes none in JSON. */
static bool read_reason(const char *text) {
    const size_t length = strlen(text);
    json_t *json = json_string(text);

    json_decref(json);
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)text[i]))
            return false;
    return json != NULL && length >= 1 && length <= REASON_MAX;
}

static bool read_mode(const char *text, uint32_t *mode) {
    size_t digits = strspn(text, "01234567");

    if (digits == 0 || digits > 4 || text[digits] != '\0')
        return false;
    *mode = (uint32_t)strtoul(text, NULL, 8);
    return *mode != 0 && *mode <= 0777;
}

/* NAME=VALUE, cut at its first '='. */
static bool read_label(char *text, struct arguments *arguments) {
    char *equals = strchr(text, '=');
    size_t n = 0;

    while (arguments->metric_labels[n] != NULL)
        n += 2;
    if (equals == NULL || n == 2 * (size_t)METRICS_LABELS_MAX)
        return false;
    *equals = '\0';
    arguments->metric_labels[n] = text;
    arguments->metric_labels[n + 1] = equals + 1;
    return true;
}

/* Reads a count into 32 bits. */
static bool read_count(const char *text, uint64_t low, uint64_t high, uint32_t *value) {
    uint64_t number;

    if (!parse_count(text, low, high, &number))
        return false;
    *value = (uint32_t)number;
    return true;
}

/* One option and its value (NULL: none). Returns NULL, or what the value should have been. */
static const char *read_option(struct arguments *arguments, size_t option, char *value) {
    static const char *const fulls[] = {"admit", "refuse", "replace"};
    static const char *const bys[] = {"used", "refused", "policy"};
    size_t word;

    switch ((enum option_name)option) {
    case OPTION_JSON:
        arguments->json = true;
        return NULL;
    case OPTION_QUIET:
        arguments->quiet = true;
        return NULL;
    case OPTION_HEX:
        arguments->hex = true;
        return NULL;
    case OPTION_HASH:
        arguments->hash = true;
        return NULL;
    case OPTION_ADDRESS:
        arguments->address = true;
        return read_prefixes(value, arguments) ? NULL : "prefixes such as 24 or 24,64";
    case OPTION_ID:
        arguments->id = true;
        return NULL;
    case OPTION_NAME:
        arguments->name = true;
        return NULL;
    case OPTION_COST:
        return read_count(value, 0, STINT_LIMIT_MAX, &arguments->cost) ? NULL : "0 to 268435456";
    case OPTION_LIMIT:
        return read_count(value, 1, STINT_LIMIT_MAX, &arguments->limit) ? NULL : "1 to 268435456";
    case OPTION_BURST:
        return read_count(value, 1, STINT_LIMIT_MAX, &arguments->burst) ? NULL : "1 to 268435456";
    case OPTION_PARTIAL:
        arguments->partial = true;
        return NULL;
    case OPTION_ADD:
        arguments->add = true;
        return NULL;
    case OPTION_FULL:
        word = parse_word(value, fulls, 3);
        arguments->on_full = (uint32_t)word;
        return word < 3 ? NULL : "admit, refuse or replace";
    case OPTION_NUMBER:
        return parse_count(value, 1, 1000000, &arguments->number) ? NULL : "a number from 1 to 1M";
    case OPTION_BY:
        word = parse_word(value, bys, 3);
        arguments->by = (enum top_by)word;
        return word < 3 ? NULL : "used, refused or policy";
    case OPTION_POLICY:
        arguments->only_policy = value;
        return NULL;
    case OPTION_PREFIX:
        return read_network(value, &arguments->network)
                   ? NULL
                   : "a network such as 192.0.2.0/24 or 2001:db8::/32";
    case OPTION_BANNED:
        arguments->banned = true;
        return NULL;
    case OPTION_INTERVAL:
        return read_seconds(value, &arguments->interval_ns) ? NULL : "seconds, such as 0.5";
    case OPTION_COUNT:
        return parse_count(value, 0, UINT64_MAX, &arguments->count) ? NULL : "a number";
    case OPTION_ENTRIES:
        return parse_count(value, 1, STINT_ENTRIES_MAX, &arguments->max_entries)
                   ? NULL
                   : "1 to 1099511627776";
    case OPTION_LABELS:
        if (arguments->command->run != tool_resize)
            return read_count(value, 0, 1 << 24, &arguments->labels) ? NULL : "0 to 16777216";
        return read_count(value, 1, 1 << 24, &arguments->labels)
                   ? NULL
                   : "1 to 16777216 (a table that has names keeps room for them)";
    case OPTION_MAX_POLICIES:
        return read_count(value, 1, STINT_POLICIES_MAX, &arguments->max_policies) ? NULL
                                                                                  : "1 to 4096";
    case OPTION_SHARDS:
        return read_count(value, 1, STINT_SHARDS_MAX, &arguments->shards) ? NULL : "1 to 65536";
    case OPTION_MODE:
        return read_mode(value, &arguments->mode) ? NULL : "permission bits such as 0640";
    case OPTION_POLICIES:
        arguments->policies = value;
        return NULL;
    case OPTION_DRY_RUN:
        arguments->dry_run = true;
        return NULL;
    case OPTION_PRUNE:
        arguments->prune = true;
        return NULL;
    case OPTION_FOR:
        return read_span(value, &arguments->span) ? NULL
                                                  : "a time of up to 366d, such as 90s, 1h30m, 7d";
    case OPTION_UNTIL:
        return read_until(value, &arguments->until)
                   ? NULL
                   : "a time such as 2026-12-31 or 2026-12-31T18:00 (UTC), or @seconds";
    case OPTION_CLEAR:
        arguments->clear = true;
        return NULL;
    case OPTION_REPLACE:
        arguments->replace = true;
        return NULL;
    case OPTION_REASON:
        arguments->reason = value;
        return read_reason(value) ? NULL : "1 to 200 bytes of UTF-8, without control characters";
    case OPTION_LABEL:
        return read_label(value, arguments) ? NULL : "NAME=VALUE, 16 of them at most";
    case OPTION_NO_SCAN:
        arguments->no_scan = true;
        return NULL;
    case OPTION_NO_EOF:
        arguments->no_eof = true;
        return NULL;
    default:
        return "known";
    }
}

/* ---- The command line ---- */

/* getopt_long's own list of what the command takes. */
static void options_of(const struct command *command, struct option options[OPTIONS_COUNT + 1],
                       char letters[2 * OPTIONS_COUNT + 3]) {
    size_t n = 0, letter = 0;

    letters[letter++] = '+'; /* stop at each operand */
    letters[letter++] = ':';
    for (size_t i = 0; i < OPTIONS_COUNT; i++) {
        if (!has(command, i))
            continue;
        const char *value = about[i].value;
        options[n++] = (struct option){about[i].name,
                                       value == NULL   ? no_argument
                                       : *value == '[' ? optional_argument
                                                       : required_argument,
                                       NULL, VALUES_FROM + (int)i};
        if (about[i].letter != 0) {
            letters[letter++] = about[i].letter;
            if (value != NULL)
                letters[letter++] = ':';
        }
    }
    options[n] = (struct option){NULL, 0, NULL, 0};
    letters[letter] = '\0';
}

static size_t option_of(int value) {
    size_t i = 0;

    if (value >= VALUES_FROM)
        return (size_t)(value - VALUES_FROM);
    while (about[i].letter != value)
        i++;
    return i;
}

/* The options before the next operand; *literal if they ended with "--". */
static int read_options(struct arguments *arguments, int argc, char **argv, bool *literal) {
    const struct command *command = arguments->command;
    struct option options[OPTIONS_COUNT + 1];
    char letters[2 * OPTIONS_COUNT + 3];
    int before, value;

    options_of(command, options, letters);
    while (before = optind,
           (value = tool_option(command->name, argc, argv, letters, options)) != OPTIONS_END) {
        if (value == OPTION_WRONG)
            return EXIT_USAGE;
        size_t option = option_of(value);
        if (option == OPTION_HELP) {
            print_help(command);
            return -1;
        }
        const char *wanted = read_option(arguments, option, optarg);
        if (wanted != NULL) {
            char shown[80];
            return usage_error(command->name, "--%s '%s': not %s", about[option].name,
                               printable(shown, sizeof(shown), optarg, strlen(optarg)), wanted);
        }
    }
    *literal = optind == before + 1 && strcmp(argv[before], "--") == 0;
    return EXIT_GOOD;
}

/* One of the options of a limit that may stand behind it: the last of `left` operands.
 * OPTIONS_COUNT, and nothing is read: it is none of these. */
static int read_behind(struct arguments *arguments, int *left, char **end, size_t *option) {
    static const char *const words[] = {"--for", "--until", "--reason"};
    static const size_t options[] = {OPTION_FOR, OPTION_UNTIL, OPTION_REASON, OPTIONS_COUNT};
    char shown[80];

    if (*left > 1 && strcmp(end[-1], "--replace") == 0) {
        arguments->replace = true;
        *option = OPTION_REPLACE;
        *left -= 1;
        return EXIT_GOOD;
    }
    *option = *left > 2 ? options[parse_word(end[-2], words, 3)] : OPTIONS_COUNT;
    if (*option == OPTIONS_COUNT)
        return EXIT_GOOD;
    *left -= 2;
    const char *wanted = read_option(arguments, *option, end[-1]);
    return wanted == NULL
               ? EXIT_GOOD
               : usage_error(arguments->command->name, "%s '%s': not %s", end[-2],
                             printable(shown, sizeof(shown), end[-1], strlen(end[-1])), wanted);
}

/* The options of a limit that stand behind it, and then the limit: the last operands, which are no
 * key's, whatever that looks like. --replace and a reason stand behind the time. */
static int read_limit(struct arguments *arguments, int *argc, char **argv) {
    const char *name = arguments->command->name;
    const bool told = arguments->span != 0 || arguments->until != 0 || arguments->clear;
    int left = *argc - optind, code = EXIT_GOOD;

    if (!told && left > 1 && strcmp(argv[*argc - 1], "--clear") == 0) {
        arguments->clear = true;
        left--;
    } else if (!told) {
        size_t option = OPTION_REASON;
        while (code == EXIT_GOOD && (option == OPTION_REASON || option == OPTION_REPLACE))
            code = read_behind(arguments, &left, argv + optind + left, &option);
        if (code != EXIT_GOOD)
            return code;
    }
    if (arguments->clear + (arguments->span != 0) + (arguments->until != 0) != 1)
        return usage_error(name, "one of --for, --until and --clear is needed");
    if (!arguments->clear) {
        char shown[80], *value = argv[optind + left - 1];
        if (left < 2)
            return usage_error(name, "LIMIT is missing");
        if (strcmp(value, "unlimited") == 0)
            arguments->limit = STINT_LIMIT_MAX;
        else if (!read_count(value, 0, STINT_LIMIT_MAX, &arguments->limit))
            return usage_error(name, "LIMIT '%s': not 0 to 268435456, or unlimited",
                               printable(shown, sizeof(shown), value, strlen(value)));
        left--;
    }
    *argc = optind + left;
    return EXIT_GOOD;
}

/* The parts of the key: all that is left. */
static int read_keys(struct arguments *arguments, int argc, char **argv, bool literal) {
    const char *name = arguments->command->name;

    if (!literal && optind < argc && strcmp(argv[optind], "--") == 0) {
        literal = true;
        optind++;
    }
    if (strchr(arguments->command->operands, 'L') != NULL) {
        int code = read_limit(arguments, &argc, argv);
        if (code != EXIT_GOOD)
            return code;
    }
    arguments->keys = argv + optind;
    arguments->key_count = (size_t)(argc - optind);
    if (arguments->key_count == 0)
        return usage_error(name, "KEY is missing");
    for (size_t i = 0; i < arguments->key_count && !literal; i++) {
        char shown[80];
        if (arguments->keys[i][0] == '-' && arguments->keys[i][1] != '\0')
            return usage_error(
                name,
                "'%s': options stand before the KEYs; put -- before a KEY that "
                "begins with '-'",
                printable(shown, sizeof(shown), arguments->keys[i], strlen(arguments->keys[i])));
    }
    return EXIT_GOOD;
}

int command_read(const struct command *command, int argc, char **argv,
                 struct arguments *arguments) {
    bool literal = false;

    *arguments =
        (struct arguments){.command = command, .cost = 1, .number = 10, .interval_ns = 1000000000};
    for (const char *operand = command->operands;; operand++) {
        if (*operand == 'K')
            return read_keys(arguments, argc, argv, literal);
        if (!literal) {
            int code = read_options(arguments, argc, argv, &literal);
            if (code != EXIT_GOOD)
                return code;
        }
        if (*operand == '\0' || (arguments->banned && *operand != 'F'))
            break;
        if (optind == argc)
            return usage_error(command->name, "%s is missing", operand_name(*operand));
        if (argv[optind][0] == '\0')
            return usage_error(command->name, "%s is empty", operand_name(*operand));
        *(*operand == 'F'   ? &arguments->file
          : *operand == 'P' ? &arguments->policy
                            : &arguments->text) = argv[optind++];
    }
    if (optind < argc) {
        char shown[80];
        return usage_error(command->name, "'%s' is one operand too many",
                           printable(shown, sizeof(shown), argv[optind], strlen(argv[optind])));
    }
    return EXIT_GOOD;
}

int failure(const struct arguments *arguments, const char *format, ...) {
    char message[1024], shown[1024];
    va_list rest;

    va_start(rest, format);
    vsnprintf(message, sizeof(message), format, rest);
    va_end(rest);
    fprintf(stderr, "stint %s: %s\n", arguments->command->name,
            printable(shown, sizeof(shown), message, strlen(message)));
    return arguments->command->failed;
}

int unwritten(const struct arguments *arguments, const char *what) {
    return failure(arguments, "%s cannot be written: %s", what, strerror(errno));
}
