// The same model, converted, by LiteRT.js on WebGPU. Images have their channels last; results are read back, as all sides' are.
import {readInputs, serve} from "/pages/case.js";

serve(async () => {
  const [{loadLiteRt, loadAndCompile, Tensor}, given] = await Promise.all([
    import("/litert/dist/index.js"), readInputs("/case/litert.json"),
  ]);
  await loadLiteRt("/litert/wasm/", {jspi: true});
  const model = await loadAndCompile("/case/model.tflite", {accelerator: "webgpu"});
  const run = async () => {
    const inputs = Object.fromEntries(Object.entries(given).map(([name, {shape, data}]) => [name, new Tensor(data, shape)]));
    const results = await model.run(inputs);
    const outputs = [];
    for (const [name, result] of Object.entries(results)) {
      const shape = Array.from(result.type.layout.dimensions), read = await result.moveTo("wasm");
      const data = read.toTypedArray().slice();
      outputs.push([name, {dtype: data instanceof Float32Array ? "float32" : "int32", shape, data}]);
      read.delete();
    }
    for (const input of Object.values(inputs)) if (!input.deleted) input.delete();
    return outputs;
  };
  return {run, outputs: (outputs) => outputs};
});
