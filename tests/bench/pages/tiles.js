// Matrix multiplication written by hand: what this machine gives to plain WGSL that keeps a register tile per thread.

/** C = A B, row-major; a thread makes `rows` by 4 * `columns` elements, a workgroup is 8 by 8 threads. */
function source(m, k, n, rows, columns) {
  const range = (count) => Array.from({length: count}, (_, i) => i);
  const width = n / 4, lines = [];
  for (const r of range(rows)) lines.push(`    let a${r} = a[(row + ${r}u) * ${k / 4}u + i];`);
  for (const s of range(4)) {
    for (const c of range(columns)) lines.push(`    let b${s}_${c} = b[(4u * i + ${s}u) * ${width}u + column + ${c}u];`);
    for (const r of range(rows)) {
      for (const c of range(columns)) lines.push(`    s${r}_${c} = a${r}[${s}] * b${s}_${c} + s${r}_${c};`);
    }
  }
  const sums = range(rows).flatMap((r) => range(columns).map((c) => [r, c]));
  return `
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;

@compute @workgroup_size(8, 8)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let row = id.y * ${rows}u;
  let column = id.x * ${columns}u;
  if (row >= ${m}u || column >= ${width}u) { return; }
${sums.map(([r, q]) => `  var s${r}_${q} = vec4<f32>();`).join("\n")}
  for (var i = 0u; i < ${k / 4}u; i++) {
${lines.join("\n")}
  }
${sums.map(([r, q]) => `  c[(row + ${r}u) * ${width}u + column + ${q}u] = s${r}_${q};`).join("\n")}
}`;
}

let device;

async function prepare(m, k, n, rows, columns) {
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
  const a = fill(m * k, left), b = fill(k * n, right);
  const c = device.createBuffer({size: 4 * m * n, usage: STORAGE | COPY_SRC});
  const readback = device.createBuffer({size: 4 * m * n, usage: COPY_DST | MAP_READ});
  const module = device.createShaderModule({code: source(m, k, n, rows, columns)});
  const pipeline = await device.createComputePipelineAsync({layout: "auto", compute: {module}});
  const group = device.createBindGroup({layout: pipeline.getBindGroupLayout(0),
    entries: [a, b, c].map((buffer, binding) => ({binding, resource: {buffer}}))});
  const run = async (times) => {
    const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let i = 0; i < times; i++) pass.dispatchWorkgroups(Math.ceil(n / (32 * columns)), Math.ceil(m / (8 * rows)));
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
  open: async (...sizes) => {
    globalThis.tile = await prepare(...sizes);
    await globalThis.tile.run(1);
    return globalThis.tile.check();
  },
  run: (times) => globalThis.tile.run(times),
  close: () => globalThis.tile.close(),
};
