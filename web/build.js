// Writes src/tinyedge.js and src/diagnostics.js, the form of the runtime that bundles carry: the modules of src/runtime/
// in one file, and one that it fetches when asked for, without comments and long local names. Their first lines name the
// hash of all sources, by which a test without node sees that they are fresh.

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
  "golden",
  "memory",
  "pipelines",
  "replay",
  "turns",
  "start",
  "model",
];

const folder = new URL("./", import.meta.url);
const texts = [...MODULES, "tinyedge", "diagnostics"].map((name) =>
  readFileSync(new URL(`src/runtime/${name}.js`, folder), "utf8"),
);
const hash = createHash("sha256").update(texts.join("")).digest("hex").slice(0, 16);
const diagnostics = texts.pop();
const whole = texts
  .map((text) =>
    text.replace(/^import [^;]*;$/gm, "").replace(/^export (?=async|class|const|function)/gm, ""),
  )
  .join("\n")
  .replace(/^export \{.*;$/gm, "");

// Both files get what they share under the same short names.
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
          /^(base|bridge|cause|check|chosen|core|describe|encoder|enqueue|fail|fetchFile|generated|given|group|grouped|kept|key|layouts|owns|parsed|pass|pipeline|pipelined|plan|pool|ranges|readback|reads|replay|restore|sizeTable|sizes|space|stage|stored|theirs|to|writes|written)$/,
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
await write("diagnostics.js", diagnostics);
