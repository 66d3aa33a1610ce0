// Formulas: pymdownx.arithmatex marks them, KaTeX (in katex/, MIT licence) sets them.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof katex === "undefined") return;
  document.querySelectorAll(".arithmatex").forEach((element) => {
    const text = element.textContent.trim();
    const displayMode = text.startsWith("\\[");
    katex.render(text.slice(2, -2), element, { displayMode, throwOnError: false });
  });
});
