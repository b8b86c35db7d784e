// Generated inputs, see Goldens in bundle.md; parts of outputs.

import {evaluateAll} from "./check.js";
import {isFloat, isBig, product, arrayOf} from "./types.js";

/** The named parts of an output. */
export function cut({data, shape}, slices) {
  return Object.fromEntries(
    slices.map(({name, axis, start, size}) => {
      const outer = product(shape.slice(0, axis)),
        inner = product(shape.slice(axis + 1));
      const part = new data.constructor(outer * size * inner);
      for (let i = 0; i < outer; i++) {
        const from = (i * shape[axis] + start) * inner;
        part.set(data.subarray(from, from + size * inner), i * size * inner);
      }
      return [name, {data: part, shape: shape.with(axis, size)}];
    }),
  );
}

/** The 32-bit finalizer of MurmurHash3. */
function mix(x) {
  x = (x + 0x9e3779b9) | 0;
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b);
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}

/** An input of a golden case: bundle.md has the formulas. */
function generate(dtype, elements, start, {min, max}) {
  const big = isBig(dtype),
    bits = dtype === "float16" ? 11 : 24,
    span = max - min,
    data = new (arrayOf(dtype))(elements);
  for (let e = 0; e < elements; e++) {
    const h = mix(start + e);
    const value = isFloat(dtype)
      ? min + ((h >>> (32 - bits)) * span) / 2 ** bits
      : min + (h % (span + 1));
    data[e] = big ? BigInt(value) : value;
  }
  return data;
}

/** The inputs of a golden's step: generated in its ranges, else in those usual for their types. */
export function generated(m, golden, step) {
  const {inputs} = evaluateAll(m, golden.symbols, "run.shape"),
    first = mix(mix(golden.seed) + step);
  return Object.fromEntries(
    m.entries[golden.entry].inputs.map((i, n) => {
      const {name, dtype} = m.inputs[i],
        shape = inputs[i],
        range = golden.inputs[n],
        usual = isFloat(dtype) ? {min: -1, max: 1} : {min: 0, max: dtype === "bool" ? 1 : 7};
      const data = generate(
        dtype,
        product(shape),
        mix(first + n),
        range?.file < 0 ? range : usual,
      );
      return [name, {data, shape}];
    }),
  );
}
