/* SPDX-License-Identifier: MIT
 * Request and stint_limit -> key, policy and cost; and when the response is known what it costs. */
#include "ngx_http_stint.h"

/* Reads a number. Returns NGX_OK; NGX_DECLINED if it is empty, NGX_ERROR if it is none. */
static ngx_int_t ngx_http_stint_read_number(const ngx_str_t *text, uint32_t *number) {
    uint64_t read = 0;

    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] < '0' || text->data[i] > '9') {
            return NGX_ERROR;
        }
        /* More than any policy holds is as much as any other: it never fits. */
        read = ngx_min(read * 10 + (uint64_t)(text->data[i] - '0'), UINT32_MAX);
    }
    if (text->len == 0) {
        return NGX_DECLINED;
    }
    *number = (uint32_t)read;
    return NGX_OK;
}

/* The number that a request has. Returns NGX_OK; NGX_ERROR if there is no memory. */
static ngx_int_t ngx_http_stint_get_number(ngx_http_request_t *r, ngx_http_stint_zone_t *zone,
                                           const ngx_http_stint_number_t *number,
                                           ngx_http_stint_log_kind_t kind, ngx_uint_t log_level,
                                           uint32_t *result) {
    ngx_str_t text;

    *result = number->otherwise;
    if (number->value == NULL) {
        return NGX_OK;
    }
    if (ngx_http_complex_value(r, number->value, &text) != NGX_OK) {
        return NGX_ERROR;
    }
    if (ngx_http_stint_read_number(&text, result) == NGX_ERROR) {
        ngx_http_stint_log_value(r, zone, kind, log_level, &text);
    }
    return NGX_OK;
}

/* The policy that a request's plan names, or else the default. */
static ngx_int_t ngx_http_stint_find_policy(ngx_http_request_t *r,
                                            const ngx_http_stint_limit_t *limit,
                                            ngx_uint_t log_level,
                                            ngx_http_stint_policy_t **policy) {
    ngx_http_stint_zone_t *zone = limit->zone;
    ngx_http_stint_policy_t **policies = zone->policies.elts;
    ngx_str_t name;

    *policy = limit->policy;
    if (limit->plan == NULL) {
        return NGX_OK;
    }
    if (ngx_http_complex_value(r, limit->plan, &name) != NGX_OK) {
        return NGX_ERROR;
    }
    if (name.len == 0) {
        return NGX_OK;
    }
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->name.len == name.len &&
            ngx_memcmp(policies[i]->name.data, name.data, name.len) == 0 &&
            ngx_http_stint_kind(policies[i]) == limit->kind) {
            *policy = policies[i];
            return NGX_OK;
        }
    }
    ngx_http_stint_log_value(r, zone, NGX_HTTP_STINT_LOG_POLICY, log_level, &name);
    return NGX_OK;
}

static ngx_int_t ngx_http_stint_make_key(ngx_http_request_t *r, ngx_http_stint_zone_t *zone,
                                         const ngx_http_stint_limit_t *limit, ngx_uint_t log_level,
                                         stint_key *key) {
    ngx_addr_t address = {.sockaddr = r->connection->sockaddr};
    ngx_str_t text;

    if (limit->key_kind == NGX_HTTP_STINT_KEY_CLIENT) {
        *key = stint_key_address(zone->limiter, r->connection->sockaddr, limit->prefix4,
                                 limit->prefix6);
        return NGX_OK;
    }
    if (ngx_http_complex_value(r, limit->key, &text) != NGX_OK) {
        return NGX_ERROR;
    }
    if (text.len == 0) {
        return NGX_DECLINED;
    }
    if (limit->key_kind != NGX_HTTP_STINT_KEY_ADDRESS) {
        *key = stint_key_of(zone->limiter, text.data, text.len);
        return NGX_OK;
    }
    if (ngx_parse_addr_port(r->pool, &address, text.data, text.len) != NGX_OK) {
        ngx_http_stint_log_value(r, zone, NGX_HTTP_STINT_LOG_ADDRESS, log_level, &text);
        address.sockaddr = r->connection->sockaddr;
    }
    *key = stint_key_address(zone->limiter, address.sockaddr, limit->prefix4, limit->prefix6);
    return NGX_OK;
}

/* How it is decided. */
static uint32_t ngx_http_stint_flags(const ngx_http_request_t *r,
                                     const ngx_http_stint_limit_t *limit,
                                     const ngx_http_stint_policy_t *policy) {
    if (ngx_http_stint_is_in_flight(policy)) { /* nobody waits for it, and nothing is charged */
        return 0;
    }
    if (limit->charge != NULL) {
        return limit->late ? STINT_PEEK | STINT_CHARGE : STINT_TENTATIVE;
    }
    /* A subrequest is not held, and nobody waits for a shadow. */
    return limit->max_delay != 0 && r == r->main && (policy->policy.flags & STINT_SHADOW) == 0
               ? STINT_RESERVE
               : 0;
}

ngx_int_t ngx_http_stint_make_request(ngx_http_request_t *r, const ngx_http_stint_limit_t *limit,
                                      ngx_uint_t log_level, ngx_http_stint_policy_t **policy,
                                      struct stint_request *request) {
    ngx_http_stint_zone_t *zone = limit->zone;
    ngx_int_t rc = ngx_http_stint_find_policy(r, limit, log_level, policy);

    if (rc == NGX_OK && *policy == NULL) {
        return NGX_DECLINED;
    }
    *request = (struct stint_request){.cost = 0};
    if (rc == NGX_OK) {
        rc = ngx_http_stint_make_key(r, zone, limit, log_level, &request->key);
    }
    if (rc == NGX_OK) {
        rc = ngx_http_stint_get_number(r, zone, &limit->cost, NGX_HTTP_STINT_LOG_COST, log_level,
                                       &request->cost);
    }
    if (rc == NGX_OK) {
        rc = ngx_http_stint_get_number(r, zone, &limit->limit, NGX_HTTP_STINT_LOG_LIMIT, log_level,
                                       &request->limit);
    }
    if (rc == NGX_OK && request->limit != 0 && (*policy)->policy.stripes > 1) {
        request->limit = 0;
        ngx_http_stint_log_value(r, zone, NGX_HTTP_STINT_LOG_STRIPES, log_level, &(*policy)->name);
    }
    if (rc == NGX_OK) {
        rc = ngx_http_stint_get_number(r, zone, &limit->burst, NGX_HTTP_STINT_LOG_BURST, log_level,
                                       &request->burst);
    }
    if (rc == NGX_OK && request->burst != 0 && (*policy)->policy.burst == 0) {
        request->burst = 0;
        ngx_http_stint_log_value(r, zone, NGX_HTTP_STINT_LOG_BUCKET, log_level, &(*policy)->name);
    }
    if (rc == NGX_OK) {
        request->policy = (*policy)->id;
        request->flags = ngx_http_stint_flags(r, limit, *policy);
    }
    return rc;
}

/* What the response costs by limit i. */
static uint32_t ngx_http_stint_value(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx,
                                     ngx_uint_t i) {
    ngx_http_stint_number_t charge = {ctx->limits[i]->charge, 0};
    uint32_t value;

    return ngx_http_stint_get_number(r, ctx->limits[i]->zone, &charge, NGX_HTTP_STINT_LOG_CHARGE,
                                     ctx->log_level, &value) == NGX_OK
               ? value
               : 0;
}

static void ngx_http_stint_charge(const ngx_http_stint_ctx_t *ctx, ngx_uint_t i, uint32_t cost) {
    struct stint_request request =
        STINT_REQUEST(ctx->requests[i].policy, ctx->requests[i].key, cost);

    request.flags = STINT_CHARGE;
    (void)stint_decide(ctx->limits[i]->zone->limiter, &request, STINT_NOW, NULL);
}

/* Tells what is used by limit i from now on. `last`: the response costs something, and nothing was
 * left beside what the request took. If nothing is left still, that is the key's first refusal:
 * those that were refused since had nothing to pay. It counts as one, too. */
static void ngx_http_stint_settled(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx, ngx_uint_t i,
                                   ngx_uint_t last) {
    struct stint_request look = STINT_REQUEST(ctx->requests[i].policy, ctx->requests[i].key, 1);
    struct stint_limiter *limiter = ctx->limits[i]->zone->limiter;
    struct stint_verdict *verdict = &ctx->verdicts[i], found;

    look.flags = STINT_PEEK;
    (void)stint_decide(limiter, &look, STINT_NOW, &found);
    if (((found.flags | verdict->flags) &
         (STINT_UNTRACKED | STINT_UNKNOWN_POLICY | STINT_BAD_REQUEST)) != 0) {
        return; /* these numbers are no key's, or no policy's */
    }
    verdict->used = found.used;
    verdict->remaining = found.remaining;
    verdict->reset_after = found.reset_after;
    if (last && (!found.allowed || (found.flags & STINT_SHADOWED) != 0)) {
        look.flags = STINT_PEEK | STINT_CHARGE;
        (void)stint_decide(limiter, &look, STINT_NOW, &found);
        if ((found.flags & STINT_FIRST_REFUSAL) != 0) {
            ngx_http_stint_log_first(r, ctx, i, &found);
        }
    }
}

void ngx_http_stint_settle(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx) {
    if (ctx->settled || ctx->held != NULL || ngx_http_stint_refused(ctx)) {
        return;
    }
    ctx->settled = 1;
    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        struct stint_verdict *verdict = &ctx->verdicts[i];
        /* Of a full zone nothing was taken, whatever was granted. */
        uint32_t taken = (verdict->flags & STINT_UNTRACKED) != 0 ? 0 : verdict->granted;
        uint32_t value;

        if ((ctx->requests[i].flags & STINT_TENTATIVE) == 0) {
            continue;
        }
        value = ngx_http_stint_value(r, ctx, i);
        if (value > taken) {
            ngx_http_stint_charge(ctx, i, value - taken);
        } else if (value < taken) {
            (void)stint_refund(ctx->limits[i]->zone->limiter, ctx->requests[i].key, verdict,
                               taken - value);
        }
        ngx_http_stint_settled(r, ctx, i,
                               value != 0 && verdict->allowed &&
                                   (verdict->flags & STINT_SHADOWED) == 0 &&
                                   (value > taken || verdict->remaining == 0));
    }
}

void ngx_http_stint_charge_late(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx) {
    for (ngx_uint_t i = 0; !ngx_http_stint_refused(ctx) && ctx->held == NULL && i < ctx->n; i++) {
        if ((ctx->requests[i].flags & STINT_CHARGE) != 0) {
            ngx_http_stint_charge(ctx, i, ngx_http_stint_value(r, ctx, i));
        }
    }
}
