/* SPDX-License-Identifier: MIT
 * What is logged. Whoever sends requests decides neither how much that is, nor which bytes. */
#include "ngx_http_stint.h"

#define LOG_INTERVAL 60   /* s, of each worker, zone and kind of message */
#define LOG_REFUSALS 100  /* lines of refusals in a second of a worker, whatever the keys */
#define LOG_SECOND   1000 /* ms */
#define VALUE_SHOWN  64   /* bytes of a value that a message shows */
#define VALUE_TEXT   (VALUE_SHOWN * sizeof("\\xFF") + sizeof("...")) /* bytes, with its NUL */
#define SECOND       UINT64_C(1000000000)                            /* ns */

ngx_uint_t ngx_http_stint_log_due(ngx_http_stint_zone_t *zone, ngx_http_stint_log_kind_t kind) {
    if (ngx_time() - zone->logged[kind] < LOG_INTERVAL) {
        return 0;
    }
    zone->logged[kind] = ngx_time();
    return 1;
}

/* Writes a value so that it is one printable word of the log, cut. Returns its end. */
static u_char *ngx_http_stint_escape(u_char *at, const ngx_str_t *value) {
    for (size_t i = 0; i < value->len && i < VALUE_SHOWN; i++) {
        u_char c = value->data[i];

        at = c >= 0x20 && c < 0x7f && c != '"' && c != '\\' ? ngx_sprintf(at, "%c", c)
                                                            : ngx_sprintf(at, "\\x%02Xd", c);
    }
    return value->len > VALUE_SHOWN ? ngx_sprintf(at, "...") : at;
}

/* What stands before such a value, and after it. */
static const char *const ngx_http_stint_complaints[NGX_HTTP_STINT_LOG_KINDS][2] = {
    [NGX_HTTP_STINT_LOG_COST] = {"cost", "is not a number, taken as 1"},
    [NGX_HTTP_STINT_LOG_LIMIT] = {"limit", "is not a number, the policy's is taken"},
    [NGX_HTTP_STINT_LOG_BURST] = {"burst", "is not a number, the policy's is taken"},
    [NGX_HTTP_STINT_LOG_CHARGE] = {"charge", "is not a number, nothing is charged"},
    [NGX_HTTP_STINT_LOG_POLICY] = {"policy",
                                   "is unknown, or of the other kind (in-flight or a rate), so the "
                                   "default is taken, if there is one"},
    [NGX_HTTP_STINT_LOG_STRIPES] =
        {"policy", "has \"stripes=\", which \"limit=\" does not go with, so its own "
                   "limit is taken"},
    [NGX_HTTP_STINT_LOG_BUCKET] =
        {"policy", "has no \"burst=\", which \"burst=\" of a limit goes with, so all of it is "
                   "taken"},
    [NGX_HTTP_STINT_LOG_ADDRESS] = {"key", "is no address, that of the connection is taken"},
};

void ngx_http_stint_log_value(ngx_http_request_t *r, ngx_http_stint_zone_t *zone,
                              ngx_http_stint_log_kind_t kind, ngx_uint_t level,
                              const ngx_str_t *value) {
    u_char escaped[VALUE_TEXT];
    const char *const *complaint = ngx_http_stint_complaints[kind];

    if (ngx_http_stint_log_due(zone, kind)) {
        *ngx_http_stint_escape(escaped, value) = '\0';
        ngx_log_error(level, r->connection->log, 0,
                      "stint %s \"%s\" %s, in zone \"%V\" (told once a minute)", complaint[0],
                      escaped, complaint[1], &zone->name);
    }
}

/* What a key has used. Returns the end of the text. */
static u_char *ngx_http_stint_used(u_char *at, const struct stint_verdict *verdict,
                                   const struct stint_policy *policy) {
    uint32_t reserved =
        verdict->used > verdict->capacity
            ? (uint32_t)ngx_min(verdict->used - verdict->capacity, policy->max_reserved)
            : 0;

    if (verdict->capacity == 0) {
        return ngx_sprintf(at, "banned, %uD used", verdict->used);
    }
    at = ngx_sprintf(at, "%uD of %uD used", verdict->used - reserved, verdict->capacity);
    return reserved == 0 ? at : ngx_sprintf(at, ", %uD reserved", reserved);
}

/* Refusals of a second of this worker, which begins with the first of them. */
static struct {
    ngx_event_t end;
    ngx_uint_t logged, left_out;
    ngx_uint_t level; /* the most urgent of those that are left out */
} ngx_http_stint_refusals;

void ngx_http_stint_log_left_out(void) {
    if (ngx_http_stint_refusals.left_out != 0) {
        ngx_log_error(ngx_http_stint_refusals.level, ngx_cycle->log, 0,
                      "limiting requests, %ui lines more were left out within a second",
                      ngx_http_stint_refusals.left_out);
    }
    ngx_http_stint_refusals.logged = ngx_http_stint_refusals.left_out = 0;
}

static void ngx_http_stint_second_over(ngx_event_t *event) {
    ngx_http_stint_log_left_out();
}

/* Whether one more refusal is logged. */
static ngx_uint_t ngx_http_stint_refusal_due(ngx_uint_t level) {
    static ngx_connection_t none = {.fd = (ngx_socket_t)-1}; /* nginx's debug log shows its fd */
    ngx_event_t *end = &ngx_http_stint_refusals.end;

    if (!end->timer_set) {
        end->handler = ngx_http_stint_second_over;
        end->data = &none;
        end->log = ngx_cycle->log;
        end->cancelable = 1; /* a worker that shuts down does not wait for it */
        ngx_add_timer(end, LOG_SECOND);
    }
    if (ngx_http_stint_refusals.logged < LOG_REFUSALS) {
        ngx_http_stint_refusals.logged++;
        return 1;
    }
    ngx_http_stint_refusals.level = ngx_http_stint_refusals.left_out++ == 0
                                        ? level
                                        : ngx_min(level, ngx_http_stint_refusals.level);
    return 0;
}

/* Once for a key and window, so that an attacker does not fill the disk. If the key is banned by
 * it, that is the one line on the ban: later refusals only read. */
void ngx_http_stint_log_first(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx, ngx_uint_t i,
                              const struct stint_verdict *verdict) {
    u_char ban[sizeof(", banned for  s, key \"\"") + NGX_INT64_LEN + VALUE_TEXT];
    u_char used[sizeof(" of  used,  reserved") + 3 * NGX_INT32_LEN];
    u_char network[NGX_HTTP_STINT_NETWORK], *at = ban;
    ngx_str_t name;

    ngx_http_stint_label(r, ctx->limits[i], ctx->requests[i].key);
    if (!ngx_http_stint_refusal_due(ctx->log_level)) {
        return;
    }
    if ((verdict->flags & STINT_BANNED) != 0) {
        at = ngx_sprintf(at, ", banned for %uL s",
                         (ctx->policies[i]->policy.ban + SECOND - 1) / SECOND);
        if (ctx->limits[i]->zone->options.labels != 0 &&
            ngx_http_stint_name_key(r, ctx->limits[i], network, &name) == NGX_OK) {
            at = ngx_http_stint_escape(ngx_sprintf(at, ", key \""), &name);
            *at++ = '"';
        }
    }
    if ((verdict->flags & (STINT_BANNED | STINT_OVERRIDDEN)) == STINT_OVERRIDDEN) {
        at = ngx_sprintf(at, ", overridden");
    }
    *at = '\0';
    *ngx_http_stint_used(used, verdict, &ctx->policies[i]->policy) = '\0';
    ngx_log_error(ctx->log_level, r->connection->log, 0,
                  "limiting requests%s%s, %s, by policy \"%V\" in zone \"%V\"",
                  ctx->dry_run                             ? ", dry run"
                  : (verdict->flags & STINT_SHADOWED) != 0 ? ", shadow"
                                                           : "",
                  ban, used, &ctx->policies[i]->name, &ctx->limits[i]->zone->name);
}

static void ngx_http_stint_log_lost(ngx_http_request_t *r, ngx_http_stint_zone_t *zone) {
    if (ngx_http_stint_log_due(zone, NGX_HTTP_STINT_LOG_LOST)) {
        ngx_log_error(NGX_LOG_CRIT, r->connection->log, 0,
                      "the file \"%V\" of the stint zone \"%V\" was cut off while nginx runs: all "
                      "requests are let through uncounted until the file is removed and nginx is "
                      "reloaded (told once a minute)",
                      &zone->file, &zone->name);
    }
}

void ngx_http_stint_log_decision(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx,
                                 ngx_uint_t from) {
    for (ngx_uint_t i = from; i < ctx->n; i++) {
        const struct stint_verdict *verdict = &ctx->verdicts[i];
        ngx_http_stint_zone_t *zone = ctx->limits[i]->zone;

        if ((verdict->flags & STINT_FIRST_REFUSAL) != 0) {
            ngx_http_stint_log_first(r, ctx, i, verdict);
        }
        if ((verdict->flags & (STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0 &&
            ngx_http_stint_log_due(zone, NGX_HTTP_STINT_LOG_GONE)) {
            ngx_log_error(
                NGX_LOG_ERR, r->connection->log, 0,
                "stint policy \"%V\" of zone \"%V\" was %s while nginx runs: its requests "
                "are refused until nginx is reloaded (told once a minute)",
                &ctx->policies[i]->name, &zone->name,
                (verdict->flags & STINT_UNKNOWN_POLICY) != 0 ? "removed"
                                                             : "replaced by one of another kind");
        }
        if ((verdict->flags & STINT_UNTRACKED) != 0 && verdict->policy == UINT32_MAX) {
            ngx_http_stint_log_lost(r, zone);
        } else if ((verdict->flags & (STINT_UNTRACKED | STINT_REPLACED)) != 0 &&
                   ngx_http_stint_log_due(zone, NGX_HTTP_STINT_LOG_FULL)) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "stint zone \"%V\" is full: %s; it needs more keys", &zone->name,
                          (verdict->flags & STINT_REPLACED) != 0 ? "a key lost its count to another"
                          : verdict->allowed ? "a request was let through uncounted"
                                             : "a request was refused uncounted");
        }
    }
}

/* ---- The configuration ----------------------------------------------------------------------- */

/* What limit_req's parameters are here. */
static const struct {
    ngx_str_t begin;
    const char *here;
} ngx_http_stint_strangers[] = {
    {ngx_string("zone="), ": the name of the zone comes first, without \"zone=\""},
    {ngx_string("rate="), ": a rate is a \"stint_policy\", without \"rate=\", such as 10/s"},
    {ngx_string("nodelay"), ": without \"delay\" nothing waits"},
};

char *ngx_http_stint_wrong_parameter(ngx_conf_t *cf, const ngx_str_t *value) {
    const char *here = "";

    for (size_t i = 0; i < sizeof(ngx_http_stint_strangers) / sizeof(*ngx_http_stint_strangers);
         i++) {
        const ngx_str_t *begin = &ngx_http_stint_strangers[i].begin;

        if (value->len >= begin->len && ngx_memcmp(value->data, begin->data, begin->len) == 0) {
            here = ngx_http_stint_strangers[i].here;
        }
    }
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"%s", value, here);
    return NGX_CONF_ERROR;
}

/* ---- The library's reasons ------------------------------------------------------------------- */

/* Names of the library's interface, and what the configuration calls them. The first that fits is
 * taken, so longer ones come first. */
static const struct {
    const char *from, *to;
} ngx_http_stint_translations[] = {
    {"not begin as one", "not begin as one; if it was one, and was written over, remove it"},
    {"another process has", "nginx, or another process, has"}, /* it does not tell itself */
    {"policy.max_reserved", "reserve"},
    {"max_reserved", "reserve"},
    {"policy.near_limit", "near"},
    {"policy.limit", "the limit"},
    {"policy.window", "the window"},
    {"policy.calendar", "month or year"},
    {"policy.ban_after", "after"},
    {"policy.offset", "the offset of the start"},
    {"policy.", ""},
    {"options.max_", ""},
    {"options.", ""},
    {"STINT_START_PER_KEY", "start=per-key"},
    {"STINT_START_FIRST", "start=first"},
    {"tokens", "requests"},
    {"STINT_", ""}, /* and what follows, in small letters */
};

char *ngx_http_stint_words(const char *reason, char buffer[NGX_HTTP_STINT_REASON]) {
    const size_t n = sizeof(ngx_http_stint_translations) / sizeof(ngx_http_stint_translations[0]);
    u_char *at = (u_char *)buffer, *last = at + NGX_HTTP_STINT_REASON - 1;

    while (*reason != '\0' && at < last) {
        size_t i = 0, length;

        while (i < n && (length = ngx_strlen(ngx_http_stint_translations[i].from),
                         ngx_strncmp(reason, ngx_http_stint_translations[i].from, length) != 0)) {
            i++;
        }
        if (i == n) {
            *at++ = (u_char)*reason++;
            continue;
        }
        at = ngx_slprintf(at, last, "%s", ngx_http_stint_translations[i].to);
        reason += length;
        if (i == n - 1) {
            for (; at < last && ((*reason >= 'A' && *reason <= 'Z') || *reason == '_'); reason++) {
                *at++ = *reason == '_' ? '-' : ngx_tolower((u_char)*reason);
            }
        }
    }
    *at = '\0';
    return buffer;
}
