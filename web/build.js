// Writes src/tinyedge.js and the files that it fetches, the form of the runtime that bundles carry: the modules of
// src/runtime/, most of them in one file, without comments and long local names. Their first lines name the hash of all
// sources, by which a test without node sees that they are fresh.

import {createHash} from "node:crypto";
import {readFileSync, writeFileSync} from "node:fs";
import {minify} from "terser";

// Names are unique across them, so the modules are one once imports and exports are gone. In the order that gzip likes best; model.js uses
// constants of those before it.
const MODULES = [
  "types",
  "expressions",
  "manifest",
  "check",
  "given",
  "turns",
  "replay",
  "fetch",
  "device",
  "model",
  "errors",
];

// What it fetches: files of their own, their modules and what they export.
const FILES = {
  loading: [["network", "memory", "pipelines", "start", "opening", "labels", "loading"], "again, deviceFor, neededLimits, openDevice, start"],
  wasm: [["wasm"], "open"],
  threads: [["threads"], "start"],
  image: [["image"], "takePictures"],
  extras: [["canvas", "states", "diagnostics", "recover", "stream", "extras"],
    "keepStates, reopen, saveStates, loadStates, toCanvas, deliver, inputBuffer, compare, example, verify, profile, requirements"],
};

const folder = new URL("./", import.meta.url);
const read = (name) => readFileSync(new URL(`src/runtime/${name}.js`, folder), "utf8");
const names = [...MODULES, "tinyedge", ...Object.values(FILES).flatMap(([modules]) => modules)];
const hash = createHash("sha256").update(names.map(read).join("")).digest("hex").slice(0, 8);

/**
 * The text of modules as one, which exports names. Those of another file get what they import of tinyedge.js by `use`, which gives
 * their exports; own: the names that it hands out, in their order.
 */
function joined(modules, exported, own) {
  const imports = modules.flatMap((name) => [...read(name).matchAll(/^import \{([^}]*)\} from "\.\/(\w+)\.js";$/gm)]),
    used = new Set(imports.flatMap(([, names, from]) => (MODULES.includes(from) ? names.match(/\w+/g) : []))),
    bare = modules.map((name) =>
      read(name)
        .replace(/^import [^;]*;$/gm, "")
        .replace(/^export \{.*;$/gm, "")
        .replace(/^export (?=async|class|const|function)/gm, ""),
    );
  if (own) {
    for (const name of used) if (!own.includes(name)) throw new Error(`OWN in model.js lacks ${name}`);
    const taken = own.map((name) => (used.has(name) ? name : "")).join().replace(/,+$/, ""),
      take = taken && `([${taken}] = own), `;
    bare.push(taken && `let ${[...used]};`, `const use = (own) => (${take}{${exported}});`);
    exported = "use";
  }
  return [...bare, `export {${exported}};`].join("\n");
}

// All files get properties that they share under the same short names.
let props;

async function write(name, text, folded) {
  const nameCache = {props},
    // Shorter; shaders have constants too.
    short = text.replace(/\bconst (?!\w+=array\()/g, "let ");
  const {code} = await minify(short, {
    module: true,
    ecma: 2020,
    nameCache,
    // Properties that nobody else sees.
    mangle: {
      properties: {
        // Some of them the browser has, too, but none that is used here.
        builtins: true,
        regex:
          /^(again|answer|base|bridge|cause|check|core|deliver|describe|deviceFor|drop|early|encoder|inTurn|everyPipeline|final|given|group|grouped|heal|keepStates|kept|key|loss|most|neededLimits|layouts|leave|limit|loading|own|openDevice|owns|paint|parsed|pass|passing|pictured|pipeline|pipelined|placed|pool|ranges|readback|reads|received|request|reopen|say|sizeTable|sizes|snapshot|space|stage|stored|takePictures|tell|theirs|to|told|tries|writes|written)$/,
      },
    },
    // What gzip likes best. Of the large file: no repeated text is worth folding away.
    compress: {
      passes: 3,
      unsafe_arrows: true,
      reduce_funcs: folded,
      reduce_vars: folded,
      lhs_constants: !folded,
      hoist_funs: folded,
      pure_getters: true,
      evaluate: /wasm|threads/.test(name),
    },
    // What keeps bundlers from following an address.
    format: {comments: /webpackIgnore/},
  });
  ({props} = nameCache);
  writeFileSync(new URL(`src/${name}`, folder), `// tinyedge (MIT): ${hash}\n${code}\n`);
}

await write("tinyedge.js", joined([...MODULES, "tinyedge"], "TinyedgeError, load, requirements"), false);
const own = read("model").match(/^const OWN = \[([^\]]*)\];/m)[1].match(/\w+/g);
for (const [name, [modules, exported]] of Object.entries(FILES))
  await write(`${name}.js`, joined(modules, exported, own), true);
