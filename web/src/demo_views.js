// What the page of a bundle shows of outputs: named classes, maps, masks, boxes, waves, text, and windows of the values.

/** An element with properties and children; strings become text, never markup. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

export const number = (value) =>
  typeof value === "number" && !Number.isInteger(value) ? value.toPrecision(5) : String(value);

const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

/** Pixels of a drawn map along its longer side, and values that are read for one: of more, some are left out. */
const MOST = 512;
const MOST_READ = 1 << 22;
const SLICE = 1 << 18;
const WINDOW = 20;

/** Let other tasks come in. */
const pause = () => new Promise((resolve) => setTimeout(resolve));

/** Least, greatest, the greatest five and how many are not finite; other tasks come between parts of large arrays. */
export async function scan(data) {
  const top = [];
  let low = Infinity,
    high = -Infinity,
    strange = 0;
  for (let start = 0; start < data.length; start += SLICE) {
    if (start) await pause();
    for (let i = start; i < Math.min(start + SLICE, data.length); i++) {
      const value = Number(data[i]);
      if (!Number.isFinite(value)) {
        strange++;
        continue;
      }
      if (value < low) low = value;
      if (value > high) high = value;
      if (top.length === 5 && value <= top[4].value) continue;
      const place = top.findIndex((other) => other.value < value);
      top.splice(place < 0 ? top.length : place, 0, {index: i, value});
      top.length = Math.min(top.length, 5);
    }
  }
  return {low, high, strange, top};
}

/** Where an element lies along each axis. */
function placeOf(i, shape) {
  const index = [];
  for (const size of [...shape].reverse()) {
    index.unshift(i % size);
    i = Math.floor(i / size);
  }
  return index.join(", ");
}

const row = (cells) =>
  element(
    "tr",
    {},
    ...cells.map((cell, i) => element("td", {className: i === 1 ? "number" : ""}, cell)),
  );

function tableOf(head, rows) {
  const heads = head.map((name, i) => element("th", {className: i === 1 ? "number" : ""}, name));
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...rows.map(row)),
  );
}

/** Values with bars: named classes, or places. */
function bars(title, entries, low, high) {
  return tableOf(
    [title, "Value", "Bar"],
    entries.map(({name, value}) => [
      name,
      number(value),
      element("meter", {
        min: Math.min(low, 0),
        max: Math.max(high, 0) || 1,
        value,
        ariaLabel: `${name}: ${number(value)}`,
      }),
    ]),
  );
}

/** The values themselves, some at a time: a page never holds more of them as text. */
function valuesOf({name, shape, data}) {
  const body = element("tbody"),
    from = element("input", {type: "number", min: "0", value: "0", ariaLabel: `First value of ${name}`}),
    made = element("details", {className: "values"}, element("summary", {}, "Values"));
  from.max = String(Math.max(0, data.length - 1));
  const show = (start) => {
    const first = Math.max(0, Math.min(Math.trunc(start) || 0, data.length - 1));
    from.value = String(first);
    const count = Math.min(WINDOW, data.length - first);
    body.replaceChildren(
      ...Array.from({length: count}, (_, i) =>
        row([placeOf(first + i, shape), number(data[first + i])]),
      ),
    );
  };
  const step = (text, by) => {
    const button = element("button", {type: "button", ariaLabel: `${text} values of ${name}`}, text);
    button.addEventListener("click", () => show(Number(from.value) + by));
    return button;
  };
  from.addEventListener("change", () => show(Number(from.value)));
  made.addEventListener("toggle", () => made.open && show(Number(from.value)), {once: true});
  const head = element("tr", {}, element("th", {}, "Index"), element("th", {className: "number"}, "Value"));
  made.append(
    element("div", {className: "row"}, step("Previous", -WINDOW), from, step("Next", WINDOW)),
    element("table", {}, element("thead", {}, head), body),
  );
  return made;
}

// ---- what is drawn

/** A canvas that says what it shows. */
function canvasOf(width, height, label) {
  const canvas = element("canvas", {width, height, ariaLabel: label, role: "img"});
  return {canvas, context: /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"))};
}

/** Every how many rows and columns of a map are drawn, and how many these are. */
function sampled(height, width, channels) {
  const step = Math.ceil(Math.max(height / MOST, width / MOST, Math.sqrt((height * width * channels) / MOST_READ)));
  return {step, rows: Math.ceil(height / step), columns: Math.ceil(width / step)};
}

const STOPS = [
  [13, 8, 135],
  [156, 23, 158],
  [237, 121, 83],
  [240, 249, 33],
];

/** A color for 0 to 1. */
function heat(value) {
  const place = Math.max(0, Math.min(1, value)) * (STOPS.length - 1),
    i = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[i].map((from, c) => from + (STOPS[i + 1][c] - from) * (place - i));
}

/** A color for a class, far from its neighbors'. */
function hue(number) {
  const angle = number * 2.39996;
  return [0, 2.0944, 4.18879].map((turn) => 140 + 105 * Math.cos(angle + turn));
}

/**
 * Fill a canvas: colorOf gives red, green, blue and alpha of 0 to 255 at a row and a column, of so many values; a picture
 * lies below. Other tasks come between parts.
 */
async function painted(label, [height, width], picture, colorOf, channels = 1) {
  const {step, rows, columns} = sampled(height, width, channels),
    {canvas, context} = canvasOf(columns, rows, label),
    pixels = context.createImageData(columns, rows);
  let read = 0;
  for (let y = 0, at = 0; y < rows; y++) {
    for (let x = 0; x < columns; x++, at += 4) pixels.data.set(colorOf(y * step, x * step), at);
    read += columns * (channels + 8);
    if (read < SLICE) continue;
    read = 0;
    await pause();
  }
  if (!picture) {
    context.putImageData(pixels, 0, 0);
    return canvas;
  }
  const above = canvasOf(columns, rows, label);
  above.context.putImageData(pixels, 0, 0);
  const {width: wide, height: high} = picture,
    larger = canvasOf(wide, high, label);
  larger.context.drawImage(picture, 0, 0);
  larger.context.drawImage(above.canvas, 0, 0, wide, high);
  return larger.canvas;
}

/** Where rows, columns and channels of a map lie in an output, or null. */
function mapOf(shape, labeled) {
  const axes = shape.length,
    rest = (count) => product(shape.slice(0, -count)) === 1,
    large = (...sizes) => sizes.every((size) => size >= 8);
  if (axes >= 3 && rest(3)) {
    const [a, b, c] = shape.slice(-3);
    const last = labeled === axes - 1 || (labeled === undefined && c <= 4 && a > 4);
    if (last && large(a, b)) return {channels: c, sizes: [a, b], stride: 1, pixel: c};
    if (!last && large(b, c)) return {channels: a, sizes: [b, c], stride: b * c, pixel: 1};
  }
  if (axes >= 2 && rest(2) && large(...shape.slice(-2)))
    return {channels: 1, sizes: shape.slice(-2), stride: 1, pixel: 1};
  return null;
}

/** A map as colors: of heat, of a picture, or of classes, with their names. */
async function drawMap({name, dtype, data}, map, {low, high}, names, picture) {
  const {channels, sizes, stride, pixel} = map,
    [, width] = sizes,
    span = high - low || 1,
    at = (y, x) => (y * width + x) * pixel;
  if (names === null && channels === 1)
    return [
      await painted(`Heat map of ${name}`, sizes, picture, (y, x) => [
        ...heat((Number(data[at(y, x)]) - low) / span),
        picture ? 150 : 255,
      ]),
    ];
  if (names === null && (channels === 3 || channels === 4)) {
    const scale = dtype === "uint8" ? 1 : low >= 0 && high <= 1 ? 255 : 255 / span,
      base = dtype === "uint8" || (low >= 0 && high <= 1) ? 0 : low;
    return [
      await painted(`Picture of ${name}`, sizes, null, (y, x) => [
        ...[0, 1, 2].map((c) => (Number(data[at(y, x) + c * stride]) - base) * scale),
        255,
      ]),
    ];
  }
  const counts = new Map();
  const best = (y, x) => {
    const first = at(y, x);
    let found = 0;
    if (channels === 1) found = Number(data[first]);
    else
      for (let c = 1; c < channels; c++)
        if (data[first + c * stride] > data[first + found * stride]) found = c;
    counts.set(found, (counts.get(found) ?? 0) + 1);
    return found;
  };
  // Of a mask over a picture the first class is mostly what lies behind.
  const color = (y, x) => {
    const found = best(y, x);
    return [...hue(found), picture ? (found ? 150 : 0) : 255];
  };
  const drawn = await painted(`Mask of ${name}`, sizes, picture, color, channels);
  const total = [...counts.values()].reduce((a, b) => a + b, 0);
  const legend = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 8);
  return [
    drawn,
    element(
      "ul",
      {className: "legend"},
      ...legend.map(([found, count]) => {
        const key = element("span", {className: "key", ariaHidden: "true"});
        key.style.background = `rgb(${hue(found).map(Math.round).join()})`;
        const share = `${((100 * count) / total).toFixed(1)} %`;
        return element("li", {}, key, `${names?.[found] ?? `class ${found}`}, ${share}`);
      }),
    ),
  ];
}

/** A line of values: of many, the least and the greatest of each column. */
function drawWave({name, data}, {low, high}) {
  const width = Math.min(data.length, 1024),
    height = 160,
    {canvas, context} = canvasOf(width, height, `Wave of ${name}`),
    y = (value) => height - 1 - ((value - low) / (high - low || 1)) * (height - 2);
  canvas.className = "wave";
  context.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  context.beginPath();
  for (let x = 0; x < width; x++) {
    const from = Math.floor((x * data.length) / width),
      to = Math.max(from + 1, Math.floor(((x + 1) * data.length) / width)),
      step = Math.ceil((to - from) / 256);
    let least = Infinity,
      most = -Infinity;
    for (let i = from; i < to; i += step) {
      const value = Number(data[i]);
      if (value < least) least = value;
      if (value > most) most = value;
    }
    if (least > most) continue;
    context.lineTo(x + 0.5, y(least));
    context.lineTo(x + 0.5, y(most));
  }
  context.stroke();
  return canvas;
}

/** What numbers spell: names of their classes, or characters of bytes; null where it is no text. */
function textOf({dtype, data}, names) {
  const part = data.subarray(0, 4096);
  if (names) return Array.from(part, (value) => names[Number(value)] ?? `${value}`).join(" ");
  if (dtype !== "uint8" || data.length < 2) return null;
  const end = part.indexOf(0),
    text = new TextDecoder().decode(end < 0 ? part : part.subarray(0, end));
  return text && !/[\0-\x08\x0e-\x1f\ufffd]/.test(text) ? text : null;
}

// ---- boxes

const MOST_BOXES = 50;
const MOST_COMPARED = 1000;
const LEAST_SCORE = 0.25;

const sorted = (boxes) => boxes.sort((a, b) => b.score - a.score);

function overlap(a, b) {
  const across = Math.min(a.right, b.right) - Math.max(a.left, b.left),
    down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top),
    both = Math.max(0, across) * Math.max(0, down),
    area = ({left, top, right, bottom}) => (right - left) * (bottom - top);
  return both / (area(a) + area(b) - both || 1);
}

/** Of boxes of one class that lie over each other, the best. */
function suppressed(boxes) {
  const kept = [];
  for (const box of sorted(boxes).slice(0, MOST_COMPARED))
    if (!kept.some((other) => other.kind === box.kind && overlap(other, box) > 0.5)) kept.push(box);
  return kept;
}

/** The best of so many boxes, each by its number or null; `reads`: values that are read for one. */
async function gathered(count, reads, boxAt) {
  let found = [],
    read = 0;
  for (let i = 0; i < count; i++) {
    const box = boxAt(i);
    if (box) found.push(box);
    if (found.length > 4 * MOST_COMPARED) found = sorted(found).slice(0, MOST_COMPARED);
    read += reads + 8;
    if (read < SLICE) continue;
    read = 0;
    await pause();
  }
  return suppressed(found);
}

/** A box from its four numbers: corners, or with `centered` its middle and size; up to 2 as parts of the picture. */
function boxOf(four, centered, unit, size, more) {
  let [left, top, right, bottom] = four;
  if (centered) [left, top, right, bottom] = [left - right / 2, top - bottom / 2, left + right / 2, top + bottom / 2];
  const [x, y] = unit ? size : [1, 1];
  return {left: left * x, top: top * y, right: right * x, bottom: bottom * y, ...more};
}

/** The best class of a row of scores. */
function bestOf(data, first, count, stride) {
  let kind = 0;
  for (let c = 1; c < count; c++)
    if (data[first + c * stride] > data[first + kind * stride]) kind = c;
  return {kind, score: Number(data[first + kind * stride])};
}

/**
 * Boxes that outputs hold together, in pixels of the picture, and the output that is shown with them; null where there are
 * none. Known are [N, 4] beside scores [N] or [N, classes] and perhaps classes [N]; [N, 5 or 6]; and [4 + classes, places]
 * of three grids of an eighth, a sixteenth and a thirty-second of the picture.
 */
export async function boxesOf(outputs, picture) {
  if (!picture) return null;
  const size = [picture.width, picture.height],
    every = /** @type {any[]} */ (Object.values(outputs)).filter(({data}) => data),
    plain = ({shape}) => (product(shape.slice(0, -2)) === 1 && shape.length > 1 ? shape.slice(-2) : []);
  const corners = every.find(({dtype, shape}) => /^float/.test(dtype) && shape.length > 1 && shape.at(-1) === 4);
  if (corners) {
    const count = corners.data.length / 4,
      others = every.filter(
        ({name, shape}) => name !== corners.name && count && shape.slice(-2).includes(count),
      ),
      scores = others.find(({dtype}) => /^float/.test(dtype)),
      kinds = others.find(({dtype, data}) => /^u?int/.test(dtype) && data.length === count);
    if (scores) {
      const classes = scores.data.length / count,
        {data} = corners;
      let ordered = true,
        unit = true;
      await gathered(count, 4, (n) => {
        const i = 4 * n;
        ordered &&= data[i] <= data[i + 2] && data[i + 1] <= data[i + 3];
        unit &&= data[i] <= 2 && data[i + 1] <= 2 && data[i + 2] <= 2 && data[i + 3] <= 2;
        return null;
      });
      const boxes = await gathered(count, classes, (i) => {
        const {kind, score} = bestOf(scores.data, i * classes, classes, 1);
        if (!(score >= LEAST_SCORE)) return null;
        const of = {kind: kinds ? Number(kinds.data[i]) : kind, score};
        return boxOf(data.subarray(4 * i, 4 * i + 4), !ordered, unit, size, of);
      });
      return {name: corners.name, kinds: kinds?.name ?? scores.name, boxes};
    }
  }
  const places = (size[0] * size[1] * 21) / 1024;
  for (const output of every.filter(({dtype}) => /^float/.test(dtype))) {
    const {name, data} = output,
      [rows, columns] = plain(output);
    if (columns === places && rows > 4) {
      const boxes = await gathered(columns, rows, (i) => {
        const best = bestOf(data, 4 * columns + i, rows - 4, columns),
          four = [0, 1, 2, 3].map((axis) => data[axis * columns + i]);
        return best.score >= LEAST_SCORE ? boxOf(four, true, false, size, best) : null;
      });
      return {name, kinds: name, boxes};
    }
    if ((columns === 5 || columns === 6) && rows >= 1 && rows <= 10000) {
      const boxes = await gathered(rows, columns, (i) => {
        const [left, top, right, bottom, score, kind = 0] = data.subarray(i * columns, (i + 1) * columns);
        if (right <= left || bottom <= top || score < LEAST_SCORE || score > 1) return null;
        const unit = Math.max(right, bottom) <= 2;
        return boxOf([left, top, right, bottom], false, unit, size, {kind, score});
      });
      if (boxes.length) return {name, kinds: name, boxes};
    }
  }
  return null;
}

function drawBoxes(name, boxes, names, picture) {
  // Lines are thinner than a small picture's pixels.
  const scale = Math.max(1, MOST / picture.width),
    {canvas, context} = canvasOf(picture.width * scale, picture.height * scale, `Boxes of ${name}`),
    unit = canvas.width / 300;
  context.drawImage(picture, 0, 0, canvas.width, canvas.height);
  context.lineWidth = 2 * unit;
  context.font = `${12 * unit}px sans-serif`;
  const shown = boxes.slice(0, MOST_BOXES),
    said = ({kind, score}) => `${names?.[kind] ?? `class ${kind}`} ${score.toFixed(2)}`;
  for (const box of shown) {
    const {kind} = box,
      [left, top, right, bottom] = [box.left, box.top, box.right, box.bottom].map((place) => place * scale);
    context.strokeStyle = context.fillStyle = `rgb(${hue(kind).map(Math.round).join()})`;
    context.strokeRect(left, top, right - left, bottom - top);
    const text = said(box),
      wide = context.measureText(text).width + 6 * unit,
      // Within the picture.
      x = Math.max(0, Math.min(left - unit, canvas.width - wide)),
      y = Math.max(top - 16 * unit, 0);
    context.fillRect(x, y, wide, 16 * unit);
    context.fillStyle = "#000";
    context.fillText(text, x + 3 * unit, y + 12 * unit);
  }
  const list = shown.slice(0, 8).map((box) => element("li", {}, said(box)));
  return [canvas, element("ul", {className: "legend"}, ...(list.length ? list : [element("li", {}, "no box")]))];
}

// ---- an output

/**
 * A card of an output, by what its shape suggests.
 * @param {any} output @param {any} options labels: what the manifest says of them; picture: what the model saw, a canvas;
 *   boxes: what `boxesOf` found
 */
export async function showOutput(output, {labels = [], picture = null, boxes = null} = {}) {
  const {name, dtype, shape, data} = output,
    record = labels.find((each) => each.output === name),
    names = record?.names ?? null,
    found = await scan(data),
    {low, high, strange, top} = found,
    single = record && record.axis >= 0 && shape[record.axis] === data.length,
    map = data.length ? mapOf(shape, record?.axis >= 0 ? record.axis : undefined) : null;
  const finite = data.length - strange,
    said = finite
      ? `from ${number(low)} to ${number(high)}${strange ? `; ${strange} not finite` : ""}`
      : `${data.length} values, none finite`,
    card = element(
      "div",
      {className: "card"},
      element("h3", {}, name),
      element("p", {className: "type"}, `${dtype} [${shape.join(", ")}]`),
      element("p", {className: "quiet"}, said),
    );
  const text = textOf(output, record?.axis === -1 && !map ? names : null);
  if (boxes?.name === name) {
    const kinds = labels.find((each) => each.output === boxes.kinds);
    card.append(...drawBoxes(name, boxes.boxes, kinds?.names, picture));
  } else if (single && output.top)
    card.append(bars("Class", output.top(5).map(({label, value}) => ({name: label, value})), low, high));
  else if (text !== null) card.append(element("p", {className: "text"}, text));
  else if (map) card.append(...(await drawMap(output, map, found, names ?? (map.channels > 4 ? [] : null), picture)));
  else if (shape.at(-1) === data.length && data.length >= 256 && /^float/.test(dtype))
    card.append(drawWave(output, found));
  else card.append(bars("Index", top.map(({index, value}) => ({name: placeOf(index, shape), value})), low, high));
  if (data.length) card.append(valuesOf(output));
  return card;
}
