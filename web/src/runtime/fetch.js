// Fetching the files of a bundle.

import {fail} from "./errors.js";

/**
 * The folder of a bundle. An address's query is kept: it may hold what lets a file through.
 * @param {any} url
 */
export function folderOf(url) {
  const text = url?.href ?? url,
    here = globalThis.document?.baseURI ?? globalThis.location?.href;
  let base;
  try {
    // Only text has trim.
    base = new URL(text.trim(), here);
  } catch {
    fail("load.url", `"${text}"`, `it is no address, seen from ${here}`, "give a whole one");
  }
  base.pathname = base.pathname.replace(/(\/manifest\.json)?\/*$/, "/");
  return base;
}

/**
 * A file of at most `most` bytes. `id` is what the errors' ids begin with.
 * @param {URL} base @param {string} name @param {number} most @param {AbortSignal | undefined} signal @param {string} id
 * @param {(bytes: number) => void} [received] @param {RequestCache} [cache] @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function fetchBytes(base, name, most, signal, id, received, cache) {
  const url = new URL(name + base.search, base);
  const broken = (error) => {
    signal?.throwIfAborted();
    fail(
      "load.network",
      name,
      `${url}: ${error.message}`,
      "check the connection, CORS and connect-src",
    );
  };
  const missing = (answer) =>
    fail(`${id}.missing`, name, `${url} answered ${answer}`, "check the address, and serve the whole folder");
  const {status, ok, body} = await fetch(url, {signal, cache}).catch(broken);
  if (status === 404) missing(status);
  if (!ok || !body)
    fail(
      "load.http",
      name,
      `${url} answered ${status}`,
      status > 499 || [408, 425, 429].includes(status) ? "try again later" : "trying again does not help",
    );
  const bytes = new Uint8Array(most),
    reader = body.getReader();
  let length = 0;
  for (;;) {
    const {done, value} = await reader.read().catch(broken);
    if (done) return bytes.subarray(0, length);
    // What servers of single-page apps say of a file that they do not have.
    if (!length && /^\s*<(!doc|html)/i.test(new TextDecoder().decode(value.subarray(0, 99))))
      missing("with a page of HTML");
    if (length + value.length > most) fail(`${id}.size`, name, `it has more than ${most} bytes`);
    bytes.set(value, length);
    length += value.length;
    received?.(value.length);
  }
}

/**
 * A file of the bundle, with its length and hash checked. A wrong one may be of another version, from a cache, and is
 * asked for once more.
 * @param {RequestCache} [cache]
 */
export async function fetchFile(base, file, signal, received, cache) {
  const {name, bytes: size, sha256} = file;
  let count = 0;
  try {
    const bytes = await fetchBytes(base, name, size, signal, "bundle.file", (n) => {
      count += n;
      received(n);
    }, cache);
    if (bytes.length !== size)
      fail("bundle.file.size", name, `it has ${bytes.length} bytes, not ${size}`);
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
    if (hash.some((byte, i) => byte !== parseInt(sha256.slice(2 * i, 2 * i + 2), 16)))
      fail("bundle.file.hash", name, "its SHA-256 is another");
    return bytes;
  } catch (error) {
    if (cache || !/^bundle/.test(error.id)) throw error;
    received(-count);
    return fetchFile(base, file, signal, received, "reload");
  }
}
