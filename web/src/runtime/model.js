// A loaded model, as its user sees it: what it has, and its calls, one after the other.

import {TinyedgeError, fail} from "./errors.js";
import {kindOf, product, arrayOf, isBig, isFloat, bytesOf, toStorage, fromStorage} from "./types.js";
import {parseManifest} from "./manifest.js";
import {namesOf, evaluateAll, checkManifest} from "./check.js";
import {TRIES, folderOf, askEarly, fetchFile, pause} from "./fetch.js";
import {findAdapter, isSoftware, lossOf, whole} from "./device.js";
import {KINDS, find, checkAddresses, chosen, entryOf, plan, symbolsOf} from "./given.js";
import {guard, begin, replay, submit, settle, fetchRange, restore} from "./replay.js";
import {takeTurns, unlessAborted} from "./turns.js";

/** What came of the files beside this one, by their names. @type {Record<string, Promise<any>>} */
const found = {};

/**
 * A file beside this one, which `ask` imports, and imports again as other files are fetched again. It gets what it imports
 * of the modules here by its `use`: see build.js.
 * @returns {Promise<any>}
 */
export function beside(ask, name, signal) {
  const file = unlessAborted(signal, (found[name] ??= imported(ask, name)));
  // For those who await it later.
  file.catch(() => {});
  return file;
}

async function imported(ask, name) {
  for (let tries = 1; ; tries++)
    try {
      return (await ask()).use(OWN);
    } catch ({message}) {
      // What browsers and bundlers say of the network.
      const [said, address] = /(?:module: |Import ')([^\s']+)|script failed|chunk/.exec(message) ?? [];
      if (!said || tries === TRIES) {
        delete found[name];
        fail("load.network", name, message.replace(/#\d+/, ""), "check the address, and serve the whole folder");
      }
      await pause(tries);
      // A browser may keep what came of an address. One that differs behind the # is another, which servers do not see. This
      // file's own query may be what lets it through.
      if (address && tries < 2)
        ask = () => import(/* webpackIgnore: true */ address + (/\?[^#]*/.exec(import.meta.url) ?? "") + "#" + Date.now());
    }
}

/** What is asked for now and then: a file of its own, fetched when it first is. */
export const extras = () => beside(() => import("./extras.js"), "extras.js");

/** The files that a model needs to run. @param {any} manifest */
export const filesToRun = ({files}, skipped = /^golden/) => files.filter(({name}) => !skipped.test(name));

/** What a state holds, after what was recorded. */
export async function stateOf(core, turn, p, shape) {
  const run = begin(core, turn),
    bytes = await fetchRange(run, run.ranges[p.buffer], bytesOf(shape, p));
  return fromStorage(bytes, 0, product(shape), p);
}

/** What those files use of these modules, in an order that leaves few gaps in what each takes. */
const OWN = [
  TRIES,
  pause,
  unlessAborted,
  whole,
  fail,
  fetchFile,
  filesToRun,
  guard,
  product,
  restore,
  chosen,
  kindOf,
  beside,
  checkManifest,
  parseManifest,
  checkAddresses,
  arrayOf,
  entryOf,
  evaluateAll,
  find,
  findAdapter,
  folderOf,
  isBig,
  isFloat,
  lossOf,
  plan,
  replay,
  stateOf,
  submit,
  symbolsOf,
  toStorage,
];

const EXTRAS = ["example", "verify", "compare", "profile", "saveStates", "loadStates", "inputBuffer", "toCanvas"];

/** Everything a run needs is made in `start`, so that a run only writes, dispatches and reads. */
export class Model extends EventTarget {
  #disposed = false;
  /** Does work in its turn. */
  #inTurn;
  /**
   * What the modules share of a model: its manifest, device and stats; `check`, which throws when it can run no more;
   * `owns`, the buffers to destroy; the sizes of the last run (`sizes`, for the symbols `key`) and the symbols last written to
   * the GPU (`written`); what `allocate` and `compile` make.
   * @type {any}
   */
  #core;

  /** @param {string | URL} url @param {import("../tinyedge.js").LoadOptions} [options] */
  static async load(url, options) {
    const {
        onProgress,
        signal,
        device: given,
        limits,
        fetch,
        files,
        integrity,
        recover,
        backend,
        module,
        powerPreference,
      } = chosen(options, Object.keys(KINDS).slice(4), "load.option"),
      base = folderOf(url, files),
      // After a failure downloads must stop too; after success nothing stays with the caller's signal.
      stop = new AbortController(),
      loading = beside(() => import("./loading.js"), "loading.js", stop.signal),
      source = {base, fetch: fetch ?? globalThis.fetch, files, loading, powerPreference, signal: stop.signal};
    signal?.throwIfAborted();
    // While the manifest comes.
    const here = backend ?? /** @type {any} */ (given)?.backend,
      adapter = given || here === "wasm" ? undefined : findAdapter(powerPreference);
    adapter?.catch(() => {});
    signal?.addEventListener("abort", () => stop.abort(signal.reason), {signal: stop.signal});
    try {
      const bytes = await fetchFile(
        source,
        {name: "manifest.json", sha256: integrity},
        () => {},
        "bundle.manifest",
      );
      let manifest = parseManifest(bytes),
        sizes = checkManifest(manifest);
      checkAddresses(files, manifest);
      // Undefined where the page may not compile WebAssembly, and has an adapter.
      let opened =
          (here === "wasm" ||
            (adapter && !backend && manifest.fallback && (await adapter.then(isSoftware, () => true)))) &&
          (await beside(() => import("./wasm.js"), "wasm.js", stop.signal).then(({open}) =>
            open(manifest.fallback, source, module, adapter),
          ));
      if (opened) {
        ({manifest, sizes} = opened);
      } else {
        // While the device opens: as many as are fetched at a time.
        askEarly(source, filesToRun(manifest).slice(0, 3));
        opened = await (await loading).deviceFor(manifest, given, limits, adapter);
      }
      const model = new Model(manifest, sizes, source, opened);
      if (recover && manifest.states[0])
        (await extras()).keepStates(model.#core);
      model.stats.bytesFetched = bytes.length;
      await Promise.all([
        loading.then(({start}) => start(model.#core, onProgress)),
        manifest.options?.images &&
          beside(() => import("./image.js"), "image.js", stop.signal).then(({takePictures}) => takePictures(model.#core)),
      ]).catch((error) => {
        model.dispose();
        throw error;
      });
      return model;
    } finally {
      stop.abort();
    }
  }

  constructor(manifest, sizes, source, {device, limits}) {
    super();
    const m = (this.manifest = manifest);
    const shown = ({name, dtype, storage, shape}) => ({
      name,
      dtype,
      storage,
      shape: shape.map((size) => (Array.isArray(size) ? size.join(" ").replaceAll("$", "") : size)),
    });
    for (const key of ["inputs", "outputs", "states"]) this[key] = m[key].map(shown);
    this.backend = device.backend ?? "webgpu";
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
    const model = this,
      /** @type {any} */
      core = (this.#core = {
      parsed: m,
      device,
      stats: this.stats,
      owns: [],
      source,
      limits,
      loss: lossOf(device),
      say: (type, more) => this.dispatchEvent(Object.assign(new Event(type), more)),
      tell: () => core.say("lost", {error: core.loss.cause}),
      heal: async (readback) => (await extras()).reopen(core, readback),
      readback: {},
      sizes,
      check() {
        if (model.#disposed)
          fail("run.disposed", "the model", "it was disposed", "load the model again");
        // Of a run that began before another device came, its own one.
        if (this.loss.cause) throw this.loss.cause;
      },
    });
    core.loss.told.add(core.tell);
    this.#inTurn = takeTurns(core);
  }

  get device() {
    return this.#core.device;
  }

  /** How many compute a run on the processor. */
  get threads() {
    return this.#core.device.threads;
  }

  /** Why the device was lost, until there is another one. */
  get lost() {
    return this.#core.loss.cause;
  }

  /** @type {import("../tinyedge.js").Model["run"]} */
  async run(inputs, options) {
    const names = ["entry", "symbols", "keep", "signal", "into", "latest"],
      {entry, symbols, keep = [], signal, into, latest} = chosen(options, names);
    let planned;
    // Of a lost device there may be another one.
    if (this.#disposed) this.#core.check();
    try {
      planned = plan(this.#core, inputs, entry, symbols);
    } catch (error) {
      // What JavaScript has against a caller's values, such as symbols and numbers of several kinds.
      throw error.id ? error : new TinyedgeError("run.input", "what run got", error.message, "give what m.inputs says");
    }
    const kept = (keep === true ? planned.outputs : keep)?.concat?.(Object.keys(into ?? {}));
    if (!Array.isArray(kept))
      fail("run.option", 'option "keep"', `it is ${kindOf(keep)}`, "give an array of names");
    for (const name of kept) find(planned.outputs, "run.option", "output", name);
    signal?.throwIfAborted();
    this.#core.sizes = planned.sizes;
    const deliver =
      into &&
      (async (run, outputs) =>
        (await extras()).deliver(run, outputs, into));
    const work = (turn) => {
      signal?.throwIfAborted();
      return replay(this.#core, planned, kept, {...turn, deliver});
    };
    const results = this.#inTurn(work, planned.writes, latest);
    return unlessAborted(signal, results);
  }

  /** @type {import("../tinyedge.js").Model["getState"]} */
  async getState(name) {
    const {p, shape} = this.#state(name);
    return this.#inTurn(async (turn) => ({
      name,
      dtype: p.dtype,
      shape,
      data: await stateOf(this.#core, turn, p, shape),
    }));
  }

  /** @type {import("../tinyedge.js").Model["setState"]} */
  async setState(name, data) {
    const {p, shape} = this.#state(name);
    const bytes = toStorage(data, p, shape, "state").slice();
    return this.#inTurn(async (turn) => {
      const run = begin(this.#core, turn),
        {buffer, offset} = run.ranges[p.buffer];
      await guard(run, () => run.device.queue.writeBuffer(buffer, offset, bytes), []);
      await settle(run);
    });
  }

  /** A state; its sizes are those of the last run, before any the maxima. */
  #state(name) {
    const {states} = this.manifest,
      i = find(namesOf(states), "run.state", "state", name),
      p = states[i];
    return {p, shape: this.#core.sizes.states[i]};
  }

  /** States back to their initial values, after the runs already asked for. */
  async reset() {
    return this.#inTurn(() => restore(this.#core));
  }

  // Calls that are asked for now and then get, beside what they are given, the model.
  static {
    for (const name of EXTRAS)
      /** @type {any} */ (this.prototype)[name] = async function (...given) {
        return (await extras())[name]({model: this, core: this.#core, inTurn: this.#inTurn}, ...given);
      };
  }

  dispose() {
    const {owns, limits, device, loss, tell} = this.#core;
    this.#disposed = true;
    loss.told.delete(tell);
    for (const buffer of owns) buffer.destroy();
    if (limits) device.destroy();
    // No other device then.
    this.#core.limits = null;
  }
}
