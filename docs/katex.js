// Formulas: pymdownx.arithmatex marks them, KaTeX (in katex/, MIT licence) sets them.
document.addEventListener("DOMContentLoaded", () => {
  if (typeof katex === "undefined") return;
  document.querySelectorAll(".arithmatex").forEach((element) => {
    const text = element.textContent.trim();
    const displayMode = text.startsWith("\\[");
    const next = displayMode ? null : element.nextSibling;
    const mark = next?.nodeType === Node.TEXT_NODE ? (next.data.match(/^[.,;:)]+/) ?? [""])[0] : "";
    if (mark) next.data = next.data.slice(mark.length);  // a line would break before it
    const formula = text.slice(2, -2) + (mark && `\\text{${mark}}`);
    katex.render(formula, element, { displayMode, throwOnError: false });
  });
});
