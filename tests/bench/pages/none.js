// A page without a model: says when it has come to rest, and then goes to the address after the #, in the same process.

await new Promise((resolve) => setTimeout(resolve, 1000));
await fetch("/said", {method: "POST", body: JSON.stringify({rest: true})});
location.replace(location.hash.slice(1));
