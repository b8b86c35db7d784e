// Fetching the files of a bundle.

import {fail} from "./errors.js";

/**
 * A file of at most `most` bytes. `id` is what the errors' ids begin with.
 * @param {URL} base @param {string} name @param {number} most @param {AbortSignal | undefined} signal @param {string} id
 * @param {(bytes: number) => void} [received] @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
export async function fetchBytes(base, name, most, signal, id, received) {
  const url = new URL(name, base);
  const broken = (error) => {
    signal?.throwIfAborted();
    fail(
      "load.network",
      name,
      `${url}: ${error.message}`,
      "check the connection, the server's CORS and connect-src",
    );
  };
  const response = await fetch(url, {signal}).catch(broken);
  if (!response.ok || !response.body)
    fail(
      `${id}.missing`,
      name,
      `${url} answered ${response.status}`,
      "check the address, and serve the whole folder",
    );
  const bytes = new Uint8Array(most),
    reader = response.body.getReader();
  let length = 0;
  for (;;) {
    const {done, value} = await reader.read().catch(broken);
    if (done) return bytes.subarray(0, length);
    if (length + value.length > most) fail(`${id}.size`, name, `it has more than ${most} bytes`);
    bytes.set(value, length);
    length += value.length;
    received?.(value.length);
  }
}

/** A file of the bundle, with its length and hash checked. */
export async function fetchFile(base, {name, bytes: size, sha256}, signal, received) {
  const bytes = await fetchBytes(base, name, size, signal, "bundle.file", received);
  if (bytes.length !== size)
    fail("bundle.file.size", name, `it has ${bytes.length} bytes, not ${size}`);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  if (Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("") !== sha256) {
    fail("bundle.file.hash", name, "its SHA-256 is another");
  }
  return bytes;
}
