// Reading manifest.json: restricted JSON with exactly one spelling.

import {fail} from "./errors.js";

/** @typedef {Record<string, any>} Json */

export const MANIFEST_BYTES = 2 ** 24;

/** Of a file of weights, which have hashes of their own. */
export const BLOCK_BYTES = 2 ** 20;

export const ascii = (value) =>
  String(JSON.stringify(value)).replace(
    /[\x7f-\uffff]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"),
  );

export const isObject = (value) =>
  value instanceof Object && !Array.isArray(value);

/** Restricted, canonical JSON: what is not spelt exactly as it would be written again is refused.
 * @param {Uint8Array} bytes @returns {Json} */
export function parseManifest(bytes) {
  const plain = (value, depth) => {
    if (typeof value === "string") return !/[\0-\x1f\x7f]|\p{Surrogate}/u.test(value);
    if (typeof value !== "object") return typeof value === "boolean" || Number.isSafeInteger(value);
    return (
      value &&
      depth <= 8 &&
      Object.values(value).every((item) => plain(item, depth + 1)) &&
      (Array.isArray(value) ||
        Object.keys(value).every(
          (key, i, keys) =>
            /^[A-Za-z_][\w.-]{0,63}$/.test(key) && (!i || keys[i - 1] < key),
        ))
    );
  };
  const line = (value) =>
    Array.isArray(value) && value.length ? `[\n${value.map(ascii).join(",\n")}\n]` : ascii(value);
  let good = false,
    because = "was it edited?",
    manifest;
  try {
    // What is not ASCII becomes something that is not either.
    const text = new TextDecoder("latin1").decode(bytes);
    manifest = JSON.parse(text);
    good =
      isObject(manifest) &&
      plain(manifest, 1) &&
      text ===
        `{\n${Object.keys(manifest)
          .map((key) => `${ascii(key)}:${line(manifest[key])}`)
          .join(",\n")}\n}\n`;
  } catch (error) {
    because = error.message;
  }
  if (!good)
    fail("bundle.manifest.syntax", "manifest.json", `it is not canonical JSON: ${because}`);
  return manifest;
}
