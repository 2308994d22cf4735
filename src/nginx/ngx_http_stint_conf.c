/* SPDX-License-Identifier: MIT
 * The directives, and what levels below inherit of them; stint_zone. */
#include <sys/stat.h>

#include "ngx_http_stint.h"

#define ZONE_POLICIES 64   /* policies of a zone, unless it says otherwise */
#define ZONE_HELD     1000 /* likewise, requests that it holds */
#define LABELS_MAX    (1 << 24)

static char *ngx_http_stint_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_stint_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_stint_status_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

static ngx_conf_enum_t ngx_http_stint_log_levels[] = {
    {ngx_string("info"), NGX_LOG_INFO},
    {ngx_string("notice"), NGX_LOG_NOTICE},
    {ngx_string("warn"), NGX_LOG_WARN},
    {ngx_string("error"), NGX_LOG_ERR},
    {ngx_null_string, 0},
};

static ngx_conf_enum_t ngx_http_stint_header_sets[] = {
    {ngx_string("off"), NGX_HTTP_STINT_HEADERS_OFF},
    {ngx_string("draft"), STINT_HEADERS_DRAFT},
    {ngx_string("legacy"), STINT_HEADERS_LEGACY},
    {ngx_string("both"), STINT_HEADERS_DRAFT | STINT_HEADERS_LEGACY},
    {ngx_null_string, 0},
};

static ngx_conf_enum_t ngx_http_stint_on_full[] = {
    {ngx_string("admit"), STINT_FULL_ADMIT},
    {ngx_string("refuse"), STINT_FULL_REFUSE},
    {ngx_string("replace"), STINT_FULL_REPLACE},
    {ngx_null_string, 0},
};

/* A load balancer takes 502 to 504 for a node that failed. */
static char *ngx_http_stint_check_status(ngx_conf_t *cf, void *post, void *data) {
    const ngx_int_t *status = data;

    if (*status >= NGX_HTTP_BAD_GATEWAY && *status <= NGX_HTTP_GATEWAY_TIME_OUT) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"stint_status %i\": a load balancer may take refusals for failures, "
                           "repeat them elsewhere and take out this server; 429 says what they are",
                           *status);
    }
    return ngx_conf_check_num_bounds(cf, post, data);
}

static ngx_conf_num_bounds_t ngx_http_stint_status_bounds = {ngx_http_stint_check_status, 400, 599};

/* As ngx_conf_set_enum_slot, whose error does not tell the words. */
static char *ngx_http_stint_word(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    char *wrong = ngx_conf_set_enum_slot(cf, cmd, conf);

    return wrong != NGX_CONF_ERROR                  ? wrong
           : cmd->post == ngx_http_stint_log_levels ? "takes info, notice, warn or error"
                                                    : "takes off, draft, legacy or both";
}

#define EVERYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)

ngx_command_t ngx_http_stint_commands[] = {
    {ngx_string("stint_zone"), NGX_HTTP_MAIN_CONF | NGX_CONF_1MORE, ngx_http_stint_zone,
     NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("stint_policy"), NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, ngx_http_stint_policy,
     NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("stint_limit"), EVERYWHERE | NGX_CONF_1MORE, ngx_http_stint_limit,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("stint_status"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_num_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, status_code),
     &ngx_http_stint_status_bounds},
    {ngx_string("stint_log_level"), EVERYWHERE | NGX_CONF_TAKE1, ngx_http_stint_word,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, log_level),
     &ngx_http_stint_log_levels},
    {ngx_string("stint_headers"), EVERYWHERE | NGX_CONF_TAKE1, ngx_http_stint_word,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, headers),
     &ngx_http_stint_header_sets},
    {ngx_string("stint_dry_run"), EVERYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, dry_run), NULL},
    {ngx_string("stint_metrics"), NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1, ngx_http_stint_metrics,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("stint_status_page"), NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1,
     ngx_http_stint_status_page, NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command,
};

void *ngx_http_stint_create_main_conf(ngx_conf_t *cf) {
    ngx_http_stint_main_conf_t *smcf = ngx_pcalloc(cf->pool, sizeof(*smcf));

    if (smcf == NULL ||
        ngx_array_init(&smcf->zones, cf->pool, 1, sizeof(ngx_http_stint_zone_t *)) != NGX_OK ||
        ngx_array_init(&smcf->limits, cf->pool, 4, sizeof(ngx_http_stint_limit_t *)) != NGX_OK) {
        return NULL;
    }
    return smcf;
}

/* All lines are read, and no level has inherited yet. */
char *ngx_http_stint_init_main_conf(ngx_conf_t *cf, void *conf) {
    return ngx_http_stint_check_names(cf) == NGX_OK && ngx_http_stint_check_limits(cf) == NGX_OK
               ? NGX_CONF_OK
               : NGX_CONF_ERROR;
}

void *ngx_http_stint_create_loc_conf(ngx_conf_t *cf) {
    ngx_http_stint_loc_conf_t *slcf = ngx_pcalloc(cf->pool, sizeof(*slcf));

    if (slcf == NULL ||
        ngx_array_init(&slcf->limits, cf->pool, 1, sizeof(ngx_http_stint_limit_t *)) != NGX_OK) {
        return NULL;
    }
    slcf->status_code = NGX_CONF_UNSET_UINT;
    slcf->log_level = NGX_CONF_UNSET_UINT;
    slcf->headers = NGX_CONF_UNSET_UINT;
    slcf->dry_run = NGX_CONF_UNSET;
    return slcf;
}

const ngx_module_t *ngx_http_stint_module_of(const ngx_conf_t *cf, const char *name) {
    ngx_module_t *const *module = cf->cycle->modules;

    while (*module != NULL && ngx_strcmp((*module)->name, name) != 0) {
        module++;
    }
    return *module;
}

/* Warns of a `return` that comes first in a location, so that nothing is decided there: once of a
 * limit, in however many locations it is. Named ones are error pages. What nginx's module has of a
 * location begins with its array of codes, and each code with its function. */
static void ngx_http_stint_warn_of_return(ngx_conf_t *cf, ngx_http_stint_limit_t *limit,
                                          ngx_uint_t inherited) {
    const ngx_module_t *module = ngx_http_stint_module_of(cf, "ngx_http_rewrite_module");
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_http_core_srv_conf_t *cscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_core_module);
    const ngx_http_conf_ctx_t *ctx = cf->ctx;
    ngx_array_t *const *codes = module == NULL ? NULL : ctx->loc_conf[module->ctx_index];

    if (codes != NULL && *codes != NULL && !limit->warned && !clcf->named &&
        *(ngx_http_script_code_pt *)(*codes)->elts == ngx_http_script_return_code) {
        limit->warned = 1;
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "the \"return\" of %s \"%V\" answers before \"stint_limit\" decides: "
                      "nothing is limited there%s, in %V:%ui",
                      clcf->name.len != 0 ? "location" : "server",
                      clcf->name.len != 0 ? &clcf->name : &cscf->server_name,
                      inherited ? " (\"stint_limit off\" says so)" : "", &limit->place.file,
                      limit->place.line);
    }
}

/* Directives of nginx's limits that change nothing here, their defaults, and what does. */
static const struct {
    const char *module;
    ngx_str_t name;
    ngx_uint_t usual;
    const char *here;
} ngx_http_stint_leftovers[] = {
    {"ngx_http_limit_req_module", ngx_string("limit_req_dry_run"), 0, "stint_dry_run"},
    {"ngx_http_limit_req_module", ngx_string("limit_req_status"), NGX_HTTP_SERVICE_UNAVAILABLE,
     "stint_status"},
    {"ngx_http_limit_conn_module", ngx_string("limit_conn_dry_run"), 0, "stint_dry_run"},
    {"ngx_http_limit_conn_module", ngx_string("limit_conn_status"), NGX_HTTP_SERVICE_UNAVAILABLE,
     "stint_status"},
};

#define LEFTOVERS (sizeof(ngx_http_stint_leftovers) / sizeof(ngx_http_stint_leftovers[0]))

/* Warns of those that stand where nginx's module has no limit, once of each. What it has of a
 * location begins with its array of limits, and its commands tell where the rest is. */
static void ngx_http_stint_warn_of_leftovers(ngx_conf_t *cf, const ngx_http_stint_limit_t *limit) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    const ngx_http_conf_ctx_t *ctx = cf->ctx;

    for (size_t i = 0; i < LEFTOVERS; i++) {
        const ngx_module_t *module =
            ngx_http_stint_module_of(cf, ngx_http_stint_leftovers[i].module);
        const u_char *theirs = module == NULL ? NULL : ctx->loc_conf[module->ctx_index];
        const ngx_str_t *name = &ngx_http_stint_leftovers[i].name;

        if (theirs == NULL || ((const ngx_array_t *)theirs)->elts != NULL ||
            (smcf->warned & 1u << i) != 0) {
            continue;
        }
        for (const ngx_command_t *command = module->commands; command->name.len != 0; command++) {
            if (ngx_http_stint_same(&command->name, name) &&
                *(const ngx_uint_t *)(theirs + command->offset) !=
                    ngx_http_stint_leftovers[i].usual) {
                smcf->warned |= 1u << i;
                ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                              "\"%V\" changes nothing here, where \"%s\" does, in %V:%ui", name,
                              ngx_http_stint_leftovers[i].here, &limit->place.file,
                              limit->place.line);
            }
        }
    }
}

/* Puts the limits of a zone one after another: a table decides all of its own at once. */
static void ngx_http_stint_group(const ngx_array_t *array) {
    ngx_http_stint_limit_t **limits = array->elts;

    for (ngx_uint_t i = 1; i < array->nelts; i++) {
        ngx_http_stint_limit_t *limit = limits[i];
        ngx_uint_t before = i;

        while (before > 0 && limits[before - 1]->zone != limit->zone) {
            before--;
        }
        if (before > 0) {
            ngx_memmove(&limits[before + 1], &limits[before], (i - before) * sizeof(limits[0]));
            limits[before] = limit;
        }
    }
}

/* The limits of a kind that a level does not have are those of the level above, as of limit_req and
 * limit_conn. */
static char *ngx_http_stint_inherit(ngx_conf_t *cf, const ngx_http_stint_loc_conf_t *prev,
                                    ngx_http_stint_loc_conf_t *conf) {
    ngx_http_stint_limit_t **above = prev->limits.elts, **own = conf->limits.elts, **pushed;
    const ngx_http_stint_limit_t *first = conf->limits.nelts != 0 ? own[0] : NULL;
    ngx_uint_t ended = conf->page != NULL ? NGX_HTTP_STINT_KINDS : conf->off;

    for (ngx_uint_t i = 0; i < conf->limits.nelts; i++) {
        ended |= own[i]->kind;
    }
    for (ngx_uint_t i = 0; i < prev->limits.nelts; i++) {
        if ((above[i]->kind & ~ended) == 0) {
            continue;
        }
        if (conf->limits.nelts == STINT_ALL_MAX) { /* so it has some of its own */
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "more than %d limits at one level with those that it inherits in %V:%ui",
                          STINT_ALL_MAX, &first->place.file, first->place.line);
            return NGX_CONF_ERROR;
        }
        pushed = ngx_array_push(&conf->limits);
        if (pushed == NULL) {
            return NGX_CONF_ERROR;
        }
        *pushed = above[i];
    }
    return NGX_CONF_OK;
}

char *ngx_http_stint_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child) {
    ngx_http_stint_loc_conf_t *prev = parent;
    ngx_http_stint_loc_conf_t *conf = child;
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_uint_t own = conf->limits.nelts;
    ngx_http_stint_limit_t **limits;

    if (ngx_http_stint_inherit(cf, prev, conf) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }
    if (conf->page == NULL && clcf->noname) { /* an "if", with the handler of its location */
        conf->page = prev->page;
    }
    ngx_http_stint_group(&conf->limits);
    limits = conf->limits.elts;
    if (conf->limits.nelts != 0) {
        ngx_http_stint_warn_of_return(cf, limits[0], own == 0);
        ngx_http_stint_warn_of_leftovers(cf, limits[0]);
    }
    ngx_conf_merge_uint_value(conf->status_code, prev->status_code, NGX_HTTP_TOO_MANY_REQUESTS);
    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_ERR);
    ngx_conf_merge_uint_value(conf->headers, prev->headers, NGX_HTTP_STINT_HEADERS_OFF);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);
    return NGX_CONF_OK;
}

/* ---- stint_zone ------------------------------------------------------------------------------ */

/* Names stand in metrics, JSON and logs. */
static ngx_uint_t ngx_http_stint_is_name(const ngx_str_t *name) {
    for (size_t i = 0; i < name->len; i++) {
        if (name->data[i] < 0x20 || name->data[i] > 0x7e) {
            return 0;
        }
    }
    return name->len != 0;
}

/* A number from 1 to `most`, with an optional k, m or g: 1000, 1000^2 or 1000^3, as everywhere in
 * stint. 0: it is none. */
static uint64_t ngx_http_stint_count(const ngx_str_t *text, uint64_t most) {
    size_t digits = text->len;
    uint64_t scale = 1;

    switch (digits == 0 ? 0 : text->data[digits - 1] | 0x20) {
    case 'g':
        scale *= 1000; /* fall through */
    case 'm':
        scale *= 1000; /* fall through */
    case 'k':
        scale *= 1000;
        digits--;
    }
    ngx_int_t number = ngx_atoi(text->data, digits);
    return number <= 0 || (uint64_t)number > most / scale ? 0 : (uint64_t)number * scale;
}

static char *ngx_http_stint_zone_entries(ngx_conf_t *cf, ngx_str_t *text,
                                         ngx_http_stint_zone_t *zone) {
    zone->options.max_entries = ngx_http_stint_count(text, STINT_ENTRIES_MAX);
    if (zone->options.max_entries == 0) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "invalid number of entries \"entries=%V\": it must be 1 to 2^40, with an "
            "optional k, m or g",
            text);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

static char *ngx_http_stint_zone_policies(ngx_conf_t *cf, ngx_str_t *text,
                                          ngx_http_stint_zone_t *zone) {
    ngx_int_t number = ngx_atoi(text->data, text->len);

    if (number <= 0 || number > (ngx_int_t)STINT_POLICIES_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number of policies \"policies=%V\": it must be 1 to %uD", text,
                           STINT_POLICIES_MAX);
        return NGX_CONF_ERROR;
    }
    zone->options.max_policies = (uint32_t)number;
    return NGX_CONF_OK;
}

static char *ngx_http_stint_zone_full(ngx_conf_t *cf, ngx_str_t *text,
                                      ngx_http_stint_zone_t *zone) {
    const ngx_conf_enum_t *outcome = ngx_http_stint_on_full;

    while (outcome->name.len != 0 && !ngx_http_stint_same(&outcome->name, text)) {
        outcome++;
    }
    if (outcome->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid parameter \"full=%V\": it must be full=admit, full=refuse or "
                           "full=replace",
                           text);
        return NGX_CONF_ERROR;
    }
    zone->options.on_full = (uint32_t)outcome->value;
    return NGX_CONF_OK;
}

static char *ngx_http_stint_zone_file(ngx_conf_t *cf, ngx_str_t *text,
                                      ngx_http_stint_zone_t *zone) {
    if (text->len == 0 || text->data[text->len - 1] == '/') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid file \"file=%V\": it must be the path of a file", text);
        return NGX_CONF_ERROR;
    }
    zone->file = *text;
    if (ngx_conf_full_name(cf->cycle, &zone->file, 0) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    zone->options.path = (char *)zone->file.data;
    return NGX_CONF_OK;
}

static char *ngx_http_stint_zone_held(ngx_conf_t *cf, ngx_str_t *text,
                                      ngx_http_stint_zone_t *zone) {
    ngx_int_t number = ngx_atoi(text->data, text->len);

    if (number <= 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number of requests \"held=%V\": it must be 1 or more", text);
        return NGX_CONF_ERROR;
    }
    zone->max_held = (ngx_uint_t)number;
    return NGX_CONF_OK;
}

static char *ngx_http_stint_zone_labels(ngx_conf_t *cf, ngx_str_t *text,
                                        ngx_http_stint_zone_t *zone) {
    zone->options.labels = (uint32_t)ngx_http_stint_count(text, LABELS_MAX);
    if (zone->options.labels == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid number of labels \"labels=%V\": it must be 1 to %d, with an "
                           "optional k or m",
                           text, LABELS_MAX);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

static const struct {
    ngx_str_t name;
    char *(*parse)(ngx_conf_t *cf, ngx_str_t *text, ngx_http_stint_zone_t *zone);
} ngx_http_stint_zone_parameters[] = {
    {ngx_string("entries="), ngx_http_stint_zone_entries},
    {ngx_string("policies="), ngx_http_stint_zone_policies},
    {ngx_string("full="), ngx_http_stint_zone_full},
    {ngx_string("file="), ngx_http_stint_zone_file},
    {ngx_string("held="), ngx_http_stint_zone_held},
    {ngx_string("labels="), ngx_http_stint_zone_labels},
};

#define ZONE_PARAMETERS                                                                            \
    (sizeof(ngx_http_stint_zone_parameters) / sizeof(ngx_http_stint_zone_parameters[0]))

static char *ngx_http_stint_zone_parameter(ngx_conf_t *cf, ngx_str_t *value, ngx_uint_t *seen,
                                           ngx_http_stint_zone_t *zone) {
    for (ngx_uint_t i = 0; i < ZONE_PARAMETERS; i++) {
        const ngx_str_t *name = &ngx_http_stint_zone_parameters[i].name;
        ngx_str_t text;

        if (value->len < name->len || ngx_memcmp(value->data, name->data, name->len) != 0 ||
            (*seen & 1u << i) != 0) {
            continue;
        }
        *seen |= 1u << i;
        text.data = value->data + name->len;
        text.len = value->len - name->len;
        return ngx_http_stint_zone_parameters[i].parse(cf, &text, zone);
    }
    return ngx_http_stint_wrong_parameter(cf, value);
}

/* Whether two files are the same, by whatever path: in one directory by one name, or there already.
 * 0 if there is no memory. */
static ngx_uint_t ngx_http_stint_same_file(ngx_conf_t *cf, const ngx_str_t *one,
                                           const ngx_str_t *other) {
    ngx_str_t name, other_name;
    const char *directory = ngx_http_stint_directory(cf, one, &name);
    const char *other_directory = ngx_http_stint_directory(cf, other, &other_name);
    ngx_uint_t same_name = ngx_http_stint_same(&name, &other_name);
    struct stat about, other_about;

    return directory != NULL && other_directory != NULL &&
           stat(same_name ? directory : (char *)one->data, &about) == 0 &&
           stat(same_name ? other_directory : (char *)other->data, &other_about) == 0 &&
           about.st_dev == other_about.st_dev && about.st_ino == other_about.st_ino;
}

/* Whether the file is this zone's alone. Each of two would change the policies of the other, and
 * undo that with each reload. */
static char *ngx_http_stint_check_alone(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    ngx_http_stint_zone_t **zones = smcf->zones.elts;

    for (ngx_uint_t i = 0; i < smcf->zones.nelts; i++) {
        if (zones[i] != zone && zones[i]->file.len != 0 &&
            ngx_http_stint_same_file(cf, &zones[i]->file, &zone->file)) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "stint zone \"%V\" has the file of the zone \"%V\" in %V:%ui: give "
                               "it one of its own",
                               &zone->name, &zones[i]->name, &zones[i]->declared.file,
                               zones[i]->declared.line);
            return NGX_CONF_ERROR;
        }
    }
    return NGX_CONF_OK;
}

/* stint_zone NAME entries=COUNT [policies=COUNT] [full=admit|refuse|replace] [file=PATH]
 *     [held=COUNT] [labels=COUNT] */
static char *ngx_http_stint_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_str_t *value = cf->args->elts;
    ngx_http_stint_zone_t *zone;
    ngx_uint_t seen = 0;

    if (!ngx_http_stint_is_name(&value[1])) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the name of a stint zone must be of printable ASCII characters");
        return NGX_CONF_ERROR;
    }
    zone = ngx_http_stint_get_zone(cf, &value[1]);
    if (zone == NULL ||
        ngx_http_stint_declare(cf, "stint zone", &value[1], &zone->declared) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }
    zone->options = (struct stint_options)STINT_OPTIONS_INIT;
    zone->options.max_policies = ZONE_POLICIES;
    zone->max_held = ZONE_HELD;
    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (ngx_http_stint_zone_parameter(cf, &value[i], &seen, zone) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }
    if (zone->options.max_entries == 0) {
        return "must say how many keys it holds, such as \"entries=100k\"";
    }
    if (zone->file.len != 0 && ngx_http_stint_check_alone(cf, zone) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }
    return ngx_http_stint_add_zone(cf, zone);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

/* A location that shows something of a zone. */
static char *ngx_http_stint_page(ngx_conf_t *cf, ngx_http_stint_loc_conf_t *slcf,
                                 ngx_http_handler_pt handler) {
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_str_t *value = cf->args->elts;

    if (slcf->page != NULL) {
        return "is duplicate, or beside another page of stint";
    }
    slcf->page = ngx_http_stint_get_zone(cf, &value[1]);
    if (slcf->page == NULL) {
        return NGX_CONF_ERROR;
    }
    clcf->handler = handler;
    return NGX_CONF_OK;
}

/* stint_metrics ZONE */
static char *ngx_http_stint_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    return ngx_http_stint_page(cf, conf, ngx_http_stint_metrics_handler);
}

/* stint_status_page ZONE */
static char *ngx_http_stint_status_page(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    return ngx_http_stint_page(cf, conf, ngx_http_stint_status_handler);
}
