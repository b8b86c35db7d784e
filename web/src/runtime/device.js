// Opening a device that is large enough.

import {TinyedgeError, fail} from "./errors.js";

/** @typedef {Record<string, any>} Json */

/** A size in whole vectors of 16 bytes. @param {number} bytes */
export const whole = (bytes) => Math.ceil(bytes / 16) * 16;

/**
 * The error of each device, once it is lost. Nothing here holds a model: a shared device may outlive many.
 * `told`: what to call then; `final`: it was destroyed on purpose.
 * @type {WeakMap<GPUDevice, {cause?: Error, final?: boolean, told: Set<() => void>}>}
 */
const LOST = new WeakMap();

/** @param {GPUDevice} device */
export function lossOf(device) {
  /** @type {{cause?: Error, final?: boolean, told: Set<() => void>}} */
  const loss = LOST.get(device) ?? {told: new Set()};
  if (!LOST.has(device))
    device.lost.then(({message, reason}) => {
      loss.final = reason === "destroyed";
      loss.cause = new TinyedgeError(
        "device.lost",
        "the device",
        `it was lost: ${message || "no reason given"}`,
        loss.final ? "load the model again" : "run again",
      );
      for (const tell of loss.told) tell();
    });
  LOST.set(device, loss);
  return loss;
}

/** The limits of a device that the bundle needs. @param {Json} m @returns {Record<string, number>} */
export function neededLimits({requirements: r}) {
  return {
    maxStorageBuffersPerShaderStage: r.bindings,
    maxStorageBufferBindingSize: whole(r.binding_bytes),
    maxBufferSize: whole(r.buffer_bytes),
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

/** @returns {Promise<GPUAdapter>} */
export async function findAdapter() {
  const gpu = globalThis.navigator?.gpu,
    subject = "WebGPU";
  if (!gpu) {
    fail(
      "device.webgpu",
      subject,
      globalThis.isSecureContext === false ? "only https and localhost have it" : "it is not here",
      "use a new Chrome, Edge, Safari or Firefox",
    );
  }
  const wanted = /** @type {const} */ ({powerPreference: "high-performance"}),
    adapter =
      (await gpu.requestAdapter(wanted)) ??
      // Of older devices and of OpenGL ES; what a bundle needs of it is compared all the same.
      (await gpu.requestAdapter({...wanted, featureLevel: "compatibility"}));
  if (!adapter)
    fail("device.adapter", subject, "the browser offers no GPU", "turn on hardware acceleration");
  return adapter;
}

/** @param {Record<string, number>} requiredLimits @returns {Promise<GPUDevice>} */
export async function openDevice(requiredLimits, found = findAdapter()) {
  const adapter = await found;
  checkLimits(requiredLimits, adapter.limits);
  // A limit below the usual one leaves the usual one.
  /** @type {GPUFeatureName[]} */
  const wanted = ["timestamp-query"],
    requiredFeatures = wanted.filter((feature) => adapter.features.has(feature));
  return adapter
    .requestDevice({label: "tinyedge", requiredFeatures, requiredLimits})
    .catch(({message}) => fail("device.request", "WebGPU", message, "load the model again"));
}
