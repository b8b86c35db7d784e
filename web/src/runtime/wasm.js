// Where there is no GPU: as much of a GPUDevice as a model uses, on the processor, by the kernels of the bundle's program
// for WebAssembly. A file of its own beside tinyedge.js, which fetches it when it needs it.

import {checkManifest} from "./check.js";
import {fail} from "./errors.js";
import {fetchFile} from "./fetch.js";
import {parseManifest} from "./manifest.js";
import {beside} from "./model.js";

/** Buffers lie behind this: before it the module has its stack and what its text declares. */
const FIRST = 2 ** 20;
const PAGE = 2 ** 16;
const MEMORY = {initial: FIRST / PAGE, maximum: 65535};

/** Launches of less arithmetic are not worth waking other threads for, nor several calls. */
const WORTH = 2 ** 20;

/**
 * Calls of a larger launch. Browsers compile in haste first, and again while that code runs; the better code serves the
 * next call.
 */
const CALLS = 8;

/** How a module asks for its memory; a larger last number asks for one that is shared. */
const IMPORT = "\x03env\x06memory\x02\x01";

/** A module that only engines with relaxed SIMD take: one function, which multiplies and adds. */
const RELAXED = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 8, 1, 96, 3, 123, 123, 123, 1, 123, 3, 2, 1, 0, 10, 13, 1, 11, 0, 32, 0, 32, 1, 32, 2,
  253, 133, 2, 11,
]);

/** Usages of buffers, by WebGPU's bits. */
const COPY_SRC = 4,
  COPY_DST = 8;

/** A range of the module's memory. Work is done when it is submitted, so what is read is there at once. */
class Range {
  /** While it is mapped, the parts that were asked for. @type {{offset: number, buffer: ArrayBuffer}[] | null} */
  #parts = null;
  #writable = false;
  #destroyed = false;
  /** Of a weight in another order than its kernels': what makes that one. @type {any} */
  repack;

  /** @param {Device} device @param {number} at @param {any} descriptor as of a GPUBuffer */
  constructor(device, at, {size, usage = 0, label = "", mappedAtCreation}) {
    this.device = device;
    this.at = at;
    this.size = size;
    this.usage = usage;
    this.label = label;
    if (mappedAtCreation) this.mapAsync(2);
  }

  /** Callers may give one back as an input. */
  get [Symbol.toStringTag]() {
    return "GPUBuffer";
  }

  /** Why it cannot be used so, if it cannot. @param {number} usage */
  fault(usage) {
    const because = this.#destroyed
      ? "was destroyed"
      : this.#parts
        ? "is mapped"
        : usage & ~this.usage
          ? `lacks ${usage === COPY_SRC ? "COPY_SRC" : "COPY_DST"}`
          : "";
    return because && `the buffer "${this.label}" ${because}`;
  }

  async mapAsync(mode) {
    this.#parts = [];
    this.#writable = mode > 1;
  }

  /** A copy of a part. */
  slice(from, to) {
    return new Uint8Array(this.device.memory.buffer).slice(this.at + from, this.at + to).buffer;
  }

  getMappedRange(offset = 0, size = this.size - offset) {
    const buffer = this.slice(offset, offset + size);
    this.#parts?.push({offset, buffer});
    return buffer;
  }

  unmap() {
    const parts = this.#writable && this.#parts;
    this.#parts = null;
    for (const {offset, buffer} of parts || [])
      new Uint8Array(this.device.memory.buffer).set(new Uint8Array(buffer), this.at + offset);
  }

  /** Memory goes as a whole, with the device. */
  destroy() {
    this.#destroyed = true;
  }
}

/** The words of a repack's axes together. */
const product = (axes) => axes.reduce((all, [places]) => all * places, 1);

/**
 * A part of what a bundle has of a weight, to where its kernels read it.
 * @param {Range} range of the weight @param {Uint8Array} memory @param {Uint8Array} bytes
 * @param {number} offset of the part
 */
function scatter({at, repack: axes}, memory, bytes, offset) {
  const words = new Uint32Array(memory.buffer),
    part = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4),
    start = offset / 4,
    end = start + part.length;
  /** What the part has of an axis and of those within it: `size` words, of which the first is number `first`. */
  const walk = (k, first, size, place) => {
    const [places, used, stride] = axes[k],
      inner = size / places,
      low = Math.max(0, Math.floor((start - first) / inner)),
      high = Math.min(used, Math.ceil((end - first) / inner));
    for (let i = low; i < high; i++)
      if (inner > 1) walk(k + 1, first + i * inner, inner, place + i * stride);
      else words[place + i * stride] = part[first + i - start];
  };
  walk(0, 0, product(axes), at / 4);
}

/** What is recorded: functions, called in order, and what they use, as it must be before the first of them. */
class Encoder {
  #device;
  #commands = [];
  #uses = [];
  constructor(device) {
    this.#device = device;
  }

  beginComputePass() {
    let kernel, group;
    return {
      setPipeline: (pipeline) => (kernel = pipeline),
      setBindGroup: (_, bound) => (group = bound),
      dispatchWorkgroups: (count) => {
        const {table, last, uses} = group,
          {launch, symbols} = kernel;
        this.#uses.push(...uses);
        this.#commands.push(() => launch(table, symbols ? last : 0, count));
      },
      end() {},
    };
  }

  copyBufferToBuffer(from, offset, to, at, size) {
    this.#uses.push({buffer: from, usage: COPY_SRC}, {buffer: to, usage: COPY_DST});
    this.#commands.push(() => {
      const start = from.at + offset;
      new Uint8Array(this.#device.memory.buffer).copyWithin(to.at + at, start, start + size);
    });
  }

  clearBuffer(buffer, offset, size) {
    this.#uses.push({buffer, usage: COPY_DST});
    this.#commands.push(() =>
      new Uint8Array(this.#device.memory.buffer, buffer.at + offset, size).fill(0),
    );
  }

  finish() {
    return {commands: this.#commands, uses: this.#uses};
  }
}

class Device {
  backend = "wasm";
  features = new Set();
  /** Without one for buffers, each weight has a buffer of its own. */
  limits = {};
  #lose;
  lost = new Promise((resolve) => (this.#lose = resolve));
  /** Where a page is isolated, threads can share it. @type {WebAssembly.Memory} */
  memory;
  #pool;
  #end = FIRST;
  #scopes = [];
  #module;

  /** Of the weights that have no buffer yet. */
  #repacks;

  /** @param {any[]} repacks @param {WebAssembly.Module} [module] compiled already, by the page */
  constructor(repacks, module) {
    this.#repacks = repacks;
    this.#module = module;
    try {
      const shared = !module && !!globalThis.crossOriginIsolated;
      this.memory = new WebAssembly.Memory({...MEMORY, shared});
    } catch {
      this.memory = new WebAssembly.Memory(MEMORY);
    }
    /** Files of the bundle that this device does without: of a module that is given, both. */
    this.skips = new RegExp(`^golden|\\.c$|${module ? "" : WebAssembly.validate(RELAXED) ? 1 : 2}\\.wasm$`);
  }

  queue = {
    /** `from` and `size` are in elements of a typed array. */
    writeBuffer: (range, offset, data, from = 0, size) => {
      const {BYTES_PER_ELEMENT: unit = 1, byteLength} = data,
        start = from * unit,
        length = (size ?? byteLength / unit - from) * unit,
        memory = new Uint8Array(this.memory.buffer),
        at = range.at + offset,
        fault =
          this.#refusal(range, COPY_DST) ||
          (offset + length > range.size && `the buffer "${range.label}" has no ${length} bytes at ${offset}`);
      if (fault) this.#fault("validation", fault);
      // Where a buffer could not be had, the scope around this has the fault.
      else if (at + length <= memory.length) {
        const bytes = new Uint8Array(data.buffer ?? data, (data.byteOffset ?? 0) + start, length);
        if (range.repack?.[0]) scatter(range, memory, bytes, offset);
        else memory.set(bytes, at);
      }
    },
    submit: ([{commands, uses}]) => {
      for (const {buffer, usage} of uses) {
        const fault = this.#refusal(buffer, usage);
        if (fault) return this.#fault("validation", fault);
      }
      try {
        for (const command of commands) command();
      } catch (error) {
        this.#fault("internal", error.message);
      }
    },
  };

  createBuffer(descriptor) {
    const {label, size} = descriptor,
      at = this.#end,
      end = Math.ceil((at + size) / 256) * 256,
      more = Math.ceil((end - this.memory.buffer.byteLength) / PAGE);
    try {
      if (more > 0) this.memory.grow(more);
      this.#end = end;
    } catch ({message}) {
      this.#fault("out-of-memory", `${size} bytes more: ${message}`);
    }
    const range = new Range(this, at, descriptor);
    // Those of weights are made in their order, before any of a caller.
    if (/^tinyedge weights/.test(label)) range.repack = this.#repacks.shift();
    return range;
  }

  createBindGroup({entries}) {
    const places = entries.map(({resource: {buffer, offset = 0}}) => buffer.at + offset),
      uses = [...new Set(entries.map(({resource}) => resource.buffer))].map((buffer) => ({buffer, usage: 0})),
      table = this.createBuffer({size: 4 * places.length, usage: COPY_DST});
    this.queue.writeBuffer(table, 0, Uint32Array.from(places));
    return {table: table.at, last: places.at(-1), uses};
  }

  createBindGroupLayout() {}
  createPipelineLayout() {}

  createCommandEncoder() {
    return new Encoder(this);
  }

  pushErrorScope(filter) {
    this.#scopes.push({filter, fault: null});
  }

  async popErrorScope() {
    return this.#scopes.pop().fault;
  }

  /** Why it cannot use a buffer so, if it cannot: a caller's may be anything. @returns {string} */
  #refusal(buffer, usage) {
    return buffer instanceof Range && buffer.device === this ? buffer.fault(usage) : "it is not of this device";
  }

  #fault(filter, message) {
    const scope = this.#scopes.findLast((each) => each.filter === filter);
    if (scope) scope.fault ??= {message};
    else console.warn(message);
  }

  /** What canvas.js does by shaders. `values`: those of the output, and maybe a few beyond. */
  paint({c, h, w, planar, ends, classes, colors}, values, context) {
    const image = new ImageData(w, h),
      size = w * h,
      all = Array.from(values, Number).slice(0, size * c);
    // What is no number counts for neither, and is dark.
    let [low = Infinity, high = -low] = ends;
    if (!ends.length)
      for (const x of all) {
        low = x < low ? x : low;
        high = x > high ? x : high;
      }
    const part = (x) => Math.min(Math.max((x - low) / (high - low || 1) || 0, 0), 1);
    /** Red, green and blue by alpha, which comes last. */
    const colorOf = (values) => {
      if (classes) {
        const k = c > 1 ? values.reduce((a, x, i) => (x > values[a] ? i : a), 0) : Math.max(values[0], 0);
        return colors[(k >>> 0) % colors.length];
      }
      const [r, g = r, b = c < 2 ? r : 0, a = 1] = values.map(part);
      if (!colors.length) return [r * a, g * a, b * a, a];
      const t = r * (colors.length - 1),
        to = colors[Math.ceil(t)];
      return colors[Math.floor(t)].map((x, n) => x + (to[n] - x) * (t % 1));
    };
    for (let i = 0; i < size; i++) {
      const values = Array.from({length: c}, (_, k) => all[planar ? k * size + i : i * c + k]),
        [r, g, b, a] = colorOf(values);
      image.data.set([r, g, b, a * a].map((x) => (255 * x) / (a || 1)), 4 * i);
    }
    context.putImageData(image, 0, 0);
  }

  /** The kernels of a manifest, by the module among its files. */
  async kernels({files, kernels, steps}, sources, signal) {
    const env = {memory: this.memory},
      code = sources.find((source, i) => source && files[i].name.endsWith(".wasm"));
    const policy = "allow 'wasm-unsafe-eval', or give module",
      refused = ({message}) => fail("device.wasm", "WebAssembly", message, policy),
      shared = !(this.memory.buffer instanceof ArrayBuffer);
    if (shared)
      code[new TextDecoder("latin1").decode(code).indexOf(IMPORT) + IMPORT.length - 1] = 3;
    const module = this.#module ?? (await WebAssembly.compile(code).catch(refused)),
      {exports} = await WebAssembly.instantiate(module, {env}).catch(refused);
    const create = (size) => this.createBuffer({size}).at,
      entries = kernels.map(({entry}) => entry);
    if (shared)
      // Without threads where they cannot be had.
      this.#pool = await beside(() => import("./threads.js"), "threads.js", signal)
        .then(({start}) => start(new URL("./threads.js", import.meta.url), module, this.memory, entries, create))
        .catch(() => {});
    return kernels.map(({entry, symbols}, i) => {
      const call = /** @type {any} */ (exports[entry]) ?? refused({message: `it lacks ${entry}`}),
        flops = Math.max(...steps.map((step) => (step.kernel === i ? step.flops : 0)));
      return {
        symbols,
        launch: (table, last, count) => {
          const some = flops < WORTH ? count : Math.ceil(count / CALLS);
          if (this.#pool && some < count && count < 2 ** 30) this.#pool.launch(i, call, table, last, count);
          else for (let at = 0; at < count; at += some) call(table, last, at, Math.min(at + some, count));
        },
      };
    });
  }

  /** How many compute. */
  get threads() {
    return this.#pool?.threads ?? 1;
  }

  destroy() {
    this.#pool?.end();
    this.memory = new WebAssembly.Memory({initial: 0});
    this.#lose({reason: "destroyed", message: "destroyed"});
  }
}

/** What bundle.md says of repacks, stage after stage. @param {Record<string, any>} m */
function checkRepacks({features, repacks, weights}) {
  const need = (id, good) => good || fail(`bundle.${id}`, "repacks");
  // Numbers in arrays of arrays of an array.
  need("field", /^\[(\[(\[([1-9]\d*\b,?)*],?)*],?)*]$/.test(JSON.stringify(repacks)));
  need(
    "count",
    repacks.every(({length}) => length < 17) && repacks.flat().every(({length}) => length === 3),
  );
  need("name", features.every((name, i) => !(name <= features[i - 1])));
  need("index", repacks.length === weights.length);
  repacks.forEach((axes, i) => {
    const words = weights[i].bytes / 4;
    need(
      "bounds",
      product(axes) <= words &&
        axes.every(([places, used, stride]) => used <= places && used * stride <= words),
    );
  });
  for (const axes of repacks)
    for (const a of axes)
      for (const b of axes)
        need("overlap", a === b || b[1] < 2 || a[2] > b[2] || a[1] * a[2] <= b[2]);
}

/**
 * The bundle's other program, its sizes, and a device for it. `fallback`: what manifest.json says of its manifest.
 * @param {{bytes: number, sha256: string} | undefined} fallback @param {any} source as for fetchFile
 * @param {WebAssembly.Module | undefined} module
 * @param {Promise<GPUAdapter> | undefined} adapter what there is instead, and is taken where the page's policy lets
 * nothing be compiled: nothing is opened then
 */
export async function open(fallback, source, module, adapter) {
  if (!fallback)
    fail("load.backend", 'backend "wasm"', "the bundle lacks it", "export it with --fallback wasm");
  if (adapter && !module && (await WebAssembly.compile(RELAXED.slice(0, 8)).then(() => {}, () => adapter.catch(() => {})))) return;
  const whole = parseManifest(
      await fetchFile(source, {...fallback, name: "manifest-00001.json"}, () => {}),
    ),
    {repacks = [], ...manifest} = whole,
    listed = Array.isArray(whole.features) && whole.features.includes("repacks");
  // tinyedge.js does not know them.
  if (listed) manifest.features = whole.features.filter((name) => name !== "repacks");
  const sizes = checkManifest(listed ? manifest : whole, "wasm");
  if (listed) checkRepacks(whole);
  return {manifest, sizes, device: new Device(repacks, module), limits: {}};
}
