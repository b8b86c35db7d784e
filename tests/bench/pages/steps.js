// What pages that train share: a step is a run, and the output is the losses of the first two.
import {serve} from "/pages/case.js";

/** start: resolves to what makes a step and resolves to its loss. The first step is made before `bench.ready`'s. */
export const serveSteps = (start) => serve(async () => {
  const step = await start();
  const losses = [await step()];
  return {
    run: async () => { losses.push(await step()); },
    outputs: () => [["losses", {dtype: "float32", shape: [2], data: Float32Array.from(losses.slice(0, 2))}]],
  };
});
