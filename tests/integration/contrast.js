// Every visible text whose contrast with what lies behind it is below 4.5 (WCAG 2, AA).
() => {
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (element) => {
    for (let at = element; at !== null; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const texts = [];
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() === "" || !element.checkVisibility()) continue;
    const isDrawn = element instanceof SVGElement;
    const style = getComputedStyle(element);
    const [front, back] = [numbers(isDrawn ? style.fill : style.color), behind(element)].map(luminance);
    const contrast = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
    texts.push(contrast);
    if (contrast < 4.5) poor.push(`${walker.currentNode.data.slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return { texts: texts.length, poor };
}
