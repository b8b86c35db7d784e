// Compiling a model's kernels.

/** Make a pipeline for each kernel. `sources`: the files of kernels, by their numbers. `report` is called after each. */
export async function compile(core, sources, report) {
  const {parsed: m, device, stats} = core,
    {fail} = core.own;
  if (device.kernels) return void (core.pipelined = await device.kernels(m, sources, fail));
  const source = ({file, offset, bytes}) => {
    const part = sources[file].subarray(offset, offset + bytes);
    if (part.some((byte) => byte > 127))
      fail("bundle.file.text", m.files[file].name);
    return new TextDecoder().decode(part);
  };
  const prelude = source(m.prelude),
    codes = m.kernels.map((kernel) => prelude + source(kernel));
  // Faults of a module come back with its pipeline; the scope keeps them off the page's console.
  device.pushErrorScope("validation");
  const modules = codes.map((code, i) =>
    device.createShaderModule({label: `tinyedge ${m.kernels[i].entry}`, code}),
  );
  device.popErrorScope().catch(() => {});
  core.pipelined = await Promise.all(
    m.kernels.map(async ({entry}, i) => {
      const module = modules[i],
        descriptor = {
          label: `tinyedge ${entry}`,
          layout: core.layouts[i].pipeline,
          compute: {module, entryPoint: entry},
        };
      const pipeline = await device
        .createComputePipelineAsync(descriptor)
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
      return pipeline;
    }),
  );
}
