/* SPDX-License-Identifier: MIT
 * Decision -> variables and response fields. */
#include "ngx_http_stint.h"

#define SECOND     UINT64_C(1000000000) /* ns */
#define TOKEN_TIME UINT64_C(100)        /* ns that a token takes at least, whatever the limit */
static ngx_http_output_header_filter_pt ngx_http_next_header_filter;

static ngx_str_t ngx_http_stint_outcomes[] = {
    [NGX_HTTP_STINT_PASSED] = ngx_string("PASSED"),
    [NGX_HTTP_STINT_DELAYED] = ngx_string("DELAYED"),
    [NGX_HTTP_STINT_DELAYED_DRY_RUN] = ngx_string("DELAYED_DRY_RUN"),
    [NGX_HTTP_STINT_REJECTED] = ngx_string("REJECTED"),
    [NGX_HTTP_STINT_REJECTED_DRY_RUN] = ngx_string("REJECTED_DRY_RUN"),
    [NGX_HTTP_STINT_REJECTED_SHADOW] = ngx_string("REJECTED_SHADOW"),
    [NGX_HTTP_STINT_BANNED] = ngx_string("BANNED"),
    [NGX_HTTP_STINT_BANNED_DRY_RUN] = ngx_string("BANNED_DRY_RUN"),
    [NGX_HTTP_STINT_UNTRACKED] = ngx_string("UNTRACKED"),
};

/* ---- Variables ------------------------------------------------------------------------------- */

enum {
    VARIABLE_STATUS,
    VARIABLE_ZONE,
    VARIABLE_POLICY,
    VARIABLE_LIMIT,
    VARIABLE_USED,
    VARIABLE_REMAINING,
    VARIABLE_RESET,
    VARIABLE_RETRY_AFTER,
};

static uint64_t ngx_http_stint_seconds_up(uint64_t ns) {
    return ns / SECOND + (ns % SECOND != 0);
}

/* ns until a refused request would fit: the longest time of those limits that refused it. 0: it was
 * not refused, or nobody knows when others end. */
static uint64_t ngx_http_stint_retry_after(const ngx_http_stint_ctx_t *ctx) {
    uint64_t longest = 0;

    for (ngx_uint_t i = 0; ngx_http_stint_refused(ctx) && i < ctx->n; i++) {
        uint64_t wait = ctx->verdicts[i].retry_after;

        if (!ctx->verdicts[i].allowed &&
            (wait == STINT_NEVER || !ngx_http_stint_is_in_flight(ctx->policies[i]))) {
            longest = ngx_max(longest, wait);
        }
    }
    return longest;
}

/* ns until a token comes back to a bucket, by a limit. */
static uint64_t ngx_http_stint_token_time(const struct stint_policy *policy, uint32_t limit) {
    return ngx_max((policy->window + limit - 1) / limit, TOKEN_TIME);
}

/* The most that a key can have. While it is banned that is what it had before and will have again,
 * and not the 0 of the ban. */
static uint32_t ngx_http_stint_limit_of(const ngx_http_stint_ctx_t *ctx, ngx_uint_t i) {
    struct stint_policy policy = STINT_POLICY_INIT;
    const struct stint_request *request = &ctx->requests[i];
    uint64_t most, time;

    if ((ctx->verdicts[i].flags & STINT_BANNED) == 0 || ctx->verdicts[i].capacity != 0) {
        return ctx->verdicts[i].capacity;
    }
    if (stint_policy_get(ctx->limits[i]->zone->limiter, ctx->requests[i].policy, &policy) != 0) {
        policy = ctx->policies[i]->policy; /* it was removed since */
    }
    most = ngx_http_stint_most(&policy);
    if (request->limit != 0 && policy.burst == 0) {
        most = request->limit;
    } else if (request->limit != 0) { /* a bucket lasts as long as before */
        time = most * ngx_http_stint_token_time(&policy, policy.limit);
        most = ngx_max(time / ngx_http_stint_token_time(&policy, request->limit), 1);
    }
    most = request->burst != 0 ? ngx_min(most, request->burst) : most;
    return (uint32_t)ngx_min(most, STINT_LIMIT_MAX);
}

static ngx_int_t ngx_http_stint_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                                         uintptr_t which) {
    ngx_http_stint_ctx_t *ctx = ngx_http_stint_get_ctx(ngx_http_stint_decided(r));
    const struct stint_verdict *verdict;
    ngx_uint_t told;
    uint64_t number = 0;
    ngx_str_t text;

    v->not_found = 1;
    if (ctx == NULL || ctx->n == 0) {
        return NGX_OK;
    }
    told = ctx->told != NGX_HTTP_STINT_TIGHTEST ? ctx->told : stint_tightest(ctx->verdicts, ctx->n);
    verdict = &ctx->verdicts[told];
    if (((verdict->flags & STINT_UNTRACKED) != 0 && which >= VARIABLE_USED) ||
        (verdict->policy == UINT32_MAX && which >= VARIABLE_LIMIT)) {
        return NGX_OK; /* these numbers are no key's, or no policy's */
    }
    ngx_str_null(&text);
    switch (which) {
    case VARIABLE_STATUS:
        text = ngx_http_stint_outcomes[ctx->status];
        break;
    case VARIABLE_ZONE:
        text = ctx->limits[told]->zone->name;
        break;
    case VARIABLE_POLICY:
        text = ctx->policies[told]->name;
        break;
    case VARIABLE_LIMIT:
        number = ngx_http_stint_limit_of(ctx, told);
        break;
    case VARIABLE_USED:
        number = verdict->used;
        break;
    case VARIABLE_REMAINING:
        number = verdict->remaining;
        break;
    case VARIABLE_RESET:
        if (ngx_http_stint_is_in_flight(ctx->policies[told])) {
            return NGX_OK; /* its window is a lease */
        }
        number = ngx_http_stint_seconds_up(verdict->reset_after);
        break;
    case VARIABLE_RETRY_AFTER:
        number = ngx_http_stint_retry_after(ctx);
        if (number == 0 || number == STINT_NEVER) {
            return NGX_OK;
        }
        number = ngx_http_stint_seconds_up(number);
        break;
    }
    if (text.data == NULL) {
        text.data = ngx_pnalloc(r->pool, NGX_INT64_LEN);
        if (text.data == NULL) {
            return NGX_ERROR;
        }
        text.len = (size_t)(ngx_sprintf(text.data, "%uL", number) - text.data);
    }
    v->not_found = 0;
    v->valid = 1;
    v->no_cacheable = 0;
    v->data = text.data;
    v->len = (unsigned)text.len;
    return NGX_OK;
}

static ngx_http_variable_t ngx_http_stint_variables[] = {
    {ngx_string("stint_status"), NULL, ngx_http_stint_variable, VARIABLE_STATUS,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    {ngx_string("stint_zone"), NULL, ngx_http_stint_variable, VARIABLE_ZONE,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    {ngx_string("stint_policy"), NULL, ngx_http_stint_variable, VARIABLE_POLICY,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    {ngx_string("stint_limit"), NULL, ngx_http_stint_variable, VARIABLE_LIMIT,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    {ngx_string("stint_used"), NULL, ngx_http_stint_variable, VARIABLE_USED,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    {ngx_string("stint_remaining"), NULL, ngx_http_stint_variable, VARIABLE_REMAINING,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    {ngx_string("stint_reset"), NULL, ngx_http_stint_variable, VARIABLE_RESET,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    {ngx_string("stint_retry_after"), NULL, ngx_http_stint_variable, VARIABLE_RETRY_AFTER,
     NGX_HTTP_VAR_NOCACHEABLE, 0},
    ngx_http_null_variable,
};

ngx_int_t ngx_http_stint_add_variables(ngx_conf_t *cf) {
    ngx_http_variable_t *var, *v;

    for (v = ngx_http_stint_variables; v->name.len != 0; v++) {
        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }
        var->get_handler = v->get_handler;
        var->data = v->data;
    }
    return NGX_OK;
}

/* ---- Response fields ------------------------------------------------------------------------- */

static ngx_uint_t ngx_http_stint_is_retry_after(const ngx_str_t *key) {
    static const ngx_str_t retry_after = ngx_string("Retry-After");

    return key->len == retry_after.len &&
           ngx_strncasecmp(key->data, retry_after.data, key->len) == 0;
}

/* Whether the response has a Retry-After already: by add_header, or an upstream's. */
static ngx_uint_t ngx_http_stint_has_retry_after(const ngx_http_request_t *r) {
    for (const ngx_list_part_t *part = &r->headers_out.headers.part; part != NULL;
         part = part->next) {
        const ngx_table_elt_t *fields = part->elts;

        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (fields[i].hash != 0 && ngx_http_stint_is_retry_after(&fields[i].key)) {
                return 1;
            }
        }
    }
    return 0;
}

/* Fields that stand in the response, of zones before this one. */
typedef struct {
    ngx_http_request_t *request;
    ngx_table_elt_t *of[6];
    ngx_uint_t n;
    ngx_uint_t retry_after; /* unsigned retry_after:1; Retry-After is told */
} ngx_http_stint_fields_t;

/* Adds a value to a field that another zone has: a list goes on, and the longest wait is told. */
static ngx_int_t ngx_http_stint_join_field(ngx_http_request_t *r, ngx_table_elt_t *field,
                                           const ngx_str_t *value) {
    u_char *text;

    if (ngx_http_stint_is_retry_after(&field->key)) {
        if (ngx_atoi(value->data, value->len) > ngx_atoi(field->value.data, field->value.len)) {
            field->value = *value;
        }
        return NGX_OK;
    }
    text = ngx_pnalloc(r->pool, field->value.len + value->len + 2);
    if (text == NULL) {
        return NGX_ERROR;
    }
    field->value.len = (size_t)(ngx_sprintf(text, "%V, %V", &field->value, value) - text);
    field->value.data = text;
    return NGX_OK;
}

static ngx_int_t ngx_http_stint_push_field(ngx_http_stint_fields_t *fields, const ngx_str_t *key,
                                           const ngx_str_t *value) {
    ngx_table_elt_t *field;

    for (ngx_uint_t i = 0; i < fields->n; i++) {
        if (fields->of[i]->key.len == key->len &&
            ngx_memcmp(fields->of[i]->key.data, key->data, key->len) == 0) {
            return ngx_http_stint_join_field(fields->request, fields->of[i], value);
        }
    }
    if (ngx_http_stint_is_retry_after(key) && !fields->retry_after) {
        return NGX_OK;
    }
    field = ngx_list_push(&fields->request->headers_out.headers);
    if (field == NULL) {
        return NGX_ERROR;
    }
    ngx_memzero(field, sizeof(*field));
    field->hash = 1;
    field->key = *key;
    field->value = *value;
    fields->of[fields->n++] = field;
    return NGX_OK;
}

/* Adds the fields of [text, end), each a line that ends in CR LF, to the response. */
static ngx_int_t ngx_http_stint_push_fields(ngx_http_stint_fields_t *fields, u_char *text,
                                            const u_char *end) {
    while (text < end) {
        u_char *colon = ngx_strlchr(text, (u_char *)end, ':');
        u_char *line_end = ngx_strlchr(text, (u_char *)end, CR);
        ngx_str_t key = {(size_t)(colon - text), text};
        ngx_str_t value = {(size_t)(line_end - colon) - 2, colon + 2};

        text = line_end + 2;
        if (ngx_http_stint_push_field(fields, &key, &value) != NGX_OK) {
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

/* Adds the fields of the limits [i, end), which are of one zone. */
static ngx_int_t ngx_http_stint_add_zone_fields(ngx_http_stint_fields_t *fields,
                                                const ngx_http_stint_ctx_t *ctx, ngx_uint_t i,
                                                ngx_uint_t end, uint32_t style) {
    const struct stint_limiter *limiter = ctx->limits[i]->zone->limiter;
    struct stint_verdict verdicts[STINT_ALL_MAX];
    u_char *text;
    size_t n = 0;
    int length;

    for (; i < end; i++) {
        /* A shadow is tried out unseen. */
        if ((ctx->policies[i]->policy.flags & STINT_SHADOW) == 0) {
            verdicts[n++] = ctx->verdicts[i];
        }
    }
    text = ngx_pnalloc(fields->request->pool, STINT_HEADERS_SIZE(n));
    if (text == NULL) {
        return NGX_ERROR;
    }
    length = stint_headers(limiter, style, verdicts, n, (char *)text, STINT_HEADERS_SIZE(n));
    return length < 0 ? NGX_OK /* the zone's file was cut off */
                      : ngx_http_stint_push_fields(fields, text, text + length);
}

/* Of the limits that the client is told of, the one that says most; ctx->n: there is none. */
static ngx_uint_t ngx_http_stint_tightest_told(const ngx_http_stint_ctx_t *ctx) {
    struct stint_verdict verdicts[STINT_ALL_MAX];
    ngx_uint_t told[STINT_ALL_MAX];
    size_t n = 0;

    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        if ((ctx->policies[i]->policy.flags & STINT_SHADOW) == 0 &&
            (ctx->verdicts[i].flags & STINT_UNTRACKED) == 0) {
            told[n] = i;
            verdicts[n++] = ctx->verdicts[i];
        }
    }
    return n == 0 ? ctx->n : told[stint_tightest(verdicts, n)];
}

/* There is one Retry-After, and the configuration's own stands. The older fields are of one limit.
 */
static ngx_int_t ngx_http_stint_add_fields(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx) {
    ngx_http_stint_fields_t fields = {.request = r};
    ngx_uint_t tightest = ngx_http_stint_tightest_told(ctx);

    fields.retry_after =
        !ngx_http_stint_has_retry_after(r) && ngx_http_stint_retry_after(ctx) != STINT_NEVER;
    for (ngx_uint_t i = 0, end; i < ctx->n; i = end) {
        uint32_t style = (uint32_t)ctx->headers;

        end = ngx_http_stint_zone_end(ctx, i);
        if (tightest < i || tightest >= end) { /* another zone has it */
            style &= ~(uint32_t)STINT_HEADERS_LEGACY;
        }
        if (ngx_http_stint_add_zone_fields(&fields, ctx, i, end, style) != NGX_OK) {
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

/* All responses come this way: those of upstreams and error pages, too. */
static ngx_int_t ngx_http_stint_header_filter(ngx_http_request_t *r) {
    ngx_http_stint_ctx_t *ctx = r == ngx_http_stint_decided(r) ? ngx_http_stint_get_ctx(r) : NULL;

    /* Before the client sees a byte. */
    if (ctx != NULL) {
        ngx_http_stint_settle(r, ctx);
    }
    if (ctx != NULL && r == r->main && ctx->headers != NGX_HTTP_STINT_HEADERS_OFF &&
        ngx_http_stint_add_fields(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }
    return ngx_http_next_header_filter(r);
}

void ngx_http_stint_add_header_filter(void) {
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_stint_header_filter;
}
