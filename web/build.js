// Writes src/tinyedge.js, the form of the runtime that bundles carry: the modules of src/runtime/ in one file, without
// comments and long local names. The first line names the hash of its sources, by which a test without node sees that
// it is fresh.

import {createHash} from "node:crypto";
import {readFileSync, writeFileSync} from "node:fs";
import {minify} from "terser";

// In order of use. Names are unique across them, so the modules are one once imports and exports are gone.
const MODULES = [
  "errors",
  "types",
  "manifest",
  "expressions",
  "check",
  "fetch",
  "device",
  "golden",
  "model",
];

const folder = new URL("./", import.meta.url);
const texts = [...MODULES, "tinyedge"].map((name) =>
  readFileSync(new URL(`src/runtime/${name}.js`, folder), "utf8"),
);
const hash = createHash("sha256").update(texts.join("")).digest("hex").slice(0, 16);
const whole = texts
  .map((text) =>
    text.replace(/^import [^;]*;$/gm, "").replace(/^export (?=async|class|const|function)/gm, ""),
  )
  .join("\n")
  .replace(/^export \{.*;$/gm, "");
const {code} = await minify(`${whole}\nexport {TinyedgeError, load};\n`, {
  module: true,
  ecma: 2020,
  // Properties that nobody else sees.
  mangle: {
    properties: {
      regex:
        /^(encoder|group|kept|mapped|pass|pipeline|pool|queries|reads|resolved|sizes|space|to|writes)$/,
    },
  },
  // What gzip likes best: no repeated text is worth folding away.
  compress: {
    passes: 3,
    unsafe_arrows: true,
    reduce_funcs: false,
    reduce_vars: false,
    sequences: false,
    evaluate: false,
  },
});
const head = `// tinyedge (MIT license), from the modules of web/src/runtime: ${hash}\n`;
writeFileSync(new URL("src/tinyedge.js", folder), `${head}${code}\n`);
