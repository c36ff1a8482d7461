// What a page looks like to those who read it, asked of the browser that shows it.
(() => {
  const shown = (element) => {
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    return box.width > 1 && box.height > 1 && style.visibility === "visible";
  };
  const channels = (colour) => {
    const found = colour.match(/rgba?\(([^)]+)\)/);
    if (!found) throw new Error(`a colour of an unknown kind: ${colour}`);
    const [r, g, b, a = 1] = found[1].split(",").map(Number);
    return { rgb: [r, g, b], a };
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((each) => {
      const c = each / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const { rgb, a } = channels(getComputedStyle(at).backgroundColor);
      if (a > 0) return rgb;
    }
    return [255, 255, 255];
  };
  const texts = () => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
      const parent = walker.currentNode.parentElement;
      const words = walker.currentNode.textContent.trim();
      if (words && !["TITLE", "DESC", "STYLE"].includes(parent.tagName.toUpperCase()) && shown(parent))
        found.push([parent, words]);
    }
    return found;
  };
  const named = (element) => `<${element.tagName.toLowerCase()}> ${element.textContent.trim().slice(0, 40)}`;

  return {
    width: document.documentElement.scrollWidth,
    window: window.innerWidth,
    // nothing may reach beyond the window, but for what scrolls in a box of its own
    outside: [...document.body.querySelectorAll("*")]
      .filter((e) => shown(e) && e.getBoundingClientRect().right > window.innerWidth + 1)
      .filter((e) => !e.closest(".table, pre") && !e.closest("svg *"))
      .map(named),
    scrolling: [...document.querySelectorAll(".table")].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.querySelector("table").id),
    faint: texts()
      .map(([element, words]) => {
        const style = getComputedStyle(element);
        const inside = element.closest("svg");
        const ink = channels(inside ? style.fill : style.color).rgb;
        const [low, high] = [luminance(ink), luminance(ground(element))].sort((a, b) => a - b);
        return [(high + 0.05) / (low + 0.05), words];
      })
      .filter(([ratio]) => ratio < 4.5)
      .map(([ratio, words]) => `${ratio.toFixed(2)}: ${words.slice(0, 40)}`),
    // how high letters are on the screen, drawings scaled as they are
    small: texts()
      .map(([element, words]) => {
        const drawing = element.closest("svg");
        const scale = drawing ? drawing.getBoundingClientRect().width / drawing.viewBox.baseVal.width : 1;
        return [parseFloat(getComputedStyle(element).fontSize) * scale, words];
      })
      .filter(([pixels]) => pixels < 9)
      .map(([pixels, words]) => `${pixels.toFixed(1)} px: ${words.slice(0, 40)}`),
    headings: [...document.querySelectorAll("h1, h2, h3, h4")].filter(shown).map((e) => Number(e.tagName[1])),
    targets: [...document.querySelectorAll("nav a, summary")].filter(shown).filter((e) => e.getBoundingClientRect().height < 24).map(named),
    images: [...document.images].filter((e) => !e.complete || !e.naturalWidth).map((e) => e.alt),
    reachable: [...document.querySelectorAll("a[href], summary, [tabindex='0']")].filter((e) => e.checkVisibility()).length,
  };
})()
