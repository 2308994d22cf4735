// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The stint authors
//
// stint for Node.js: one table of limits for all processes and threads of a host.
//
//     const stint = require('stint');
//     const policies = ['100/minute name=api'];
//     const table = stint.open('/run/app.table', { maxEntries: 100000, policies });
//     const api = table.policy('api');
//     if (!api.allow(client)) refuse();
//
// README.md beside this file has more. stint.h is the contract: what it says of a function of C
// holds for the method of that name. addon.c is what is called here.
'use strict';

const cluster = require('node:cluster');
const fs = require('node:fs');
const path = require('node:path');
const util = require('node:util');
const { isMainThread } = require('node:worker_threads');

// enum stint_request_flags, stint_verdict_flags, stint_on_full and so on: tests/node compares them
// with stint.h.
const REQUEST = {
    peek: 1 << 9,
    partial: 1 << 10,
    drain: 1 << 11,
    reserve: 1 << 12,
    charge: 1 << 13,
    tentative: 1 << 14,
};
const VERDICT = {
    firstRefusal: 1 << 0,
    shadowed: 1 << 1,
    untracked: 1 << 2,
    replaced: 1 << 3,
    unknownPolicy: 1 << 4,
    nearLimit: 1 << 5,
    badRequest: 1 << 6,
    banned: 1 << 7,
    overridden: 1 << 8,
    mistakenNow: 1 << 9,
};
const ON_FULL = { admit: 0, refuse: 1, replace: 2 };
const PRECISE_CLOCK = 1 << 19;
const DRY_RUN = 1 << 22;
const PRUNE = 1 << 23;
const HEADERS = { draft: 1 << 28, legacy: 1 << 29, both: (1 << 28) | (1 << 29), retry: 0 };
const ALL_MAX = 64;
const LIMIT_MAX = 2 ** 28;
const ENTRIES_MAX = 2 ** 40;
const NO_POLICY = 2 ** 32 - 1;

// Where addon.c's array has what of a verdict (enum place).
const PLACES = 16;

// ---- Errors -------------------------------------------------------------------------------------

let addon = null;
let out = null;

function load() {
    if (process.platform !== 'linux') {
        throw coded(
            Error,
            'ENOTSUP',
            `stint runs on Linux, and this is ${process.platform}: run the program in a Linux ` +
            'container or machine',
        );
    }
    const file = path.join(__dirname, 'build', 'stint.node');
    if (!fs.existsSync(file)) {
        throw coded(
            Error,
            'ENOENT',
            `stint's addon was not built: there is no ${file}. Run \`npm rebuild stint\` (npm's ` +
            'ignore-scripts must be off)',
        );
    }
    addon = require(file);
    out = addon.out;
}

function coded(kind, code, message) {
    return Object.assign(new kind(message), { code });
}

// What a function of C returned: an error is thrown, with the library's reason.
function checked(result, of = '') {
    if (typeof result === 'number' && result < 0) {
        // As options and flags are called here: options.max_entries is maxEntries.
        const reason = addon
            .reason()
            .replace(/\boptions\.(\w+)/g, (_, name) =>
                name.replace(/_(.)/g, (all, letter) => letter.toUpperCase()),
            )
            .replace(/\bSTINT_(CHARGE|PARTIAL|DRAIN|RESERVE)\b/g, (_, name) => name.toLowerCase())
            .replace(/stint_policy_change or stint_policies_apply|stint_policies_apply/g, 'table.apply')
            .replace('stint_resize', '`stint resize`')
            .replace('STINT_OVERRIDES', '`overrides`')
            .replace("a limit of the request's own", 'limit')
            .replace('request.burst', 'burst')
            .replace('stint_open makes one', 'with maxEntries it is made');
        throw coded(Error, util.getSystemErrorName(result), of + reason);
    }
    return result;
}

function wrong(what) {
    return coded(TypeError, 'ERR_INVALID_ARG_VALUE', what);
}

function shown(value) {
    return util.inspect(value, {
        depth: 0,
        maxStringLength: 40,
        maxArrayLength: 4,
        breakLength: Infinity,
    });
}

// What is wrong with a key that addon.c has refused.
function wrongKey(key) {
    const hint = 'give a string, a Buffer, a whole number from 0, a BigInt, or an array of these';
    if (Number.isInteger(key) && key >= 0)
        return wrong(
            `key ${key}: a number above 2^53 - 1 may have lost digits; give it as a BigInt`,
        );
    if (typeof key === 'number' || typeof key === 'bigint') {
        return wrong(
            `key ${shown(key)}: a number is a whole one from 0 to 2^53 - 1, a BigInt one from ` +
            '0n to 2n ** 64n - 1n',
        );
    }
    if (Array.isArray(key)) {
        const part = key.length === 0 ? 'it has no part' : `its parts are ${shown(key)}`;
        return wrong(
            `a key of parts: ${part}; each is a string, a Buffer, a whole number from 0 or a ` +
            'BigInt, and the first may be a Key',
        );
    }
    return wrong(`key ${shown(key)} is no key: ${hint}`);
}

function whole(value, what, most, least = 0) {
    if (!Number.isInteger(value) || value < least || value > most) {
        throw wrong(`${what} ${shown(value)}: a whole number from ${least} to ${most}`);
    }
    return value;
}

function checkCost(cost) {
    if (typeof cost !== 'number' || cost >>> 0 !== cost)
        throw wrong(`cost ${shown(cost)}: a whole number from 0 to ${2 ** 32 - 1}`);
}

function string(value, what) {
    if (typeof value !== 'string' || value.includes('\0')) {
        throw wrong(`${what} ${shown(value)}: a string without a NUL`);
    }
    return value;
}

function known(options, names, what) {
    if (options === null || typeof options !== 'object') {
        throw wrong(`${what} ${shown(options)}: an object`);
    }
    for (const name of Object.keys(options)) {
        if (!names.includes(name)) {
            throw wrong(`${what}: there is no '${name}'; there are ${names.join(', ')}`);
        }
    }
    return options;
}

function policiesText(policies) {
    const lines = Array.isArray(policies) ? policies : [policies];
    return lines.map((line) => string(line, 'policies: ')).join('\n');
}

// ---- Keys and verdicts --------------------------------------------------------------------------

// A key that was made before: a table makes it, and only that table knows it.
class Key extends BigUint64Array {
    constructor(from) {
        super(1);
        this.from = from;
    }
}

// How operators read a key. Of an array its parts, as they stand after `stint key FILE`.
function labelOf(key) {
    if (key instanceof Key) return labelOf(key.from);
    if (Array.isArray(key)) return key.map(labelOf).join(' ');
    return key instanceof Uint8Array ? Buffer.from(key).toString() : String(key);
}

// The answer to a request. The last eight fields are what a refund reads.
class Verdict {
    constructor(at) {
        this.allowed = out[at] !== 0;
        this.flags = out[at + 1];
        this.limit = out[at + 2];
        this.used = out[at + 3];
        this.remaining = out[at + 4];
        this.granted = out[at + 5];
        this.resetAfter = out[at + 8] / 1e9;
        this.retryAfter = out[at + 9] / 1e9;
        this.windowHigh = out[at + 6];
        this.windowLow = out[at + 7];
        this.policy = out[at + 10];
        this.generation = out[at + 11];
        this.unitHigh = out[at + 12];
        this.unitLow = out[at + 13];
        this.keyHigh = out[at + 14];
        this.keyLow = out[at + 15];
    }
}

for (const [name, flag] of Object.entries(VERDICT)) {
    Object.defineProperty(Verdict.prototype, name, {
        get() {
            return (this.flags & flag) !== 0;
        },
    });
}

// Writes a verdict where addon.c reads it.
function put(verdict, at) {
    if (!(verdict instanceof Verdict)) {
        throw wrong(`verdict ${shown(verdict)}: what take, charge or all returned`);
    }
    out[at] = verdict.allowed ? 1 : 0;
    out[at + 1] = verdict.flags;
    out[at + 2] = verdict.limit;
    out[at + 3] = verdict.used;
    out[at + 4] = verdict.remaining;
    out[at + 5] = verdict.granted;
    out[at + 6] = verdict.windowHigh;
    out[at + 7] = verdict.windowLow;
    out[at + 8] = verdict.resetAfter * 1e9;
    out[at + 9] = verdict.retryAfter * 1e9;
    out[at + 10] = verdict.policy;
    out[at + 11] = verdict.generation;
    out[at + 12] = verdict.unitHigh;
    out[at + 13] = verdict.unitLow;
    out[at + 14] = verdict.keyHigh;
    out[at + 15] = verdict.keyLow;
}

// ---- Policies -----------------------------------------------------------------------------------

// A policy of a table. It stays good when the policy is changed or replaced.
class Policy {
    #table;
    #handle;
    #id;
    #counts = NO_POLICY; // the id of one that is known to hold nothing in flight

    constructor(table, handle, id, name) {
        this.#table = table; // which is not collected before its policies
        this.name = name;
        this.#handle = handle;
        this.#id = id;
    }

    get table() {
        return this.#table;
    }

    // Whether the request fits. The cheapest call: it makes no verdict. What is in flight is given
    // back by a verdict: by such a policy it is an error.
    allow(key, cost = 1) {
        checkCost(cost);
        const status = addon.allow(this.#handle, this.#id, key, cost, this.#counts);
        if (status === 1) return true;
        if (status === 0) return false;
        if (status < 0) throw wrongKey(key);
        const verdict = this.table.look(new Verdict(0), this, key);
        if (this.table.isInFlight(verdict.policy)) {
            this.refund(verdict);
            throw wrong(
                `policy '${this.name}' is in flight, and allow returns nothing to give back: use ` +
                'take and refund, or all and end',
            );
        }
        this.#counts = verdict.policy;
        return verdict.allowed;
    }

    // Takes `cost` tokens, and returns the verdict.
    //   options  limit, burst: the request's own; partial, drain, reserve, tentative: true
    take(key, cost = 1, options = undefined) {
        let flags = 0;
        let limit = 0;
        let burst = 0;
        if (options !== undefined) {
            known(
                options,
                ['limit', 'burst', 'partial', 'drain', 'reserve', 'tentative'],
                'options of take',
            );
            for (const name of ['partial', 'drain', 'reserve', 'tentative']) {
                if (options[name]) flags |= REQUEST[name];
            }
            if (options.limit !== undefined) limit = whole(options.limit, 'limit', LIMIT_MAX, 1);
            if (options.burst !== undefined) burst = whole(options.burst, 'burst', LIMIT_MAX, 1);
        }
        return this.#decide(key, cost, limit, burst, flags);
    }

    // Charges `cost` tokens, whatever is left.
    charge(key, cost = 1) {
        return this.#decide(key, cost, 0, 0, REQUEST.charge);
    }

    // Says what a take would say, and takes nothing.
    peek(key, cost = 1) {
        return this.#decide(key, cost, 0, 0, REQUEST.peek);
    }

    // Gives back up to `tokens` of what the verdict granted. Returns how many.
    refund(verdict, tokens = verdict?.granted) {
        put(verdict, 0);
        const back = addon.refund(this.#handle, whole(tokens, 'tokens', 2 ** 32 - 1));
        verdict.granted = out[5];
        verdict.windowHigh = out[6];
        verdict.windowLow = out[7];
        return back;
    }

    // Makes a key as good as new. Returns whether there was anything to forget.
    reset(key) {
        const status = addon.reset(this.#handle, this.#id, key);
        if (status < 0) throw wrongKey(key);
        return status === 1;
    }

    #decide(key, cost, limit, burst, flags) {
        checkCost(cost);
        if (addon.decide(this.#handle, this.#id, key, cost, limit, burst, flags) < 0)
            throw wrongKey(key);
        return this.table.look(new Verdict(0), this, key, limit, burst, flags);
    }

    // For Table.all: one request of a group.
    stage(place, key, cost) {
        checkCost(cost);
        whole(place, 'place', ALL_MAX - 1);
        if (addon.stage(this.#handle, this.#id, key, cost, 0, 0, 0, place) < 0) throw wrongKey(key);
    }

    // Why a request is a bad one.
    check(limit, burst, flags) {
        return checked(
            addon.check(this.#handle, this.#id, limit, burst, flags),
            `policy '${this.name}': `,
        );
    }
}

// Several requests that were decided as one.
class Group {
    constructor(allowed, requests, verdicts) {
        this.allowed = allowed;
        this.requests = requests;
        this.verdicts = verdicts;
    }

    // Seconds until it is worth asking again.
    get retryAfter() {
        return this.allowed
            ? 0
            : Math.max(...this.verdicts.filter((one) => !one.allowed).map((one) => one.retryAfter));
    }

    // Gives back all that was taken. Returns how many tokens.
    refund() {
        return this.verdicts.reduce(
            (sum, verdict, i) => sum + this.requests[i][0].refund(verdict),
            0,
        );
    }

    // The work is done: gives back what was held in flight. What windows and buckets granted stays
    // used.
    end() {
        return this.verdicts.reduce((sum, verdict, i) => {
            const held =
                verdict.granted > 0 && this.requests[i][0].table.isInFlight(verdict.policy);
            return held ? sum + this.requests[i][0].refund(verdict) : sum;
        }, 0);
    }
}

// ---- Tables -------------------------------------------------------------------------------------

// That no table is used any more: addon.c closes it.
const collected = new FinalizationRegistry((handle) => addon.forget(handle));

class Table {
    #handle;
    #warned = new Set();

    constructor(handle, file) {
        this.#handle = handle;
        this.path = file;
        collected.register(this, handle);
    }

    // A policy by its name.
    policy(name) {
        const id = addon.find(this.#handle, string(name, "a policy's name"));
        if (id < 0) {
            const names = this.#policies().map((policy) => `'${policy.name}'`);
            throw coded(
                Error,
                util.getSystemErrorName(id),
                `${this}: there is no policy '${name}'; ` +
                `${names.length === 0 ? 'it has none' : `there are ${names.join(', ')}`}`,
            );
        }
        return new Policy(this, this.#handle, id, name);
    }

    // Makes the policies of the table those of these texts, for all processes. Each is found by its
    // name.
    //   options  prune: true removes the policies that are not named; dryRun: true changes nothing
    // Returns what became of each.
    apply(policies, options = {}) {
        const { prune, dryRun } = known(options, ['prune', 'dryRun'], 'options of apply');
        const flags = (prune ? PRUNE : 0) | (dryRun ? DRY_RUN : 0);
        return checked(
            addon.apply(this.#handle, policiesText(policies), flags),
            `${this}: policies: `,
        );
    }

    // Removes a policy, and what it has counted, for all processes.
    remove(name) {
        checked(addon.remove(this.#handle, string(name, "a policy's name")), `${this}: '${name}': `);
    }

    // Decides several requests as one: all take their tokens, or none does.
    //   requests  [policy, key] or [policy, key, cost], up to 64, no two of one policy and one key
    all(...requests) {
        if (requests.length > ALL_MAX)
            throw wrong(`all: ${requests.length} requests; at most ${ALL_MAX} are decided as one`);
        requests.forEach((request, place) => {
            const [policy, key, cost = 1] = Array.isArray(request) ? request : [];
            if (!(policy instanceof Policy) || policy.table !== this) {
                throw wrong(
                    `all: request ${place} is ${shown(request)}; give [policy, key] or [policy, ` +
                    'key, cost], with a policy of this table',
                );
            }
            policy.stage(place, key, cost);
        });
        const allowed = addon.all(this.#handle, requests.length) === 1;
        const verdicts = requests.map((request, place) => new Verdict(place * PLACES));
        verdicts.forEach((verdict, place) => this.look(verdict, ...requests[place].slice(0, 2)));
        return new Group(allowed, requests, verdicts);
    }

    // A key that is made once, and used often.
    key(...parts) {
        const key = new Key(parts);
        if (addon.key(this.#handle, parts, key) < 0)
            throw wrongKey(parts.length === 1 ? parts[0] : parts);
        return key;
    }

    // The key of a client's address: what nginx's `prefix=` and the command's --address make of it.
    //   text  IPv4 or IPv6, with or without a zone; '' is the one of all unix sockets
    address(text, prefix4 = 32, prefix6 = 64) {
        const key = new Key(text);
        const bare = string(text, 'address').replace(/%.*$/, '');
        whole(prefix4, 'prefix4', 32, 1);
        whole(prefix6, 'prefix6', 128, 1);
        if (addon.address(this.#handle, bare, prefix4, prefix6, key) < 0) {
            throw wrong(`address ${shown(text)}: an IPv4 or IPv6 address, without a port`);
        }
        return key;
    }

    // The fields of a response that tell of these verdicts: their values by their names.
    //   style  'draft': RateLimit and RateLimit-Policy; 'legacy': X-RateLimit-*; 'both'; 'retry':
    //          neither. Each has Retry-After, if one refused
    headers(verdicts, style = 'draft') {
        if (!Object.hasOwn(HEADERS, style))
            throw wrong(`style ${shown(style)}: one of ${Object.keys(HEADERS).join(', ')}`);
        if (!Array.isArray(verdicts)) throw wrong(`verdicts ${shown(verdicts)}: an array of them`);
        const count = whole(verdicts.length, 'the number of verdicts', ALL_MAX); // read once
        verdicts.forEach((verdict, place) => put(verdict, place * PLACES));
        const lines = checked(addon.headers(this.#handle, HEADERS[style], count));
        return Object.fromEntries(
            lines
                .split('\r\n')
                .filter(Boolean)
                .map((line) => line.split(/: (.*)/s, 2)),
        );
    }

    // Counts of the table. Reads every slot: 0.1 s for 10 million entries.
    stats() {
        return checked(addon.stats(this.#handle), `${this}: `);
    }

    // Closes it. A table in a file stays.
    close() {
        addon.close(this.#handle);
    }

    isInFlight(id) {
        return addon.inFlight(this.#handle, id) === 1;
    }

    // Says what a verdict has to say that is not of its key: an error is thrown, a warning is told
    // once. A key that was refused for the first time in its window leaves its name.
    look(verdict, policy, key, limit = 0, burst = 0, flags = 0) {
        const { untracked, replaced, unknownPolicy, badRequest } = VERDICT;
        if (verdict.firstRefusal) {
            try {
                addon.label(this.#handle, verdict.keyHigh, verdict.keyLow, labelOf(key));
            } catch {
                // The decision stands, whatever a part of the key was.
            }
        }
        if ((verdict.flags & (untracked | replaced | unknownPolicy | badRequest)) === 0)
            return verdict;
        if ((verdict.flags & unknownPolicy) !== 0) {
            throw coded(Error, 'ENOENT', `${this}: policy '${policy.name}' was removed`);
        }
        if ((verdict.flags & badRequest) !== 0) {
            policy.check(limit, burst, flags);
            throw wrong('all: two requests are of one key by one policy: add their costs');
        }
        if (verdict.policy === NO_POLICY) {
            this.warn(
                'STINT_LOST',
                'was cut off, and lets everything through: close it, remove the file, and open ' +
                'it again',
            );
        } else {
            this.warn(
                'STINT_FULL',
                (verdict.flags & replaced) !== 0
                    ? 'is full: new keys take the places of others, which begin anew. Make it ' +
                        'larger (maxEntries; stint resize)'
                    : 'is full: new keys are ' +
                        `${verdict.allowed ? 'let through uncounted' : 'refused'}. Make it ` +
                        'larger (maxEntries; stint resize)',
            );
        }
        return verdict;
    }

    warn(code, text) {
        if (this.#warned.has(code)) return;
        this.#warned.add(code);
        process.emitWarning(`${this} ${text}`, { type: 'StintWarning', code });
    }

    toString() {
        return this.path ?? 'the private table';
    }

    #policies() {
        const policies = [];
        for (let id = 0; id < this.stats().maxPolicies; id++) {
            const policy = addon.policy(this.#handle, id);
            if (typeof policy === 'object') policies.push(policy);
        }
        return policies;
    }
}

// Opens a table.
//   path     of its file, which all processes share; null: a table of this process alone
//   options  maxEntries: live pairs of key and policy that it holds; without it the file must be
//            there. policies: texts in the notation, which are applied. onFull: 'replace' (a new
//            key takes the place of another), 'admit', 'refuse'. maxPolicies: 64. labels: how many
//            names of refused keys it has room for. mode: 0o600. preciseClock: true
function open(file, options = {}) {
    if (addon === null) load();
    const names = [
        'maxEntries',
        'policies',
        'onFull',
        'maxPolicies',
        'labels',
        'mode',
        'preciseClock',
    ];
    const {
        maxEntries,
        policies,
        onFull = 'replace',
        maxPolicies = 0,
        labels = 0,
        mode = 0,
        preciseClock,
    } = known(options, names, 'options of open');
    if (file !== null && (typeof file !== 'string' || file === '' || file.includes('\0'))) {
        throw wrong(
            `path ${shown(file)}: the path of a file that all processes share, or null for a ` +
            'table of this process alone',
        );
    }
    const testing = addon.clock() === 1; // then in memory, whatever the path
    if (file === null && maxEntries === undefined && !testing) {
        throw wrong(
            'maxEntries: a table of this process alone needs it: how many pairs of key and ' +
            'policy it holds',
        );
    }
    if (maxEntries !== undefined) whole(maxEntries, 'maxEntries', ENTRIES_MAX, 1);
    if (!Object.hasOwn(ON_FULL, onFull))
        throw wrong(`onFull ${shown(onFull)}: one of ${Object.keys(ON_FULL).join(', ')}`);
    whole(maxPolicies, 'maxPolicies', 4096);
    whole(labels, 'labels', 2 ** 32 - 1);
    whole(mode, 'mode', 0o777);
    const text = policies === undefined ? '' : policiesText(policies);
    const absolute = file === null || testing ? null : path.resolve(file);
    const handle = checked(
        addon.open(
            absolute,
            maxEntries ?? (testing ? 10000 : 0),
            ON_FULL[onFull],
            preciseClock ? PRECISE_CLOCK : 0,
            maxPolicies,
            mode,
            labels,
        ),
    );
    const table = new Table(handle, absolute);
    try {
        if (text !== '') table.apply(text);
    } catch (error) {
        table.close();
        throw error;
    }
    tellUnshared(table);
    return table;
}

// A table that is not shared where others would be expected to share it.
function tellUnshared(table) {
    const OVERLAY = 0x794c7630;
    if (table.path === null) {
        if (cluster.isWorker || !isMainThread) {
            table.warn(
                'STINT_PRIVATE',
                `is of this ${cluster.isWorker ? 'worker of a cluster' : 'thread'} alone: each ` +
                'grants the limit anew. Give open() a path',
            );
        }
    } else if (fs.statfsSync(table.path).type === OVERLAY) {
        table.warn(
            'STINT_OVERLAY',
            "is in a container's own layer: no other container shares it, and it is gone with " +
            "this one. Give a path in a volume, or in a folder of the host",
        );
    }
}

module.exports = {
    open,
    version() {
        if (addon === null) load();
        return addon.version();
    },
    Table,
    Policy,
    Verdict,
    Group,
    Key,
};
Object.assign(module.exports, require('./express.cjs'));
