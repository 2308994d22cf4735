# SPDX-License-Identifier: MIT
#
# A sticky load balancer for nodes that limit with stint: Varnish 7.1 (Debian 12) or later.
#
#     varnishd -a 10.0.0.1:80 -a '[2001:db8::1]:80' -a operators=127.0.0.1:8404 -f /etc/varnish/varnish.vcl
#
# Each node counts for itself. The limit of a key is the real one because all requests of a key go to one
# node, chosen by hashing the key. What to change for your site: the addresses; the header that names the
# key (X-Api-Key) and the path that is limited by address (/login), both here and in node.conf; the times.

vcl 4.1;

import directors;
import std;

# A node is gone after 3 failed checks of 10, and back after 8 good ones. A slow return bounds what a node
# that comes and goes costs. A deploy has to wait for it (rolling-deploy).
probe health {
    .url = "/health";
    .expected_response = 204;
    .interval = 1s;
    .timeout = 1s;
    .window = 10;
    .threshold = 8;
    .initial = 10;
}

# The names give the nodes their places on the ring: all balancers must use the same.
backend node1 { .host = "10.0.0.11"; .port = "8080"; .probe = health; }
backend node2 { .host = "10.0.0.12"; .port = "8080"; .probe = health; }
backend node3 { .host = "10.0.0.13"; .port = "8080"; .probe = health; }

sub vcl_init {
    # A ring. When a node is gone, its keys go to the next, and those of the others stay. Never add
    # `warmup` or `rampup`: they send a part of each key's requests to its second node.
    new nodes = directors.shard();
    nodes.add_backend(node1);
    nodes.add_backend(node2);
    nodes.add_backend(node3);
    nodes.reconfigure();
}

sub vcl_recv {
    # Whoever sends two API keys would be sent by one and might be counted by the other.
    std.collect(req.http.X-Api-Key);
    if (req.http.X-Api-Key ~ ",") {
        return (synth(400));
    }

    set req.http.X-Forwarded-For = client.ip;
    if (local.socket == "operators") {
        # Which node has a key, or an address:
        #     curl -sI -H 'X-Api-Key: alice' http://127.0.0.1:8404/health
        #     curl -sI -H 'X-Client: 2001:db8:7::1' http://127.0.0.1:8404/health
        if (req.url != "/health") {
            return (synth(404));
        }
        set req.http.X-Forwarded-For = std.ip(req.http.X-Client, client.ip);
    }

    # The key: the API key; or, where there is none, and for logins, the client's address, of IPv6 its
    # first 48 bits (a::, a:b:: and a:b:c...). That is wider than what the nodes count, which is right,
    # too. If they also limit networks (prefix=24,48), hash by those.
    if (req.http.X-Api-Key && req.http.X-Api-Key != "" && req.url !~ "^/login(\?|$)") {
        set req.http.X-Hashed-By = "key";
        set req.http.X-Limit-Key = req.http.X-Api-Key;
    } else {
        set req.http.X-Hashed-By = "ip";
        set req.http.X-Limit-Key = "ip:" + regsub(regsub(regsub(req.http.X-Forwarded-For,
            "^([0-9a-f]+)::.*", "\1:0:0:"),
            "^([0-9a-f]+:[0-9a-f]+)::.*", "\1:0:"),
            "^(([0-9a-f]+:){3}).*", "\1");
    }

    # What is answered from the cache does not reach a node, and is not counted.
    return (pass);
}

sub vcl_backend_fetch {
    # LAZY, so that the node is chosen when the request goes to it. One that was chosen in vcl_recv may
    # have been asked to leave since, and then Varnish answers 503.
    set bereq.backend = nodes.backend(by=KEY, key=nodes.key(bereq.http.X-Limit-Key), resolve=LAZY);
}

# A node that was asked to leave between its choice and its request did not get it; the next one does. A
# POST may have been cut amid: it is not repeated. Never return (retry) for what a node answers, in
# vcl_backend_response: a refusal would be asked of another node.
sub vcl_backend_error {
    if (bereq.retries == 0 && bereq.method != "POST" && !std.healthy(beresp.backend)) {
        return (retry);
    }
}

sub vcl_deliver {
    if (local.socket != "operators") {
        unset resp.http.X-Node;
    }
}
