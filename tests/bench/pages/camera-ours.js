// A bundle that was exported with --image takes the video itself.
import {start} from "/pages/camera.js";

start(async (video) => {
  const {load} = await import("/bundle/tinyedge.js"),
    model = await load("/bundle/"),
    [{name}] = model.inputs;
  return {run: () => model.run({[name]: video})};
});
