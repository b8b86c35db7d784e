// A bundle, by its own runtime.
import {readInputs, serve} from "/pages/case.js";

/** folder: where it lies; options: of its `load`. */
export const start = (folder, options) => serve(async () => {
  const {load} = await import(`/${folder}/tinyedge.js`);
  const [model, inputs] = await Promise.all([load(`/${folder}/`, options), readInputs()]);
  return {
    run: () => model.run(inputs),
    outputs: (outputs) => Object.entries(outputs),
    profile: () => model.profile(inputs),
  };
});
