// What both sides' pages share: reading the case's inputs, handing outputs back, the page's interface.

const ARRAYS = {
  bool: Uint8Array, uint8: Uint8Array, int32: Int32Array, int64: BigInt64Array, float32: Float32Array, float64: Float64Array,
};

/** The inputs that a list has, by name: {dtype, shape, data}. */
export async function readInputs(list = "/case/inputs.json") {
  const ports = await (await fetch(list)).json();
  const read = async ({name, dtype, shape, file}) => {
    const data = new ARRAYS[dtype](await (await fetch(`/case/${file}`)).arrayBuffer());
    return [name, {dtype, shape, data}];
  };
  return Object.fromEntries(await Promise.all(ports.map(read)));
}

/** Outputs as JSON: elements in base64. */
function encode({dtype, shape, data}) {
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  let text = "";
  for (let i = 0; i < bytes.length; i += 32768) text += String.fromCharCode(...bytes.subarray(i, i + 32768));
  return {dtype, shape: Array.from(shape), data: btoa(text)};
}

/**
 * The page's interface: `bench.ready` settles after the first outputs, `bench.run(times)` after that many more runs.
 * start: resolves to {run, outputs, profile}; run() resolves to what outputs() makes [name, {dtype, shape, data}] of.
 */
export function serve(start) {
  let side, last;
  const run = async (times = 1) => {
    for (let i = 0; i < times; i++) last = await side.run();
  };
  const ready = (async () => {
    side = await start();
    await run();
    return {...globalThis.counters};
  })();
  ready.catch(() => {});
  globalThis.bench = {
    ready, run,
    /** What one run adds to the counters. */
    count: async () => {
      const before = {...globalThis.counters};
      await run();
      return Object.fromEntries(Object.entries(globalThis.counters).map(([name, n]) => [name, n - before[name]]));
    },
    counters: () => ({...globalThis.counters}),
    outputs: () => Object.fromEntries(side.outputs(last).map(([name, output]) => [name, encode(output)])),
    profile: () => side.profile?.() ?? [],
  };
}
