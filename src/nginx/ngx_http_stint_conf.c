/* SPDX-License-Identifier: MIT
 * Configuration -> zones, policies and limits. Zones and policies may be named before they are
 * declared, in any file: what is missing is found at the end, and told with the line that names
 * it. */
#include "ngx_http_stint.h"

#define ZONE_POLICIES 64 /* policies of a zone, unless it says otherwise */

static char *ngx_http_stint_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_stint_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_stint_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
static char *ngx_http_stint_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

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
    {ngx_string("full=admit"), STINT_FULL_ADMIT},
    {ngx_string("full=refuse"), STINT_FULL_REFUSE},
    {ngx_string("full=replace"), STINT_FULL_REPLACE},
    {ngx_null_string, 0},
};

static ngx_conf_num_bounds_t ngx_http_stint_status_bounds = {ngx_conf_check_num_bounds, 400, 599};

#define EVERYWHERE (NGX_HTTP_MAIN_CONF | NGX_HTTP_SRV_CONF | NGX_HTTP_LOC_CONF)

ngx_command_t ngx_http_stint_commands[] = {
    {ngx_string("stint_zone"),
     NGX_HTTP_MAIN_CONF | NGX_CONF_TAKE2 | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, ngx_http_stint_zone,
     NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("stint_policy"), NGX_HTTP_MAIN_CONF | NGX_CONF_2MORE, ngx_http_stint_policy,
     NGX_HTTP_MAIN_CONF_OFFSET, 0, NULL},
    {ngx_string("stint_limit"), EVERYWHERE | NGX_CONF_TAKE3 | NGX_CONF_TAKE4, ngx_http_stint_limit,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    {ngx_string("stint_status"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_num_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, status_code),
     &ngx_http_stint_status_bounds},
    {ngx_string("stint_log_level"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, log_level),
     &ngx_http_stint_log_levels},
    {ngx_string("stint_headers"), EVERYWHERE | NGX_CONF_TAKE1, ngx_conf_set_enum_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, headers),
     &ngx_http_stint_header_sets},
    {ngx_string("stint_dry_run"), EVERYWHERE | NGX_CONF_FLAG, ngx_conf_set_flag_slot,
     NGX_HTTP_LOC_CONF_OFFSET, offsetof(ngx_http_stint_loc_conf_t, dry_run), NULL},
    {ngx_string("stint_metrics"), NGX_HTTP_LOC_CONF | NGX_CONF_TAKE1, ngx_http_stint_metrics,
     NGX_HTTP_LOC_CONF_OFFSET, 0, NULL},
    ngx_null_command,
};

void *ngx_http_stint_create_main_conf(ngx_conf_t *cf) {
    ngx_http_stint_main_conf_t *smcf = ngx_pcalloc(cf->pool, sizeof(*smcf));

    if (smcf == NULL ||
        ngx_array_init(&smcf->zones, cf->pool, 1, sizeof(ngx_http_stint_zone_t *)) != NGX_OK) {
        return NULL;
    }
    return smcf;
}

void *ngx_http_stint_create_loc_conf(ngx_conf_t *cf) {
    ngx_http_stint_loc_conf_t *slcf = ngx_pcalloc(cf->pool, sizeof(*slcf));

    if (slcf == NULL) {
        return NULL;
    }
    slcf->status_code = NGX_CONF_UNSET_UINT;
    slcf->log_level = NGX_CONF_UNSET_UINT;
    slcf->headers = NGX_CONF_UNSET_UINT;
    slcf->dry_run = NGX_CONF_UNSET;
    return slcf;
}

char *ngx_http_stint_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child) {
    ngx_http_stint_loc_conf_t *prev = parent;
    ngx_http_stint_loc_conf_t *conf = child;

    if (conf->limits.elts == NULL) {
        conf->limits = prev->limits;
        conf->zone = prev->zone;
    }
    ngx_conf_merge_uint_value(conf->status_code, prev->status_code, NGX_HTTP_TOO_MANY_REQUESTS);
    ngx_conf_merge_uint_value(conf->log_level, prev->log_level, NGX_LOG_ERR);
    ngx_conf_merge_uint_value(conf->headers, prev->headers, NGX_HTTP_STINT_HEADERS_OFF);
    ngx_conf_merge_value(conf->dry_run, prev->dry_run, 0);
    return NGX_CONF_OK;
}

static ngx_http_stint_place_t ngx_http_stint_here(const ngx_conf_t *cf) {
    return (ngx_http_stint_place_t){cf->conf_file->file.name, cf->conf_file->line};
}

static ngx_uint_t ngx_http_stint_same(const ngx_str_t *one, const ngx_str_t *other) {
    return one->len == other->len && ngx_memcmp(one->data, other->data, one->len) == 0;
}

/* Marks what is declared here. Returns NGX_CONF_OK, or NGX_CONF_ERROR if it was declared before. */
static char *ngx_http_stint_declare(ngx_conf_t *cf, const char *what, const ngx_str_t *name,
                                    ngx_http_stint_place_t *declared) {
    if (declared->file.len != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s \"%V\" is already declared in %V:%ui", what,
                           name, &declared->file, declared->line);
        return NGX_CONF_ERROR;
    }
    *declared = ngx_http_stint_here(cf);
    return NGX_CONF_OK;
}

/* The zone of that name, new if it has not been named before. */
static ngx_http_stint_zone_t *ngx_http_stint_get_zone(ngx_conf_t *cf, const ngx_str_t *name) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    ngx_http_stint_zone_t **zones = smcf->zones.elts, *zone;

    for (ngx_uint_t i = 0; i < smcf->zones.nelts; i++) {
        if (ngx_http_stint_same(&zones[i]->name, name)) {
            return zones[i];
        }
    }
    zone = ngx_pcalloc(cf->pool, sizeof(*zone));
    zones = ngx_array_push(&smcf->zones);
    if (zone == NULL || zones == NULL ||
        ngx_array_init(&zone->policies, cf->pool, 4, sizeof(ngx_http_stint_policy_t *)) != NGX_OK) {
        return NULL;
    }
    *zones = zone;
    zone->name = *name;
    zone->used = ngx_http_stint_here(cf);
    return zone;
}

/* The policy of that name, new if it has not been named before. */
static ngx_http_stint_policy_t *
ngx_http_stint_get_policy(ngx_conf_t *cf, ngx_http_stint_zone_t *zone, const ngx_str_t *name) {
    ngx_http_stint_policy_t **policies = zone->policies.elts, *policy;

    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (ngx_http_stint_same(&policies[i]->name, name)) {
            return policies[i];
        }
    }
    policy = ngx_pcalloc(cf->pool, sizeof(*policy));
    policies = ngx_array_push(&zone->policies);
    if (policy == NULL || policies == NULL) {
        return NULL;
    }
    *policies = policy;
    policy->name = *name;
    policy->used = ngx_http_stint_here(cf);
    return policy;
}

/* stint_zone NAME keys=COUNT [policies=COUNT] [full=admit|refuse|replace] */
static char *ngx_http_stint_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_str_t *value = cf->args->elts, s;
    ngx_http_stint_zone_t *zone;
    ngx_uint_t seen_full = 0;
    off_t number;

    if (value[1].len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "the name of the stint zone is empty");
        return NGX_CONF_ERROR;
    }
    zone = ngx_http_stint_get_zone(cf, &value[1]);
    if (zone == NULL ||
        ngx_http_stint_declare(cf, "stint zone", &value[1], &zone->declared) != NGX_CONF_OK) {
        return NGX_CONF_ERROR;
    }
    zone->options = (struct stint_options)STINT_OPTIONS_INIT;

    for (ngx_uint_t i = 2; i < cf->args->nelts; i++) {
        if (ngx_strncmp(value[i].data, "keys=", 5) == 0 && zone->options.max_keys == 0) {
            s = (ngx_str_t){value[i].len - 5, value[i].data + 5};
            number = ngx_parse_offset(&s);
            if (number <= 0 || (uint64_t)number > STINT_KEYS_MAX) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid number of keys \"%V\": it must be 1 to 2^40, with an "
                                   "optional k, m or g",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }
            zone->options.max_keys = (uint64_t)number;
            continue;
        }
        if (ngx_strncmp(value[i].data, "policies=", 9) == 0 && zone->options.max_policies == 0) {
            number = ngx_atoi(value[i].data + 9, value[i].len - 9);
            if (number <= 0 || number > STINT_POLICIES_MAX) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid number of policies \"%V\": it must be 1 to %uD",
                                   &value[i], STINT_POLICIES_MAX);
                return NGX_CONF_ERROR;
            }
            zone->options.max_policies = (uint32_t)number;
            continue;
        }
        if (ngx_strncmp(value[i].data, "full=", 5) == 0 && !seen_full) {
            ngx_conf_enum_t *outcome = ngx_http_stint_on_full;
            while (outcome->name.len != 0 && !ngx_http_stint_same(&outcome->name, &value[i])) {
                outcome++;
            }
            if (outcome->name.len == 0) {
                ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                                   "invalid parameter \"%V\": it must be full=admit, full=refuse "
                                   "or full=replace",
                                   &value[i]);
                return NGX_CONF_ERROR;
            }
            zone->options.on_full = (uint32_t)outcome->value;
            seen_full = 1;
            continue;
        }
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", &value[i]);
        return NGX_CONF_ERROR;
    }

    if (zone->options.max_keys == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" must have \"keys\" parameter", &cmd->name);
        return NGX_CONF_ERROR;
    }
    if (zone->options.max_policies == 0) {
        zone->options.max_policies = ZONE_POLICIES;
    }
    return ngx_http_stint_add_zone(cf, zone);
}

/* The arguments from `from` on as one text: quotes around a policy are optional. */
static char *ngx_http_stint_join(ngx_conf_t *cf, ngx_uint_t from) {
    ngx_str_t *value = cf->args->elts;
    size_t size = 0;
    u_char *text, *at;

    for (ngx_uint_t i = from; i < cf->args->nelts; i++) {
        size += value[i].len + 1;
    }
    text = ngx_pnalloc(cf->pool, size);
    if (text == NULL) {
        return NULL;
    }
    at = text;
    for (ngx_uint_t i = from; i < cf->args->nelts; i++) {
        at = ngx_cpymem(at, value[i].data, value[i].len);
        *at++ = i + 1 < cf->args->nelts ? ' ' : '\0';
    }
    return (char *)text;
}

/* The name of a policy: its own, or its rate. */
static ngx_int_t ngx_http_stint_name(ngx_conf_t *cf, struct stint_policy *policy, ngx_str_t *name) {
    if (policy->name[0] == '\0') {
        struct stint_policy rate = STINT_POLICY_INIT;

        rate.limit = policy->limit;
        rate.window = policy->window;
        rate.calendar = policy->calendar;
        (void)stint_policy_format(&rate, policy->name, sizeof(policy->name));
    }
    name->len = ngx_strlen(policy->name);
    name->data = ngx_pnalloc(cf->pool, name->len);
    if (name->data == NULL) {
        return NGX_ERROR;
    }
    ngx_memcpy(name->data, policy->name, name->len);
    return NGX_OK;
}

/* stint_policy ZONE POLICY */
static char *ngx_http_stint_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_str_t *value = cf->args->elts, name;
    struct stint_policy parsed = STINT_POLICY_INIT;
    ngx_http_stint_policy_t *policy;
    ngx_http_stint_zone_t *zone;
    const char *wrong;
    char *text;

    text = ngx_http_stint_join(cf, 2);
    if (text == NULL) {
        return NGX_CONF_ERROR;
    }
    if (stint_policy_parse(text, &parsed, &wrong) != 0) {
        if (*wrong == '\0') {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid policy \"%s\": %s, at its end", text,
                               stint_reason());
        } else {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid policy \"%s\": %s, at character %uz: \"%s\"", text,
                               stint_reason(), (size_t)(wrong - text) + 1, wrong);
        }
        return NGX_CONF_ERROR;
    }
    zone = ngx_http_stint_get_zone(cf, &value[1]);
    if (zone == NULL || ngx_http_stint_name(cf, &parsed, &name) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    policy = ngx_http_stint_get_policy(cf, zone, &name);
    if (policy == NULL) {
        return NGX_CONF_ERROR;
    }
    policy->policy = parsed;
    return ngx_http_stint_declare(cf, "stint policy", &name, &policy->declared);
}

/* A complex value that tells when it has no variables: then [text] is all that it ever is. */
static ngx_int_t ngx_http_stint_compile(ngx_conf_t *cf, ngx_str_t *text,
                                        ngx_http_complex_value_t *value) {
    ngx_http_compile_complex_value_t ccv;

    ngx_memzero(&ccv, sizeof(ccv));
    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = value;
    return ngx_http_compile_complex_value(&ccv);
}

/* cost=VALUE, a number or what has variables. Returns NGX_OK, or NGX_ERROR and has logged why. */
static ngx_int_t ngx_http_stint_parse_cost(ngx_conf_t *cf, ngx_str_t *value,
                                           ngx_http_stint_limit_t *limit) {
    ngx_str_t text;
    ngx_int_t number;

    if (ngx_strncmp(value->data, "cost=", 5) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"", value);
        return NGX_ERROR;
    }
    text = (ngx_str_t){value->len - 5, value->data + 5};
    limit->cost = ngx_palloc(cf->pool, sizeof(*limit->cost));
    if (limit->cost == NULL || ngx_http_stint_compile(cf, &text, limit->cost) != NGX_OK) {
        return NGX_ERROR;
    }
    number = ngx_atoi(text.data, text.len);
    if (limit->cost->lengths == NULL && (number == NGX_ERROR || number > STINT_LIMIT_MAX)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid cost \"%V\": it must be 0 to %uD, or have variables", value,
                           STINT_LIMIT_MAX);
        return NGX_ERROR;
    }
    return NGX_OK;
}

/* stint_limit ZONE POLICY KEY [cost=VALUE] */
static char *ngx_http_stint_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_http_stint_loc_conf_t *slcf = conf;
    ngx_str_t *value = cf->args->elts;
    ngx_http_stint_zone_t *zone = ngx_http_stint_get_zone(cf, &value[1]);
    ngx_http_stint_policy_t *policy;
    ngx_http_stint_limit_t *limit;

    if (zone == NULL) {
        return NGX_CONF_ERROR;
    }
    if (slcf->limits.elts == NULL &&
        ngx_array_init(&slcf->limits, cf->pool, 2, sizeof(*limit)) != NGX_OK) {
        return NGX_CONF_ERROR;
    }
    /* They are decided as one, which takes one table. */
    if (slcf->zone != NULL && slcf->zone != zone) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the limits of one level must be of one zone: \"%V\" after \"%V\"",
                           &zone->name, &slcf->zone->name);
        return NGX_CONF_ERROR;
    }
    if (slcf->limits.nelts == STINT_ALL_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "more than %d limits at one level", STINT_ALL_MAX);
        return NGX_CONF_ERROR;
    }
    policy = ngx_http_stint_get_policy(cf, zone, &value[2]);
    if (policy == NULL) {
        return NGX_CONF_ERROR;
    }
    limit = slcf->limits.elts;
    for (ngx_uint_t i = 0; i < slcf->limits.nelts; i++) {
        if (limit[i].policy == policy && ngx_http_stint_same(&limit[i].key.value, &value[3])) {
            return "is duplicate";
        }
    }
    limit = ngx_array_push(&slcf->limits);
    if (limit == NULL) {
        return NGX_CONF_ERROR;
    }
    ngx_memzero(limit, sizeof(*limit));
    if (ngx_http_stint_compile(cf, &value[3], &limit->key) != NGX_OK ||
        (cf->args->nelts == 5 && ngx_http_stint_parse_cost(cf, &value[4], limit) != NGX_OK)) {
        return NGX_CONF_ERROR;
    }
    limit->policy = policy;
    slcf->zone = zone;
    return NGX_CONF_OK;
}

/* stint_metrics ZONE */
static char *ngx_http_stint_metrics(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_http_stint_loc_conf_t *slcf = conf;
    ngx_http_core_loc_conf_t *clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ngx_str_t *value = cf->args->elts;

    if (slcf->metrics != NULL) {
        return "is duplicate";
    }
    slcf->metrics = ngx_http_stint_get_zone(cf, &value[1]);
    if (slcf->metrics == NULL) {
        return NGX_CONF_ERROR;
    }
    clcf->handler = ngx_http_stint_metrics_handler;
    return NGX_CONF_OK;
}

static ngx_int_t ngx_http_stint_check_zone(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone) {
    ngx_http_stint_policy_t **policies = zone->policies.elts;

    if (zone->declared.file.len == 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "unknown stint zone \"%V\" in %V:%ui", &zone->name,
                      &zone->used.file, zone->used.line);
        return NGX_ERROR;
    }
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->declared.file.len == 0) {
            ngx_log_error(
                NGX_LOG_EMERG, cf->log, 0, "unknown stint policy \"%V\" of zone \"%V\" in %V:%ui",
                &policies[i]->name, &zone->name, &policies[i]->used.file, policies[i]->used.line);
            return NGX_ERROR;
        }
        if (i == zone->options.max_policies) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "stint zone \"%V\" has room for %uD policies: \"policies=%ui\" is needed "
                          "for \"%V\" in %V:%ui",
                          &zone->name, zone->options.max_policies, zone->policies.nelts,
                          &policies[i]->name, &policies[i]->declared.file,
                          policies[i]->declared.line);
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

ngx_int_t ngx_http_stint_check_conf(ngx_conf_t *cf) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    ngx_http_stint_zone_t **zones = smcf->zones.elts;

    for (ngx_uint_t i = 0; i < smcf->zones.nelts; i++) {
        if (ngx_http_stint_check_zone(cf, zones[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}
