// A model by onnxruntime-web. One thread: on WebGPU the work is the GPU's, and WASM's is compared by processor time.
import {readInputs, serve} from "/pages/case.js";

/** provider: "webgpu" or "wasm". */
export async function open(provider) {
  const [ort, {freeDimensionOverrides}] = await Promise.all([
    import(`/peer/ort.${provider}.min.mjs`), fetch("/case/options.json").then((response) => response.json()),
  ]);
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = "/peer/";
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create("/case/model.onnx", {executionProviders: [provider], freeDimensionOverrides});
  return {ort, session};
}

export const start = (provider) => serve(async () => {
  const [{ort, session}, given] = await Promise.all([open(provider), readInputs()]);
  const inputs = Object.fromEntries(Object.entries(given).map(([name, {dtype, shape, data}]) =>
    [name, new ort.Tensor(dtype, data, shape)]));
  return {
    run: () => session.run(inputs),
    outputs: (outputs) => Object.entries(outputs).map(([name, {type, dims, data}]) => [name, {dtype: type, shape: dims, data}]),
  };
});
