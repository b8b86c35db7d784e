// Runs before a page's own script and says to the server what the page feels until its first output.

let longest = 0;
const note = (entries) => {
  for (const {duration} of entries) longest = Math.max(longest, duration);
};
const observer = new PerformanceObserver((list) => note(list.getEntries()));
observer.observe({type: "longtask", buffered: true});

const say = (words) => fetch("/said", {method: "POST", body: JSON.stringify(words)});

// After all scripts, so that there is a bench unless one failed.
addEventListener("DOMContentLoaded", async () => {
  try {
    await bench.ready;
    const seconds = performance.now() / 1e3; // since navigation
    await new Promise((resolve) => setTimeout(resolve, 200)); // a task is observed after its end
    note(observer.takeRecords());
    await say({seconds, longest});
  } catch (error) {
    await say({error: String(error?.stack ?? error)});
  }
});
