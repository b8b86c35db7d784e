// The inputs of the page of a bundle: generated ones, pictures that are dropped, pasted, opened or from the camera, and .npy files.

import {element} from "./demo_views.js";

const SCALES = {
  "0 to 1": (value) => value / 255,
  "-1 to 1": (value) => value / 127.5 - 1,
  "0 to 255": (value) => value,
  ImageNet: (value, channel) =>
    (value / 255 - [0.485, 0.456, 0.406][channel]) / [0.229, 0.224, 0.225][channel],
};

/** Where channels, rows and columns of an image lie in a shape, or null. */
function imageAxes(shape) {
  if (shape.length < 3 || shape.length > 4 || (shape.length === 4 && shape[0] !== 1)) return null;
  const [a, b, c] = shape.slice(-3),
    colors = [1, 3];
  if (colors.includes(a)) return {channels: a, height: b, width: c, first: true};
  return colors.includes(c) ? {channels: c, height: a, width: b, first: false} : null;
}

/** Draw what a model of that size sees of a picture, by how the picture is fitted. */
function drawFitted(canvas, picture, width, height, fit) {
  Object.assign(canvas, {width, height, hidden: false});
  const context = canvas.getContext("2d", {willReadFrequently: true}),
    [wide, high] = [picture.width / width, picture.height / height],
    scale = fit === "letterbox" ? Math.max(wide, high) : Math.min(wide, high),
    [across, down] = fit === "stretch" ? [width, height] : [picture.width / scale, picture.height / scale];
  context.drawImage(picture, (width - across) / 2, (height - down) / 2, across, down);
  return context;
}

/** A picture as the values of an input of that shape. */
function pixelsOf(context, shape, scale, dtype) {
  const {channels, height, width, first} = /** @type {any} */ (imageAxes(shape)),
    pixels = context.getImageData(0, 0, width, height).data,
    area = width * height,
    bytes = dtype === "uint8",
    data = bytes ? new Uint8Array(area * channels) : new Float32Array(area * channels);
  for (let i = 0; i < area; i++) {
    const [red, green, blue] = pixels.subarray(4 * i, 4 * i + 3),
      gray = 0.299 * red + 0.587 * green + 0.114 * blue;
    for (let channel = 0; channel < channels; channel++) {
      const value = channels === 3 ? [red, green, blue][channel] : gray;
      data[first ? channel * area + i : i * channels + channel] = bytes
        ? value
        : SCALES[scale](value, channel);
    }
  }
  return {data, shape};
}

const NPY = {
  "|b1": ["bool", Uint8Array],
  "|i1": ["int8", Int8Array],
  "|u1": ["uint8", Uint8Array],
  "<i2": ["int16", Int16Array],
  "<u2": ["uint16", Uint16Array],
  "<i4": ["int32", Int32Array],
  "<u4": ["uint32", Uint32Array],
  "<i8": ["int64", BigInt64Array],
  "<u8": ["uint64", BigUint64Array],
  "<f2": ["float16", Uint16Array],
  "<f4": ["float32", Float32Array],
  "<f8": ["float64", Float64Array],
};

/** What a file may have beside an input's own type. */
const NEAR = {bool: "uint8", uint8: "bool", int64: "int32", uint64: "uint32", float64: "float32", float16: "float32"};

/** An array file as numpy.save writes it, for an input of that type; of one of codes the type that holds them. */
async function readNpy(file, dtype) {
  const bytes = new Uint8Array(await file.arrayBuffer()),
    view = new DataView(bytes.buffer);
  const text = (from, to) => String.fromCharCode(...bytes.subarray(from, to));
  if (text(0, 6) !== "\x93NUMPY") throw new Error(`${file.name} is no .npy file`);
  const long = bytes[6] > 1,
    start = long ? 12 : 10;
  const end = start + (long ? view.getUint32(8, true) : view.getUint16(8, true)),
    header = text(start, end);
  const type = /'descr': '([^']+)'/.exec(header)?.[1] ?? "",
    shape = /'shape': \(([^)]*)\)/.exec(header)?.[1];
  if (!NPY[type] || shape === undefined || !header.includes("'fortran_order': False")) {
    throw new Error(
      `${file.name}: a plain array in C order is needed, its header is ${header.trim()}`,
    );
  }
  const [found, Values] = NPY[type],
    [wanted] = dtype.split(":");
  if (found !== wanted && found !== NEAR[wanted]) {
    throw new Error(
      `${file.name} has ${found}, the input takes ${wanted}: numpy.save(path, array.astype("${wanted}"))`,
    );
  }
  return {
    data: new Values(bytes.buffer.slice(end)),
    shape: shape
      .split(",")
      .filter((size) => size.trim())
      .map(Number),
  };
}

/** Of a picture the colors as they are, also where they are not seen: what `<img>` gives, and Python. */
const PIXELS = /** @type {const} */ ({premultiplyAlpha: "none"});

/** A picture of at most so many pixels a side. */
async function within(picture, most = Infinity) {
  const {width, height} = picture,
    scale = most / Math.max(width, height);
  if (scale >= 1) return picture;
  return createImageBitmap(picture, {
    ...PIXELS,
    resizeWidth: Math.max(1, Math.floor(width * scale)),
    resizeHeight: Math.max(1, Math.floor(height * scale)),
    resizeQuality: "high",
  });
}

/** A picture from the camera, and the end of it. */
async function openCamera(video) {
  if (!navigator.mediaDevices) throw new Error("This page may use no camera: open it by https or from localhost.");
  const stream = await navigator.mediaDevices.getUserMedia({video: {facingMode: "environment"}});
  Object.assign(video, {srcObject: stream, muted: true, playsInline: true});
  await video.play();
  return () => {
    for (const track of stream.getTracks()) track.stop();
    video.srcObject = null;
  };
}

/**
 * The card of an input.
 * @param {any} port @param {any} declared what --image says of it, if anything
 * @param {(work: () => Promise<void>) => void} told does what may fail, and says so
 */
export function inputCard(port, shape, declared, told) {
  const {name, dtype} = port,
    pictured = declared || (imageAxes(shape) && /^(float|uint8$)/.test(dtype)),
    select = (values) => element("select", {}, ...values.map((value) => element("option", {}, value))),
    kind = select(["Generated", ...(pictured ? ["Image", "Camera"] : []), ".npy file"]),
    file = element("input", {type: "file", hidden: true, ariaLabel: `File for ${name}`}),
    hint = element("p", {className: "quiet", hidden: true}),
    scale = select(Object.keys(SCALES)),
    scaled = element("label", {hidden: true}, "Values ", scale),
    video = element("video", {hidden: true, ariaLabel: `Camera for ${name}`}),
    canvas = element("canvas", {hidden: true, role: "img", ariaLabel: `What the model sees of ${name}`});
  let given = /** @type {any} */ (null),
    untouched = false,
    close = () => {};
  /** Open the camera, unless something else was chosen until it is there. */
  async function film() {
    const stop = await openCamera(video);
    if (kind.value === "Camera") close = stop;
    else stop();
  }
  /** Take values from elsewhere. first: they are generated while nothing is chosen. */
  function turn(to, first = false) {
    untouched = first;
    hint.textContent = `Open a picture, drop one on this page, or paste one.${first ? " Until then the values are generated." : ""}`;
    close();
    close = () => {};
    kind.value = to;
    given = null;
    file.hidden = to !== "Image" && to !== ".npy file";
    file.accept = to === "Image" ? "image/*" : ".npy";
    file.value = "";
    hint.hidden = to !== "Image";
    scaled.hidden = !["Image", "Camera"].includes(to) || Boolean(declared) || dtype === "uint8";
    canvas.hidden = true;
    if (to === "Camera") told(film);
    kind.dispatchEvent(new Event("turned", {bubbles: true}));
  }
  /** Show what the model sees of a picture. */
  function look(picture) {
    const {height, width} = /** @type {any} */ (declared ?? imageAxes(shape));
    kind.dispatchEvent(new CustomEvent("pictured", {bubbles: true, detail: {name, picture}}));
    return drawFitted(canvas, picture, width, height, declared?.fit ?? "stretch");
  }
  async function take(found) {
    given = null;
    untouched = false;
    canvas.hidden = true;
    if (kind.value !== "Image") return void (given = found);
    const picture = await createImageBitmap(found, PIXELS).catch(() => {
      throw new Error(`${found.name} is no picture that this browser can read.`);
    });
    look((given = await within(picture, declared?.max)));
  }
  kind.addEventListener("change", () => turn(kind.value));
  if (declared) turn("Image", true);
  file.addEventListener("change", () => file.files?.[0] && told(() => take(file.files[0])));
  return {
    card: element(
      "div",
      {className: "card"},
      element("h3", {}, name),
      element("p", {className: "type"}, `${dtype} [${port.shape.join(", ")}]`),
      element("label", {}, "Values from ", kind),
      file,
      hint,
      scaled,
      video,
      canvas,
    ),
    name,
    /** What the model saw, to draw on. */
    get seen() {
      return canvas.hidden ? null : canvas;
    },
    get live() {
      return kind.value === "Camera";
    },
    close: () => close(),
    /** Take a file that was dropped or pasted; whether it is of a kind that this input takes. */
    accepts: (found) => (/^image\//.test(found.type) ? pictured : /\.npy$/.test(found.name)),
    async take(found) {
      turn(/^image\//.test(found.type) ? "Image" : ".npy file");
      await take(found);
    },
    /** The input of a run: `generated`, or what was chosen in place of it. */
    async value(generated) {
      if (kind.value === "Generated" || untouched) return generated;
      // Of a camera that was not there; it may be by now.
      if (kind.value === "Camera" && !video.srcObject) await film();
      if (kind.value !== "Camera" && !given) throw new Error(`Choose a file for ${name}`);
      if (kind.value === ".npy file") return readNpy(given, dtype);
      const picture = kind.value === "Camera" ? await within(await createImageBitmap(video), declared?.max) : given,
        context = look(picture);
      return declared ? picture : pixelsOf(context, shape, scale.value, dtype);
    },
  };
}
