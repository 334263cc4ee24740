"use strict";
// Labels by single keys, which can be turned off; everything works without this file as well.
(() => {
  const STORED = "label-keys";
  let keysOn = true;
  try {
    keysOn = localStorage.getItem(STORED) !== "off";
  } catch {
    // a browser may keep nothing
  }

  const say = (text) => {
    document.getElementById("label-status").textContent = text;
  };

  const describe = (button) => {
    button.hidden = false;
    button.textContent = `Keys: ${keysOn ? "on" : "off"}`;
    button.setAttribute("aria-pressed", String(keysOn));
    document.body.classList.toggle("keys-off", !keysOn);
  };

  const writes = (element) =>
    element instanceof HTMLElement &&
    (element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName));

  document.addEventListener("keydown", (event) => {
    if (!keysOn || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (writes(event.target) || document.querySelector("#labelling .htmx-request")) return;
    const button = document.querySelector(`#labelling [data-key="${CSS.escape(event.key.toLowerCase())}"]`);
    if (button === null || button.disabled) return;
    event.preventDefault();
    button.click();
  });

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("keys");
    if (button === null) return;
    describe(button);
    button.addEventListener("click", () => {
      keysOn = !keysOn;
      try {
        localStorage.setItem(STORED, keysOn ? "on" : "off");
      } catch {
        // it lasts as long as the page
      }
      describe(button);
    });
  });

  // A new pair is shown from its beginning, wherever the reader had got to in the last one.
  document.addEventListener("htmx:afterSettle", () => {
    const pair = document.getElementById("pair");
    if (pair !== null && pair.getBoundingClientRect().top < 0) pair.scrollIntoView();
  });

  // The server has begun anew, or somebody has logged out: the page as it is can no longer write.
  document.addEventListener("htmx:responseError", () => location.reload());
  document.addEventListener("htmx:sendError", () => say("The server cannot be reached. Nothing was labelled."));
})();
