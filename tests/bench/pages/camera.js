// A model on the camera, a frame after the other. The page's interface is that of case.js, with bench.watch(seconds).
import {serve} from "/pages/case.js";

/** prepare: gets the video, resolves to {run}, of which run() resolves when what the video shows is computed. */
export function start(prepare) {
  const video = Object.assign(document.createElement("video"), {muted: true});
  let side;
  serve(async () => {
    video.srcObject = await navigator.mediaDevices.getUserMedia({video: {width: 640, height: 480}});
    await video.play();
    return (side = await prepare(video));
  });
  /** How many frames were computed in so many seconds. */
  globalThis.bench.watch = async (seconds) => {
    const end = performance.now() + 1e3 * seconds;
    let frames = 0;
    for (; performance.now() < end; frames++) {
      await new Promise((resolve) => video.requestVideoFrameCallback(resolve));
      await side.run();
    }
    return frames;
  };
}
