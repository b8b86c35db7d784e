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
  "replay",
  "turns",
  "model",
];

// What it fetches: files of their own, their modules and what they export.
const FILES = {
  loading: [["network", "opening", "memory", "pipelines", "labels", "start", "loading"], "again, deviceFor, openDevice, start"],
  wasm: [["wasm"], "open"],
  threads: [["threads"], "start"],
  image: [["image"], "takePictures"],
  extras: [["recover", "states", "canvas", "stream", "diagnostics", "extras"],
    "keepStates, reopen, saveStates, loadStates, toCanvas, deliver, inputBuffer, compare, example, verify, profile, requirements"],
};

const folder = new URL("./", import.meta.url);
const read = (name) => readFileSync(new URL(`src/runtime/${name}.js`, folder), "utf8");
const names = [...MODULES, "tinyedge", ...Object.values(FILES).flatMap(([modules]) => modules)];
const hash = createHash("sha256").update(names.map(read).join("")).digest("hex").slice(0, 16);

/** The text of modules as one, which exports names. Those of another file get what they import of tinyedge.js by `use`. */
function joined(modules, exported, own = "") {
  const imports = modules.flatMap((name) => [...read(name).matchAll(/^import \{([^}]*)\} from "\.\/(\w+)\.js";$/gm)]),
    used = new Set(imports.flatMap(([, names, from]) => (MODULES.includes(from) ? names.match(/\w+/g) : []))),
    bare = modules.map((name) =>
      read(name)
        .replace(/^import [^;]*;$/gm, "")
        .replace(/^export \{.*;$/gm, "")
        .replace(/^export (?=async|class|const|function)/gm, ""),
    );
  for (const name of own ? used : [])
    if (!own.includes(`\n  ${name},`)) throw new Error(`OWN in model.js lacks ${name}`);
  if (used.size && own) {
    bare.push(`let ${[...used]}; const use = (own) => (({${[...used]}} = own), {${exported}});`);
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
        regex:
          /^(again|answer|arrayOf|base|beside|bridge|cause|check|checkManifest|chosen|core|deliver|describe|deviceFor|draw|drop|early|encoder|inTurn|isBig|isFloat|entryOf|evaluateAll|everyPipeline|fail|fetchFile|filesToRun|final|findAdapter|folderOf|given|group|grouped|guard|heal|keepStates|kept|key|kindOf|loss|lossOf|most|neededLimits|layouts|leave|limit|loading|own|openDevice|owns|paint|parsed|parseManifest|pass|passing|pictured|pipeline|pipelined|placed|plan|pool|product|ranges|readback|reads|received|request|reopen|replay|restore|say|sizeTable|sizes|snapshot|source|space|stage|stateOf|stored|symbolsOf|takePictures|tell|theirs|to|told|toStorage|tries|unlessAborted|whole|writes|written)$/,
      },
    },
    // What gzip likes best. Of the large file: no repeated text is worth folding away.
    compress: {
      passes: 3,
      unsafe_arrows: true,
      reduce_funcs: folded,
      reduce_vars: folded,
      sequences: folded,
      evaluate: false,
    },
  });
  ({props} = nameCache);
  writeFileSync(new URL(`src/${name}`, folder), `// tinyedge (MIT): ${hash}\n${code}\n`);
}

await write("tinyedge.js", joined([...MODULES, "tinyedge"], "TinyedgeError, load, requirements"), false);
const [own] = read("model").match(/^const OWN = [^;]*;/m);
for (const [name, [modules, exported]] of Object.entries(FILES))
  await write(`${name}.js`, joined(modules, exported, own), true);
