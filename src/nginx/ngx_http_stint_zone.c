/* SPDX-License-Identifier: MIT
 * Zone -> table in shared memory, or in a file.
 *
 * The table is made once, in memory that all workers share, and stays over reloads. One in a file
 * is opened by the master, whose mapping the workers inherit: they need no right to the file. Of
 * nginx's shared memory such a zone has a few pages, for what is counted beside the table. What a
 * reload does, in this order:
 *
 *   directive     a zone of another file than the running one is refused, with its line; one in
 *                 memory of another size, too
 *   init_zone     the table is attached; every policy must be there, be changeable, or have room.
 *                 If the zone is new, nginx unmaps it should the reload fail, and tells nobody: so
 *                 the handle is given back at once
 *   init_module   the new configuration is accepted: new tables are attached for good, policies
 *                 that say something else now change, and the old configuration's handles are
 *                 given back
 *
 * So a reload that fails, at whatever step, changes no limit. At most it has added policies that
 * nobody uses, and made room for overrides.
 *
 * In a file the command `stint`, and other servers, change and remove policies at any instant. So
 * no call by a policy's id is sure to find it. */
#include "ngx_http_stint.h"

#include <errno.h>
#include <sys/mman.h>

#define POLICY_TEXT 256 /* bytes; more than a policy is in the text notation */

/* Pages beside the table's: those that nginx keeps for itself at the start of a zone, and
 * ngx_http_stint_shared_t. */
#define SLAB_PAGES 16

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

/* A policy in the text notation, without its name. */
static void ngx_http_stint_format(const struct stint_policy *policy, char text[POLICY_TEXT]) {
    struct stint_policy unnamed = *policy;

    unnamed.name[0] = '\0';
    if (stint_policy_format(&unnamed, text, POLICY_TEXT) < 0) {
        *text = '\0';
    }
}

/* A policy that comes to have overrides takes one place more. It is taken here, where there may be
 * none, and is the policy's from then on: it stays without overrides until the configuration is
 * accepted. Returns what stint_policy_change does. */
static int ngx_http_stint_place_overrides(ngx_http_stint_zone_t *zone,
                                          const ngx_http_stint_policy_t *policy) {
    struct stint_policy now = STINT_POLICY_INIT, overridable;
    int error = stint_policy_get(zone->limiter, policy->id, &now);

    if (error != 0 || (policy->policy.flags & ~now.flags & STINT_OVERRIDES) == 0) {
        return error;
    }
    overridable = now;
    overridable.flags |= STINT_OVERRIDES;
    error = stint_policy_change(zone->limiter, policy->id, &overridable);
    return error != 0 ? error : stint_policy_change(zone->limiter, policy->id, &now);
}

/* Finds a policy in the table, or adds it. */
static ngx_int_t ngx_http_stint_place_policy(ngx_http_stint_zone_t *zone,
                                             ngx_http_stint_policy_t *policy, ngx_log_t *log) {
    char reason[NGX_HTTP_STINT_REASON], text[POLICY_TEXT], *remedy;
    int error = stint_policy_find(zone->limiter, policy->policy.name, &policy->id);
    ngx_uint_t changes = 1;

    if (error != 0) {
        error = stint_policy_add(zone->limiter, &policy->policy, &policy->id);
    }
    if (error == 0) {
        error = stint_policy_change_check(zone->limiter, policy->id, &policy->policy);
        changes = error == 0 || error == -ENOSPC;
        error = changes ? ngx_http_stint_place_overrides(zone, policy) : 0;
    }
    if (error == -ENOSPC) {
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "stint zone \"%V\" has no room for the policy \"%V\" in %V:%ui: those that "
                      "were removed %s, and those with a ban or overrides count twice",
                      &zone->name, &policy->name, &policy->declared.file, policy->declared.line,
                      zone->file.len == 0 ? "count until nginx is restarted, with more \"policies\""
                                          : "stay in its file until \"stint apply --prune\" "
                                            "removes them, a restart with more \"policies\" makes "
                                            "room");
        return NGX_ERROR;
    }
    if (error != 0) {
        ngx_log_error(NGX_LOG_EMERG, log, 0, "stint policy \"%V\" in %V:%ui: %s", &policy->name,
                      &policy->declared.file, policy->declared.line,
                      ngx_http_stint_words(stint_reason(), reason));
        return NGX_ERROR;
    }
    if (!changes) {
        (void)ngx_http_stint_words(stint_reason(), reason);
        remedy = strchr(reason, ':'); /* the library's is another */
        if (remedy != NULL) {
            *remedy = '\0';
        }
        ngx_http_stint_format(&policy->policy, text);
        ngx_log_error(NGX_LOG_EMERG, log, 0,
                      "stint policy \"%V\" of zone \"%V\" in %V:%ui cannot become \"%s\", because "
                      "%s: give it another name",
                      &policy->name, &zone->name, &policy->declared.file, policy->declared.line,
                      text, reason);
        return NGX_ERROR;
    }
    return NGX_OK;
}

/* What a new zone has in shared memory, all bytes 0. */
static ngx_http_stint_shared_t *ngx_http_stint_new_shared(ngx_shm_zone_t *shm_zone) {
    ngx_http_stint_zone_t *zone = shm_zone->data;
    ngx_slab_pool_t *shpool = (ngx_slab_pool_t *)(void *)shm_zone->shm.addr;
    size_t len = sizeof(" in stint zone \"\"") + zone->name.len;
    ngx_http_stint_shared_t *shared;

    shpool->log_ctx = ngx_slab_alloc(shpool, len);
    if (shpool->log_ctx == NULL) {
        return NULL;
    }
    ngx_sprintf(shpool->log_ctx, " in stint zone \"%V\"%Z", &zone->name);
    shared = ngx_slab_calloc(shpool, sizeof(*shared));
    if (shared != NULL && zone->table_size != 0) {
        /* Whole pages, so it is aligned, and nobody has written to them since they were mapped. */
        shared->table = ngx_slab_alloc(shpool, zone->table_size);
        if (shared->table == NULL) {
            return NULL;
        }
    }
    shpool->data = shared;
    return shared;
}

/* Attaches to the table. Returns what stint_open does. */
static int ngx_http_stint_open(ngx_http_stint_zone_t *zone, ngx_log_t *log) {
    return zone->file.len != 0 ? ngx_http_stint_open_file(zone, log)
                               : stint_open_in(&zone->options, zone->shared->table,
                                               zone->table_size, &zone->limiter);
}

/* Says if the table is not the one that the running configuration has. */
static void ngx_http_stint_log_other(const ngx_http_stint_zone_t *running,
                                     const ngx_http_stint_zone_t *zone, ngx_log_t *log) {
    if (zone->file.len != 0 &&
        (running->file_device != zone->file_device || running->file_inode != zone->file_inode)) {
        ngx_log_error(NGX_LOG_ERR, log, 0,
                      "the file \"%V\" of the stint zone \"%V\" in %V:%ui was removed or replaced "
                      "while nginx ran: its counts begin anew",
                      &zone->file, &zone->name, &zone->declared.file, zone->declared.line);
    }
}

/* Attaches to the zone's memory and table, and finds its policies there. */
static ngx_int_t ngx_http_stint_attach(ngx_shm_zone_t *shm_zone,
                                       const ngx_http_stint_zone_t *running) {
    ngx_http_stint_zone_t *zone = shm_zone->data;
    ngx_http_stint_policy_t **policies = zone->policies.elts;

    zone->slab = (ngx_slab_pool_t *)(void *)shm_zone->shm.addr;
    if (running != NULL) {
        zone->shared = running->shared;
        zone->mapped = 1;
    } else if (shm_zone->shm.exists) {
        zone->shared = zone->slab->data;
    } else {
        zone->shared = ngx_http_stint_new_shared(shm_zone);
    }
    if (zone->shared == NULL) {
        return NGX_ERROR;
    }
    if (zone->file.len != 0 && ngx_test_config) {
        /* The log of the process: that of the configuration may have errors alone. */
        if (ngx_http_stint_look(zone, ngx_cycle->log) != NGX_OK) {
            return NGX_ERROR;
        }
    } else if (ngx_http_stint_open(zone, shm_zone->shm.log) != 0) {
        ngx_http_stint_log_open(zone, shm_zone->shm.log);
        return NGX_ERROR;
    }
    if (running != NULL) {
        ngx_http_stint_log_other(running, zone, shm_zone->shm.log);
    }
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->same == NULL &&
            ngx_http_stint_place_policy(zone, policies[i], shm_zone->shm.log) != NGX_OK) {
            return NGX_ERROR;
        }
    }
    for (ngx_uint_t i = 0; i < zone->policies.nelts; i++) {
        if (policies[i]->same != NULL) {
            policies[i]->id = policies[i]->same->id;
        }
    }
    return NGX_OK;
}

static ngx_int_t ngx_http_stint_init_zone(ngx_shm_zone_t *shm_zone, void *data) {
    ngx_http_stint_zone_t *zone = shm_zone->data;
    ngx_int_t rc = ngx_http_stint_attach(shm_zone, data);

    /* A fork looks at the tables of all handles that there are, so none may outlive its memory. A
     * trial has done its work. */
    if (ngx_test_config || (data == NULL && zone->file.len == 0)) {
        stint_close(zone->limiter);
        zone->limiter = NULL;
    }
    return rc;
}

/* Gives the handle back when the configuration's memory goes. */
static void ngx_http_stint_close(void *data) {
    ngx_http_stint_zone_t *zone = data;

    /* In a process without master, zones that are not in the new configuration are unmapped before.
     * Then the handle of a table in one of them is lost; but such a process does not fork. */
    if (zone->mapped || zone->file.len != 0) {
        stint_close(zone->limiter);
        zone->limiter = NULL;
    }
}

/* Whether the system gives that much memory. It would not give it either when nginx asks for it,
 * but then nobody could tell for which zone. */
static char *ngx_http_stint_check_memory(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone) {
    size_t size = ngx_http_stint_zone_size(zone);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANON | MAP_SHARED, -1, 0);

    if (memory == MAP_FAILED) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "stint zone \"%V\" needs %uz MB for its keys, which the system does not "
                           "give",
                           &zone->name, size >> 20);
        return NGX_CONF_ERROR;
    }
    (void)munmap(memory, size);
    return NGX_CONF_OK;
}

/* What cannot change while nginx runs. */
static char *ngx_http_stint_check_running(ngx_conf_t *cf, const ngx_http_stint_zone_t *running,
                                          const ngx_http_stint_zone_t *zone) {
    if (running->file.len != zone->file.len ||
        ngx_memcmp(running->file.data, zone->file.data, zone->file.len) != 0) {
        ngx_conf_log_error(
            NGX_LOG_EMERG, cf, 0,
            "stint zone \"%V\" cannot move while nginx runs, and is in %s%V: restart "
            "nginx, or give it another name",
            &zone->name, running->file.len == 0 ? "memory" : "", &running->file);
        return NGX_CONF_ERROR;
    }
    if (zone->file.len == 0 && (running->options.max_entries != zone->options.max_entries ||
                                running->options.max_policies != zone->options.max_policies ||
                                running->options.labels != zone->options.labels)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "stint zone \"%V\" cannot change its size while nginx runs, and has "
                           "entries=%uL policies=%uD labels=%uD: restart nginx, or give it another "
                           "name",
                           &zone->name, running->options.max_entries, running->options.max_policies,
                           running->options.labels);
        return NGX_CONF_ERROR;
    }
    return NGX_CONF_OK;
}

/* Looks whether the zone can be had. */
static char *ngx_http_stint_check_new(ngx_conf_t *cf, const ngx_http_stint_zone_t *zone) {
    ngx_http_stint_search_t search = {&zone->name, NULL};

    ngx_http_stint_running_zones(cf->cycle, ngx_http_stint_search, &search);
    if (search.zone != NULL) {
        return ngx_http_stint_check_running(cf, search.zone, zone);
    }
    if (ngx_process == NGX_PROCESS_SIGNALLER) { /* it only sends a signal */
        return NGX_CONF_OK;
    }
    return zone->file.len != 0 ? ngx_http_stint_check_file(cf, zone)
                               : ngx_http_stint_check_memory(cf, zone);
}

char *ngx_http_stint_add_zone(ngx_conf_t *cf, ngx_http_stint_zone_t *zone) {
    char reason[NGX_HTTP_STINT_REASON];
    ngx_pool_cleanup_t *cln;
    ngx_shm_zone_t *shm_zone;

    zone->table_size = stint_memory_size(&zone->options);
    if (zone->table_size == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "stint zone \"%V\": %s", &zone->name,
                           ngx_http_stint_words(stint_reason(), reason));
        return NGX_CONF_ERROR;
    }
    if (zone->file.len != 0) {
        zone->table_size = 0;
    }
    if (ngx_http_stint_check_new(cf, zone) != NGX_CONF_OK) {
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
    struct stint_policy old = STINT_POLICY_INIT;
    char old_text[POLICY_TEXT] = "", new_text[POLICY_TEXT], reason[NGX_HTTP_STINT_REASON];

    if (stint_policy_get(zone->limiter, policy->id, &old) == 0) {
        ngx_http_stint_format(&old, old_text);
        ngx_http_stint_format(&policy->policy, new_text);
        if (ngx_strcmp(old_text, new_text) == 0) {
            return;
        }
    }
    if (stint_policy_change(zone->limiter, policy->id, &policy->policy) != 0) {
        ngx_log_error(NGX_LOG_ALERT, cycle->log, 0,
                      "stint policy \"%V\" of zone \"%V\" cannot be changed: %s", &policy->name,
                      &zone->name, ngx_http_stint_words(stint_reason(), reason));
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
        if (zones[i]->limiter == NULL && zones[i]->file.len == 0 &&
            ngx_http_stint_open(zones[i], cycle->log) != 0) {
            ngx_http_stint_log_open(zones[i], cycle->log);
            return NGX_ERROR;
        }
        for (ngx_uint_t j = 0; j < zones[i]->policies.nelts; j++) {
            if (zones[i]->limiter != NULL && policies[j]->same == NULL) {
                ngx_http_stint_change_policy(cycle, zones[i], policies[j]);
            }
        }
    }
    return NGX_OK;
}

/* Calls `each` with the zones of a worker. */
static void ngx_http_stint_own_zones(ngx_cycle_t *cycle,
                                     void (*each)(ngx_http_stint_zone_t *zone)) {
    ngx_http_stint_main_conf_t *smcf =
        ngx_http_cycle_get_module_main_conf(cycle, ngx_http_stint_module);
    ngx_http_stint_zone_t **zones;

    if (smcf == NULL) {
        return;
    }
    zones = smcf->zones.elts;
    for (ngx_uint_t i = 0; i < smcf->zones.nelts; i++) {
        each(zones[i]);
    }
}

ngx_int_t ngx_http_stint_init_process(ngx_cycle_t *cycle) {
    ngx_http_stint_own_zones(cycle, ngx_http_stint_hold_start);
    return NGX_OK;
}

void ngx_http_stint_exit_process(ngx_cycle_t *cycle) {
    ngx_http_stint_own_zones(cycle, ngx_http_stint_hold_stop);
    ngx_http_stint_land_all();
    ngx_http_stint_log_left_out();
}
