// SPDX-License-Identifier: MIT
// For tests of programs that limit: a clock that stands still, and moves as the test says.
//
//     const { clock } = require('stint/testing');
//     const time = clock();
//     const table = stint.open('/run/app.table', { policies: ['1/minute name=api'] });
//     time.advance(60);
//     time.end();
'use strict';

const stint = require('./index.cjs');

const START = Date.UTC(2030, 0) / 1e3; // windows begin

// Until `end`, stint.open opens tables in memory, whatever their path, which count by the clock. One
// test of a process at a time has one.
//   start  a Unix time in seconds, such as Date.now() / 1e3
function clock(start = START) {
    stint.version(); // loads the addon, or says why it cannot
    const addon = require('./build/stint.node');
    let now = 0;
    const time = {
        get now() {
            return now;
        },
        advance(seconds) {
            if (typeof seconds !== 'number' || !(seconds >= 0 && seconds < 1e10))
                throw Object.assign(new TypeError(`a clock goes on by seconds, not by ${seconds}`), {
                    code: 'ERR_INVALID_ARG_VALUE',
                });
            now += seconds;
            addon.clock(BigInt(Math.round(now * 1e6)) * 1000n);
        },
        end() {
            addon.clock(null);
        },
    };
    time.advance(start);
    return time;
}

module.exports = { clock };
