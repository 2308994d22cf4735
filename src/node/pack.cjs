// SPDX-License-Identifier: MIT
// `npm pack` runs this: the package takes the library's C files with it, and the tree is left as it
// was.
'use strict';

const fs = require('node:fs');
const path = require('node:path');

const tree = path.join(__dirname, '..', '..');
const library = path.join(__dirname, 'library');

fs.rmSync(library, { recursive: true, force: true });
if (process.argv[2] === 'copy') {
    for (const folder of ['', 'feature', 'limiter', 'map', 'policy', 'rule', 'sys', 'table', 'text']) {
        const from = path.join(tree, 'src', folder);
        fs.mkdirSync(path.join(library, 'src', folder), { recursive: true });
        for (const name of fs.readdirSync(from).filter((file) => /\.[ch]$/.test(file))) {
            fs.copyFileSync(path.join(from, name), path.join(library, 'src', folder, name));
        }
    }
    fs.mkdirSync(path.join(library, 'include'));
    fs.copyFileSync(
        path.join(tree, 'include', 'stint.h'),
        path.join(library, 'include', 'stint.h'),
    );
    fs.copyFileSync(path.join(tree, 'LICENSE'), path.join(library, 'LICENSE'));
}
