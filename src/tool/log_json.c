/* SPDX-License-Identifier: MIT
 * One walk over the line, without a tree: a log of a million lines asks for few of their fields. */
#include "log_json.h"

#include <stdint.h>
#include <string.h>

enum { DEPTH_MAX = 32 }; /* of objects and arrays in each other */

struct walk {
    const char *at, *end;
    struct text path[DEPTH_MAX]; /* the names of the objects that it is in, and of the field */
    size_t depth;
    size_t nested; /* in objects and arrays */
    const char *const *names;
    struct json_part *values;
    size_t count;
};

static bool walk_value(struct walk *walk);

static bool is_blank(char byte) {
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static void pass_blanks(struct walk *walk) {
    while (walk->at < walk->end && is_blank(*walk->at))
        walk->at++;
}

/* Whether the next byte is this one, which is then passed. */
static bool pass(struct walk *walk, char byte) {
    if (walk->at == walk->end || *walk->at != byte)
        return false;
    walk->at++;
    return true;
}

/* Behind its first quote. */
static bool pass_string(struct walk *walk, struct json_part *value) {
    const char *const from = walk->at, *const end = walk->end, *at = from;
    bool escaped = false;

    for (;;) {
        while (at < end && *at != '"' && *at != '\\')
            at++;
        if (at == end || *at == '"')
            break;
        escaped = true;
        at += end - at < 2 ? 1 : 2;
    }
    if (at == end)
        return false;
    walk->at = at + 1;
    *value = (struct json_part){.raw = {from, (size_t)(at - from)}, .escaped = escaped};
    return true;
}

static bool is_name(const struct walk *walk, const char *name) {
    for (size_t i = 0; i < walk->depth; i++) {
        const struct text key = walk->path[i];
        if (i > 0 && *name++ != '.')
            return false;
        for (size_t j = 0; j < key.length; j++, name++)
            if (*name == '\0' || *name != key.bytes[j])
                return false;
    }
    return *name == '\0';
}

static void value_told(struct walk *walk, struct json_part value) {
    value.found = true;
    for (size_t i = 0; i < walk->count; i++)
        if (!walk->values[i].found && is_name(walk, walk->names[i]))
            walk->values[i] = value;
}

static bool walk_object(struct walk *walk) {
    struct json_part name;

    walk->depth++;
    for (pass_blanks(walk); !pass(walk, '}'); pass_blanks(walk)) {
        if (!pass(walk, '"') || !pass_string(walk, &name))
            return false;
        walk->path[walk->depth - 1] = name.raw;
        pass_blanks(walk);
        if (!pass(walk, ':') || !walk_value(walk))
            return false;
        pass_blanks(walk);
        if (!pass(walk, ',') && (walk->at == walk->end || *walk->at != '}'))
            return false;
    }
    walk->depth--;
    return true;
}

static bool walk_array(struct walk *walk) {
    for (pass_blanks(walk); !pass(walk, ']'); pass_blanks(walk)) {
        if (!walk_value(walk))
            return false;
        pass_blanks(walk);
        if (!pass(walk, ',') && (walk->at == walk->end || *walk->at != ']'))
            return false;
    }
    return true;
}

static bool ends_word(char byte) {
    return is_blank(byte) || byte == ',' || byte == ']' || byte == '}' || byte == '"' ||
           byte == '\0';
}

static bool walk_word(struct walk *walk) {
    const char *from = walk->at;

    while (walk->at < walk->end && !ends_word(*walk->at))
        walk->at++;
    struct json_part value = {.raw = {from, (size_t)(walk->at - from)}};
    if (value.raw.length == 0)
        return false;
    if (value.raw.length != 4 || memcmp(from, "null", 4) != 0)
        value_told(walk, value);
    return true;
}

static bool walk_value(struct walk *walk) {
    struct json_part value = {.found = false};

    pass_blanks(walk);
    if (pass(walk, '"')) {
        if (!pass_string(walk, &value))
            return false;
        value_told(walk, value);
        return true;
    }
    bool object = pass(walk, '{');
    if (!object && !pass(walk, '['))
        return walk_word(walk);
    if (walk->nested == DEPTH_MAX)
        return false;
    walk->nested++;
    bool whole = object ? walk_object(walk) : walk_array(walk);
    walk->nested--;
    return whole;
}

bool json_line_find(struct text line, const char *const *names, struct json_part *values,
                    size_t count, const char **why) {
    struct walk walk = {.at = line.bytes,
                        .end = line.bytes + line.length,
                        .names = names,
                        .values = values,
                        .count = count};

    for (size_t i = 0; i < count; i++)
        values[i] = (struct json_part){.found = false};
    pass_blanks(&walk);
    bool object = walk.at < walk.end && *walk.at == '{', whole = walk_value(&walk);
    pass_blanks(&walk);
    *why = "the line is no whole object of JSON";
    return object && whole && walk.at == walk.end;
}

/* ---- Escapes ---- */

/* Reads hexadecimal digits; UINT32_MAX if one is not. */
static uint32_t hex_at(const char *at, const char *end, int digits) {
    static const char all[] = "0123456789abcdef0123456789ABCDEF";
    uint32_t number = 0;

    for (int i = 0; i < digits; i++) {
        const char *digit = at + i < end && at[i] != '\0' ? strchr(all, at[i]) : NULL;
        if (digit == NULL)
            return UINT32_MAX;
        number = number << 4 | ((uint32_t)(digit - all) & 15);
    }
    return number;
}

static char *put_utf8(char *to, uint32_t code) {
    if (code < 0x80) {
        *to++ = (char)code;
        return to;
    }
    if (code >= 0x10000) {
        *to++ = (char)(0xF0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3F));
    } else if (code >= 0x800) {
        *to++ = (char)(0xE0 | code >> 12);
    } else {
        *to++ = (char)(0xC0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3F));
        return to;
    }
    *to++ = (char)(0x80 | (code >> 6 & 0x3F));
    *to++ = (char)(0x80 | (code & 0x3F));
    return to;
}

/* Behind \u: its four digits, and those of the other half of a pair. */
static char *put_code(char *to, const char **at, const char *end) {
    uint32_t code = hex_at(*at, end, 4);

    if (code == UINT32_MAX) {
        *to++ = 'u';
        return to;
    }
    *at += 4;
    if (code >= 0xD800 && code < 0xDC00 && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        uint32_t low = hex_at(*at + 2, end, 4);
        if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            *at += 6;
        }
    }
    return put_utf8(to, code);
}

size_t json_part_copy(const struct json_part *value, char *to) {
    static const char letters[] = "bfnrt", meant[] = "\b\f\n\r\t";
    const char *at = value->raw.bytes, *end = at + value->raw.length, *letter;
    char *from = to;

    if (!value->escaped) {
        memcpy(to, at, value->raw.length);
        return value->raw.length;
    }
    while (at < end) {
        char byte = *at++;
        if (byte != '\\' || at == end) {
            *to++ = byte;
            continue;
        }
        byte = *at++;
        if (byte == 'u') {
            to = put_code(to, &at, end);
        } else if (byte == 'x' && hex_at(at, end, 2) != UINT32_MAX) {
            *to++ = (char)hex_at(at, end, 2);
            at += 2;
        } else {
            letter = byte == '\0' ? NULL : strchr(letters, byte);
            *to++ = letter != NULL ? meant[letter - letters] : byte;
        }
    }
    return (size_t)(to - from);
}
