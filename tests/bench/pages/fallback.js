// A bundle, by its program for WebAssembly.
import {readInputs, serve} from "/pages/case.js";

serve(async () => {
  const {load} = await import("/fallback/tinyedge.js");
  const loading = load("/fallback/", {backend: "wasm"});
  const [model, inputs] = await Promise.all([loading, readInputs()]);
  return {run: () => model.run(inputs), outputs: (outputs) => Object.entries(outputs)};
});
