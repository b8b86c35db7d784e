// Sizes that depend on symbols: flat prefix expressions, see bundle.md.

import {fail} from "./errors.js";
import {ascii} from "./manifest.js";

export const LIMIT = Number.MAX_SAFE_INTEGER;

/** @type {Record<string, (a: number, b: number) => number>} */
const OPERATORS = {
  add: (a, b) => a + b,
  mul: (a, b) => a * b,
  sub: (a, b) => a - b,
  floordiv: (a, b) => Math.floor(a / b),
  ceildiv: (a, b) => Math.ceil(a / b),
  mod: (a, b) => ((a % b) + b) % b,
  min: Math.min,
  max: Math.max,
};

/**
 * A double is exact here: beyond 2^53 - 1 it can only round to something that is still beyond.
 * @param {any} expression @param {Map<string, number>} values @param {string} at @param {string} id of the error
 */
export function evaluate(expression, values, at, id) {
  if (!Array.isArray(expression)) return expression;
  const stack = [];
  for (const token of expression.toReversed()) {
    let value = token;
    if (token[0] === "$") value = values.get(token.slice(1));
    else if (typeof token === "string") {
      const a = stack.pop(),
        b = stack.pop();
      value =
        Object.hasOwn(OPERATORS, token) && (b >= 1 || !/div|mod/.test(token))
          ? OPERATORS[token](a, b) + 0
          : NaN;
    }
    // What is missing makes a NaN.
    if (Math.abs(value) <= LIMIT) stack.push(value);
    else stack.length = 256;
  }
  if (stack.length > 1)
    fail(
      id,
      at,
      `${ascii(expression)} has no value of 53 bits`,
    );
  return stack[0];
}
