/* SPDX-License-Identifier: MIT
 * stint_limit. */
#include <ctype.h>

#include "ngx_http_stint.h"

/* stint_limit's parameters after its key, by what they begin with. */
typedef enum {
    PARAMETER_COST,
    PARAMETER_CHARGE,
    PARAMETER_LIMIT,
    PARAMETER_BURST,
    PARAMETER_PREFIX,
    PARAMETER_DEFAULT,
    PARAMETER_DELAY,      /* delay=TIME */
    PARAMETER_DELAY_ELSE, /* delay */
    PARAMETER_LATE,
    PARAMETERS
} ngx_http_stint_parameter_t;

static const ngx_str_t ngx_http_stint_parameters[PARAMETERS] = {
    [PARAMETER_COST] = ngx_string("cost="),     [PARAMETER_CHARGE] = ngx_string("charge="),
    [PARAMETER_LIMIT] = ngx_string("limit="),   [PARAMETER_BURST] = ngx_string("burst="),
    [PARAMETER_PREFIX] = ngx_string("prefix="), [PARAMETER_DEFAULT] = ngx_string("default="),
    [PARAMETER_DELAY] = ngx_string("delay="),   [PARAMETER_DELAY_ELSE] = ngx_string("delay"),
    [PARAMETER_LATE] = ngx_string("late"),
};

/* A new complex value, or NULL. */
static ngx_http_complex_value_t *ngx_http_stint_compile(ngx_conf_t *cf, ngx_str_t *text) {
    ngx_http_compile_complex_value_t ccv;

    ngx_memzero(&ccv, sizeof(ccv));
    ccv.cf = cf;
    ccv.value = text;
    ccv.complex_value = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (ccv.complex_value == NULL || ngx_http_compile_complex_value(&ccv) != NGX_OK) {
        return NULL;
    }
    return ccv.complex_value;
}

/* A number from `least` on, or what has variables. Without any it is the same for all requests. */
static char *ngx_http_stint_parse_number(ngx_conf_t *cf, const char *what, uint32_t least,
                                         ngx_str_t *text, ngx_http_stint_number_t *number) {
    ngx_int_t fixed = ngx_atoi(text->data, text->len);

    if (ngx_http_script_variables_count(text) != 0) {
        number->value = ngx_http_stint_compile(cf, text);
        return number->value == NULL ? NGX_CONF_ERROR : NGX_CONF_OK;
    }
    if (fixed < (ngx_int_t)least || fixed > (ngx_int_t)STINT_LIMIT_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid %s \"%s=%V\": it must be %uD to %uD, or have variables", what,
                           what, text, least, STINT_LIMIT_MAX);
        return NGX_CONF_ERROR;
    }
    number->otherwise = (uint32_t)fixed;
    return NGX_CONF_OK;
}

static const ngx_str_t ngx_http_stint_text_address = ngx_string("$remote_addr");
static const ngx_str_t ngx_http_stint_binary_address = ngx_string("$binary_remote_addr");

/* nginx's variables that are addresses, as texts. Its others are none. */
static const ngx_str_t ngx_http_stint_addresses[] = {
    ngx_string("remote_addr"),         ngx_string("realip_remote_addr"),
    ngx_string("proxy_protocol_addr"), ngx_string("proxy_protocol_server_addr"),
    ngx_string("server_addr"),         ngx_string("http_x_forwarded_for"),
};

/* A variable of nginx or of a line before; NULL: there is none of that name. */
static const ngx_http_variable_t *ngx_http_stint_find_variable(ngx_conf_t *cf,
                                                               const ngx_str_t *name) {
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    const ngx_hash_key_t *known = cmcf->variables_keys->keys.elts;

    for (ngx_uint_t i = 0; i < cmcf->variables_keys->keys.nelts; i++) {
        if (ngx_http_stint_same(name, &known[i].key)) {
            return known[i].value;
        }
    }
    return NULL;
}

/* Whether a variable may be an address: one of those, or one that the configuration (map, geo, set)
 * or the request makes. */
static ngx_uint_t ngx_http_stint_may_be_address(ngx_conf_t *cf, const ngx_str_t *name) {
    const ngx_http_variable_t *variable = ngx_http_stint_find_variable(cf, name);

    for (size_t i = 0; i < sizeof(ngx_http_stint_addresses) / sizeof(*name); i++) {
        if (ngx_http_stint_same(name, &ngx_http_stint_addresses[i])) {
            return 1;
        }
    }
    return variable == NULL || (variable->flags & NGX_HTTP_VAR_CHANGEABLE) != 0;
}

/* Whether a key may be an address: its variables may be, and its text is digits, dots, colons. */
static ngx_uint_t ngx_http_stint_key_may_be_address(ngx_conf_t *cf, const ngx_str_t *key) {
    size_t i = 0;

    while (i < key->len) {
        u_char c = key->data[i++];
        ngx_str_t name;

        if (c != '$') {
            if (!isxdigit(c) && c != '.' && c != ':') {
                return 0;
            }
            continue;
        }
        i += key->data[i] == '{';
        name.data = key->data + i;
        while (i < key->len && (isalnum(key->data[i]) || key->data[i] == '_')) {
            i++;
        }
        name.len = (size_t)(key->data + i - name.data);
        i += i < key->len && key->data[i] == '}';
        if (!ngx_http_stint_may_be_address(cf, &name)) {
            return 0;
        }
    }
    return 1;
}

/* prefix=IPV4[,IPV6] */
static char *ngx_http_stint_parse_prefix(ngx_conf_t *cf, const ngx_str_t *text,
                                         ngx_http_stint_limit_t *limit) {
    u_char *end = text->data + text->len;
    u_char *comma = ngx_strlchr(text->data, end, ',');
    u_char *end4 = comma == NULL ? end : comma;
    ngx_int_t prefix4 = ngx_atoi(text->data, (size_t)(end4 - text->data));
    ngx_int_t prefix6 = comma == NULL ? 64 : ngx_atoi(comma + 1, (size_t)(end - comma) - 1);

    if (prefix4 < 1 || prefix4 > 32 || prefix6 < 1 || prefix6 > 128) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid prefix \"prefix=%V\": it must be 1 to 32 bits of an IPv4 "
                           "address, then a comma and 1 to 128 bits of an IPv6 address",
                           text);
        return NGX_CONF_ERROR;
    }
    if (limit->key_kind != NGX_HTTP_STINT_KEY_BINARY &&
        !ngx_http_stint_key_may_be_address(cf, &limit->key->value)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"prefix=%V\" needs a key that is an address, and \"%V\" is none: all "
                           "requests would be one key",
                           text, &limit->key->value);
        return NGX_CONF_ERROR;
    }
    limit->prefix4 = (unsigned)prefix4;
    limit->prefix6 = (unsigned)prefix6;
    limit->key_kind = limit->key_kind == NGX_HTTP_STINT_KEY_BINARY ||
                              ngx_http_stint_same(&limit->key->value, &ngx_http_stint_text_address)
                          ? NGX_HTTP_STINT_KEY_CLIENT
                          : NGX_HTTP_STINT_KEY_ADDRESS;
    return NGX_CONF_OK;
}

static char *ngx_http_stint_parse_default(ngx_conf_t *cf, ngx_http_stint_zone_t *zone,
                                          ngx_str_t *text, ngx_http_stint_limit_t *limit) {
    if (limit->plan == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"default=%V\" goes with a policy that is a variable only", text);
        return NGX_CONF_ERROR;
    }
    limit->policy = ngx_http_stint_get_policy(cf, zone, text);
    return limit->policy == NULL ? NGX_CONF_ERROR : NGX_CONF_OK;
}

/* delay=TIME */
static char *ngx_http_stint_parse_delay(ngx_conf_t *cf, ngx_str_t *text,
                                        ngx_http_stint_limit_t *limit) {
    ngx_int_t delay = ngx_parse_time(text, 0);

    if (delay == NGX_ERROR || delay == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid delay \"delay=%V\": it must be a time, such as 5s or 500ms",
                           text);
        return NGX_CONF_ERROR;
    }
    if (isdigit(text->data[text->len - 1])) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"delay=%V\" is a time, and without a unit in ms; in limit_req it is a "
                           "number of requests, which is here the policy's \"burst=\"",
                           text);
    }
    limit->max_delay = (ngx_msec_t)delay;
    return NGX_CONF_OK;
}

static char *ngx_http_stint_parse_parameter(ngx_conf_t *cf, ngx_http_stint_zone_t *zone,
                                            ngx_str_t *value, ngx_uint_t *seen,
                                            ngx_http_stint_limit_t *limit) {
    ngx_uint_t i = 0;
    ngx_str_t text;

    while (i < PARAMETERS && (value->len < ngx_http_stint_parameters[i].len ||
                              ngx_memcmp(value->data, ngx_http_stint_parameters[i].data,
                                         ngx_http_stint_parameters[i].len) != 0)) {
        i++;
    }
    if (i == PARAMETERS || (*seen & 1u << i) != 0 ||
        (i >= PARAMETER_DELAY_ELSE && value->len != ngx_http_stint_parameters[i].len)) {
        return ngx_http_stint_wrong_parameter(cf, value);
    }
    *seen |= i == PARAMETER_DELAY || i == PARAMETER_DELAY_ELSE
                 ? 1u << PARAMETER_DELAY | 1u << PARAMETER_DELAY_ELSE
                 : 1u << i;
    text.data = value->data + ngx_http_stint_parameters[i].len;
    text.len = value->len - ngx_http_stint_parameters[i].len;
    switch (i) {
    case PARAMETER_COST:
        return ngx_http_stint_parse_number(cf, "cost", 0, &text, &limit->cost);
    case PARAMETER_LIMIT:
        return ngx_http_stint_parse_number(cf, "limit", 1, &text, &limit->limit);
    case PARAMETER_BURST:
        return ngx_http_stint_parse_number(cf, "burst", 1, &text, &limit->burst);
    case PARAMETER_CHARGE:
        limit->charge = ngx_http_stint_compile(cf, &text);
        return limit->charge == NULL ? NGX_CONF_ERROR : NGX_CONF_OK;
    case PARAMETER_PREFIX:
        return ngx_http_stint_parse_prefix(cf, &text, limit);
    case PARAMETER_DEFAULT:
        return ngx_http_stint_parse_default(cf, zone, &text, limit);
    case PARAMETER_DELAY:
        return ngx_http_stint_parse_delay(cf, &text, limit);
    case PARAMETER_LATE:
        limit->late = 1;
        return NGX_CONF_OK;
    default:
        limit->max_delay = NGX_HTTP_STINT_DELAY_ELSE;
        return NGX_CONF_OK;
    }
}

/* Variables that are known only when the request ends. */
static const ngx_str_t ngx_http_stint_late_variables[] = {
    ngx_string("body_bytes_sent"),
    ngx_string("bytes_sent"),
    ngx_string("gzip_ratio"),
    ngx_string("request_completion"),
    ngx_string("request_length"),
    ngx_string("request_time"),
    ngx_string("upstream_bytes_received"),
    ngx_string("upstream_bytes_sent"),
    ngx_string("upstream_response_length"),
    ngx_string("upstream_response_time"),
};

#define LATE_VARIABLES                                                                             \
    (sizeof(ngx_http_stint_late_variables) / sizeof(ngx_http_stint_late_variables[0]))

/* Warns of a charge that is settled before a variable of it is known. */
static void ngx_http_stint_warn_of_late(ngx_conf_t *cf, const ngx_str_t *text) {
    u_char *end = text->data + text->len;

    for (u_char *at = text->data; (at = ngx_strlchr(at, end, '$')) != NULL;) {
        ngx_str_t name = {0, at + 1 + (at + 1 < end && at[1] == '{')};

        at = name.data;
        while (at < end && (isalnum(*at) || *at == '_')) {
            at++;
        }
        name.len = (size_t)(at - name.data);
        for (size_t i = 0; i < LATE_VARIABLES; i++) {
            if (ngx_http_stint_same(&ngx_http_stint_late_variables[i], &name)) {
                ngx_conf_log_error(
                    NGX_LOG_WARN, cf, 0,
                    "\"charge=%V\" is settled when the header of the response is made, "
                    "and $%V is known only later: \"late\" charges at the end",
                    text, &name);
            }
        }
    }
}

/* Parameters that exclude each other. */
static char *ngx_http_stint_check_together(ngx_conf_t *cf, ngx_uint_t seen,
                                           const ngx_http_stint_limit_t *limit) {
    static const ngx_http_stint_parameter_t apart[][2] = {{PARAMETER_CHARGE, PARAMETER_LIMIT},
                                                          {PARAMETER_CHARGE, PARAMETER_BURST},
                                                          {PARAMETER_CHARGE, PARAMETER_DELAY_ELSE},
                                                          {PARAMETER_LATE, PARAMETER_COST}};

    for (size_t i = 0; i < sizeof(apart) / sizeof(apart[0]); i++) {
        if ((seen & 1u << apart[i][0]) != 0 && (seen & 1u << apart[i][1]) != 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "\"%V\" does not go with \"%V\"",
                               &ngx_http_stint_parameters[apart[i][0]],
                               &ngx_http_stint_parameters[apart[i][1]]);
            return NGX_CONF_ERROR;
        }
    }
    if (limit->late && limit->charge == NULL) {
        return "has \"late\", which goes with \"charge=\" only";
    }
    if (limit->charge != NULL && limit->cost.value == NULL && limit->cost.otherwise == 0) {
        return "has \"charge=\" with \"cost=0\": nothing would be taken first";
    }
    if (limit->charge != NULL && ngx_http_script_variables_count(&limit->charge->value) == 0) {
        ngx_conf_log_error(
            NGX_LOG_WARN, cf, 0,
            "\"charge=%V\" is what each response costs: a variable, such as a map of "
            "$status, tells which ones do",
            &limit->charge->value);
    }
    if (limit->charge != NULL && !limit->late) {
        ngx_http_stint_warn_of_late(cf, &limit->charge->value);
    }
    return NGX_CONF_OK;
}

/* Whether two limits are one and the same. */
static ngx_uint_t ngx_http_stint_same_limit(const ngx_http_stint_limit_t *one,
                                            const ngx_http_stint_limit_t *other) {
    return one->zone == other->zone &&
           ngx_http_stint_same(&one->policy_text, &other->policy_text) &&
           ngx_http_stint_same(&one->key->value, &other->key->value) &&
           one->prefix4 == other->prefix4 && one->prefix6 == other->prefix6;
}

static char *ngx_http_stint_parse_limit(ngx_conf_t *cf, ngx_http_stint_limit_t *limit) {
    ngx_http_stint_zone_t *zone = limit->zone;
    ngx_str_t *value = cf->args->elts;
    ngx_uint_t seen = 0;
    char *together;

    limit->place = ngx_http_stint_here(cf);
    limit->cost.otherwise = 1;
    limit->policy_text = value[2];
    if (ngx_http_script_variables_count(&value[2]) != 0) {
        limit->plan = ngx_http_stint_compile(cf, &value[2]);
    } else {
        limit->policy = ngx_http_stint_get_policy(cf, zone, &value[2]);
    }
    if (value[3].len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "the key of \"stint_limit\" is empty: no request would "
                           "be limited");
        return NGX_CONF_ERROR;
    }
    limit->key = ngx_http_stint_compile(cf, &value[3]);
    if ((limit->plan == NULL && limit->policy == NULL) || limit->key == NULL) {
        return NGX_CONF_ERROR;
    }
    if (ngx_http_stint_same(&value[3], &ngx_http_stint_binary_address)) {
        limit->key_kind = NGX_HTTP_STINT_KEY_BINARY;
    }
    for (ngx_uint_t i = 4; i < cf->args->nelts; i++) {
        if (ngx_http_stint_parse_parameter(cf, zone, &value[i], &seen, limit) != NGX_CONF_OK) {
            return NGX_CONF_ERROR;
        }
    }
    together = ngx_http_stint_check_together(cf, seen, limit);
    if (together != NGX_CONF_OK) {
        return together;
    }
    zone->limits = 1;
    zone->delays |= limit->max_delay != 0 && limit->plan != NULL;
    if (limit->policy != NULL) {
        limit->policy->delays |= limit->max_delay != 0;
    }
    return NGX_CONF_OK;
}

/* stint_limit off [rate|in-flight] */
static char *ngx_http_stint_off(ngx_conf_t *cf, ngx_http_stint_loc_conf_t *slcf) {
    ngx_str_t *value = cf->args->elts;
    ngx_uint_t off = NGX_HTTP_STINT_KINDS;

    if (cf->args->nelts == 3) {
        off = ngx_strcmp(value[2].data, "rate") == 0        ? NGX_HTTP_STINT_RATE
              : ngx_strcmp(value[2].data, "in-flight") == 0 ? NGX_HTTP_STINT_IN_FLIGHT
                                                            : 0;
    }
    if (off == 0) {
        return "takes \"off\", \"off rate\" or \"off in-flight\", or a zone, a policy and a key";
    }
    if ((slcf->off & off) != 0) {
        return "is duplicate";
    }
    slcf->off |= off;
    return NGX_CONF_OK;
}

/* stint_limit off; stint_limit ZONE POLICY KEY [PARAMETER ...] */
char *ngx_http_stint_limit(ngx_conf_t *cf, ngx_command_t *cmd, void *conf) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    ngx_http_stint_loc_conf_t *slcf = conf;
    ngx_str_t *value = cf->args->elts;
    ngx_http_stint_limit_t *limit, **limits = slcf->limits.elts, **all;
    char *wrong;

    if (cf->args->nelts < 4 && ngx_strcmp(value[1].data, "off") == 0) {
        return ngx_http_stint_off(cf, slcf);
    }
    if (ngx_strncmp(value[1].data, "zone=", 5) == 0) {
        return ngx_http_stint_wrong_parameter(cf, &value[1]);
    }
    if (cf->args->nelts < 4) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid number of arguments in \"%V\" directive",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }
    limit = ngx_pcalloc(cf->pool, sizeof(*limit));
    if (limit == NULL || (limit->zone = ngx_http_stint_get_zone(cf, &value[1])) == NULL) {
        return NGX_CONF_ERROR;
    }
    if (slcf->limits.nelts == STINT_ALL_MAX) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "more than %d limits at one level", STINT_ALL_MAX);
        return NGX_CONF_ERROR;
    }
    wrong = ngx_http_stint_parse_limit(cf, limit);
    if (wrong != NGX_CONF_OK) {
        return wrong;
    }
    for (ngx_uint_t i = 0; i < slcf->limits.nelts; i++) {
        if (ngx_http_stint_same_limit(limits[i], limit)) {
            return "is duplicate";
        }
    }
    limit->off = &slcf->off;
    limits = ngx_array_push(&slcf->limits);
    all = ngx_array_push(&smcf->limits);
    if (limits == NULL || all == NULL) {
        return NGX_CONF_ERROR;
    }
    *limits = *all = limit;
    return NGX_CONF_OK;
}

/* ---- When all policies are declared ---------------------------------------------------------- */

/* Sets the kind of a limit. A policy with variables may be any that begins as it does: its default
 * tells the kind, or its charge, or all are of one. */
static ngx_int_t ngx_http_stint_set_kind(ngx_conf_t *cf, ngx_http_stint_limit_t *limit) {
    ngx_http_stint_policy_t **policies = limit->zone->policies.elts;
    const ngx_str_t *text = &limit->policy_text;
    size_t fixed;

    limit->kind = limit->policy != NULL   ? ngx_http_stint_kind(limit->policy)
                  : limit->charge != NULL ? NGX_HTTP_STINT_RATE
                                          : 0;
    if (limit->kind != 0) {
        return NGX_OK;
    }
    fixed = (size_t)(ngx_strlchr(text->data, text->data + text->len, '$') - text->data);
    for (ngx_uint_t i = 0; i < limit->zone->policies.nelts; i++) {
        if (policies[i]->name.len >= fixed &&
            ngx_memcmp(policies[i]->name.data, text->data, fixed) == 0) {
            limit->kind |= ngx_http_stint_kind(policies[i]);
        }
    }
    if (limit->kind == NGX_HTTP_STINT_KINDS) {
        ngx_log_error(
            NGX_LOG_EMERG, cf->log, 0,
            "the policy \"%V\" may be one that is in-flight, or a rate, and a limit is of "
            "one kind: \"default=\" tells which, in %V:%ui",
            text, &limit->place.file, limit->place.line);
        return NGX_ERROR;
    }
    return NGX_OK;
}

/* Warns of a key that is one text for all requests, where a variable was meant. */
static void ngx_http_stint_warn_of_name(ngx_conf_t *cf, const ngx_http_stint_limit_t *limit) {
    ngx_http_core_main_conf_t *cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);
    const ngx_http_variable_t *prefixes = cmcf->prefix_variables.elts;
    const ngx_str_t *key = &limit->key->value;
    ngx_uint_t found = ngx_http_stint_find_variable(cf, key) != NULL;

    for (ngx_uint_t i = 0; i < cmcf->prefix_variables.nelts; i++) {
        found |= key->len > prefixes[i].name.len &&
                 ngx_memcmp(key->data, prefixes[i].name.data, prefixes[i].name.len) == 0;
    }
    if (found) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "the key \"%V\" is one for all requests: \"$%V\" is a variable, in %V:%ui",
                      key, key, &limit->place.file, limit->place.line);
    }
}

/* Warns of a key that is a field of the request and no more, once a policy. */
static void ngx_http_stint_warn_of_field(ngx_conf_t *cf, const ngx_http_stint_limit_t *limit) {
    static const ngx_str_t begins[] = {ngx_string("$http_"),
                                       ngx_string("$proxy_add_x_forwarded_for")};
    const ngx_str_t *key = &limit->key->value;

    for (size_t i = 0; i < 2 && limit->policy != NULL && !limit->policy->warned; i++) {
        if (key->len >= begins[i].len &&
            ngx_memcmp(key->data, begins[i].data, begins[i].len) == 0 &&
            ngx_http_script_variables_count((ngx_str_t *)key) == 1) {
            limit->policy->warned = 1;
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "clients write the key \"%V\", and have a new limit with each value: an "
                          "address is \"$remote_addr\" with nginx's module realip, in %V:%ui",
                          key, &limit->place.file, limit->place.line);
        }
    }
}

/* Whether requests may have such a number of their own. */
static ngx_uint_t ngx_http_stint_has(const ngx_http_stint_number_t *number) {
    return number->value != NULL || number->otherwise != 0;
}

/* What it asks of its policy. */
static ngx_int_t ngx_http_stint_check_policy(ngx_conf_t *cf, const ngx_http_stint_limit_t *limit) {
    const ngx_http_stint_policy_t *policy = limit->policy;
    uint32_t most = ngx_http_stint_most(&policy->policy);
    uint32_t ahead = limit->max_delay != 0 ? policy->policy.max_reserved : 0;
    uint32_t burst = limit->burst.otherwise;

    if (limit->max_delay != 0 && policy->policy.max_reserved == 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"delay\" needs a policy with \"reserve=\", which \"%V\" has not, in %V:%ui",
                      &policy->name, &limit->place.file, limit->place.line);
        return NGX_ERROR;
    }
    if (limit->charge != NULL && ngx_http_stint_is_in_flight(policy)) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"charge=\" does not go with a policy that is in-flight, as \"%V\" is, in "
                      "%V:%ui",
                      &policy->name, &limit->place.file, limit->place.line);
        return NGX_ERROR;
    }
    if (policy->policy.burst == 0 && ngx_http_stint_has(&limit->burst)) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"burst=\" needs a policy with a \"burst=\" (that of limit_req and one), "
                      "which \"%V\" has not, in %V:%ui",
                      &policy->name, &limit->place.file, limit->place.line);
        return NGX_ERROR;
    }
    if (policy->policy.stripes > 1 && ngx_http_stint_has(&limit->limit)) {
        ngx_log_error(
            NGX_LOG_EMERG, cf->log, 0,
            "\"limit=\" does not go with a policy of \"stripes=\", as \"%V\" is, in %V:%ui",
            &policy->name, &limit->place.file, limit->place.line);
        return NGX_ERROR;
    }
    if (limit->plan != NULL || ngx_http_stint_has(&limit->limit)) {
        return NGX_OK;
    }
    if (burst > most + ahead) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"burst=%uD\" is above the %uD that policy \"%V\" has here, and taken as "
                      "that, in %V:%ui",
                      burst, most + ahead, &policy->name, &limit->place.file, limit->place.line);
    }
    most = burst != 0 ? ngx_min(most, burst) : most;
    if (limit->cost.value == NULL && limit->cost.otherwise > most) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"cost=%uD\" is above the %uD that policy \"%V\" has here: all requests are "
                      "refused, in %V:%ui",
                      limit->cost.otherwise, most, &policy->name, &limit->place.file,
                      limit->place.line);
    }
    return NGX_OK;
}

ngx_int_t ngx_http_stint_check_limits(ngx_conf_t *cf) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_conf_get_module_main_conf(cf, ngx_http_stint_module);
    ngx_http_stint_limit_t **limits = smcf->limits.elts;

    for (ngx_uint_t i = 0; i < smcf->limits.nelts; i++) {
        ngx_http_stint_warn_of_name(cf, limits[i]);
        ngx_http_stint_warn_of_field(cf, limits[i]);
        if ((limits[i]->policy != NULL && ngx_http_stint_check_policy(cf, limits[i]) != NGX_OK) ||
            ngx_http_stint_set_kind(cf, limits[i]) != NGX_OK) {
            return NGX_ERROR;
        }
        if ((*limits[i]->off & limits[i]->kind) != 0) {
            ngx_log_error(
                NGX_LOG_EMERG, cf->log, 0,
                "\"stint_limit\" has limits and \"off\" of one kind at one level, in %V:%ui",
                &limits[i]->place.file, limits[i]->place.line);
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}
