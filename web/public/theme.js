// Runs before the first paint, so that a chosen theme never flashes. A file of its own because inline scripts are not allowed.
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
