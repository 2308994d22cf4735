/* SPDX-License-Identifier: MIT
 * The decision on a request, kept as long as the request; how many requests wait, and what is held
 * until they end. */
#include "ngx_http_stint.h"

/* Requests of this worker that hold something until they end. */
static ngx_queue_t ngx_http_stint_flying = {&ngx_http_stint_flying, &ngx_http_stint_flying};

/* How many requests wait is one word for each worker, which only that worker adds to. So whenever
 * a worker is killed, its word says what it held, and is all that there is to forget. */

ngx_uint_t ngx_http_stint_refused(const ngx_http_stint_ctx_t *ctx) {
    return ctx->status == NGX_HTTP_STINT_REJECTED || ctx->status == NGX_HTTP_STINT_BANNED;
}

ngx_uint_t ngx_http_stint_held(const ngx_http_stint_zone_t *zone) {
    const ngx_http_stint_shared_t *shared = zone->shared;
    ngx_uint_t sum = 0;

    for (ngx_uint_t i = 0; i < shared->slots; i++) {
        sum += shared->held[i];
    }
    return sum;
}

void ngx_http_stint_hold_start(ngx_http_stint_zone_t *zone) {
    ngx_http_stint_shared_t *shared = zone->shared;
    ngx_uint_t slot = (ngx_uint_t)ngx_process_slot;

    ngx_shmtx_lock(&zone->slab->mutex); /* the master unlocks it for a worker that was killed */
    shared->held[slot] = 0;
    shared->workers[slot] = ngx_pid;
    shared->slots = ngx_max(shared->slots, slot + 1);
    ngx_shmtx_unlock(&zone->slab->mutex);
}

void ngx_http_stint_hold_stop(ngx_http_stint_zone_t *zone) {
    zone->shared->held[ngx_process_slot] = 0;
}

/* Forgets what workers held that were killed, and whose slots no other took: after a reload there
 * are fewer workers again. Once a second, as it asks the system. Returns whether it was any. */
static ngx_uint_t ngx_http_stint_hold_search(ngx_http_stint_zone_t *zone) {
    ngx_http_stint_shared_t *shared = zone->shared;
    ngx_uint_t found = 0;

    if (zone->searched == ngx_time() || !ngx_shmtx_trylock(&zone->slab->mutex)) {
        return 0;
    }
    zone->searched = ngx_time();
    for (ngx_uint_t i = 0; i < shared->slots; i++) {
        if (shared->held[i] != 0 && kill(shared->workers[i], 0) != 0 && ngx_errno == NGX_ESRCH) {
            shared->held[i] = 0;
            found = 1;
        }
    }
    ngx_shmtx_unlock(&zone->slab->mutex);
    return found;
}

/* Counts one more request that is held. Returns whether it may be. Each worker adds before it looks
 * at the others, so that of several at once none is overlooked. */
static ngx_uint_t ngx_http_stint_hold_count(const ngx_http_stint_zone_t *zone) {
    (void)ngx_atomic_fetch_add(&zone->shared->held[ngx_process_slot], 1);
    if (ngx_http_stint_held(zone) <= zone->max_held) {
        return 1;
    }
    (void)ngx_atomic_fetch_add(&zone->shared->held[ngx_process_slot], -1);
    return 0;
}

ngx_int_t ngx_http_stint_hold_begin(ngx_http_stint_ctx_t *ctx, ngx_http_stint_zone_t *zone) {
    if (!ngx_http_stint_hold_count(zone) &&
        !(ngx_http_stint_hold_search(zone) && ngx_http_stint_hold_count(zone))) {
        return NGX_DECLINED;
    }
    ctx->held = zone;
    return NGX_OK;
}

void ngx_http_stint_hold_end(ngx_http_stint_ctx_t *ctx) {
    (void)ngx_atomic_fetch_add(&ctx->held->shared->held[ngx_process_slot], -1);
    ctx->held = NULL;
}

ngx_uint_t ngx_http_stint_zone_end(const ngx_http_stint_ctx_t *ctx, ngx_uint_t i) {
    const ngx_http_stint_zone_t *zone = ctx->limits[i]->zone;

    while (i < ctx->n && ctx->limits[i]->zone == zone) {
        i++;
    }
    return i;
}

void ngx_http_stint_give_back(ngx_http_stint_ctx_t *ctx, ngx_uint_t i, ngx_uint_t end) {
    for (ngx_uint_t j = i; j < end; j++) {
        struct stint_verdict *verdict = &ctx->verdicts[j];

        verdict->used -= ngx_min(verdict->granted, verdict->used);
        verdict->remaining =
            verdict->capacity > verdict->used ? verdict->capacity - verdict->used : 0;
    }
    for (ngx_uint_t next; i < end; i = next) {
        next = ngx_min(ngx_http_stint_zone_end(ctx, i), end);
        (void)stint_refund_all(ctx->limits[i]->zone->limiter, &ctx->requests[i], &ctx->verdicts[i],
                               next - i);
    }
}

ngx_uint_t ngx_http_stint_is_in_flight(const ngx_http_stint_policy_t *policy) {
    return (policy->policy.flags & STINT_IN_FLIGHT) != 0;
}

ngx_uint_t ngx_http_stint_kind(const ngx_http_stint_policy_t *policy) {
    return ngx_http_stint_is_in_flight(policy) ? NGX_HTTP_STINT_IN_FLIGHT : NGX_HTTP_STINT_RATE;
}

uint32_t ngx_http_stint_most(const struct stint_policy *policy) {
    return policy->burst != 0      ? policy->burst
           : policy->capacity != 0 ? policy->capacity
                                   : policy->limit;
}

void ngx_http_stint_fly(ngx_http_stint_ctx_t *ctx) {
    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        if (ctx->verdicts[i].granted != 0 && ngx_http_stint_is_in_flight(ctx->policies[i])) {
            ctx->in_flight = 1;
        }
    }
    if (ctx->in_flight) {
        ngx_queue_insert_tail(&ngx_http_stint_flying, &ctx->flying);
    }
}

/* It is in flight no more. */
static void ngx_http_stint_land(ngx_http_stint_ctx_t *ctx) {
    ngx_queue_remove(&ctx->flying);
    ctx->in_flight = 0;
    for (ngx_uint_t i = 0; i < ctx->n; i++) {
        struct stint_verdict *verdict = &ctx->verdicts[i];

        if (ngx_http_stint_is_in_flight(ctx->policies[i])) {
            (void)stint_refund(ctx->limits[i]->zone->limiter, ctx->requests[i].key, verdict,
                               verdict->granted);
        }
    }
}

void ngx_http_stint_land_all(void) {
    while (!ngx_queue_empty(&ngx_http_stint_flying)) {
        ngx_http_stint_land(
            ngx_queue_data(ngx_queue_head(&ngx_http_stint_flying), ngx_http_stint_ctx_t, flying));
    }
}

/* The request ends, whatever ended it. Also marks the cleanup that keeps the decision. */
static void ngx_http_stint_end(void *data) {
    ngx_http_stint_ctx_t *ctx = data;

    if (ctx->in_flight) {
        ngx_http_stint_land(ctx);
    }
    /* Its client left while it was held: the work is not done. */
    if (ctx->held != NULL) {
        ngx_http_stint_hold_end(ctx);
        ngx_http_stint_give_back(ctx, 0, ctx->n);
    }
}

ngx_http_stint_ctx_t *ngx_http_stint_get_ctx(ngx_http_request_t *r) {
    ngx_http_stint_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_stint_module);

    /* An internal redirect, such as to an error page, clears the contexts of all modules, but what
     * was decided stands. */
    if (ctx == NULL && (r->internal || r->filter_finalize)) {
        for (ngx_pool_cleanup_t *cln = r->pool->cleanup; cln != NULL; cln = cln->next) {
            ngx_http_stint_ctx_t *found = cln->data;

            if (cln->handler == ngx_http_stint_end && found->request == r) {
                ctx = found;
                ngx_http_set_ctx(r, ctx, ngx_http_stint_module);
                break;
            }
        }
    }
    return ctx;
}

ngx_http_request_t *ngx_http_stint_decided(ngx_http_request_t *r) {
    return r->background && ngx_http_stint_get_ctx(r->main) == NULL ? r : r->main;
}

ngx_http_stint_ctx_t *ngx_http_stint_new_ctx(ngx_http_request_t *r,
                                             const ngx_http_stint_loc_conf_t *slcf) {
    ngx_uint_t n = slcf->limits.nelts;
    size_t each = sizeof(struct stint_verdict) + sizeof(struct stint_request) + 2 * sizeof(void *);
    ngx_pool_cleanup_t *cln =
        ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_stint_ctx_t) + n * each);
    ngx_http_stint_ctx_t *ctx;

    if (cln == NULL) {
        return NULL;
    }
    ctx = cln->data;
    ngx_memzero(ctx, sizeof(*ctx));
    cln->handler = ngx_http_stint_end;
    ctx->request = r;
    ctx->told = NGX_HTTP_STINT_TIGHTEST;
    ctx->log_level = slcf->log_level;
    ctx->dry_run = slcf->dry_run;
    ctx->headers = slcf->dry_run ? NGX_HTTP_STINT_HEADERS_OFF : slcf->headers;
    ctx->verdicts = (struct stint_verdict *)(void *)(ctx + 1);
    ctx->requests = (struct stint_request *)(void *)(ctx->verdicts + n);
    ctx->policies = (ngx_http_stint_policy_t **)(void *)(ctx->requests + n);
    ctx->limits = (const ngx_http_stint_limit_t **)(void *)(ctx->policies + n);
    ngx_http_set_ctx(r, ctx, ngx_http_stint_module);
    return ctx;
}
