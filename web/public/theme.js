// Runs before the first paint, so that the other theme does not flash. It is a separate file because inline scripts are forbidden.
(function () {
  var chosen = null;
  try {
    chosen = localStorage.getItem("sojourn.theme");
  } catch (e) {
    // Storage may be forbidden; then the system's preference holds.
  }
  var dark = chosen === "dark" || (chosen !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
