// What tries, checks and measures a model.

import {checkManifest, evaluateAll} from "./check.js";
import {fail} from "./errors.js";
import {fetchFile, folderOf} from "./fetch.js";
import {checkAddresses, chosen, entryOf, plan, symbolsOf} from "./given.js";
import {parseManifest} from "./manifest.js";
import {beside, filesToRun, stateOf} from "./model.js";
import {replay, restore, submit} from "./replay.js";
import {arrayOf, isBig, isFloat, product} from "./types.js";

/** The 32-bit finalizer of MurmurHash3. */
function mix(x) {
  x = (x + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** Fills an input of a golden case: bundle.md has the formulas. */
function generate(data, dtype, start, {min, max}) {
  const bits = dtype === "float16" ? 11 : 24,
    span = max - min;
  for (let e = 0; e < data.length; e++) {
    const h = mix(start + e);
    const value = min + (isFloat(dtype) ? ((h >>> (32 - bits)) * span) / 2 ** bits : h % (span + 1));
    data[e] = isBig(dtype) ? BigInt(value) : value;
  }
  return data;
}

/** The inputs of a golden's step: generated in its ranges, else in those usual for their types. */
function generated({parsed: m}, golden, step) {
  const {inputs} = evaluateAll(m, golden.symbols, "run.shape"),
    first = mix(mix(golden.seed) + step);
  return Object.fromEntries(
    m.entries[golden.entry].inputs.map((i, n) => {
      const {name, dtype} = m.inputs[i],
        shape = inputs[i],
        range = golden.inputs[n],
        usual = isFloat(dtype) ? {min: -1, max: 1} : {min: 0, max: dtype === "bool" ? 1 : 7};
      const data = generate(
        new (arrayOf(dtype))(product(shape)),
        dtype,
        mix(first + n),
        range?.file < 0 ? range : usual,
      );
      return [name, {data, shape}];
    }),
  );
}

/**
 * Inputs to try a model with, the same everywhere for the same seed.
 * @param {Record<string, any>} model its `core`, and `inTurn`, which does work in its turn
 */
export async function example({core}, options) {
  const {entry: name, seed = 1, symbols: named} = chosen(options, ["entry", "seed", "symbols"]),
    m = core.parsed,
    entry = entryOf(m, name),
    inputs = m.golden.find((golden) => golden.entry === entry)?.inputs ?? [],
    symbols = symbolsOf(m.symbols, [], [], named);
  return generated(core, {entry, inputs, seed, symbols}, 0);
}

/** Whether outputs agree with every stride-th expected value. */
function agreement(actual, expected, stride, tolerance, dtype) {
  if (dtype === "uint16:bfloat16") {
    // The upper half of a float32.
    [actual, expected] = [actual, expected].map(
      (codes) => new Float32Array(Uint32Array.from(codes, (code) => code << 16).buffer),
    );
  }
  const exact = !/Float/.test(expected.constructor.name);
  let worst = 0,
    scale = 0,
    wrong = 0;
  for (let i = 0; i < expected.length && i * stride < actual.length; i++) {
    const a = actual[i * stride],
      b = expected[i];
    if (exact || !Number.isFinite(b)) wrong += +!Object.is(a, b);
    else {
      worst = Math.max(worst, Math.abs(a - b));
      scale = Math.max(scale, Math.abs(b));
    }
  }
  const passed = !wrong && worst <= tolerance * scale;
  return {passed, wrong, error: worst / (scale || 1)};
}

/**
 * Run a bundle's goldens and compare, between the runs of others.
 * @param {Record<string, any>} model its `core`, and `inTurn`, which does work in its turn
 */
export async function verify({core, inTurn}, options, nodes = false) {
  const {signal} = chosen(options, ["signal"]),
    m = core.parsed,
    debug = [m.options?.nodes].flat(),
    source = {...core.source, signal},
    goldens = m.golden.filter(({entry}) => debug.includes(m.entries[entry].name) === nodes),
    files = [];
  core.check();
  if (!goldens[0])
    fail(
      "verify.nothing",
      "the model",
      `it has no goldens${nodes ? " of nodes" : ""}`,
      nodes ? "export it with --debug-goldens" : "tinyedge verify --against",
    );
  for (const [i, file] of m.files.entries())
    if (/^golden/.test(file.name)) files[i] = await fetchFile(source, file, (count) => (core.stats.bytesFetched += count));
  /** The values of a golden that lie in a file, in an array like another. */
  const stored = ({file, offset, bytes}, {constructor}) =>
    new constructor(files[file].buffer.slice(offset, offset + bytes));
  return inTurn(async (turn) => {
    const {readback} = turn,
      cases = [];
    for (const golden of goldens) {
      const {seed, made} = golden,
        tolerance = golden.tolerance / 1e6,
        entry = m.entries[golden.entry];
      const symbols = Object.fromEntries(m.symbols.map(({name}, i) => [name, golden.symbols[i]]));
      let results = {},
        /** @type {any} */ planned;
      await restore(core);
      for (let step = 0; step < golden.steps; step++) {
        const inputs = generated(core, golden, step);
        golden.inputs.forEach((v, n) => {
          const input = inputs[m.inputs[entry.inputs[n]].name];
          if (v.file >= 0) input.data = stored(v, input.data);
        });
        planned = plan(core, inputs, entry.name, symbols);
        results = await replay(core, planned, [], {readback});
      }
      const compared = (name, data, v, dtype) => ({
        name,
        ...agreement(data, stored(v, data), v.stride, tolerance, dtype),
      });
      const outputs = entry.outputs.map((i, n) => {
        const {name, dtype} = m.outputs[i];
        return compared(name, results[name].data, golden.outputs[n], dtype);
      });
      // Behind the outputs those of states, of which some may not be told.
      for (const [i, v] of golden.outputs.slice(outputs.length).entries()) {
        if (!v.bytes) continue;
        const {name, dtype} = m.states[i],
          data = await stateOf(core, turn, m.states[i], planned.sizes.states[i]);
        outputs.push(compared(`state ${name}`, data, v, dtype));
      }
      const passed = outputs.every((output) => output.passed);
      cases.push({entry: entry.name, seed, made, tolerance, passed, outputs});
    }
    await restore(core);
    return {passed: cases.every(({passed}) => passed), cases};
  });
}

/**
 * The same of the nodes' values, where the bundle gives them; node: the first that differs.
 * @param {Record<string, any>} model its `core`, and `inTurn`, which does work in its turn
 */
export async function compare(model, options) {
  const report = await verify(model, options, true),
    outputs = report.cases.flatMap((one) => one.outputs);
  return {...report, node: outputs.find(({passed}) => !passed)?.name};
}

/**
 * The GPU's time for each launch of one run, as far as 2048 launches.
 * @param {Record<string, any>} model its `core`, and `inTurn`, which does work in its turn
 */
export async function profile(model, inputs, options) {
  const {core, inTurn} = model,
    {entry, symbols} = chosen(options, ["entry", "symbols"]),
    planned = plan(core, inputs ?? (await example(model, {entry, symbols})), entry, symbols);
  if (!core.device.features.has("timestamp-query"))
    fail("device.timestamps", "the device", "it has no timestamps", "measure whole runs");
  core.sizes = planned.sizes;
  const work = async ({readback}) => {
    /** @type {GPUDevice} */
    const device = core.device,
      count = 4096,
      size = 8 * count,
      create = (usage) => device.createBuffer({size, usage});
    const querySet = device.createQuerySet({type: "timestamp", count}),
      resolved = create(516 /* QUERY_RESOLVE, COPY_SRC */),
      mapped = create(9 /* MAP_READ, COPY_DST */),
      launches = [];
    const describe = ({kernel, nodes, flops}) => {
      const n = 2 * launches.length;
      if (n < count) {
        launches.push({kernel: core.parsed.kernels[kernel].entry, nodes, flops});
        return {
          timestampWrites: {
            querySet,
            beginningOfPassWriteIndex: n,
            endOfPassWriteIndex: n + 1,
          },
        };
      }
    };
    try {
      await replay(core, planned, planned.outputs, {describe, readback});
      const encoder = device.createCommandEncoder();
      encoder.resolveQuerySet(querySet, 0, 2 * launches.length, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, mapped, 0, size);
      const run = {...core, encoder, readback: {buffer: mapped}},
        times = await submit(run, size, (range) => new BigUint64Array(range.slice(0, size)));
      return launches.map((launch, i) => ({
        ...launch,
        milliseconds: Number(times[2 * i + 1] - times[2 * i]) / 1e6,
      }));
    } finally {
      for (const made of [querySet, resolved, mapped]) made.destroy();
    }
  };
  return inTurn(work, planned.writes);
}

/**
 * What a bundle asks of a device, and how large it is: from its manifest alone.
 * @param {any} url @param {any} options
 */
export async function requirements(url, options) {
  const {fetch = globalThis.fetch, files, integrity, signal} = chosen(
      options,
      ["fetch", "files", "integrity", "signal"],
      "load.option",
    ),
    source = {base: folderOf(url, files), fetch, files, signal, loading: beside(() => import("./loading.js"), "loading.js", signal)},
    m = parseManifest(await fetchFile(source, {name: "manifest.json", sha256: integrity}, () => {}, "bundle.manifest"));
  checkManifest(m);
  checkAddresses(files, m);
  const sum = (list) => list.reduce((all, {bytes}) => all + bytes, 0);
  return {
    features: [],
    limits: (await source.loading).neededLimits(m),
    bytes: {fetched: sum(filesToRun(m)), weights: sum(m.weights), memory: m.peak_bytes},
  };
}
