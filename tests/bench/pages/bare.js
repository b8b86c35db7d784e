// One launch by hand and nothing else: what a page with a device takes before its first output, whatever runs on it.
import {serve} from "/pages/case.js";

const CODE = `
@group(0) @binding(0) var<storage, read_write> y: array<f32, 64>;
@compute @workgroup_size(64) fn square(@builtin(local_invocation_index) i: u32) { y[i] = f32(i * i); }
`;

serve(async () => {
  const device = await (await navigator.gpu.requestAdapter()).requestDevice();
  const {STORAGE, COPY_SRC, COPY_DST, MAP_READ} = GPUBufferUsage;
  const y = device.createBuffer({size: 256, usage: STORAGE | COPY_SRC});
  const read = device.createBuffer({size: 256, usage: COPY_DST | MAP_READ});
  const module = device.createShaderModule({code: CODE});
  const pipeline = await device.createComputePipelineAsync({layout: "auto", compute: {module}});
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0), entries: [{binding: 0, resource: {buffer: y}}],
  });
  const run = async () => {
    const encoder = device.createCommandEncoder(), pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(1);
    pass.end();
    encoder.copyBufferToBuffer(y, 0, read, 0, 256);
    device.queue.submit([encoder.finish()]);
    await read.mapAsync(GPUMapMode.READ);
    const data = new Float32Array(read.getMappedRange().slice(0));
    read.unmap();
    return data;
  };
  return {run, outputs: (data) => [["squares", {dtype: "float32", shape: [64], data}]]};
});
