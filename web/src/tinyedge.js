// tinyedge: replays a bundle (see bundle.md, format version 1) on WebGPU. One file, no dependencies, no eval.
//
//   const model = await load("./model.tinyedge/");
//   const out = await model.run({image: new Float32Array(3 * 224 * 224)});
//   out.scores.data, out.scores.shape;
//   model.dispose();
//
// Parts: errors | element types | expressions | reading the manifest | checking it | fetching | the device | Model.

/** @typedef {Record<string, any>} Json */
/** @typedef {import("./tinyedge.js").Output} Output */

// ---- errors ------------------------------------------------------------------------------------------------

/** Everything thrown on purpose. `id` is stable; for faults of a bundle it is the one that C and Python give. */
export class TinyedgeError extends Error {
  /** @param {string} id @param {string} subject @param {string} because @param {string} next */
  constructor(id, subject, because, next) {
    super(`${subject} [${id}]\n  because    ${because}\n  next       ${next}`);
    this.name = "TinyedgeError";
    this.id = id;
    this.subject = subject;
    this.because = because;
    this.next = next;
  }
}

/** @param {string} id @param {string} subject @param {string} [because] @param {string} [next] @returns {never} */
function fail(id, subject, because = "it breaks the format", next = "export it again, and copy all its files") {
  throw new TinyedgeError(id, subject, because, next);
}

// ---- element types -----------------------------------------------------------------------------------------

/** The storage types that each dtype may be kept as. @type {Record<string, string[]>} */
const STORAGES = Object.fromEntries([
  "bool uint8 int32 uint32", "int8 int16 int32", "int16 int32", "int32", "int64 int32", "uint8 uint16 uint32 int32",
  "uint16 uint32 int32", "uint32", "uint64 uint32", "float16 float32", "float32 float16", "float64 float32 float16",
].map((line) => line.split(" ")).map((types) => [types[0], types]));

/** What else a caller may give for a dtype, beside its own array and a plain one. @type {Record<string, any>} */
const ALSO = {
  uint8: Uint8ClampedArray, int64: Int32Array, uint64: Uint32Array, float64: Float32Array, float16: Float32Array,
};

const itemSize = (type) => Number(type.replace(/\D+/, "") || 8) / 8;
const isFloat = (type) => type.startsWith("float");
const isBig = (type) => type.endsWith("int64");
const product = (sizes) => sizes.reduce((a, b) => a * b, 1);
const align4 = (bytes) => Math.ceil(bytes / 4) * 4;

/** The typed array of a dtype or storage type. */
const arrayOf = (type) => type === "bool" ? Uint8Array
  : globalThis[`${isBig(type) ? "Big" : ""}${type[0].toUpperCase()}${type.slice(1)}Array`]
    ?? fail("device.float16", "this browser", "it has no Float16Array", "use one released since 2025");

/**
 * The bytes of a caller's array as the buffer holds them, padded to whole words.
 * @param {any} data @param {Json} port @returns {Uint8Array<ArrayBuffer>}
 */
function toStorage(data, {dtype, storage, name}) {
  const Given = arrayOf(dtype), Stored = arrayOf(storage), subject = `input "${name}"`;
  // A Uint16Array of float16 holds bits.
  if (dtype === "float16" && data instanceof Uint16Array) data = new Given(data.buffer, data.byteOffset, data.length);
  if (!data || ![Array, Given, ALSO[dtype]].includes(data.constructor)) {
    fail("run.dtype", subject, `it takes ${dtype}, not ${data?.constructor.name}`, `give a ${Given.name} or an array`);
  }
  if (data.constructor === Stored && dtype !== "bool" && data.byteLength % 4 === 0) {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
  const bytes = new Uint8Array(align4(data.length * itemSize(storage))), array = new Stored(bytes.buffer, 0, data.length);
  for (let i = 0; i < data.length; i++) {
    const value = dtype === "bool" ? +!!data[i] : data[i];
    array[i] = isBig(storage) ? BigInt(value) : Number(value);
    // Loose: a BigInt equals a number of the same value.
    if (!isFloat(dtype) && array[i] != value) fail("run.range", subject, `its value ${value} does not fit ${storage}`, "keep within its range");
  }
  return bytes;
}

/** The elements of an output as the caller's type.
 * @param {ArrayBuffer} buffer @param {number} offset @param {number} length @param {Json} port @returns {any} */
function fromStorage(buffer, offset, length, {dtype, storage}) {
  const stored = new (arrayOf(storage))(buffer.slice(offset, offset + length * itemSize(storage)));
  const Result = arrayOf(dtype);
  return dtype === storage ? stored : dtype === "bool" ? Result.from(stored, Boolean)
    : isBig(dtype) ? Result.from(stored, BigInt) : new Result(stored);
}

// ---- expressions -------------------------------------------------------------------------------------------

const LIMIT = Number.MAX_SAFE_INTEGER;

/** @type {Record<string, (a: number, b: number) => number>} */
const OPERATORS = {
  add: (a, b) => a + b,
  mul: (a, b) => a * b,
  sub: (a, b) => a - b,
  floordiv: (a, b) => Math.floor(a / b),
  ceildiv: (a, b) => Math.ceil(a / b),
  mod: (a, b) => ((a % b) + b) % b,
  min: Math.min,
  max: Math.max,
};

/**
 * A double is exact here: beyond 2^53 - 1 it can only round to something that is still beyond.
 * @param {any} expression @param {Map<string, number>} values @param {string} at @param {string} id of the error
 */
function evaluate(expression, values, at, id) {
  if (!Array.isArray(expression)) return expression;
  const stack = [];
  for (const token of expression.toReversed()) {
    let value = token;
    if (token[0] === "$") value = values.get(token.slice(1));
    else if (typeof token === "string") {
      const a = stack.pop(), b = stack.pop();
      value = Object.hasOwn(OPERATORS, token) && (b >= 1 || !/div|mod/.test(token)) ? OPERATORS[token](a, b) + 0 : NaN;
    }
    // What is missing makes a NaN.
    if (Math.abs(value) <= LIMIT) stack.push(value);
    else stack.length = 256;
  }
  if (stack.length > 1) fail(id, at, `${ascii(expression)} is malformed, divides by less than 1 or needs more than 53 bits`);
  return stack[0];
}

// ---- reading the manifest ----------------------------------------------------------------------------------

const MANIFEST_BYTES = 2 ** 24;

const ascii = (value) => String(JSON.stringify(value))
  .replace(/[\x7f-\uffff]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** Restricted, canonical JSON: what is not spelt exactly as it would be written again is refused.
 * @param {Uint8Array} bytes @returns {Json} */
function parseManifest(bytes) {
  const plain = (value, depth) => {
    if (typeof value === "string") return !/[\0-\x1f\x7f]|\p{Surrogate}/u.test(value);
    if (typeof value !== "object") return typeof value === "boolean" || Number.isSafeInteger(value);
    return value && depth <= 8 && Object.values(value).every((item) => plain(item, depth + 1)) && (Array.isArray(value)
      || Object.keys(value).every((key, i, keys) => /^[A-Za-z_][A-Za-z0-9_.-]{0,63}$/.test(key) && (!i || keys[i - 1] < key)));
  };
  const line = (value) => Array.isArray(value) && value.length ? `[\n${value.map(ascii).join(",\n")}\n]` : ascii(value);
  let good = false, because = "was it edited?", manifest;
  try {
    const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
    manifest = JSON.parse(text);
    good = isObject(manifest) && plain(manifest, 1) &&
      text === `{\n${Object.keys(manifest).map((key) => `${ascii(key)}:${line(manifest[key])}`).join(",\n")}\n}\n`;
  } catch (error) {
    because = error.message;
  }
  if (!good) fail("bundle.manifest.syntax", "manifest.json", `it is not canonical JSON: ${because}`);
  return manifest;
}

// ---- checking the manifest ---------------------------------------------------------------------------------

const FEATURES = ["count", "entries", "if", "loop", "state", "symbols"];
const SYMBOL_LIMIT = 2 ** 31 - 1;

/** @typedef {(value: any, at: string) => void} Check */

/** @type {(test: (value: any) => boolean) => Check} */
const is = (test) => (value, at) => {
  if (!test(value)) fail("bundle.field", at, `${ascii(value)?.slice(0, 80)} is not allowed`);
};
const int = (low = 0, high = LIMIT) => is((value) => Number.isInteger(value) && value >= low && value <= high);
const text = (least = 0, most = 4096) =>
  is((value) => typeof value === "string" && value.length >= least && value.length <= most);
const matches = (pattern) => is((value) => typeof value === "string" && pattern.test(value));
const oneOf = (...values) => is((value) => values.includes(value));
/** @type {(item: Check, most: number, least?: number) => Check} */
const list = (item, most, least = 0) => (value, at) => {
  is(Array.isArray)(value, at);
  if (value.length < least || value.length > most) fail("bundle.count", at);
  value.forEach((element, i) => item(element, `${at}[${i}]`));
};
/** Exactly these members, or at least these and at most 64. @type {(members: Record<string, Check>, free?: boolean) => Check} */
const record = (members, free) => {
  const keys = Object.keys(members).sort();
  return (value, at) => {
    is(isObject)(value, at);
    const given = Object.keys(value);
    const odd = keys.find((key) => !given.includes(key)) ?? (free ? undefined : given.find((key) => !keys.includes(key)));
    if (odd) fail("bundle.field", `${at}.${odd}`);
    if (free && given.length > 64) fail("bundle.count", at);
    for (const key of keys) members[key](value[key], `${at}.${key}`);
  };
};

const NAME = text(1, 1024), TEXT = text(), INDEX = int(-1), INT = int(), SIZE = int(0, SYMBOL_LIMIT);
const DTYPE = oneOf(...Object.keys(STORAGES)), FREE = record({}, true);
const PIECE = {file: INDEX, offset: INT, bytes: INT};
const TOKENS = list(is((token) => typeof token === "string" || Number.isInteger(token)), 255, 1);
/** @type {Check} */
const EXPRESSION = (value, at) => (Array.isArray(value) ? TOKENS : int(-LIMIT))(value, at);
/** A port or a state. @type {(members: Record<string, Check>) => Check} */
const port = (members) => {
  const check = record({name: NAME, dtype: DTYPE, storage: DTYPE, shape: list(EXPRESSION, 8), buffer: INDEX, ...members});
  return (value, at) => {
    check(value, at);
    oneOf(...STORAGES[value.dtype])(value.storage, at);
  };
};
const SLICES = list(record({name: NAME, axis: int(0, 7), start: INT, size: INT}), 256);
const INPUT = port({slices: SLICES, count: INDEX});
const STEPS = {
  launch: record({op: TEXT, kernel: INDEX, buffers: list(INDEX, 64), counts: list(EXPRESSION, 3, 3), flops: INT,
    nodes: list(TEXT, 1024)}),
  copy: record({op: TEXT, source: INDEX, source_offset: INT, destination: INDEX, destination_offset: INT,
    bytes: EXPRESSION}),
  if: record({op: TEXT, condition: INDEX, then: INT, otherwise: INT}),
  loop: record({op: TEXT, condition: INDEX, bound: int(1, SYMBOL_LIMIT), body: INT}),
};

const ROOT = record({
  format: TEXT, version: INT, features: list(text(0, 64), 64), tool: text(0, 64), target: TEXT, options: FREE,
  requirements: record({bindings: INT, binding_bytes: INT, buffer_bytes: INT, invocations: INT, workgroups: INT,
    workgroup_bytes: INT}, true),
  peak_bytes: INT,
  symbols: list(record({name: NAME, min: SIZE, max: SIZE, step: int(1, SYMBOL_LIMIT)}), 32),
  inputs: list((value, at) => {
    INPUT(value, at);
    oneOf(-1)(value.count, at);
    oneOf(0)(value.slices.length, at);
  }, 1024),
  outputs: list(INPUT, 1024),
  states: list(port({initial: INDEX, update: oneOf("replace", "shift"), axis: int(0, 7)}), 1024),
  entries: list(record({name: NAME, inputs: list(INDEX, 1024), outputs: list(INDEX, 1024), steps: list(INT, 2, 2)}), 64, 1),
  arenas: list(record({bytes: int(0, 2 ** 40)}), 64),
  buffers: list(record({arena: INDEX, weight: INDEX, offset: INT, bytes: INT}), 262144),
  weights: list(record({name: NAME, dtype: DTYPE, storage: DTYPE, shape: list(INT, 8), bytes: INT,
    segments: list(record(PIECE), 4096, 1)}), 65536),
  prelude: record(PIECE),
  kernels: list(record({...PIECE, entry: matches(/^[A-Za-z_][A-Za-z0-9_]{0,127}$/), workgroup: list(int(1, 65536), 3, 3),
    bindings: list(record({access: oneOf("read", "read_write"), dtype: matches(/^[a-z0-9_]{1,32}$/)}), 64, 1),
    moves: list(FREE, 256), symbols: oneOf(true, false)}), 16384),
  steps: list((value, at) => {
    is((step) => isObject(step) && Object.hasOwn(STEPS, step.op))(value, at);
    STEPS[value.op](value, at);
  }, 262144),
  golden: list(record({entry: INDEX, seed: int(0, 2 ** 32 - 1), steps: int(1, 1024), symbols: list(SIZE, 32),
    tolerance: INT, made: TEXT,
    inputs: list(record({...PIECE, min: int(-(2 ** 31), 2 ** 32 - 1), max: int(-(2 ** 31), 2 ** 32 - 1)}), 1024),
    outputs: list(record({...PIECE, stride: int(1)}), 1024)}), 64),
  files: list(record({name: TEXT, bytes: INT, sha256: matches(/^[0-9a-f]{64}$/)}), 4096),
});

/** A checker of one stage: `need(condition, where)`. */
const stage = (id) => (good, at, because) => {
  if (!good) fail(id, at, because);
};

/** Stages 2 to 10 of bundle.md. @param {Json} m the manifest */
function checkManifest(m) {
  const file = "manifest.json", next = "use the bundle's own tinyedge.js";
  const known = (key, id, good, value = m[key]) => good || fail(id, file, `its ${key} is ${ascii(value)}`, next);
  known("format", "bundle.format", m.format === "tinyedge-bundle");
  known("version", "bundle.version", m.version === 1);
  for (const feature of Array.isArray(m.features) ? m.features : [undefined]) {
    known("feature", "bundle.feature", FEATURES.includes(feature), feature);
  }
  known("target", "bundle.target", m.target === "webgpu");
  ROOT(m, "manifest");
  checkNames(m);
  checkIndices(m);
  const used = new Set(m.steps.map((step) => step.op));
  if (m.outputs.some((output) => output.count >= 0)) used.add("count");
  if (m.entries.length > 1) used.add("entries");
  if (m.states.length) used.add("state");
  if (m.symbols.length) used.add("symbols");
  for (const f of FEATURES) stage("bundle.feature")(!used.has(f) || m.features.includes(f), file, f);
  const ends = ["min", "max"].map((end) => evaluateAll(m, m.symbols.map((symbol) => symbol[end]), "bundle.expression"));
  checkBounds(m, ends);
  checkOverlaps(m, ends);
  checkRequirements(m, ends);
}

/** @param {Json} m */
function checkNames(m) {
  const need = stage("bundle.name");
  const unique = (names, at) => need(new Set(names).size === names.length, at);
  const increasing = (names, at) => need(names.every((name, i) => !i || names[i - 1] < name), at);
  const names = (items) => items.map((item) => item.name);
  increasing(m.features, "features");
  for (const key of ["inputs", "outputs", "states", "symbols", "entries"]) unique(names(m[key]), key);
  for (const output of m.outputs) unique(names(output.slices), output.name);
  unique(m.kernels.map((kernel) => kernel.entry), "kernels");
  for (const name of names(m.files)) need(/^(kernels|weights|golden)(-[0-9]{5})?\.[a-z0-9]{1,8}$/.test(name), name);
  increasing(names(m.files), "files");
}

/** @param {Json} m */
function checkIndices(m) {
  const need = stage("bundle.index");
  const index = (value, array, at) => need(value >= 0 && value < m[array].length, at, `there is no ${array}[${value}]`);
  const maybe = (value, array, at) => value === -1 || index(value, array, at);
  const file = ({file}, kind, at) => {
    index(file, "files", at);
    need(m.files[file].name.startsWith(kind), at);
  };
  file(m.prelude, "kernels", "prelude");
  for (const p of [...m.inputs, ...m.outputs, ...m.states]) index(p.buffer, "buffers", p.name);
  for (const o of m.outputs) maybe(o.count, "outputs", o.name);
  for (const s of m.states) maybe(s.initial, "weights", s.name);
  for (const e of m.entries) {
    for (const key of ["inputs", "outputs"]) {
      for (const i of e[key]) index(i, key, e.name);
      need(new Set(e[key]).size === e[key].length, e.name);
    }
    for (const i of e.outputs) need(m.outputs[i].count < 0 || e.outputs.includes(m.outputs[i].count), e.name);
  }
  for (const b of m.buffers) {
    need((b.arena < 0) !== (b.weight < 0), "buffers");
    maybe(b.arena, "arenas", "buffers");
    maybe(b.weight, "weights", "buffers");
  }
  for (const w of m.weights) for (const segment of w.segments) file(segment, "weights", w.name);
  for (const k of m.kernels) file(k, "kernels", k.entry);
  m.steps.forEach((step, i) => {
    if (step.op === "launch") {
      index(step.kernel, "kernels", `steps[${i}]`);
      need(step.buffers.length === m.kernels[step.kernel].bindings.length, `steps[${i}]`);
    }
    for (const buffer of step.buffers ?? (step.op === "copy" ? [step.source, step.destination] : [step.condition])) {
      index(buffer, "buffers", `steps[${i}]`);
    }
  });
  for (const g of m.golden) {
    index(g.entry, "entries", "golden");
    const e = m.entries[g.entry];
    need(g.symbols.length === m.symbols.length && g.inputs.length === e.inputs.length
      && g.outputs.length === e.outputs.length, "golden");
    for (const piece of g.inputs) if (piece.file !== -1) file(piece, "golden", "golden");
    for (const piece of g.outputs) file(piece, "golden", "golden");
  }
}

/**
 * The values of all expressions for one choice of the symbols' sizes.
 * @typedef {{inputs: number[][], outputs: number[][], states: number[][], steps: number[][]}} Sizes
 * @param {Json} m @param {number[]} sizes @param {string} id of the error @returns {Sizes}
 */
function evaluateAll(m, sizes, id) {
  const values = new Map(m.symbols.map((symbol, i) => [symbol.name, sizes[i]]));
  const all = (expressions, at) => expressions.map((expression) => evaluate(expression, values, at, id));
  const shapes = (ports) => ports.map((p) => all(p.shape, p.name));
  return {
    inputs: shapes(m.inputs), outputs: shapes(m.outputs), states: shapes(m.states),
    steps: m.steps.map((step, i) => all(step.counts ?? (step.op === "copy" ? [step.bytes] : []), `steps[${i}]`)),
  };
}

/** What stage 8 says of sizes. @param {Json} m @param {Sizes} sizes */
function checkSizes(m, sizes, need) {
  for (const key of ["inputs", "outputs", "states"]) {
    m[key].forEach((p, i) => {
      const shape = sizes[key][i];
      need(shape.every((size) => size >= 0) && product(shape) * itemSize(p.storage) <= m.buffers[p.buffer].bytes,
        p.name, `the shape [${shape}] does not fit its buffer`);
      if (p.count >= 0) need(product(sizes.outputs[p.count]) === 1, p.name);
    });
  }
  m.steps.forEach((step, i) => {
    const values = sizes.steps[i], at = `steps[${i}]`;
    if (step.op === "launch") need(values.every((count) => count >= 0 && count <= SYMBOL_LIMIT), at);
    else if (step.op === "copy") {
      const inside = (buffer, offset) => offset % 4 === 0 && offset + values[0] <= m.buffers[buffer].bytes;
      need(values[0] >= 0 && values[0] % 4 === 0 && inside(step.source, step.source_offset)
        && inside(step.destination, step.destination_offset), at);
    }
  });
}

/** @param {Json} m @param {Sizes[]} ends */
function checkBounds(m, ends) {
  const need = stage("bundle.bounds"), aligned = (bytes) => bytes % 256 === 0;
  const inFile = ({file, offset, bytes}) => offset + bytes <= m.files[file].bytes;
  const inArena = (buffer) => m.buffers[buffer].arena >= 0;
  const suits = (value, {min, max, step}) => value >= min && value <= max && (value - min) % step === 0;
  for (const s of m.symbols) need(suits(s.max, s), s.name);
  for (const {bytes} of m.arenas) need(bytes > 0 && aligned(bytes), "arenas");
  need([...m.arenas, ...m.weights].reduce((sum, item) => sum + item.bytes, 0) === m.peak_bytes, "peak_bytes");
  for (const f of m.files) need(f.bytes <= (f.name.startsWith("kernels") ? 2 ** 26 : 2 ** 25), f.name);
  for (const w of m.weights) {
    need(w.bytes > 0 && w.bytes % 4 === 0 && w.segments.reduce((sum, s) => sum + s.bytes, 0) === w.bytes, w.name);
    w.segments.forEach((s, i) => need(
      aligned(s.offset) && s.bytes > 0 && inFile(s) && (i === w.segments.length - 1 || aligned(s.bytes)), w.name));
  }
  for (const k of [m.prelude, ...m.kernels]) need(inFile(k) && (k === m.prelude || k.bytes > 0), k.entry ?? "prelude");
  m.buffers.forEach((b, i) => {
    const whole = (m.arenas[b.arena] ?? m.weights[b.weight]).bytes;
    need(aligned(b.offset) && b.bytes > 0 && b.bytes % 4 === 0 && b.offset + b.bytes <= whole
      && (b.arena >= 0 || b.bytes === whole), `buffers[${i}]`);
  });
  for (const p of [...m.inputs, ...m.outputs, ...m.states]) need(inArena(p.buffer), p.name);
  for (const sizes of ends) checkSizes(m, sizes, need);
  m.outputs.forEach((o, i) => {
    for (const s of o.slices) need(s.start + s.size <= ends[0].outputs[i][s.axis], `${o.name}.${s.name}`);
    if (o.count >= 0) need(o.shape.length && /^u?int/.test(m.outputs[o.count].dtype), o.name);
  });
  for (const s of m.states) need(s.initial < 0 || m.weights[s.initial].bytes <= m.buffers[s.buffer].bytes, s.name);
  const block = (i, end, depth) => {
    while (i < end) {
      const step = m.steps[i], at = `steps[${i++}]`;
      if (step.op === "copy") need(inArena(step.destination), at);
      else if (step.op === "launch") {
        m.kernels[step.kernel].bindings.forEach(({access}, n) => need(access === "read" || inArena(step.buffers[n]), at));
      } else {
        need(inArena(step.condition) && depth < 8, at);
        for (const length of step.op === "if" ? [step.then, step.otherwise] : [step.body]) {
          need(i + length <= end, at);
          block(i, i + length, depth + 1);
          i += length;
        }
      }
    }
  };
  let reached = 0;
  for (const {name, steps: [first, count]} of m.entries) {
    need(first === reached && first + count <= m.steps.length, name);
    block(first, reached = first + count, 0);
  }
  need(reached === m.steps.length, "steps");
  for (const g of m.golden) {
    m.symbols.forEach((s, i) => need(suits(g.symbols[i], s), "golden"));
    const sizes = evaluateAll(m, g.symbols, "bundle.bounds"), entry = m.entries[g.entry];
    const bytes = (p, shape, stride = 1) => Math.ceil(product(shape) / stride) * itemSize(p.dtype);
    g.inputs.forEach((v, n) => {
      const i = entry.inputs[n], p = m.inputs[i];
      need(v.file >= 0 ? v.min === 0 && v.max === 0 && aligned(v.offset) && inFile(v) && v.bytes === bytes(p, sizes.inputs[i])
        : v.offset === 0 && v.bytes === 0 && suitsRange(p.dtype, v), "golden");
    });
    g.outputs.forEach((v, n) => {
      const i = entry.outputs[n];
      need(aligned(v.offset) && inFile(v) && v.bytes === bytes(m.outputs[i], sizes.outputs[i], v.stride), "golden");
    });
  }
}

/** Whether the generator can make this range of a dtype. */
function suitsRange(dtype, {min, max}) {
  if (dtype === "float16") return max === 1 && (min === 0 || min === -1);
  const size = 8 * itemSize(dtype);
  const [low, high] = isFloat(dtype) ? [-(2 ** 20), 2 ** 20] : dtype === "bool" ? [0, 1]
    : dtype[0] === "u" ? [0, 2 ** size - 1] : [-(2 ** (size - 1)), 2 ** (size - 1) - 1];
  return low <= min && min <= max && max <= high && max - min < 2 ** 32;
}

/** @param {Json} m @param {Sizes[]} ends */
function checkOverlaps(m, ends) {
  const need = stage("bundle.overlap");
  const range = (buffer, offset = 0, bytes = m.buffers[buffer].bytes) => {
    const {arena, weight, offset: start} = m.buffers[buffer];
    return {space: arena < 0 ? -1 - weight : arena, start: start + offset, end: start + offset + bytes};
  };
  const apart = (a, b) => a.space !== b.space || a.start >= b.end || b.start >= a.end;
  const same = (a, b) => a.space === b.space && a.start === b.start && a.end === b.end;
  for (const pieces of [m.weights.flatMap((w) => w.segments), [m.prelude, ...m.kernels]]) {
    pieces.forEach((b, i) => {
      const a = pieces[i - 1];
      need(!i || a.file < b.file || (a.file === b.file && a.offset + a.bytes <= b.offset), m.files[b.file].name);
    });
  }
  const pairs = (ranges, at, allow = (a, b) => false) => ranges.forEach((a, i) => {
    for (let j = 0; j < i; j++) need(apart(a, ranges[j]) || allow(a, ranges[j]), at);
  });
  const ports = (key, indices) => indices.map((i) => range(m[key][i].buffer));
  for (const e of m.entries) {
    pairs(ports("inputs", e.inputs), e.name);
    pairs(ports("outputs", e.outputs), e.name, same);
  }
  m.states.forEach((s, i) => {
    for (const p of [...m.inputs, ...m.outputs, ...m.states.slice(0, i)]) need(apart(range(s.buffer), range(p.buffer)), s.name);
  });
  m.steps.forEach((step, i) => {
    if (step.op === "launch") {
      const {bindings} = m.kernels[step.kernel];
      const bound = step.buffers.map((buffer, n) => ({...range(buffer), reads: bindings[n].access === "read"}));
      pairs(bound, `steps[${i}]`, (a, b) => a.reads && b.reads);
    } else if (step.op === "copy") {
      for (const {steps: {[i]: [bytes]}} of ends) {
        need(bytes === 0 || apart(range(step.source, step.source_offset, bytes),
          range(step.destination, step.destination_offset, bytes)), `steps[${i}]`);
      }
    }
  });
}

/** @param {Json} m @param {Sizes[]} ends */
function checkRequirements(m, ends) {
  const need = stage("bundle.requirement"), r = m.requirements;
  for (const {bytes} of [...m.arenas, ...m.weights]) need(bytes <= r.buffer_bytes, "buffer_bytes");
  for (const k of m.kernels) need(k.bindings.length <= r.bindings && product(k.workgroup) <= r.invocations, k.entry);
  m.steps.forEach((step, i) => {
    if (step.op !== "launch") return;
    for (const {steps} of ends) need(Math.max(...steps[i]) <= r.workgroups, `steps[${i}]`);
    step.buffers.forEach((buffer, n) => {
      const {bytes, arena} = m.buffers[buffer];
      need(bytes <= r.binding_bytes && m.kernels[step.kernel].bindings[n].access === (arena < 0 ? "read" : "read_write"), `steps[${i}]`);
    });
  });
}

// ---- fetching ----------------------------------------------------------------------------------------------

/**
 * A file of at most `most` bytes. `id` is what the errors' ids begin with.
 * @param {URL} base @param {string} name @param {number} most @param {AbortSignal | undefined} signal @param {string} id
 * @param {(bytes: number) => void} [received] @returns {Promise<Uint8Array<ArrayBuffer>>}
 */
async function fetchBytes(base, name, most, signal, id, received) {
  const url = new URL(name, base);
  const broken = (error) => {
    signal?.throwIfAborted();
    fail("load.network", name, `${url}: ${error.message}`,
      "check the connection, the server's CORS headers and this page's connect-src");
  };
  const response = await fetch(url, {signal}).catch(broken);
  if (!response.ok || !response.body) fail(`${id}.missing`, name, `${url} answered ${response.status}`, "check the address, and serve the whole folder");
  const bytes = new Uint8Array(most), reader = response.body.getReader();
  let length = 0;
  for (;;) {
    const {done, value} = await reader.read().catch(broken);
    if (done) return bytes.subarray(0, length);
    if (length + value.length > most) fail(`${id}.size`, name, `it has more than ${most} bytes`);
    bytes.set(value, length);
    length += value.length;
    received?.(value.length);
  }
}

/** A file of the bundle, with its length and hash checked. */
async function fetchFile(base, {name, bytes: size, sha256}, signal, received) {
  const bytes = await fetchBytes(base, name, size, signal, "bundle.file", received);
  if (bytes.length !== size) fail("bundle.file.size", name, `it has ${bytes.length} bytes, not ${size}`);
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  if (Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("") !== sha256) {
    fail("bundle.file.hash", name, "its contents are not those that were exported");
  }
  return bytes;
}

// ---- the device --------------------------------------------------------------------------------------------

/** The limits of a device that the bundle needs. @param {Json} m @returns {Record<string, number>} */
function neededLimits({requirements: r}) {
  return {
    maxStorageBuffersPerShaderStage: r.bindings,
    maxStorageBufferBindingSize: r.binding_bytes,
    maxBufferSize: r.buffer_bytes,
    maxComputeInvocationsPerWorkgroup: r.invocations,
    maxComputeWorkgroupsPerDimension: r.workgroups,
    maxComputeWorkgroupStorageSize: r.workgroup_bytes,
    maxComputeWorkgroupSizeX: r.invocations,
    maxComputeWorkgroupSizeY: r.invocations,
  };
}

/** @param {Record<string, number>} needed @param {any} offered */
function checkLimits(needed, offered) {
  for (const [name, value] of Object.entries(needed)) {
    if (value > offered[name]) fail("device.limits", "the GPU", `${name} is ${offered[name]}, the model needs ${value}`,
      "use a larger GPU, or export a smaller model");
  }
}

/** @param {Record<string, number>} requiredLimits @returns {Promise<GPUDevice>} */
async function openDevice(requiredLimits) {
  const gpu = globalThis.navigator?.gpu, subject = "WebGPU";
  if (!gpu) {
    fail("device.webgpu", subject, isSecureContext ? "this browser does not have it" : "only https and localhost have it",
      "use Chrome or Edge 113 (Android: 121), Safari 26, Firefox 141, or later");
  }
  const adapter = await gpu.requestAdapter({powerPreference: "high-performance"});
  if (!adapter) fail("device.adapter", subject, "the browser offers no GPU", "turn on hardware acceleration");
  checkLimits(requiredLimits, adapter.limits);
  // A limit below the usual one leaves the usual one.
  /** @type {GPUFeatureName[]} */
  const requiredFeatures = adapter.features.has("timestamp-query") ? ["timestamp-query"] : [];
  return adapter.requestDevice({label: "tinyedge", requiredFeatures, requiredLimits}).catch(({message}) =>
    fail("device.request", subject, message, "load the model again"));
}

// ---- loading -----------------------------------------------------------------------------------------------

const DOWNLOADS = 3;

/** @type {import("./tinyedge.js").load} */
export const load = (url, options) => Model.load(url, options);

// ---- the model ---------------------------------------------------------------------------------------------

/** Everything a run needs is made in `start`, so that a run only writes, dispatches and reads. */
class Model {
  #base; #owned; #disposed = false; #lost = ""; #gone;
  /** Work in order: each run starts when the one before has its outputs. */
  #tail = Promise.resolve(); #waiting = 0;
  #owns = []; #weights; #ranges; #values; #uniform; #staging; #readback; #transfer; #layouts; #groups; #pipelines; #queries;
  /** The symbols' sizes last evaluated, and last written to the GPU. */
  #sizes; #key; #written;

  static async load(url, {onProgress, signal, device: given, limits = {}} = {}) {
    signal?.throwIfAborted();
    const base = new URL(url, globalThis.document?.baseURI ?? globalThis.location?.href);
    base.pathname = base.pathname.replace(/(\/manifest\.json)?\/*$/, "/");
    const bytes = await fetchBytes(base, "manifest.json", MANIFEST_BYTES, signal, "bundle.manifest");
    const manifest = parseManifest(bytes);
    checkManifest(manifest);

    const needed = neededLimits(manifest), device = given ?? await openDevice({...needed, ...limits});
    const model = new Model(manifest, base, device, !given);
    model.stats.bytesFetched = bytes.length;
    // After a failure the other downloads must stop too.
    const stop = new AbortController(), either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
    const stopped = new Promise((_, reject) => either.addEventListener("abort", () => reject(either.reason)));
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

  constructor(manifest, base, device, owned) {
    const m = this.manifest = manifest, names = (key, indices) => indices.map((i) => m[key][i].name);
    const shown = ({name, dtype, storage, shape}) => ({name, dtype, storage, shape: shape.map(
      (size) => Array.isArray(size) ? size.join(" ").replaceAll("$", "") : size)});
    this.#base = base;
    this.device = device;
    this.#owned = owned;
    this.inputs = m.inputs.map(shown);
    this.outputs = m.outputs.map(shown);
    this.symbols = m.symbols;
    this.entries = m.entries.map((e) => (
      {name: e.name, inputs: names("inputs", e.inputs), outputs: names("outputs", e.outputs)}));
    this.stats = {bytesFetched: 0, bufferBytes: 0, pipelines: 0, bindGroups: 0, runs: 0, launches: 0, passes: 0,
      submits: 0, uniformWrites: 0};
    this.#gone = device.lost.then(({message}) => {
      this.#lost = message || "no reason given";
      this.#check();
    });
    this.#gone.catch(() => {});
  }

  /** Throws when the model can run no more. */
  #check() {
    if (this.#disposed) fail("run.disposed", "the model", "it was disposed", "load it again");
    if (this.#lost) fail("device.lost", "the device", `it was lost: ${this.#lost}`, "load the model again");
  }

  /** Weights arrive while the pipelines compile. */
  async #start(signal, onProgress) {
    const {manifest: m, stats, device} = this;
    const needed = m.files.filter(({name}) => !name.startsWith("golden"));
    const total = needed.reduce((sum, {bytes}) => sum + bytes, 0);
    let loaded = 0;
    const report = () => onProgress?.({loaded, total, compiled: stats.pipelines, pipelines: m.kernels.length});
    report();
    device.pushErrorScope("validation");
    device.pushErrorScope("out-of-memory");
    this.#allocate();
    const faults = await Promise.all([device.popErrorScope(), device.popErrorScope()]);
    this.#check();
    for (const fault of faults) if (fault) fail("device.memory", "the GPU", fault.message, "use a larger GPU, or export a smaller model");
    const uploads = m.files.map(() => []);
    m.weights.forEach(({segments}, i) => {
      let {buffer, offset: at} = this.#weights[i];
      for (const segment of segments) {
        uploads[segment.file].push({...segment, buffer, at});
        at += segment.bytes;
      }
    });
    const sources = [], tasks = [];
    for (const file of needed) {
      const number = m.files.indexOf(file);
      const task = Promise.resolve(tasks.at(-DOWNLOADS)).then(() => fetchFile(this.#base, file, signal, (count) => {
        loaded += count;
        stats.bytesFetched += count;
        report();
      })).then((bytes) => {
        this.#check();
        for (const piece of uploads[number]) device.queue.writeBuffer(piece.buffer, piece.at, bytes, piece.offset, piece.bytes);
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
    const {COPY_SRC, COPY_DST, STORAGE, UNIFORM, MAP_READ} = GPUBufferUsage, memory = STORAGE | COPY_SRC | COPY_DST;
    const create = (label, size, usage) => size ? this.#create(label, size, usage) : null;
    const arenas = m.arenas.map(({bytes}, i) => create(`arena ${i}`, bytes, memory));
    // Weights lie one after the other in few buffers.
    const pools = [];
    const places = m.weights.map(({bytes}) => {
      const last = pools.length - 1, offset = Math.ceil(pools[last] / 256) * 256;
      if (offset + bytes <= device.limits.maxBufferSize) pools[last] = offset + bytes;
      else return {pool: pools.push(bytes) - 1, offset: 0};
      return {pool: last, offset};
    });
    const filled = pools.map((bytes, i) => create(`weights ${i}`, bytes, memory));
    this.#weights = places.map(({pool, offset}) => ({buffer: filled[pool], offset}));
    this.#ranges = m.buffers.map(({arena, weight, offset, bytes: size}) => arena < 0
      ? {...this.#weights[weight], size} : {buffer: arenas[arena], offset, size});
    this.#values = new Int32Array(Math.ceil(m.symbols.length / 4) * 4);
    const needsSymbols = m.kernels.some(({symbols}) => symbols);
    this.#uniform = create("symbols", needsSymbols ? this.#values.byteLength || 16 : 0, UNIFORM | COPY_DST);

    // Where each entry's outputs are copied to be read.
    let staged = m.steps.some(({condition}) => condition >= 0) ? 4 : 0;
    this.#staging = m.entries.map(({outputs}) => {
      let end = 0;
      const offsets = outputs.map((i) => (end += m.buffers[m.outputs[i].buffer].bytes) - m.buffers[m.outputs[i].buffer].bytes);
      staged = Math.max(staged, end);
      return offsets;
    });
    this.#readback = create("readback", staged, MAP_READ | COPY_DST);
    // A copy inside one GPU buffer is not allowed: it goes by way of another.
    const copied = m.steps.filter(({op}) => op === "copy").map(({source}) => this.#ranges[source].size);
    this.#transfer = {buffer: create("transfer", Math.max(0, ...copied), COPY_SRC | COPY_DST)};

    const made = new Map(), once = (key, make) => made.get(key) ?? made.set(key, make()).get(key);
    const signature = ({bindings, symbols}) => bindings.map(({access}) => access) + (symbols ? ",symbols" : "");
    this.#layouts = m.kernels.map((kernel) => once(signature(kernel), () => {
      const types = kernel.bindings.map(({access}) => access === "read" ? "read-only-storage" : "storage");
      if (kernel.symbols) types.push("uniform");
      const group = device.createBindGroupLayout({
        entries: types.map((type, binding) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type}})),
      });
      return {group, pipeline: device.createPipelineLayout({bindGroupLayouts: [group]})};
    }));
    this.#groups = m.steps.map((step) => step.op === "launch" && once(`${signature(m.kernels[step.kernel])}:${step.buffers}`, () => {
      const resources = step.buffers.map((buffer) => this.#ranges[buffer]);
      if (m.kernels[step.kernel].symbols) resources.push({buffer: this.#uniform});
      stats.bindGroups++;
      return device.createBindGroup({
        layout: this.#layouts[step.kernel].group, entries: resources.map((resource, binding) => ({binding, resource})),
      });
    }));
  }

  async #compile(sources, report) {
    const {manifest: m, device, stats} = this;
    const source = ({file, offset, bytes}) => {
      const part = sources[file].subarray(offset, offset + bytes);
      if (part.some((byte) => byte > 127)) fail("bundle.file.text", m.files[file].name, "a kernel is not ASCII");
      return new TextDecoder().decode(part);
    };
    const prelude = source(m.prelude), codes = m.kernels.map((kernel) => prelude + source(kernel));
    // Faults of a module come back with its pipeline; the scope keeps them off the page's console.
    device.pushErrorScope("validation");
    const modules = codes.map((code, i) => device.createShaderModule({label: `tinyedge ${m.kernels[i].entry}`, code}));
    device.popErrorScope().catch(() => {});
    this.#pipelines = await Promise.all(m.kernels.map(async ({entry}, i) => {
      const module = modules[i], layout = this.#layouts[i].pipeline;
      try {
        const pipeline = await device.createComputePipelineAsync(
          {label: `tinyedge ${entry}`, layout, compute: {module, entryPoint: entry}});
        stats.pipelines++;
        report();
        return pipeline;
      } catch (error) {
        this.#check();
        const fault = (await module.getCompilationInfo()).messages.find(({type}) => type === "error");
        fail("device.kernel", `kernel ${entry}`, fault ? `line ${fault.lineNum}: ${fault.message}` : error.message,
          "report it: it is a fault of ours");
      }
    }));
  }

  /** Do `work` after all the work before; at once when there is none. */
  #enqueue(work) {
    const result = this.#waiting++ ? this.#tail.then(work) : work();
    const done = () => void this.#waiting--;
    this.#tail = result.then(done, done);
    return result;
  }

  /** @type {import("./tinyedge.js").Model["run"]} */
  async run(inputs, {entry, symbols, keep = []} = {}) {
    const plan = this.#plan(inputs, entry, symbols);
    // The caller may change its arrays as soon as run returns.
    if (this.#waiting) for (const write of plan.writes) write.bytes = write.bytes?.slice();
    return this.#enqueue(() => this.#replay(plan, keep));
  }

  /** Check what the caller gave; nothing reaches the device before all of it is right. */
  #plan(inputs, name = this.entries[0].name, named = {}) {
    this.#check();
    const m = this.manifest, index = m.entries.findIndex((e) => e.name === name), entry = m.entries[index];
    if (!entry) fail("run.entry", `entry "${name}"`, "the model has no such entry", `use one of ${this.entries.map((e) => e.name)}`);
    const names = this.entries[index].inputs, takes = `give ${names.join(", ") || "none"}`;
    for (const given of Object.keys(inputs)) {
      if (!names.includes(given)) fail("run.input", `input "${given}"`, "the model has no such input", takes);
    }
    const given = names.map((key) => {
      const value = Object.hasOwn(inputs, key) ? inputs[key] : null;
      if (value === null || value === undefined) fail("run.input", `input "${key}"`, "it is missing", takes);
      if (value instanceof GPUBuffer) return {buffer: value};
      return Array.isArray(value) || ArrayBuffer.isView(value) ? {data: value} : value;
    });
    const ports = entry.inputs.map((i) => m.inputs[i]);
    const symbols = this.#resolve(ports, given.map(({shape}) => shape && Array.from(shape)), named), key = symbols.join();
    if (this.#key !== key) {
      this.#sizes = evaluateAll(m, symbols, "run.shape");
      checkSizes(m, this.#sizes, stage("run.shape"));
      this.#key = key;
    }
    const writes = ports.map((p, n) => {
      const {data, buffer, offset = 0, shape} = given[n], whole = this.#sizes.inputs[entry.inputs[n]], elements = product(whole);
      const need = (good, because) => good || fail("run.shape", `input "${p.name}"`, because, `it takes ${p.dtype} [${whole}]`);
      const size = align4(elements * itemSize(p.storage));
      need(!shape || Array.from(shape).join() === whole.join(), `its shape is [${shape}]`);
      if (buffer) {
        need(offset % 4 === 0 && offset + size <= buffer.size, `the GPU buffer does not hold ${size} bytes at ${offset}`);
        // Writing the other inputs could overwrite it.
        need(!this.#owns.includes(buffer), "it is the model's own memory: copy it first");
        return {to: this.#ranges[p.buffer], buffer, offset, size};
      }
      const bytes = toStorage(data, p);
      need(data.length === elements, `it has ${data.length} elements, not ${elements}`);
      return {to: this.#ranges[p.buffer], bytes, size};
    });
    return {index, entry, symbols, key, sizes: this.#sizes, writes};
  }

  /** The symbols' sizes: from the given shapes, else by name, else the maxima. @returns {number[]} */
  #resolve(ports, shapes, named) {
    const {symbols} = this, found = new Map();
    const need = (good, subject, because, next) => good || fail("run.shape", subject, because, next);
    const set = (name, size, subject) => {
      const symbol = symbols.find((s) => s.name === name);
      need(symbol, subject, "the model has no such size", `it has ${symbols.map((s) => s.name)}`);
      const {min, max, step} = symbol;
      need(size >= min && size <= max && (size - min) % step === 0, subject, `${name} cannot be ${size}`, `give ${min}..${max}, step ${step}`);
      need((found.get(name) ?? size) === size, subject, `${name} is both ${size} and ${found.get(name)}`, "make them equal");
      found.set(name, size);
    };
    for (const name of Object.keys(named)) set(name, named[name], `size "${name}"`);
    ports.forEach(({name: input, shape: sizes}, i) => {
      const shape = shapes[i], subject = `input "${input}"`;
      need(!shape || shape.length === sizes.length, subject, `its shape is [${shape}]`, `give ${sizes.length} axes`);
      sizes.forEach((size, axis) => {
        if (!Array.isArray(size) || size.length > 1) return;
        const name = size[0].slice(1), {min, max} = symbols.find((s) => s.name === name);
        if (shape) set(name, shape[axis], subject);
        else need(found.has(name) || min === max, subject, `its size ${name} is not known`, "give {data, shape}");
      });
    });
    return symbols.map(({name, max}) => found.get(name) ?? max);
  }

  /** One run: write the inputs, one pass (more only around copies), one submit, read the outputs. */
  async #replay({index, entry, symbols, key, sizes, writes}, keep, queries) {
    this.#check();
    const {manifest: m, device, stats} = this, run = {sizes, queries, encoder: null, pass: null};
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
    const outputs = entry.outputs.map((i, n) => {
      const p = m.outputs[i], shape = sizes.outputs[i], from = this.#ranges[p.buffer], offset = this.#staging[index][n];
      const size = align4(product(shape) * itemSize(p.storage)), kept = keep === true || keep.includes(p.name);
      if (!kept && size) this.#copy(run, from, from.offset, {buffer: this.#readback}, offset, size);
      if (!kept) end = Math.max(end, offset + size);
      return {i, p, shape, offset, kept: kept && {...from, size}};
    });
    this.#submit(run);
    stats.runs++;
    const bytes = end ? await this.#read(end) : new ArrayBuffer(0), results = {}, arrays = [];
    for (const {i, p, shape, offset, kept} of outputs) if (!kept) arrays[i] = fromStorage(bytes, offset, product(shape), p);
    for (const {i, p: {name, dtype, storage, count, slices}, shape: whole, kept} of outputs) {
      const shape = [...whole];
      if (kept) results[name] = {name, dtype, storage, shape, gpu: kept};
      else {
        if (arrays[count]) shape[0] = Math.max(0, Math.min(shape[0], Number(arrays[count][0])));
        results[name] = {name, dtype, shape, data: arrays[i].subarray(0, product(shape)), get slices() {
          return cut(this, slices);
        }};
      }
    }
    return results;
  }

  /** Record steps [i, end). Only a branch, which must read its condition, waits. */
  async #walk(run, i, end) {
    const {manifest: m, stats} = this;
    while (i < end) {
      const step = m.steps[i], values = run.sizes.steps[i];
      if (step.op === "launch") {
        if (values.every((count) => count > 0)) {
          if (run.queries || !run.pass) this.#begin(run, step);
          run.pass.setPipeline(this.#pipelines[step.kernel]);
          run.pass.setBindGroup(0, this.#groups[i]);
          run.pass.dispatchWorkgroups(values[0], values[1], values[2]);
          stats.launches++;
        }
      } else if (step.op === "copy") {
        const from = this.#ranges[step.source], to = this.#ranges[step.destination], [size] = values;
        let at = from.offset + step.source_offset, by = from;
        if (from.buffer === to.buffer && size) {
          by = this.#transfer;
          this.#copy(run, from, at, by, at = 0, size);
        }
        if (size) this.#copy(run, by, at, to, to.offset + step.destination_offset, size);
      } else if (step.op === "if") {
        const first = i + 1, second = first + step.then, after = second + step.otherwise;
        if (await this.#condition(run, step)) await this.#walk(run, first, second);
        else await this.#walk(run, second, after);
        i = after - 1;
      } else {
        for (let turn = 0; turn < step.bound && await this.#condition(run, step); turn++) {
          await this.#walk(run, i + 1, i + 1 + step.body);
        }
        i += step.body;
      }
      i++;
    }
  }

  #begin(run, step) {
    run.pass?.end();
    const {set, launches} = run.queries ?? {}, n = launches?.length * 2, options = {};
    if (n + 2 <= set?.count) {
      launches.push({kernel: this.manifest.kernels[step.kernel].entry, nodes: step.nodes, flops: step.flops});
      options.timestampWrites = {querySet: set, beginningOfPassWriteIndex: n, endOfPassWriteIndex: n + 1};
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
  async #read(size, buffer = this.#readback) {
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

  /** Whether the int32 at the start of a step's condition is not 0. */
  async #condition(run, step) {
    const {buffer, offset} = this.#ranges[step.condition];
    this.#copy(run, {buffer}, offset, {buffer: this.#readback}, 0, 4);
    this.#submit(run);
    const bytes = await this.#read(4);
    this.#check();
    run.encoder = this.device.createCommandEncoder();
    return new Int32Array(bytes)[0] !== 0;
  }

  /** States back to their initial values, after the runs already asked for. */
  async reset() {
    this.#check();
    return this.#enqueue(async () => this.#restore());
  }

  #restore() {
    this.#check();
    const encoder = this.device.createCommandEncoder();
    for (const {buffer, initial} of this.manifest.states) {
      const to = this.#ranges[buffer], from = this.#weights[initial];
      encoder.clearBuffer(to.buffer, to.offset, to.size);
      if (from) encoder.copyBufferToBuffer(from.buffer, from.offset, to.buffer, to.offset, this.manifest.weights[initial].bytes);
    }
    this.device.queue.submit([encoder.finish()]);
  }

  /** @type {import("./tinyedge.js").Model["example"]} */
  example({entry: name = this.entries[0].name, seed = 1, symbols = {}} = {}) {
    const m = this.manifest, index = m.entries.findIndex((e) => e.name === name), golden = m.golden.find((g) => g.entry === index);
    const sizes = evaluateAll(m, m.symbols.map((s) => symbols[s.name] ?? s.max), "run.shape");
    return this.#generated(m.entries[index], sizes, seed, 0, (p, n) => {
      const made = golden?.inputs[n];
      return made?.file < 0 ? made : isFloat(p.dtype) ? {min: -1, max: 1} : {min: 0, max: p.dtype === "bool" ? 1 : 7};
    });
  }

  /** Inputs of an entry; `choose` gives the stored values of an input, or the range of generated ones. */
  #generated(entry, sizes, seed, step, choose) {
    return Object.fromEntries(entry.inputs.map((i, n) => {
      const p = this.manifest.inputs[i], shape = sizes.inputs[i], chosen = choose(p, n);
      return [p.name, {data: chosen.length >= 0 ? chosen : generate(p.dtype, product(shape), seed, step, n, chosen), shape}];
    }));
  }

  /** @type {import("./tinyedge.js").Model["verify"]} */
  async verify({signal} = {}) {
    const m = this.manifest, files = new Map();
    for (const {inputs, outputs} of m.golden) for (const {file} of [...inputs, ...outputs]) if (file >= 0) files.set(file, null);
    for (const file of files.keys()) files.set(file, await fetchFile(this.#base, m.files[file], signal, (n) => void (this.stats.bytesFetched += n)));
    const stored = ({file, offset, bytes}, {dtype}) =>
      fromStorage(files.get(file).buffer, files.get(file).byteOffset + offset, bytes / itemSize(dtype), {dtype, storage: dtype});
    return this.#enqueue(async () => {
      const cases = [];
      for (const golden of m.golden) {
        const {seed, made, tolerance} = golden, entry = m.entries[golden.entry];
        const sizes = evaluateAll(m, golden.symbols, "run.shape");
        const symbols = Object.fromEntries(m.symbols.map(({name}, i) => [name, golden.symbols[i]]));
        let results = {};
        this.#restore();
        for (let step = 0; step < golden.steps; step++) {
          const inputs = this.#generated(entry, sizes, seed, step, (p, n) =>
            golden.inputs[n].file < 0 ? golden.inputs[n] : stored(golden.inputs[n], p));
          results = await this.#replay(this.#plan(inputs, entry.name, symbols), []);
        }
        const outputs = entry.outputs.map((i, n) => {
          const p = m.outputs[i], v = golden.outputs[n];
          return {name: p.name, ...compare(results[p.name].data, stored(v, p), v.stride, tolerance / 1e6)};
        });
        cases.push({entry: entry.name, seed, made, tolerance: tolerance / 1e6, passed: outputs.every(({passed}) => passed), outputs});
      }
      this.#restore();
      return {passed: cases.every(({passed}) => passed), cases};
    });
  }

  /** @type {import("./tinyedge.js").Model["profile"]} */
  async profile(inputs = this.example(), {entry, symbols} = {}) {
    const plan = this.#plan(inputs, entry, symbols), {device} = this;
    if (!device.features.has("timestamp-query")) {
      fail("device.timestamps", "the device", "it has no timestamps", "measure whole runs");
    }
    const bytes = 32768, {QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ} = GPUBufferUsage;
    this.#queries ??= {
      set: device.createQuerySet({type: "timestamp", count: bytes / 8}),
      resolved: this.#create("timestamps", bytes, QUERY_RESOLVE | COPY_SRC),
      mapped: this.#create("timestamps", bytes, MAP_READ | COPY_DST),
    };
    return this.#enqueue(async () => {
      const {set, resolved, mapped} = this.#queries, launches = [], encoder = device.createCommandEncoder();
      await this.#replay(plan, true, {set, launches});
      encoder.resolveQuerySet(set, 0, 2 * launches.length, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, mapped, 0, bytes);
      device.queue.submit([encoder.finish()]);
      const times = new BigUint64Array(await this.#read(bytes, mapped));
      return launches.map((launch, i) => ({...launch, milliseconds: Number(times[2 * i + 1] - times[2 * i]) / 1e6}));
    });
  }

  dispose() {
    this.#disposed = true;
    for (const buffer of this.#owns) buffer.destroy();
    if (this.#owned) this.device.destroy();
  }
}

// ---- outputs and goldens -----------------------------------------------------------------------------------

/** The named parts of an output. */
function cut({data, shape}, slices) {
  return Object.fromEntries(slices.map(({name, axis, start, size}) => {
    const outer = product(shape.slice(0, axis)), inner = product(shape.slice(axis + 1));
    const part = new data.constructor(outer * size * inner);
    for (let i = 0; i < outer; i++) {
      const from = (i * shape[axis] + start) * inner;
      part.set(data.subarray(from, from + size * inner), i * size * inner);
    }
    return [name, {data: part, shape: shape.with(axis, size)}];
  }));
}

/** The 32-bit finaliser of MurmurHash3. */
function mix(x) {
  x = (x + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** An input of a golden case: bundle.md has the formulas. */
function generate(dtype, elements, seed, run, position, {min, max}) {
  const start = mix(mix(mix(seed) + run) + position), big = isBig(dtype);
  const bits = dtype === "float16" ? 11 : 24, span = max - min;
  const data = new (arrayOf(dtype))(elements);
  for (let e = 0; e < elements; e++) {
    const h = mix(start + e);
    const value = isFloat(dtype) ? min + (h >>> (32 - bits)) * span / 2 ** bits : min + h % (span + 1);
    data[e] = big ? BigInt(value) : value;
  }
  return data;
}

/** Whether outputs agree with every stride-th expected value. */
function compare(actual, expected, stride, tolerance) {
  const exact = !/Float/.test(expected.constructor.name);
  let worst = 0, scale = 0, wrong = 0;
  for (let i = 0; i < expected.length && i * stride < actual.length; i++) {
    const a = actual[i * stride], b = expected[i];
    if (exact || !Number.isFinite(b)) wrong += Number(!Object.is(a, b));
    else {
      worst = Math.max(worst, Math.abs(a - b));
      scale = Math.max(scale, Math.abs(b));
    }
  }
  const passed = !wrong && worst <= tolerance * scale;
  return {passed, wrong, error: worst / (scale || 1)};
}
