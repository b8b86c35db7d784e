// The JS reader's verdicts, for comparison with the other readers': see reader.c.
//
//   node verdicts.mjs --texts FILE             one line a manifest
//   node verdicts.mjs --mutations FOLDER STEP  one line a mutation of each file but the manifest
//
// Mutations are loaded by what ships, on a device that does nothing. Those of golden files are
// found by verify().
import {readFileSync} from "node:fs";
import {join} from "node:path";
import {parseManifest} from "../../web/src/runtime/manifest.js";
import {checkManifest} from "../../web/src/runtime/check.js";
import {load} from "../../web/src/tinyedge.js";

const id = (error) => error.id ?? `unexpected ${error.stack}`;

function* texts(file) {
  const data = readFileSync(file);
  for (let at = 0; at < data.length; ) {
    const length = data.readUInt32LE(at);
    yield new Uint8Array(data.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
}

function verdict(text) {
  try {
    checkManifest(parseManifest(text));
    return "";
  } catch (error) {
    return id(error);
  }
}

/** Whatever is asked of it, it gives itself. */
const nothing = new Proxy(function () {}, {
  get: (_, key) => (key === "then" ? undefined : key === Symbol.toPrimitive ? () => 0 : nothing),
  apply: () => nothing,
});
const device = new Proxy(
  {
    limits: new Proxy({}, {get: () => Infinity}),
    lost: new Promise(() => {}),
    popErrorScope: async () => null,
    // What only the device of wasm.js has.
    backend: undefined,
    kernels: undefined,
    skips: undefined,
  },
  {get: (known, key) => (key in known ? known[key] : nothing)},
);
Object.assign(globalThis, {GPUBufferUsage: nothing, GPUShaderStage: nothing});

async function loaded(files, verify) {
  globalThis.fetch = async (url) => new Response(files[url.pathname.slice(1)]);
  try {
    const model = await load("http://bundle/", {device});
    if (verify) await model.verify();
    return "";
  } catch (error) {
    return id(error);
  }
}

async function* mutations(folder, step) {
  const read = (name) => new Uint8Array(readFileSync(join(folder, name)));
  const files = {"manifest.json": read("manifest.json")};
  const names = JSON.parse(readFileSync(join(folder, "manifest.json"))).files.map((f) => f.name);
  for (const name of names) files[name] = read(name);
  yield await loaded(files, false);
  for (const name of names) {
    const whole = files[name],
      golden = name.startsWith("golden");
    for (let i = 0; i < whole.length; i += step) {
      yield await loaded({...files, [name]: whole.subarray(0, i)}, golden);
      for (let bit = 0; bit < 8; bit++) {
        const changed = whole.slice();
        changed[i] ^= 1 << bit;
        yield await loaded({...files, [name]: changed}, golden);
      }
    }
  }
}

const [kind, place, step] = process.argv.slice(2);
const lines = [];
if (kind === "--texts") for (const text of texts(place)) lines.push(verdict(text));
else for await (const line of mutations(place, Number(step))) lines.push(line);
console.log(lines.join("\n"));
