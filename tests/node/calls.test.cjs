// SPDX-License-Identifier: MIT
// Each call by what the library answers, and each mistake by what is said. Run by node.py, in a
// folder where the package is installed.
'use strict';

const assert = require('node:assert/strict');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const test = require('node:test');
const stint = require('stint');
const { clock } = require('stint/testing');

const folder = fs.mkdtempSync(path.join('/dev/shm', 'stint-node-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true }));
let files = 0;
const fresh = () => path.join(folder, `${files++}.table`);
const open = (...policies) => stint.open(fresh(), { maxEntries: 1000, policies });

// Runs a program of its own, and returns what it printed.
function node(program, ...options) {
    return execFileSync(process.execPath, [...options, '-e', program], {
        encoding: 'utf8',
        stdio: ['ignore', 'pipe', 'pipe'],
    });
}

// What a program tells as warnings.
function warnings(program) {
    const done = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8' });
    assert.equal(done.status, 0, done.stderr);
    return done.stderr.split('\n').filter((line) => line.includes('StintWarning'));
}

// The call throws an error of this code that has these words.
const fails = (code, call, ...words) =>
    assert.throws(call, (error) => {
        assert.equal(error.code, code, error.stack);
        assert.doesNotMatch(error.message, /options\.|stint_|STINT_/);
        for (const word of words)
            assert.ok(error.message.includes(word), `${error.message} says nothing of ${word}`);
        return true;
    });
const wrong = (call, ...words) => fails('ERR_INVALID_ARG_VALUE', call, ...words);

test('a take grants the limit, and tells what is left', () => {
    const policy = open('3/52w name=a').policy('a');
    for (const left of [2, 1, 0]) {
        const verdict = policy.take('ann');
        assert.deepEqual(
            [
                verdict.allowed,
                verdict.limit,
                verdict.used,
                verdict.remaining,
                verdict.granted,
                verdict.retryAfter,
            ],
            [true, 3, 3 - left, left, 1, 0],
        );
        assert.ok(verdict.resetAfter > 0 && verdict.resetAfter <= 366 * 86400);
    }
    assert.equal(policy.allow('ann'), false);
    const refused = policy.take('ann');
    assert.deepEqual([refused.allowed, refused.firstRefusal, refused.granted], [false, false, 0]);
    assert.ok(refused.retryAfter > 0 && refused.retryAfter <= refused.resetAfter);
    assert.equal(policy.take('bob', 4).retryAfter, Infinity);
    assert.ok(policy.take('bob', 4).firstRefusal === false && policy.allow('bob', 3));
});

test('flags have names', () => {
    const table = open(
        '1/52w name=shadow shadow',
        '1/52w name=near near=50%',
        '1/52w name=ban ban=300d',
    );
    const twice = (name) => [table.policy(name).take('k'), table.policy(name).take('k')];
    assert.ok(twice('shadow')[1].shadowed);
    assert.ok(twice('near')[0].nearLimit);
    const [first, banned] = twice('ban');
    assert.ok(
        !first.banned &&
            banned.banned &&
            !banned.allowed &&
            banned.firstRefusal &&
            !banned.untracked &&
            !banned.replaced,
    );
});

test('a request has a burst of its own', () => {
    const bucket = open('10/52w burst=10 name=a').policy('a');
    const granted = [6, 6, 8, 99].map(
        (burst) => bucket.take('k', 9, { burst, partial: true }).granted,
    );
    assert.deepEqual(granted, [6, 0, 2, 2]);
});

test('options of a take, charges, looks, refunds, resets', () => {
    const policy = open('10/52w name=a reserve=5').policy('a');
    assert.equal(policy.take('k', 8).granted, 8);
    assert.equal(policy.peek('k', 3).allowed, false);
    assert.equal(policy.take('k', 3, { partial: true }).granted, 2);
    assert.equal(policy.take('k', 4, { reserve: true }).allowed, true);
    assert.equal(policy.take('l', 5, { limit: 4 }).allowed, false);
    assert.equal(policy.take('l', 11, { drain: true }).allowed, false);
    assert.equal(policy.peek('l').remaining, 0);
    assert.equal(policy.take('l', 1, { tentative: true }).firstRefusal, false);
    const charged = policy.charge('m', 12);
    assert.deepEqual([charged.allowed, charged.granted, charged.used], [true, 12, 12]);
    assert.equal(policy.refund(charged, 3), 3);
    assert.deepEqual([charged.granted, policy.peek('m').used], [9, 9]);
    assert.equal(policy.refund(charged), 9);
    assert.equal(policy.refund(charged), 0);
    assert.equal(policy.refund(policy.take('k', 10)), 0); // it was refused
    assert.equal(policy.reset('k'), true);
    assert.equal(policy.reset('k'), false);
    assert.equal(policy.peek('k').used, 0);
});

test('a bucket gives back the time that tokens took, in parts', () => {
    const policy = open('1/h burst=10 name=a').policy('a');
    const verdict = policy.take('k', 10);
    assert.equal(policy.refund(verdict, 4), 4);
    assert.equal(policy.take('k', 5).allowed, false);
    assert.equal(policy.take('k', 4).allowed, true);
    assert.equal(policy.refund(verdict), 6);
    assert.equal(policy.refund(verdict), 0);
});

test('a group takes all or nothing, ends what is in flight, gives back all', () => {
    const table = open('2/52w name=a', '3/52w name=b', '1/30s in-flight name=busy');
    const [a, b, busy] = ['a', 'b', 'busy'].map((name) => table.policy(name));
    const used = () => [a, b, busy].map((policy) => policy.peek('k').used);
    const group = table.all([a, 'k'], [b, 'k', 2], [busy, 'k']);
    assert.deepEqual([group.allowed, group.retryAfter, used()], [true, 0, [1, 2, 1]]);
    const refused = table.all([a, 'k'], [busy, 'k']);
    assert.deepEqual(
        [refused.allowed, refused.verdicts.map((one) => one.allowed), used()],
        [false, [true, false], [1, 2, 1]],
    );
    assert.ok(refused.retryAfter > 0 && refused.retryAfter <= 60);
    assert.deepEqual([group.end(), group.end(), used()], [1, 0, [1, 2, 0]]);
    assert.deepEqual([group.refund(), group.refund(), used()], [3, 0, [0, 0, 0]]);
    assert.equal(table.all().allowed, true);
    const many = Array.from({ length: 64 }, (_, i) => [b, `l${i}`, 0]);
    assert.equal(table.all(...many).allowed, true);
    wrong(() => table.all([a, 'k'], [b, 'k'], [a, 'k', 2]), 'add their costs');
    assert.deepEqual(used(), [0, 0, 0]);
    wrong(() => table.all(...Array(65).fill([b, 'l', 0])), '65', '64');
    wrong(() => table.all([a, 'k'], 'b'), 'request 1', "'b'");
    wrong(() => table.all([open('1/s name=a').policy('a'), 'k']), 'of this table');
    assert.deepEqual(used(), [0, 0, 0]);
});

test('allow by a policy in flight names take, also once the policy has become one', () => {
    const table = open('9/52w name=a', '1/30s in-flight name=busy');
    const [a, busy] = [table.policy('a'), table.policy('busy')];
    for (let i = 0; i < 2; i++)
        wrong(() => busy.allow('k'), "'busy' is in flight", 'take');
    assert.equal(busy.peek('k').used, 0);
    assert.deepEqual([a.allow('k'), a.allow('k')], [true, true]);
    table.apply('1/30s in-flight name=a');
    wrong(() => a.allow('k'), 'take');
});

test('time stands still until a test moves it, for the tables that it opens', () => {
    const time = clock();
    const table = stint.open('/nowhere/table', { policies: ['2/minute name=a', '1/s burst=3 name=b'] });
    const [a, b] = [table.policy('a'), table.policy('b')];
    assert.deepEqual([table.path, [1, 2, 3].map(() => a.allow('k'))], [null, [true, true, false]]);
    assert.deepEqual([time.now, a.peek('k').retryAfter], [Date.UTC(2030, 0) / 1e3, 60]);
    time.advance(59.98);
    assert.equal(a.allow('k'), false);
    time.advance(0.02);
    assert.equal(a.allow('k'), true);
    assert.equal(b.allow('k', 3), true);
    time.advance(1.5);
    assert.equal(b.peek('k').remaining, 1);
    time.advance(365 * 86400);
    assert.equal(b.allow('k', 3), true);
    for (const seconds of [-1, NaN, '1', undefined])
        wrong(() => time.advance(seconds), String(seconds));
    time.end();
    assert.equal(open('1/52w name=a').path.startsWith(folder), true);
    assert.equal(a.take('k').resetAfter, 58.5);
});

test('what is given back after a lease is nothing, and then nothing is held', (t) => {
    const time = clock(Date.now() / 1e3);
    t.after(() => time.end());
    const table = stint.open(null, { policies: '2/s in-flight name=busy' });
    const busy = table.policy('busy');
    const verdict = busy.take('k');
    const group = table.all([busy, 'k']);
    time.advance(3);
    assert.equal(busy.take('k').used, 1);
    let back = 0;
    while (verdict.granted) back += busy.refund(verdict);
    assert.deepEqual([group.end(), group.end(), group.verdicts[0].granted], [0, 0, 0]);
    assert.deepEqual([back, busy.peek('k').used], [0, 1]);
});

test('keys: what is one, and what are two', () => {
    const table = open('1/52w name=a');
    const policy = table.policy('a');
    const same = (one, other) => {
        const first = policy.allow(one);
        const second = policy.allow(other);
        for (const key of [one, other]) policy.reset(key);
        assert.equal(first, true);
        return !second;
    };
    const long = 'é'.repeat(100000);
    const short = (one) => String(one).slice(0, 40);
    for (const [one, other] of [
        ['a', Buffer.from('a')],
        ['a', new Uint8Array([97])],
        ['a', ['a']],
        ['', Buffer.alloc(0)],
        [7, 7n],
        [0, -0],
        [2 ** 53 - 1, 2n ** 53n - 1n],
        [long, Buffer.from(long)],
        ['é'.repeat(255), Buffer.from('é'.repeat(255))],
        [['a', 7], ['a', 7n]],
        [['a', 7, 'b'], ['a', Buffer.from(table.key(7).buffer), 'b']],
        [['a', 'b', 'c'], [table.key('a', 'b'), 'c']],
        [table.key(7), 7],
        [table.address('::ffff:192.0.2.1'), table.address('192.0.2.1')],
        [table.address('2001:db8::1'), table.address('2001:db8::2')],
        [table.address('fe80::1%eth0'), table.address('fe80::1')],
        [table.address('192.0.2.1', 24), table.address('192.0.2.9', 24)],
        [Buffer.from('xay').subarray(1, 2), 'a'],
    ])
        assert.ok(same(one, other), `${short(one)} and ${short(other)} are two keys`);
    for (const [one, other] of [
        ['7', 7],
        [['a', 7], ['a', '7']],
        [['ab', 'c'], ['a', 'bc']],
        [['a', 'b'], ['b', 'a']],
        [['a', ''], 'a'],
        [long, `${long}x`],
        [['7', 'a'], [7, 'a']],
        [2n ** 64n - 1n, 2n ** 64n - 2n],
        [Buffer.from([0]), Buffer.from([0, 0])],
        [table.address('2001:db8::1', 32, 128), table.address('2001:db8::2', 32, 128)],
        ['192.0.2.1', table.address('192.0.2.1')],
        ...[507, 508, 509, 510, 511, 512].map((n) => ['x'.repeat(n), 'x'.repeat(n + 1)]),
    ])
        assert.ok(!same(one, other), `${short(one)} and ${short(other)} are one key`);
});

test('what is no key is told', () => {
    const table = open('1/52w name=a');
    const policy = table.policy('a');
    const calls = [
        (key) => policy.allow(key),
        (key) => policy.take(key),
        (key) => policy.charge(key),
        (key) => policy.peek(key),
        (key) => policy.reset(key),
        (key) => table.all([policy, key]),
        (key) => table.key(key),
    ];
    for (const [key, ...words] of [
        [null, 'null is no key', 'a string'],
        [undefined, 'undefined'],
        [{}, '{}'],
        [{ id: 7 }, 'id: 7'],
        [true, 'true'],
        [Symbol('s'), 'Symbol(s)'],
        [() => 1, 'Function'],
        [new Date(0), '1970'],
        [new Uint16Array(1), 'Uint16Array'],
        [new ArrayBuffer(1), 'ArrayBuffer'],
        [[], 'no part'],
        [['a', null], 'null'],
        [[['a']], 'parts'],
        [['a', table.key('b')], 'the first'],
        [new BigUint64Array(2), 'BigUint64Array'],
        [1.5, '1.5', 'whole'],
        [-1, '-1'],
        [NaN, 'NaN'],
        [Infinity, 'Infinity'],
        [2 ** 53, '9007199254740992', 'BigInt'],
        [-1n, '-1n'],
        [2n ** 64n, '2n ** 64n'],
    ])
        for (const call of calls)
            wrong(() => call(key), 'key', ...words);
    assert.equal(policy.peek('a').used, 0);
    for (const address of ['', '1.2.3', '192.0.2.1:80', '[::1]', 'host', 'x'.repeat(99)]) {
        if (address !== '')
            wrong(() => table.address(address), 'address', 'without a port');
    }
    for (const address of [null, undefined, 7])
        wrong(() => table.address(address), 'address');
    wrong(() => table.address('::1', 33), 'prefix4', '32');
});

test('other arguments that make no sense are told, and change nothing', () => {
    const table = open('9/52w name=a', '9/30s in-flight name=busy', '8/52w stripes=2 name=split');
    const policy = table.policy('a');
    for (const cost of [-1, 1.5, NaN, 2 ** 32, '1', null, 1n]) {
        for (const call of [
            () => policy.allow('k', cost),
            () => policy.take('k', cost),
            () => policy.charge('k', cost),
            () => table.all([policy, 'k', cost]),
        ]) {
            wrong(call, 'cost', '4294967295');
        }
    }
    wrong(() => policy.take('k', 1, { partail: true }), "'partail'", 'partial');
    wrong(() => policy.take('k', 1, { limit: 0 }), 'limit');
    for (const verdict of [null, undefined, {}, { granted: 1 }])
        wrong(() => policy.refund(verdict, 1), 'verdict');
    wrong(() => policy.refund(policy.peek('k'), -1), 'tokens');
    fails('ENOENT', () => table.policy('b'), "'b'", "'a', 'busy', 'split'");
    for (const name of [null, 7, 'a\0b'])
        wrong(() => table.policy(name), 'name');
    fails('EINVAL', () => table.policy('busy').charge('k'), "'busy'", 'charge does not go with');
    const [busy, split] = ['busy', 'split'].map((name) => table.policy(name));
    fails('EINVAL', () => busy.take('k', 1, { drain: true }), 'drain does not go with');
    fails('EINVAL', () => split.take('k', 1, { limit: 3 }), "'split'", 'limit does not go with');
    for (const burst of [0, 1.5, 2 ** 28 + 1, '6']) {
        wrong(() => policy.take('k', 1, { burst }), 'burst');
    }
    const burst = () => policy.take('k', 1, { burst: 6 });
    fails('EINVAL', burst, "'a': burst goes with token buckets only");
    assert.equal(policy.peek('k').used, 0);
});

test('a table that cannot be opened says why', () => {
    const file = fresh();
    stint.open(file, { maxEntries: 1000 }).close();
    for (const [path_, options, code, ...words] of [
        [undefined, {}, 'ERR_INVALID_ARG_VALUE', 'path undefined', 'null'],
        [7, {}, 'ERR_INVALID_ARG_VALUE', 'path 7'],
        ['', {}, 'ERR_INVALID_ARG_VALUE', 'path'],
        [null, {}, 'ERR_INVALID_ARG_VALUE', 'maxEntries'],
        [fresh(), { maxEntries: 0 }, 'ERR_INVALID_ARG_VALUE', 'maxEntries 0'],
        [fresh(), { maxEntries: '9' }, 'ERR_INVALID_ARG_VALUE', "maxEntries '9'"],
        [fresh(), { max: 9 }, 'ERR_INVALID_ARG_VALUE', "no 'max'", 'maxEntries'],
        [fresh(), null, 'ERR_INVALID_ARG_VALUE', 'options of open'],
        [fresh(), { maxEntries: 9, onFull: 'drop' }, 'ERR_INVALID_ARG_VALUE', 'replace'],
        [fresh(), { maxEntries: 9, policies: [7] }, 'ERR_INVALID_ARG_VALUE', 'policies'],
        [fresh(), {}, 'ENOENT', '.table', 'with maxEntries it is made'],
        [path.join(folder, 'none', 'x'), { maxEntries: 9 }, 'ENOENT', 'none'],
        [file, { maxEntries: 2000 }, 'EPROTO', 'maxEntries 1000', '2000'],
        [file, { policies: ['1/fortnight'] }, 'EINVAL', 'line 1', 'fortnight'],
        [file, { policies: ['1/s name=a', '1/367d name=b'] }, 'EINVAL', 'line 2', '366'],
        [
            file,
            { policies: Array.from({ length: 65 }, (_, i) => `1/s name=p${i}`) },
            'ENOSPC',
            'line 65',
            'maxPolicies',
        ],
    ])
        fails(code, () => stint.open(path_, options), ...words);

    const bytes = fs.readFileSync(file);
    bytes.writeUInt32LE(3, 8); // header.layout
    fs.writeFileSync(`${file}.old`, bytes);
    fails('EPROTO', () => stint.open(`${file}.old`), 'layout, 3', 'use the version that made it');
    fs.writeFileSync(`${file}.none`, 'what else there is'.repeat(1000));
    fails('EPROTO', () => stint.open(`${file}.none`), 'no table');
    fs.symlinkSync(file, `${file}.link`);
    fails('ELOOP', () => stint.open(`${file}.link`), '.link');
    assert.equal(stint.open(path.relative('.', file)).path, file);
});

test('policies are applied, found after a reload, missed after a removal', () => {
    const file = fresh();
    const table = stint.open(file, {
        maxEntries: 1000,
        policies: ['2/52w name=a', '1/52w name=b'],
    });
    const [a, b] = [table.policy('a'), table.policy('b')];
    assert.ok(a.allow('k') && a.allow('k') && !a.allow('k'));
    const other = stint.open(file, { policies: '3/52w name=a\n# a comment\n' });
    assert.ok(a.allow('k') && !a.allow('k') && !other.policy('a').allow('k'));
    assert.deepEqual(
        other.apply(['1/d name=a'], { dryRun: true }).map((change) => change.kind),
        ['replaced'],
    );
    assert.deepEqual(other.apply(['5/52w name=a', '5/52w name=c'], { prune: true }), [
        { kind: 'changed', name: 'a', text: '5/52 weeks name="a"', was: '3/52 weeks name="a"' },
        { kind: 'added', name: 'c', text: '5/52 weeks name="c"', was: null },
        { kind: 'removed', name: 'b', text: null, was: '1/52 weeks name="b"' },
    ]);
    assert.ok(a.allow('k') && a.allow('k') && !a.allow('k'));
    for (const call of [() => b.allow('k'), () => b.take('k'), () => table.all([b, 'k'])])
        fails('ENOENT', call, "'b' was removed");
    wrong(() => other.apply(['5/52w name=a'], { pruen: true }), "'pruen'");
    fails('EINVAL', () => other.apply([]));
});

test('a full table replaces, and warns once; or does as it is told', () => {
    const program = (onFull) => `const { open } = require('stint');
    const options = { maxEntries: 16, maxPolicies: 1, policies: ['1/52w name=a'], onFull: ${onFull} };
    const policy = open(null, options).policy('a');
    let allowed = 0;
    for (let key = 0; key < 1000; key++) allowed += policy.allow(key);
    for (let key = 0; key < 1000; key++) policy.take(String(key));
    process.stdout.write(String(allowed));`;
    assert.equal(node(program('undefined')), '1000');
    assert.ok(Number(node(program("'refuse'"))) < 200);
    for (const [onFull, words] of [
        ['undefined', 'take the places of others'],
        ["'admit'", 'let through uncounted'],
        ["'refuse'", 'are refused'],
    ]) {
        const told = warnings(program(onFull));
        assert.equal(told.length, 1, told.join('\n'));
        assert.match(
            told[0],
            new RegExp(
                `\\[STINT_FULL\\] StintWarning: the private table is full: .*${words}.*maxEntries`,
            ),
        );
    }
});

test('a table that is not shared is told of', () => {
    const quiet = `require('stint').open(null, { maxEntries: 9 })`;
    assert.deepEqual(warnings(quiet), []);
    const exec = path.join(folder, 'worker.cjs');
    fs.writeFileSync(
        exec,
        quiet.replace("'stint'", JSON.stringify(require.resolve('stint'))) +
            '; process.disconnect();',
    );
    const [worker, ...more] = warnings(
        `const cluster = require('cluster');
        cluster.setupPrimary({ exec: ${JSON.stringify(exec)}, execArgv: [] });
        cluster.fork();`,
    );
    assert.match(worker, /STINT_PRIVATE.*worker of a cluster alone.*path/);
    assert.deepEqual(more, []);
    const [thread] = warnings(
        `const { Worker } = require('worker_threads');
        new Worker(${JSON.stringify(quiet)}, { eval: true });`,
    );
    assert.match(thread, /STINT_PRIVATE.*thread alone.*path/);
    const [layer] = warnings(`require('fs').statfsSync = () => ({ type: 0x794c7630 });
    require('stint').open(${JSON.stringify(fresh())}, { maxEntries: 9 })`);
    assert.match(layer, /STINT_OVERLAY.*container's own layer.*volume/);
});

test('a file that is cut off kills nobody: all requests are let through, and it is told once', () => {
    const file = fresh();
    const options = `{ maxEntries: 1000, policies: ['1/52w name=a', '9/1h in-flight name=busy'] }`;
    // The table that is cut is of a thread, too, and the handler that is called first is another's:
    // that of a copy of the package.
    const copy = path.join(folder, 'copy');
    fs.cpSync(path.dirname(require.resolve('stint')), copy, { recursive: true });
    const program = `const stint = require('stint');
const { clock } = require('stint/testing');
    const fs = require('fs');
    const { ServerResponse } = require('http');
    const { Worker } = require('worker_threads');
    const file = ${JSON.stringify(file)};
    let table = stint.open(file, ${options});
    require(${JSON.stringify(copy)}).open(null, { maxEntries: 9 });
    const [a, busy] = ['a', 'busy'].map((name) => table.policy(name));
    const group = table.all([a, 'k'], [busy, 'k']);
    const said = [group.allowed, a.allow('k')];
    const thread = new Worker(\`const a = require('stint').open('\${file}').policy('a');
        a.allow('k');
        require('worker_threads').parentPort.postMessage('it decides');
        while (!a.allow('k'));\`, { eval: true });
    thread.once('message', () => fs.truncateSync(file));
    thread.once('exit', () => {
        said.push(a.allow('k'), a.take('k', 9).allowed, group.end(), table.stats().lost);
        const response = new ServerResponse({});
        stint.express([a, busy])({ ip: '192.0.2.7' }, response, (error) => said.push(error));
        const store = new stint.ExpressStore(table);
        try { store.init({ windowMs: 1000 }); } catch (error) { said.push(error.code); }
        table.close();
        fs.unlinkSync(file);
        table = stint.open(file, ${options});
        said.push(table.policy('a').allow('k'), table.policy('a').allow('k'));
        console.log(JSON.stringify(said));
    });`;
    const done = spawnSync(process.execPath, ['-e', program], { encoding: 'utf8', timeout: 20000 });
    assert.equal(done.status, 0, done.signal + done.stderr);
    const said = [true, false, true, true, 0, 1, null, 'EPROTO', true, false];
    assert.deepEqual(JSON.parse(done.stdout), said);
    // By the thread, and by the process.
    assert.equal(done.stderr.match(/STINT_LOST.* was cut off, and lets everything/g).length, 2);
    // What is not of a table kills, as it does without stint.
    const killed = `require('stint').open(null, { maxEntries: 9 });
    process.kill(process.pid, 'SIGBUS');`;
    assert.equal(spawnSync(process.execPath, ['-e', killed]).signal, 'SIGBUS');
});

test('another system: open says why not', () => {
    const program = `Object.defineProperty(process, 'platform', { value: 'darwin' });
    const { open, ExpressStore } = require('stint');
    try { open('/tmp/x', { maxEntries: 9 }); }
    catch (error) { console.log(error.code, error.message); }`;
    assert.match(node(program), /^ENOTSUP stint runs on Linux, and this is darwin/);
});

test('a key whose getter closes its table is refused', () => {
    const table = open('1/s name=a');
    const policy = table.policy('a');
    const parts = ['a', 'b'];
    Object.defineProperty(parts, 1, { get: () => (table.close(), 'b') });
    wrong(() => policy.allow(parts), 'parts');
    fails('EBADF', () => policy.allow('a'), 'closed');
});

test('a closed table says so; closing twice does nothing', () => {
    const table = open('1/s name=a');
    const policy = table.policy('a');
    table.close();
    table.close();
    for (const call of [
        () => policy.allow('k'),
        () => table.policy('a'),
        () => table.stats(),
        () => table.apply(['1/s']),
    ]) {
        fails('EBADF', call, 'closed');
    }
});

test('headers and statistics', () => {
    const table = open('1/52w name=a');
    const policy = table.policy('a');
    const verdicts = [policy.take('k')];
    assert.deepEqual(Object.keys(table.headers(verdicts)), ['RateLimit-Policy', 'RateLimit']);
    assert.match(table.headers(verdicts).RateLimit, /^"a";r=0;t=\d+$/);
    assert.deepEqual(table.headers(verdicts, 'retry'), {});
    const refused = table.headers([policy.take('k')], 'both');
    assert.deepEqual(Object.keys(refused).sort(), [
        'RateLimit',
        'RateLimit-Policy',
        'Retry-After',
        'X-RateLimit-Limit',
        'X-RateLimit-Remaining',
        'X-RateLimit-Reset',
    ]);
    assert.ok(Number(refused['Retry-After']) > 0);
    assert.deepEqual(table.headers([policy.take('k', 2)], 'retry'), {}); // it can never fit
    wrong(() => table.headers(verdicts, 'drafty'), 'draft');
    // What would be written beyond the addon's memory.
    const lengthy = new Proxy([], { get: (array, name) => (name === 'length' ? -1 : array[name]) });
    for (const call of [
        () => table.headers({ length: -1, forEach() {} }),
        () => table.headers(lengthy),
        () => table.headers(Array(65).fill(verdicts[0])),
        () => policy.stage(64, 'k', 1),
        () => policy.stage(1e8, 'k', 1),
    ])
        wrong(call, '');
    const { maxEntries, live, policies, removed, lost } = table.stats();
    assert.deepEqual([maxEntries, live, policies, removed, lost], [1000, 1, 1, 0, 0]);
    fs.unlinkSync(table.path);
    assert.equal(table.stats().removed, 1);
});

test('by import, too', () => {
    assert.equal(
        node(
            `import stint, { open, express, ExpressStore } from 'stint';
            console.log(open === stint.open, typeof express, typeof ExpressStore, stint.version())`,
            '--input-type=module',
        ),
        `true function function ${require('stint/package.json').version}\n`,
    );
});

test('nothing is left of a million calls, and of tables that are dropped or whose thread ends', () => {
    const program = `const { open } = require('stint');
    const { readFileSync } = require('fs');
    const { Worker } = require('worker_threads');
    const policies = ['1000000/52w name=a', '9/30s in-flight name=busy'];
    const table = open(null, { maxEntries: 1000, policies });
    const [a, busy] = [table.policy('a'), table.policy('busy')];
    const long = 'x'.repeat(5000);
    const calls = [
      () => a.allow('k'), () => a.take(7n), () => a.allow(Buffer.from('k')),
      () => a.peek(['a', 7, long]), () => a.reset('k'),
      () => { try { a.allow(null); } catch {} }, () => table.all([a, 'k'], [busy, 'k']).end(),
      () => a.refund(a.take('l')),
      () => table.headers([a.peek('k')]), () => table.key('a', 'b'),
    ];
    // MB that are resident, and that are mapped: a table maps 64, and few of them are ever touched.
    async function rest() {
      for (let i = 0; i < 4; i++) { gc(); await new Promise(setImmediate); }
      const status = readFileSync('/proc/self/status', 'utf8').replace(/\\t/g, ' ');
      return [/VmRSS: *(\\d+)/, /VmSize: *(\\d+)/].map((line) => line.exec(status)[1] / 1024);
    }
    async function tables() { // collected in turns of the loop of their own
      for (let i = 0; i < 50; i++) {
        open(null, { maxEntries: 2000000, policies: ['1/s name=a'] });
        if (i % 10 === 0) { gc(); await new Promise(setImmediate); }
      }
      const thread = new Worker(\`const { open } = require('stint');
        for (let i = 0; i < 30; i++) open(null, { maxEntries: 2000000, policies: ['1/s name=a'] });
        process.exit();\`, { eval: true });
      await new Promise((resolve) => thread.on('exit', resolve));
    }
    function round(n) { for (let i = 0; i < n; i++) for (const call of calls) call(); }
    (async () => {
      round(10000);
      await tables();
      const before = await rest();
      round(100000);
      await tables();
      console.log(JSON.stringify((await rest()).map((mb, i) => mb - before[i])));
    })();`;
    const [resident, mapped] = JSON.parse(node(program, '--expose-gc'));
    assert.ok(
        resident < 12 && mapped < 1000,
        `${resident} MB more are resident than before, and ${mapped} mapped`,
    );
});
