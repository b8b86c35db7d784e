// Fetching the files of a bundle.

import {fail} from "./errors.js";
import {MANIFEST_BYTES} from "./manifest.js";

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

/** Ask for a file. @returns {Promise<Response>} */
const ask = async ({base, fetch, signal}, name, request) =>
  fetch(new URL(name + base.search, base), {...request, signal});

/** Ask for files that will be fetched, so that they are on their way meanwhile. */
export function askEarly(source, files) {
  source.early = new Map(files.map(({name}) => [name, ask(source, name, {})]));
  // What fails is told when the file is fetched.
  for (const answer of source.early.values()) answer.catch(() => {});
}

/**
 * A file of the bundle. Its length and hash are checked where they are known: not the manifest's, but by `integrity`.
 * `source`: where and how to fetch (`base`, `fetch`, `signal`), and `loading`, the promise of the module that says what to
 * do after a failure. `id` is what the errors' ids begin with.
 * @param {Record<string, any>} source @param {{name: string, bytes?: number, sha256?: string}} file
 * @param {(bytes: number) => void} received @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function fetchFile(source, file, received, id = "bundle.file") {
  const {name, bytes: size, sha256} = file,
    // What has arrived, and what the next request is like.
    got = {bytes: new Uint8Array(size ?? MANIFEST_BYTES), length: 0, request: {}, received};
  for (;;)
    try {
      await attempt(source, got, name, id);
      const bytes = got.bytes.subarray(0, got.length);
      if (size && got.length !== size)
        fail(`${id}.size`, name, `it has ${got.length} bytes, not ${size}`);
      if (sha256) {
        const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
        if (hash.some((byte, i) => byte !== parseInt(sha256.slice(2 * i, 2 * i + 2), 16)))
          fail(`${id}.hash`, name, "its SHA-256 is another");
      }
      return bytes;
    } catch (error) {
      source.signal?.throwIfAborted();
      const {again} = await source.loading.catch(() => {
        throw error;
      });
      await again(got, error, sha256, source.signal);
    }
}

/** Ask once, for what is missing of a file. */
async function attempt(source, got, name, id) {
  const {base, early} = source,
    {bytes, request, received} = got,
    asked = early?.get(name) ?? ask(source, name, request),
    url = new URL(name + base.search, base);
  const broken = (error) =>
    fail(
      "load.network",
      name,
      `${url}: ${error.message}`,
      "check the connection, CORS and connect-src",
    );
  const missing = (answer) =>
    fail(`${id}.missing`, name, `${url} answered ${answer}`, "check the address, and serve the whole folder");
  early?.delete(name);
  const {status, ok, body} = (got.answer = await asked.catch(broken));
  got.passing = status > 499 || [408, 425, 429].includes(status);
  if (status === 404) missing(status);
  if (!ok || !body)
    fail(
      "load.http",
      name,
      `${url} answered ${status}`,
      got.passing ? "try again later" : "trying again does not help",
    );
  if (status !== 206) {
    received(-got.length);
    got.length = 0;
  }
  const reader = body.getReader();
  for (;;) {
    const {done, value} = await reader.read().catch(broken),
      {length} = got;
    if (done) return;
    // What servers of single-page apps say of a file that they do not have.
    if (!length && /^\s*<(!doc|html)/i.test(new TextDecoder().decode(value.subarray(0, 99))))
      missing("with a page of HTML");
    if (length + value.length > bytes.length)
      fail(`${id}.size`, name, `it has more than ${bytes.length} bytes`);
    bytes.set(value, length);
    got.length += value.length;
    received(value.length);
  }
}
