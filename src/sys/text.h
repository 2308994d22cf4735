/* SPDX-License-Identifier: MIT
 * Text that is cut at the end of a buffer, as snprintf does, but piece by piece. */
#ifndef STINT_TEXT_H
#define STINT_TEXT_H

#include <stint.h>

struct text {
    char *buffer; /* [buffer, buffer+size); NULL only if size is 0 */
    size_t size;
    size_t length; /* of the whole text, cut or not; without the NUL */
};

static inline void add_letter(struct text *text, char letter) {
    if (text->length + 1 < text->size)
        text->buffer[text->length] = letter;
    text->length++;
}

static inline void add_text(struct text *text, const char *piece) {
    for (; *piece != '\0'; piece++)
        add_letter(text, *piece);
}

/* A name in quotes, with \" and \\ for what would end or escape: a structured-field string (RFC
 * 9651), and a label value of OpenMetrics, even if the table is written over meanwhile. */
static inline void add_quoted(struct text *text, const char *name) {
    add_letter(text, '"');
    for (size_t i = 0; i < STINT_NAME_SIZE - 1; i++) {
        const char there = name[i], letter = there < ' ' || there > '~' ? '?' : there;
        if (there == '\0')
            break;
        if (letter == '"' || letter == '\\')
            add_letter(text, '\\');
        add_letter(text, letter);
    }
    add_letter(text, '"');
}

static inline void add_number(struct text *text, uint64_t number) {
    if (number >= 10)
        add_number(text, number / 10);
    add_letter(text, (char)('0' + number % 10));
}

/* Ends what is in the buffer with a NUL. Returns the length of the whole text, which is an int. */
static inline int end_text(struct text *text) {
    if (text->size != 0)
        text->buffer[text->length < text->size ? text->length : text->size - 1] = '\0';
    return (int)text->length;
}

#endif
