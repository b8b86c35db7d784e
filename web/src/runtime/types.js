// Element types, and the conversion between a caller's arrays and the bytes of a buffer.

import {fail} from "./errors.js";

/** @typedef {Record<string, any>} Json */

/** The storage types that each dtype may be kept as. @type {Record<string, string[]>} */
export const STORAGES = Object.fromEntries(
  [
    // storage: made of schema.py by python -m tinyedge.export.bundle.tables
    "bool uint8 int32 uint32",
    "int8 int16 int32",
    "int16 int32",
    "int32",
    "int64 int32",
    "uint8 uint16 uint32 int32",
    "uint16 uint32 int32",
    "uint32",
    "uint64 uint32",
    "float16 float32",
    "float32 float16",
    "float64 float32 float16",
    // storage end
  ]
    .map((line) => line.split(" "))
    .map((types) => [types[0], types]),
);

/** What else a caller may give for a dtype, beside its own array and a plain one. @type {Record<string, string>} */
const ALSO = {
  uint8: "Uint8ClampedArray",
  int64: "Int32Array",
  uint64: "Uint32Array",
  float64: "Float32Array",
  float16: "Float32Array",
};

/** The name of what a value is, such as "Float32Array"; of what another window made too. */
export function kindOf(value) {
  const kind = {}.toString.call(value).slice(8, -1);
  // Deno's GPUBuffer has only its class.
  return (kind === "Object" && value.constructor?.name) || kind;
}

/** What callers give and get: of a type like "uint16:bfloat16" the one that holds its codes. */
export const held = (type) => type.replace(/^(u?int(8|16)):\w{1,32}$/, "$1");
export const itemSize = (type) => Number(held(type).replace(/\D+/, "") || 8) / 8;
export const isFloat = (type) => type.startsWith("float");
export const isBig = (type) => type.endsWith("int64");
export const product = (sizes) => sizes.reduce((a, b) => a * b, 1);
/** Bytes of a port or state in a buffer, in whole words. @param {number[]} shape @param {Json} port */
export const bytesOf = (shape, {storage}) => Math.ceil((product(shape) * itemSize(storage)) / 4) * 4;

/** The typed array of a dtype or storage type. */
export const arrayOf = (type) =>
  type === "bool"
    ? Uint8Array
    : (globalThis[
        `${isBig(type) ? "Big" : ""}${type[0].toUpperCase()}${held(type).slice(1)}Array`
      ] ??
      fail(
        "device.float16",
        "the browser",
        "it has no Float16Array",
        "use a newer browser",
      ));

/**
 * The bytes of a caller's array as the buffer holds them, padded to whole words.
 * @param {any} data @param {Json} port @param {number[]} shape @returns {Uint8Array<ArrayBuffer>}
 */
export function toStorage(data, port, shape, kind = "input") {
  const {dtype, storage, name} = port,
    Given = arrayOf(dtype),
    Stored = arrayOf(storage),
    subject = `${kind} "${name}"`,
    takes = `it takes ${dtype} [${shape}]`;
  // A Uint16Array of float16 holds bits.
  if (dtype === "float16" && kindOf(data) === "Uint16Array")
    data = new Given(data.buffer, data.byteOffset, data.length);
  const given = kindOf(data);
  if (!["Array", Given.name, ALSO[dtype]].includes(given))
    fail("run.dtype", subject, `${takes}, not ${given}`, `give a ${Given.name} or an array`);
  if (data.length !== product(shape))
    fail("run.shape", subject, `it has ${data.length} elements`, takes);
  if (given === Stored.name && dtype !== "bool" && data.byteLength % 4 === 0) {
    const {buffer} = data,
      bytes = new Uint8Array(buffer, data.byteOffset, data.byteLength);
    // WebGPU takes no memory that may change its size.
    return buffer.resizable || buffer.growable ? bytes.slice() : bytes;
  }
  const bytes = new Uint8Array(bytesOf(shape, port)),
    array = new Stored(bytes.buffer, 0, data.length),
    one = new Given(1);
  for (let i = 0; i < data.length; i++) {
    const value = data[i],
      // What the type holds of it, which the storage may exceed.
      held = isBig(dtype) ? value : one.fill(dtype === "bool" ? !!value : Number(value))[0];
    array[i] = isBig(storage) ? BigInt(held) : Number(held);
    // A boolean, a bigint or a number. Loose: a BigInt equals a number of the same value.
    if (
      !/^[bn]/.test(typeof value) ||
      (isFloat(dtype) ? isFinite(array[i]) < isFinite(Number(value)) : array[i] != value)
    )
      fail(
        "run.range",
        subject,
        `${value} does not fit ${dtype} as ${storage}`,
        takes,
      );
  }
  return bytes;
}

/** Numbers as those of 64 bits: millions of BigInts would take long to make. */
function wordsOf(stored) {
  const words = new Int32Array(2 * stored.length);
  for (let i = 0; i < words.length; i += 2) words[i + 1] = -((words[i] = stored[i / 2]) < 0);
  return words;
}

/** The elements of an output as the caller's type.
 * @param {ArrayBuffer} buffer @param {number} offset @param {number} length @param {Json} port @returns {any} */
export function fromStorage(buffer, offset, length, {dtype, storage}) {
  const stored = new (arrayOf(storage))(buffer.slice(offset, offset + length * itemSize(storage)));
  return dtype === storage
    ? stored
    : new (arrayOf(dtype))(
        dtype === "bool" ? stored.map(Boolean) : isBig(dtype) ? wordsOf(stored).buffer : stored,
      );
}
