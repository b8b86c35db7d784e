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
  loading: [["network", "opening", "memory", "pipelines", "start", "loading"], "again, deviceFor, openDevice, start"],
  recover: [["recover"], "keepStates, reopen"],
  wasm: [["wasm"], "open"],
  threads: [["threads"], "start"],
  image: [["image"], "takePictures"],
  labels: [["labels"], "takeLabels"],
  states: [["states"], "saveStates, loadStates"],
  stream: [["stream"], "deliver, inputBuffer, toCanvas"],
  canvas: [["canvas"], "intoTexture, toCanvas"],
  diagnostics: [["diagnostics"], "compare, example, verify, profile, requirements"],
};

const folder = new URL("./", import.meta.url);
const read = (name) => readFileSync(new URL(`src/runtime/${name}.js`, folder), "utf8");
const names = [...MODULES, "tinyedge", ...Object.values(FILES).flatMap(([modules]) => modules)];
const hash = createHash("sha256").update(names.map(read).join("")).digest("hex").slice(0, 16);

/** The text of modules as one, which exports names. */
const joined = (modules, exported) =>
  modules
    .map((name) =>
      read(name)
        .replace(/^import [^;]*;$/gm, "")
        .replace(/^export \{.*;$/gm, "")
        .replace(/^export (?=async|class|const|function)/gm, ""),
    )
    .join("\n") + `\nexport {${exported}};\n`;

// All files get what they share under the same short names.
const nameCache = {};

async function write(name, text, folded) {
  const {code} = await minify(text, {
    module: true,
    ecma: 2020,
    nameCache,
    // Properties that nobody else sees.
    mangle: {
      properties: {
        regex:
          /^(answer|arrayOf|base|beside|bridge|cause|check|checkManifest|chosen|core|describe|draw|drop|early|encoder|inTurn|entryOf|evaluateAll|everyPipeline|fail|fetchFile|filesToRun|final|findAdapter|folderOf|given|group|grouped|guard|heal|kept|key|kindOf|loss|lossOf|most|neededLimits|layouts|leave|limit|loading|own|owns|paint|parsed|parseManifest|pass|passing|pictured|pipeline|pipelined|placed|plan|pool|ranges|readback|reads|received|request|replay|restore|say|sizeTable|sizes|snapshot|source|space|stage|stateOf|stored|tell|theirs|to|told|toStorage|tries|whole|writes|written)$/,
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
  writeFileSync(new URL(`src/${name}`, folder), `// tinyedge (MIT): ${hash}\n${code}\n`);
}

await write("tinyedge.js", joined([...MODULES, "tinyedge"], "TinyedgeError, load, requirements"), false);
for (const [name, [modules, exported]] of Object.entries(FILES))
  await write(`${name}.js`, joined(modules, exported), true);
