// The same model by onnxruntime-web, on its WebGPU provider. One thread: the work is the GPU's.
import {readInputs, serve} from "/pages/case.js";

serve(async () => {
  const [ort, {freeDimensionOverrides}, given] = await Promise.all([
    import("/peer/ort.webgpu.min.mjs"), fetch("/case/options.json").then((response) => response.json()), readInputs(),
  ]);
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = "/peer/";
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create("/case/model.onnx", {executionProviders: ["webgpu"], freeDimensionOverrides});
  const inputs = Object.fromEntries(Object.entries(given).map(([name, {dtype, shape, data}]) =>
    [name, new ort.Tensor(dtype, data, shape)]));
  return {
    run: () => session.run(inputs),
    outputs: (outputs) => Object.entries(outputs).map(([name, {type, dims, data}]) => [name, {dtype: type, shape: dims, data}]),
  };
});
