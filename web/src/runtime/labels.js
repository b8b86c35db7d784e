// Names of an output's classes: a file of its own, which comes with a model that has some.

/** Outputs with names get `top`. */
export function takeLabels(core) {
  core.placed = (results) => {
    for (const {output, axis, names} of [core.parsed.options.labels].flat()) {
      const found = results[output],
        {data, shape} = found ?? {};
      if (!data || (axis >= 0 && shape[axis] !== names?.length)) continue;
      const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1),
        named = (index, value) => ({index, label: names[index] ?? String(index), value}),
        top = (count = 5, row = 0) => {
          if (axis < 0) return [named(Number(data[row]), Number(data[row]))];
          const first = Math.floor(row / inner) * names.length * inner + (row % inner);
          return names
            .map((_, i) => named(i, Number(data[first + i * inner])))
            .filter(({value}) => value === value)
            .sort((a, b) => b.value - a.value)
            .slice(0, count);
        };
      // Those who go over an output's members do not meet it.
      Object.defineProperty(found, "top", {value: top});
    }
  };
}
