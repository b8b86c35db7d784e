// Fetching the files of a bundle.

import {fail} from "./errors.js";
import {BLOCK_BYTES, MANIFEST_BYTES} from "./manifest.js";

/**
 * The folder of a bundle. An address's query is kept: it may hold what lets a file through.
 * @param {any} url @param {any} [files]
 */
export function folderOf(url, files) {
  const here = globalThis.document?.baseURI ?? globalThis.location?.href;
  let text = url?.href ?? url,
    base;
  try {
    // Only text has trim. Nothing lies below a data: address, as bundlers make of small files.
    base = new URL(text.trim(), here);
    for (text of Object.values(files ?? [""])) new URL(text, base);
  } catch {
    fail("load.url", String(text), `it is no URL at ${here}`, "give it whole");
  }
  base.pathname = base.pathname.replace(/(\/manifest\.json)?\/*$/, "/");
  return base;
}

/** Requests in a row that bring nothing new, the most. */
export const TRIES = 4;

/**
 * Wait before what failed is asked for again: after the first request in a row a quarter of a second, then one, then four, and not
 * the same for all pages that a server has failed; at least so many seconds.
 */
export const pause = (tries, least = 0) =>
  new Promise((resolve) =>
    setTimeout(resolve, 1000 * Math.max(least, 4 ** (tries - 2.2 + Math.random() / 3))),
  );

/** Where a file is. @returns {URL} */
const addressOf = ({base, files}, name) =>
  new URL(files?.[name] || name + base.search, base);

/** Ask for a file. @returns {Promise<Response>} */
const ask = async (source, name, request) => {
  const {fetch, signal} = source;
  return fetch(addressOf(source, name), {...request, signal});
};

/** Ask for files that will be fetched, so that they are on their way meanwhile. */
export function askEarly(source, files) {
  source.early = {};
  // What fails is told when the file is fetched.
  for (const {name} of files) (source.early[name] = ask(source, name, {})).catch(() => {});
}

/**
 * A file of the bundle. Its length and hash are checked where they are known: not the manifest's, but by `integrity`.
 * `source`: where and how to fetch (`base`, `fetch`, `signal`), and `loading`, the promise of the module that says what to
 * do after a failure. `id` is what the errors' ids begin with. `take` gets what was checked, and where it begins: the whole, or
 * a block after the other where blocks have hashes. Only the last of them is kept then, which is in the same memory:
 * in `space`, of another file that is done, where there is one.
 * @param {Record<string, any>} source
 * @param {{name: string, bytes?: number, sha256?: string, blocks?: string[], space?: any}} file
 * @param {(bytes: number) => void} received @param {(part: Uint8Array<ArrayBuffer>, start: number) => void} [take]
 * @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function fetchFile(source, file, received, id = "bundle.file", take) {
  const {name, bytes: size, sha256, blocks, space = BLOCK_BYTES} = file,
    limit = size ?? MANIFEST_BYTES,
    // What has arrived, and what the next request is like.
    got = {
      bytes: new Uint8Array(blocks ? space : limit),
      length: 0,
      request: {},
      received,
      limit,
    },
    // When a block is there, or the file.
    full = async () => {
      const {bytes, length} = got,
        start = blocks ? length - (length % BLOCK_BYTES || BLOCK_BYTES) : 0,
        part = bytes.subarray(0, length - start),
        expected = blocks ? blocks[start / BLOCK_BYTES] : sha256;
      if (expected) {
        const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", part));
        if (hash.some((byte, i) => byte !== parseInt(expected.slice(2 * i, 2 * i + 2), 16)))
          fail(`${id}.hash`, name, "its SHA-256 is another");
      }
      take?.(part, start);
      return part;
    };
  for (;;)
    try {
      await attempt(source, got, name, id, full);
      if (size && got.length !== size)
        fail(`${id}.size`, name, `it has ${got.length} bytes, not ${size}`);
      return await full();
    } catch (error) {
      source.signal?.throwIfAborted();
      const {again} = await source.loading;
      await again(got, error, sha256, source.signal);
    }
}

/** Ask once, for what is missing of a file. */
async function attempt(source, got, name, id, full) {
  const {early} = source,
    {bytes, request, received} = got,
    url = addressOf(source, name),
    asked = early?.[name] ?? ask(source, name, request);
  const broken = (error) =>
    fail(
      "load.network",
      name,
      `${url}: ${error.message}`,
      "check the connection, CORS and connect-src",
    );
  const missing = (answer) =>
    fail(`${id}.missing`, name, `${url} answered ${answer}`, "check the address, and serve the whole folder");
  delete early?.[name];
  const {ok, body, status} = (got.answer = (await asked.catch(broken)) ?? {});
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
  // All is read into the same memory, where the browser can: elsewhere what was read lies about until it is collected.
  let reader,
    /** @type {any} */
    room = 2 ** 16;
  try {
    reader = body.getReader({mode: "byob"});
  } catch {
    reader = body.getReader();
  }
  for (;;) {
    const {done, value} = await reader.read(new Uint8Array(room)).catch(broken);
    if (done) return;
    room = value.buffer;
    // What servers of single-page apps say of a file that they do not have.
    if (!got.length && /^\s*<(!|htm)/i.test(new TextDecoder().decode(value.subarray(0, 99))))
      missing("with a page of HTML");
    if (got.length + value.length > got.limit)
      fail(`${id}.size`, name, `it has more than ${got.limit} bytes`);
    for (let at = 0; at < value.length; ) {
      const filled = got.length % bytes.length;
      // The one before is done.
      if (got.length && !filled) await full();
      const part = value.subarray(at, at + bytes.length - filled);
      bytes.set(part, filled);
      at += part.length;
      got.length += part.length;
      received(part.length);
    }
  }
}
