// SPDX-License-Identifier: MIT
// Exactly the limit passes over all processes of a cluster and all threads, through a worker that
// is killed and policies that are reloaded. Run by node.py.
'use strict';

const assert = require('node:assert/strict');
const cluster = require('node:cluster');
const { once } = require('node:events');
const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const test = require('node:test');
const { Worker } = require('node:worker_threads');
const stint = require('stint');

const folder = fs.mkdtempSync(path.join('/dev/shm', 'stint-node-'));
process.on('exit', () => fs.rmSync(folder, { recursive: true }));
const WORKERS = 3;

// Asks once, by a connection of its own, so that the workers take turns. 0: nobody answered. (If a
// worker is killed before it takes a connection that the primary has sent it, Node keeps that
// open.)
function ask(port, path_, user, timeout) {
    return new Promise((resolve) => {
        const options = {
            host: '127.0.0.1',
            port,
            path: path_,
            agent: false,
            timeout,
            headers: { 'x-user': user },
        };
        const request = http.get(options, (response) => {
            response.resume();
            response.on('end', () =>
                resolve({ status: response.statusCode, worker: response.headers['x-worker'] }),
            );
            response.on('error', () => resolve({ status: 0 }));
        });
        request.on('timeout', () => request.destroy());
        request.on('error', () => resolve({ status: 0 }));
    });
}

// Asks so often, 16 at a time.
async function load(port, path_, user, requests, meanwhile = () => {}, patience = 60000) {
    const count = { workers: new Set() };
    let begun = 0;
    await Promise.all(
        Array.from({ length: 16 }, async () => {
            while (begun < requests) {
                begun += 1;
                meanwhile(begun);
                const { status, worker } = await ask(port, path_, user, patience);
                count[status] = (count[status] ?? 0) + 1;
                if (worker) count.workers.add(worker);
            }
        }),
    );
    return count;
}

async function start(table) {
    const probe = http.createServer().listen(0, '127.0.0.1');
    await once(probe, 'listening');
    const { port } = probe.address();
    await new Promise((resolve) => {
        probe.close(resolve);
    });
    cluster.setupPrimary({ exec: path.join(__dirname, 'worker.cjs') });
    const fork = async () => {
        const worker = cluster.fork({ TABLE: table, PORT: port });
        await once(worker, 'message');
        return worker;
    };
    const workers = await Promise.all(Array.from({ length: WORKERS }, fork));
    const stop = () =>
        Promise.all(
            Object.values(cluster.workers).map((worker) => {
                worker.process.kill('SIGKILL');
                return once(worker, 'exit');
            }),
        );
    return { port, workers, fork, stop };
}

test(
    'a cluster of express workers: stint.express, and express-rate-limit with ExpressStore',
    { timeout: 180000 },
    async (t) => {
        const file = path.join(folder, 'cluster.table');
        const table = stint.open(file, { maxEntries: 10000, policies: ['150/52w name=api'] });
        const api = table.policy('api');
        const { port, workers, fork, stop } = await start(file);
        t.after(stop);

        // All workers answer, and together they let 150 pass.
        for (const where of ['/stint', '/store']) {
            const count = await load(port, where, 'ann', 250);
            assert.deepEqual(
                [count[200], count[429], count.workers.size],
                [150, 100, WORKERS],
                where,
            );
        }
        assert.equal(api.peek('ann').used, 150);

        // One is killed between requests, and another takes its place: nothing is lost, nothing
        // passes twice.
        for (const where of ['/stint', '/store']) {
            const before = await load(port, where, 'bob', 80);
            const victim = workers.shift();
            victim.process.kill('SIGKILL');
            await once(victim, 'exit');
            workers.push(await fork());
            const after = await load(port, where, 'bob', 170);
            assert.deepEqual([before[200], after[200], after[429]], [80, 70, 100], where);
        }

        // One is killed amid requests: those that nobody answered may have been counted.
        for (const where of ['/stint', '/store']) {
            const victim = workers.shift();
            const count = await load(
                port,
                where,
                'eve',
                250,
                (begun) => begun === 50 && victim.process.kill('SIGKILL'),
                2000,
            );
            const lost = count[0] ?? 0;
            assert.ok(
                count[200] <= 150 && count[200] + lost >= 150,
                `${where}: ${count[200]} passed, ${lost} were lost`,
            );
            workers.push(await fork());
        }
        assert.equal(api.peek('eve').used, 150);

        // The limit is raised while they run; the workers that hold the policy go by it.
        const count = await load(
            port,
            '/stint',
            'joe',
            400,
            (begun) => begun === 200 && table.apply('250/52w name=api'),
        );
        assert.deepEqual([count[200], count[429]], [250, 150]);
        // Another window replaces the policy: it counts anew, for all.
        const replaced = await load(
            port,
            '/stint',
            'joe',
            200,
            (begun) => begun === 1 && table.apply('100/300d name=api'),
        );
        assert.deepEqual([replaced[200], replaced[429]], [100, 100]);
    },
);

test(
    'threads of one process, each with a table of its own on the file',
    { timeout: 180000 },
    async () => {
        const file = path.join(folder, 'threads.table');
        stint
            .open(file, {
                maxEntries: 1000,
                policies: ['30000/52w name=a', '3/1h in-flight name=busy'],
            })
            .close();
        const program = `
    const { parentPort } = require('node:worker_threads');
    const { open } = require(${JSON.stringify(require.resolve('stint'))});
    const table = open(${JSON.stringify(file)});
    const [a, busy] = [table.policy('a'), table.policy('busy')];
    parentPort.once('message', () => {
      let allowed = 0;
      let most = 0;
      for (let i = 0; i < 20000; i++) {
        const group = table.all([busy, 'k'], [a, 'other', 0]);
        most = Math.max(most, group.verdicts[0].used);
        allowed += a.allow('k');
        group.end();
      }
      parentPort.postMessage([allowed, most]);
    });
    parentPort.postMessage('ready');`;
        const threads = Array.from({ length: 4 }, () => new Worker(program, { eval: true }));
        await Promise.all(threads.map((thread) => once(thread, 'message')));
        const answers = threads.map((thread) => once(thread, 'message'));
        const exits = threads.map((thread) => once(thread, 'exit'));
        threads.forEach((thread) => thread.postMessage('go'));
        const counts = (await Promise.all(answers)).map(([count]) => count);
        await Promise.all(exits);
        assert.equal(counts.reduce((sum, [allowed]) => sum + allowed, 0), 30000);
        assert.ok(counts.every(([, most]) => most >= 1));
        const table = stint.open(file);
        assert.deepEqual(
            [table.policy('a').peek('k').used, table.policy('busy').peek('k').used],
            [30000, 0],
        );
    },
);

test('a table goes on after the deaths of others that have it open', async () => {
    const file = path.join(folder, 'deaths.table');
    const table = stint.open(file, { maxEntries: 1000, policies: ['5/52w name=a'] });
    const { spawnSync } = require('node:child_process');
    const program = `const a = require('stint').open(${JSON.stringify(file)}).policy('a');
        a.allow('k'); process.kill(process.pid, 'SIGKILL');`;
    for (let i = 0; i < 4; i++)
        assert.equal(spawnSync(process.execPath, ['-e', program]).signal, 'SIGKILL');
    assert.equal(table.policy('a').peek('k').used, 4);
});
