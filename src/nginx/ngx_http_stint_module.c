/* SPDX-License-Identifier: MIT
 * The phases of a request. It is decided at the end of the preaccess phase: after realip, so that
 * addresses are those of clients, and after limit_req and limit_conn, so that what these refuse is
 * not counted. What the response costs is settled when its header is made (report.c), or else in
 * the log phase. */
#include "ngx_http_stint.h"

/* Whether a key that was refused is refused everything: it is banned, by itself or by hand. */
static ngx_uint_t ngx_http_stint_banned(const struct stint_verdict *verdict) {
    return (verdict->flags & STINT_BANNED) != 0 ||
           ((verdict->flags & STINT_OVERRIDDEN) != 0 && verdict->capacity == 0);
}

/* The ban of a request, of several the one that ends last; ctx->n: there is none. If the request
 * was allowed, it is one that a shadow tells of. */
static ngx_uint_t ngx_http_stint_find_ban(const ngx_http_stint_ctx_t *ctx, bool allowed) {
    ngx_uint_t found = ctx->n;

    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        const struct stint_verdict *verdict = &ctx->verdicts[i];
        bool refused = allowed ? (verdict->flags & STINT_SHADOWED) != 0 : !verdict->allowed;

        if (refused && ngx_http_stint_banned(verdict) &&
            (found == ctx->n || verdict->retry_after > ctx->verdicts[found].retry_after)) {
            found = i;
        }
    }
    return found;
}

/* Sets the status of a request, and which of its limits brought it about. */
static void ngx_http_stint_outcome(ngx_http_stint_ctx_t *ctx, ngx_flag_t dry_run, bool allowed) {
    uint32_t flags = 0;
    ngx_uint_t banned;

    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        flags |= ctx->verdicts[i].flags;
    }
    ctx->told = ngx_http_stint_find_ban(ctx, allowed);
    banned = ctx->told < ctx->n;
    if (!allowed && banned) {
        ctx->status = dry_run ? NGX_HTTP_STINT_BANNED_DRY_RUN : NGX_HTTP_STINT_BANNED;
    } else if (!allowed) {
        ctx->status = dry_run ? NGX_HTTP_STINT_REJECTED_DRY_RUN : NGX_HTTP_STINT_REJECTED;
    } else {
        ctx->status = banned                           ? NGX_HTTP_STINT_BANNED_SHADOW
                      : (flags & STINT_SHADOWED) != 0  ? NGX_HTTP_STINT_REJECTED_SHADOW
                      : (flags & STINT_UNTRACKED) != 0 ? NGX_HTTP_STINT_UNTRACKED
                                                       : NGX_HTTP_STINT_PASSED;
    }
}

/* The end of the requests from i on that are decided as one: of a zone, until one is of a key and a
 * policy that are among them already. */
static ngx_uint_t ngx_http_stint_group_end(const ngx_http_stint_ctx_t *ctx, ngx_uint_t i) {
    const struct stint_request *requests = ctx->requests;
    ngx_uint_t last = ngx_http_stint_zone_end(ctx, i), end;

    for (end = i + 1; end < last; end++) {
        for (ngx_uint_t j = i; j < end; j++) {
            if (requests[j].policy == requests[end].policy &&
                stint_key_equal(requests[j].key, requests[end].key)) {
                return end;
            }
        }
    }
    return end;
}

/* Asks the limits of one zone after the other. If one refuses, those before it give back what they
 * took, and those after it only tell. */
static bool ngx_http_stint_ask(ngx_http_stint_ctx_t *ctx) {
    struct stint_request looks[STINT_ALL_MAX];
    bool allowed = true, fits;

    for (ngx_uint_t i = 0, end; i < ctx->n; i = end) {
        struct stint_limiter *limiter = ctx->limits[i]->zone->limiter;
        const struct stint_request *requests = allowed ? &ctx->requests[i] : looks;

        end = ngx_http_stint_group_end(ctx, i);
        for (ngx_uint_t j = i; !allowed && j < end; j++) {
            looks[j - i] = ctx->requests[j];
            looks[j - i].flags = STINT_PEEK;
        }
        fits = end - i == 1
                   ? stint_decide(limiter, requests, STINT_NOW, &ctx->verdicts[i])
                   : stint_decide_all(limiter, requests, end - i, STINT_NOW, &ctx->verdicts[i]);
        if (allowed && !fits) {
            ngx_http_stint_give_back(ctx, i);
        }
        allowed = allowed && fits;
    }
    return allowed;
}

/* Decides what was asked. */
static ngx_int_t ngx_http_stint_decide(ngx_http_request_t *r, const ngx_http_stint_loc_conf_t *slcf,
                                       ngx_http_stint_ctx_t *ctx) {
    bool allowed = ngx_http_stint_ask(ctx);
    ngx_int_t rc = NGX_DECLINED;

    ngx_http_stint_outcome(ctx, slcf->dry_run, allowed);
    ngx_http_stint_log_decision(r, ctx);
    if (allowed) {
        rc = ngx_http_stint_hold(r, ctx, slcf->dry_run);
        if (rc == NGX_BUSY) {
            ngx_http_stint_outcome(ctx, slcf->dry_run, false);
        }
        ngx_http_stint_fly(ctx);
    }
    ngx_log_debug4(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "stint: %ui limits, first \"%V\": %uD of %uD used", ctx->n,
                   &ctx->policies[0]->name, ctx->verdicts[0].used, ctx->verdicts[0].capacity);
    return ngx_http_stint_refused(ctx) ? (ngx_int_t)slcf->status_code
           : rc == NGX_AGAIN           ? NGX_AGAIN
           : rc == NGX_ERROR           ? NGX_HTTP_INTERNAL_SERVER_ERROR
                                       : NGX_DECLINED;
}

static ngx_int_t ngx_http_stint_handler(ngx_http_request_t *r) {
    ngx_http_stint_loc_conf_t *slcf = ngx_http_get_module_loc_conf(r, ngx_http_stint_module);
    ngx_http_stint_limit_t **limits = slcf->limits.elts;
    ngx_http_stint_policy_t *policies[STINT_ALL_MAX];
    const ngx_http_stint_limit_t *asked[STINT_ALL_MAX];
    struct stint_request requests[STINT_ALL_MAX];
    ngx_http_request_t *decided = ngx_http_stint_decided(r);
    ngx_http_stint_ctx_t *ctx;
    ngx_uint_t n = 0;

    /* A request is decided once, where it first meets limits: not again after it was held, nor
     * after an internal redirect, nor in its subrequests. */
    if (slcf->limits.nelts == 0 || ngx_http_stint_get_ctx(decided) != NULL) {
        return NGX_DECLINED;
    }
    for (ngx_uint_t i = 0; i < slcf->limits.nelts; i++) {
        ngx_int_t rc =
            ngx_http_stint_make_request(r, limits[i], slcf->log_level, &policies[n], &requests[n]);
        if (rc == NGX_ERROR) {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
        if (rc == NGX_OK) {
            asked[n++] = limits[i];
        }
    }
    if (n == 0) {
        return NGX_DECLINED;
    }
    ctx = ngx_http_stint_new_ctx(decided, n);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    ngx_memcpy(ctx->requests, requests, n * sizeof(requests[0]));
    ngx_memcpy(ctx->policies, policies, n * sizeof(policies[0]));
    ngx_memcpy(ctx->limits, asked, n * sizeof(asked[0]));
    ctx->log_level = slcf->log_level;
    ctx->dry_run = slcf->dry_run;
    ctx->headers = slcf->dry_run ? NGX_HTTP_STINT_HEADERS_OFF : slcf->headers;
    ngx_http_set_ctx(decided, ctx, ngx_http_stint_module);
    return ngx_http_stint_decide(r, slcf, ctx);
}

/* There was no header, or something is charged late. */
static ngx_int_t ngx_http_stint_log_handler(ngx_http_request_t *r) {
    ngx_http_stint_ctx_t *ctx = r == ngx_http_stint_decided(r) ? ngx_http_stint_get_ctx(r) : NULL;

    if (ctx != NULL) {
        ngx_http_stint_settle(r, ctx);
        ngx_http_stint_charge_late(r, ctx);
    }
    return NGX_OK;
}

static ngx_int_t ngx_http_stint_init(ngx_conf_t *cf) {
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_array_t *preaccess = &cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers;
    ngx_array_t *log = &cmcf->phases[NGX_HTTP_LOG_PHASE].handlers;
    ngx_http_handler_pt *handler;

    /* nginx runs the handlers of a phase from the last to the first. The module is a filter, too,
     * so it comes late in nginx's list; its handler goes to the front. */
    if (ngx_array_push(preaccess) == NULL) {
        return NGX_ERROR;
    }
    handler = preaccess->elts;
    ngx_memmove(handler + 1, handler, (preaccess->nelts - 1) * sizeof(*handler));
    *handler = ngx_http_stint_handler;

    handler = ngx_array_push(log);
    if (handler == NULL) {
        return NGX_ERROR;
    }
    *handler = ngx_http_stint_log_handler;
    ngx_http_stint_add_header_filter();
    return NGX_OK;
}

static ngx_http_module_t ngx_http_stint_module_ctx = {
    ngx_http_stint_add_variables, /* preconfiguration */
    ngx_http_stint_init,          /* postconfiguration */

    ngx_http_stint_create_main_conf, /* create main configuration */
    ngx_http_stint_init_main_conf,   /* init main configuration */

    NULL, /* create server configuration */
    NULL, /* merge server configuration */

    ngx_http_stint_create_loc_conf, /* create location configuration */
    ngx_http_stint_merge_loc_conf   /* merge location configuration */
};

ngx_module_t ngx_http_stint_module = {
    NGX_MODULE_V1,
    &ngx_http_stint_module_ctx,  /* module context */
    ngx_http_stint_commands,     /* module directives */
    NGX_HTTP_MODULE,             /* module type */
    NULL,                        /* init master */
    ngx_http_stint_init_module,  /* init module */
    ngx_http_stint_init_process, /* init process */
    NULL,                        /* init thread */
    NULL,                        /* exit thread */
    ngx_http_stint_exit_process, /* exit process */
    NULL,                        /* exit master */
    NGX_MODULE_V1_PADDING,
};
