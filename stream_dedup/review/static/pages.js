"use strict";
// Overview: figures are refreshed by htmx while nobody has paused them and the page is seen.
// Group: the way in which differences are shown is kept in this browser; the focus goes along.
(() => {
  const get = (name) => {
    try {
      return localStorage.getItem(name);
    } catch {
      return null; // a browser may keep nothing
    }
  };
  const put = (name, value) => {
    try {
      localStorage.setItem(name, value);
    } catch {
      // it lasts as long as the page
    }
  };

  const show = (button, paused) => {
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Paused" : "Pause";
    button.hidden = false;
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const button of document.querySelectorAll("[data-pause]")) {
      show(button, get("paused") === "yes");
      button.addEventListener("click", () => {
        const paused = button.getAttribute("aria-pressed") !== "true";
        put("paused", paused ? "yes" : "no");
        show(button, paused);
      });
    }
    choose();
  });

  document.addEventListener("htmx:beforeRequest", (event) => {
    const live = event.target.matches("[data-live]");
    if (live && (document.hidden || get("paused") === "yes")) {
      event.preventDefault();
    }
  });

  // What was opened stays open when its part of the page is replaced.
  let open = [];
  document.addEventListener("htmx:beforeSwap", () => {
    open = [...document.querySelectorAll("details[id][open]")].map((one) => one.id);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const cause = event.detail.requestConfig.triggeringEvent?.type;
    if (event.target.id === "comparison" && cause === "click") {
      // Whoever asked for another comparison reads on there.
      document.getElementById("comparison-title").focus({ preventScroll: true });
    }
    for (const id of open) {
      document.getElementById(id)?.setAttribute("open", "");
    }
    choose();
  });

  // The view of differences: its radio buttons say which.
  const choose = () => {
    const narrow = matchMedia("(max-width: 40rem)").matches;
    const wanted = get("view") ?? (narrow ? "inline" : "side");
    const button = document.querySelector(`input[name="view"][value="${CSS.escape(wanted)}"]`);
    if (button) {
      button.checked = true;
    }
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches('input[name="view"]')) {
      put("view", event.target.value);
    }
  });
})();
