/* SPDX-License-Identifier: MIT
 * The nginx module: what its parts share. Read in the order in which things happen:
 *
 *   ngx_http_stint_conf.c     configuration -> zones, policies, limits; each mistake with its line
 *   ngx_http_stint_zone.c     zone -> table in shared memory; reloads
 *   ngx_http_stint_module.c   request -> decision
 *   ngx_http_stint_ctx.c      where a request keeps its decision
 *   ngx_http_stint_report.c   decision -> variables and response fields; table -> metrics */
#ifndef NGX_HTTP_STINT_H
#define NGX_HTTP_STINT_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <stint.h>

/* A line of the configuration. */
typedef struct {
    ngx_str_t file; /* empty: no line */
    ngx_uint_t line;
} ngx_http_stint_place_t;

/* Zones and policies may be named before they are declared. */
typedef struct {
    ngx_str_t name;
    ngx_http_stint_place_t declared;
    ngx_http_stint_place_t used; /* the first line that names it */
    struct stint_policy policy;  /* as the configuration has it */
    uint32_t id;                 /* in the zone's table */
} ngx_http_stint_policy_t;

typedef struct {
    ngx_str_t name;
    ngx_http_stint_place_t declared;
    ngx_http_stint_place_t used;
    ngx_array_t policies; /* of ngx_http_stint_policy_t * */
    struct stint_options options;
    size_t table_size; /* bytes */
    void *table;       /* in shared memory, the same for all workers and over reloads */
    struct stint_limiter *limiter;
    ngx_uint_t mapped;  /* unsigned mapped:1; the table is there when the configuration goes */
    time_t full_logged; /* s; when this worker last logged that the table is full */
} ngx_http_stint_zone_t;

typedef struct {
    ngx_array_t zones; /* of ngx_http_stint_zone_t * */
} ngx_http_stint_main_conf_t;

/* One stint_limit. */
typedef struct {
    ngx_http_stint_policy_t *policy;
    ngx_http_complex_value_t key;
    ngx_http_complex_value_t *cost; /* NULL: 1 */
} ngx_http_stint_limit_t;

/* Else enum stint_headers_style. */
#define NGX_HTTP_STINT_HEADERS_OFF 0

typedef struct {
    ngx_array_t limits;          /* of ngx_http_stint_limit_t */
    ngx_http_stint_zone_t *zone; /* of all limits */
    ngx_http_stint_zone_t *metrics;
    ngx_uint_t status_code;
    ngx_uint_t log_level;
    ngx_uint_t headers; /* enum stint_headers_style, or NGX_HTTP_STINT_HEADERS_OFF */
    ngx_flag_t dry_run;
} ngx_http_stint_loc_conf_t;

#define NGX_HTTP_STINT_PASSED           0
#define NGX_HTTP_STINT_REJECTED         1
#define NGX_HTTP_STINT_REJECTED_DRY_RUN 2
#define NGX_HTTP_STINT_REJECTED_SHADOW  3

/* What was decided on a request. */
typedef struct {
    ngx_http_stint_zone_t *zone;
    ngx_uint_t status;  /* NGX_HTTP_STINT_PASSED .. */
    ngx_uint_t headers; /* enum stint_headers_style, of the location that decided */
    ngx_uint_t n;
    ngx_http_stint_policy_t **policies; /* [policies, policies+n), and verdicts likewise */
    struct stint_verdict *verdicts;
} ngx_http_stint_ctx_t;

extern ngx_module_t ngx_http_stint_module;

/* Memory for a decision on n limits, which lives as long as the request. */
ngx_http_stint_ctx_t *ngx_http_stint_new_ctx(ngx_http_request_t *main, ngx_uint_t n);

/* The decision on a main request; NULL: none has been made. */
ngx_http_stint_ctx_t *ngx_http_stint_get_ctx(ngx_http_request_t *r);

/* Directives. */
extern ngx_command_t ngx_http_stint_commands[];
void *ngx_http_stint_create_main_conf(ngx_conf_t *cf);
void *ngx_http_stint_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_stint_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);

/* Checks that everything that was named has been declared. */
ngx_int_t ngx_http_stint_check_conf(ngx_conf_t *cf);

/* Reserves the zone's shared memory. Returns NGX_CONF_OK, or NGX_CONF_ERROR and has logged why. */
char *ngx_http_stint_add_zone(ngx_conf_t *cf, ngx_http_stint_zone_t *zone);

/* Puts the policies of an accepted configuration in force. */
ngx_int_t ngx_http_stint_init_module(ngx_cycle_t *cycle);

ngx_int_t ngx_http_stint_add_variables(ngx_conf_t *cf);
void ngx_http_stint_add_header_filter(void);
ngx_int_t ngx_http_stint_metrics_handler(ngx_http_request_t *r);

#endif
