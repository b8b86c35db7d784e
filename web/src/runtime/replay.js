// Replaying a manifest's steps: all that a run records, submits and reads.

import {fail} from "./errors.js";
import {product, bytesOf, fromStorage} from "./types.js";
import {namesOf} from "./check.js";
import {pause} from "./fetch.js";

/**
 * Give the device work, at once, and what that returns; what the device has against it becomes an error. `inputs`: those that are GPU buffers of the
 * caller's, of the kind "output" where there are such, and the `usage` that the last of them needs; undefined while memory is set up.
 * @param {any} core @param {(core: any) => any} work @param {string[] & {kind?: string, usage?: string}} [inputs]
 */
export async function guard(core, work, inputs) {
  const {device} = core,
    filters = /** @type {GPUErrorFilter[]} */ (["internal", "out-of-memory", "validation"]);
  for (const filter of filters) device.pushErrorScope(filter);
  const made = work(core);
  // The last scope comes first. Of a lost device there is no news here, but from check.
  const faults = await Promise.all(filters.map(() => device.popErrorScope())).catch(() => []);
  core.check();
  const [invalid, memory] = faults,
    fault = faults.find((fault) => fault),
    given = invalid && inputs?.join(),
    kind = inputs?.kind ?? "input";
  if (given)
    fail(
      `run.${kind}.buffer`,
      `${kind} "${given}"`,
      fault.message,
      `give one of model.device, with ${inputs?.usage ?? (inputs?.kind ? "COPY_DST" : "COPY_SRC")}, not mapped or destroyed`,
    );
  if (fault)
    fail(
      memory || !inputs ? "device.memory" : "device.run",
      "the GPU",
      fault.message,
      "use a larger GPU, or load the model again",
    );
  return made;
}

/** A run of a model: what its modules share, what is its own, and what it records. */
export const begin = (core, own) => ({
  ...core,
  ...own,
  encoder: core.device.createCommandEncoder(),
});

/**
 * One run: write the inputs, one pass (more only around copies), one submit, read the outputs.
 * `own`: where it reads (`readback`), what it calls when it has submitted all (`given`), what brings outputs elsewhere
 * (`deliver`), descriptions of passes.
 */
export async function replay(core, {entry, symbols, sizes, writes}, keep, own) {
  const {parsed: m, device, stats, ranges} = core,
    run = {
      ...begin(core, own),
      sizes,
      theirs: namesOf(writes.filter(({buffer}) => buffer)),
    };
  if (core.sizeTable && core.written !== sizes.key) {
    device.queue.writeBuffer(core.sizeTable, 0, Int32Array.from(symbols));
    core.written = sizes.key;
    stats.uniformWrites++;
  }
  for (const {to: number, bytes, buffer, offset, size} of writes) {
    const to = ranges[number];
    if (size && bytes) device.queue.writeBuffer(to.buffer, to.offset, bytes);
    else if (size && !buffer.draw)
      run.encoder.copyBufferToBuffer(buffer, offset, to.buffer, to.offset, size);
  }
  for (const {to, buffer} of writes) if (buffer?.draw) await buffer.draw(run, ranges[to]);
  if (entry !== m.entries[0]) await core.everyPipeline;
  await walk(run, entry.steps[0], entry.steps[0] + entry.steps[1]);
  let end = 0;
  const outputs = entry.outputs.map((i) => {
    const p = m.outputs[i],
      shape = sizes.outputs[i],
      from = ranges[p.buffer],
      offset = end,
      size = bytesOf(shape, p),
      kept = keep.includes(p.name);
    if (!kept && size) {
      copy(run, from, from.offset, run.readback, offset, size);
      end += size;
    }
    return {i, p, shape, offset, kept: kept && {...from, size}};
  });
  if (run.deliver) await run.deliver(run, outputs);
  stats.runs++;
  const arrays = [],
    reading = settle(run, end, (mapped) => {
      for (const {i, p, shape, offset, kept} of outputs)
        if (!kept) arrays[i] = fromStorage(mapped, offset, product(shape), p);
    });
  run.given?.();
  await reading;
  const results = Object.fromEntries(
    outputs.map(({i, p, shape: whole, kept}) => {
      const {name, dtype, storage, axis, count, slices} = p,
        shape = [...whole];
      if (kept) return [name, {name, dtype, storage, shape, gpu: kept}];
      if (arrays[count]) {
        const n = Number(arrays[count]);
        if (n < 0 || n > shape[axis]) fail("replay.count", name, `it has ${n} elements`);
        shape[axis] = n;
      }
      const result = {
        name,
        dtype,
        shape,
        data: arrays[i].subarray(0, product(shape)),
        get slices() {
          return cut(this, slices);
        },
      };
      return [name, result];
    }),
  );
  await run.placed?.(results);
  return results;
}

/** The named parts of an output. */
export function cut({data, shape}, slices) {
  return Object.fromEntries(
    slices.map(({name, axis, start, size}) => {
      const outer = product(shape.slice(0, axis)),
        inner = product(shape.slice(axis + 1));
      const part = new data.constructor(outer * size * inner);
      for (let i = 0; i < outer; i++) {
        const from = (i * shape[axis] + start) * inner;
        part.set(data.subarray(from, from + size * inner), i * size * inner);
      }
      return [name, {data: part, shape: shape.with(axis, size)}];
    }),
  );
}

/** Record steps [i, end). Only a branch, which must read its condition, waits. */
async function walk(run, i, end) {
  const {parsed: m, stats, ranges, describe} = run;
  while (i < end) {
    const step = m.steps[i],
      values = run.sizes.steps[i];
    if (step.op === "launch") {
      if (values.every((count) => count > 0)) {
        if (describe || !run.pass) {
          run.pass?.end();
          run.pass = run.encoder.beginComputePass(describe?.(step));
          stats.passes++;
        }
        run.pass.setPipeline(run.pipelined[step.kernel]);
        run.pass.setBindGroup(0, run.grouped[i]);
        run.pass.dispatchWorkgroups(...values);
        stats.launches++;
      }
    } else if (step.op === "copy") {
      const to = ranges[step.destination],
        [size] = values;
      let from = ranges[step.source],
        at = from.offset + step.source_offset;
      if (size) {
        if (from.buffer === to.buffer)
          copy(run, from, at, (from = run.bridge), (at = 0), size);
        copy(run, from, at, to, to.offset + step.destination_offset, size);
      }
    } else {
      for (let iteration = 0; iteration < step.bound && (await condition(run, step)); iteration++) {
        await walk(run, i + 1, i + 1 + step.body);
      }
      i += step.body;
    }
    i++;
  }
}

function copy(run, from, offset, to, at, size) {
  run.pass?.end();
  run.pass = null;
  run.encoder.copyBufferToBuffer(from.buffer, offset, to.buffer, at, size);
}

/** Submit what may change states. @param {any} run @param {number} [size] @param {any} [take] */
export const settle = (run, size, take) => submit(run, size, take, run.snapshot?.(run));

/**
 * Submit what was recorded. What `take` makes of the first bytes of the readback buffer then, by their `slice`. `read`: reads
 * what else was copied, and gives what takes note of it, where all went well.
 * @param {any} run @param {number} [size] @param {(mapped: any) => any} [take] @param {any} [read]
 * @returns {Promise<any>}
 */
export async function submit(run, size, take, read) {
  run.pass?.end();
  run.pass = null;
  const {buffer} = run.readback,
    done = guard(run, () => run.device.queue.submit([run.encoder.finish()]), run.theirs ?? []);
  run.stats.submits++;
  let /** @type {any} */ mapped, note;
  // Told below, when the bytes are there.
  done.catch(() => {});
  try {
    try {
      if (size) {
        await buffer.mapAsync(1, 0, size);
        // A buffer of wasm.js has `slice` itself.
        mapped = buffer.slice ? buffer : buffer.getMappedRange(0, size);
      }
      note = await read?.();
    } catch (error) {
      // The news of a lost device may come a moment after the failure that it causes.
      await pause(1);
      run.check();
      fail("device.read", "the GPU", error.message, "load the model again");
    }
    await done;
    note?.();
    return take?.(mapped ?? []);
  } finally {
    if (mapped) buffer.unmap();
  }
}

/** The first bytes of a range, after what was recorded. */
export function fetchRange(run, from, size) {
  copy(run, from, from.offset, run.readback, 0, size);
  return submit(run, size, (mapped) => mapped.slice(0, size));
}

/** The int32 at the start of a step's condition: whether it holds. */
async function condition(run, step) {
  const bytes = await fetchRange(run, run.ranges[step.condition], 4);
  run.encoder = run.device.createCommandEncoder();
  return new Int32Array(bytes)[0];
}

/** States get their initial values. */
export async function restore(core) {
  const run = begin(core),
    {parsed: m, ranges, stored} = core;
  for (const {buffer, initial} of m.states) {
    const to = ranges[buffer],
      from = stored[initial];
    run.encoder.clearBuffer(to.buffer, to.offset, to.size);
    if (from) copy(run, from, from.offset, to, to.offset, m.weights[initial].bytes);
  }
  await settle(run);
}
