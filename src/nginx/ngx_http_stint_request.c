/* SPDX-License-Identifier: MIT
 * Request and stint_limit -> key, policy and cost; and at the end of the request what to charge. */
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
static ngx_int_t ngx_http_stint_find_policy(ngx_http_request_t *r, ngx_http_stint_zone_t *zone,
                                            const ngx_http_stint_limit_t *limit,
                                            ngx_uint_t log_level,
                                            ngx_http_stint_policy_t **policy) {
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
            ngx_memcmp(policies[i]->name.data, name.data, name.len) == 0) {
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
    static struct sockaddr nowhere; /* of no family */
    ngx_addr_t address;
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
    address.sockaddr = &nowhere;
    if (ngx_parse_addr(r->pool, &address, text.data, text.len) != NGX_OK) {
        ngx_http_stint_log_value(r, zone, NGX_HTTP_STINT_LOG_ADDRESS, log_level, &text);
        address.sockaddr = &nowhere;
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
        return STINT_PEEK | STINT_CHARGE;
    }
    /* A subrequest is not held, and nobody waits for a shadow. */
    return limit->max_delay != 0 && r == r->main && (policy->policy.flags & STINT_SHADOW) == 0
               ? STINT_RESERVE
               : 0;
}

ngx_int_t ngx_http_stint_make_request(ngx_http_request_t *r, ngx_http_stint_zone_t *zone,
                                      const ngx_http_stint_limit_t *limit, ngx_uint_t log_level,
                                      ngx_http_stint_policy_t **policy,
                                      struct stint_request *request) {
    ngx_int_t rc = ngx_http_stint_find_policy(r, zone, limit, log_level, policy);

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
    if (rc == NGX_OK) {
        request->policy = (*policy)->id;
        request->flags = ngx_http_stint_flags(r, limit, *policy);
    }
    return rc;
}

void ngx_http_stint_charge(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx) {
    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        ngx_http_stint_number_t charge = {ctx->limits[i]->charge, 0};
        struct stint_request request = ctx->requests[i];

        if (charge.value == NULL || ngx_http_stint_is_in_flight(ctx->policies[i]) ||
            ngx_http_stint_get_number(r, ctx->zone, &charge, NGX_HTTP_STINT_LOG_CHARGE,
                                      ctx->log_level, &request.cost) != NGX_OK ||
            request.cost == 0) {
            continue;
        }
        request.flags = STINT_CHARGE;
        (void)stint_decide(ctx->zone->limiter, &request, STINT_NOW, NULL);
    }
}
