// What the theme adds to a page after it has loaded, made accessible: the bar of a copy button is no part of the
// navigation, and a table that scrolls can be reached by keyboard.
const repair = () => {
  for (const bar of document.querySelectorAll("nav.md-code__nav:not([role])")) bar.setAttribute("role", "presentation");
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])")) box.tabIndex = 0;
};
new MutationObserver(repair).observe(document.documentElement, { childList: true, subtree: true });
repair();
