"use strict";
// Colours: as the system has them, light, or dark; kept in this browser.
(() => {
  const NAMES = { auto: "as the system has them", light: "light", dark: "dark" };
  const SIGNS = { auto: "\u25d0", light: "\u2600\ufe0e", dark: "\u263e" };
  const root = document.documentElement;

  const stored = () => {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // a browser may keep nothing
    }
  };

  const set = (theme) => {
    root.dataset.theme = theme in NAMES ? theme : "auto";
  };

  const describe = (button) => {
    const theme = root.dataset.theme;
    button.textContent = SIGNS[theme];
    button.setAttribute("aria-label", `Colours: ${NAMES[theme]}`);
    button.title = `Colours: ${NAMES[theme]}`;
  };

  set(stored());
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    describe(button);
    button.addEventListener("click", () => {
      const names = Object.keys(NAMES);
      set(names[(names.indexOf(root.dataset.theme) + 1) % names.length]);
      try {
        localStorage.setItem("theme", root.dataset.theme);
      } catch {
        // it lasts as long as the page
      }
      describe(button);
    });
  });
})();
