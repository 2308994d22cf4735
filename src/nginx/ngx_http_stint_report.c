/* SPDX-License-Identifier: MIT
 * Decision -> variables and response fields; table -> metrics. */
#include "ngx_http_stint.h"

#define SECOND        UINT64_C(1000000000) /* ns */
#define FIELDS_TEXT   1024  /* bytes; fields of a few limits. More are formatted twice */
#define METRICS_TEXT  16384 /* likewise, of some policies */
#define METRICS_SLACK 1024  /* bytes that the numbers may grow between two calls */

static ngx_http_output_header_filter_pt ngx_http_next_header_filter;

static ngx_str_t ngx_http_stint_outcomes[] = {
    ngx_string("PASSED"),
    ngx_string("REJECTED"),
    ngx_string("REJECTED_DRY_RUN"),
    ngx_string("REJECTED_SHADOW"),
};

/* ---- Variables ------------------------------------------------------------------------------- */

enum {
    VARIABLE_STATUS,
    VARIABLE_POLICY,
    VARIABLE_LIMIT,
    VARIABLE_USED,
    VARIABLE_REMAINING,
    VARIABLE_RESET,
    VARIABLE_RETRY_AFTER,
};

/* Which of two verdicts says more: one that refused, then the one with fewer tokens left, then the
 * one whose window ends later. */
static bool ngx_http_stint_tighter(const struct stint_verdict *one,
                                   const struct stint_verdict *other) {
    bool refused = !one->allowed || (one->flags & STINT_SHADOWED) != 0;
    bool other_refused = !other->allowed || (other->flags & STINT_SHADOWED) != 0;

    if (refused != other_refused) {
        return refused;
    }
    if (one->remaining != other->remaining) {
        return one->remaining < other->remaining;
    }
    return one->reset_after > other->reset_after;
}

static ngx_uint_t ngx_http_stint_tightest(const ngx_http_stint_ctx_t *ctx) {
    ngx_uint_t tightest = 0;

    for (ngx_uint_t i = 1; i < ctx->n; i++) {
        if (ngx_http_stint_tighter(&ctx->verdicts[i], &ctx->verdicts[tightest])) {
            tightest = i;
        }
    }
    return tightest;
}

static uint64_t ngx_http_stint_seconds_up(uint64_t ns) {
    return ns / SECOND + (ns % SECOND != 0);
}

static ngx_int_t ngx_http_stint_variable(ngx_http_request_t *r, ngx_http_variable_value_t *v,
                                         uintptr_t which) {
    ngx_http_stint_ctx_t *ctx = ngx_http_stint_get_ctx(r->main);
    const struct stint_verdict *verdict;
    ngx_uint_t tightest;
    uint64_t number = 0;
    ngx_str_t text;

    v->not_found = 1;
    if (ctx == NULL) {
        return NGX_OK;
    }
    tightest = ngx_http_stint_tightest(ctx);
    verdict = &ctx->verdicts[tightest];
    ngx_str_null(&text);
    switch (which) {
    case VARIABLE_STATUS:
        text = ngx_http_stint_outcomes[ctx->status];
        break;
    case VARIABLE_POLICY:
        text = ctx->policies[tightest]->name;
        break;
    case VARIABLE_LIMIT:
        number = verdict->capacity;
        break;
    case VARIABLE_USED:
        number = verdict->used;
        break;
    case VARIABLE_REMAINING:
        number = verdict->remaining;
        break;
    case VARIABLE_RESET:
        number = ngx_http_stint_seconds_up(verdict->reset_after);
        break;
    case VARIABLE_RETRY_AFTER:
        if (verdict->retry_after == 0 || verdict->retry_after == STINT_NEVER) {
            return NGX_OK;
        }
        number = ngx_http_stint_seconds_up(verdict->retry_after);
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

/* Adds the fields of [text, end), each a line that ends in CR LF, to the response. */
static ngx_int_t ngx_http_stint_push_fields(ngx_http_request_t *r, u_char *text,
                                            const u_char *end) {
    while (text < end) {
        u_char *colon = ngx_strlchr(text, (u_char *)end, ':');
        u_char *line_end = ngx_strlchr(text, (u_char *)end, CR);
        ngx_str_t key = {(size_t)(colon - text), text};
        ngx_str_t value = {(size_t)(line_end - colon) - 2, colon + 2};
        ngx_table_elt_t *field;

        text = line_end + 2;
        field = ngx_list_push(&r->headers_out.headers);
        if (field == NULL) {
            return NGX_ERROR;
        }
        ngx_memzero(field, sizeof(*field));
        field->hash = 1;
        field->key = key;
        field->value = value;
    }
    return NGX_OK;
}

static ngx_int_t ngx_http_stint_add_fields(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx) {
    const struct stint_limiter *limiter = ctx->zone->limiter;
    uint32_t style = (uint32_t)ctx->headers;
    uint32_t policies[STINT_ALL_MAX];
    struct stint_verdict verdicts[STINT_ALL_MAX];
    char buffer[FIELDS_TEXT];
    size_t n = 0, length;
    u_char *text;

    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        /* A shadow is tried out unseen. */
        if ((ctx->policies[i]->policy.flags & STINT_SHADOW) == 0) {
            policies[n] = ctx->policies[i]->id;
            verdicts[n++] = ctx->verdicts[i];
        }
    }
    /* Its arguments are right. */
    length = (size_t)stint_headers(limiter, style, policies, verdicts, n, buffer, sizeof(buffer));
    text = ngx_pnalloc(r->pool, length + 1);
    if (text == NULL) {
        return NGX_ERROR;
    }
    if (length < sizeof(buffer)) {
        ngx_memcpy(text, buffer, length);
    } else {
        (void)stint_headers(limiter, style, policies, verdicts, n, (char *)text, length + 1);
    }
    return ngx_http_stint_push_fields(r, text, text + length);
}

/* All responses come this way: those of upstreams and error pages, too. */
static ngx_int_t ngx_http_stint_header_filter(ngx_http_request_t *r) {
    const ngx_http_stint_ctx_t *ctx = r == r->main ? ngx_http_stint_get_ctx(r) : NULL;

    if (ctx != NULL && ctx->headers != NGX_HTTP_STINT_HEADERS_OFF &&
        ngx_http_stint_add_fields(r, ctx) != NGX_OK) {
        return NGX_ERROR;
    }
    return ngx_http_next_header_filter(r);
}

void ngx_http_stint_add_header_filter(void) {
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_stint_header_filter;
}

/* ---- Metrics --------------------------------------------------------------------------------- */

ngx_int_t ngx_http_stint_metrics_handler(ngx_http_request_t *r) {
    ngx_http_stint_loc_conf_t *slcf = ngx_http_get_module_loc_conf(r, ngx_http_stint_module);
    struct stint_limiter *limiter = slcf->metrics->limiter;
    size_t size = METRICS_TEXT, length;
    ngx_chain_t out;
    ngx_buf_t *b;
    ngx_int_t rc;

    if (r->method != NGX_HTTP_GET && r->method != NGX_HTTP_HEAD) {
        return NGX_HTTP_NOT_ALLOWED;
    }
    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    b = ngx_create_temp_buf(r->pool, size);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    while ((length = (size_t)stint_metrics(limiter, NULL, (char *)b->pos, size)) >= size) {
        size = length + METRICS_SLACK;
        b = ngx_create_temp_buf(r->pool, size);
        if (b == NULL) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }
    b->last = b->pos + length;
    b->last_buf = r == r->main;
    b->last_in_chain = 1;
    out.buf = b;
    out.next = NULL;

    ngx_str_set(&r->headers_out.content_type,
                "application/openmetrics-text; version=1.0.0; charset=utf-8");
    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.content_type_lowcase = NULL;
    r->headers_out.status = NGX_HTTP_OK;
    r->headers_out.content_length_n = (off_t)length;
    rc = ngx_http_send_header(r);
    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }
    return ngx_http_output_filter(r, &out);
}
