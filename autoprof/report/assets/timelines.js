"use strict";
// How Perfetto takes a trace from another page: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
(async () => {
  const { trace, perfetto, view, title } = document.querySelector("main").dataset;
  const button = document.getElementById("open"), said = document.getElementById("said");
  let buffer;
  try {
    const answer = await fetch(trace);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    buffer = await answer.arrayBuffer();
  } catch (error) {
    said.textContent = `The trace could not be read; is autoprof view still running? ${error.message}`;
    return;
  }
  said.textContent = `${(buffer.byteLength / 1e6).toLocaleString("en-US", { maximumFractionDigits: 1 })} MB are ready.`;
  button.disabled = false;
  button.addEventListener("click", () => {
    const viewer = window.open(`${perfetto}/#!/?${view}`);
    if (!viewer) {
      said.textContent = "The browser did not let a window open; allow it for this page and try again.";
      return;
    }
    said.textContent = "Waiting for Perfetto…";
    const calling = setInterval(() => viewer.postMessage("PING", perfetto), 100);
    const answered = (event) => {
      if (event.origin !== perfetto || event.source !== viewer || event.data !== "PONG") return;
      clearInterval(calling);
      removeEventListener("message", answered);
      viewer.postMessage({ perfetto: { buffer, title, fileName: decodeURIComponent(trace) } }, perfetto);
      said.textContent = "Handed over.";
    };
    addEventListener("message", answered);
  });
})();
