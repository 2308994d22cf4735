/* SPDX-License-Identifier: MIT
 * The nginx module: what its parts share. Each file calls only those below it:
 *
 *   ngx_http_stint_module.c    the phases of a request: decide, and settle at its end
 *   ngx_http_stint_conf.c      directives and their inheritance; stint_zone
 *   ngx_http_stint_limit.c     stint_limit
 *   ngx_http_stint_policy.c    stint_policy; zones and policies by name; what is missing at the end
 *   ngx_http_stint_zone.c      zone -> table in shared memory or in a file; reloads
 *   ngx_http_stint_file.c      the file of a table: its size, a start's, and what if it is cut off
 *   ngx_http_stint_pages.c     table -> metrics and status page
 *   ngx_http_stint_report.c    decision -> variables and response fields
 *   ngx_http_stint_hold.c      requests that wait for their tokens
 *   ngx_http_stint_request.c   request and stint_limit -> key, policy and cost; what is settled
 *   ngx_http_stint_message.c   what is logged, so that nobody can fill the disk
 *   ngx_http_stint_label.c     names of keys, for the status page
 *   ngx_http_stint_ctx.c       where a request keeps its decision */
#ifndef NGX_HTTP_STINT_H
#define NGX_HTTP_STINT_H

#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <stint.h>

/* ---- Configuration --------------------------------------------------------------------------- */

/* A line of the configuration. */
typedef struct {
    ngx_str_t file; /* empty: no line */
    ngx_uint_t line;
} ngx_http_stint_place_t;

/* Zones and policies may be named before they are declared. */
typedef struct ngx_http_stint_policy_s ngx_http_stint_policy_t;

struct ngx_http_stint_policy_s {
    ngx_str_t name;
    ngx_http_stint_place_t declared;
    ngx_http_stint_place_t used; /* the first line that names it */
    ngx_uint_t delays;           /* unsigned delays:1; a limit with "delay" goes by it */
    ngx_uint_t warned;           /* unsigned warned:1; of a key that clients choose */
    struct stint_policy policy;  /* as the configuration has it */
    uint32_t id;                 /* in the zone's table */
    /* Not NULL: this is another way to write the rate that that one is named by, and all else here
     * is as there. */
    ngx_http_stint_policy_t *same;
};

/* Messages with data of requests are logged once a minute by each worker, each kind by itself. */
typedef enum {
    NGX_HTTP_STINT_LOG_FULL,
    NGX_HTTP_STINT_LOG_LOST,
    NGX_HTTP_STINT_LOG_COST,
    NGX_HTTP_STINT_LOG_LIMIT,
    NGX_HTTP_STINT_LOG_BURST,
    NGX_HTTP_STINT_LOG_CHARGE,
    NGX_HTTP_STINT_LOG_POLICY,
    NGX_HTTP_STINT_LOG_STRIPES,
    NGX_HTTP_STINT_LOG_BUCKET,
    NGX_HTTP_STINT_LOG_ADDRESS,
    NGX_HTTP_STINT_LOG_HELD,
    NGX_HTTP_STINT_LOG_DELAY,
    NGX_HTTP_STINT_LOG_GONE,
    NGX_HTTP_STINT_LOG_KINDS
} ngx_http_stint_log_kind_t;

/* What a zone has in nginx's shared memory, beside its table. */
typedef struct {
    void *table;        /* NULL: it is in a file */
    ngx_atomic_t slots; /* ngx_process_slot of all workers that there ever were is below that */
    ngx_atomic_t held[NGX_MAX_PROCESSES]; /* requests that wait, by their worker's slot */
    ngx_pid_t workers[NGX_MAX_PROCESSES]; /* of these slots, the last; 0: none. Under the mutex */
} ngx_http_stint_shared_t;

typedef struct {
    ngx_str_t name;
    ngx_http_stint_place_t declared;
    ngx_http_stint_place_t used;
    ngx_array_t policies; /* of ngx_http_stint_policy_t * */
    ngx_uint_t limits;    /* unsigned limits:1; a stint_limit goes by it */
    ngx_uint_t delays;    /* unsigned delays:1; one with "delay" may go by any policy of it */
    struct stint_options options;
    ngx_str_t file;    /* of the table; empty: it is in shared memory */
    dev_t file_device; /* which file that is, once it is open */
    ino_t file_inode;
    ngx_uint_t max_held;             /* requests that may wait at once */
    size_t table_size;               /* bytes in shared memory; 0: it is in a file */
    ngx_http_stint_shared_t *shared; /* the same for all workers and over reloads */
    ngx_slab_pool_t *slab;           /* where `shared` is, with the mutex */
    time_t searched;                 /* s; when this worker last looked who is gone */
    struct stint_limiter *limiter;
    ngx_uint_t mapped; /* unsigned mapped:1; `shared` is there when the configuration goes */
    time_t logged[NGX_HTTP_STINT_LOG_KINDS]; /* s; when this worker last logged one */
} ngx_http_stint_zone_t;

typedef struct {
    ngx_array_t zones;  /* of ngx_http_stint_zone_t * */
    ngx_array_t limits; /* of ngx_http_stint_limit_t *, all that there are */
    ngx_uint_t warned;  /* bits, of directives that are left over */
} ngx_http_stint_main_conf_t;

/* A number that each request has of its own, or not. */
typedef struct {
    ngx_http_complex_value_t *value; /* NULL: `otherwise` */
    uint32_t otherwise;              /* where the value is empty or no number */
} ngx_http_stint_number_t;

/* What a key is made of. */
typedef enum {
    NGX_HTTP_STINT_KEY_TEXT,
    NGX_HTTP_STINT_KEY_BINARY,  /* the text $binary_remote_addr, which is none to read */
    NGX_HTTP_STINT_KEY_CLIENT,  /* first bits of the client's address */
    NGX_HTTP_STINT_KEY_ADDRESS, /* first bits of an address that is a text */
} ngx_http_stint_key_kind_t;

/* Limits of a kind are inherited apart. */
#define NGX_HTTP_STINT_RATE      1u
#define NGX_HTTP_STINT_IN_FLIGHT 2u
#define NGX_HTTP_STINT_KINDS     (NGX_HTTP_STINT_RATE | NGX_HTTP_STINT_IN_FLIGHT)

/* One stint_limit. */
typedef struct {
    ngx_http_stint_place_t place;
    ngx_http_stint_zone_t *zone;
    const ngx_uint_t *off; /* kinds of which its level must have none */
    ngx_uint_t warned;     /* unsigned warned:1; of a `return` before it */
    ngx_uint_t kind;       /* known when all policies are declared; that of all that `plan` names */
    ngx_http_stint_policy_t *policy; /* NULL: none, unless `plan` names one */
    ngx_str_t policy_text;           /* as it is written */
    ngx_http_complex_value_t *plan;  /* NULL: `policy`. Else names a policy, which comes first */
    ngx_http_complex_value_t *key;
    ngx_http_stint_key_kind_t key_kind;
    unsigned prefix4; /* bits */
    unsigned prefix6;
    ngx_http_stint_number_t cost;
    ngx_http_stint_number_t limit;    /* in place of the policy's; 0: the policy's */
    ngx_http_stint_number_t burst;    /* of a bucket that it may use up; 0: all */
    ngx_http_complex_value_t *charge; /* NULL: it is not charged by the response */
    ngx_uint_t late;                  /* unsigned late:1; nothing is taken before the charge */
    ngx_msec_t max_delay; /* ms that a request may be held, or this; 0: it is not held */
#define NGX_HTTP_STINT_DELAY_ELSE ((ngx_msec_t)-1)
} ngx_http_stint_limit_t;

/* Else enum stint_headers_style. */
#define NGX_HTTP_STINT_HEADERS_OFF 0

typedef struct {
    ngx_array_t limits; /* of ngx_http_stint_limit_t *, those of a zone one after another */
    ngx_uint_t off;     /* kinds; such limits of the level above do not hold */
    ngx_http_stint_zone_t *page; /* whose metrics, or status, this location shows */
    ngx_uint_t status_code;
    ngx_uint_t log_level;
    ngx_uint_t headers; /* enum stint_headers_style, or NGX_HTTP_STINT_HEADERS_OFF */
    ngx_flag_t dry_run;
} ngx_http_stint_loc_conf_t;

/* ---- Requests -------------------------------------------------------------------------------- */

typedef enum {
    NGX_HTTP_STINT_PASSED,
    NGX_HTTP_STINT_DELAYED,
    NGX_HTTP_STINT_DELAYED_DRY_RUN,
    NGX_HTTP_STINT_REJECTED,
    NGX_HTTP_STINT_REJECTED_DRY_RUN,
    NGX_HTTP_STINT_REJECTED_SHADOW,
    NGX_HTTP_STINT_BANNED, /* rejected, because the key is banned, or was by this very request */
    NGX_HTTP_STINT_BANNED_DRY_RUN,
    NGX_HTTP_STINT_UNTRACKED, /* let through, the full zone could not count it */
} ngx_http_stint_status_t;

/* What was decided on a request. */
typedef struct {
    ngx_http_stint_status_t status;
    ngx_uint_t told; /* the limit that brought that about, or this one */
#define NGX_HTTP_STINT_TIGHTEST ((ngx_uint_t)-1)
    ngx_uint_t log_level; /* of the location that decided */
    ngx_uint_t headers;   /* enum stint_headers_style, of the location that decided */
    ngx_flag_t dry_run;
    ngx_http_stint_zone_t *held; /* for whose tokens it waits; NULL: for none */
    ngx_uint_t open;             /* unsigned open:1; what is in flight is still to be decided */
    ngx_uint_t settled;          /* unsigned settled:1; what was taken is what the response costs */
    ngx_uint_t in_flight;        /* unsigned in_flight:1; it counts until it ends */
    ngx_queue_t flying;          /* among those of its worker that do */
    ngx_http_request_t *request; /* whose it is: a main request's, or a mirror's */
    ngx_uint_t n;                /* of each of these arrays: rates, then what is in flight */
    struct stint_verdict *verdicts;
    struct stint_request *requests;
    ngx_http_stint_policy_t **policies;
    const ngx_http_stint_limit_t **limits;
} ngx_http_stint_ctx_t;

extern ngx_module_t ngx_http_stint_module;

/* The request by whose decision a request goes: the main request. A mirror of one that nothing was
 * decided on goes by its own: nobody waits for its response. */
ngx_http_request_t *ngx_http_stint_decided(ngx_http_request_t *r);

/* The decision on a request by the limits of a location, none of which is asked yet. It lives as
 * long as the main request. NULL: there is no memory. */
ngx_http_stint_ctx_t *ngx_http_stint_new_ctx(ngx_http_request_t *r,
                                             const ngx_http_stint_loc_conf_t *slcf);

/* The decision on such a request; NULL: none has been made. */
ngx_http_stint_ctx_t *ngx_http_stint_get_ctx(ngx_http_request_t *r);

/* Whether the request was refused. */
ngx_uint_t ngx_http_stint_refused(const ngx_http_stint_ctx_t *ctx);

/* Requests that wait in all workers. */
ngx_uint_t ngx_http_stint_held(const ngx_http_stint_zone_t *zone);

/* A worker starts, and has the place of one that is gone; it holds nothing. */
void ngx_http_stint_hold_start(ngx_http_stint_zone_t *zone);

/* It ends, whatever it holds. */
void ngx_http_stint_hold_stop(ngx_http_stint_zone_t *zone);

/* Marks a request as held for tokens of a zone. Returns NGX_OK; NGX_DECLINED if as many as may wait
 * there do so. */
ngx_int_t ngx_http_stint_hold_begin(ngx_http_stint_ctx_t *ctx, ngx_http_stint_zone_t *zone);

/* It waits no more. */
void ngx_http_stint_hold_end(ngx_http_stint_ctx_t *ctx);

/* The first limit after i that is of another zone. */
ngx_uint_t ngx_http_stint_zone_end(const ngx_http_stint_ctx_t *ctx, ngx_uint_t i);

/* Gives back what was taken for a request by the limits [i, end), which tell so. */
void ngx_http_stint_give_back(ngx_http_stint_ctx_t *ctx, ngx_uint_t i, ngx_uint_t end);

/* Whether a policy limits requests that are there at once; its kind. */
ngx_uint_t ngx_http_stint_is_in_flight(const ngx_http_stint_policy_t *policy);
ngx_uint_t ngx_http_stint_kind(const ngx_http_stint_policy_t *policy);
/* The most that a key of it can have. */
uint32_t ngx_http_stint_most(const struct stint_policy *policy);

/* Keeps in mind what a request, as it was decided, holds until it ends. */
void ngx_http_stint_fly(ngx_http_stint_ctx_t *ctx);

/* The worker ends, and with it the requests that it has. */
void ngx_http_stint_land_all(void);

/* Whether a message of that kind is due. If so, it counts as logged. */
ngx_uint_t ngx_http_stint_log_due(ngx_http_stint_zone_t *zone, ngx_http_stint_log_kind_t kind);

/* Logs a value that a request came with, escaped and cut, once a minute. */
void ngx_http_stint_log_value(ngx_http_request_t *r, ngx_http_stint_zone_t *zone,
                              ngx_http_stint_log_kind_t kind, ngx_uint_t level,
                              const ngx_str_t *value);

/* The name of the key that a limit has for a request: `text` is written if it is a network. Returns
 * NGX_OK, or NGX_ERROR. */
#define NGX_HTTP_STINT_NETWORK (NGX_SOCKADDR_STRLEN + sizeof("/128")) /* bytes */
ngx_int_t ngx_http_stint_name_key(ngx_http_request_t *r, const ngx_http_stint_limit_t *limit,
                                  u_char text[NGX_HTTP_STINT_NETWORK], ngx_str_t *name);

/* Leaves the name of a key that was refused, if the zone has room for labels. */
void ngx_http_stint_label(ngx_http_request_t *r, const ngx_http_stint_limit_t *limit,
                          stint_key key);

/* Logs how many refusals were left out, if any. */
void ngx_http_stint_log_left_out(void);

/* Logs the first refusal of the key of limit i, as its verdict is, and leaves the key's name. */
void ngx_http_stint_log_first(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx, ngx_uint_t i,
                              const struct stint_verdict *verdict);

/* Logs the first refusals among the verdicts from `from` on. Logs that the zone is full. */
void ngx_http_stint_log_decision(ngx_http_request_t *r, const ngx_http_stint_ctx_t *ctx,
                                 ngx_uint_t from);

/* Logs a parameter that is none, and what it is here if it is one of limit_req's. Returns
 * NGX_CONF_ERROR. */
char *ngx_http_stint_wrong_parameter(ngx_conf_t *cf, const ngx_str_t *value);

/* A reason of the library's in the words of the configuration. Returns `buffer`. */
#define NGX_HTTP_STINT_REASON 512 /* bytes */
char *ngx_http_stint_words(const char *reason, char buffer[NGX_HTTP_STINT_REASON]);

/* What a stint_limit asks for a request. Returns NGX_OK; NGX_DECLINED if the request is not limited
 * by it; NGX_ERROR. */
ngx_int_t ngx_http_stint_make_request(ngx_http_request_t *r, const ngx_http_stint_limit_t *limit,
                                      ngx_uint_t log_level, ngx_http_stint_policy_t **policy,
                                      struct stint_request *request);

/* The header of the response is known, or there is none: what was taken for a request becomes
 * what its limits say that the response costs. Once; not if it was refused here, nor while it is
 * held. */
void ngx_http_stint_settle(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx);

/* The request has ended: charges what is charged late. */
void ngx_http_stint_charge_late(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx);

/* Holds a request until its tokens by the limits from `from` on are there, or refuses it if that is
 * too long. It goes on with the handler after this one. Returns NGX_DECLINED if it need not wait;
 * NGX_AGAIN; NGX_BUSY if it is refused, and takes nothing; NGX_ERROR. */
ngx_int_t ngx_http_stint_hold(ngx_http_request_t *r, ngx_http_stint_ctx_t *ctx, ngx_uint_t from,
                              ngx_flag_t dry_run);

ngx_int_t ngx_http_stint_add_variables(ngx_conf_t *cf);
void ngx_http_stint_add_header_filter(void);
ngx_int_t ngx_http_stint_metrics_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_stint_status_handler(ngx_http_request_t *r);

/* ---- Zones ----------------------------------------------------------------------------------- */

/* Reserves the zone's memory. Returns NGX_CONF_OK, or NGX_CONF_ERROR and has logged why. */
char *ngx_http_stint_add_zone(ngx_conf_t *cf, ngx_http_stint_zone_t *zone);

/* Opens the table of a zone that is in a file. One that is too small becomes larger, if it can; one
 * that is too large stays so. Returns what stint_open does. */
int ngx_http_stint_open_file(ngx_http_stint_zone_t *zone, ngx_log_t *log);

/* Logs why it could not. */
void ngx_http_stint_log_open(const ngx_http_stint_zone_t *zone, ngx_log_t *log);

/* Looks whether a start would have its table, and makes and changes nothing. What a start would do
 * with the table's policies is done in a trial, which zone->limiter receives. */
ngx_int_t ngx_http_stint_look(ngx_http_stint_zone_t *zone, ngx_log_t *log);

/* Whether the zone's file can be made, if it is not there. */
char *ngx_http_stint_check_file(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone);

/* The directory of a file, NUL-terminated, and its name in there; NULL: there is no memory. */
char *ngx_http_stint_directory(ngx_conf_t *cf, const ngx_str_t *file, ngx_str_t *name);

/* Puts the policies of an accepted configuration in force. */
ngx_int_t ngx_http_stint_init_module(ngx_cycle_t *cycle);

/* A worker starts: it holds no requests. */
ngx_int_t ngx_http_stint_init_process(ngx_cycle_t *cycle);

/* A worker ends: it holds them no more. */
void ngx_http_stint_exit_process(ngx_cycle_t *cycle);

/* ---- Directives ------------------------------------------------------------------------------ */

extern ngx_command_t ngx_http_stint_commands[];
void *ngx_http_stint_create_main_conf(ngx_conf_t *cf);
char *ngx_http_stint_init_main_conf(ngx_conf_t *cf, void *conf);
void *ngx_http_stint_create_loc_conf(ngx_conf_t *cf);
char *ngx_http_stint_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child);
char *ngx_http_stint_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_stint_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

/* Another module by its name; NULL: nginx is without it. */
const ngx_module_t *ngx_http_stint_module_of(const ngx_conf_t *cf, const char *name);

/* The line that is being read. */
ngx_http_stint_place_t ngx_http_stint_here(const ngx_conf_t *cf);

ngx_uint_t ngx_http_stint_same(const ngx_str_t *one, const ngx_str_t *other);

/* Marks what is declared here. Returns NGX_CONF_OK, or NGX_CONF_ERROR if it was declared before. */
char *ngx_http_stint_declare(ngx_conf_t *cf, const char *what, const ngx_str_t *name,
                             ngx_http_stint_place_t *declared);

/* The zone of that name, new if it has not been named before; likewise its policy. */
ngx_http_stint_zone_t *ngx_http_stint_get_zone(ngx_conf_t *cf, const ngx_str_t *name);
ngx_http_stint_policy_t *ngx_http_stint_get_policy(ngx_conf_t *cf, ngx_http_stint_zone_t *zone,
                                                   const ngx_str_t *name);

/* Checks that everything that was named has been declared. */
ngx_int_t ngx_http_stint_check_names(ngx_conf_t *cf);

/* Then: checks all limits against their policies, and sets their kinds. */
ngx_int_t ngx_http_stint_check_limits(ngx_conf_t *cf);

#endif
