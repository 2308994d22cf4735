/* SPDX-License-Identifier: MIT
 * The decision on a request, kept as long as the request. */
#include "ngx_http_stint.h"

/* Does nothing: it marks the cleanup that keeps the decision. */
static void ngx_http_stint_keep(void *data) {}

ngx_http_stint_ctx_t *ngx_http_stint_get_ctx(ngx_http_request_t *r) {
    ngx_http_stint_ctx_t *ctx = ngx_http_get_module_ctx(r, ngx_http_stint_module);

    /* An internal redirect, such as to an error page, clears the contexts of all modules, but what
     * was decided stands. */
    if (ctx == NULL && (r->internal || r->filter_finalize)) {
        for (ngx_pool_cleanup_t *cln = r->pool->cleanup; cln != NULL; cln = cln->next) {
            if (cln->handler == ngx_http_stint_keep) {
                ctx = cln->data;
                ngx_http_set_ctx(r, ctx, ngx_http_stint_module);
                break;
            }
        }
    }
    return ctx;
}

ngx_http_stint_ctx_t *ngx_http_stint_new_ctx(ngx_http_request_t *main, ngx_uint_t n) {
    size_t verdicts = n * sizeof(struct stint_verdict);
    size_t policies = n * sizeof(ngx_http_stint_policy_t *);
    ngx_pool_cleanup_t *cln =
        ngx_pool_cleanup_add(main->pool, sizeof(ngx_http_stint_ctx_t) + verdicts + policies);
    ngx_http_stint_ctx_t *ctx;

    if (cln == NULL) {
        return NULL;
    }
    ctx = cln->data;
    cln->handler = ngx_http_stint_keep;
    ctx->n = n;
    ctx->verdicts = (struct stint_verdict *)(void *)(ctx + 1);
    ctx->policies = (ngx_http_stint_policy_t **)(void *)(ctx->verdicts + n);
    return ctx;
}
