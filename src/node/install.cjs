// SPDX-License-Identifier: MIT
// Builds the addon with the C compiler: the library's own files, addon.c and addon_key.c. npm runs
// this when the package is installed. CC and CFLAGS in the environment are another compiler, and
// more options.
'use strict';

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

// A package has the library in `library`, the source tree where it is.
const packed = path.join(__dirname, 'library');
const library = fs.existsSync(packed) ? packed : path.join(__dirname, '..', '..');
const target = path.join(__dirname, 'build', 'stint.node');

function fail(...lines) {
    console.error(['stint: the addon cannot be built.', ...lines].join('\n'));
    process.exit(1);
}

function words(text) {
    return (text ?? '').split(/\s+/).filter(Boolean);
}

const [compiler, ...first] = words(process.env.CC || 'cc');

// Runs the compiler.
function run(options, input = '') {
    return spawnSync(compiler, [...first, ...words(process.env.CFLAGS), ...options], {
        encoding: 'utf8',
        input,
    });
}

function sources() {
    return ['', 'feature', 'limiter', 'map', 'policy', 'sys', 'table', 'text'].flatMap((folder) => {
        const of = path.join(library, 'src', folder);
        return fs
            .readdirSync(of)
            .filter((name) => name.endsWith('.c'))
            .map((name) => path.join(of, name));
    });
}

// Of Node-API: a package beside this one.
function headers() {
    try {
        return require('node-api-headers').include_dir;
    } catch {
        return null;
    }
}

function build() {
    if (headers() === null || !fs.existsSync(path.join(library, 'include', 'stint.h'))) {
        fail(
            'npm has made a link to this folder, or a copy of it alone, and not installed what it ' +
            'needs. Run `npm pack` in it first, and install the tarball that this makes.',
        );
    }
    const { error } = run(['--version']);
    if (error) {
        fail(
            `There is no C compiler '${compiler}' (${error.code}).`,
            'On Debian: apt-get install gcc libc6-dev libck-dev libxxhash-dev. Or name another ' +
            'one in CC.',
        );
    }
    for (const [header, debian] of [
        ['ck_pr.h', 'libck-dev'],
        ['xxhash.h', 'libxxhash-dev'],
    ]) {
        const { status, stderr } = run(['-E', '-x', 'c', '-'], `#include <${header}>\n`);
        if (status !== 0) {
            fail(
                stderr,
                `The compiler finds no ${header}. On Debian: apt-get install ${debian}.`,
                'Elsewhere install ConcurrencyKit and xxHash, and name their folders: ' +
                'CFLAGS="-I/ck -I/xxhash".',
            );
        }
    }
    fs.mkdirSync(path.dirname(target), { recursive: true });
    const made = `${target}.${process.pid}`; // so that a process that has the old one open keeps it
    const done = run([
        '-std=gnu11',
        '-O3',
        '-DNDEBUG',
        '-fPIC',
        '-shared',
        '-pthread',
        '-fvisibility=hidden',
        '-Wl,-z,nodelete', // its threads may outlive the thread of Node that loaded it
        `-Wl,--version-script=${path.join(__dirname, 'addon.map')}`,
        '-D_GNU_SOURCE',
        '-DNAPI_VERSION=8',
        '-DBUILD_VERSION=STINT_VERSION',
        `-I${path.join(library, 'include')}`,
        `-I${path.join(library, 'src')}`,
        `-I${headers()}`,
        path.join(__dirname, 'addon.c'),
        path.join(__dirname, 'addon_key.c'),
        ...sources(),
        '-o',
        made,
        '-lm',
    ]);
    if (done.status !== 0) {
        fail(done.stderr, `The compiler '${compiler}' failed.`);
    }
    fs.renameSync(made, target);
}

if (process.platform === 'linux') {
    build();
} else {
    console.log(
        `stint: this is ${process.platform}, and stint runs on Linux. Nothing was built: open() ` +
        'will say so.',
    );
}
