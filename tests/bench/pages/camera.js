// A model on the camera, a frame after the other. The page's interface is that of case.js, with bench.watch(seconds).
// The camera has 30 frames a second.
import {serve} from "/pages/case.js";

/** prepare: gets the video, resolves to {run}, of which run() resolves when what the video shows is computed. */
export function start(prepare) {
  const video = Object.assign(document.createElement("video"), {muted: true});
  let side;
  serve(async () => {
    video.srcObject = await navigator.mediaDevices.getUserMedia({video: {width: 640, height: 480, frameRate: 30}});
    await video.play();
    return (side = await prepare(video));
  });
  /** Resolves to how many frames the video has presented, when it presents one. */
  const next = () => new Promise((resolve) =>
    video.requestVideoFrameCallback((_, {presentedFrames}) => resolve(presentedFrames)));
  /**
   * Of so many seconds: {presented, computed} frames, `latencies`, ms from a frame's callback to its output, `seconds`
   * until the last one.
   * A frame that is presented while the one before is computed gets no output.
   */
  globalThis.bench.watch = async (seconds) => {
    const start = performance.now(), end = start + 1e3 * seconds, first = await next(), latencies = [];
    let frame = first;
    do {
      const begin = performance.now();
      await side.run();
      latencies.push(performance.now() - begin);
      frame = await next();
    } while (performance.now() < end);
    const taken = (performance.now() - start) / 1e3;
    return {presented: frame - first, computed: latencies.length, latencies, seconds: taken};
  };
}
