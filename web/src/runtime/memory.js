// What a model has on the device beside its pipelines: all of it is made here, before the first run.

import {whole} from "./device.js";

/**
 * Make buffers, layouts and bind groups. Buffers go into `owns` as they are made, to be freed after a failure too.
 * stored: where each weight lies; ranges: where each buffer lies; sizeTable: the symbols' sizes; grouped: bind groups;
 * stage: makes a buffer to read by.
 */
export function allocate(core) {
  const {parsed: m, device, stats} = core;
  // Usages are sums of WebGPU's GPUBufferUsage, which node does not have as a global: STORAGE, COPY_SRC, COPY_DST.
  const create = (label, bytes, usage = 140) => {
    if (!bytes) return null;
    const size = whole(bytes),
      buffer = device.createBuffer({label: `tinyedge ${label}`, size, usage});
    stats.bufferBytes += size;
    core.owns.push(buffer);
    return buffer;
  };
  const arenas = m.arenas.map(({bytes}, i) => create(`arena ${i}`, bytes));
  // Weights lie one after the other in few buffers.
  const pools = [];
  const places = m.weights.map(({bytes}) => {
    let pool = pools.length - 1,
      offset = Math.ceil(pools[pool] / 256) * 256;
    // Also where there is no pool yet.
    if (!(offset + bytes <= device.limits.maxBufferSize)) {
      pool++;
      offset = 0;
    }
    pools[pool] = offset + bytes;
    return {pool, offset};
  });
  const filled = pools.map((bytes, i) => create(`weights ${i}`, bytes));
  const stored = places.map(({pool, offset}) => ({buffer: filled[pool], offset}));
  const ranges = m.buffers.map(({arena, weight, offset, bytes: size}) =>
    arena < 0 ? {...stored[weight], size} : {buffer: arenas[arena], offset, size},
  );
  const needsSymbols = m.kernels.some(({symbols}) => symbols);
  // Room for the most symbols that a manifest may have, 32 of them.
  const sizeTable = create("symbols", needsSymbols && 128, 72 /* UNIFORM, COPY_DST */);

  // Where an entry's outputs, a state or a condition are copied to be read.
  const bytesIn = ({buffer}) => m.buffers[buffer].bytes;
  const staged = Math.max(
    m.steps.some(({condition}) => condition >= 0) ? 4 : 0,
    ...m.states.map(bytesIn),
    ...m.entries.map(({outputs}) => outputs.reduce((sum, i) => sum + bytesIn(m.outputs[i]), 0)),
  );
  core.stage = () => create("readback", staged, 9 /* MAP_READ, COPY_DST */);
  Object.assign(core.readback, {device, buffer: core.stage()});
  // A copy inside one GPU buffer is not allowed: it goes by way of another.
  const copied = m.steps
    .filter(({op}) => op === "copy")
    .map(({source}) => ranges[source].size);
  const bridge = {buffer: create("transfer", Math.max(0, ...copied), 12 /* COPY_SRC, COPY_DST */)};

  const made = new Map(),
    once = (key, make) => made.get(key) ?? made.set(key, make()).get(key);
  const signature = ({bindings, symbols}) =>
    bindings.map(({access}) => access) + (symbols ? ",symbols" : "");
  const layouts = m.kernels.map((kernel) =>
    once(signature(kernel), () => {
      const types = kernel.bindings.map(({access}) =>
        access === "read" ? "read-only-storage" : "storage",
      );
      if (kernel.symbols) types.push("uniform");
      const group = device.createBindGroupLayout({
        entries: types.map((type, binding) => ({
          binding,
          visibility: 4, // compute
          buffer: {type},
        })),
      });
      return {group, pipeline: device.createPipelineLayout({bindGroupLayouts: [group]})};
    }),
  );
  const grouped = m.steps.map(
    (step) =>
      step.op === "launch" &&
      once(`${signature(m.kernels[step.kernel])}:${step.buffers}`, () => {
        // wgpu asks a binding for the size of whole vectors where another kernel of the layout has some.
        const resources = step.buffers.map((buffer) => ({
          ...ranges[buffer],
          size: whole(ranges[buffer].size),
        }));
        if (m.kernels[step.kernel].symbols) resources.push({buffer: sizeTable});
        stats.bindGroups++;
        return device.createBindGroup({
          layout: layouts[step.kernel].group,
          entries: resources.map((resource, binding) => ({binding, resource})),
        });
      }),
  );
  Object.assign(core, {stored, ranges, sizeTable, bridge, layouts, grouped});
}
