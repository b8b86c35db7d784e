// Opening a device that is large enough.

import {fail} from "./errors.js";

/** @typedef {Record<string, any>} Json */

/** The limits of a device that the bundle needs. @param {Json} m @returns {Record<string, number>} */
export function neededLimits({requirements: r}) {
  return {
    maxStorageBuffersPerShaderStage: r.bindings,
    maxStorageBufferBindingSize: r.binding_bytes,
    maxBufferSize: r.buffer_bytes,
    maxComputeInvocationsPerWorkgroup: r.invocations,
    maxComputeWorkgroupsPerDimension: r.workgroups,
    maxComputeWorkgroupStorageSize: r.workgroup_bytes,
    maxComputeWorkgroupSizeX: r.invocations,
    maxComputeWorkgroupSizeY: r.invocations,
  };
}

/** @param {Record<string, number>} needed @param {any} offered */
export function checkLimits(needed, offered) {
  for (const [name, value] of Object.entries(needed)) {
    if (value > offered[name])
      fail(
        "device.limits",
        "the GPU",
        `${name} is ${offered[name]}, the model needs ${value}`,
        "use a larger GPU, or export a smaller model",
      );
  }
}

/** @param {Record<string, number>} requiredLimits @returns {Promise<GPUDevice>} */
export async function openDevice(requiredLimits) {
  const gpu = globalThis.navigator?.gpu,
    subject = "WebGPU";
  if (!gpu) {
    fail(
      "device.webgpu",
      subject,
      isSecureContext ? "this browser does not have it" : "only https and localhost have it",
      "use Chrome or Edge 113 (Android: 121), Safari 26, Firefox 141, or later",
    );
  }
  const adapter = await gpu.requestAdapter({powerPreference: "high-performance"});
  if (!adapter)
    fail("device.adapter", subject, "the browser offers no GPU", "turn on hardware acceleration");
  checkLimits(requiredLimits, adapter.limits);
  // A limit below the usual one leaves the usual one.
  /** @type {GPUFeatureName[]} */
  const requiredFeatures = adapter.features.has("timestamp-query") ? ["timestamp-query"] : [];
  return adapter
    .requestDevice({label: "tinyedge", requiredFeatures, requiredLimits})
    .catch(({message}) => fail("device.request", subject, message, "load the model again"));
}
