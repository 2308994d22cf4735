// SPDX-License-Identifier: MIT
// What a decision costs beside what users of Node have: CPU time, so that other work on the machine
// counts little. Run by `node.py SOURCE CC Costs`; prints a table of Markdown.
'use strict';

const assert = require('node:assert/strict');
const cluster = require('node:cluster');
const { once } = require('node:events');
const fs = require('node:fs');
const { MemoryStore } = require('express-rate-limit');
const {
    RateLimiterMemory,
    RateLimiterCluster,
    RateLimiterClusterMaster,
} = require('rate-limiter-flexible');
const stint = require('stint');

const KEYS = Array.from({ length: 1000 }, (_, i) => `192.0.2.${i}`);
const TURNS = 5;
const LIMIT = 2 ** 28;

// us of CPU for each of these calls, as many at once as there are keys.
async function turn(call, calls) {
    const before = process.cpuUsage();
    for (let done = 0; done < calls; done += KEYS.length) await call();
    const { user, system } = process.cpuUsage(before);
    return (user + system) / calls;
}

const median = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1];
// As the libraries are called: those that return promises are awaited, all keys' at once.
const each = (call) => () => {
    for (const key of KEYS) call(key);
};
const all = (call) => () => Promise.all(KEYS.map(call));

async function worker() {
    const limiter = new RateLimiterCluster({
        keyPrefix: 'c',
        points: LIMIT,
        duration: 3600,
        timeoutMs: 20000,
    });
    const call = all((key) => limiter.consume(key));
    await call();
    process.send('begin');
    process.on('message', async (message) => {
        if (message !== 'turn') return;
        process.send({ us: await turn(call, 10000) });
    });
}

async function ofCluster() {
    new RateLimiterClusterMaster();
    const forked = cluster.fork();
    const told = () =>
        new Promise((resolve) => {
            forked.on('message', function listen(message) {
                if (message !== 'begin' && message.us === undefined) return;
                forked.off('message', listen);
                resolve(message);
            });
        });
    await told();
    const turns = [];
    for (let i = 0; i < TURNS; i++) {
        const before = process.cpuUsage();
        const answer = told();
        forked.send('turn');
        const { us } = await answer;
        const { user, system } = process.cpuUsage(before);
        turns.push(us + (user + system) / 10000);
    }
    forked.process.kill('SIGKILL');
    await once(forked, 'exit');
    return median(turns);
}

async function primary() {
    const file = '/dev/shm/stint-costs.table';
    fs.rmSync(file, { force: true });
    const table = stint.open(file, { maxEntries: 10000, policies: [`${LIMIT}/52w name=a`] });
    const a = table.policy('a');
    const store = new stint.ExpressStore(table);
    store.init({ windowMs: 3600_000 });
    const memory = new MemoryStore();
    memory.init({ windowMs: 3600_000 });
    const flexible = new RateLimiterMemory({ points: LIMIT, duration: 3600 });
    const rows = [
        ['`policy.allow(key)`', 'all processes of the host', each((key) => a.allow(key))],
        ['`policy.take(key)`', 'the same', each((key) => a.take(key))],
        ['`ExpressStore`', 'the same', all(async (key) => store.increment(key))],
        ["express-rate-limit's memory store", 'one process', all((key) => memory.increment(key))],
        [
            "rate-limiter-flexible's `RateLimiterMemory`",
            'one process',
            all((key) => flexible.consume(key)),
        ],
    ];
    const turns = rows.map(() => []);
    for (const [, , call] of rows) await turn(call, 200000);
    for (let i = 0; i < TURNS; i++) {
        for (const [row, [, , call]] of rows.entries()) turns[row].push(await turn(call, 200000));
    }
    assert.equal(a.peek(KEYS[0]).used, 2 * (TURNS + 1) * 200, 'not every call was counted');
    console.log('| | who counts together | us |\n|---|---|---|');
    for (const [row, [name, shared]] of rows.entries())
        console.log(`| ${name} | ${shared} | ${median(turns[row]).toFixed(2)} |`);
    console.log(
        `| rate-limiter-flexible's \`RateLimiterCluster\` | the workers of one cluster, by ` +
        `messages to the primary | ${(await ofCluster()).toFixed(2)} |`,
    );
    fs.rmSync(file);
    memory.shutdown();
}

(cluster.isPrimary ? primary() : worker()).catch((error) => {
    console.error(error);
    process.exit(1);
});
