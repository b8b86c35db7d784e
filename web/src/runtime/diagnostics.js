// What checks and measures a model: a file of its own beside tinyedge.js, which fetches it when it is first asked for.

/** Whether outputs agree with every stride-th expected value. */
function compare(actual, expected, stride, tolerance, dtype) {
  if (dtype === "uint16:bfloat16") {
    // The upper half of a float32.
    const numbers = (codes) =>
      new Float32Array(Uint32Array.from(codes, (code) => code << 16).buffer);
    actual = numbers(actual);
    expected = numbers(expected);
  }
  const exact = !/Float/.test(expected.constructor.name);
  let worst = 0,
    scale = 0,
    wrong = 0;
  for (let i = 0; i < expected.length && i * stride < actual.length; i++) {
    const a = actual[i * stride],
      b = expected[i];
    if (exact || !Number.isFinite(b)) wrong += Number(!Object.is(a, b));
    else {
      worst = Math.max(worst, Math.abs(a - b));
      scale = Math.max(scale, Math.abs(b));
    }
  }
  const passed = !wrong && worst <= tolerance * scale;
  return {passed, wrong, error: worst / (scale || 1)};
}

/**
 * Run a bundle's goldens and compare.
 * @param {Record<string, any>} m the manifest
 * @param {(file: any) => Promise<Uint8Array<ArrayBuffer>>} fetchFile
 * @param {(work: (model: {
 *   restore(): Promise<void>,
 *   example(golden: any, step: number): Record<string, any>,
 *   run(inputs: Record<string, any>, entry: string, symbols: Record<string, number>): Promise<any>,
 * }) => Promise<any>) => Promise<any>} alone does work between the runs of others
 */
export async function verify(m, fetchFile, alone) {
  const files = [];
  for (const [i, file] of m.files.entries())
    if (file.name.startsWith("golden")) files[i] = await fetchFile(file);
  /** The values of a golden that lie in a file, in an array like another. */
  const stored = ({file, offset, bytes}, {constructor}) =>
    new constructor(files[file].buffer.slice(offset, offset + bytes));
  return alone(async ({restore, example, run}) => {
    const cases = [];
    for (const golden of m.golden) {
      const {seed, made} = golden,
        tolerance = golden.tolerance / 1e6,
        entry = m.entries[golden.entry],
        symbols = Object.fromEntries(m.symbols.map(({name}, i) => [name, golden.symbols[i]]));
      let results = {};
      await restore();
      for (let step = 0; step < golden.steps; step++) {
        const inputs = example(golden, step);
        golden.inputs.forEach((v, n) => {
          const input = inputs[m.inputs[entry.inputs[n]].name];
          if (v.file >= 0) input.data = stored(v, input.data);
        });
        results = await run(inputs, entry.name, symbols);
      }
      const outputs = entry.outputs.map((i, n) => {
        const {name, dtype} = m.outputs[i],
          {data} = results[name],
          v = golden.outputs[n];
        return {name, ...compare(data, stored(v, data), v.stride, tolerance, dtype)};
      });
      const passed = outputs.every((output) => output.passed);
      cases.push({entry: entry.name, seed, made, tolerance, passed, outputs});
    }
    await restore();
    return {passed: cases.every(({passed}) => passed), cases};
  });
}

/**
 * The GPU's time for each launch of one run, as far as 2048 launches.
 * @param {(id: string, subject: string, because: string, next: string) => never} fail
 * @param {GPUDevice} device @param {any[]} kernels
 * @param {(describe: (step: any) => GPUComputePassDescriptor) => Promise<any>} run which asks for each launch's pass
 * @param {(encoder: GPUCommandEncoder, size: number, readback: {buffer: GPUBuffer}) => Promise<ArrayBuffer>} submit
 */
export async function profile(fail, device, kernels, run, submit) {
  if (!device.features.has("timestamp-query"))
    fail("device.timestamps", "the device", "it has no timestamps", "measure whole runs");
  const count = 4096,
    size = 8 * count,
    {QUERY_RESOLVE, COPY_SRC, COPY_DST, MAP_READ} = GPUBufferUsage,
    create = (usage) => device.createBuffer({label: "tinyedge timestamps", size, usage});
  const querySet = device.createQuerySet({type: "timestamp", count}),
    resolved = create(QUERY_RESOLVE | COPY_SRC),
    mapped = create(MAP_READ | COPY_DST),
    launches = [];
  try {
    await run(({kernel, nodes, flops}) => {
      const n = 2 * launches.length;
      if (n === count) return {};
      launches.push({kernel: kernels[kernel].entry, nodes, flops});
      return {
        timestampWrites: {
          querySet,
          beginningOfPassWriteIndex: n,
          endOfPassWriteIndex: n + 1,
        },
      };
    });
    const encoder = device.createCommandEncoder();
    encoder.resolveQuerySet(querySet, 0, 2 * launches.length, resolved, 0);
    encoder.copyBufferToBuffer(resolved, 0, mapped, 0, size);
    const times = new BigUint64Array(await submit(encoder, size, {buffer: mapped}));
    return launches.map((launch, i) => ({
      ...launch,
      milliseconds: Number(times[2 * i + 1] - times[2 * i]) / 1e6,
    }));
  } finally {
    for (const made of [querySet, resolved, mapped]) made.destroy();
  }
}
