/* SPDX-License-Identifier: MIT
 * `stint replay` as a whole, and `stint advise` on the same log, if `--advise` is an option. The
 * first line of the input has the options, a tab between two;
 * what follows is the log. Whatever they are, they are taken or refused, and a report is whole:
 * JSON that a parser takes and whose numbers go together, or a table that no terminal takes for
 * commands. */
#include "../../src/tool/advise.h"
#include "../../src/tool/common.h"
#include "../../src/tool/replay.h"
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

enum { OPTIONS = 12 };

static json_int_t number_of(const json_t *object, const char *name) {
    const json_t *number = json_object_get(object, name);
    assert(json_is_integer(number) && json_integer_value(number) >= 0);
    return json_integer_value(number);
}

/* The sum of `name` in an array of objects. */
static json_int_t sum_of(const json_t *array, const char *name) {
    json_int_t sum = 0;
    const json_t *element;
    size_t i;
    assert(json_is_array(array));
    json_array_foreach(array, i, element) sum += number_of(element, name);
    return sum;
}

/* A higher limit refuses no more, and one as high as the highest peak refuses nothing. */
static void check_advice(const json_t *root, json_int_t requests, json_int_t keys) {
    const json_t *unit, *row;
    size_t i, j;
    json_array_foreach(json_object_get(root, "units"), i, unit) {
        const json_int_t highest = number_of(json_object_get(unit, "peaks"), "highest");
        json_int_t before = requests;
        assert(highest >= 1 && highest <= requests);
        json_array_foreach(json_object_get(unit, "limits"), j, row) {
            const json_t *window = json_object_get(row, "window");
            const json_int_t refused = number_of(window, "requests");
            assert(number_of(window, "clients") <= keys && refused <= before);
            assert(number_of(json_object_get(row, "bucket"), "clients") <= keys);
            assert(number_of(row, "limit") < highest || refused == 0);
            before = refused;
        }
    }
}

static void check_json(const char *report, size_t length) {
    json_error_t error;
    json_t *root = json_loadb(report, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    assert(root != NULL);
    const json_t *log = json_object_get(root, "log"), *limit;
    const json_int_t requests = number_of(log, "readable"), lines = number_of(log, "lines");
    const json_int_t unreadable = number_of(log, "unreadable");
    size_t i;

    assert(requests > 0 && requests + unreadable == lines && unreadable * 20 <= lines);
    assert(number_of(log, "late") < requests);
    assert(sum_of(json_object_get(log, "files"), "lines") == lines);
    json_array_foreach(json_object_get(root, "limits"), i, limit) {
        json_int_t refused = number_of(limit, "refused");
        const json_t *over_time = json_object_get(limit, "over_time");
        assert(number_of(limit, "requests") == requests);
        assert(number_of(limit, "allowed") + refused == requests);
        assert(number_of(limit, "keys_refused") <= number_of(log, "keys"));
        assert(sum_of(json_object_get(limit, "top"), "refused") <= refused);
        assert(json_array_size(over_time) == 0 || sum_of(over_time, "refused") == refused);
    }
    assert(i > 0 || json_object_get(root, "units") != NULL);
    check_advice(root, requests, number_of(log, "keys"));
    json_decref(root);
}

/* Nothing below a blank but the ends of lines. */
static void check_printable(const char *report, size_t length) {
    for (size_t i = 0; i < length; i++)
        assert(((unsigned char)report[i] >= 0x20 && report[i] != 0x7F) || report[i] == '\n');
}

/* Splits off the options: all begin with "--", so that none names a log, and none names a page. */
static int split_options(char *line, char **arguments, bool *advise) {
    int count = 0;
    char *rest;
    for (char *option = strtok_r(line, "\t", &rest); option != NULL && count < OPTIONS;
         option = strtok_r(NULL, "\t", &rest))
        if (strcmp(option, "--advise") == 0)
            *advise = true;
        else if (strncmp(option, "--", 2) == 0 && option[2] != '\0' && option[2] != 'h')
            arguments[count++] = option;
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *lf = size == 0 ? NULL : memchr(data, '\n', size);
    size_t line_length = lf != NULL ? (size_t)(lf - data) : size;
    size_t log_length = lf != NULL ? size - line_length - 1 : 0;
    char *line = exact_text(data, line_length), command[] = "replay", path[64];
    char *arguments[OPTIONS + 3] = {command};
    char *out, *err;
    size_t out_length, err_length;
    int fd = memfd_create("log", MFD_CLOEXEC);
    bool written =
        fd >= 0 && write(fd, data + size - log_length, log_length) == (ssize_t)log_length;
    assert(written);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    bool advise = false;
    int count = 1 + split_options(line, arguments + 1, &advise);
    arguments[count++] = path;

    FILE *usual_out = stdout, *usual_err = stderr;
    stdout = open_memstream(&out, &out_length);
    stderr = open_memstream(&err, &err_length);
    optind = 0; /* getopt_long of the GNU C library begins anew */
    int code = advise ? tool_advise(count, arguments) : tool_replay(count, arguments);
    fclose(stdout);
    fclose(stderr);
    stdout = usual_out;
    stderr = usual_err;

    assert(code == EXIT_GOOD || code == EXIT_FAILED || code == EXIT_USAGE);
    if (code != EXIT_GOOD)
        assert(out_length == 0 && err_length > 0);
    else if (out[0] == '{')
        check_json(out, out_length);
    else
        assert(strncmp(out, "Usage: ", 7) == 0 || strncmp(out, "Log ", 4) == 0);
    check_printable(out, out_length);
    free(out);
    free(err);
    free(line);
    close(fd);
    return 0;
}
