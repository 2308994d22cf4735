// SPDX-License-Identifier: MIT
// What the types allow, and what they do not.
import { createServer, type IncomingMessage } from 'node:http';
import { open, express, ExpressStore, version, type Verdict, type Key } from 'stint';
import { clock, type Clock } from 'stint/testing';

const table = open('/dev/shm/types.table', {
    maxEntries: 1000,
    policies: ['1/s name=a'],
    onFull: 'refuse',
});
const a = table.policy('a');
const allowed: boolean =
    a.allow('k') &&
    a.allow(7, 2) &&
    a.allow(7n) &&
    a.allow(Buffer.from('k')) &&
    a.allow(['user', 7, 8n]);
const verdict: Verdict = a.take('k', 1, { limit: 5, burst: 4, partial: true });
const key: Key = table.key('a', 7);
const back: number = a.refund(verdict) + a.refund(verdict, 1) + (a.reset(key) ? 1 : 0);
const group = table.all([a, 'k'], [a, [key, 'b'], 2]);
const wait: number = group.end() + group.retryAfter + verdict.retryAfter;
const fields: Record<string, string> = table.headers(group.verdicts, 'both');
const names: string[] = table.apply(['1/s name=a'], { prune: true }).map((change) => change.name);

const limit = express(
    [a, [a, (request: IncomingMessage) => request.headers['x-user'] as string, 2]],
    { headers: 'legacy' },
);
createServer((request, response) => limit(request, response, () => response.end()));
const store = new ExpressStore(table, { prefix: 'a:' });
store.init({ windowMs: 1000 });
const hits: number = store.increment('k').totalHits;
console.log(
    allowed,
    back,
    wait,
    fields,
    names,
    hits,
    version(),
    store.get('k')?.resetTime.getTime(),
);

// @ts-expect-error
a.allow(null);
// @ts-expect-error
a.allow({ id: 7 });
// @ts-expect-error
a.allow([]);
// @ts-expect-error
a.take('k', '1');
// @ts-expect-error
a.take('k', 1, { partail: true });
// @ts-expect-error
open(undefined);
// @ts-expect-error
open('x', { max: 1 });
// @ts-expect-error
open('x', { onFull: 'drop' });
// @ts-expect-error
express([a, (request) => 'k']);
// @ts-expect-error
new ExpressStore({ prefix: 'a' });
// @ts-expect-error
verdict.allowed = true;

const time: Clock = clock(Date.now() / 1e3);
time.advance(time.now);
// @ts-expect-error: it goes on by seconds
time.advance('1s');
time.end();
