// Checks of a page that run inside the browser. Each returns a list of complaints.

// smallText finds text that is drawn with letters under 11 pixels.
export function smallText() {
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    const parent = n.parentElement;
    if (!n.data.trim() || !parent || parent.closest("title, desc, style, script")) continue;
    const box = parent.getBoundingClientRect();
    if (box.width === 0 || box.height === 0) continue;
    let size = parseFloat(getComputedStyle(parent).fontSize);
    const svg = parent.closest("svg");
    if (svg && parent.getScreenCTM) {
      const m = parent.getScreenCTM();
      size *= Math.hypot(m.b, m.d);
    }
    if (size < 10.95) found.push(`${size.toFixed(1)} px: ${n.data.trim().slice(0, 40)}`);
  }
  return found;
}

// overlappingText finds texts of one picture that are drawn over each other, and texts
// that leave their picture.
export function overlappingText() {
  const found = [];
  for (const svg of document.querySelectorAll("svg")) {
    const edge = svg.getBoundingClientRect();
    if (edge.width === 0) continue;
    const all = [...svg.querySelectorAll("text")]
      .filter((t) => t.textContent.trim())
      .map((t) => ({ text: t.textContent.trim().slice(0, 40), box: t.getBoundingClientRect() }))
      .filter((t) => t.box.width > 0);
    for (const [i, a] of all.entries()) {
      if (a.box.left < edge.left - 1 || a.box.right > edge.right + 1 || a.box.top < edge.top - 2 || a.box.bottom > edge.bottom + 2)
        found.push(`leaves its picture: ${a.text}`);
      for (const b of all.slice(i + 1)) {
        const x = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
        const y = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
        // Boxes have room above and below their letters.
        if (x > 1 && y > 0.3 * Math.min(a.box.height, b.box.height)) found.push(`overlap: ${a.text} / ${b.text}`);
      }
    }
  }
  return found;
}

// tooWide says whether the page has to be scrolled sideways as a whole.
export function tooWide() {
  const over = document.documentElement.scrollWidth - window.innerWidth;
  return over > 1 ? [`the page is ${over} px wider than the window`] : [];
}
