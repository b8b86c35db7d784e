// Each frame of the camera copied to a texture and nothing computed: what the browser itself takes for one.
import {start} from "/pages/camera.js";

start(async (video) => {
  const device = await (await navigator.gpu.requestAdapter()).requestDevice();
  const size = [video.videoWidth, video.videoHeight];
  const {TEXTURE_BINDING, COPY_DST, RENDER_ATTACHMENT} = GPUTextureUsage;
  const texture = device.createTexture({
    size, format: "rgba8unorm", usage: TEXTURE_BINDING | COPY_DST | RENDER_ATTACHMENT,
  });
  const run = async () => {
    device.queue.copyExternalImageToTexture({source: video}, {texture}, size);
    await device.queue.onSubmittedWorkDone();
  };
  return {run, outputs: () => []};
});
