// Counts what a page asks of WebGPU. It runs before the page's own scripts, so it sees every object.
"use strict";

(() => {
  const counts = {
    launches: 0, passes: 0, submits: 0, pipelines: 0, modules: 0, bindGroups: 0, buffers: 0, textures: 0,
    writes: 0, copies: 0, bytes: 0, peakBytes: 0,
  };
  globalThis.counters = counts;
  if (!globalThis.GPUDevice) return;
  const sizes = new WeakMap();

  /** Calls `after(result, receiver, args)` when a method has returned. */
  function watch(type, method, after) {
    const original = type.prototype[method];
    type.prototype[method] = function (...args) {
      const result = original.apply(this, args);
      after(result, this, args);
      return result;
    };
  }
  const count = (type, method, what) => watch(type, method, () => void counts[what]++);

  count(GPUComputePassEncoder, "dispatchWorkgroups", "launches");
  count(GPUComputePassEncoder, "dispatchWorkgroupsIndirect", "launches");
  count(GPUCommandEncoder, "beginComputePass", "passes");
  count(GPUCommandEncoder, "copyBufferToBuffer", "copies");
  count(GPUQueue, "submit", "submits");
  count(GPUQueue, "writeBuffer", "writes");
  count(GPUDevice, "createComputePipeline", "pipelines");
  count(GPUDevice, "createComputePipelineAsync", "pipelines");
  count(GPUDevice, "createShaderModule", "modules");
  count(GPUDevice, "createBindGroup", "bindGroups");
  count(GPUDevice, "createTexture", "textures");
  watch(GPUDevice, "createBuffer", (buffer) => {
    counts.buffers++;
    counts.bytes += buffer.size;
    counts.peakBytes = Math.max(counts.peakBytes, counts.bytes);
    sizes.set(buffer, buffer.size);
  });
  watch(GPUBuffer, "destroy", (_, buffer) => {
    counts.bytes -= sizes.get(buffer) ?? 0;
    sizes.delete(buffer);
  });
})();
