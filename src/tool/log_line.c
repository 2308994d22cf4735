/* SPDX-License-Identifier: MIT */
#include "log_line.h"

#include <arpa/inet.h>
#include <string.h>

#include "log_time.h"

static const char part_missing[] = "a field of the key is missing";

/* ---- Pieces of a text ----------------------------------------------------------------------- */

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t';
}

bool text_field(struct text line, unsigned number, struct text *field) {
    const char *at = line.bytes, *end = line.bytes + line.length;

    for (unsigned i = 1;; i++) {
        while (at < end && is_blank(*at))
            at++;
        if (at == end)
            return false;
        const char *from = at;
        while (at < end && !is_blank(*at))
            at++;
        if (i == number) {
            *field = (struct text){from, (size_t)(at - from)};
            return true;
        }
    }
}

/* What stands behind a piece of the text. */
static struct text behind(struct text text, struct text piece) {
    const char *from = piece.bytes + piece.length;
    return (struct text){from, (size_t)(text.bytes + text.length - from)};
}

/* Takes the next quoted field off the text: what is between its quotes. */
static bool take_quoted(struct text *text, struct text *field) {
    const char *end = text->bytes + text->length;
    const char *from = text->length == 0 ? NULL : memchr(text->bytes, '"', text->length);

    if (from == NULL)
        return false;
    const char *at = ++from;
    while (at < end && *at != '"')
        at += *at == '\\' && end - at > 1 ? 2 : 1;
    *field = (struct text){from, (size_t)(at - from)};
    at += at < end;
    *text = (struct text){at, (size_t)(end - at)};
    return true;
}

/* Finds the third quoted field, the agent behind the request and where it came from. */
static bool third_quoted(struct text text, struct text *field) {
    bool found = true;

    for (int i = 0; i < 3 && found; i++)
        found = take_quoted(&text, field);
    return found;
}

/* Takes the next word off the text; a quoted field is one, without its quotes. */
static bool take_word(struct text *text, struct text *word) {
    if (!text_field(*text, 1, word))
        return false;
    if (word->bytes[0] == '"')
        return take_quoted(text, word);
    *text = behind(*text, *word);
    return true;
}

static bool is_address(struct text word) {
    char copy[INET6_ADDRSTRLEN];
    unsigned char address[16];

    if (word.length >= sizeof(copy))
        return false;
    memcpy(copy, word.bytes, word.length);
    copy[word.length] = '\0';
    return inet_pton(AF_INET, copy, address) == 1 || inet_pton(AF_INET6, copy, address) == 1;
}

struct text text_without_port(struct text address) {
    const char *bytes = address.bytes, *colon, *bracket;

    if (address.length == 0)
        return address;
    if (bytes[0] == '[' && (bracket = memchr(bytes, ']', address.length)) != NULL)
        return (struct text){bytes + 1, (size_t)(bracket - bytes - 1)};
    colon = memchr(bytes, ':', address.length);
    if (colon == NULL || memchr(colon + 1, ':', address.length - (size_t)(colon + 1 - bytes)))
        return address;
    struct text host = {bytes, (size_t)(colon - bytes)};
    return is_address(host) ? host : address;
}

/* ---- The parts of a key --------------------------------------------------------------------- */

struct log_part log_part_read(const char *text) {
    static const struct {
        const char *name;
        enum log_part_kind kind;
    } words[] = {{"client", PART_CLIENT}, {"user", PART_USER}, {"host", PART_HOST},
                 {"method", PART_METHOD}, {"path", PART_PATH}, {"status", PART_STATUS},
                 {"agent", PART_AGENT}};
    unsigned number = 0;

    if (text[0] >= '0' && text[0] <= '9') {
        for (const char *at = text; *at != '\0'; at++) {
            if (*at < '0' || *at > '9' || at - text >= 6)
                return (struct log_part){.kind = PART_NONE};
            number = number * 10 + (unsigned)(*at - '0');
        }
        return (struct log_part){number == 0 ? PART_NONE : PART_FIELD, number, text};
    }
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(text, words[i].name) == 0)
            return (struct log_part){words[i].kind, 0, text};
    bool name = (text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z') ||
                (text[0] != '\0' && strchr("_@:", text[0]) != NULL);
    return (struct log_part){name ? PART_NAME : PART_NONE, 0, text};
}

/* A line with its time in brackets, taken apart as far as it is asked for. */
struct pieces {
    const struct log_form *form;
    struct text line, before, after; /* the brackets */
};

static bool client_of(const struct pieces *pieces, struct text *client) {
    struct text before = pieces->before, word;

    *client = (struct text){NULL, 0};
    if (pieces->form->kind == LOG_HAPROXY) { /* the last word, always with a port: 2001:db8::1:80 */
        while (take_word(&before, &word))
            *client = word;
        const char *colon =
            client->length == 0 ? NULL : memrchr(client->bytes, ':', client->length);
        if (colon != NULL)
            client->length = (size_t)(colon - client->bytes);
        return client->length != 0;
    }
    for (unsigned i = 0; i < pieces->form->client; i++)
        if (!take_word(&before, client))
            return false;
    *client = text_without_port(*client);
    return client->length != 0;
}

/* Behind the client and one word more, which is - nearly always; blanks may be in it. */
static bool user_of(const struct pieces *pieces, struct text *user) {
    struct text before = pieces->before;

    if (pieces->form->kind != LOG_BRACKETS)
        return false;
    for (unsigned i = 0; i < pieces->form->client + 1; i++)
        if (!take_word(&before, user))
            return false;
    while (before.length > 0 && is_blank(before.bytes[0]))
        before = (struct text){before.bytes + 1, before.length - 1};
    while (before.length > 0 && is_blank(before.bytes[before.length - 1]))
        before.length--;
    *user = before;
    return before.length > 0;
}

/* Of "GET /a?b HTTP/1.1": the first word, or the second up to the question mark. */
static bool request_of(const struct pieces *pieces, bool path, struct text *word) {
    struct text after = pieces->after, request;

    if (!take_quoted(&after, &request) || !text_field(request, path ? 2 : 1, word))
        return false;
    const char *query = path ? memchr(word->bytes, '?', word->length) : NULL;
    if (query != NULL)
        word->length = (size_t)(query - word->bytes);
    return true;
}

static bool piece_of(const struct pieces *pieces, const struct log_part *part, struct text *piece) {
    struct text after = pieces->after, before = pieces->before;

    switch (part->kind) {
    case PART_FIELD:
        return text_field(pieces->line, part->number, piece);
    case PART_CLIENT:
        return client_of(pieces, piece);
    case PART_USER:
        return user_of(pieces, piece);
    case PART_HOST:
        return pieces->form->client == 2 && take_word(&before, piece);
    case PART_METHOD:
    case PART_PATH:
        return request_of(pieces, part->kind == PART_PATH, piece);
    case PART_STATUS:
        if (pieces->form->kind == LOG_HAPROXY)
            return text_field(after, 4, piece);
        return take_quoted(&after, piece) && take_word(&after, piece);
    case PART_AGENT:
        return third_quoted(after, piece);
    case PART_NAME:
    case PART_NONE:
        break;
    }
    return false;
}

/* ---- A line --------------------------------------------------------------------------------- */

static const char *read_json(const struct log_form *form, struct text line,
                             const struct log_part *parts, size_t count, uint64_t *time_ns,
                             struct json_part *values) {
    const char *names[LOG_PARTS_MAX + 1], *why;
    struct json_part found[LOG_PARTS_MAX + 1];
    char plain[64];

    for (size_t i = 0; i < count; i++) {
        names[i] = parts[i].kind == PART_CLIENT ? form->client_name : parts[i].name;
        if (names[i] == NULL)
            names[i] = "";
    }
    names[count] = form->time_name;
    if (!json_line_find(line, names, found, count + 1, &why))
        return why;
    if (!found[count].found || found[count].raw.length > sizeof(plain))
        return "the field of the time is missing";
    why = log_time_value((struct text){plain, json_part_copy(&found[count], plain)}, time_ns);
    for (size_t i = 0; i < count && why == NULL; i++) {
        if (!found[i].found)
            return part_missing;
        if (parts[i].kind == PART_CLIENT)
            found[i].raw = text_without_port(found[i].raw);
        values[i] = found[i];
    }
    return why;
}

const char *log_line_read(const struct log_form *form, struct text line,
                          const struct log_part *parts, size_t count, uint64_t *time_ns,
                          struct json_part *values) {
    struct pieces pieces = {.form = form, .line = line};
    struct text brackets, first;
    const char *why = NULL;

    if (!text_field(line, 1, &first))
        return "the line is empty";
    if (form->kind == LOG_JSON)
        return read_json(form, line, parts, count, time_ns, values);
    if (form->kind == LOG_EPOCH)
        why = log_time_epoch(first, time_ns);
    else if (form->kind == LOG_BRACKETS)
        why = log_time_clf(line, &brackets, time_ns);
    else if (form->kind == LOG_HAPROXY)
        why = log_time_haproxy(line, &brackets, time_ns);
    else /* Without times any instant does; this one is a Saturday's midnight, and no edge. */
        *time_ns = UINT64_C(946684800000000000);
    if (why != NULL)
        return why;
    if (form->kind == LOG_BRACKETS || form->kind == LOG_HAPROXY) {
        pieces.before = (struct text){line.bytes, (size_t)(brackets.bytes - line.bytes)};
        pieces.after = behind(line, brackets);
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = (struct json_part){.found = true};
        if (!piece_of(&pieces, &parts[i], &values[i].raw))
            return part_missing;
    }
    return NULL;
}

/* ---- The form of a file --------------------------------------------------------------------- */

/* Fields that have the client's address and the time, those before others that are there, too. */
static const struct {
    const char *name, *form;
} client_names[] = {
    {"request.client_ip", "Caddy's JSON"},
    {"request.remote_ip", "Caddy's JSON"},
    {"request.remote_addr", "Caddy's JSON"},
    {"ClientHost", "Traefik's JSON"},
    {"ClientAddr", "Traefik's JSON"},
    {"downstream_remote_address", "Envoy's JSON"},
    {"downstream_direct_remote_address", "Envoy's JSON"},
    {"remote_addr", "nginx's JSON"},
    {"remote_ip", "JSON"},
    {"client_ip", "JSON"},
    {"client", "JSON"},
};
static const char *const time_names[] = {
    "ts",         "StartUTC", "StartLocal", "msec",       "time_iso8601",
    "time_local", "time",     "start_time", "@timestamp", "timestamp",
};
static const char *const agent_names[] = {
    "request.headers.User-Agent", "request_User-Agent", "http_user_agent", "user_agent", "agent",
};
enum {
    AGENTS = sizeof(agent_names) / sizeof(agent_names[0]),
    CLIENTS = sizeof(client_names) / sizeof(client_names[0]),
    TIMES = sizeof(time_names) / sizeof(time_names[0]),
    WORDS_MAX = 24, /* before the time, a prefix among them */
};

/* What the lines of a sample are. */
struct votes {
    size_t of[LOG_UNKNOWN];
    size_t clients[CLIENTS], times[TIMES], agents[AGENTS]; /* JSON that has the field */
    size_t words[WORDS_MAX + 1]; /* brackets: which word is the client's address; 0: not known */
    size_t lost;                 /* brackets with so many words that the client is not the first */
    size_t quoted;               /* brackets with two quoted fields behind the request */
};

static void vote_json(struct votes *votes, struct text line) {
    const char *names[CLIENTS + TIMES + AGENTS], *why;
    struct json_part values[CLIENTS + TIMES + AGENTS];
    uint64_t time_ns;

    for (size_t i = 0; i < CLIENTS; i++)
        names[i] = client_names[i].name;
    memcpy(names + CLIENTS, time_names, sizeof(time_names));
    memcpy(names + CLIENTS + TIMES, agent_names, sizeof(agent_names));
    if (!json_line_find(line, names, values, CLIENTS + TIMES + AGENTS, &why))
        return;
    votes->of[LOG_JSON]++;
    for (size_t i = 0; i < CLIENTS; i++)
        votes->clients[i] += values[i].found && values[i].raw.length > 0;
    for (size_t i = 0; i < AGENTS; i++)
        votes->agents[i] += values[CLIENTS + TIMES + i].found;
    for (size_t i = 0; i < TIMES; i++)
        votes->times[i] += values[CLIENTS + i].found && !values[CLIENTS + i].escaped &&
                           log_time_value(values[CLIENTS + i].raw, &time_ns) == NULL;
}

/* Which of the words before the time is the client's address: the first or the second if it is the
 * only one of these, else the third from the right, behind a prefix. None is in quotes: anybody may
 * have written what is. 0: none. `lost`: there is no address, but a prefix. */
static unsigned client_word(struct text before, bool *lost) {
    bool address[WORDS_MAX + 1] = {false}, any = false;
    unsigned count = 0;
    struct text word;

    while (count < WORDS_MAX && text_field(before, 1, &word)) {
        address[++count] = is_address(word);
        any |= address[count];
        if (!take_word(&before, &word))
            break;
    }
    *lost = !any && count > 4;
    if (address[1])
        return address[2] ? 0 : 1;
    if (count > 4 && address[count - 2])
        return count - 2;
    return address[2] ? 2 : 0;
}

static void vote(struct votes *votes, struct text line) {
    struct text brackets, word, before, after;
    uint64_t time_ns;
    bool lost;

    if (!text_field(line, 1, &word))
        return;
    if (word.bytes[0] == '{') {
        vote_json(votes, line);
    } else if (log_time_clf(line, &brackets, &time_ns) == NULL) {
        votes->of[LOG_BRACKETS]++;
        before = (struct text){line.bytes, (size_t)(brackets.bytes - line.bytes)};
        after = behind(line, brackets);
        votes->words[client_word(before, &lost)]++;
        votes->lost += lost;
        votes->quoted += third_quoted(after, &word);
    } else if (log_time_haproxy(line, &brackets, &time_ns) == NULL) {
        votes->of[LOG_HAPROXY]++;
    }
}

/* The first of the fields that nearly as many lines have as any; n: none has. */
static size_t first_of(const size_t *counts, size_t n) {
    size_t most = 1, i = 0;

    for (size_t at = 0; at < n; at++)
        most = counts[at] > most ? counts[at] : most;
    while (i < n && counts[i] < most - most / 2)
        i++;
    return i;
}

struct log_form log_form_find(const struct text *lines, size_t count) {
    struct log_form form = {.kind = LOG_UNKNOWN};
    struct votes votes = {.quoted = 0};
    size_t most = 0;

    for (size_t i = 0; i < count; i++)
        if (lines[i].bytes != NULL)
            vote(&votes, lines[i]);
    for (enum log_kind kind = LOG_BRACKETS; kind < LOG_UNKNOWN; kind++) {
        if (votes.of[kind] > most)
            form.kind = kind;
        most = votes.of[kind] > most ? votes.of[kind] : most;
    }
    if (form.kind == LOG_BRACKETS) {
        form.client = 1;
        for (unsigned i = 2; i <= WORDS_MAX; i++)
            form.client = votes.words[i] > votes.words[form.client] ? i : form.client;
        if (2 * votes.lost > most)
            form.client = 0;
        const bool combined = 2 * votes.quoted > most;
        form.name = form.client > 2
                        ? combined ? "combined, behind a prefix" : "common, behind a prefix"
                    : form.client == 2 ? "vhost_combined, or like it"
                    : combined         ? "combined"
                                       : "common";
    } else if (form.kind == LOG_HAPROXY) {
        form.name = "HAProxy's httplog";
    } else if (form.kind == LOG_JSON) {
        size_t client = first_of(votes.clients, CLIENTS), time = first_of(votes.times, TIMES);
        size_t agent = first_of(votes.agents, AGENTS);
        form.name = client == CLIENTS ? "JSON" : client_names[client].form;
        form.client_name = client == CLIENTS ? NULL : client_names[client].name;
        form.time_name = time == TIMES ? NULL : time_names[time];
        form.agent_name = agent == AGENTS ? NULL : agent_names[agent];
    }
    return form;
}
