// SPDX-License-Identifier: MIT
// stint.express in express 5 and in plain http, and ExpressStore by express-rate-limit's contract
// of stores. Run by node.py.
'use strict';

const assert = require('node:assert/strict');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const path = require('node:path');
const test = require('node:test');
const expressApp = require('express');
const { rateLimit, MemoryStore } = require('express-rate-limit');
const { open, express, ExpressStore } = require('stint');
const { clock } = require('stint/testing');

const folder = fs.mkdtempSync(path.join('/dev/shm', 'stint-node-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true }));
let files = 0;
const table = (...policies) =>
    open(path.join(folder, `${files++}.table`), { maxEntries: 1000, policies });

async function serve(t, handler) {
    const server = http.createServer(handler).listen(0, '127.0.0.1');
    await once(server, 'listening');
    t.after(() => {
        server.closeAllConnections();
        server.close();
    });
    return (where = '/', headers = {}) =>
        new Promise((resolve, reject) => {
            http.get(
                {
                    host: '127.0.0.1',
                    port: server.address().port,
                    path: where,
                    headers,
                    agent: false,
                },
                (response) => {
                    let body = '';
                    response.setEncoding('utf8').on('data', (part) => {
                        body += part;
                    });
                    response.on('end', () =>
                        resolve({ status: response.statusCode, headers: response.headers, body }),
                    );
                },
            ).on('error', reject);
        });
}

test('express: the address is the key, fields tell of all, a refusal is 429', async (t) => {
    const limits = table('2/52w name=api', '3/52w name=all');
    const app = expressApp();
    app.set('trust proxy', 1);
    app.use(express([limits.policy('api'), [limits.policy('all'), () => 'everyone']]));
    app.get('/', (request, response) => response.send('hello'));
    const ask = await serve(t, app);
    const from = (address) => ask('/', { 'x-forwarded-for': address });
    const first = await from('2001:db8::1');
    assert.deepEqual([first.status, first.body], [200, 'hello']);
    assert.match(first.headers.ratelimit, /^"api";r=1;t=\d+, "all";r=2;t=\d+$/);
    assert.match(first.headers['ratelimit-policy'], /^"api";q=2;w=31449600, "all";q=3;w=31449600$/);
    assert.equal(first.headers['retry-after'], undefined);
    assert.equal((await from('2001:db8::2')).status, 200); // of the same customer
    const refused = await from('2001:db8::3');
    assert.deepEqual([refused.status, refused.body], [429, 'Too many requests\n']);
    assert.ok(Number(refused.headers['retry-after']) > 0);
    assert.equal((await from('192.0.2.1')).status, 200); // what was refused took nothing of `all`
    assert.equal((await from('192.0.2.2')).status, 429);
    assert.equal(limits.policy('api').peek(limits.address('192.0.2.1')).used, 1);
});

test('express: what a proxy hands on may have a port; if it is no address, the peer counts', async (t) => {
    const limits = table('99/52w name=api');
    const api = limits.policy('api');
    for (const trust of [1, 'loopback']) {
        const app = expressApp();
        app.set('trust proxy', trust);
        app.use(express(api));
        app.get('/', (request, response) => response.send('hello'));
        const ask = await serve(t, app);
        for (const [told, address] of [
            ['192.0.2.7', '192.0.2.7'],
            ['192.0.2.7:5678', '192.0.2.7'],
            ['[2001:db8::1]:443', '2001:db8::1'],
            ['[2001:db8::1]', '2001:db8::1'],
            ['2001:db8::1:443', '2001:db8::1:443'],
            ['fe80::1%eth0', 'fe80::1'],
            ...['unknown', '[', '[]:1', ':', '', ',', '[192.0.2.7', '192.0.2.7:', '192.0.2.7:x', '1.2.3:4'].map(
                (text) => [text, '127.0.0.1'],
            ),
        ]) {
            assert.equal((await ask('/', { 'x-forwarded-for': told })).status, 200, told);
            assert.equal(api.peek(limits.address(address)).used, 1, `${told} is not ${address}`);
            api.reset(limits.address(address));
        }
    }
});

test('express: what is in flight is given back when a response ends, or is cut', async (t) => {
    const limits = table('2/1h in-flight name=busy', '9/52w name=api');
    const [busy, api] = [limits.policy('busy'), limits.policy('api')];
    const waiting = [];
    const app = expressApp();
    app.use(
        express([
            [busy, () => 'k'],
            [api, () => 'k', (request) => Number(request.headers['x-cost'] ?? 1)],
        ]),
    );
    app.get('/', (request, response) => waiting.push(response));
    app.get('/now', (request, response) => response.send('now'));
    const ask = await serve(t, app);
    const held = async (count) => {
        while (busy.peek('k').used !== count) await new Promise(setImmediate);
    };
    const answers = [ask(), ask('/', { 'x-cost': '3' })];
    await held(2);
    while (waiting.length < 2) await new Promise(setImmediate);
    const refused = await ask('/now');
    assert.deepEqual(
        [refused.status, refused.headers['retry-after'], api.peek('k').used],
        [429, undefined, 4],
    );
    waiting[0].send('done');
    await Promise.race(answers);
    await held(1);
    assert.equal((await ask('/now')).status, 200);
    await held(1);
    waiting[1].destroy();
    await Promise.allSettled(answers);
    await held(0);
    assert.equal(api.peek('k').used, 5);

    // A table that is closed before the responses are done.
    const last = ask();
    while (waiting.length < 3) await new Promise(setImmediate);
    limits.close();
    const told = once(process, 'warning');
    waiting[2].send('done');
    assert.match((await told)[0].message, /closed/);
    assert.equal((await last).body, 'done');
});

test('express: what pipelined requests hold comes back when their connection is cut', async (t) => {
    const busy = table('20/1h in-flight name=busy').policy('busy');
    const limit = express([[busy, () => 'k']]);
    const ask = (request, response) => limit(request, response, () => {});
    let late; // a request that is asked for when its client has gone
    const server = http.createServer((request, response) => {
        if (request.url === '/late') late = () => ask(request, response);
        else ask(request, response);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    t.after(() => server.close());
    const warnings = [];
    process.on('warning', (warning) => warnings.push(warning.message));
    const client = net.connect(server.address().port, '127.0.0.1');
    const [socket] = await once(server, 'connection');
    const get = (where) => `GET ${where} HTTP/1.1\r\nHost: a\r\n\r\n`;
    client.write(get('/').repeat(12) + get('/late'));
    while (late === undefined) await new Promise(setImmediate);
    assert.equal(busy.peek('k').used, 12);
    client.destroy();
    await once(socket, 'close');
    assert.equal(busy.peek('k').used, 0);
    late();
    assert.equal(busy.peek('k').used, 0);
    await new Promise(setImmediate);
    assert.deepEqual(warnings, []); // such as one of too many listeners
});

test('plain http: options, errors, and a chain of two', async (t) => {
    const limits = table('1/52w name=a', '9/52w name=b', '9/52w name=gone');
    const key = (request) => request.headers['x-user'];
    const one = express([[limits.policy('a'), key]], {
        headers: 'both',
        refuse(request, response, next, group) {
            response.statusCode = 503;
            response.end(`wait ${group.retryAfter > 0}`);
        },
    });
    const two = express([[limits.policy('b'), key]]);
    const gone = express([limits.policy('gone')], { headers: false });
    limits.apply(['1/52w name=a', '9/52w name=b'], { prune: true });
    const ask = await serve(t, (request, response) => {
        const fail = (error) => {
            response.statusCode = 500;
            response.end(error.message);
        };
        if (request.url === '/gone') return gone(request, response, fail);
        return two(request, response, (error) =>
            error ? fail(error) : one(request, response, () => response.end('in')),
        );
    });
    const first = await ask('/', { 'x-user': 'ann' });
    assert.equal(first.body, 'in');
    assert.match(first.headers.ratelimit, /^"b";r=8;t=\d+, "a";r=0;t=\d+$/);
    assert.equal(first.headers['x-ratelimit-limit'], '1');
    const refused = await ask('/', { 'x-user': 'ann' });
    assert.deepEqual([refused.status, refused.body], [503, 'wait true']);
    const keyless = await ask();
    assert.equal(keyless.status, 500);
    assert.match(keyless.body, /key undefined is no key/);
    assert.match((await ask('/gone')).body, /'gone' was removed/);
});

test('express: what is no limit is told when it is made', () => {
    const [first, second] = [table('1/s name=a'), table('1/s name=a')];
    const a = first.policy('a');
    const key = () => 'k';
    for (const [policies, options, words] of [
        [[a, a], {}, /'a' is there twice for one key: add the costs/],
        [[[a, key], [a, key, 2]], {}, /'a' is there twice/],
        [[], {}, /one policy or more/],
        [[null], {}, /null; give/],
        [['a'], {}, /'a'; give/],
        [[[a, 'key']], {}, /give/],
        [[[a, () => 1, '2']], {}, /give/],
        [[a, second.policy('a')], {}, /all of one table/],
        [[a], { headers: 'old' }, /'old': one of draft/],
        [[a], { header: 'draft' }, /no 'header'; there are headers/],
        [[a], { prefix6: 129 }, /prefix6 129/],
    ])
        assert.throws(() => express(policies, options), words);
});

// The contract of a store (express-rate-limit's type Store): calls by turns, and what both stores
// answer. Of times: 'T' is the end of the window that the first call began. Of a key whose requests
// were all given back, totalHits 0, stint's tells nothing.
const CALLS = [
    ['get', 'a', undefined],
    ['increment', 'a', { totalHits: 1, resetTime: 'T' }],
    ['increment', 'a', { totalHits: 2, resetTime: 'T' }],
    ['get', 'a', { totalHits: 2, resetTime: 'T' }],
    ['get', 'b', undefined],
    ['increment', 'b', { totalHits: 1 }],
    ['decrement', 'a'],
    ['get', 'a', { totalHits: 1, resetTime: 'T' }],
    ['get', 'b', { totalHits: 1 }],
    ['increment', 'a', { totalHits: 2, resetTime: 'T' }],
    ['resetKey', 'a'],
    ['get', 'a', undefined],
    ['increment', 'a', { totalHits: 1 }],
    ['decrement', 'a'],
    ['decrement', 'a'],
    ['get', 'a', { totalHits: 0 }],
    ['increment', 'a', { totalHits: 1 }],
    ['increment', '', { totalHits: 1 }],
    ['increment', 'x'.repeat(100000), { totalHits: 1 }],
    ['increment', `${'x'.repeat(99999)}y`, { totalHits: 1 }],
    ['decrement', 'a'],
    ['resetKey', 'a'],
    ['get', 'a', undefined],
    ['resetAll', ''],
    ['get', 'b', undefined],
    ['increment', 'b', { totalHits: 1 }],
];

async function contract(store) {
    const began = Date.now();
    store.init({ windowMs: 3600_000 });
    let end = null;
    for (const [call, key, wanted] of CALLS) {
        const answer = await store[call](key);
        const about = `${call} ${key.slice(0, 9)}`;
        const theirs = store instanceof MemoryStore;
        if (wanted === undefined || (wanted.totalHits === 0 && !theirs)) {
            assert.equal(answer, undefined, about);
            continue;
        }
        assert.equal(answer.totalHits, wanted.totalHits, about);
        assert.ok(answer.resetTime instanceof Date);
        const time = answer.resetTime.getTime();
        // A window begins with a tick, up to 10 ms before the clock, which is up to 10 ms behind.
        assert.ok(
            time >= began + 3600_000 - 40 && time <= Date.now() + 3600_000 + 10,
            `${about}: ${time - began}`,
        );
        if (wanted.resetTime === 'T') end ??= time;
        if (wanted.resetTime === 'T' && !theirs) assert.equal(time, end, about);
    }
}

test("the store's contract, by express-rate-limit's own store", () => contract(new MemoryStore()));

test("the store's contract", () => contract(new ExpressStore(table())));

test('the store: prefixes, windows, tables and mistakes', () => {
    const limits = table();
    const store = (options, windowMs = 60_000, of = limits) => {
        const made = new ExpressStore(of, options);
        made.init({ windowMs });
        return made;
    };
    const [a, b] = [store({ prefix: 'a:' }), store({ prefix: 'b:' })];
    assert.equal(a.increment('k').totalHits, 1);
    assert.equal(b.increment('k').totalHits, 1);
    assert.equal(store({ prefix: 'a:' }).increment('k').totalHits, 2);
    assert.equal(store({ prefix: 'a' }).increment(':k').totalHits, 1);
    assert.deepEqual(
        [a.prefix, a.localKeys, store({}, 1000, open(null, { maxEntries: 9 })).localKeys],
        ['a:', false, true],
    );
    assert.equal(limits.stats().policies, 1);
    assert.ok(store({}, 1234.5).increment('k').resetTime - Date.now() <= 1260);
    assert.equal(store({}, 366 * 86400e3).increment('k').totalHits, 1);
    for (const windowMs of [366 * 86400e3 + 1, 0, -1, NaN, Infinity, '1000', undefined]) {
        const made = new ExpressStore(limits);
        for (const call of [() => made.init({ windowMs }), () => made.increment('k')])
            assert.throws(call, /windowMs .*366 days/);
    }
    assert.throws(() => new ExpressStore(limits).increment('k'), /init/);
    for (const [wrong, options] of [
        [{}, {}],
        [undefined, {}],
        [limits, { prefix: 7 }],
        [limits, { perfix: 'a' }],
    ]) {
        assert.throws(() => new ExpressStore(wrong, options), /ExpressStore/);
    }
    const few = open(path.join(folder, 'few.table'), { maxEntries: 100, maxPolicies: 2 });
    store({}, 1000, few);
    store({}, 2000, few);
    const third = new ExpressStore(few);
    for (const call of [() => third.init({ windowMs: 3000 }), () => third.increment('k')])
        assert.throws(call, /maxPolicies/);
    store({}, 1000, few);
});

test('the store: all is reset, and others go on; a key that has used nothing is not there', (t) => {
    const time = clock();
    t.after(() => time.end());
    const limits = table();
    const [a, b] = ['a', 'b'].map((prefix) => new ExpressStore(limits, { prefix }));
    for (const store of [a, b]) {
        store.init({ windowMs: 60_000 });
        assert.equal(store.increment('k').totalHits, 1);
    }
    a.resetAll();
    for (const store of [a, b]) {
        assert.equal(store.get('k'), undefined);
        assert.equal(store.increment('k').totalHits, 1);
    }
    b.resetAll();
    a.resetAll(); // which the other has removed
    // Whenever in the window that was, and of both.
    for (const call of ['resetKey', 'decrement']) {
        for (const seconds of [0, 0.009, 0.01, 30]) {
            assert.equal(a.increment('k').totalHits, 1);
            time.advance(seconds);
            a[call]('k');
            b.increment('other');
            b.decrement('other');
            for (const store of [a, b]) assert.equal(store.get('k'), undefined, `${call} ${seconds}`);
        }
    }
});

test('the store on a table that is full and refuses: what is not counted is refused', () => {
    const store = new ExpressStore(open(null, { maxEntries: 16, maxPolicies: 1, onFull: 'refuse' }));
    store.init({ windowMs: 3600_000 });
    const hits = Array.from({ length: 1000 }, (_, i) => store.increment(`k${i}`));
    assert.ok(hits.filter(({ totalHits }) => totalHits === 1).length < 200);
    assert.ok(
        hits.every(
            ({ totalHits, resetTime }) =>
                [1, 2 ** 28].includes(totalHits) && resetTime > Date.now(),
        ),
    );
});

test('the store in express-rate-limit: failed requests are given back, keys reset', async (t) => {
    const limits = table();
    const app = expressApp();
    const limiter = rateLimit({
        windowMs: 3600_000,
        limit: 2,
        skipFailedRequests: true,
        standardHeaders: 'draft-8',
        store: new ExpressStore(limits, { prefix: 'x:' }),
    });
    app.use(limiter);
    app.get('/', (request, response) => response.send('in'));
    app.get('/bad', (request, response) => response.status(400).send('bad'));
    const ask = await serve(t, app);
    const used = async (count) => {
        while (((await limiter.getKey('127.0.0.1'))?.totalHits ?? 0) !== count)
            await new Promise(setImmediate);
    };
    for (let i = 0; i < 5; i++) {
        assert.equal((await ask('/bad')).status, 400);
        await used(0);
    }
    for (const status of [200, 200, 429]) assert.equal((await ask()).status, status);
    limiter.resetKey('127.0.0.1');
    assert.equal((await ask()).status, 200);
});
