// A loaded model, as its user sees it: what it has, and its calls, one after the other.

import {fail} from "./errors.js";
import {kindOf, isFloat, product, bytesOf, toStorage, fromStorage} from "./types.js";
import {MANIFEST_BYTES, parseManifest} from "./manifest.js";
import {namesOf, checkManifest, evaluateAll} from "./check.js";
import {folderOf, fetchBytes, fetchFile} from "./fetch.js";
import {neededLimits, checkLimits, openDevice, lossOf} from "./device.js";
import {generate} from "./golden.js";
import {find, chosen, entryOf, plan} from "./given.js";
import {guard, begin, replay, submit, fetchRange, restore} from "./replay.js";
import {start} from "./start.js";

const diagnostics = () =>
  import("./diagnostics.js").catch(({message}) =>
    fail("load.network", "diagnostics.js", message, "check the address, and serve the whole folder"),
  );

/** Everything a run needs is made in `start`, so that a run only writes, dispatches and reads. */
export class Model {
  #base;
  #owned;
  #disposed = false;
  /** Work in order: each run starts when the one before has its outputs. */
  #tail = Promise.resolve();
  #waiting = 0;
  /**
   * What the modules share of a model: its manifest, device and stats; `check`, which throws when it can run no more;
   * `owns`, the buffers to destroy; the sizes last evaluated (`sizes`, for the symbols `key`) and those last written to
   * the GPU (`written`); what `allocate` and `compile` make.
   * @type {any}
   */
  #core;

  /** @param {string | URL} url @param {import("../tinyedge.js").LoadOptions} [options] */
  static async load(url, options) {
    const names = ["onProgress", "signal", "device", "limits"],
      {onProgress, signal, device: given, limits} = chosen(options, names, "load.option"),
      base = folderOf(url),
      // After a failure downloads must stop too; after success nothing stays with the caller's signal.
      stop = new AbortController();
    if (given && !given.queue)
      fail("load.option", 'option "device"', `it is ${kindOf(given)}`, "give a GPUDevice");
    signal?.throwIfAborted();
    signal?.addEventListener("abort", () => stop.abort(signal.reason), {signal: stop.signal});
    try {
      const bytes = await fetchBytes(
        base,
        "manifest.json",
        MANIFEST_BYTES,
        stop.signal,
        "bundle.manifest",
      );
      const manifest = parseManifest(bytes),
        sizes = checkManifest(manifest),
        needed = neededLimits(manifest),
        device = given ?? (await openDevice({...needed, ...limits}));
      checkLimits(needed, device.limits);
      const model = new Model(manifest, sizes, base, device, !given);
      model.stats.bytesFetched = bytes.length;
      await start(model.#core, base, stop.signal, onProgress).catch((error) => {
        model.dispose();
        throw error;
      });
      return model;
    } finally {
      stop.abort();
    }
  }

  constructor(manifest, sizes, base, device, owned) {
    const m = (this.manifest = manifest),
      names = (key, indices) => indices.map((i) => m[key][i].name);
    const shown = ({name, dtype, storage, shape}) => ({
      name,
      dtype,
      storage,
      shape: shape.map((size) => (Array.isArray(size) ? size.join(" ").replaceAll("$", "") : size)),
    });
    this.#base = base;
    this.device = device;
    this.#owned = owned;
    this.inputs = m.inputs.map(shown);
    this.outputs = m.outputs.map(shown);
    this.states = m.states.map(shown);
    this.symbols = m.symbols;
    this.entries = m.entries.map((e) => ({
      name: e.name,
      inputs: names("inputs", e.inputs),
      outputs: names("outputs", e.outputs),
    }));
    this.stats = {
      bytesFetched: 0,
      bufferBytes: 0,
      pipelines: 0,
      bindGroups: 0,
      runs: 0,
      launches: 0,
      passes: 0,
      submits: 0,
      uniformWrites: 0,
    };
    const loss = lossOf(device);
    this.#core = {
      parsed: m,
      device,
      stats: this.stats,
      owns: [],
      sizes,
      check: () => {
        if (this.#disposed)
          fail("run.disposed", "the model", "it was disposed", "load the model again");
        if (loss.cause) throw loss.cause;
      },
    };
  }

  /** Do `work` after all the work before, at once when there is none; if the model can run then. */
  #enqueue(work) {
    const go = async () => {
      this.#core.check();
      return work();
    };
    const result = this.#waiting++ ? this.#tail.then(go) : go();
    const done = () => void this.#waiting--;
    this.#tail = result.then(done, done);
    return result;
  }

  /** @type {import("../tinyedge.js").Model["run"]} */
  async run(inputs, options) {
    const {entry, symbols, keep = []} = chosen(options, ["entry", "symbols", "keep"]),
      planned = plan(this.#core, inputs, entry, symbols),
      kept = keep === true ? planned.outputs : keep;
    if (!Array.isArray(kept))
      fail("run.option", 'option "keep"', `it is ${keep}`, "give an array of names");
    for (const name of kept) find(planned.outputs, "run.option", "output", name);
    // The caller may change its arrays as soon as run returns.
    if (this.#waiting) for (const write of planned.writes) write.bytes = write.bytes?.slice();
    return this.#enqueue(() => replay(this.#core, planned, kept));
  }

  /** @type {import("../tinyedge.js").Model["getState"]} */
  async getState(name) {
    const {p, shape, at} = this.#state(name);
    return this.#enqueue(async () => {
      const bytes = await fetchRange(begin(this.#core), at, bytesOf(shape, p));
      return {name, dtype: p.dtype, shape, data: fromStorage(bytes, 0, product(shape), p)};
    });
  }

  /** @type {import("../tinyedge.js").Model["setState"]} */
  async setState(name, data) {
    const {p, shape, at} = this.#state(name);
    const bytes = toStorage(data, p, shape, "state").slice();
    return this.#enqueue(() =>
      guard(this.#core, () => this.device.queue.writeBuffer(at.buffer, at.offset, bytes), []),
    );
  }

  /** A state and where it lies; its sizes are those of the last run, before any the maxima. */
  #state(name) {
    const {states} = this.manifest,
      i = find(namesOf(states), "run.state", "state", name),
      p = states[i],
      {sizes, ranges} = this.#core;
    return {p, shape: sizes.states[i], at: ranges[p.buffer]};
  }

  /** States back to their initial values, after the runs already asked for. */
  async reset() {
    return this.#enqueue(() => restore(this.#core));
  }

  /** @type {import("../tinyedge.js").Model["example"]} */
  example(options) {
    const {entry: name, seed = 1, symbols = {}} = chosen(options, ["entry", "seed", "symbols"]),
      m = this.manifest,
      entry = entryOf(m, name),
      inputs = m.golden.find((golden) => golden.entry === entry)?.inputs ?? [],
      sizes = m.symbols.map((symbol) => symbols[symbol.name] ?? symbol.max);
    return this.#generated({entry, inputs, seed, symbols: sizes}, 0);
  }

  /** The inputs of a golden's step: generated in its ranges, else in those usual for their types. */
  #generated(golden, step) {
    const m = this.manifest,
      {inputs} = evaluateAll(m, golden.symbols, "run.shape");
    return Object.fromEntries(
      m.entries[golden.entry].inputs.map((i, n) => {
        const {name, dtype} = m.inputs[i],
          shape = inputs[i],
          range = golden.inputs[n];
        const data = generate(
          dtype,
          product(shape),
          golden.seed,
          step,
          n,
          range?.file < 0
            ? range
            : isFloat(dtype)
              ? {min: -1, max: 1}
              : {min: 0, max: dtype === "bool" ? 1 : 7},
        );
        return [name, {data, shape}];
      }),
    );
  }

  /** @type {import("../tinyedge.js").Model["verify"]} */
  async verify(options) {
    const {signal} = chosen(options, ["signal"]),
      {verify} = await diagnostics();
    return verify(
      this.manifest,
      (file) => fetchFile(this.#base, file, signal, (n) => void (this.stats.bytesFetched += n)),
      (work) =>
        this.#enqueue(() =>
          work({
            restore: () => restore(this.#core),
            example: (golden, step) => this.#generated(golden, step),
            run: (...given) => replay(this.#core, plan(this.#core, ...given), []),
          }),
        ),
    );
  }

  /** @type {import("../tinyedge.js").Model["profile"]} */
  async profile(inputs, options) {
    const {entry, symbols} = chosen(options, ["entry", "symbols"]),
      planned = plan(this.#core, inputs ?? this.example({entry, symbols}), entry, symbols);
    const {profile} = await diagnostics();
    return this.#enqueue(() =>
      profile(
        fail,
        this.device,
        this.manifest.kernels,
        (describe) => replay(this.#core, planned, planned.outputs, describe),
        (encoder, ...given) => submit({...this.#core, encoder}, ...given),
      ),
    );
  }

  dispose() {
    this.#disposed = true;
    for (const buffer of this.#core.owns) buffer.destroy();
    if (this.#owned) this.device.destroy();
  }
}
