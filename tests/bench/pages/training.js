// A step of a bundle that trains, by its own runtime: as the example's page does it.
import {readInputs} from "/pages/case.js";
import {serveSteps} from "/pages/steps.js";

serveSteps(async () => {
  const {load} = await import("/bundle/tinyedge.js");
  const [model, inputs] = await Promise.all([load("/bundle/"), readInputs()]);
  return async () => (await model.run(inputs, {entry: "train"})).loss.data[0];
});
