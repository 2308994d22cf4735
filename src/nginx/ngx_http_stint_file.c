/* SPDX-License-Identifier: MIT
 * The table of a zone that is in a file.
 *
 * A start makes a table of the version before this one's; its counts stay. Who has that open, as
 * an old master's workers do, goes on by the old file. A start makes the file as large as the
 * configuration asks, if nobody else has it open. Else nginx goes on with the size that the file
 * has, and says so: at a reload, beside an old master, or with another nginx that shares it.
 *
 * If somebody cuts the file off while nginx runs, workers that look at what is gone have a SIGBUS.
 * They go on without the table: all requests of the zone are let through. */
#include "ngx_http_stint.h" /* first: it asks the system for all that it has, such as O_TMPFILE */

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define SHAPE_TEXT 96 /* bytes; more than the numbers of a zone are as text */

void ngx_http_stint_log_open(const ngx_http_stint_zone_t *zone, ngx_log_t *log) {
    char reason[NGX_HTTP_STINT_REASON];

    ngx_log_error(NGX_LOG_EMERG, log, 0, "stint zone \"%V\" in %V:%ui: %s", &zone->name,
                  &zone->declared.file, zone->declared.line,
                  ngx_http_stint_words(stint_reason(), reason));
}

/* Whether a file system has no room for so many bytes more. */
static ngx_uint_t ngx_http_stint_is_full(const struct statvfs *about, uint64_t size) {
    return about->f_blocks != 0 && size / about->f_frsize > about->f_bfree;
}

/* ---- Its size -------------------------------------------------------------------------------- */

/* Numbers as the configuration has them. Returns `text`. */
static u_char *ngx_http_stint_shape(const struct stint_options *options, u_char text[SHAPE_TEXT]) {
    ngx_sprintf(text, "entries=%uL policies=%uD labels=%uD%Z", options->max_entries,
                options->max_policies, options->labels);
    return text;
}

/* Finds the numbers that a zone's file was made for. Returns what stint_attach does. */
static int ngx_http_stint_find_shape(const ngx_http_stint_zone_t *zone,
                                     struct stint_options *made) {
    struct stint_options any = STINT_OPTIONS_INIT;
    struct stint_stats stats = STINT_STATS_INIT;
    struct stint_limiter *limiter = NULL;
    int error;

    any.path = zone->options.path;
    any.flags = STINT_READ_ONLY;
    error = stint_attach(&any, &limiter);
    if (error == 0) {
        error = stint_stats_get(limiter, &stats);
    }
    stint_close(limiter);
    *made = any;
    made->max_entries = stats.max_entries;
    made->max_policies = stats.max_policies;
    made->labels = (uint32_t)stats.labels;
    return error;
}

/* Whether a table has the numbers that are asked for. Those of labels are rounded up to fours. */
static ngx_uint_t ngx_http_stint_fits(const struct stint_options *asked,
                                      const struct stint_options *made) {
    return asked->max_entries == made->max_entries && asked->max_policies == made->max_policies &&
           ngx_align(asked->labels, 4) == ngx_align(made->labels, 4);
}

/* What a start makes of these numbers: none becomes smaller. */
static struct stint_options ngx_http_stint_enlarge(const struct stint_options *asked,
                                                   const struct stint_options *made) {
    struct stint_options larger = STINT_OPTIONS_INIT;

    larger.max_entries = ngx_max(asked->max_entries, made->max_entries);
    larger.max_policies = ngx_max(asked->max_policies, made->max_policies);
    larger.labels = ngx_max(asked->labels, made->labels);
    return larger;
}

/* Makes a file larger that is too small, unless this is only a test; or says why not. nginx's log
 * has errors alone by default; that of a test has warnings. */
static void ngx_http_stint_fit(const ngx_http_stint_zone_t *zone, const struct stint_options *made,
                               ngx_log_t *log) {
    const struct stint_options larger = ngx_http_stint_enlarge(&zone->options, made);
    char reason[NGX_HTTP_STINT_REASON] = "a test changes no file";
    const ngx_uint_t level = ngx_test_config ? NGX_LOG_WARN : NGX_LOG_ERR;
    u_char text[SHAPE_TEXT], other[SHAPE_TEXT];
    struct statvfs about;

    if (ngx_http_stint_fits(&zone->options, made)) {
        return;
    }
    (void)ngx_http_stint_shape(made, text);
    if (ngx_http_stint_fits(&larger, made)) {
        ngx_log_error(
            level, log, 0,
            "stint zone \"%V\" in %V:%ui: %V has %s, and nginx goes on with these: no "
            "start makes it smaller. %s",
            &zone->name, &zone->declared.file, zone->declared.line, &zone->file, text,
            zone->options.labels == 0 && made->labels != 0
                ? "It keeps the names that it has and gets no more: remove it while "
                  "nginx is stopped to be without them, and without its counts"
                : "Ask for these numbers, or run \"stint resize\" while nginx is stopped");
        return;
    }
    (void)ngx_http_stint_shape(&larger, other);
    if (!ngx_test_config) {
        if (stint_resize(zone->options.path, &larger) == 0) {
            ngx_log_error(NGX_LOG_NOTICE, log, 0,
                          "stint zone \"%V\" in %V:%ui: %V had %s, and has %s from now on: its "
                          "counts stay",
                          &zone->name, &zone->declared.file, zone->declared.line, &zone->file, text,
                          other);
            return;
        }
        (void)ngx_http_stint_words(stint_reason(), reason);
    } else if (statvfs(zone->options.path, &about) == 0 &&
               ngx_http_stint_is_full(&about, stint_memory_size(&larger))) {
        (void)snprintf(reason, sizeof(reason), "%s: there is no room for the table: %s",
                       zone->options.path, strerror(ENOSPC)); /* as the library says it */
    }
    ngx_log_error(level, log, 0,
                  "stint zone \"%V\" in %V:%ui: %V has %s, and nginx goes on with "
                  "these: %s. A start of nginx, while nobody else has it open, makes it %s, and "
                  "its counts stay",
                  &zone->name, &zone->declared.file, zone->declared.line, &zone->file, text, reason,
                  other);
}

/* Makes a table of the version before this one's. Returns 0, as if it had, in a test; else what
 * stint_resize does. */
static int ngx_http_stint_renew(const ngx_http_stint_zone_t *zone, ngx_log_t *log) {
    int error = ngx_test_config ? 0 : stint_resize(zone->options.path, NULL);

    if (error == 0) {
        ngx_log_error(NGX_LOG_WARN, log, 0,
                      "stint zone \"%V\" in %V:%ui: %V was made by another version: %s, and its "
                      "counts stay. Who has it open goes on by the file that it was",
                      &zone->name, &zone->declared.file, zone->declared.line, &zone->file,
                      ngx_test_config ? "a start of nginx makes it this one's"
                                      : "it is this one's from now on");
    }
    return error;
}

/* Opens a table that stint_open has just refused: it is for other numbers, or of another version. A
 * test only reads: then `limiter` is NULL if that cannot be done yet, and `options` receives the
 * room for policies that a start would have. Returns what stint_open does. */
static int ngx_http_stint_open_other(const ngx_http_stint_zone_t *zone, ngx_log_t *log,
                                     struct stint_options *options,
                                     struct stint_limiter **limiter) {
    struct stint_options any = *options, made;
    int error;

    /* The remedy that the library names for a table of the version before. */
    if (strstr(stint_reason(), "by stint resize") != NULL) {
        error = ngx_http_stint_renew(zone, log);
        if ((error != 0 && error != -EBUSY) || ngx_test_config) { /* or another was faster */
            return error;
        }
    }
    error = ngx_http_stint_find_shape(zone, &made);
    if (error != 0) {
        return error;
    }
    ngx_http_stint_fit(zone, &made, log);
    options->max_policies = ngx_max(options->max_policies, made.max_policies);
    any.max_entries = 0;
    any.max_policies = 0;
    any.labels = 0;
    return stint_attach(&any, limiter);
}

/* ---- A file that is cut off ------------------------------------------------------------------ */

static struct sigaction ngx_http_stint_sigbus_before;
static ngx_uint_t ngx_http_stint_sigbus_handled;

/* A fault that is not of a table is whose it was before: it comes again, or is sent again. */
static void ngx_http_stint_sigbus(int number, siginfo_t *fault, void *context) {
    if (!stint_on_sigbus(fault)) {
        (void)sigaction(number, &ngx_http_stint_sigbus_before, NULL);
        ngx_http_stint_sigbus_handled = 0;
        (void)raise(number);
    }
}

/* Once; workers inherit it. */
static void ngx_http_stint_handle_sigbus(void) {
    const struct sigaction action = {.sa_sigaction = ngx_http_stint_sigbus, .sa_flags = SA_SIGINFO};

    if (!ngx_http_stint_sigbus_handled) {
        ngx_http_stint_sigbus_handled =
            sigaction(SIGBUS, &action, &ngx_http_stint_sigbus_before) == 0;
    }
}

/* A reload may unload the module. */
static void __attribute__((destructor)) ngx_http_stint_end_sigbus(void) {
    if (ngx_http_stint_sigbus_handled) {
        (void)sigaction(SIGBUS, &ngx_http_stint_sigbus_before, NULL);
    }
}

/* ---- Opening --------------------------------------------------------------------------------- */

int ngx_http_stint_open_file(ngx_http_stint_zone_t *zone, ngx_log_t *log) {
    struct stint_options options = zone->options;
    struct stat about;
    int error;

    ngx_http_stint_handle_sigbus();
    error = stint_open(&options, &zone->limiter);
    if (error == -EPROTO) {
        error = ngx_http_stint_open_other(zone, log, &options, &zone->limiter);
    }
    if (error == 0 && stat(zone->options.path, &about) == 0) {
        zone->file_device = about.st_dev;
        zone->file_inode = about.st_ino;
    }
    return error;
}

/* ---- What a start would do ------------------------------------------------------------------- */

/* A table in this process's own memory, which has the policies of a table in a file. */
static int ngx_http_stint_try(const struct stint_options *options,
                              const struct stint_limiter *limiter, struct stint_limiter **trial) {
    struct stint_options small = *options;
    int error;

    small.path = NULL;
    small.max_entries = 1;
    small.labels = 0;
    small.flags &= ~(uint32_t)STINT_READ_ONLY;
    error = stint_open(&small, trial);
    for (uint32_t id = 0; error == 0 && limiter != NULL && id < options->max_policies; id++) {
        struct stint_policy policy = STINT_POLICY_INIT;

        if (stint_policy_get(limiter, id, &policy) == 0) {
            error = stint_policy_add(*trial, &policy, NULL);
        }
    }
    return error;
}

ngx_int_t ngx_http_stint_look(ngx_http_stint_zone_t *zone, ngx_log_t *log) {
    struct stint_options options = zone->options;
    struct stint_limiter *limiter = NULL;
    int error;

    options.flags |= STINT_READ_ONLY;
    error = stint_open(&options, &limiter);
    if (error == -EPROTO) {
        error = ngx_http_stint_open_other(zone, log, &options, &limiter);
    }
    if (error == 0 || error == -ENOENT) { /* a start makes it */
        error = ngx_http_stint_try(&options, limiter, &zone->limiter);
    }
    if (error != 0) {
        ngx_http_stint_log_open(zone, log);
    } else if (access(options.path, F_OK) == 0 && access(options.path, R_OK | W_OK) != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, ngx_errno,
                      "stint zone \"%V\" in %V:%ui: %V cannot be written", &zone->name,
                      &zone->declared.file, zone->declared.line, &zone->file);
        error = -EACCES;
    }
    stint_close(limiter);
    return error == 0 ? NGX_OK : NGX_ERROR;
}

char *ngx_http_stint_directory(ngx_conf_t *cf, const ngx_str_t *file, ngx_str_t *name) {
    u_char *slash = file->data + file->len;
    char *path = ngx_pnalloc(cf->temp_pool, file->len + 1);

    while (*slash != '/') { /* it is a full name */
        slash--;
    }
    name->data = slash + 1;
    name->len = (size_t)(file->data + file->len - name->data);
    if (path != NULL) {
        (void)ngx_cpystrn((u_char *)path, file->data, (size_t)(name->data - file->data) + 1);
    }
    return path;
}

/* As the library makes one, without a name. */
char *ngx_http_stint_check_file(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone) {
    const uint64_t size = stint_memory_size(&zone->options);
    ngx_str_t name;
    const char *directory = ngx_http_stint_directory(cf, &zone->file, &name);
    struct statvfs about;
    ngx_uint_t full;
    ngx_fd_t fd;

    if (directory == NULL) {
        return NGX_CONF_ERROR;
    }
    if (access((char *)zone->file.data, F_OK) == 0) {
        return NGX_CONF_OK;
    }
    fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "stint zone \"%V\" cannot make its file in \"%s\"", &zone->name,
                           directory);
        return NGX_CONF_ERROR;
    }
    full = fstatvfs(fd, &about) == 0 && ngx_http_stint_is_full(&about, size);
    (void)close(fd);
    if (full) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "stint zone \"%V\" needs %uL KB for its file, and there are %uL KB in "
                           "\"%s\"",
                           &zone->name, size >> 10, (uint64_t)about.f_bfree * about.f_frsize >> 10,
                           directory);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}
