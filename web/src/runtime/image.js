// Pictures as inputs: a file of its own beside tinyedge.js, which fetches it along with a model that declares some. What the
// browser shows goes to a texture, from which the kernels that take the input's bytes read it, cropped and turned.

import {fail} from "./errors.js";
import {whole} from "./device.js";
import {chosen} from "./given.js";
import {guard} from "./replay.js";
import {kindOf, toStorage} from "./types.js";

const KINDS =
  /^(HTML(Image|Video|Canvas)Element|OffscreenCanvas|ImageBitmap|ImageData|VideoFrame|GPUTexture)$/;
const CHANNELS = {rgb: 3, rgba: 4, gray: 1};

/** Of a bitmap: colors that alpha has not touched. @type {ImageBitmapOptions} */
const STRAIGHT = {premultiplyAlpha: "none"};

/** Textures that wait for their next use, of each device. */
const SPARE = 4;

/** The spare textures of a device. @type {WeakMap<GPUDevice, any>} */
const places = new WeakMap();

/** They go with the model that came first. */
function placeOf({device, owns}) {
  let place = places.get(device);
  if (!place) {
    const spare = [];
    const destroy = () => {
      for (const each of spare.splice(0)) release(each);
      places.delete(device);
    };
    places.set(device, (place = {spare, destroy}));
    owns.push(place);
  }
  return place;
}

function release({texture, uniform}) {
  texture?.destroy();
  uniform.destroy();
}

/** A texture of a size, or none, and the uniforms to read it by: nobody else's until it is put back. */
function takeFrame(core, width, height) {
  const {device} = core,
    {spare} = placeOf(core),
    found = spare.findIndex(({texture}) => texture?.width === width && texture?.height === height);
  if (found >= 0) return spare.splice(found, 1)[0];
  const label = "tinyedge picture",
    // TEXTURE_BINDING, COPY_DST, RENDER_ATTACHMENT
    texture =
      width &&
      device.createTexture({label, size: [width, height], format: "rgba8unorm", usage: 22});
  return {device, texture, uniform: device.createBuffer({label, size: 528, usage: 72 /* UNIFORM, COPY_DST */})};
}

function putBack(frame) {
  const place = places.get(frame.device);
  if (!place) return release(frame);
  place.spare.unshift(frame);
  place.spare.splice(SPARE).forEach(release);
}

/**
 * Where a pixel of what is seen lies in the picture: of a rectangle that is cut out, turned clockwise, then mirrored.
 * As of a canvas' setTransform: x = a x + c y + e, y = b x + d y + f.
 * @returns {any}
 */
function turned({x, y, width, height}, quarters, mirror) {
  const cos = [1, 0, -1, 0][quarters],
    sin = [0, 1, 0, -1][quarters],
    seen = quarters % 2 ? [height, width] : [width, height];
  let [a, b] = [cos, 0 - sin],
    e = x + (cos < 0 || sin < 0 ? width : 0),
    f = y + (cos < 0 || sin > 0 ? height : 0);
  if (mirror) {
    e += a * seen[0];
    f += b * seen[0];
    a = -a;
    b = -b;
  }
  return {seen, matrix: [a, b, sin, cos, e, f]};
}

/** Where a place of the input lies in the picture: what --image says of the fit, then how it was turned. */
function placementOf([a, b, c, d, e, f], [width, height], {fit, width: across, height: down}) {
  let x = width / across,
    y = height / down;
  if (fit !== "stretch") x = y = fit === "letterbox" ? Math.max(x, y) : Math.min(x, y);
  const left = (width - across * x) / 2,
    top = (height - down * y) / 2,
    m = [a * x, b * x, c * y, d * y, a * left + c * top + e, b * left + d * top + f];
  return {matrix: m, at: (i, j) => [m[0] * i + m[2] * j + m[4], m[1] * i + m[3] * j + m[5]]};
}

/**
 * The bytes of what a canvas can draw, where kernels take no textures, or a promise of them. A canvas loses the color of what is
 * transparent, and gives it to no one; a frame made of a bitmap has it, but of an SVG only made of a bitmap's bitmap. An SVG
 * without a size has no bitmap, and no color there.
 */
function pixelsOf(image, {x, y, width, height}, {seen: [across, down], matrix}, channels) {
  const context = /** @type {any} */ (new OffscreenCanvas(width, height).getContext("2d")),
    [a, b, c, d, e, f] = matrix;
  let clear;
  /** `order`: which of a pixel's bytes is red, and so on. */
  const take = (data, order = [0, 1, 2, 3]) => {
    const found = new Uint8Array(across * down * channels);
    for (let j = 0, k = 0; j < down; j++)
      for (let i = 0; i < across; i++, k += channels) {
        const u = (a * (i + 0.5) + c * (j + 0.5) + e - x) | 0,
          v = (b * (i + 0.5) + d * (j + 0.5) + f - y) | 0,
          at = 4 * (v * width + u);
        clear ||= data[at + 3] < 255;
        for (let n = 0; n < channels; n++) found[k + n] = data[at + order[n]];
        if (channels < 2)
          found[k] = (found[k] * 19595 + data[at + 1] * 38470 + data[at + order[2]] * 7471 + 32768) >> 16;
      }
    return found;
  };
  // Throws before the first frame, where a canvas would draw nothing.
  if (image.videoWidth && globalThis.VideoFrame) new VideoFrame(image).close();
  if (image.data) {
    // Opaque, so that the canvas keeps its color; half floats and other colors become bytes of sRGB there.
    const data = image.data.slice();
    for (let i = 3; i < data.length; i += 4) data[i] = data.BYTES_PER_ELEMENT > 1 || 255;
    context.putImageData(new ImageData(data, image.width, image.height, image), -x, -y);
  } else context.drawImage(image, x, y, width, height, 0, 0, width, height);
  const found = take(context.getImageData(0, 0, width, height).data);
  if (!clear || !globalThis.VideoFrame) return found;
  return createImageBitmap(image, x, y, width, height, STRAIGHT).then(async (first) => {
    const bitmap = await createImageBitmap(first, STRAIGHT),
      frame = new VideoFrame(bitmap, {timestamp: 0}),
      data = new Uint8Array(4 * width * height),
      known = frame.format === "BGRA" && frame.colorSpace.primaries === "bt709";
    if (known) await frame.copyTo(data);
    frame.close();
    return known ? take(data, [2, 1, 0, 3]) : found;
  }, () => found);
}

/** Declare a model's pictures: its runs then take what shows one. */
export function takePictures(core) {
  const {parsed: m} = core,
    declared = new Map();
  // Nothing has checked the options of a bundle.
  for (const {input, ...declaration} of [m.options.images].flat().filter(Boolean)) {
    // As Python's ascii() writes what is not ASCII.
    const name = String(input).replace(/\\(?:[xuU]([\da-f]+)|(.))/g, (_, code, other) =>
      code ? String.fromCodePoint(parseInt(code, 16)) : other,
    );
    const port = m.inputs.find((port) => port.name === name);
    if (port?.dtype !== "uint8") continue;
    const launches = [...m.steps.keys()].filter((i) => m.steps[i].buffers?.includes(port.buffer)),
      takes = launches.every((i) => {
        const {kernel, buffers} = m.steps[i];
        return m.kernels[kernel].bindings[buffers.indexOf(port.buffer)].dtype === "picture";
      });
    declared.set(name, {...declaration, port, launches, takes});
  }

  const isPicture = (value) => KINDS.test(kindOf(value?.image ?? value));

  /** A picture as it is now. */
  const shoot = (name, given, {from, max}, channels) => {
    const need = (good, because, next = "give {image, crop, rotate, mirror}", id = "run.input") =>
      good || fail(id, `input "${name}"`, because, next);
    const {image, crop, rotate = 0, mirror = false} = given.image
        ? chosen(given, ["image", "crop", "rotate", "mirror"], "run.input")
        : {image: given},
      kind = kindOf(image),
      sizes = ["Width", "Height"].map(
        (side) =>
          image[`display${side}`] ??
          image[`video${side}`] ??
          image[`natural${side}`] ??
          image[side.toLowerCase()],
      ),
      [wide, high] = sizes;
    // Of ImageData whose bytes went elsewhere only the size is there.
    need(
      wide && high && image.data?.length !== 0,
      `the ${kind} has no pixels`,
      "give one that is loaded, close it later",
    );
    const {x = 0, y = 0, width = wide - x, height = high - y} = chosen(
        crop,
        ["x", "y", "width", "height"],
        "run.input",
      ),
      whole = [x, y, width, height].every((size, i) => size >= i >> 1 && Number.isInteger(size));
    need(
      whole && x + width <= wide && y + height <= high,
      `its crop is ${width} x ${height} at ${x}, ${y}`,
      `give whole numbers within ${wide} x ${high}`,
    );
    const quarters = (rotate / 90) & 3;
    need(rotate % 90 === 0, `rotate is ${rotate}`, "give 0, 90, 180 or 270, clockwise");
    need(channels, `it takes planes of ${from}`, `give arrays for ${name} and ${name}.uv`);
    const most = Math.max(width, height);
    need(most <= max, `it is ${width} x ${height}`, `give a smaller one, or export with max:${most}`, "run.shape");
    const texture = kind === "GPUTexture" && image;
    need(
      !texture || texture.usage & 4,
      "its texture lacks TEXTURE_BINDING",
      "add GPUTextureUsage.TEXTURE_BINDING to its usage",
    );
    need(
      !texture || (texture.sampleCount === 1 && texture.dimension === "2d" && !texture.format.endsWith("int")),
      "its texture cannot be read",
      "give one in 2D, of one sample, not of integers",
    );
    const area = {x, y, width, height},
      turn = turned(area, quarters, mirror);
    return {image, texture, area, turn};
  };

  /** What the browser has against a picture. */
  const refuse = (name, {message}) =>
    fail("run.input", `input "${name}"`, message, "give a picture that is loaded, of this origin or by CORS");

  /**
   * Bring a picture to a texture, at once; where the browser takes no such source, by a bitmap of it. `faults`: promises of
   * what the GPU has against it and the run does not wait for.
   */
  const capture = (name, {image, area}, taken, faults) => {
    const {x, y, width, height} = area;
    let frame, late, ready;
    /** Gives what the browser has against it. */
    const bring = (on, source, origin) => {
      taken.push((frame = takeFrame(on, width, height)));
      try {
        on.device.queue.copyExternalImageToTexture({source, origin}, frame, [width, height]);
      } catch (error) {
        putBack(taken.pop());
        return error;
      }
    };
    const snapshot = () => {
      late = createImageBitmap(image, x, y, width, height, STRAIGHT);
      late.catch(() => {});
    };
    // Of a lost device: the run gets another one.
    if (core.loss.cause) snapshot();
    else ready = guard(core, () => bring(core, image, [x, y]) && snapshot(), [name]);
    ready?.catch(() => {});
    return async (run) => {
      // A texture that is new may lack memory, and what a run makes of a fault stays in states.
      if (late || !frame?.written || m.states[0]) await ready;
      else faults.push(ready);
      if (late) {
        const bitmap = await late.catch((error) => refuse(name, error));
        const fault = await guard(run, () => bring(run, bitmap, [0, 0]), [name]);
        bitmap.close();
        if (fault) refuse(name, fault);
      }
      return frame;
    };
  };

  /** What reads textures: the entry point `picture` of a kernel. `decoded`: where one of them is decoded by the device. */
  const pipelineOf = ({device, modules}, kernel, decoded) =>
    // Beside the modules, which go by number.
    (modules[`picture${[kernel, decoded]}`] ??= device.createComputePipelineAsync({
      label: "tinyedge picture",
      layout: "auto",
      compute: {module: modules[kernel], entryPoint: "picture", constants: {decodes: decoded}},
    }));

  // Faults are told by the run that needs them.
  core.prepare = (core) => {
    for (const {takes, launches} of declared.values())
      for (const i of takes ? launches : []) pipelineOf(core, m.steps[i].kernel, false).catch(() => {});
  };
  // Else the kernels come later.
  if (core.modules) core.prepare(core);

  /** Bind groups of what is the model's alone, by the first frame. @type {WeakMap<any, any>} */
  const bound = new WeakMap();

  /** Make a run's launches read textures in place of an input's bytes. */
  const show = async (run, name, {buffer: number}, launches, shots, frames) => {
    const {device, ranges, sizeTable} = run,
      [first] = frames,
      place = new Float32Array(8 * shots.length + 4),
      sources = shots.map(({texture}, n) => texture || frames[n].texture),
      decodes = sources.map(({format}) => format.endsWith("-srgb")),
      decoded = decodes.includes(true),
      theirs = shots.some(({texture}) => texture) && Object.assign([name], {usage: "TEXTURE_BINDING"});
    shots.forEach(({texture, area: {x, y}, turn}, n) => {
      const [a, b, c, d, e, f] = turn.matrix,
        // Of the texture that is the model's own only the crop is there.
        [left, top] = texture ? [0, 0] : [x, y];
      place.set([a, b, c, d, e - left, f - top, decodes[n]], 8 * n);
    });
    place.set(shots[0].turn.seen, 8 * shots.length);
    const written = place.join();
    if (first.written !== written) device.queue.writeBuffer(first.uniform, 0, place);
    first.written = written;
    let known = bound.get(first);
    if (theirs) run.theirs.usage = theirs.usage;
    if (theirs || !known?.sources.every((source, n) => source === sources[n])) known = {sources, groups: []};
    if (!theirs) bound.set(first, known);
    run.pipelined = Object.create(run.pipelined);
    run.grouped = [...run.grouped];
    for (const i of launches) {
      const {kernel, buffers} = m.steps[i],
        pipeline = await pipelineOf(run, kernel, decoded);
      const bind = () => {
        const resources = [
          ...buffers.map((each) => each !== number && {...ranges[each], size: whole(ranges[each].size)}),
          ...(m.kernels[kernel].symbols ? [{buffer: sizeTable}] : []),
          ...sources.map((source) => source.createView({mipLevelCount: 1, dimension: "2d", arrayLayerCount: 1})),
          {buffer: first.uniform},
        ];
        return device.createBindGroup({
          label: "tinyedge picture",
          layout: pipeline.getBindGroupLayout(0),
          entries: resources
            .map((resource, binding) => ({binding, resource}))
            .filter(({resource}) => resource),
        });
      };
      run.pipelined[kernel] = pipeline;
      // What the GPU has against a caller's texture is said by what binds it.
      run.grouped[i] = known.groups[i] ??= await (theirs ? guard(run, bind, theirs) : bind());
    }
  };

  core.pictured = (name, value) => {
    const declaration = declared.get(name),
      several = Array.isArray(value),
      given = several ? value : [value];
    if (!declaration) return;
    const at = given.length ? given.findIndex((each) => !isPicture(each)) : 0;
    if (at >= 0) {
      const other = given[at];
      if (!ArrayBuffer.isView(other) && (other?.data ?? other?.buffer)) return;
      const which = several ? `its frame ${at}` : "it",
        because = `${which} is ${kindOf(other?.image ?? other)}, no picture`;
      fail("run.dtype", `input "${name}"`, because, "await createImageBitmap(blob), or give {data, shape}");
    }
    const {from, port, launches, takes} = declaration,
      channels = Object.hasOwn(CHANNELS, from) && CHANNELS[from],
      shots = given.map((each) => shoot(name, each, declaration, channels)),
      [across, down] = shots[0].turn.seen,
      shape = [down, across, channels];
    if (shots.length > 1 || port.shape.length > 3) shape.unshift(shots.length);
    for (const {turn} of shots)
      if (turn.seen.join() !== shots[0].turn.seen.join())
        fail("run.shape", `input "${name}"`, "its frames differ in size", "give frames of one size");
    const back = shots.map(({turn}) => placementOf(turn.matrix, turn.seen, declaration));
    const faults = [];
    let draw, drop;
    // A greater side fits no texture.
    if (takes && Math.max(across, down) <= core.device.limits.maxTextureDimension2D) {
      const taken = [],
        own = async (run) => taken[taken.push(takeFrame(run)) - 1],
        frames = shots.map((shot) => (shot.texture ? own : capture(name, shot, taken, faults)));
      // What comes later on the queue may have them.
      drop = () => taken.splice(0).forEach(putBack);
      draw = async (run) => {
        const {given} = run,
          found = [];
        run.given = () => {
          drop();
          given?.();
        };
        for (const frame of frames) found.push(await frame(run));
        await show(run, name, port, launches, shots, found);
      };
    } else {
      const pixels = shots.map(({image, area, turn, texture}) => {
        if (texture) fail("run.input", `input "${name}"`, "the processor reads its pictures", "give a canvas");
        try {
          return pixelsOf(image, area, turn, channels);
        } catch (error) {
          return refuse(name, error);
        }
      });
      draw = async ({device}, {buffer, offset}) => {
        const all = new Uint8Array(shots.length * across * down * channels);
        for (const [i, each] of pixels.entries()) all.set(await each, i * across * down * channels);
        device.queue.writeBuffer(buffer, offset, toStorage(all, port, shape));
      };
    }
    // To a plan it is a buffer, whose content comes with the run.
    const buffer = {
      size: Infinity,
      drop,
      draw(run, to) {
        const {placed: others} = run;
        run.placed = async (results) => {
          await others?.(results);
          await Promise.all(faults);
          const placement = {...results.placement, [name]: several ? back : back[0]};
          // Those who go over the outputs do not meet it.
          if (!Object.keys(results).includes("placement"))
            Object.defineProperty(results, "placement", {value: placement, configurable: true});
        };
        return draw(run, to);
      },
      get [Symbol.toStringTag]() {
        return "GPUBuffer";
      },
    };
    return {buffer, shape};
  };
}
