// A model whose device was lost gets another one.

import {findAdapter, lossOf} from "./device.js";
import {fail} from "./errors.js";
import {guard} from "./replay.js";

/** Milliseconds from one device to the next, at least: one that is lost at once is no help. */
const PAUSE = 60_000;

/** When each model got its last device. @type {WeakMap<any, number>} */
const reopened = new WeakMap();

/**
 * Copy a model's states with each run: `kept` has their bytes as they were after the last work that has resolved. What
 * submits a run asks `snapshot`: it records the copies, and gives what reads them.
 * @param {Record<string, any>} core
 */
export function keepStates(core) {
  const {states, buffers} = core.parsed,
    sizes = states.map(({buffer}) => buffers[buffer].bytes),
    size = sizes.reduce((a, b) => a + b, 0);
  // Two runs are in flight at most: they take two buffers of their device in turn.
  let places = [],
    device;
  core.snapshot = (run) => {
    if (device !== run.device) {
      device = run.device;
      places = [0, 1].map(() =>
        device.createBuffer({label: "tinyedge", size, usage: 9 /* MAP_READ, COPY_DST */}),
      );
      run.owns.push(...places);
      run.stats.bufferBytes += 2 * size;
    }
    const [place] = places.reverse();
    run.pass?.end();
    run.pass = null;
    let end = 0;
    states.forEach(({buffer}, i) => {
      const from = run.ranges[buffer];
      run.encoder.copyBufferToBuffer(from.buffer, from.offset, place, end, sizes[i]);
      end += sizes[i];
    });
    return async () => {
      await place.mapAsync(1);
      const bytes = place.getMappedRange().slice(0);
      place.unmap();
      return () => (core.kept = bytes);
    };
  };
}

/**
 * Give a model another device, with its weights, and with its states where they were kept, else with their initial values.
 * After a failure the model is as before.
 * @param {Record<string, any>} core @param {any} readback the place that the next run reads by
 */
export async function reopen(core, readback) {
  const {source, stats, kept, loss, limits} = core,
    since = Date.now() - (reopened.get(core) ?? -PAUSE);
  // Disposed, which its caller says.
  if (!limits) return;
  if (since < PAUSE)
    fail(
      "device.lost",
      "the device",
      `${loss.cause.because}; so was the one before, within a minute`,
      `run again in ${Math.ceil((PAUSE - since) / 1000)} seconds`,
    );
  const device = await (await source.loading).openDevice(limits, findAdapter(source.powerPreference)),
    was = {...stats},
    /** @type {Record<string, any>} */
    fresh = {
      ...core,
      device,
      readback,
      loss: lossOf(device),
      owns: [],
      written: undefined,
      // That of the load is used up.
      source: {...source, signal: new AbortController().signal},
    };
  Object.assign(stats, {bufferBytes: 0, pipelines: 0, bindGroups: 0});
  try {
    await (await source.loading).start(fresh);
    if (kept) await guard(fresh, () => writeStates(fresh, kept), []);
    fresh.check();
  } catch (error) {
    device.destroy();
    Object.assign(stats, was);
    core.kept = kept;
    // A file that does not arrive is no reason to wait with the next device.
    if (!/^load/.test(error.id)) reopened.set(core, Date.now());
    throw error;
  }
  reopened.set(core, Date.now());
  Object.assign(core, fresh);
  core.loss.told.add(core.tell);
  core.say("restored", {states: core.snapshot ? "kept" : "initial"});
}

/** @param {Record<string, any>} core @param {ArrayBuffer} kept the states' bytes, one after the other */
function writeStates({parsed: m, device, ranges}, kept) {
  let end = 0;
  for (const {buffer: number} of m.states) {
    const {buffer, offset} = ranges[number],
      {bytes} = m.buffers[number];
    device.queue.writeBuffer(buffer, offset, kept, end, bytes);
    end += bytes;
  }
}
