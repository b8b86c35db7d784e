// A loaded model: its memory, its pipelines, its runs.

import {fail} from "./errors.js";
import {kindOf, isFloat, product, bytesOf, toStorage, fromStorage} from "./types.js";
import {MANIFEST_BYTES, parseManifest} from "./manifest.js";
import {evaluate} from "./expressions.js";
import {stage, namesOf, checkManifest, evaluateAll, checkSizes} from "./check.js";
import {folderOf, fetchBytes, fetchFile} from "./fetch.js";
import {whole, neededLimits, checkLimits, openDevice, lossOf} from "./device.js";
import {cut, generate} from "./golden.js";

const DOWNLOADS = 3;

// Sums of WebGPU's GPUBufferUsage, which node does not have as a global.
const MEMORY = 140, // STORAGE, COPY_SRC, COPY_DST
  SYMBOLS = 72, // UNIFORM, COPY_DST
  TRANSFER = 12, // COPY_SRC, COPY_DST
  READBACK = 9; // MAP_READ, COPY_DST

/** The position of a name. */
function find(names, id, kind, name) {
  const i = names.indexOf(name);
  if (i < 0) fail(id, `${kind} "${name}"`, `there is no such ${kind}`, `use one of: ${names}`);
  return i;
}

/** A caller's options. One that does not exist is told: it may be a slip of the pen. */
function chosen(options, names, id = "run.option") {
  for (const name of Object.keys((options ??= {}))) find(names, id, "option", name);
  return options;
}

const diagnostics = () =>
  import("./diagnostics.js").catch(({message}) =>
    fail("load.network", "diagnostics.js", message, "check the address, and serve the whole folder"),
  );

/** Everything a run needs is made in `start`, so that a run only writes, dispatches and reads. */
export class Model {
  #base;
  #owned;
  #disposed = false;
  #loss;
  /** Work in order: each run starts when the one before has its outputs. */
  #tail = Promise.resolve();
  #waiting = 0;
  #owns = [];
  #weights;
  #ranges;
  /** Room for the most symbols that a manifest may have. */
  #values = new Int32Array(32);
  #uniform;
  #readback;
  #transfer;
  #layouts;
  #groups;
  #pipelines;
  /** The symbols' sizes last evaluated, and last written to the GPU. */
  #sizes;
  #key;
  #written;

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
      await model.#start(stop.signal, onProgress).catch((error) => {
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
    this.#sizes = sizes;
    this.#loss = lossOf(device);
  }

  /** Throws when the model can run no more. */
  #check() {
    if (this.#disposed) fail("run.disposed", "the model", "it was disposed", "load the model again");
    if (this.#loss.cause) throw this.#loss.cause;
  }

  /**
   * Give the device work, at once; what it has against it becomes an error. `inputs`: those that are GPU buffers of the
   * caller's; undefined while memory is set up.
   * @param {() => void} work @param {string[]} [inputs]
   */
  async #guard(work, inputs) {
    const {device} = this,
      filters = /** @type {GPUErrorFilter[]} */ (["internal", "out-of-memory", "validation"]);
    for (const filter of filters) device.pushErrorScope(filter);
    work();
    // The last scope comes first. Of a lost device there is no news here, but from check.
    const faults = await Promise.all(filters.map(() => device.popErrorScope())).catch(() => []);
    this.#check();
    const [invalid, memory] = faults,
      fault = faults.find((fault) => fault),
      theirs = invalid && inputs?.join();
    if (theirs)
      fail(
        "run.input.buffer",
        `input "${theirs}"`,
        fault.message,
        "give a buffer of model.device with COPY_SRC, neither mapped nor destroyed",
      );
    if (fault)
      fail(
        memory || !inputs ? "device.memory" : "device.run",
        "the GPU",
        fault.message,
        "use a larger GPU, or load the model again",
      );
  }

  /** Weights arrive while the pipelines compile. */
  async #start(signal, onProgress) {
    const {manifest: m, stats, device} = this;
    const needed = m.files.filter(({name}) => !name.startsWith("golden"));
    const total = needed.reduce((sum, {bytes}) => sum + bytes, 0);
    let loaded = 0;
    const report = () => {
      this.#check();
      signal.throwIfAborted();
      onProgress?.({loaded, total, compiled: stats.pipelines, pipelines: m.kernels.length});
    };
    report();
    await this.#guard(() => this.#allocate());
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
    if (m.states[0]) await this.#restore();
  }

  /** Buffers, layouts and bind groups: all but the pipelines. */
  #allocate() {
    const {manifest: m, device, stats} = this;
    const create = (label, bytes, usage = MEMORY) => {
      if (!bytes) return null;
      const size = whole(bytes),
        buffer = device.createBuffer({label: `tinyedge ${label}`, size, usage});
      stats.bufferBytes += size;
      this.#owns.push(buffer);
      return buffer;
    };
    const arenas = m.arenas.map(({bytes}, i) => create(`arena ${i}`, bytes));
    // Weights lie one after the other in few buffers.
    const pools = [];
    const places = m.weights.map(({bytes}) => {
      const last = pools.length - 1,
        offset = Math.ceil(pools[last] / 256) * 256;
      if (offset + bytes <= device.limits.maxBufferSize) pools[last] = offset + bytes;
      else return {pool: pools.push(bytes) - 1, offset: 0};
      return {pool: last, offset};
    });
    const filled = pools.map((bytes, i) => create(`weights ${i}`, bytes));
    this.#weights = places.map(({pool, offset}) => ({buffer: filled[pool], offset}));
    this.#ranges = m.buffers.map(({arena, weight, offset, bytes: size}) =>
      arena < 0 ? {...this.#weights[weight], size} : {buffer: arenas[arena], offset, size},
    );
    const needsSymbols = m.kernels.some(({symbols}) => symbols);
    this.#uniform = create(
      "symbols",
      needsSymbols ? this.#values.byteLength : 0,
      SYMBOLS,
    );

    // Where an entry's outputs, a state or a condition are copied to be read.
    const bytesIn = ({buffer}) => m.buffers[buffer].bytes;
    const staged = Math.max(
      m.steps.some(({condition}) => condition >= 0) ? 4 : 0,
      ...m.states.map(bytesIn),
      ...m.entries.map(({outputs}) => outputs.reduce((sum, i) => sum + bytesIn(m.outputs[i]), 0)),
    );
    this.#readback = {buffer: create("readback", staged, READBACK)};
    // A copy inside one GPU buffer is not allowed: it goes by way of another.
    const copied = m.steps
      .filter(({op}) => op === "copy")
      .map(({source}) => this.#ranges[source].size);
    this.#transfer = {buffer: create("transfer", Math.max(0, ...copied), TRANSFER)};

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
            visibility: 4, // compute
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
          // wgpu asks a binding for the size of whole vectors where another kernel of the layout has some.
          const resources = step.buffers.map((buffer) => ({
            ...this.#ranges[buffer],
            size: whole(this.#ranges[buffer].size),
          }));
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
          descriptor = {
            label: `tinyedge ${entry}`,
            layout: this.#layouts[i].pipeline,
            compute: {module, entryPoint: entry},
          };
        const pipeline = await device
          .createComputePipelineAsync(descriptor)
          .catch(async ({message}) => {
            this.#check();
            const fault = (await module.getCompilationInfo()).messages.find(
              ({type}) => type === "error",
            );
            fail(
              "device.kernel",
              `kernel ${entry}`,
              fault ? `line ${fault.lineNum}: ${fault.message}` : message,
              "report it",
            );
          });
        stats.pipelines++;
        report();
        return pipeline;
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
  async run(inputs, options) {
    const {entry, symbols, keep = []} = chosen(options, ["entry", "symbols", "keep"]),
      plan = this.#plan(inputs, entry, symbols),
      kept = keep === true ? plan.outputs : keep;
    if (!Array.isArray(kept))
      fail("run.option", 'option "keep"', `it is ${keep}`, "give an array of names");
    for (const name of kept) find(plan.outputs, "run.option", "output", name);
    // The caller may change its arrays as soon as run returns.
    if (this.#waiting) for (const write of plan.writes) write.bytes = write.bytes?.slice();
    return this.#enqueue(() => this.#replay(plan, kept));
  }

  /** The position of an entry, by default of the first. */
  #entry(name = this.entries[0].name) {
    return find(namesOf(this.entries), "run.entry", "entry", name);
  }

  /** Check what the caller gave; nothing reaches the device before all of it is right. */
  #plan(inputs, name, named) {
    inputs ??= {};
    const m = this.manifest,
      entry = m.entries[this.#entry(name)],
      ports = entry.inputs.map((i) => m.inputs[i]),
      names = namesOf(ports);
    for (const given of Object.keys(inputs)) find(names, "run.input", "input", given);
    const given = names.map((key) => {
      const value = Object.hasOwn(inputs, key) ? inputs[key] : null;
      if (value == null) fail("run.input", `input "${key}"`, "it is missing", "give it too");
      if (kindOf(value) === "GPUBuffer") return {buffer: value};
      return !ArrayBuffer.isView(value) && (value.data ?? value.buffer) ? value : {data: value};
    });
    const shapes = given.map(({shape}) => shape && Array.from(shape, Number)),
      symbols = this.#resolve(ports, shapes, named ?? {}),
      key = symbols.join();
    if (this.#key !== key) {
      this.#sizes = evaluateAll(m, symbols, "run.shape");
      checkSizes(m, this.#sizes, stage("run.shape"));
      this.#key = key;
    }
    const writes = ports.map((p, n) => {
      const {data, buffer, offset = 0} = given[n],
        shape = shapes[n],
        whole = this.#sizes.inputs[entry.inputs[n]];
      const need = (good, because, id = "run.shape") =>
        good || fail(id, `input "${p.name}"`, because, `it takes ${p.dtype} [${whole}]`);
      const size = bytesOf(whole, p);
      need(!shape || shape.join() === whole.join(), `its shape is [${shape}]`);
      if (buffer) {
        const kind = kindOf(buffer);
        need(kind === "GPUBuffer", `its buffer is ${kind}`, "run.dtype");
        need(
          offset >= 0 && offset % 4 === 0 && offset + size <= buffer.size,
          `the GPU buffer has no ${size} bytes at ${offset}`,
        );
        // Writing the other inputs could overwrite it.
        need(!this.#owns.includes(buffer), "it is the model's own memory");
        return {name: p.name, to: this.#ranges[p.buffer], buffer, offset, size};
      }
      const bytes = toStorage(data, p, whole);
      return {to: this.#ranges[p.buffer], bytes, size};
    });
    return {entry, symbols, sizes: this.#sizes, writes, outputs: entry.outputs.map((i) => m.outputs[i].name)};
  }

  /** The symbols' sizes: from the given shapes, else by name, else the maxima. @returns {number[]} */
  #resolve(ports, shapes, named) {
    const {symbols} = this,
      found = new Map(),
      need = stage("run.shape");
    const set = (name, size, subject) => {
      const {min, max, step} = symbols[find(namesOf(symbols), "run.shape", "size", name)];
      need(
        size >= min && size <= max && (size - min) % step === 0,
        subject,
        `${name} cannot be ${size}`,
        `give ${min}..${max}, step ${step}`,
      );
      found.set(name, size);
    };
    for (const name of Object.keys(named)) set(name, Number(named[name]), `size "${name}"`);
    // First the axes that are a symbol, then those that are computed from one unknown symbol.
    for (const tokens of [1, 256])
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
          const [unknown, other] = symbols.filter(
            ({name}) => size.length <= tokens && size.includes("$" + name) && !found.has(name),
          );
          if (!unknown || other) return;
          const {name, max, step} = unknown;
          need(shape, subject, "its shape is missing", "give {data, shape}");
          const at = (value) => evaluate(size, found.set(name, value), subject, "run.shape"),
            most = at(max),
            slope = (most - at(max - step)) / step;
          set(name, max - (most - shape[axis]) / slope, subject);
        });
      });
    return symbols.map(({name, max}) => found.get(name) ?? max);
  }

  /** One run: write the inputs, one pass (more only around copies), one submit, read the outputs. */
  async #replay({entry, symbols, sizes, writes}, keep, describe) {
    const {manifest: m, device, stats} = this,
      run = {
        sizes,
        describe,
        encoder: /** @type {any} */ (null),
        pass: /** @type {any} */ (null),
        given: namesOf(writes.filter(({buffer}) => buffer)),
      };
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
        kept = keep.includes(p.name);
      if (!kept && size) {
        this.#copy(run, from, from.offset, this.#readback, offset, size);
        end += size;
      }
      return {i, p, shape, offset, kept: kept && {...from, size}};
    });
    stats.runs++;
    const bytes = await this.#submit(run, end),
      arrays = [];
    for (const {i, p, shape, offset, kept} of outputs)
      if (!kept) arrays[i] = fromStorage(bytes, offset, product(shape), p);
    return Object.fromEntries(
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
  }

  /** Record steps [i, end). Only a branch, which must read its condition, waits. */
  async #walk(run, i, end) {
    const {manifest: m, stats} = this,
      {describe} = run;
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
        for (let iteration = 0; iteration < step.bound && (await this.#condition(run, step)); iteration++) {
          await this.#walk(run, i + 1, i + 1 + step.body);
        }
        i += step.body;
      }
      i++;
    }
  }

  #copy(run, from, offset, to, at, size) {
    run.pass?.end();
    run.pass = null;
    run.encoder.copyBufferToBuffer(from.buffer, offset, to.buffer, at, size);
  }

  /**
   * Submit what was recorded. The first bytes of the readback buffer then.
   * @returns {Promise<ArrayBuffer>}
   */
  async #submit(run, size, {buffer} = this.#readback) {
    run.pass?.end();
    run.pass = null;
    const {device} = this,
      done = this.#guard(() => device.queue.submit([run.encoder.finish()]), run.given ?? []);
    this.stats.submits++;
    let bytes = new ArrayBuffer(0);
    // Told below, when the bytes are there.
    done.catch(() => {});
    try {
      if (size) {
        await buffer.mapAsync(1, 0, size);
        bytes = buffer.getMappedRange(0, size).slice(0);
        buffer.unmap();
      }
    } catch (error) {
      // The news of a lost device may come a moment after the failure that it causes.
      await new Promise((resolve) => setTimeout(resolve, 200));
      this.#check();
      fail("device.read", "the GPU", error.message, "load the model again");
    }
    await done;
    return bytes;
  }

  /** The first bytes of a range, after what was recorded. */
  #fetch(run, from, size) {
    this.#copy(run, from, from.offset, this.#readback, 0, size);
    return this.#submit(run, size);
  }

  /** Whether the int32 at the start of a step's condition is not 0. */
  async #condition(run, step) {
    const bytes = await this.#fetch(run, this.#ranges[step.condition], 4);
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
    return this.#enqueue(() =>
      this.#guard(() => this.device.queue.writeBuffer(at.buffer, at.offset, bytes), []),
    );
  }

  /** A state and where it lies; its sizes are those of the last run, before any the maxima. */
  #state(name) {
    const {states} = this.manifest,
      i = find(namesOf(states), "run.state", "state", name),
      p = states[i],
      shape = this.#sizes.states[i];
    return {p, shape, at: this.#ranges[p.buffer]};
  }

  /** States back to their initial values, after the runs already asked for. */
  async reset() {
    return this.#enqueue(() => this.#restore());
  }

  async #restore() {
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
    await this.#submit({encoder});
  }

  /** @type {import("../tinyedge.js").Model["example"]} */
  example(options) {
    const {entry: name, seed = 1, symbols = {}} = chosen(options, ["entry", "seed", "symbols"]),
      m = this.manifest,
      entry = this.#entry(name),
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
            restore: () => this.#restore(),
            example: (golden, step) => this.#generated(golden, step),
            run: (...given) => this.#replay(this.#plan(...given), []),
          }),
        ),
    );
  }

  /** @type {import("../tinyedge.js").Model["profile"]} */
  async profile(inputs, options) {
    const {entry, symbols} = chosen(options, ["entry", "symbols"]),
      plan = this.#plan(inputs ?? this.example({entry, symbols}), entry, symbols),
      {device} = this;
    const {profile} = await diagnostics();
    return this.#enqueue(() =>
      profile(
        fail,
        device,
        this.manifest.kernels,
        (describe) => this.#replay(plan, plan.outputs, describe),
        (encoder, ...given) => this.#submit({encoder}, ...given),
      ),
    );
  }

  dispose() {
    this.#disposed = true;
    for (const buffer of this.#owns) buffer.destroy();
    if (this.#owned) this.device.destroy();
  }
}
