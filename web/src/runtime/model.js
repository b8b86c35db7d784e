// A loaded model, as its user sees it: what it has, and its calls, one after the other.

import {fail} from "./errors.js";
import {kindOf, product, bytesOf, toStorage, fromStorage} from "./types.js";
import {MANIFEST_BYTES, parseManifest} from "./manifest.js";
import {namesOf, checkManifest} from "./check.js";
import {folderOf, fetchBytes, fetchFile} from "./fetch.js";
import {neededLimits, checkLimits, openDevice, lossOf} from "./device.js";
import {generated} from "./golden.js";
import {find, chosen, entryOf, plan} from "./given.js";
import {guard, begin, replay, submit, fetchRange, restore} from "./replay.js";
import {start} from "./start.js";
import {takeTurns} from "./turns.js";

/** Everything a run needs is made in `start`, so that a run only writes, dispatches and reads. */
export class Model {
  #base;
  #owned;
  #disposed = false;
  /** Does work in its turn. */
  #enqueue;
  /**
   * What the modules share of a model: its manifest, device and stats; `check`, which throws when it can run no more;
   * `owns`, the buffers to destroy; the sizes last evaluated (`sizes`, for the symbols `key`) and those last written to
   * the GPU (`written`); what `allocate` and `compile` make.
   * @type {any}
   */
  #core;

  /** @param {string | URL} url @param {import("../tinyedge.js").LoadOptions} [options] */
  static async load(url, options) {
    const {onProgress, signal, device: given, limits} = chosen(
        options,
        ["onProgress", "signal", "device", "limits"],
        "load.option",
      ),
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
    const m = (this.manifest = manifest);
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
    this.entries = m.entries.map(({name, inputs, outputs}) => ({
      name,
      inputs: inputs.map((i) => m.inputs[i].name),
      outputs: outputs.map((i) => m.outputs[i].name),
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
      readback: {},
      sizes,
      check: () => {
        if (this.#disposed)
          fail("run.disposed", "the model", "it was disposed", "load the model again");
        if (loss.cause) throw loss.cause;
      },
    };
    this.#enqueue = takeTurns(this.#core);
  }

  /** @type {import("../tinyedge.js").Model["run"]} */
  async run(inputs, options) {
    const {entry, symbols, keep = []} = chosen(options, ["entry", "symbols", "keep"]),
      planned = plan(this.#core, inputs, entry, symbols),
      kept = keep === true ? planned.outputs : keep;
    if (!Array.isArray(kept))
      fail("run.option", 'option "keep"', `it is ${keep}`, "give an array of names");
    for (const name of kept) find(planned.outputs, "run.option", "output", name);
    return this.#enqueue((turn) => replay(this.#core, planned, kept, turn), planned.writes);
  }

  /** @type {import("../tinyedge.js").Model["getState"]} */
  async getState(name) {
    const {p, shape, at} = this.#state(name);
    return this.#enqueue(async (turn) => {
      const bytes = await fetchRange(begin(this.#core, turn), at, bytesOf(shape, p));
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
    return generated(m, {entry, inputs, seed, symbols: sizes}, 0);
  }

  /** @type {import("../tinyedge.js").Model["verify"]} */
  async verify(options) {
    return this.#ask("verify", options);
  }

  /** @type {import("../tinyedge.js").Model["profile"]} */
  async profile(inputs, options) {
    return this.#ask("profile", options, inputs ?? this.example(options));
  }

  /** What checks and measures is a file of its own, fetched when it is first asked for. It gets what it uses of these. */
  async #ask(name, ...given) {
    const asked = await import("./diagnostics.js").catch(({message}) =>
      fail("load.network", "diagnostics.js", message, "check the address, and serve the whole folder"),
    );
    return asked[name](
      {
        core: this.#core,
        base: this.#base,
        enqueue: this.#enqueue,
        fail,
        chosen,
        fetchFile,
        generated,
        plan,
        replay,
        restore,
        submit,
      },
      ...given,
    );
  }

  dispose() {
    this.#disposed = true;
    for (const buffer of this.#core.owns) buffer.destroy();
    if (this.#owned) this.device.destroy();
  }
}
