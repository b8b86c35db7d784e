// What to do after a request that failed. This lies in loading.js, which is fetched along with the manifest: it must be
// there before the connection fails.

import {TRIES, pause} from "./fetch.js";
import {unlessAborted} from "./turns.js";

/** Seconds that a server may ask to be left alone; one that asks for more is not asked again. */
const PATIENCE = 60;

/**
 * Prepare the next request for a file, after waiting where that helps, or throw the error.
 *
 * A file that does not fit its hash, or is missing beside a manifest that names it, may be of another version, from a cache:
 * it is asked for once more, past the caches. After a failure on the way only what has not arrived is asked for, where
 * a hash tells whether the parts fit.
 * @param {Record<string, any>} got what has arrived, see fetchFile @param {any} error @param {string | undefined} sha256
 * @param {AbortSignal | undefined} signal
 */
export async function again(got, error, sha256, signal) {
  const {request, length, answer, passing} = got,
    {id} = error,
    refused = id === "load.http";
  if (/^bundle/.test(id) || (refused && answer.status === 416)) {
    if (!sha256 || request.cache) throw error;
    got.received(-length);
    got.length = 0;
    got.request = {cache: "reload"};
    return;
  }
  // The first time there is no most.
  if (!(length <= got.most)) {
    got.most = length;
    got.tries = 0;
  }
  got.tries++;
  const least = refused ? asked(answer.headers?.get("retry-after")) : 0;
  // What a caller's functions throw, or a lost device, is no fault of the connection.
  if (!(refused ? passing : /^load/.test(id)) || got.tries === TRIES || least > PATIENCE) throw error;
  await unlessAborted(signal, pause(got.tries, least));
  const {cache} = request;
  got.request = {cache, headers: sha256 && length ? {Range: `bytes=${length}-`} : {}};
}

/** The seconds of a Retry-After: a number, or a date; 0 without one. @param {any} text */
function asked(text) {
  return (text >= 0 ? Number(text) : (Date.parse(text) - Date.now()) / 1000) || 0;
}
