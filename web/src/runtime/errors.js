// Errors: everything thrown on purpose has a stable id.

/** Everything thrown on purpose. `id` is stable; for faults of a bundle it is the one that C and Python give. */
export class TinyedgeError extends Error {
  /** @param {string} id @param {string} subject @param {string} because @param {string} next */
  constructor(id, subject, because, next) {
    super(`${subject} [${id}]\n  because    ${because}\n  next       ${next}`);
    Object.assign(this, {name: "TinyedgeError", id, subject, because, next});
  }
}

/** @param {string} id @param {string} subject @param {string} [because] @param {string} [next] @returns {never} */
export function fail(
  id,
  subject,
  because = "it breaks the format",
  next = "export it again, and copy all its files",
) {
  throw new TinyedgeError(id, subject, because, next);
}
