// Writes src/tinyedge.js and the files that it fetches, the form of the runtime that bundles carry: the modules of
// src/runtime/, most of them in one file, without comments and long local names. Their first lines name the hash of all
// sources, by which a test without node sees that they are fresh.

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
  "given",
  "memory",
  "pipelines",
  "replay",
  "turns",
  "start",
  "model",
];

// What it fetches: files of their own.
const FILES = ["network", "diagnostics"];

const folder = new URL("./", import.meta.url);
const read = (name) => readFileSync(new URL(`src/runtime/${name}.js`, folder), "utf8");
const texts = [...MODULES, "tinyedge"].map(read),
  beside = FILES.map(read);
const hash = createHash("sha256")
  .update([...texts, ...beside].join(""))
  .digest("hex")
  .slice(0, 16);
const whole = texts
  .map((text) =>
    text.replace(/^import [^;]*;$/gm, "").replace(/^export (?=async|class|const|function)/gm, ""),
  )
  .join("\n")
  .replace(/^export \{.*;$/gm, "");

// All files get what they share under the same short names.
const nameCache = {};

async function write(name, text) {
  const {code} = await minify(text, {
    module: true,
    ecma: 2020,
    nameCache,
    // Properties that nobody else sees.
    mangle: {
      properties: {
        regex:
          /^(answer|arrayOf|base|bridge|cause|check|chosen|core|describe|encoder|enqueue|entryOf|evaluateAll|fail|fetchFile|given|group|grouped|kept|key|most|network|layouts|owns|parsed|pass|passing|pipeline|pipelined|plan|pool|ranges|readback|reads|received|request|replay|restore|sizeTable|sizes|source|space|stage|stored|theirs|to|tries|writes|written)$/,
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
  writeFileSync(new URL(`src/${name}`, folder), `// tinyedge (MIT): ${hash}\n${code}\n`);
}

await write("tinyedge.js", `${whole}\nexport {TinyedgeError, load};\n`);
for (const [i, name] of FILES.entries()) await write(`${name}.js`, beside[i]);
