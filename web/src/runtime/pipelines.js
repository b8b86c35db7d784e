// Compiling a model's kernels.

import {fail} from "./errors.js";

/**
 * Make a pipeline for each kernel, in the order in which runs of the first entry use them, then the others. Waits for the
 * former; `core.everyPipeline` is the promise of all. `sources`: the files of kernels, by their numbers. `report` is called
 * after each.
 */
export async function compile(core, sources, report) {
  const {parsed: m, device, stats} = core;
  if (device.kernels) return void (core.pipelined = await device.kernels(m, sources, core.source.signal));
  const [first, count] = m.entries[0].steps,
    used = (steps) => steps.flatMap(({kernel}) => kernel ?? []),
    own = new Set(used(m.steps.slice(first, first + count))),
    // Each once.
    order = [...new Set([...own, ...m.kernels.keys()])];
  const source = ({file, offset, bytes}) => {
    // What is not ASCII becomes something that is not either.
    const text = new TextDecoder("latin1").decode(sources[file].subarray(offset, offset + bytes));
    if (/[^\0-\x7f]/.test(text)) fail("bundle.file.text", m.files[file].name);
    return text;
  };
  const prelude = source(m.prelude),
    codes = m.kernels.map((kernel) => prelude + source(kernel));
  // Faults of a module come back with its pipeline; the scope keeps them off the page's console.
  device.pushErrorScope("validation");
  core.modules = [];
  for (const i of order)
    core.modules[i] = device.createShaderModule({label: `tinyedge ${m.kernels[i].entry}`, code: codes[i]});
  device.popErrorScope().catch(() => {});
  core.pipelined = [];
  const made = order.map(async (i) => {
    const {entry} = m.kernels[i],
      module = core.modules[i];
    core.pipelined[i] = await device
      .createComputePipelineAsync({
        label: `tinyedge ${entry}`,
        layout: core.layouts[i].pipeline,
        compute: {module, entryPoint: entry},
      })
      .catch(async ({message}) => {
        core.check();
        const fault = (await module.getCompilationInfo()).messages.find(
          ({type}) => type === "error",
        );
        fail(
          "device.kernel",
          `kernel ${entry}`,
          fault ? `line ${fault.lineNum}: ${fault.message}` : message,
          "report it",
        );
      });
    stats.pipelines++;
    report();
  });
  core.everyPipeline = Promise.all(made);
  // Told by the run that needs them.
  core.everyPipeline.catch(() => {});
  // Of pictures, behind them.
  core.prepare?.(core);
  await Promise.all(made.slice(0, own.size));
}
