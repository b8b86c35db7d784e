// The start of a page that is one file: what a bundle has as files beside the page lies in it, as elements <script data-file>.
//
//   const model = await tinyedge.load();

globalThis.tinyedge = (() => {
  const find = (name) => document.querySelector(`script[data-file="${CSS.escape(name)}"]`),
    addresses = new Map();

  function bytesOf(name) {
    const text = find(name).textContent;
    return Uint8Array.fromBase64?.(text) ?? Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  }

  /** What a module is imported by. */
  function address(name) {
    if (!addresses.has(name)) {
      const file = new Blob([bytesOf(name)], {type: "text/javascript"});
      addresses.set(name, URL.createObjectURL(file));
    }
    return addresses.get(name);
  }

  async function fetch(url) {
    const name = url.pathname.split("/").pop();
    return find(name) ? new Response(bytesOf(name)) : new Response(null, {status: 404});
  }

  /** Load the model in this page. Options as those of tinyedge.js. */
  async function load(options) {
    const runtime = await import(address("tinyedge.js"));
    return runtime.load(location.href, {fetch, ...options});
  }

  return {address, load};
})();
