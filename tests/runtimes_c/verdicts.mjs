// The JS reader's verdicts on manifests: node verdicts.mjs FILE, see reader.c --texts.
import {readFileSync} from "node:fs";
import {parseManifest} from "../../web/src/runtime/manifest.js";
import {checkManifest} from "../../web/src/runtime/check.js";

const data = readFileSync(process.argv[2]);
const lines = [];
for (let at = 0; at < data.length; ) {
  const length = data.readUInt32LE(at);
  const text = new Uint8Array(data.subarray(at + 4, at + 4 + length));
  at += 4 + length;
  try {
    checkManifest(parseManifest(text));
    lines.push("");
  } catch (error) {
    lines.push(error.id ?? `unexpected ${error}`);
  }
}
console.log(lines.join("\n"));
