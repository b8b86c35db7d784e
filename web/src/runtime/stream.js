// Outputs that go to a caller's buffer or texture, and inputs that come from one.

import {intoTexture} from "./canvas.js";
import {fail} from "./errors.js";
import {find} from "./given.js";
import {kindOf} from "./types.js";

/**
 * Record what brings outputs to where `into` says, by name: a buffer, a range of one, or a texture. What a run gives of them
 * says so too.
 * @param {any} run @param {any[]} outputs of the run @param {any} into
 */
export async function deliver(run, outputs, into) {
  const given = Object.keys(into),
    // No name is no name of an output, which is told below.
    names = given[0] ? given : [""];
  run.pass?.end();
  run.pass = null;
  run.theirs.push(...names);
  run.theirs.kind = "output";
  for (const name of names) {
    const given = into[name],
      output = outputs[find(outputs.map(({p}) => p.name), "run.option", "output", name)],
      {kept} = output,
      {size} = kept,
      need = (good, next) => good || fail("run.output.buffer", `output "${name}"`, "it cannot go there", next);
    if (kindOf(given) === "GPUTexture") {
      run.theirs.usage = "RENDER_ATTACHMENT";
      await intoTexture(run, output, given, need);
      continue;
    }
    const {buffer, offset = 0} = kindOf(given) === "GPUBuffer" ? {buffer: given} : (given ?? {});
    need(
      kindOf(buffer) === "GPUBuffer" &&
        offset >= 0 &&
        offset % 4 === 0 &&
        offset + size <= buffer.size &&
        buffer.usage & 8 &&
        !run.owns.includes(buffer),
      `give a buffer of yours with COPY_DST and ${size} bytes`,
    );
    if (size) run.encoder.copyBufferToBuffer(kept.buffer, kept.offset, buffer, offset, size);
    output.kept = {buffer, offset, size};
  }
}

/**
 * A buffer for an input at its largest, to write into and to give to `run`. It goes with the model.
 * @param {any} core @param {string} name
 */
export function inputBuffer({core}, name) {
  const {parsed: m, device, owns} = core;
  find(m.inputs.map((port) => port.name), "run.input", "input", name);
  core.check();
  const buffer = device.createBuffer({
    label: "tinyedge",
    // Several entries may have inputs of the name.
    size: Math.max(...m.inputs.map((port) => port.name === name && m.buffers[port.buffer].bytes)),
    usage: 140, // STORAGE, COPY_SRC, COPY_DST
  });
  owns.push({destroy: () => buffer.destroy()});
  return buffer;
}
