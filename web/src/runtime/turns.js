// Whose turn it is: two works are in flight at most, and only one of them still gives the device commands.

import {guard} from "./replay.js";

/**
 * Gives the function that takes work, and the writes that it begins with: does it when all before it has given its
 * commands and there is a place to read, at once if that is now. The work gets what its runs add to the core: the place
 * (`readback`), and what it may call once it has given its commands (`given`). The second place is made when it is used.
 * Of work that is `latest` one waits at most: the next one takes its place, and it comes to nothing.
 * Work that is asked for when the device is known to be lost gets another one; what was asked for before is lost with it.
 */
export function takeTurns(core) {
  const waiting = [],
    free = [core.readback, {}];
  let giving;
  const next = () => {
    if (!giving && free[0]) waiting.shift()?.((giving = free.shift()));
  };
  const begin = async (work, readback, loss, known) => {
    const given = () => {
      if (giving === readback) giving = null;
      next();
    };
    try {
      if (known && core.limits && !loss.final && core.loss === loss) await core.heal(readback);
      core.check();
      if (!known && loss.cause) throw loss.cause;
      if (readback.device !== core.device) {
        readback.buffer = await guard(core, core.stage);
        readback.device = core.device;
      }
      return await work({readback, given});
    } finally {
      free.unshift(readback);
      given();
    }
  };
  return (work, writes = [], latest) =>
    new Promise((resolve) => {
      const {loss} = core,
        known = loss.cause,
        // Pictures that no run has drawn.
        drop = () => writes.forEach(({buffer}) => buffer?.drop?.()),
        start = (place) => resolve(begin(work, place, loss, known).finally(drop)),
        stale = latest ? waiting.findIndex(({leave}) => leave) : -1;
      // The caller may change its arrays as soon as run returns.
      if (giving || known || !free[0]?.buffer)
        for (const write of writes) write.bytes = write.bytes?.slice();
      if (stale >= 0) waiting.splice(stale, 1)[0].leave();
      if (latest) start.leave = () => resolve(drop());
      waiting.push(start);
      next();
    });
}

/** What a promise gives, or the reason of the signal, if there is one, as soon as it has one. */
export const unlessAborted = (signal, promise) =>
  new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal?.addEventListener("abort", abort);
    promise.then(resolve, reject).then(() => signal?.removeEventListener("abort", abort));
  });
