/* SPDX-License-Identifier: MIT
 * stint_policy, and zones and policies by name. They may be named before they are declared, in any
 * file: what is missing is found at the end, and told with the line that names it. */
#include "ngx_http_stint.h"

#define NAMES_SHOWN 512                  /* bytes of names that a message lists */
#define POLICY_TEXT 256                  /* bytes; more than a policy is in the text notation */
#define SECOND      UINT64_C(1000000000) /* ns */

/* ---- Names ----------------------------------------------------------------------------------- */

ngx_http_stint_place_t ngx_http_stint_here(const ngx_conf_t *cf) {
    return (ngx_http_stint_place_t){cf->conf_file->file.name, cf->conf_file->line};
}

ngx_uint_t ngx_http_stint_same(const ngx_str_t *one, const ngx_str_t *other) {
    return one->len == other->len && ngx_memcmp(one->data, other->data, one->len) == 0;
}

char *ngx_http_stint_declare(ngx_conf_t *cf, const char *what, const ngx_str_t *name,
                             ngx_http_stint_place_t *declared) {
    if (declared->file.len != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%s \"%V\" is already declared in %V:%ui", what,
                           name, &declared->file, declared->line);
        return NGX_CONF_ERROR;
    }
    *declared = ngx_http_stint_here(cf);
    return NGX_CONF_OK;
}

ngx_http_stint_zone_t *ngx_http_stint_get_zone(ngx_conf_t *cf, const ngx_str_t *name) {
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

ngx_http_stint_policy_t *ngx_http_stint_get_policy(ngx_conf_t *cf, ngx_http_stint_zone_t *zone,
                                                   const ngx_str_t *name) {
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

/* ---- stint_policy ---------------------------------------------------------------------------- */

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

/* Names a policy that has no name by its rate. */
static void ngx_http_stint_name_by_rate(struct stint_policy *policy) {
    struct stint_policy rate = STINT_POLICY_INIT;

    if (policy->name[0] == '\0') {
        rate.limit = policy->limit;
        rate.window = policy->window;
        rate.calendar = policy->calendar;
        (void)stint_policy_format(&rate, policy->name, sizeof(policy->name));
    }
}

/* The name of a policy: its own, or its rate. */
static ngx_int_t ngx_http_stint_name(ngx_conf_t *cf, struct stint_policy *policy, ngx_str_t *name) {
    ngx_http_stint_name_by_rate(policy);
    name->len = ngx_strlen(policy->name);
    name->data = ngx_pnalloc(cf->pool, name->len);
    if (name->data == NULL) {
        return NGX_ERROR;
    }
    ngx_memcpy(name->data, policy->name, name->len);
    return NGX_OK;
}

/* Says what is wrong with a policy, and where. */
static void ngx_http_stint_log_wrong(ngx_conf_t *cf, const char *text, const char *wrong) {
    char reason[NGX_HTTP_STINT_REASON];

    (void)ngx_http_stint_words(stint_reason(), reason);
    if (wrong == text) { /* from its first letter on */
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid policy \"%s\": %s", text, reason);
    } else if (*wrong == '\0') {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid policy \"%s\": %s, at its end", text,
                           reason);
    } else {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid policy \"%s\": %s, at \"%s\"", text,
                           reason, wrong);
    }
}

/* stint_policy ZONE POLICY */
char *ngx_http_stint_policy(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_str_t *value = cf->args->elts, name;
    struct stint_policy parsed = STINT_POLICY_INIT;
    ngx_http_stint_policy_t *policy;
    ngx_http_stint_zone_t *zone;
    const char *wrong;
    char *text, note[NGX_HTTP_STINT_REASON];

    text = ngx_http_stint_join(cf, 2);
    if (text == NULL) {
        return NGX_CONF_ERROR;
    }
    if (stint_policy_parse(text, &parsed, &wrong) != 0) {
        if (ngx_strncmp(wrong, "rate=", 5) == 0 || ngx_strncmp(wrong, "nodelay", 7) == 0) {
            name = (ngx_str_t){ngx_strlen(wrong), (u_char *)wrong};
            return ngx_http_stint_wrong_parameter(cf, &name);
        }
        ngx_http_stint_log_wrong(cf, text, wrong);
        return NGX_CONF_ERROR;
    }
    if (stint_policy_note(&parsed, note, sizeof(note)) > 0) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0, "policy \"%s\": %s", text, note);
    }
    if ((parsed.flags & STINT_IN_FLIGHT) != 0 && parsed.window <= SECOND) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "policy \"%s\": a request that takes longer than its lease of %uL ms is "
                           "not counted any more: choose a longer one, such as %uD/1h",
                           text, parsed.window / (SECOND / 1000), parsed.limit);
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

/* ---- What is missing at the end -------------------------------------------------------------- */

/* Writes one more name of a list, as far as there is room. Returns its end. */
static u_char *ngx_http_stint_list(u_char *list, u_char *at, const ngx_str_t *name) {
    return ngx_slprintf(at, list + NAMES_SHOWN - 1, "%s\"%V\"", at == list ? "" : ", ", name);
}

static void ngx_http_stint_log_unknown_zone(ngx_conf_t *cf, const ngx_http_stint_zone_t *unknown) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    ngx_http_stint_zone_t **zones = smcf->zones.elts;
    u_char list[NAMES_SHOWN], *at = list;

    for (ngx_uint_t i = 0; i < smcf->zones.nelts; i++) {
        if (zones[i]->declared.file.len != 0) {
            at = ngx_http_stint_list(list, at, &zones[i]->name);
        }
    }
    *at = '\0';
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0, "unknown stint zone \"%V\" (there is %s) in %V:%ui",
                  &unknown->name, at == list ? (u_char *)"none" : list, &unknown->used.file,
                  unknown->used.line);
}

static void ngx_http_stint_log_unknown_policy(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone,
                                              const ngx_http_stint_policy_t *unknown) {
    ngx_http_stint_policy_t **policies = zone->policies.elts;
    u_char list[NAMES_SHOWN], *at = list;

    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->declared.file.len != 0) {
            at = ngx_http_stint_list(list, at, &policies[i]->name);
        }
    }
    *at = '\0';
    ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                  "unknown stint policy \"%V\" of zone \"%V\" (it has %s) in %V:%ui",
                  &unknown->name, &zone->name, at == list ? (u_char *)"none" : list,
                  &unknown->used.file, unknown->used.line);
}

/* Parses a rate that has neither a name nor options, and names it. Returns whether it is one. */
static ngx_uint_t ngx_http_stint_parse_rate(const char *text, struct stint_policy *rate) {
    char formatted[POLICY_TEXT];

    if (stint_policy_parse(text, rate, NULL) != 0 || rate->name[0] != '\0') {
        return 0;
    }
    (void)stint_policy_format(rate, formatted, sizeof(formatted));
    ngx_http_stint_name_by_rate(rate);
    return ngx_strcmp(formatted, rate->name) == 0;
}

/* A policy that is not declared by this name may be one that has its rate for a name, which can be
 * written in several ways. Options would not be heeded, so there must be none. */
static ngx_int_t ngx_http_stint_find_same(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone,
                                          ngx_http_stint_policy_t *policy) {
    ngx_http_stint_policy_t **policies = zone->policies.elts;
    struct stint_policy parsed = STINT_POLICY_INIT;
    char *text = ngx_pnalloc(cf->temp_pool, policy->name.len + 1);
    ngx_str_t name;

    if (text == NULL) {
        return NGX_ERROR;
    }
    (void)ngx_cpystrn((u_char *)text, policy->name.data, policy->name.len + 1);
    if (ngx_http_stint_parse_rate(text, &parsed)) {
        name.data = (u_char *)parsed.name;
        name.len = ngx_strlen(parsed.name);
        for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
            if (policies[i]->declared.file.len != 0 &&
                ngx_http_stint_same(&policies[i]->name, &name)) {
                *policy = *policies[i];
                policy->same = policies[i];
                return NGX_OK;
            }
        }
    }
    ngx_http_stint_log_unknown_policy(cf, zone, policy);
    return NGX_ERROR;
}

/* Overrides are set by the command, which cannot come to memory of nginx's own. */
static void ngx_http_stint_check_overrides(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone,
                                           const ngx_http_stint_policy_t *policy) {
    if (zone->file.len == 0 && policy->policy.ban == 0) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "policy \"%V\" has \"overrides\", but none can be set in the zone \"%V\", "
                      "which has no \"file\", in %V:%ui",
                      &policy->name, &zone->name, &policy->declared.file, policy->declared.line);
    }
}

/* What is declared and never comes to pass. */
static void ngx_http_stint_check_idle(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone) {
    ngx_http_stint_policy_t **policies = zone->policies.elts;

    if (!zone->limits) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "no \"stint_limit\" goes by the zone \"%V\", so it limits nothing, in %V:%ui",
                      &zone->name, &zone->declared.file, zone->declared.line);
        return;
    }
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->policy.max_reserved != 0 && !policies[i]->delays && !zone->delays) {
            ngx_log_error(
                NGX_LOG_WARN, cf->log, 0,
                "policy \"%V\" has \"reserve=\", but no \"stint_limit\" by it has \"delay\": "
                "nothing is held, in %V:%ui",
                &policies[i]->name, &policies[i]->declared.file, policies[i]->declared.line);
        }
    }
}

static ngx_int_t ngx_http_stint_check_zone(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone) {
    ngx_http_stint_policy_t **policies = zone->policies.elts;
    ngx_uint_t count = 0, twice = 0;

    if (zone->declared.file.len == 0) {
        ngx_http_stint_log_unknown_zone(cf, zone);
        return NGX_ERROR;
    }
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->declared.file.len == 0 &&
            ngx_http_stint_find_same(cf, zone, policies[i]) != NGX_OK) {
            return NGX_ERROR;
        }
        if (policies[i]->same == NULL) {
            ngx_uint_t overrides = (policies[i]->policy.flags & STINT_OVERRIDES) != 0;

            count += 1 + overrides;
            twice |= overrides;
            if (overrides) {
                ngx_http_stint_check_overrides(cf, zone, policies[i]);
            }
        }
    }
    for (ngx_uint_t i = zone->policies.nelts; count > zone->options.max_policies && i-- != 0;) {
        if (policies[i]->same == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "stint zone \"%V\" has room for %uD policies: \"policies=%ui\" is needed "
                          "for \"%V\"%s in %V:%ui",
                          &zone->name, zone->options.max_policies, count, &policies[i]->name,
                          twice ? ", as those with a ban or overrides count twice," : "",
                          &policies[i]->declared.file, policies[i]->declared.line);
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

ngx_int_t ngx_http_stint_check_names(ngx_conf_t *cf) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    ngx_http_stint_zone_t **zones = smcf->zones.elts;

    for (ngx_uint_t i = 0; i < smcf->zones.nelts; i++) {
        if (ngx_http_stint_check_zone(cf, zones[i]) != NGX_OK) {
            return NGX_ERROR;
        }
        ngx_http_stint_check_idle(cf, zones[i]);
    }
    return NGX_OK;
}
