// A loaded model: its memory, its pipelines, its runs.

import {fail} from "./errors.js";
import {arrayOf, isFloat, product, bytesOf, toStorage, fromStorage} from "./types.js";
import {MANIFEST_BYTES, parseManifest} from "./manifest.js";
import {stage, checkManifest, evaluateAll, checkSizes} from "./check.js";
import {fetchBytes, fetchFile} from "./fetch.js";
import {neededLimits, checkLimits, openDevice} from "./device.js";
import {cut, generate, compare} from "./golden.js";

const DOWNLOADS = 3;

/** The position of a name, by default of the first. */
function find(items, id, kind, name = items[0].name) {
  const names = items.map((item) => item.name),
    i = names.indexOf(name);
  if (i < 0) fail(id, `${kind} "${name}"`, `the model has no such ${kind}`, `it has ${names}`);
  return i;
}

/** The values of a golden that lie in a file. */
const stored = (files, {file, offset, bytes}, {dtype}) =>
  new (arrayOf(dtype))(files[file].buffer.slice(offset, offset + bytes));

/** Everything a run needs is made in `start`, so that a run only writes, dispatches and reads. */
export class Model {
  #base;
  #owned;
  #disposed = false;
  #lost = "";
  #gone;
  /** Work in order: each run starts when the one before has its outputs. */
  #tail = Promise.resolve();
  #waiting = 0;
  #owns = [];
  #weights;
  #ranges;
  #values;
  #uniform;
  #readback;
  #transfer;
  #layouts;
  #groups;
  #pipelines;
  #queries;
  /** The symbols' sizes last evaluated, and last written to the GPU. */
  #sizes;
  #key;
  #written;

  /** @param {string | URL} url @param {import("../tinyedge.js").LoadOptions} [options] */
  static async load(url, {onProgress, signal, device: given, limits = {}} = {}) {
    signal?.throwIfAborted();
    const base = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
    base.pathname = base.pathname.replace(/(\/manifest\.json)?\/*$/, "/");
    const bytes = await fetchBytes(
      base,
      "manifest.json",
      MANIFEST_BYTES,
      signal,
      "bundle.manifest",
    );
    const manifest = parseManifest(bytes);
    const sizes = checkManifest(manifest);

    const needed = neededLimits(manifest),
      device = given ?? (await openDevice({...needed, ...limits}));
    const model = new Model(manifest, sizes, base, device, !given);
    model.stats.bytesFetched = bytes.length;
    // After a failure the other downloads must stop too.
    const stop = new AbortController(),
      either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    const stopped = new Promise((_, reject) =>
      either.addEventListener("abort", () => reject(either.reason)),
    );
    stopped.catch(() => {});
    try {
      either.throwIfAborted();
      checkLimits(needed, device.limits);
      await Promise.race([model.#start(either, onProgress), model.#gone, stopped]);
      return model;
    } catch (error) {
      stop.abort();
      model.dispose();
      throw error;
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
    this.#sizes = sizes;
    this.#key = m.symbols.map(({max}) => max).join();
    this.#gone = device.lost.then(({message}) => {
      this.#lost = message || "no reason given";
      this.#check();
    });
    this.#gone.catch(() => {});
  }

  /** Throws when the model can run no more. */
  #check() {
    if (this.#disposed) fail("run.disposed", "the model", "it was disposed", "load the model again");
    if (this.#lost)
      fail("device.lost", "the device", `it was lost: ${this.#lost}`, "load the model again");
  }

  /** Weights arrive while the pipelines compile. */
  async #start(signal, onProgress) {
    const {manifest: m, stats, device} = this;
    const needed = m.files.filter(({name}) => !name.startsWith("golden"));
    const total = needed.reduce((sum, {bytes}) => sum + bytes, 0);
    let loaded = 0;
    const report = () =>
      onProgress?.({loaded, total, compiled: stats.pipelines, pipelines: m.kernels.length});
    report();
    device.pushErrorScope("validation");
    device.pushErrorScope("out-of-memory");
    this.#allocate();
    const faults = await Promise.all([device.popErrorScope(), device.popErrorScope()]);
    this.#check();
    for (const fault of faults)
      if (fault)
        fail(
          "device.memory",
          "the GPU",
          fault.message,
          "use a larger GPU, or export a smaller model",
        );
    const uploads = m.files.map(() => []);
    m.weights.forEach(({segments}, i) => {
      let {buffer, offset: at} = this.#weights[i];
      for (const segment of segments) {
        uploads[segment.file].push({...segment, buffer, at});
        at += segment.bytes;
      }
    });
    const sources = [],
      tasks = [];
    for (const file of needed) {
      const number = m.files.indexOf(file);
      const task = Promise.resolve(tasks.at(-DOWNLOADS))
        .then(() =>
          fetchFile(this.#base, file, signal, (count) => {
            loaded += count;
            stats.bytesFetched += count;
            report();
          }),
        )
        .then((bytes) => {
          this.#check();
          for (const piece of uploads[number])
            device.queue.writeBuffer(piece.buffer, piece.at, bytes, piece.offset, piece.bytes);
          if (file.name.startsWith("kernels")) sources[number] = bytes;
        });
      task.catch(() => {});
      tasks.push(task);
    }
    const arrived = async (prefix) => {
      // Awaited one by one: of several faults the first in the files' order is the one told.
      for (const [i, file] of needed.entries()) if (file.name.startsWith(prefix)) await tasks[i];
    };
    await Promise.all([arrived(""), arrived("kernels").then(() => this.#compile(sources, report))]);
    if (m.states.some(({initial}) => initial >= 0)) this.#restore();
  }

  #create(label, size, usage) {
    const buffer = this.device.createBuffer({label: `tinyedge ${label}`, size, usage});
    this.stats.bufferBytes += size;
    this.#owns.push(buffer);
    return buffer;
  }

  /** Buffers, layouts and bind groups: all but the pipelines. */
  #allocate() {
    const {manifest: m, device, stats} = this;
    const {COPY_SRC, COPY_DST, STORAGE, UNIFORM, MAP_READ} = GPUBufferUsage,
      memory = STORAGE | COPY_SRC | COPY_DST;
    const create = (label, size, usage) => (size ? this.#create(label, size, usage) : null);
    const arenas = m.arenas.map(({bytes}, i) => create(`arena ${i}`, bytes, memory));
    // Weights lie one after the other in few buffers.
    const pools = [];
    const places = m.weights.map(({bytes}) => {
      const last = pools.length - 1,
        offset = Math.ceil(pools[last] / 256) * 256;
      if (offset + bytes <= device.limits.maxBufferSize) pools[last] = offset + bytes;
      else return {pool: pools.push(bytes) - 1, offset: 0};
      return {pool: last, offset};
    });
    const filled = pools.map((bytes, i) => create(`weights ${i}`, bytes, memory));
    this.#weights = places.map(({pool, offset}) => ({buffer: filled[pool], offset}));
    this.#ranges = m.buffers.map(({arena, weight, offset, bytes: size}) =>
      arena < 0 ? {...this.#weights[weight], size} : {buffer: arenas[arena], offset, size},
    );
    this.#values = new Int32Array(Math.ceil(m.symbols.length / 4) * 4 || 4);
    const needsSymbols = m.kernels.some(({symbols}) => symbols);
    this.#uniform = create(
      "symbols",
      needsSymbols ? this.#values.byteLength : 0,
      UNIFORM | COPY_DST,
    );

    // Where an entry's outputs, a state or a condition are copied to be read.
    const bytesIn = ({buffer}) => m.buffers[buffer].bytes;
    const staged = Math.max(
      m.steps.some(({condition}) => condition >= 0) ? 4 : 0,
      ...m.states.map(bytesIn),
      ...m.entries.map(({outputs}) => outputs.reduce((sum, i) => sum + bytesIn(m.outputs[i]), 0)),
    );
    this.#readback = {buffer: create("readback", staged, MAP_READ | COPY_DST)};
    // A copy inside one GPU buffer is not allowed: it goes by way of another.
    const copied = m.steps
      .filter(({op}) => op === "copy")
      .map(({source}) => this.#ranges[source].size);
    this.#transfer = {buffer: create("transfer", Math.max(0, ...copied), COPY_SRC | COPY_DST)};

    const made = new Map(),
      once = (key, make) => made.get(key) ?? made.set(key, make()).get(key);
    const signature = ({bindings, symbols}) =>
      bindings.map(({access}) => access) + (symbols ? ",symbols" : "");
    this.#layouts = m.kernels.map((kernel) =>
      once(signature(kernel), () => {
        const types = kernel.bindings.map(({access}) =>
          access === "read" ? "read-only-storage" : "storage",
        );
        if (kernel.symbols) types.push("uniform");
        const group = device.createBindGroupLayout({
          entries: types.map((type, binding) => ({
            binding,
            visibility: GPUShaderStage.COMPUTE,
            buffer: {type},
          })),
        });
        return {group, pipeline: device.createPipelineLayout({bindGroupLayouts: [group]})};
      }),
    );
    this.#groups = m.steps.map(
      (step) =>
        step.op === "launch" &&
        once(`${signature(m.kernels[step.kernel])}:${step.buffers}`, () => {
          const resources = step.buffers.map((buffer) => this.#ranges[buffer]);
          if (m.kernels[step.kernel].symbols) resources.push({buffer: this.#uniform});
          stats.bindGroups++;
          return device.createBindGroup({
            layout: this.#layouts[step.kernel].group,
            entries: resources.map((resource, binding) => ({binding, resource})),
          });
        }),
    );
  }

  async #compile(sources, report) {
    const {manifest: m, device, stats} = this;
    const source = ({file, offset, bytes}) => {
      const part = sources[file].subarray(offset, offset + bytes);
      if (part.some((byte) => byte > 127))
        fail("bundle.file.text", m.files[file].name);
      return new TextDecoder().decode(part);
    };
    const prelude = source(m.prelude),
      codes = m.kernels.map((kernel) => prelude + source(kernel));
    // Faults of a module come back with its pipeline; the scope keeps them off the page's console.
    device.pushErrorScope("validation");
    const modules = codes.map((code, i) =>
      device.createShaderModule({label: `tinyedge ${m.kernels[i].entry}`, code}),
    );
    device.popErrorScope().catch(() => {});
    this.#pipelines = await Promise.all(
      m.kernels.map(async ({entry}, i) => {
        const module = modules[i],
          layout = this.#layouts[i].pipeline;
        try {
          const pipeline = await device.createComputePipelineAsync({
            label: `tinyedge ${entry}`,
            layout,
            compute: {module, entryPoint: entry},
          });
          stats.pipelines++;
          report();
          return pipeline;
        } catch (error) {
          this.#check();
          const fault = (await module.getCompilationInfo()).messages.find(
            ({type}) => type === "error",
          );
          fail(
            "device.kernel",
            `kernel ${entry}`,
            fault ? `line ${fault.lineNum}: ${fault.message}` : error.message,
            "report it",
          );
        }
      }),
    );
  }

  /** Do `work` after all the work before, at once when there is none; if the model can run then. */
  #enqueue(work) {
    const go = async () => {
      this.#check();
      return work();
    };
    const result = this.#waiting++ ? this.#tail.then(go) : go();
    const done = () => void this.#waiting--;
    this.#tail = result.then(done, done);
    return result;
  }

  /** @type {import("../tinyedge.js").Model["run"]} */
  async run(inputs, {entry, symbols, keep = []} = {}) {
    const plan = this.#plan(inputs, entry, symbols);
    // The caller may change its arrays as soon as run returns.
    if (this.#waiting) for (const write of plan.writes) write.bytes = write.bytes?.slice();
    return this.#enqueue(() => this.#replay(plan, keep));
  }

  /** Check what the caller gave; nothing reaches the device before all of it is right. */
  #plan(inputs, name, named = {}) {
    const m = this.manifest,
      entry = m.entries[find(m.entries, "run.entry", "entry", name)],
      ports = entry.inputs.map((i) => m.inputs[i]);
    for (const given of Object.keys(inputs)) find(ports, "run.input", "input", given);
    const given = ports.map(({name: key}) => {
      const value = Object.hasOwn(inputs, key) && inputs[key];
      if (!value)
        fail("run.input", `input "${key}"`, "it is missing", "give it too");
      if (value instanceof GPUBuffer) return {buffer: value};
      return Array.isArray(value) || ArrayBuffer.isView(value) ? {data: value} : value;
    });
    const symbols = this.#resolve(
        ports,
        given.map(({shape}) => shape && Array.from(shape)),
        named,
      ),
      key = symbols.join();
    if (this.#key !== key) {
      this.#sizes = evaluateAll(m, symbols, "run.shape");
      checkSizes(m, this.#sizes, stage("run.shape"));
      this.#key = key;
    }
    const writes = ports.map((p, n) => {
      const {data, buffer, offset = 0, shape} = given[n],
        whole = this.#sizes.inputs[entry.inputs[n]];
      const need = (good, because) =>
        good || fail("run.shape", `input "${p.name}"`, because, `it takes ${p.dtype} [${whole}]`);
      const size = bytesOf(whole, p);
      need(!shape || Array.from(shape).join() === whole.join(), `its shape is [${shape}]`);
      if (buffer) {
        need(
          offset % 4 === 0 && offset + size <= buffer.size,
          `the GPU buffer has no ${size} bytes there`,
        );
        // Writing the other inputs could overwrite it.
        need(!this.#owns.includes(buffer), "it is the model's own memory");
        return {to: this.#ranges[p.buffer], buffer, offset, size};
      }
      const bytes = toStorage(data, p, whole);
      return {to: this.#ranges[p.buffer], bytes, size};
    });
    return {entry, symbols, sizes: this.#sizes, writes};
  }

  /** The symbols' sizes: from the given shapes, else by name, else the maxima. @returns {number[]} */
  #resolve(ports, shapes, named) {
    const {symbols} = this,
      found = new Map();
    const need = stage("run.shape");
    const set = (name, size, subject) => {
      const {min, max, step} = symbols[find(symbols, "run.shape", "size", name)];
      need(
        size >= min && size <= max && (size - min) % step === 0,
        subject,
        `${name} cannot be ${size}`,
        `give ${min}..${max}, step ${step}`,
      );
      need(
        (found.get(name) ?? size) === size,
        subject,
        `${name} is both ${size} and ${found.get(name)}`,
        "make them equal",
      );
      found.set(name, size);
    };
    for (const name of Object.keys(named)) set(name, named[name], `size "${name}"`);
    ports.forEach(({name: input, shape: sizes}, i) => {
      const shape = shapes[i],
        subject = `input "${input}"`;
      need(
        !shape || shape.length === sizes.length,
        subject,
        `its shape is [${shape}]`,
        `give ${sizes.length} axes`,
      );
      sizes.forEach((size, axis) => {
        if (!Array.isArray(size) || size.length > 1) return;
        const name = size[0].slice(1),
          {min, max} = symbols[find(symbols, "run.shape", "size", name)];
        if (shape) set(name, shape[axis], subject);
        else
          need(
            found.has(name) || min === max,
            subject,
            `its size ${name} is not known`,
            "give {data, shape}",
          );
      });
    });
    return symbols.map(({name, max}) => found.get(name) ?? max);
  }

  /** One run: write the inputs, one pass (more only around copies), one submit, read the outputs. */
  async #replay({entry, symbols, sizes, writes}, keep, queries) {
    const {manifest: m, device, stats} = this,
      run = {sizes, queries, encoder: /** @type {any} */ (null), pass: /** @type {any} */ (null)};
    const key = symbols.join();
    if (this.#uniform && this.#written !== key) {
      this.#values.set(symbols);
      device.queue.writeBuffer(this.#uniform, 0, this.#values);
      this.#written = key;
      stats.uniformWrites++;
    }
    run.encoder = device.createCommandEncoder();
    for (const {to, bytes, buffer, offset, size} of writes) {
      if (size && bytes) device.queue.writeBuffer(to.buffer, to.offset, bytes);
      else if (size) run.encoder.copyBufferToBuffer(buffer, offset, to.buffer, to.offset, size);
    }
    await this.#walk(run, entry.steps[0], entry.steps[0] + entry.steps[1]);
    let end = 0;
    const outputs = entry.outputs.map((i) => {
      const p = m.outputs[i],
        shape = sizes.outputs[i],
        from = this.#ranges[p.buffer],
        offset = end,
        size = bytesOf(shape, p),
        kept = keep === true || keep.includes(p.name);
      if (!kept && size) {
        this.#copy(run, from, from.offset, this.#readback, offset, size);
        end += size;
      }
      return {i, p, shape, offset, kept: kept && {...from, size}};
    });
    this.#submit(run);
    stats.runs++;
    const bytes = end ? await this.#read(end) : new ArrayBuffer(0),
      results = [], // pairs: a name may be __proto__
      arrays = [];
    for (const {i, p, shape, offset, kept} of outputs)
      if (!kept) arrays[i] = fromStorage(bytes, offset, product(shape), p);
    for (const {
      i,
      p: {name, dtype, storage, axis, count, slices},
      shape: whole,
      kept,
    } of outputs) {
      const shape = [...whole];
      if (kept) results.push([name, {name, dtype, storage, shape, gpu: kept}]);
      else {
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
        results.push([name, result]);
      }
    }
    return Object.fromEntries(results);
  }

  /** Record steps [i, end). Only a branch, which must read its condition, waits. */
  async #walk(run, i, end) {
    const {manifest: m, stats} = this;
    while (i < end) {
      const step = m.steps[i],
        values = run.sizes.steps[i];
      if (step.op === "launch") {
        if (values.every((count) => count > 0)) {
          if (run.queries || !run.pass) this.#begin(run, step);
          run.pass.setPipeline(this.#pipelines[step.kernel]);
          run.pass.setBindGroup(0, this.#groups[i]);
          run.pass.dispatchWorkgroups(values[0], values[1], values[2]);
          stats.launches++;
        }
      } else if (step.op === "copy") {
        const to = this.#ranges[step.destination],
          [size] = values;
        let from = this.#ranges[step.source],
          at = from.offset + step.source_offset;
        if (size) {
          if (from.buffer === to.buffer)
            this.#copy(run, from, at, (from = this.#transfer), (at = 0), size);
          this.#copy(run, from, at, to, to.offset + step.destination_offset, size);
        }
      } else if (step.op === "if") {
        const second = i + 1 + step.then,
          after = second + step.otherwise,
          holds = await this.#condition(run, step);
        await this.#walk(run, holds ? i + 1 : second, holds ? second : after);
        i = after - 1;
      } else {
        for (let turn = 0; turn < step.bound && (await this.#condition(run, step)); turn++) {
          await this.#walk(run, i + 1, i + 1 + step.body);
        }
        i += step.body;
      }
      i++;
    }
  }

  #begin(run, step) {
    run.pass?.end();
    const {set, launches} = run.queries ?? {},
      n = launches?.length * 2,
      options = {};
    if (n + 2 <= set?.count) {
      launches.push({
        kernel: this.manifest.kernels[step.kernel].entry,
        nodes: step.nodes,
        flops: step.flops,
      });
      options.timestampWrites = {
        querySet: set,
        beginningOfPassWriteIndex: n,
        endOfPassWriteIndex: n + 1,
      };
    }
    run.pass = run.encoder.beginComputePass(options);
    this.stats.passes++;
  }

  #copy(run, from, offset, to, at, size) {
    run.pass?.end();
    run.pass = null;
    run.encoder.copyBufferToBuffer(from.buffer, offset, to.buffer, at, size);
  }

  #submit(run) {
    run.pass?.end();
    run.pass = null;
    this.device.queue.submit([run.encoder.finish()]);
    this.stats.submits++;
  }

  /** The first bytes of the readback buffer. @returns {Promise<ArrayBuffer>} */
  async #read(size, {buffer} = this.#readback) {
    try {
      await buffer.mapAsync(GPUMapMode.READ, 0, size);
      const bytes = buffer.getMappedRange(0, size).slice(0);
      buffer.unmap();
      return bytes;
    } catch (error) {
      // The news of a lost device may come a moment after the failure that it causes.
      await Promise.race([this.#gone, new Promise((resolve) => setTimeout(resolve, 200))]);
      this.#check();
      fail("device.read", "the GPU", error.message, "load the model again");
    }
  }

  /** The first bytes of a range, after what was recorded. */
  #fetch(run, from, size) {
    this.#copy(run, from, from.offset, this.#readback, 0, size);
    this.#submit(run);
    return this.#read(size);
  }

  /** Whether the int32 at the start of a step's condition is not 0. */
  async #condition(run, step) {
    const bytes = await this.#fetch(run, this.#ranges[step.condition], 4);
    this.#check();
    run.encoder = this.device.createCommandEncoder();
    return new Int32Array(bytes)[0] !== 0;
  }

  /** @type {import("../tinyedge.js").Model["getState"]} */
  async getState(name) {
    const {p, shape, at} = this.#state(name);
    return this.#enqueue(async () => {
      const run = {encoder: this.device.createCommandEncoder()},
        bytes = await this.#fetch(run, at, bytesOf(shape, p));
      return {name, dtype: p.dtype, shape, data: fromStorage(bytes, 0, product(shape), p)};
    });
  }

  /** @type {import("../tinyedge.js").Model["setState"]} */
  async setState(name, data) {
    const {p, shape, at} = this.#state(name);
    const bytes = toStorage(data, p, shape, "state").slice();
    return this.#enqueue(() => this.device.queue.writeBuffer(at.buffer, at.offset, bytes));
  }

  /** A state and where it lies; its sizes are those of the last run, before any the maxima. */
  #state(name) {
    const {states} = this.manifest,
      i = find(states, "run.state", "state", name),
      p = states[i],
      shape = this.#sizes.states[i];
    return {p, shape, at: this.#ranges[p.buffer]};
  }

  /** States back to their initial values, after the runs already asked for. */
  async reset() {
    return this.#enqueue(() => this.#restore());
  }

  #restore() {
    const encoder = this.device.createCommandEncoder();
    for (const {buffer, initial} of this.manifest.states) {
      const to = this.#ranges[buffer],
        from = this.#weights[initial];
      encoder.clearBuffer(to.buffer, to.offset, to.size);
      if (from)
        encoder.copyBufferToBuffer(
          from.buffer,
          from.offset,
          to.buffer,
          to.offset,
          this.manifest.weights[initial].bytes,
        );
    }
    this.device.queue.submit([encoder.finish()]);
  }

  /** @type {import("../tinyedge.js").Model["example"]} */
  example({entry: name, seed = 1, symbols = {}} = {}) {
    const m = this.manifest,
      index = find(m.entries, "run.entry", "entry", name),
      golden = m.golden.find((g) => g.entry === index);
    const sizes = evaluateAll(
      m,
      m.symbols.map((s) => symbols[s.name] ?? s.max),
      "run.shape",
    );
    return this.#generated(m.entries[index], sizes, seed, 0, golden?.inputs);
  }

  /**
   * Inputs of an entry: generated in the ranges of a golden's, or in those usual for their types; stored ones where
   * there are `files`.
   * @param {any[]} [golden] @param {Uint8Array<ArrayBuffer>[]} [files]
   */
  #generated(entry, sizes, seed, step, golden = [], files) {
    return Object.fromEntries(
      entry.inputs.map((i, n) => {
        const p = this.manifest.inputs[i],
          shape = sizes.inputs[i],
          v = golden[n];
        const range =
          v?.file < 0
            ? v
            : isFloat(p.dtype)
              ? {min: -1, max: 1}
              : {min: 0, max: p.dtype === "bool" ? 1 : 7};
        const data =
          files && v.file >= 0
            ? stored(files, v, p)
            : generate(p.dtype, product(shape), seed, step, n, range);
        return [p.name, {data, shape}];
      }),
    );
  }

  /** @type {import("../tinyedge.js").Model["verify"]} */
  async verify({signal} = {}) {
    const m = this.manifest,
      files = [];
    const count = (n) => void (this.stats.bytesFetched += n);
    for (const [i, file] of m.files.entries())
      if (file.name.startsWith("golden"))
        files[i] = await fetchFile(this.#base, file, signal, count);
    return this.#enqueue(async () => {
      const cases = [];
      for (const golden of m.golden) {
        const {seed, made, tolerance} = golden,
          entry = m.entries[golden.entry];
        const sizes = evaluateAll(m, golden.symbols, "run.shape");
        const symbols = Object.fromEntries(m.symbols.map(({name}, i) => [name, golden.symbols[i]]));
        let results = {};
        this.#restore();
        for (let step = 0; step < golden.steps; step++) {
          const inputs = this.#generated(entry, sizes, seed, step, golden.inputs, files);
          results = await this.#replay(this.#plan(inputs, entry.name, symbols), []);
        }
        const outputs = entry.outputs.map((i, n) => {
          const p = m.outputs[i],
            v = golden.outputs[n];
          return {
            name: p.name,
            ...compare(results[p.name].data, stored(files, v, p), v.stride, tolerance / 1e6, p.dtype),
          };
        });
        cases.push({
          entry: entry.name,
          seed,
          made,
          tolerance: tolerance / 1e6,
          passed: outputs.every(({passed}) => passed),
          outputs,
        });
      }
      this.#restore();
      return {passed: cases.every(({passed}) => passed), cases};
    });
  }

  /** @type {import("../tinyedge.js").Model["profile"]} */
  async profile(inputs = this.example(), {entry, symbols} = {}) {
    const plan = this.#plan(inputs, entry, symbols),
      {device} = this;
    if (!device.features.has("timestamp-query")) {
      fail("device.timestamps", "the device", "it has no timestamps", "measure whole runs");
    }
    const bytes = 32768,
      {QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ} = GPUBufferUsage;
    this.#queries ??= {
      set: device.createQuerySet({type: "timestamp", count: bytes / 8}),
      resolved: this.#create("timestamps", bytes, QUERY_RESOLVE | COPY_SRC),
      mapped: this.#create("timestamps", bytes, MAP_READ | COPY_DST),
    };
    return this.#enqueue(async () => {
      const {set, resolved, mapped} = this.#queries,
        launches = [],
        encoder = device.createCommandEncoder();
      await this.#replay(plan, true, {set, launches});
      encoder.resolveQuerySet(set, 0, 2 * launches.length, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, mapped, 0, bytes);
      device.queue.submit([encoder.finish()]);
      const times = new BigUint64Array(await this.#read(bytes, {buffer: mapped}));
      return launches.map((launch, i) => ({
        ...launch,
        milliseconds: Number(times[2 * i + 1] - times[2 * i]) / 1e6,
      }));
    });
  }

  dispose() {
    this.#disposed = true;
    for (const buffer of this.#owns) buffer.destroy();
    if (this.#owned) this.device.destroy();
  }
}
