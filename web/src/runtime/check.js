// Checking a manifest: stages 2 to 10 of bundle.md, in its order, with its error ids.

import {fail} from "./errors.js";
import {STORAGES, held, itemSize, isFloat, product, bytesOf} from "./types.js";
import {LIMIT, evaluate} from "./expressions.js";
import {BLOCK_BYTES, ascii, isObject} from "./manifest.js";

/** @typedef {Record<string, any>} Json */

/** What a bundle may need, and whether it does. */
const FEATURES = {
  blocks: (m) => m.blocks,
  count: (m) => m.outputs.some(({count}) => count >= 0),
  entries: (m) => m.entries[1],
  fallback: (m) => m.fallback,
  loop: (m) => m.steps.some(({op}) => op === "loop"),
  state: (m) => m.states[0],
  symbols: (m) => m.symbols[0],
};
const SYMBOL_LIMIT = 2 ** 31 - 1;

/** @typedef {(value: any, at: string) => void} Check */

/** @type {(test: (value: any) => boolean) => Check} */
const is = (test) => (value, at) =>
  test(value) || fail("bundle.field", at, `${ascii(value).slice(0, 80)} is not allowed`);
const int = (low = 0, high = LIMIT) =>
  is((value) => Number.isSafeInteger(value) && value >= low && value <= high);
const text = (least = 0, most = 4096) =>
  is((value) => typeof value === "string" && value.length >= least && value.length <= most);
const matches = (pattern) => is((value) => typeof value === "string" && pattern.test(value));
const oneOf = (...values) => is((value) => values.includes(value));
/** @type {(item: Check, most: number, least?: number) => Check} */
const list =
  (item, most, least = 0) =>
  (value, at) => {
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
    const odd =
      keys.find((key) => !given.includes(key)) ??
      (free ? undefined : given.find((key) => !keys.includes(key)));
    if (odd) fail("bundle.field", `${at}.${odd}`);
    if (free && given.length > 64) fail("bundle.count", at);
    for (const key of keys) members[key](value[key], `${at}.${key}`);
  };
};

const TYPE = oneOf(...Object.keys(STORAGES)),
  /** @type {Check} */
  DTYPE = (value, at) => {
    text(0, 4096)(value, at);
    TYPE(held(value), at);
  };
const TOKENS = list(
  is((token) => typeof token === "string" || Number.isSafeInteger(token)),
  255,
  1,
);
/** @type {Check} */
const EXPRESSION = (value, at) => (Array.isArray(value) ? TOKENS : int(-LIMIT))(value, at);
/** A record of which the storage can hold the type. @type {(check: Check) => Check} */
const stored = (check) => (value, at) => {
  check(value, at);
  oneOf(...STORAGES[held(value.dtype)])(value.storage, at);
};
/** An input: a port without a count and slices. @type {(check: Check) => Check} */
const plain = (check) => (value, at) => {
  check(value, at);
  oneOf(-1)(value.count, at);
  oneOf(0)(value.slices.length, at);
};
/** @type {Check} */
const STEP = (value, at) => {
  is((step) => isObject(step) && Object.hasOwn(STEPS, step.op))(value, at);
  STEPS[value.op](value, at);
};

// records: made of schema.py by python -m tinyedge.export.bundle.tables
const NUMBER = int();
const INDEX = int(-1);
const SIZE = int(0, 2147483647);
const STEP_SIZE = int(1, 2147483647);
const AXIS = int(0, 7);
const GOLDEN_BOUND = int(-2147483648, 4294967295);
const ANY_TEXT = text(0, 4096);
const SHORT_TEXT = text(0, 64);
const NAME = text(1, 1024);
const SHA256 = matches(/^(?=[0-9a-f]*$).{64}$/);
const FREE = record({}, true);
const RANGE = record({file: INDEX, offset: NUMBER, bytes: NUMBER});
const SLICE = record({name: NAME, axis: AXIS, start: NUMBER, size: NUMBER});
const PORT = stored(record({name: NAME, dtype: DTYPE, storage: TYPE, shape: list(EXPRESSION, 8), buffer: INDEX, slices: list(SLICE, 256), count: INDEX, axis: AXIS}));
const STATE = stored(record({name: NAME, dtype: DTYPE, storage: TYPE, shape: list(EXPRESSION, 8), buffer: INDEX, initial: INDEX, update: oneOf("replace", "shift"), axis: AXIS}));
const STEPS = {launch: record({op: ANY_TEXT, kernel: INDEX, buffers: list(INDEX, 64), grid: list(EXPRESSION, 3, 3), flops: NUMBER, nodes: list(ANY_TEXT, 1024)}), copy: record({op: ANY_TEXT, source: INDEX, source_offset: NUMBER, destination: INDEX, destination_offset: NUMBER, bytes: EXPRESSION}), loop: record({op: ANY_TEXT, condition: INDEX, bound: STEP_SIZE, body: NUMBER})};
const ROOT = record({format: ANY_TEXT, version: NUMBER, features: list(SHORT_TEXT, 64), tool: SHORT_TEXT, target: text(0, 32), options: FREE, requirements: record({bindings: NUMBER, binding_bytes: NUMBER, buffer_bytes: NUMBER, invocations: NUMBER, workgroups: NUMBER, workgroup_bytes: NUMBER}, true), peak_bytes: NUMBER, symbols: list(record({name: NAME, min: SIZE, max: SIZE, step: STEP_SIZE}), 32), inputs: list(plain(PORT), 1024), outputs: list(PORT, 1024), states: list(STATE, 1024), entries: list(record({name: NAME, inputs: list(INDEX, 1024), outputs: list(INDEX, 1024), steps: list(NUMBER, 2, 2)}), 64, 1), arenas: list(record({bytes: int(0, 1099511627776)}), 64), buffers: list(record({arena: INDEX, weight: INDEX, offset: NUMBER, bytes: NUMBER}), 262144), weights: list(record({name: NAME, dtype: DTYPE, storage: TYPE, shape: list(NUMBER, 8), bytes: NUMBER, segments: list(RANGE, 4096, 1)}), 65536), prelude: RANGE, kernels: list(record({file: INDEX, offset: NUMBER, bytes: NUMBER, entry: matches(/^(?=[A-Za-z_][A-Za-z0-9_]*$).{1,128}$/), workgroup: list(int(1, 65536), 3, 3), bindings: list(record({access: oneOf("read", "read_write"), dtype: matches(/^(?=[a-z0-9_]*$).{1,32}$/)}), 64, 1), moves: list(FREE, 256), symbols: oneOf(true, false)}), 16384), steps: list(STEP, 262144), golden: list(record({entry: INDEX, seed: int(0, 4294967295), steps: int(1, 1024), symbols: list(SIZE, 32), tolerance: NUMBER, made: ANY_TEXT, inputs: list(record({file: INDEX, offset: NUMBER, bytes: NUMBER, min: GOLDEN_BOUND, max: GOLDEN_BOUND}), 1024), outputs: list(record({file: INDEX, offset: NUMBER, bytes: NUMBER, stride: int(1)}), 1024)}), 64), files: list(record({name: ANY_TEXT, bytes: NUMBER, sha256: SHA256}), 4096), blocks: list(list(SHA256, 32), 4096), fallback: record({bytes: NUMBER, sha256: SHA256})});
// records end

const tensors = (m) => [...m.inputs, ...m.outputs, ...m.states];

/** A checker of one stage: `need(condition, where, because, next)`. */
export const stage = (id) => (good, at, because, next) => good || fail(id, at, because, next);

/** Stages 2 to 10 of bundle.md; the sizes where symbols are at their maxima. @param {Json} m the manifest */
export function checkManifest(m, target = "webgpu") {
  const file = "manifest.json",
    next = "use the bundle's own tinyedge.js";
  const known = (key, good, value = m[key]) =>
    good || fail(`bundle.${key}`, file, `its ${key} is ${ascii(value)}`, next);
  known("format", m.format === "tinyedge-bundle");
  known("version", m.version === 1);
  for (const feature of Array.isArray(m.features) ? m.features : [undefined]) {
    known("feature", Object.hasOwn(FEATURES, feature), feature);
  }
  known("target", m.target === target);
  ROOT({blocks: [], fallback: {bytes: 0, sha256: "0".repeat(64)}, ...m}, "manifest");
  checkNames(m);
  checkIndices(m);
  for (const f of Object.keys(FEATURES))
    stage("bundle.feature")(!FEATURES[f](m) || m.features.includes(f), file, f);
  const ends = ["min", "max"].map((end) =>
    evaluateAll(
      m,
      m.symbols.map((symbol) => symbol[end]),
      "bundle.expression",
    ),
  );
  checkBounds(m, ends);
  checkOverlaps(m, ends);
  checkRequirements(m, ends);
  return ends[1];
}

export const namesOf = (items) => items.map(({name}) => name);

/** @param {Json} m */
function checkNames(m) {
  const need = stage("bundle.name");
  const unique = (names, at) => need(new Set(names).size === names.length, at);
  const increasing = (names, at) =>
    need(
      names.every((name, i) => !i || names[i - 1] < name),
      at,
    );
  increasing(m.features, "features");
  for (const key of ["states", "symbols", "entries"]) unique(namesOf(m[key]), key);
  // Of ports that are there, each once: what else entries list is for the next stage.
  for (const e of m.entries)
    for (const key of ["inputs", "outputs"])
      unique(namesOf(m[key].filter((_, i) => e[key].includes(i))), e.name);
  for (const output of m.outputs) unique(namesOf(output.slices), output.name);
  unique(
    m.kernels.map((kernel) => kernel.entry),
    "kernels",
  );
  for (const name of namesOf(m.files))
    need(/^(kernels|weights|golden)(-\d{5})?\.[a-z0-9]{1,8}$/.test(name), name);
  increasing(namesOf(m.files), "files");
}

/** @param {Json} m */
function checkIndices(m) {
  const need = stage("bundle.index");
  const index = (value, array, at) =>
    need(value >= 0 && value < m[array].length, at);
  const maybe = (value, array, at) => value === -1 || index(value, array, at);
  const file = ({file}, kind, at) => {
    index(file, "files", at);
    need(m.files[file].name.startsWith(kind), at);
  };
  file(m.prelude, "kernels", "prelude");
  for (const p of tensors(m)) index(p.buffer, "buffers", p.name);
  for (const o of m.outputs) maybe(o.count, "outputs", o.name);
  for (const s of m.states) maybe(s.initial, "weights", s.name);
  for (const e of m.entries) {
    for (const key of ["inputs", "outputs"]) {
      for (const i of e[key]) index(i, key, e.name);
      need(new Set(e[key]).size === e[key].length, e.name);
    }
    for (const i of e.outputs)
      need(m.outputs[i].count < 0 || e.outputs.includes(m.outputs[i].count), e.name);
  }
  for (const b of m.buffers) {
    need(b.arena < 0 !== b.weight < 0, "buffers");
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
    for (const buffer of step.buffers ?? [step.condition ?? step.source, step.condition ?? step.destination]) {
      index(buffer, "buffers", `steps[${i}]`);
    }
  });
  for (const g of m.golden) {
    index(g.entry, "entries", "golden");
    const e = m.entries[g.entry];
    need(
      g.symbols.length === m.symbols.length &&
        g.inputs.length === e.inputs.length &&
        [0, m.states.length].includes(g.outputs.length - e.outputs.length),
      "golden",
    );
    for (const piece of g.inputs) if (piece.file !== -1) file(piece, "golden", "golden");
    for (const piece of g.outputs) file(piece, "golden", "golden");
  }
  if (m.blocks) {
    need(m.blocks.length === m.files.length, "blocks");
    m.files.forEach(({name, bytes}, i) =>
      need(
        m.blocks[i].length === (name.startsWith("weights") ? Math.ceil(bytes / BLOCK_BYTES) : 0),
        `blocks[${i}]`,
      ),
    );
  }
}

/**
 * The values of all expressions for one choice of the symbols' sizes.
 * @typedef {{inputs: number[][], outputs: number[][], states: number[][], steps: number[][], key?: string}} Sizes
 * @param {Json} m @param {number[]} sizes @param {string} id of the error @returns {Sizes}
 */
export function evaluateAll(m, sizes, id) {
  const values = new Map(m.symbols.map((symbol, i) => [symbol.name, sizes[i]]));
  const all = (expressions, at) =>
    expressions.map((expression) => evaluate(expression, values, at, id));
  const shapes = (ports) => ports.map((p) => all(p.shape, p.name));
  return {
    inputs: shapes(m.inputs),
    outputs: shapes(m.outputs),
    states: shapes(m.states),
    steps: m.steps.map((step, i) =>
      all(step.grid ?? [step.bytes ?? 0], `steps[${i}]`),
    ),
  };
}

/** What stage 8 says of sizes. @param {Json} m @param {Sizes} sizes */
export function checkSizes(m, sizes, need) {
  for (const key of ["inputs", "outputs", "states"]) {
    m[key].forEach((p, i) => {
      const shape = sizes[key][i];
      need(
        shape.every((size) => size >= 0) &&
          bytesOf(shape, p) <= m.buffers[p.buffer].bytes,
        p.name,
        `the shape [${shape}] does not fit its buffer`,
      );
      if (p.count >= 0) need(product(sizes.outputs[p.count]) === 1, p.name);
    });
  }
  m.steps.forEach((step, i) => {
    const values = sizes.steps[i],
      at = `steps[${i}]`;
    if (step.op === "launch")
      need(
        values.every((count) => count >= 0 && count <= SYMBOL_LIMIT),
        at,
      );
    else if (step.op === "copy") {
      const inside = (buffer, offset) =>
        offset % 4 === 0 && offset + values[0] <= m.buffers[buffer].bytes;
      need(
        values[0] >= 0 &&
          values[0] % 4 === 0 &&
          inside(step.source, step.source_offset) &&
          inside(step.destination, step.destination_offset),
        at,
      );
    }
  });
}

/** Whether a symbol can have this size. */
export const suits = (size, {min, max, step}) => size >= min && size <= max && (size - min) % step === 0;

/** @param {Json} m @param {Sizes[]} ends */
function checkBounds(m, ends) {
  const need = stage("bundle.bounds"),
    aligned = (bytes) => bytes % 256 === 0;
  const inFile = ({file, offset, bytes}) => offset + bytes <= m.files[file].bytes;
  const inArena = (buffer) => m.buffers[buffer].arena >= 0;
  for (const s of m.symbols) need(suits(s.max, s), s.name);
  for (const {bytes} of m.arenas) need(bytes > 0 && aligned(bytes), "arenas");
  need(
    [...m.arenas, ...m.weights].reduce((sum, item) => sum + item.bytes, 0) === m.peak_bytes,
    "peak_bytes",
  );
  for (const f of m.files)
    need(f.bytes <= (f.name.startsWith("kernels") ? 2 ** 26 : 2 ** 25), f.name);
  for (const w of m.weights) {
    need(
      w.bytes > 0 &&
        w.bytes % 4 === 0 &&
        w.segments.reduce((sum, s) => sum + s.bytes, 0) === w.bytes,
      w.name,
    );
    w.segments.forEach((s, i) =>
      need(
        aligned(s.offset) &&
          s.bytes > 0 &&
          inFile(s) &&
          (i === w.segments.length - 1 || aligned(s.bytes)),
        w.name,
      ),
    );
  }
  for (const k of [m.prelude, ...m.kernels])
    need(inFile(k) && (k === m.prelude || k.bytes > 0), k.entry ?? "prelude");
  m.buffers.forEach((b, i) => {
    const whole = (m.arenas[b.arena] ?? m.weights[b.weight]).bytes;
    need(
      aligned(b.offset) &&
        b.bytes > 0 &&
        b.bytes % 4 === 0 &&
        b.offset + b.bytes <= whole &&
        (b.arena >= 0 || b.bytes === whole),
      `buffers[${i}]`,
    );
  });
  for (const p of tensors(m)) need(inArena(p.buffer), p.name);
  for (const sizes of ends) checkSizes(m, sizes, need);
  m.outputs.forEach((o, i) => {
    for (const s of o.slices)
      need(s.start + s.size <= ends[0].outputs[i][s.axis], `${o.name}.${s.name}`);
    if (o.count >= 0) need(o.axis < o.shape.length && /^u?int/.test(m.outputs[o.count].dtype), o.name);
  });
  for (const s of m.states)
    need(s.initial < 0 || m.weights[s.initial].bytes <= m.buffers[s.buffer].bytes, s.name);
  const block = (i, end, depth) => {
    while (i < end) {
      const step = m.steps[i],
        at = `steps[${i++}]`;
      if (step.op === "copy") need(inArena(step.destination), at);
      else if (step.op === "launch") {
        m.kernels[step.kernel].bindings.forEach(({access}, n) =>
          need(access === "read" || inArena(step.buffers[n]), at),
        );
      } else {
        need(inArena(step.condition) && depth < 8 && i + step.body <= end, at);
        block(i, (i += step.body), depth + 1);
      }
    }
  };
  let reached = 0;
  for (const {
    name,
    steps: [first, count],
  } of m.entries) {
    need(first === reached && first + count <= m.steps.length, name);
    block(first, (reached = first + count), 0);
  }
  need(reached === m.steps.length, "steps");
  for (const g of m.golden) {
    m.symbols.forEach((s, i) => need(suits(g.symbols[i], s), "golden"));
    const sizes = evaluateAll(m, g.symbols, "bundle.bounds"),
      entry = m.entries[g.entry];
    const bytes = (p, shape, stride = 1) => Math.ceil(product(shape) / stride) * itemSize(p.dtype);
    g.inputs.forEach((v, n) => {
      const i = entry.inputs[n],
        p = m.inputs[i];
      need(
        v.file >= 0
          ? v.min === 0 &&
              v.max === 0 &&
              aligned(v.offset) &&
              inFile(v) &&
              v.bytes === bytes(p, sizes.inputs[i])
          : v.offset === 0 && v.bytes === 0 && suitsRange(p.dtype, v),
        "golden",
      );
    });
    g.outputs.forEach((v, n) => {
      const i = entry.outputs[n] ?? n - entry.outputs.length,
        of = n < entry.outputs.length ? "outputs" : "states";
      need(
        aligned(v.offset) &&
          inFile(v) &&
          (v.bytes === bytes(m[of][i], sizes[of][i], v.stride) || (of === "states" && !v.bytes)),
        "golden",
      );
    });
  }
}

/** Whether the generator can make this range of a dtype. */
function suitsRange(dtype, {min, max}) {
  if (dtype === "float16") return max === 1 && (min === 0 || min === -1);
  const bits = dtype === "bool" ? 1 : 8 * itemSize(dtype),
    signed = Number(dtype[0] === "i"),
    high = isFloat(dtype) ? 2 ** 20 : 2 ** (bits - signed) - 1,
    low = isFloat(dtype) ? -high : signed * (-1 - high);
  return low <= min && min <= max && max <= high && max - min < 2 ** 32;
}

/** @param {Json} m @param {Sizes[]} ends */
function checkOverlaps(m, ends) {
  const need = stage("bundle.overlap");
  const range = (buffer, reads, offset = 0, bytes = m.buffers[buffer].bytes) => {
    const {arena, weight, offset: from} = m.buffers[buffer],
      start = from + offset;
    return {space: arena < 0 ? -1 - weight : arena, start, end: start + bytes, reads};
  };
  for (const pieces of [m.weights.flatMap((w) => w.segments), [m.prelude, ...m.kernels]]) {
    pieces.forEach((b, i) => {
      const a = pieces[i - 1];
      need(
        !i || a.file < b.file || (a.file === b.file && a.offset + a.bytes <= b.offset),
        m.files[b.file].name,
      );
    });
  }
  /** No two overlap, unless for both the same allows it. From left to right, what overlaps any
   * overlaps the one that reaches furthest, which itself overlaps only what it may. */
  const pairs = (ranges, at) => {
    let last = {};
    for (const a of ranges.sort((a, b) => a.space - b.space || a.start - b.start)) {
      const apart = a.space !== last.space || a.start >= last.end;
      need(apart || (a.reads && a.reads === last.reads), at);
      if (apart || a.end > last.end) last = a;
    }
  };
  for (const e of m.entries) {
    pairs(
      e.inputs.map((i) => range(m.inputs[i].buffer)),
      e.name,
    );
    // Equal ones are allowed.
    pairs(
      e.outputs.map((i) => range(m.outputs[i].buffer, ascii(m.buffers[m.outputs[i].buffer]))),
      e.name,
    );
  }
  pairs(
    tensors(m).map((p) => range(p.buffer, !p.update)),
    "states",
  );
  m.steps.forEach((step, i) => {
    const at = `steps[${i}]`;
    if (step.op === "launch") {
      const {bindings} = m.kernels[step.kernel];
      pairs(
        step.buffers.map((buffer, n) => range(buffer, bindings[n].access === "read")),
        at,
      );
    } else if (step.op === "copy") {
      for (const {steps} of ends) {
        const [bytes] = steps[i];
        if (bytes)
          pairs(
            ["source", "destination"].map((key) =>
              range(step[key], false, step[`${key}_offset`], bytes),
            ),
            at,
          );
      }
    }
  });
}

/** @param {Json} m @param {Sizes[]} ends */
function checkRequirements(m, ends) {
  const need = stage("bundle.requirement"),
    r = m.requirements;
  for (const {bytes} of [...m.arenas, ...m.weights]) need(bytes <= r.buffer_bytes, "buffer_bytes");
  for (const k of m.kernels)
    need(k.bindings.length <= r.bindings && product(k.workgroup) <= r.invocations, k.entry);
  m.steps.forEach((step, i) => {
    if (step.op !== "launch") return;
    for (const {steps} of ends) need(Math.max(...steps[i]) <= r.workgroups, `steps[${i}]`);
    step.buffers.forEach((buffer, n) => {
      const {bytes, arena} = m.buffers[buffer];
      need(
        bytes <= r.binding_bytes &&
          m.kernels[step.kernel].bindings[n].access === (arena < 0 ? "read" : "read_write"),
        `steps[${i}]`,
      );
    });
  });
}
