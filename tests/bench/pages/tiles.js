// Matrix multiplication by hand: the kernel of tests/study/device in one of its tiles, as tests/bench/tiles.py gives it.
let device;

/** m, k, n: of C = A B; code: the kernel `contract`; floats: of its buffers, with rows that pad; grid: of workgroups. */
async function prepare({m, k, n, code, floats, grid}) {
  device ??= await (await navigator.gpu.requestAdapter()).requestDevice();
  const {STORAGE, COPY_SRC, COPY_DST, MAP_READ} = GPUBufferUsage;
  const fill = (count, f) => {
    const buffer = device.createBuffer({size: 4 * count, usage: STORAGE, mappedAtCreation: true});
    new Float32Array(buffer.getMappedRange()).forEach((_, i, all) => void (all[i] = f(i)));
    buffer.unmap();
    return buffer;
  };
  // Small integers: sums are exact.
  const left = (i) => i * 7 % 5 - 2, right = (i) => i * 3 % 7 - 3;
  const a = fill(floats.a, left), b = fill(floats.w, right);
  const c = device.createBuffer({size: 4 * floats.y, usage: STORAGE | COPY_SRC});
  const readback = device.createBuffer({size: 4 * m * n, usage: COPY_DST | MAP_READ});
  const module = device.createShaderModule({code});
  const pipeline = await device.createComputePipelineAsync({layout: "auto", compute: {module}});
  const group = device.createBindGroup({layout: pipeline.getBindGroupLayout(0),
    entries: [c, a, b].map((buffer, binding) => ({binding, resource: {buffer}}))});
  const run = async (times) => {
    const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let i = 0; i < times; i++) pass.dispatchWorkgroups(...grid);
    pass.end();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
  };
  const check = async () => {
    const encoder = device.createCommandEncoder();
    encoder.copyBufferToBuffer(c, 0, readback, 0, 4 * m * n);
    device.queue.submit([encoder.finish()]);
    await readback.mapAsync(GPUMapMode.READ);
    const result = new Float32Array(readback.getMappedRange().slice(0));
    readback.unmap();
    for (let at = 0; at < m * n; at += 997) {
      let sum = 0;
      for (let i = 0; i < k; i++) sum += left(Math.floor(at / n) * k + i) * right(i * n + at % n);
      if (sum !== result[at]) return false;
    }
    return true;
  };
  const close = () => [a, b, c, readback].forEach((buffer) => buffer.destroy());
  return {run, check, close};
}

globalThis.tiles = {
  /** Makes a variant ready and says whether it is right. */
  open: async (request) => {
    globalThis.tile = await prepare(request);
    await globalThis.tile.run(1);
    return globalThis.tile.check();
  },
  run: (times) => globalThis.tile.run(times),
  close: () => globalThis.tile.close(),
};
