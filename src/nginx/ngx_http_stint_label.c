/* SPDX-License-Identifier: MIT
 * Names of keys that were refused, for the status page, the command and the log. They are texts:
 * that of the key, or the address or network that it is made of. */
#include "ngx_http_stint.h"

/* Sets all but the first bits to 0. */
static void ngx_http_stint_mask(u_char *bytes, size_t n, unsigned prefix) {
    for (size_t i = 0; i < n; i++) {
        unsigned bits = prefix > 8 * i ? prefix - (unsigned)(8 * i) : 0;

        if (bits < 8) {
            bytes[i] &= (u_char)(0xff00u >> bits);
        }
    }
}

/* A network as text, such as 192.0.2.0/24. Returns its end; NULL if the address has no bits. */
static u_char *ngx_http_stint_network(u_char text[NGX_HTTP_STINT_NETWORK], struct sockaddr *address,
                                      unsigned prefix4, unsigned prefix6) {
    u_char bytes[16];
    int family = address->sa_family;
    size_t size = 4;

    if (family == AF_INET) {
        ngx_memcpy(bytes, &((struct sockaddr_in *)(void *)address)->sin_addr, size);
    } else if (family == AF_INET6) {
        struct in6_addr *address6 = &((struct sockaddr_in6 *)(void *)address)->sin6_addr;

        size = 16;
        ngx_memcpy(bytes, address6, size);
        if (IN6_IS_ADDR_V4MAPPED(address6)) {
            family = AF_INET;
            size = 4;
            ngx_memmove(bytes, bytes + 12, size);
        }
    } else {
        return NULL;
    }
    ngx_http_stint_mask(bytes, size, family == AF_INET ? prefix4 : prefix6);
    text += ngx_inet_ntop(family, bytes, text, NGX_SOCKADDR_STRLEN);
    return ngx_sprintf(text, "/%ud", family == AF_INET ? prefix4 : prefix6);
}

ngx_int_t ngx_http_stint_name_key(ngx_http_request_t *r, const ngx_http_stint_limit_t *limit,
                                  u_char text[NGX_HTTP_STINT_NETWORK], ngx_str_t *name) {
    ngx_addr_t address = {.sockaddr = r->connection->sockaddr};
    u_char *end = NULL;

    *name = r->connection->addr_text;
    if (limit->key_kind != NGX_HTTP_STINT_KEY_CLIENT &&
        limit->key_kind != NGX_HTTP_STINT_KEY_BINARY &&
        ngx_http_complex_value(r, limit->key, name) != NGX_OK) {
        return NGX_ERROR;
    }
    if (limit->key_kind == NGX_HTTP_STINT_KEY_ADDRESS &&
        ngx_parse_addr_port(r->pool, &address, name->data, name->len) != NGX_OK) {
        address.sockaddr = r->connection->sockaddr;
    }
    if (limit->key_kind == NGX_HTTP_STINT_KEY_CLIENT ||
        limit->key_kind == NGX_HTTP_STINT_KEY_ADDRESS) {
        end = ngx_http_stint_network(text, address.sockaddr, limit->prefix4, limit->prefix6);
    }
    if (end != NULL) {
        *name = (ngx_str_t){(size_t)(end - text), text};
    }
    return NGX_OK;
}

void ngx_http_stint_label(ngx_http_request_t *r, const ngx_http_stint_limit_t *limit,
                          stint_key key) {
    const ngx_http_stint_zone_t *zone = limit->zone;
    u_char text[NGX_HTTP_STINT_NETWORK];
    ngx_str_t name;

    if (zone->options.labels != 0 && ngx_http_stint_name_key(r, limit, text, &name) == NGX_OK) {
        /* Its arguments are right, and the zone has room for labels. */
        (void)stint_label(zone->limiter, key, name.data, name.len);
    }
}
