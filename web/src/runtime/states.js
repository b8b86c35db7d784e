// A model's states as a file, and back. The form is safetensors: the size of a header, the header as JSON, then the elements of each tensor.

import {fail} from "./errors.js";

/** How the format calls an element type, such as BF16 or F8_E4M3; those that it lacks have no name in it. */
const typeOf = (dtype) =>
  dtype
    .replace(/.*:|fn$/g, "")
    .toUpperCase()
    .replace(/(.?)(INT|LOAT)/, (_, first) => first || "I");

/**
 * @param {any} model
 * @returns {Promise<Blob>}
 */
export async function saveStates({model}) {
  // Asked for at once, so that no run comes between them.
  const states = await Promise.all(model.states.map(({name}) => model.getState(name)));
  let end = 0;
  const header = JSON.stringify(
    Object.fromEntries(
      states.map(({name, dtype, shape, data}) => {
        const start = end;
        end += data.byteLength;
        return [name, {dtype: typeOf(dtype), shape, data_offsets: [start, end]}];
      }),
    ),
  );
  const text = new TextEncoder().encode(header),
    head = new Uint8Array(8 + Math.ceil(text.length / 8) * 8).fill(32);
  new DataView(head.buffer).setBigUint64(0, BigInt(head.length - 8), true);
  head.set(text, 8);
  return new Blob([head, ...states.map(({data}) => data)]);
}

/**
 * @param {any} model
 * @param {Blob | ArrayBuffer | ArrayBufferView} file
 */
export async function loadStates({model}, file) {
  const wrong = (because) =>
    fail("run.states", "the file of states", because, "give one of saveStates");
  const bytes = new Uint8Array(await new Blob([/** @type {any} */ (file)]).arrayBuffer());
  const size = bytes.length < 8 ? Infinity : Number(new DataView(bytes.buffer).getBigUint64(0, true));
  if (size > bytes.length - 8) wrong(`it has ${bytes.length} bytes`);
  let header;
  try {
    header = JSON.parse(new TextDecoder("utf-8", {fatal: true}).decode(bytes.subarray(8, 8 + size))) ?? {};
  } catch ({message}) {
    wrong(`its header is no JSON: ${message}`);
  }
  let last = 0;
  const places = Object.entries(header)
    .filter(([name]) => name !== "__metadata__")
    .map(([, place]) => [place?.data_offsets].flat());
  // One after the other, whatever their order in the header; the last one is where the file ends.
  for (const [start, end] of [...places.sort(([a, b], [c, d]) => a - c || b - d), [bytes.length - 8 - size, Infinity]]) {
    if (start !== last || !(end >= start)) wrong("its tensors do not fill it");
    last = end;
  }
  const now = await Promise.all(model.states.map(({name}) => model.getState(name)));
  const values = now.map(({name, dtype, shape, data}) => {
    const found = Object.hasOwn(header, name) && header[name],
      wanted = JSON.stringify([typeOf(dtype), shape]);
    if (!found) wrong(`it lacks ${name}`);
    const is = JSON.stringify([found.dtype, found.shape]);
    if (is !== wanted) wrong(`${name} is ${is}, the state ${wanted}`);
    const [start, end] = found.data_offsets,
      part = bytes.slice(8 + size + start, 8 + size + end);
    if (part.length !== data.byteLength || (dtype === "bool" && part.some((byte) => byte > 1)))
      wrong(`${name} has other bytes`);
    return [name, new data.constructor(part.buffer)];
  });
  await Promise.all(values.map(([name, data]) => model.setState(name, data)));
}
