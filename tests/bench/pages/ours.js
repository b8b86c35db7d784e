// A bundle, by its own runtime.
import {readInputs, serve} from "/pages/case.js";

serve(async () => {
  const {load} = await import("/bundle/tinyedge.js");
  const [model, inputs] = await Promise.all([load("/bundle/"), readInputs()]);
  return {
    run: () => model.run(inputs),
    outputs: (outputs) => Object.entries(outputs),
    profile: () => model.profile(inputs),
  };
});
