// Getting a model ready to run: its files fetched, its memory filled, its kernels compiled.

import {fetchFile} from "./fetch.js";
import {takeLabels} from "./labels.js";
import {allocate} from "./memory.js";
import {filesToRun} from "./model.js";
import {compile} from "./pipelines.js";
import {guard, restore} from "./replay.js";

/** Weights arrive while the pipelines compile. Those that only other entries than the first use may come later. */
export async function start(core, onProgress) {
  const {parsed: m, device, stats, source} = core,
    needed = filesToRun(m, device.skips),
    total = needed.reduce((sum, {bytes}) => sum + bytes, 0);
  let loaded = 0,
    started = false;
  const report = () => {
    core.check();
    if (started) return;
    source.signal.throwIfAborted();
    onProgress?.({loaded, total, compiled: stats.pipelines, pipelines: m.kernels.length});
  };
  report();
  await guard(core, allocate);
  const uploads = m.files.map(() => []);
  m.weights.forEach(({segments}, i) => {
    let {buffer, offset: at} = core.stored[i];
    for (const segment of segments) {
      uploads[segment.file].push({...segment, buffer, at});
      at += segment.bytes;
    }
  });
  const sources = [],
    tasks = [];
  for (const file of needed) {
    const number = m.files.indexOf(file),
      blocks = m.blocks?.[number][0] && m.blocks[number];
    // Two at a time at first, kernels and weights, then one: each has memory on its way.
    const task = Promise.resolve(tasks[1] && tasks.at(-1))
      .then((space) =>
        fetchFile(
          source,
          {...file, blocks, space},
          (count) => {
            loaded += count;
            stats.bytesFetched += count;
            report();
          },
          undefined,
          (bytes, start) => {
            core.check();
            for (const {buffer, at, offset, bytes: size} of uploads[number]) {
              const from = Math.max(offset, start),
                end = Math.min(offset + size, start + bytes.length);
              if (from < end)
                device.queue.writeBuffer(buffer, at + from - offset, bytes, from - start, end - from);
            }
          },
        ),
      )
      .then((bytes) => {
        // The next file's blocks arrive there: memory of its own for each would lie about until it is collected.
        if (blocks) return bytes.buffer;
        sources[number] = bytes;
      });
    task.catch(() => {});
    tasks.push(task);
  }
  const arrived = async (prefix) => {
    // Awaited one by one: of several faults the first in the files' order is the one told.
    for (const i in needed) if (needed[i].name.startsWith(prefix)) await tasks[i];
  };
  if (m.options?.labels) takeLabels(core);
  await Promise.all([arrived(""), arrived("kernels").then(() => compile(core, sources, report))]);
  if (m.states[0]) await restore(core);
  // Also where the last kernel's news brought it.
  source.signal.throwIfAborted();
  started = true;
}
