/* SPDX-License-Identifier: MIT
 * The phases of a request. It is decided in the preaccess phase, after realip, so that addresses
 * are those of clients: its rates after limit_req and before limit_conn, what is in flight after
 * both. As with these two, who waits for a rate is not in flight, and what is refused in flight has
 * used up its rate. What the response costs is settled when its header is made (report.c), or else
 * in the log phase. */
#include "ngx_http_stint.h"

/* Whether a key that was refused is refused everything: it is banned, by itself or by hand. */
static ngx_uint_t ngx_http_stint_banned(const struct stint_verdict *verdict) {
    return (verdict->flags & STINT_BANNED) != 0 ||
           ((verdict->flags & STINT_OVERRIDDEN) != 0 && verdict->capacity == 0);
}

/* The ban that refused a request, of several the one that ends last. */
static ngx_uint_t ngx_http_stint_find_ban(const ngx_http_stint_ctx_t *ctx) {
    ngx_uint_t found = NGX_HTTP_STINT_TIGHTEST;

    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        const struct stint_verdict *verdict = &ctx->verdicts[i];

        if (!verdict->allowed && ngx_http_stint_banned(verdict) &&
            (found == NGX_HTTP_STINT_TIGHTEST ||
             verdict->retry_after > ctx->verdicts[found].retry_after)) {
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
    ctx->told = ngx_http_stint_find_ban(ctx);
    banned = ctx->told != NGX_HTTP_STINT_TIGHTEST;
    if (!allowed && banned) {
        ctx->status = dry_run ? NGX_HTTP_STINT_BANNED_DRY_RUN : NGX_HTTP_STINT_BANNED;
    } else if (!allowed) {
        ctx->status = dry_run ? NGX_HTTP_STINT_REJECTED_DRY_RUN : NGX_HTTP_STINT_REJECTED;
    } else {
        ctx->status = (flags & STINT_SHADOWED) != 0    ? NGX_HTTP_STINT_REJECTED_SHADOW
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

/* Asks the limits from `from` on, of one zone after the other. If one refuses, those before it give
 * back what they took, and those after it only tell. */
static bool ngx_http_stint_ask(ngx_http_stint_ctx_t *ctx, ngx_uint_t from) {
    struct stint_request looks[STINT_ALL_MAX];
    bool allowed = true, fits;

    for (ngx_uint_t i = from, end; i < ctx->n; i = end) {
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
            ngx_http_stint_give_back(ctx, from, i);
        }
        allowed = allowed && fits;
    }
    return allowed;
}

/* Refused in flight: there will be no response that says what the limits before cost. */
static void ngx_http_stint_drop_tentative(ngx_http_stint_ctx_t *ctx, ngx_uint_t end) {
    for (ngx_uint_t i = 0; i < end && ngx_http_stint_refused(ctx); i++) {
        if ((ctx->requests[i].flags & STINT_TENTATIVE) != 0) {
            ngx_http_stint_give_back(ctx, i, i + 1);
        }
    }
}

/* Decides what the limits from `from` on were asked. A wait, or a refusal in a dry run, of those
 * before stays the outcome. */
static ngx_int_t ngx_http_stint_decide(ngx_http_request_t *r, const ngx_http_stint_loc_conf_t *slcf,
                                       ngx_http_stint_ctx_t *ctx, ngx_uint_t from) {
    bool allowed = ngx_http_stint_ask(ctx, from);
    ngx_int_t rc = NGX_DECLINED;

    if (!allowed || ctx->status == NGX_HTTP_STINT_PASSED) {
        ngx_http_stint_outcome(ctx, slcf->dry_run, allowed);
    }
    ngx_http_stint_log_decision(r, ctx, from);
    if (!allowed) {
        ngx_http_stint_drop_tentative(ctx, from);
    } else {
        rc = ngx_http_stint_hold(r, ctx, from, slcf->dry_run);
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

/* Adds what the limits of a kind ask for a request to its decision, which is made if it is NULL. */
static ngx_int_t ngx_http_stint_add_requests(ngx_http_request_t *r,
                                             const ngx_http_stint_loc_conf_t *slcf, ngx_uint_t kind,
                                             ngx_http_stint_ctx_t **ctx) {
    const ngx_http_stint_limit_t *const *limits = slcf->limits.elts;
    ngx_uint_t n = *ctx == NULL ? 0 : (*ctx)->n;

    for (ngx_uint_t i = 0; i < slcf->limits.nelts; i++) {
        ngx_http_stint_policy_t *policy;
        struct stint_request request;
        ngx_int_t rc;

        if ((limits[i]->kind == NGX_HTTP_STINT_IN_FLIGHT) != (kind == NGX_HTTP_STINT_IN_FLIGHT)) {
            continue;
        }
        rc = ngx_http_stint_make_request(r, limits[i], slcf->log_level, &policy, &request);
        if (rc == NGX_DECLINED) {
            continue;
        }
        if (rc != NGX_OK || (*ctx == NULL && (*ctx = ngx_http_stint_new_ctx(
                                                  ngx_http_stint_decided(r), slcf)) == NULL)) {
            return NGX_ERROR;
        }
        (*ctx)->requests[n] = request;
        (*ctx)->policies[n] = policy;
        (*ctx)->limits[n++] = limits[i];
    }
    if (*ctx != NULL) {
        (*ctx)->n = n;
    }
    return NGX_OK;
}

/* Decides by the limits of a kind. */
static ngx_int_t ngx_http_stint_decide_kind(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx,
                                            ngx_uint_t kind) {
    ngx_http_stint_loc_conf_t *slcf = ngx_http_get_module_loc_conf(r, ngx_http_stint_module);
    ngx_uint_t from = ctx == NULL ? 0 : ctx->n;

    if (ngx_http_stint_add_requests(r, slcf, kind, &ctx) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
    if (ctx == NULL) {
        return NGX_DECLINED;
    }
    ctx->open = kind == NGX_HTTP_STINT_RATE;
    return ctx->n == from ? NGX_DECLINED : ngx_http_stint_decide(r, slcf, ctx, from);
}

/* A request is decided once, where it first meets limits: not again after an internal redirect, nor
 * in its subrequests. */
static ngx_int_t ngx_http_stint_rate_handler(ngx_http_request_t *r) {
    ngx_http_stint_ctx_t *ctx = ngx_http_stint_get_ctx(ngx_http_stint_decided(r));

    if (ctx != NULL) {
        ctx->open = 0;
        return NGX_DECLINED;
    }
    return ngx_http_stint_decide_kind(r, NULL, NGX_HTTP_STINT_RATE);
}

static ngx_int_t ngx_http_stint_in_flight_handler(ngx_http_request_t *r) {
    ngx_http_stint_ctx_t *ctx = ngx_http_stint_get_ctx(ngx_http_stint_decided(r));

    return ctx == NULL || ctx->open ? ngx_http_stint_decide_kind(r, ctx, NGX_HTTP_STINT_IN_FLIGHT)
                                    : NGX_DECLINED;
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

/* How many handlers of the preaccess phase nginx runs from limit_conn's on: it runs them from the
 * last to the first. limit_conn's is found by letting it add one more. 0: nginx is without it. */
static ngx_uint_t ngx_http_stint_find_limit_conn(ngx_conf_t *cf, ngx_array_t *preaccess) {
    const ngx_module_t *module = ngx_http_stint_module_of(cf, "ngx_http_limit_conn_module");
    const ngx_http_module_t *theirs = module == NULL ? NULL : module->ctx;
    const ngx_http_handler_pt *handlers;
    ngx_uint_t n = preaccess->nelts, i;

    if (theirs == NULL || theirs->postconfiguration == NULL ||
        theirs->postconfiguration(cf) != NGX_OK || preaccess->nelts != n + 1) {
        return 0;
    }
    handlers = preaccess->elts;
    for (i = n; i > 0 && handlers[i - 1] != handlers[n]; i--) {
    }
    preaccess->nelts = n;
    return i;
}

/* Puts a handler in a phase, so that nginx runs `after` of those that are there after it. */
static ngx_int_t ngx_http_stint_insert(ngx_array_t *phase, ngx_uint_t after,
                                       ngx_http_handler_pt handler) {
    ngx_http_handler_pt *handlers;

    if (ngx_array_push(phase) == NULL) {
        return NGX_ERROR;
    }
    handlers = phase->elts;
    ngx_memmove(&handlers[after + 1], &handlers[after],
                (phase->nelts - 1 - after) * sizeof(*handlers));
    handlers[after] = handler;
    return NGX_OK;
}

static ngx_int_t ngx_http_stint_init(ngx_conf_t *cf) {
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    ngx_array_t *preaccess = &cmcf->phases[NGX_HTTP_PREACCESS_PHASE].handlers;
    ngx_array_t *log = &cmcf->phases[NGX_HTTP_LOG_PHASE].handlers;
    ngx_http_handler_pt *handler;

    if (ngx_http_stint_insert(preaccess, ngx_http_stint_find_limit_conn(cf, preaccess),
                              ngx_http_stint_rate_handler) != NGX_OK ||
        ngx_http_stint_insert(preaccess, 0, ngx_http_stint_in_flight_handler) != NGX_OK) {
        return NGX_ERROR;
    }
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
