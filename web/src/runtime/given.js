// What a caller gives, checked before anything of it reaches the device.

import {fail} from "./errors.js";
import {kindOf, bytesOf, toStorage} from "./types.js";
import {evaluate} from "./expressions.js";
import {stage, namesOf, evaluateAll, checkSizes, suits} from "./check.js";

/** The position of a name. */
export function find(names, id, kind, name) {
  const i = names.indexOf(name);
  if (i < 0) fail(id, `${kind} "${String(name)}"`, `there is no such ${kind}`, `use one of: ${names}`);
  return i;
}

/** @typedef {[(value: any) => any, string]} Kind */

const isFunction = /** @type {Kind} */ ([(value) => value instanceof Function, "a function"]),
  isFlag = /** @type {Kind} */ ([(value) => value === !!value, "a boolean"]),
  isRecord = /** @type {Kind} */ ([(value) => kindOf(value) === "Object", "values by name"]),
  among = (...names) => /** @type {Kind} */ ([(value) => names.includes(value), names.join(" or ")]);

/** Options, and what they must be, wherever they are taken: the last ones are those of `load`. @type {Record<string, Kind>} */
export const KINDS = {
  latest: isFlag,
  mirror: isFlag,
  classes: isFlag,
  symbols: isRecord,
  limits: isRecord,
  files: isRecord,
  fetch: isFunction,
  onProgress: isFunction,
  signal: [(value) => kindOf(value) === "AbortSignal", "an AbortSignal"],
  device: [(value) => value.queue, "a GPUDevice"],
  recover: among("states"),
  integrity: [(value) => /^[\da-f]{64}$/.test(value), "a SHA-256 in hex"],
  module: [(value) => kindOf(value) === "WebAssembly.Module", "a WebAssembly.Module"],
  backend: among("webgpu", "wasm"),
  powerPreference: among("low-power", "high-performance"),
};

/** A caller's options. One that does not exist is told: it may be a slip of the pen. */
export function chosen(options, names, id = "run.option") {
  // What is no object has no entries, and is no name.
  const entries = Object((options ??= {})) === options ? Object.entries(options) : [/** @type {any} */ ([[options]])];
  for (const [name, value] of entries) {
    find(names, id, "option", name);
    const [good, what] = (value != null && KINDS[name]) || [];
    if (good && !good(value))
      fail(id, `option "${name}"`, `it is ${kindOf(value)}`, `give ${what}`);
  }
  return options;
}

/**
 * Refuse addresses of files that a bundle lacks. What its other program has, of a name like theirs, is said by a manifest of its own, which
 * only a page that runs it has.
 */
export function checkAddresses(files, m) {
  for (const name in files)
    if (!m.fallback || !/^(kernels|weights|manifest)(-\d{5})?\.[a-z0-9]{1,8}$/.test(name))
      find(["manifest.json", ...namesOf(m.files)], "load.option", "file", name);
}

/** The position of an entry, by default of the first. */
export function entryOf({entries}, name = entries[0].name) {
  return find(namesOf(entries), "run.entry", "entry", name);
}

/** What a run with these inputs, entry and sizes by name does: its sizes, and what is written before it. */
export function plan(core, inputs, name, named) {
  inputs ??= {};
  const {parsed: m} = core,
    entry = m.entries[entryOf(m, name)],
    ports = entry.inputs.map((i) => m.inputs[i]),
    names = namesOf(ports);
  for (const given in inputs) find(names, "run.input", "input", given);
  const given = names.map((key) => {
    const value = Object.hasOwn(inputs, key) ? inputs[key] : null;
    if (value == null) fail("run.input", `input "${key}"`, "it is missing", "give it too");
    if (kindOf(value) === "GPUBuffer") return {buffer: value};
    const picture = core.pictured?.(key, value);
    if (picture) return picture;
    return !ArrayBuffer.isView(value) && (value.data ?? value.buffer) ? value : {data: value};
  });
  const shapes = given.map(({shape}) => shape && Array.from(shape, Number)),
    symbols = symbolsOf(m.symbols, ports, shapes, named),
    key = symbols.join();
  // The caller makes them the model's, once it refuses nothing: states have the last run's.
  let {sizes} = core;
  if (sizes.key !== key)
    checkSizes(m, (sizes = {key, ...evaluateAll(m, symbols, "run.shape")}), stage("run.shape"));
  const writes = ports.map((p, n) => {
    const {data, buffer, offset = 0} = given[n],
      shape = shapes[n],
      whole = sizes.inputs[entry.inputs[n]];
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
      need(!core.owns.includes(buffer), "it is the model's own memory");
      return {name: p.name, to: p.buffer, buffer, offset, size};
    }
    const bytes = toStorage(data, p, whole);
    return {to: p.buffer, bytes, size};
  });
  return {entry, symbols, sizes, writes, outputs: entry.outputs.map((i) => m.outputs[i].name)};
}

/** The symbols' sizes: from the given shapes, else by name, else the maxima. @returns {number[]} */
export function symbolsOf(symbols, ports, shapes, named) {
  const found = new Map(),
    need = stage("run.shape");
  const set = (name, size, subject) => {
    const symbol = symbols[find(namesOf(symbols), "run.shape", "size", name)],
      {min, max, step} = symbol;
    need(
      suits(size, symbol),
      subject,
      `${name} cannot be ${size}`,
      `give ${min}..${max}, step ${step}`,
    );
    found.set(name, size);
  };
  for (const name in named) set(name, Number(named[name]), `size "${name}"`);
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
