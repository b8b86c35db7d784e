// Writes shipped/tinyedge.js, the form of src/tinyedge.js that bundles carry: without comments and long local names.
// The first line names the hash of its source, by which a test without node sees that it is fresh.

import {createHash} from "node:crypto";
import {mkdirSync, readFileSync, writeFileSync} from "node:fs";
import {minify} from "terser";

const folder = new URL("./", import.meta.url);
const source = readFileSync(new URL("src/tinyedge.js", folder), "utf8");
const hash = createHash("sha256").update(source).digest("hex").slice(0, 16);
const {code} = await minify(source, {
  module: true, ecma: 2020, mangle: true,
  // What gzip likes best: no repeated text is worth folding away.
  compress: {passes: 3, unsafe_arrows: true, reduce_funcs: false, reduce_vars: false, sequences: false, evaluate: false},
});
const head = `// tinyedge (MIT license); source: web/src/tinyedge.js ${hash}\n`;
mkdirSync(new URL("shipped/", folder), {recursive: true});
writeFileSync(new URL("shipped/tinyedge.js", folder), `${head}${code}\n`);
