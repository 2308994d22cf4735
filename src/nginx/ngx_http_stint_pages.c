/* SPDX-License-Identifier: MIT
 * Table -> metrics and status page. Both look at all of the table. */
#include "ngx_http_stint.h"

#define PAGE_TEXT   16384 /* bytes; metrics of some policies. More are formatted twice */
#define PAGE_SLACK  1024  /* bytes that the numbers may grow between two calls */
#define ZONE_TEXT   2048  /* bytes; more than a zone is in JSON but for its names and policies */
#define POLICY_TEXT 1280  /* bytes; more than a policy is in JSON, its name twice and escaped */
#define TOP         20    /* keys that were refused most often */
#define TOP_TEXT    1024  /* bytes; more than one of them is in JSON */

/* Answers with a text. */
static ngx_int_t ngx_http_stint_send(ngx_http_request_t *r, ngx_buf_t *b, const char *type) {
    ngx_chain_t out = {b, NULL};
    ngx_int_t rc;

    b->last_buf = r == r->main;
    b->last_in_chain = 1;
    r->headers_out.content_type.data = (u_char *)type;
    r->headers_out.content_type.len = ngx_strlen(type);
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = b->last - b->pos;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }
    return ngx_http_output_filter(r, &out);
}

/* Whether a request is one for a page. Returns NGX_OK, or what to answer. */
static ngx_int_t ngx_http_stint_begin_page(ngx_http_request_t *r) {
    if (r->method != NGX_HTTP_GET && r->method != NGX_HTTP_HEAD) {
        return NGX_HTTP_NOT_ALLOWED;
    }
    return ngx_http_discard_request_body(r);
}

/* Logs why a page cannot tell what it should. */
static void ngx_http_stint_log_page(ngx_http_request_t *r, const char *page,
                                    const ngx_http_stint_zone_t *zone) {
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "stint %s of zone \"%V\": %s", page,
                  &zone->name, stint_reason());
}

/* ---- Metrics --------------------------------------------------------------------------------- */

ngx_int_t ngx_http_stint_metrics_handler(ngx_http_request_t *r) {
    ngx_http_stint_loc_conf_t *slcf = ngx_http_get_module_loc_conf(r, ngx_http_stint_module);
    const char *labels[] = {"zone", (char *)slcf->page->name.data, NULL};
    struct stint_metrics_options options = STINT_METRICS_OPTIONS_INIT;
    ngx_int_t rc = ngx_http_stint_begin_page(r);
    size_t size = PAGE_TEXT;
    ngx_buf_t *b;
    int length;

    if (rc != NGX_OK) {
        return rc;
    }
    options.labels = labels;
    for (;;) {
        b = ngx_create_temp_buf(r->pool, size);
        if (b == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        length = stint_metrics(slcf->page->limiter, &options, (char *)b->pos, size);
        if (length < 0) {
            ngx_http_stint_log_page(r, "metrics", slcf->page);
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        if ((size_t)length < size) {
            break;
        }
        size = (size_t)length + PAGE_SLACK;
    }
    b->last = b->pos + length;
    return ngx_http_stint_send(r, b, "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

/* ---- Status ---------------------------------------------------------------------------------- */

/* Writes a JSON string. Bytes that are no printable ASCII are told by their number, as nobody knows
 * what they mean. Returns its end. */
static u_char *ngx_http_stint_json(u_char *at, const u_char *text, size_t length) {
    *at++ = '"';
    for (size_t i = 0; i < length; i++) {
        if (text[i] < 0x20 || text[i] > 0x7e) {
            at = ngx_sprintf(at, "\\u%04xd", text[i]);
            continue;
        }
        if (text[i] == '"' || text[i] == '\\') {
            *at++ = '\\';
        }
        *at++ = text[i];
    }
    *at++ = '"';
    return at;
}

static u_char *ngx_http_stint_json_zone(u_char *at, const ngx_http_stint_zone_t *zone,
                                        const struct stint_stats *stats) {
    static const char *const full[] = {"admit", "refuse", "replace"};

    at = ngx_http_stint_json(ngx_sprintf(at, "{\"zone\":"), zone->name.data, zone->name.len);
    at = ngx_sprintf(at, ",\"version\":\"%s\",\"entries\":%uL,\"full\":\"%s\"", stint_version(),
                     stats->max_entries, full[zone->options.on_full]);
    at = ngx_sprintf(at, ",\"memory\":%uL,\"slots\":%uL,\"used\":%uL,\"live\":%uL", stats->memory,
                     stats->slots, stats->used, stats->live);
    at = ngx_sprintf(at, ",\"untracked\":%uL,\"replaced\":%uL,\"clock_steps\":%uL",
                     stats->untracked, stats->replaced, stats->clock_steps);
    at = ngx_sprintf(at, ",\"overrides\":%uL,\"barred\":%uL,\"banned\":%uL", stats->overrides,
                     stats->barred, stats->banned);
    at = ngx_sprintf(at, ",\"policy_ids\":%uD,\"max_policies\":%uD,\"removed\":%uD,\"lost\":%uD",
                     stats->policy_ids, stats->max_policies, stats->removed, stats->lost);
    return ngx_sprintf(at, ",\"held\":%ui,\"max_held\":%ui", ngx_http_stint_held(zone),
                       zone->max_held);
}

static u_char *ngx_http_stint_json_policy(u_char *at, const ngx_http_stint_zone_t *zone,
                                          const ngx_http_stint_policy_t *policy) {
    struct stint_policy_stats stats = STINT_POLICY_STATS_INIT;
    struct stint_policy now = STINT_POLICY_INIT;
    char text[POLICY_TEXT];

    at = ngx_http_stint_json(ngx_sprintf(at, "{\"name\":"), policy->name.data, policy->name.len);
    if (stint_policy_stats_get(zone->limiter, policy->id, &stats) != 0 ||
        stint_policy_get(zone->limiter, policy->id, &now) != 0 ||
        (now.name[0] = '\0', stint_policy_format(&now, text, sizeof(text))) < 0) {
        return ngx_sprintf(at, ",\"policy\":null}"); /* it was removed */
    }
    at = ngx_http_stint_json(ngx_sprintf(at, ",\"policy\":"), (u_char *)text, ngx_strlen(text));
    at = ngx_sprintf(at, ",\"allowed\":%uL,\"refused\":%uL,\"shadowed\":%uL", stats.allowed,
                     stats.refused, stats.shadowed);
    return ngx_sprintf(at,
                       ",\"first_refusals\":%uL,\"untracked\":%uL,\"charged\":%uL,"
                       "\"refunded\":%uL,\"bans\":%uL,\"strikes_lost\":%uL,"
                       "\"refunds_lost\":%uL,\"mistaken_nows\":%uL}",
                       stats.first_refusals, stats.untracked, stats.charged, stats.refunded,
                       stats.bans, stats.strikes_lost, stats.refunds_lost, stats.mistaken_nows);
}

/* The keys that were refused most often, the first of them first. A name counts windows in which
 * its key was refused, by whichever policy. Which one it was, the slots tell: as long as the window
 * or the ban lasts. */
typedef struct {
    ngx_http_stint_zone_t *zone;
    ngx_uint_t n;
    struct {
        struct stint_entry entry;
        char label[STINT_LABEL_SIZE];
    } of[TOP];
} ngx_http_stint_top_t;

/* Whether a key stands before another: of equals the one that was refused last. */
static ngx_uint_t ngx_http_stint_top_before(const struct stint_entry *one,
                                            const struct stint_entry *other) {
    return one->refused_windows != other->refused_windows
               ? one->refused_windows > other->refused_windows
           : one->since != other->since ? one->since > other->since
                                        : one->used > other->used;
}

/* Puts one key more among them, if it belongs there. Each is there once, by the policy that refused
 * it last. */
static bool ngx_http_stint_top_add(void *context, const struct stint_entry *entry) {
    ngx_http_stint_top_t *top = context;
    ngx_uint_t place = 0, old = 0;

    if (entry->label == NULL) {
        return true;
    }
    while (old < top->n && !stint_key_equal(top->of[old].entry.key, entry->key)) {
        old++;
    }
    if (old < top->n && entry->since <= top->of[old].entry.since) {
        return true;
    }
    while (place < top->n && !ngx_http_stint_top_before(entry, &top->of[place].entry)) {
        place++;
    }
    if (place > old || place == TOP) {
        return true;
    }
    if (old == top->n) { /* the last makes room */
        top->n = ngx_min(top->n + 1, TOP);
        old = top->n - 1;
    }
    ngx_memmove(&top->of[place + 1], &top->of[place], (old - place) * sizeof(top->of[0]));
    top->of[place].entry = *entry;
    ngx_memcpy(top->of[place].label, entry->label, entry->label_length);
    return true;
}

static u_char *ngx_http_stint_json_top(u_char *at, const ngx_http_stint_top_t *top) {
    for (ngx_uint_t i = 0; i < top->n; i++) {
        const struct stint_entry *entry = &top->of[i].entry;
        struct stint_request look = {
            .key = entry->key, .policy = entry->policy, .flags = STINT_PEEK};
        struct stint_policy policy = STINT_POLICY_INIT;
        struct stint_verdict verdict;

        at = ngx_sprintf(at, "%s{\"key\":", i == 0 ? "" : ",");
        at = ngx_http_stint_json(at, (u_char *)top->of[i].label, entry->label_length);
        at = ngx_sprintf(at, ",\"policy\":");
        if (entry->since != 0 && /* it was refused, or is banned */
            stint_policy_get(top->zone->limiter, entry->policy, &policy) == 0) {
            /* A ban's entry is no count. */
            (void)stint_decide(top->zone->limiter, &look, STINT_NOW, &verdict);
            at = ngx_http_stint_json(at, (u_char *)policy.name, ngx_strlen(policy.name));
            at = ngx_sprintf(at, ",\"used\":%uD", verdict.used);
        } else { /* it was refused before, and nobody knows by which */
            at = ngx_sprintf(at, "null,\"used\":null");
        }
        at = ngx_sprintf(at, ",\"refused_windows\":%uD}", entry->refused_windows);
    }
    return at;
}

ngx_int_t ngx_http_stint_status_handler(ngx_http_request_t *r) {
    ngx_http_stint_loc_conf_t *slcf = ngx_http_get_module_loc_conf(r, ngx_http_stint_module);
    ngx_http_stint_zone_t *zone = slcf->page;
    ngx_http_stint_policy_t **policies = zone->policies.elts;
    struct stint_stats stats = STINT_STATS_INIT;
    ngx_http_stint_top_t top = {.zone = zone};
    ngx_int_t rc = ngx_http_stint_begin_page(r);
    const char *comma = "";
    ngx_buf_t *b;

    if (rc != NGX_OK) {
        return rc;
    }
    b = ngx_create_temp_buf(r->pool, ZONE_TEXT + 2 * zone->name.len + TOP * TOP_TEXT +
                                         zone->policies.nelts * POLICY_TEXT);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (stint_stats_get(zone->limiter, &stats) != 0) {
        ngx_http_stint_log_page(r, "status", zone);
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    b->last = ngx_http_stint_json_zone(b->last, zone, &stats);
    b->last = ngx_sprintf(b->last, ",\"policies\":[");
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->same == NULL) {
            b->last = ngx_sprintf(b->last, "%s", comma);
            b->last = ngx_http_stint_json_policy(b->last, zone, policies[i]);
            comma = ",";
        }
    }
    if (zone->options.labels != 0 && stint_each(zone->limiter, ngx_http_stint_top_add, &top) != 0) {
        ngx_http_stint_log_page(r, "status", zone);
    }
    b->last = ngx_sprintf(b->last, "],\"top\":[");
    b->last = ngx_http_stint_json_top(b->last, &top);
    b->last = ngx_sprintf(b->last, "]}\n");
    return ngx_http_stint_send(r, b, "application/json");
}
