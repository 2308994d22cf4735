/* SPDX-License-Identifier: MIT
 * Request -> decision, in the preaccess phase, as limit_req does. */
#include "ngx_http_stint.h"

#define FULL_LOG_INTERVAL 60 /* s, of each worker */

/* The cost of a request. What is no number costs 1, and is logged. */
static ngx_int_t ngx_http_stint_cost(ngx_http_request_t *r, ngx_http_stint_limit_t *limit,
                                     ngx_uint_t log_level, uint32_t *cost) {
    ngx_str_t value;
    uint64_t number = 0;

    *cost = 1;
    if (limit->cost == NULL) {
        return NGX_OK;
    }
    if (ngx_http_complex_value(r, limit->cost, &value) != NGX_OK) {
        return NGX_ERROR;
    }
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9') {
            ngx_log_error(log_level, r->connection->log, 0,
                          "stint cost \"%V\" is not a number, taken as 1", &value);
            return NGX_OK;
        }
        /* More than any policy holds is as much as any other: it never fits. */
        number = ngx_min(number * 10 + (value.data[i] - '0'), UINT32_MAX);
    }
    if (value.len != 0) {
        *cost = (uint32_t)number;
    }
    return NGX_OK;
}

static void ngx_http_stint_log(ngx_http_request_t *r, ngx_http_stint_loc_conf_t *slcf,
                               const ngx_http_stint_ctx_t *ctx) {
    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        const struct stint_verdict *verdict = &ctx->verdicts[i];

        /* Once for a key and window, so that an attacker does not fill the disk. */
        if ((verdict->flags & STINT_FIRST_REFUSAL) != 0) {
            ngx_log_error(slcf->log_level, r->connection->log, 0,
                          "limiting requests%s, %uD of %uD used, by policy \"%V\" in zone \"%V\"",
                          slcf->dry_run                            ? ", dry run"
                          : (verdict->flags & STINT_SHADOWED) != 0 ? ", shadow"
                                                                   : "",
                          verdict->used, verdict->capacity, &ctx->policies[i]->name,
                          &ctx->zone->name);
        }
        if ((verdict->flags & (STINT_UNTRACKED | STINT_REPLACED)) != 0 &&
            ngx_time() - ctx->zone->full_logged >= FULL_LOG_INTERVAL) {
            ctx->zone->full_logged = ngx_time();
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "stint zone \"%V\" is full: %s; it needs more keys", &ctx->zone->name,
                          (verdict->flags & STINT_REPLACED) != 0 ? "a key lost its count to another"
                          : verdict->allowed ? "a request was let through uncounted"
                                             : "a request was refused uncounted");
        }
    }
}

static ngx_uint_t ngx_http_stint_outcome(const ngx_http_stint_ctx_t *ctx, ngx_flag_t dry_run,
                                         bool allowed) {
    if (!allowed) {
        return dry_run ? NGX_HTTP_STINT_REJECTED_DRY_RUN : NGX_HTTP_STINT_REJECTED;
    }
    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        if ((ctx->verdicts[i].flags & STINT_SHADOWED) != 0) {
            return NGX_HTTP_STINT_REJECTED_SHADOW;
        }
    }
    return NGX_HTTP_STINT_PASSED;
}

static ngx_int_t ngx_http_stint_handler(ngx_http_request_t *r) {
    ngx_http_stint_loc_conf_t *slcf = ngx_http_get_module_loc_conf(r, ngx_http_stint_module);
    ngx_http_stint_limit_t *limits = slcf->limits.elts;
    ngx_http_stint_policy_t *policies[STINT_ALL_MAX];
    struct stint_request requests[STINT_ALL_MAX];
    struct stint_limiter *limiter;
    ngx_http_stint_ctx_t *ctx;
    ngx_uint_t n = 0;
    ngx_str_t key;
    bool allowed;

    /* A request is decided once, where it first meets limits: not again after an internal redirect,
     * nor in its subrequests. */
    if (slcf->limits.nelts == 0 || ngx_http_stint_get_ctx(r->main) != NULL) {
        return NGX_DECLINED;
    }

    limiter = slcf->zone->limiter;
    for (ngx_uint_t i = 0; i < slcf->limits.nelts; i++) {
        if (ngx_http_complex_value(r, &limits[i].key, &key) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        if (key.len == 0) {
            continue;
        }
        policies[n] = limits[i].policy;
        requests[n] = (struct stint_request){.key = stint_key_of(limiter, key.data, key.len),
                                             .policy = limits[i].policy->id};
        if (ngx_http_stint_cost(r, &limits[i], slcf->log_level, &requests[n].cost) != NGX_OK) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        n++;
    }
    if (n == 0) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_stint_new_ctx(r->main, n);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    ngx_memcpy(ctx->policies, policies, n * sizeof(policies[0]));
    ctx->zone = slcf->zone;
    allowed = n == 1 ? stint_decide(limiter, requests, STINT_NOW, ctx->verdicts)
                     : stint_decide_all(limiter, requests, n, STINT_NOW, ctx->verdicts);
    ctx->status = ngx_http_stint_outcome(ctx, slcf->dry_run, allowed);
    ctx->headers = slcf->dry_run ? NGX_HTTP_STINT_HEADERS_OFF : slcf->headers;
    ngx_http_set_ctx(r->main, ctx, ngx_http_stint_module);

    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "stint: %ui limits, first \"%V\": %uD of %uD used", n, &policies[0]->name,
                   ctx->verdicts[0].used, ctx->verdicts[0].capacity);
    ngx_http_stint_log(r, slcf, ctx);
    return ctx->status == NGX_HTTP_STINT_REJECTED ? (ngx_int_t)slcf->status_code : NGX_DECLINED;
}

static ngx_int_t ngx_http_stint_init(ngx_conf_t *cf) {
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_http_handler_pt *handler;

    if (ngx_http_stint_check_conf(cf) != NGX_OK) {
        return NGX_ERROR;
    }
    handler = ngx_array_push(&cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers);
    if (handler == NULL) {
        return NGX_ERROR;
    }
    *handler = ngx_http_stint_handler;
    ngx_http_stint_add_header_filter();
    return NGX_OK;
}

static ngx_http_module_t ngx_http_stint_module_ctx = {
    ngx_http_stint_add_variables, /* preconfiguration */
    ngx_http_stint_init,          /* postconfiguration */

    ngx_http_stint_create_main_conf, /* create main configuration */
    NULL,                            /* init main configuration */

    NULL, /* create server configuration */
    NULL, /* merge server configuration */

    ngx_http_stint_create_loc_conf, /* create location configuration */
    ngx_http_stint_merge_loc_conf   /* merge location configuration */
};

ngx_module_t ngx_http_stint_module = {
    NGX_MODULE_V1,
    &ngx_http_stint_module_ctx, /* module context */
    ngx_http_stint_commands,    /* module directives */
    NGX_HTTP_MODULE,            /* module type */
    NULL,                       /* init master */
    ngx_http_stint_init_module, /* init module */
    NULL,                       /* init process */
    NULL,                       /* init thread */
    NULL,                       /* exit thread */
    NULL,                       /* exit process */
    NULL,                       /* exit master */
    NGX_MODULE_V1_PADDING,
};
