/* SPDX-License-Identifier: MIT
 * Zone -> table in shared memory.
 *
 * The table is made once, in memory that all workers share, and stays over reloads. What a reload
 * does to it, in this order:
 *
 *   directive     a zone of another size than the running one is refused, with its line
 *   init_zone     the table is attached; every policy must be there, be changeable, or have room
 *   init_module   the new configuration is accepted: policies that say something else now change,
 *                 and the old configuration's handles are given back
 *
 * So a reload that fails, at whatever step, changes no limit. At most it has added policies that
 * nobody uses. */
#include <errno.h>

#include "ngx_http_stint.h"

#define POLICY_TEXT 256 /* bytes; more than a policy is in the text notation */

/* Pages beside the table's that nginx keeps for itself at the start of a zone. */
#define SLAB_PAGES 8

static size_t ngx_http_stint_zone_size(const ngx_http_stint_zone_t *zone) {
    size_t pages = (zone->table_size + ngx_pagesize - 1) / ngx_pagesize + SLAB_PAGES;

    return ngx_align(pages * (ngx_pagesize + sizeof(ngx_slab_page_t)), ngx_pagesize);
}

/* Calls `each` with the zones of the configuration that runs while another is read. */
static void ngx_http_stint_running_zones(ngx_cycle_t *cycle,
                                         void (*each)(ngx_http_stint_zone_t *zone, void *data),
                                         void *data) {
    ngx_list_part_t *part = cycle->old_cycle == NULL ? NULL : &cycle->old_cycle->shared_memory.part;

    for (; part != NULL; part = part->next) {
        ngx_shm_zone_t *shm_zone = part->elts;

        for (ngx_uint_t i = 0; i < part->nelts; i++) {
            if (shm_zone[i].tag == &ngx_http_stint_module) {
                each(shm_zone[i].data, data);
            }
        }
    }
}

typedef struct {
    const ngx_str_t *name;
    ngx_http_stint_zone_t *zone; /* NULL: not found */
} ngx_http_stint_search_t;

static void ngx_http_stint_search(ngx_http_stint_zone_t *zone, void *data) {
    ngx_http_stint_search_t *search = data;

    if (zone->name.len == search->name->len &&
        ngx_memcmp(zone->name.data, search->name->data, zone->name.len) == 0) {
        search->zone = zone;
    }
}

/* Why a policy of the table cannot become what the configuration says, or NULL. */
static const char *ngx_http_stint_fixed(const struct stint_policy *old,
                                        const struct stint_policy *new) {
    if (old->window != new->window || old->calendar != new->calendar) {
        return "window";
    }
    if (old->start != new->start || old->offset != new->offset ||
        ((old->flags ^ new->flags) & (STINT_START_PER_KEY | STINT_START_FIRST)) != 0) {
        return "start";
    }
    if (ngx_max(old->stripes, 1) != ngx_max(new->stripes, 1)) {
        return "stripes";
    }
    if (((old->flags ^ new->flags) & STINT_SMOOTH) != 0) {
        return "smooth";
    }
    /* Counted refusals would be carried over as debts. */
    if ((old->flags & STINT_COUNT_REFUSED) != 0 &&
        (new->capacity > new->limit || new->max_reserved > 0)) {
        return "count-refused (to a capacity above the limit, or a reserve)";
    }
    return NULL;
}

/* Finds a policy in the table, or adds it. */
static ngx_int_t ngx_http_stint_place_policy(ngx_http_stint_zone_t *zone,
                                             ngx_http_stint_policy_t *policy, ngx_log_t *log) {
    struct stint_policy old = STINT_POLICY_INIT;
    const char *fixed;
    int error = stint_policy_find(zone->limiter, policy->policy.name, &policy->id);

    if (error != 0) {
        error = stint_policy_add(zone->limiter, &policy->policy, &policy->id);
    }
    if (error == -ENOSPC) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "stint zone \"%V\" has no room for the policy \"%V\" in %V:%ui: those that "
                      "were removed count until nginx is restarted, with more \"policies\"",
                      &zone->name, &policy->name, &policy->declared.file, policy->declared.line);
        return NGX_ERROR;
    }
    if (error != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "stint policy \"%V\" in %V:%ui: %s", &policy->name,
                      &policy->declared.file, policy->declared.line, stint_reason());
        return NGX_ERROR;
    }
    (void)stint_policy_get(zone->limiter, policy->id, &old); /* it exists */
    fixed = ngx_http_stint_fixed(&old, &policy->policy);
    if (fixed != NULL) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "stint policy \"%V\" of zone \"%V\" in %V:%ui cannot change its %s while "
                      "nginx runs: give it another name",
                      &policy->name, &zone->name, &policy->declared.file, policy->declared.line,
                      fixed);
        return NGX_ERROR;
    }
    return NGX_OK;
}

/* Memory for a new table, all bytes 0. */
static void *ngx_http_stint_new_table(ngx_shm_zone_t *shm_zone) {
    ngx_http_stint_zone_t *zone = shm_zone->data;
    ngx_slab_pool_t *shpool = (ngx_slab_pool_t *)(void *)shm_zone->shm.addr;
    size_t len = sizeof(" in stint zone \"\"") + zone->name.len;

    shpool->log_ctx = ngx_slab_alloc(shpool, len);
    if (shpool->log_ctx == NULL) {
        return NULL;
    }
    ngx_sprintf(shpool->log_ctx, " in stint zone \"%V\"%Z", &zone->name);
    /* Whole pages, so it is aligned, and nobody has written to them since they were mapped. */
    shpool->data = ngx_slab_alloc(shpool, zone->table_size);
    return shpool->data;
}

static ngx_int_t ngx_http_stint_init_zone(ngx_shm_zone_t *shm_zone, void *data) {
    ngx_http_stint_zone_t *zone = shm_zone->data;
    ngx_http_stint_zone_t *running = data;
    ngx_http_stint_policy_t **policies = zone->policies.elts;
    ngx_log_t *log = shm_zone->shm.log;

    if (running != NULL) {
        zone->table = running->table;
        zone->mapped = 1;
    } else if (shm_zone->shm.exists) {
        zone->table = ((ngx_slab_pool_t *)(void *)shm_zone->shm.addr)->data;
    } else {
        zone->table = ngx_http_stint_new_table(shm_zone);
    }
    if (zone->table == NULL) {
        return NGX_ERROR;
    }
    if (stint_open_in(&zone->options, zone->table, zone->table_size, &zone->limiter) != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "stint zone \"%V\" in %V:%ui: %s", &zone->name,
                      &zone->declared.file, zone->declared.line, stint_reason());
        return NGX_ERROR;
    }
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (ngx_http_stint_place_policy(zone, policies[i], log) != NGX_OK) {
            return NGX_ERROR;
        }
    }
    return NGX_OK;
}

/* Gives the handle back when the configuration's memory goes. */
static void ngx_http_stint_close(void *data) {
    ngx_http_stint_zone_t *zone = data;

    /* A configuration that fails has its new zones unmapped before. Then the handle is lost. */
    if (zone->mapped) {
        stint_close(zone->limiter);
        zone->limiter = NULL;
    }
}

char *ngx_http_stint_add_zone(ngx_conf_t *cf, ngx_http_stint_zone_t *zone) {
    ngx_http_stint_search_t search = {&zone->name, NULL};
    ngx_http_stint_zone_t *running;
    ngx_pool_cleanup_t *cln;
    ngx_shm_zone_t *shm_zone;

    ngx_http_stint_running_zones(cf->cycle, ngx_http_stint_search, &search);
    running = search.zone;
    if (running != NULL && (running->options.max_keys != zone->options.max_keys ||
                            running->options.max_policies != zone->options.max_policies)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "stint zone \"%V\" cannot change its size while nginx runs, and has "
                           "keys=%uL policies=%uD: restart nginx, or give it another name",
                           &zone->name, running->options.max_keys, running->options.max_policies);
        return NGX_CONF_ERROR;
    }
    zone->table_size = stint_memory_size(&zone->options);
    if (zone->table_size == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "stint zone \"%V\": %s", &zone->name,
                           stint_reason());
        return NGX_CONF_ERROR;
    }
    cln = ngx_pool_cleanup_add(cf->pool, 0);
    shm_zone = ngx_shared_memory_add(cf, &zone->name, ngx_http_stint_zone_size(zone),
                                     &ngx_http_stint_module);
    if (cln == NULL || shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }
    cln->handler = ngx_http_stint_close;
    cln->data = zone;
    shm_zone->init = ngx_http_stint_init_zone;
    shm_zone->data = zone;
    return NGX_CONF_OK;
}

/* Changes a policy of the table to what the configuration says, if that is something else. */
static void ngx_http_stint_change_policy(ngx_cycle_t *cycle, ngx_http_stint_zone_t *zone,
                                         ngx_http_stint_policy_t *policy) {
    struct stint_policy old = STINT_POLICY_INIT, new = policy->policy;
    char old_text[POLICY_TEXT], new_text[POLICY_TEXT];

    (void)stint_policy_get(zone->limiter, policy->id, &old); /* it exists */
    old.name[0] = new.name[0] = '\0';                        /* the same, and told beside */
    (void)stint_policy_format(&old, old_text, sizeof(old_text));
    (void)stint_policy_format(&new, new_text, sizeof(new_text));
    if (ngx_strcmp(old_text, new_text) == 0) {
        return;
    }
    if (stint_policy_change(zone->limiter, policy->id, &policy->policy) != 0) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "stint policy \"%V\" of zone \"%V\" stays \"%s\": %s", &policy->name,
                      &zone->name, old_text, stint_reason());
        return;
    }
    ngx_log_error(NGX_LOG_NOTICE, cycle->log, 0,
                  "stint policy \"%V\" of zone \"%V\" changed from \"%s\" to \"%s\"", &policy->name,
                  &zone->name, old_text, new_text);
}

/* The last moment before nginx unmaps the zones that are not in the new configuration. A master
 * makes no requests, so nobody uses its old handles. A process without master may, until they are
 * done. */
static void ngx_http_stint_close_running(ngx_http_stint_zone_t *zone, void *data) {
    if (ngx_process == NGX_PROCESS_MASTER) {
        ngx_http_stint_close(zone);
    }
    zone->mapped = 0;
}

ngx_int_t ngx_http_stint_init_module(ngx_cycle_t *cycle) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_stint_module);
    ngx_http_stint_zone_t **zones;

    ngx_http_stint_running_zones(cycle, ngx_http_stint_close_running, NULL);
    if (smcf == NULL) { /* there is no http block */
        return NGX_OK;
    }
    zones = smcf->zones.elts;
    for (ngx_uint_t i = 0; i < smcf->zones.nelts; i++) {
        ngx_http_stint_policy_t **policies = zones[i]->policies.elts;

        zones[i]->mapped = 1;

        for (ngx_uint_t j = 0; j < zones[i]->policies.nelts; j++) {
            ngx_http_stint_change_policy(cycle, zones[i], policies[j]);
        }
    }
    return NGX_OK;
}
