/* SPDX-License-Identifier: MIT
 * Requests that wait for tokens which they have reserved, as limit_req's wait for their turn. */
#include "ngx_http_stint.h"

#define MILLISECOND UINT64_C(1000000) /* ns */
#define MAX_DELAY   60000             /* ms; of a "delay" that does not say how long */

/* Its tokens are there, or something else happened to its connection. */
static void ngx_http_stint_resume(ngx_http_request_t *r) {
    ngx_event_t *write = r->connection->write;
    ngx_http_stint_ctx_t *ctx;

    if (write->delayed) {
        if (ngx_handle_write_event(write, 0) != NGX_OK) {
            ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        }
        return;
    }
    ctx = ngx_http_stint_get_ctx(r);
    if (ctx != NULL && ctx->held != NULL) {
        ngx_http_stint_hold_end(ctx);
    }
    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
        return;
    }
    r->read_event_handler = ngx_http_block_reading;
    r->write_event_handler = ngx_http_core_run_phases;
    r->phase_handler++; /* its rates are decided */
    ngx_http_core_run_phases(r);
}

/* How long a request may be held, in ms. By a bucket that is as long as its reserve takes, as in
 * limit_req, unless it is said. */
static ngx_msec_t ngx_http_stint_max_delay(const ngx_http_stint_ctx_t *ctx, ngx_uint_t i) {
    ngx_msec_t said = ctx->limits[i]->max_delay;

    return said != NGX_HTTP_STINT_DELAY_ELSE || ctx->policies[i]->policy.burst != 0 ? said
                                                                                    : MAX_DELAY;
}

/* Refuses a request that was granted: verdict `which` is said to have refused it. */
static ngx_int_t ngx_http_stint_hold_refuse(ngx_http_stint_ctx_t *ctx, ngx_uint_t which) {
    ngx_http_stint_give_back(ctx, 0, ctx->n);
    ctx->verdicts[which].allowed = false;
    return NGX_BUSY;
}

/* Leaves the name of the key that verdict `which` is of. */
static void ngx_http_stint_hold_label(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx,
                                      ngx_uint_t which) {
    ngx_http_stint_label(r, ctx->limits[which], ctx->requests[which].key);
}

/* Logs that a request would wait too long, and leaves its key's name. To the library it is no
 * refusal, so that there is no first one of a key: it counts as allowed and refunded. */
static void ngx_http_stint_hold_log_delay(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx,
                                          ngx_uint_t which, uint64_t wait, ngx_flag_t dry_run) {
    ngx_http_stint_zone_t *zone = ctx->limits[which]->zone;

    if (ngx_http_stint_log_due(zone, NGX_HTTP_STINT_LOG_DELAY)) {
        ngx_log_error(ctx->log_level, r->connection->log, 0,
                      "limiting requests%s, a wait of %uL ms is longer than the delay of %M ms, by "
                      "policy \"%V\" in zone \"%V\" (told once a minute)",
                      dry_run ? ", dry run" : "", wait, ngx_http_stint_max_delay(ctx, which),
                      &ctx->policies[which]->name, &zone->name);
        ngx_http_stint_hold_label(r, ctx, which);
    }
}

ngx_int_t ngx_http_stint_hold(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx, ngx_uint_t from,
                              ngx_flag_t dry_run) {
    ngx_http_stint_zone_t *zone;
    ngx_msec_t longest = 0;
    ngx_uint_t which = 0;

    for (ngx_uint_t i = from; i < ctx->n; i++) {
        const struct stint_verdict *verdict = &ctx->verdicts[i];
        uint64_t wait = verdict->retry_after / MILLISECOND + 1; /* it is longer than 0 */

        if ((ctx->requests[i].flags & STINT_RESERVE) == 0 || verdict->granted == 0 ||
            verdict->retry_after == 0) {
            continue;
        }
        if (wait > ngx_http_stint_max_delay(ctx, i)) {
            ngx_http_stint_hold_log_delay(r, ctx, i, wait, dry_run);
            return ngx_http_stint_hold_refuse(ctx, i);
        }
        if (wait > longest) {
            longest = (ngx_msec_t)wait;
            which = i;
        }
    }
    if (longest == 0) {
        return NGX_DECLINED;
    }
    if (dry_run) {
        ctx->told = which;
        ctx->status = NGX_HTTP_STINT_DELAYED_DRY_RUN;
        return NGX_DECLINED;
    }
    zone = ctx->limits[which]->zone;
    if (ngx_http_stint_hold_begin(ctx, zone) != NGX_OK) {
        if (ngx_http_stint_log_due(zone, NGX_HTTP_STINT_LOG_HELD)) {
            ngx_log_error(ctx->log_level, r->connection->log, 0,
                          "stint zone \"%V\" holds %ui requests, the most that it may: others are "
                          "refused; \"held\" can be raised",
                          &zone->name, zone->max_held);
            ngx_http_stint_hold_label(r, ctx, which);
        }
        return ngx_http_stint_hold_refuse(ctx, which);
    }
    ctx->told = which;
    ctx->status = NGX_HTTP_STINT_DELAYED;

    /* Meanwhile only the end of the connection is read. */
    if (r->connection->read->ready) {
        ngx_post_event(r->connection->read, &ngx_posted_events);
    } else if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_ERROR;
    }
    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_stint_resume;
    r->connection->write->delayed = 1;
    ngx_add_timer(r->connection->write, longest);
    return NGX_AGAIN;
}
