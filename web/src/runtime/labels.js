// Names of an output's classes.

import {fail} from "./errors.js";
import {product} from "./types.js";

/** Outputs with names get `top`. */
export function takeLabels(core) {
  core.placed = (results) => {
    for (const record of [core.parsed.options.labels].flat()) {
      const {output, axis, names} = record ?? {},
        found = results[output],
        {data, shape, top: known} = found ?? {};
      if (!data || known || !names?.map || (axis >= 0 && shape[axis] !== names.length)) continue;
      const inner = product(shape.slice(axis + 1)),
        named = (index, place) => ({index, label: names[index] ?? `${index}`, value: Number(data[place])}),
        top = (count = 5, row = 0) => {
          const rows = data.length / (axis < 0 ? 1 : names.length);
          if (![count, row].every(Number.isInteger) || count < 1 || row < 0 || row >= rows)
            fail(
              "run.labels",
              `output "${output}"`,
              `no top(${count}, ${row})`,
              `count from 1, rows below ${rows}`,
            );
          if (axis < 0) return [named(Number(data[row]), row)];
          const column = row % inner,
            first = (row - column) * names.length + column;
          return names
            .map((_, i) => named(i, first + i * inner))
            .filter(({value}) => value === value)
            .sort((a, b) => b.value - a.value)
            .slice(0, count);
        };
      // Those who go over an output's members do not meet it.
      Object.defineProperty(found, "top", {value: top});
    }
  };
}
