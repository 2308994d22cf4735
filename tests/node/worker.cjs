// SPDX-License-Identifier: MIT
// A worker of a cluster, for workers.test.cjs and node.py: express 5, limited as its environment
// says. Each response names the process.
'use strict';

const express = require('express');
const { rateLimit } = require('express-rate-limit');
const stint = require('stint');

const table = stint.open(process.env.TABLE, { maxEntries: 10000 });
const app = express();
app.disable('x-powered-by');
app.use((request, response, next) => {
    response.setHeader('x-worker', process.pid);
    next();
});
const key = (request) => request.headers['x-user'];
app.use('/stint', stint.express([[table.policy('api'), key]]));
app.use('/address', stint.express(table.policy('api')));
app.use(
    '/store',
    rateLimit({
        windowMs: 3600_000,
        limit: 150,
        keyGenerator: key,
        store: new stint.ExpressStore(table, { prefix: 'all:' }),
    }),
);
app.use((request, response) => response.send('ok'));
app.listen(Number(process.env.PORT), '127.0.0.1', () => process.send('ready'));
