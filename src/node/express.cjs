// SPDX-License-Identifier: MIT
// For express and plain http: a middleware of stint's own, and a store for express-rate-limit.
'use strict';

const net = require('node:net');
const util = require('node:util');
const { Policy, Table } = require('./index.cjs');

const HOUR = 3600e3;
const TICK = 10; // ms: windows are whole ticks
const LONGEST = 366 * 24 * HOUR;
const LIMIT_MAX = 2 ** 28;

function wrong(what) {
    return Object.assign(new TypeError(what), { code: 'ERR_INVALID_ARG_VALUE' });
}

// ---- The middleware -----------------------------------------------------------------------------

const WITH_PORT = /^(?:\[([\da-f:.]+)\](?::\d+)?|([\d.]+):\d+)$/i;

// By express's `trust proxy`, if there is an express, with a port or without. What a proxy hands on
// that is no address is the peer's. A unix socket has none.
function clientOf(request, table, prefix4, prefix6) {
    const told = [request.ip, request.socket?.remoteAddress];
    for (const text of told.filter((one) => typeof one === 'string')) {
        const found = WITH_PORT.exec(text);
        const bare = (found?.[1] ?? found?.[2] ?? text).replace(/%.*$/, '');
        if (net.isIP(bare) !== 0) return table.address(bare, prefix4, prefix6);
    }
    return table.address('', prefix4, prefix6);
}

function readLimits(policies) {
    const limits = (Array.isArray(policies) ? policies : [policies]).map((entry) => {
        const [policy, key = undefined, cost = 1] = Array.isArray(entry) ? entry : [entry];
        if (
            !(policy instanceof Policy) ||
            !['undefined', 'function'].includes(typeof key) ||
            !['number', 'function'].includes(typeof cost)
        ) {
            throw wrong(
                `express: ${util.inspect(entry, { depth: 0 })}; give table.policy(name), or ` +
                '[policy, request => key], or [policy, request => key, cost]',
            );
        }
        return { policy, key, cost };
    });
    if (
        limits.length === 0 ||
        limits.some(({ policy }) => policy.table !== limits[0].policy.table)
    ) {
        throw wrong('express: one policy or more, all of one table');
    }
    limits.forEach(({ policy, key }, place) => {
        if (limits.findIndex((one) => one.policy.name === policy.name && one.key === key) < place)
            throw wrong(`express: policy '${policy.name}' is there twice for one key: add the costs`);
    });
    return limits;
}

function tell(response, fields) {
    for (const [name, value] of Object.entries(fields)) {
        const before = name.startsWith('RateLimit') ? response.getHeader(name) : undefined;
        response.setHeader(name, before === undefined ? value : `${before}, ${value}`);
    }
}

function refuseWith429(request, response) {
    response.statusCode = 429;
    response.setHeader('Content-Type', 'text/plain; charset=utf-8');
    response.end('Too many requests\n');
}

// Nobody hears an exception here: the table may be closed by now.
function end(group) {
    try {
        group.end();
    } catch (error) {
        process.emitWarning(`stint: what a request held is forgotten later: ${error.message}`);
    }
}

// The answers of a socket that wait for another one of it (pipelining), and so have no socket yet:
// they hear nothing when it is closed.
const waiting = new WeakMap();

// Calls `over` when the client has its answer, or has gone. It may be called twice. A request that
// came by no socket (a server's own, or a test's) has none.
function whenOver({ socket }, response, over) {
    const waits = response.socket === null && socket !== undefined;
    if (response.closed || response.destroyed || (waits && socket.destroyed)) {
        over(); // the client has gone: there is no other event
        return;
    }
    response.once('close', over);
    if (!waits) return;
    let all = waiting.get(socket);
    if (all === undefined) {
        all = new Set();
        waiting.set(socket, all);
        socket.once('close', () => all.forEach((one) => one()));
    }
    all.add(over);
    response.once('close', () => all.delete(over));
}

// Limits requests: `app.use(express([api]))`, or `limit(request, response, next)` in plain http.
//   policies  each a policy, whose key is the client's address; or [policy, request => key, cost],
//             where cost is a number, or request => number. All take their tokens, or none does
//   options   headers: 'draft', 'legacy', 'both', 'retry', false. refuse: (request, response, next,
//             group). prefix4, prefix6: bits of addresses that count: 32, 64
function express(policies, options = {}) {
    const limits = readLimits(policies);
    const { table } = limits[0].policy;
    const {
        headers = 'draft',
        refuse = refuseWith429,
        prefix4 = 32,
        prefix6 = 64,
        ...unknown
    } = options;
    if (Object.keys(unknown).length > 0) {
        throw wrong(
            `options of express: there is no '${Object.keys(unknown)[0]}'; there are headers, ` +
            'refuse, prefix4, prefix6',
        );
    }
    table.address('::', prefix4, prefix6); // so that a wrong prefix is told now
    if (headers !== false) table.headers([], headers);
    return function limit(request, response, next) {
        let group;
        try {
            group = table.all(
                ...limits.map(({ policy, key, cost }) => [
                    policy,
                    key === undefined
                        ? clientOf(request, table, prefix4, prefix6)
                        : key(request),
                    typeof cost === 'function' ? cost(request) : cost,
                ]),
            );
            if (headers !== false && !response.headersSent)
                tell(response, table.headers(group.verdicts, headers));
        } catch (error) {
            group?.refund();
            next(error);
            return;
        }
        if (!group.allowed) {
            refuse(request, response, next, group);
            return;
        }
        whenOver(request, response, () => end(group));
        next();
    };
}

// ---- The store ----------------------------------------------------------------------------------

// A store for express-rate-limit: `rateLimit({ windowMs, limit, store: new ExpressStore(table) })`.
// All workers that open the table count together. A key's window begins with its first request. The
// limit is express-rate-limit's: the store counts.
//   table    of stint.open
//   options  prefix: of its keys. Each rateLimit() has a store and a prefix of its own
class ExpressStore {
    #table;
    #policy = null;
    #windowMs = undefined;
    #reason = null;

    constructor(table, options = {}) {
        const { prefix = '', ...unknown } = options;
        if (!(table instanceof Table))
            throw wrong(
                'ExpressStore: its first argument is a table: new ExpressStore(stint.open(...))',
            );
        if (typeof prefix !== 'string' || Object.keys(unknown).length > 0)
            throw wrong("ExpressStore: options are { prefix: 'a string' }");
        this.#table = table;
        this.prefix = prefix;
        this.localKeys = table.path === null;
    }

    // express-rate-limit calls this, logs what it throws, and goes on. So increment throws it, too.
    init({ windowMs }) {
        this.#windowMs = windowMs;
        try {
            this.#policy = this.#policyOf(windowMs);
        } catch (error) {
            this.#reason = error;
            throw error;
        }
    }

    increment(key) {
        const verdict = this.#counted((policy) => policy.take(this.#key(key)));
        return {
            totalHits: verdict.allowed ? Math.max(verdict.used, 1) : LIMIT_MAX,
            resetTime: resetTime(verdict),
        };
    }

    decrement(key) {
        this.#counted((policy) => {
            const verdict = policy.peek(this.#key(key));
            if (verdict.used === 0) return;
            verdict.granted = 1; // of the window that it is in: whose request it was, nobody knows
            policy.refund(verdict);
        });
    }

    // Nothing of a key that has used nothing: whether it was given all back, was reset, or is new, the
    // table does not tell.
    get(key) {
        const verdict = this.#counted((policy) => policy.peek(this.#key(key)));
        if (verdict.used === 0) return undefined;
        return { totalHits: verdict.used, resetTime: resetTime(verdict) };
    }

    resetKey(key) {
        this.#counted((policy) => policy.reset(this.#key(key)));
    }

    // Of all stores of this windowMs in the table.
    resetAll() {
        this.#counted(({ table, name }) => table.remove(name));
        this.#policy = this.#policyOf(this.#windowMs);
    }

    #key(key) {
        return [this.prefix, key];
    }

    #counted(call) {
        if (this.#policy === null) {
            throw (
                this.#reason ??
                new Error('ExpressStore: init({ windowMs }) comes first; rateLimit() calls it')
            );
        }
        try {
            return call(this.#policy);
        } catch (error) {
            if (error.code !== 'ENOENT') throw error;
        }
        this.#policy = this.#policyOf(this.#windowMs); // another process has reset all
        return call(this.#policy);
    }

    // All stores of one windowMs have one policy, in all processes.
    #policyOf(windowMs) {
        if (typeof windowMs !== 'number' || !(windowMs > 0) || windowMs > LONGEST) {
            throw wrong(
                `ExpressStore: windowMs ${util.inspect(windowMs)}: more than 0, and at most 366 ` +
                `days, ${LONGEST}`,
            );
        }
        const ms = Math.ceil(windowMs / TICK) * TICK;
        const name = `express-${ms}ms`;
        try {
            this.#table.apply(`${LIMIT_MAX}/${ms}ms start=first name=${name}`);
        } catch (error) {
            if (error.code === 'ENOSPC')
                error.message +=
                    '. Each other windowMs takes a policy: open a table with more maxPolicies';
            throw error;
        }
        return this.#table.policy(name);
    }
}

// When the window ends, to the ms: the same for all requests in it.
function resetTime(verdict) {
    const end = verdict.windowHigh * 2 ** 32 + verdict.windowLow;
    return new Date(end === 0 ? Date.now() + verdict.resetAfter * 1e3 : Math.ceil(end / 1e6));
}

module.exports = { express, ExpressStore };
