// Opening a device that is large enough. This is a part of loading.js.

import {whole} from "./device.js";
import {fail} from "./errors.js";

/** @typedef {Record<string, any>} Json */

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
function checkLimits(needed, offered) {
  for (const [name, value] of Object.entries(needed)) {
    if (value > offered[name])
      fail(
        "device.limits",
        "the GPU",
        `${name} is ${offered[name]}, the model needs ${value}`,
        "use a larger GPU",
      );
  }
}

/**
 * The device of a model, and the limits that it was opened with; none for one that the caller gave.
 * @param {Json} m @param {GPUDevice | undefined} given @param {Record<string, number> | undefined} more limits
 * @param {any} adapter
 */
export async function deviceFor(m, given, more, adapter) {
  const needed = neededLimits(m),
    limits = given ? null : {...needed, ...more},
    device = given ?? (await openDevice(/** @type {any} */ (limits), adapter));
  checkLimits(needed, device.limits);
  return {device, limits};
}

/**
 * @param {Record<string, number>} requiredLimits @param {any} found the adapter, or its promise
 * @returns {Promise<GPUDevice>}
 */
export async function openDevice(requiredLimits, found) {
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
