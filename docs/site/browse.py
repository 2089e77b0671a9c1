"""Looks at the built site in a headless Chromium: python docs/site/browse.py FOLDER.

Visits every page. Refuses errors in the console, requests that fail or go elsewhere, pictures that
do not load, and pages wider than a phone; then searches for a layer and for a Chinese word, and
reads the contrast of text on dark pages. Needs selenium, chromium and chromedriver.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PHONE, DESKTOP = (390, 844), (1280, 900)  # CSS pixels
READABLE = 4.5  # the least contrast of text, WCAG 2 AA
SEEN = """return {
  links: [...document.querySelectorAll("a[href]")].map(a => a.href),
  blank: [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src),
  ids: [...document.querySelectorAll("[id]")].map(e => e.id),
  wide: document.documentElement.scrollWidth - window.innerWidth,
  far: performance.getEntriesByType("resource").map(e => e.name)
       .filter(n => !n.startsWith(location.origin)),
}"""
CONTRAST = """
const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92
  : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const ground = e => { for (; e; e = e.parentElement) {
  const c = rgb(getComputedStyle(e).backgroundColor);
  if (c.length == 3 || c[3] > 0.5) return c.slice(0, 3); } return [255, 255, 255]; };
const kinds = ["p", "li", "td", "span", "a", "code"].map(name => "article " + name).join();
return [...document.querySelectorAll(kinds)]
  .filter(e => e.offsetWidth && [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()))
  .map(e => { const a = light(rgb(getComputedStyle(e).color).slice(0, 3)), b = light(ground(e));
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.className || e.tagName,
            e.innerText.slice(0, 30)]; })
  .sort((a, b) => a[0] - b[0]).slice(0, 5);
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def serve(folder: Path) -> str:
    """Serves a folder from a thread; the address."""
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/"


def start(profile: str) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def resize(browser: webdriver.Chrome, size: tuple[int, int]) -> None:
    """The size of the page itself; windows have a least width."""
    what = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", what)


def crawl(browser: webdriver.Chrome, base: str, most: int) -> list[str]:
    """What is wrong on any page that links lead to, the first `most` of them."""
    problems: list[str] = []
    waiting, done = [base + "index.html"], {base + "index.html"}
    wanted: dict[str, str] = {}  # link with an anchor -> a page that has it
    ids: dict[str, set[str]] = {}
    resize(browser, PHONE)
    while waiting and len(ids) < most:
        page = waiting.pop(0)
        browser.get(page)
        name = urlsplit(page).path
        found = browser.execute_script(SEEN)
        ids[page] = set(found["ids"])
        problems += [f"{name}: picture {p} does not load" for p in found["blank"]]
        problems += [f"{name}: loads {p}, from elsewhere" for p in found["far"]]
        if found["wide"] > 0:
            problems.append(f"{name}: {found['wide']} pixels wider than a phone")
        problems += [f"{name}: console: {e['message'][:200]}" for e in browser.get_log("browser")]
        for link in found["links"]:
            to, anchor = urldefrag(link)
            if not to.startswith(base):
                continue
            if anchor and anchor not in ("", "furo-main-content"):
                wanted.setdefault(link, name)
            if to not in done:
                done.add(to)
                waiting.append(to)
    for link, name in wanted.items():
        to, anchor = urldefrag(link)
        if to in ids and anchor not in ids[to]:
            problems.append(f"{name}: {link.removeprefix(base)} names no place")
    print(f"{len(ids)} pages, {len(wanted)} links to places")
    return problems


def search(browser: webdriver.Chrome, base: str, words: str, expected: str) -> list[str]:
    """Does a search list a page whose address has `expected`?"""
    browser.get(f"{base}search.html?q={words}")
    css = "#search-results ul.search li a"
    try:
        wait = WebDriverWait(browser, 60)
        wait.until(
            lambda b: [
                a
                for a in b.find_elements(By.CSS_SELECTOR, css)
                if expected in a.get_attribute("href")
            ]
        )
    except Exception:
        listed = [a.get_attribute("href") for a in browser.find_elements(By.CSS_SELECTOR, css)]
        return [f"a search for {words} does not list {expected}, but {listed[:5]}"]
    browser.get_log("browser")
    return []


def dark(browser: webdriver.Chrome, base: str, pages: list[str]) -> list[str]:
    """Text that cannot be read on dark pages."""
    problems = []
    for page in pages:
        browser.get(base + page)
        browser.execute_script("document.body.dataset.theme = 'dark'")
        for ratio, what, text in browser.execute_script(CONTRAST):
            if ratio < READABLE:
                problems.append(f"{page}: dark: contrast {ratio:.1f} of {what}: {text!r}")
    return problems


def photograph(browser: webdriver.Chrome, base: str, pages: list[str], folder: Path) -> None:
    """Pictures of pages: on a desktop, on a phone, dark."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        browser.get(base + page)
        for kind, size in (("desktop", DESKTOP), ("phone", PHONE), ("dark", DESKTOP)):
            resize(browser, size)
            theme = "dark" if kind == "dark" else "light"
            browser.execute_script(f"document.body.dataset.theme = '{theme}'")
            browser.save_screenshot(str(folder / f"{page.replace('/', '-')[:-5]}-{kind}.png"))


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("folder", type=Path)
    p.add_argument("--pictures", type=Path, help="a folder for screenshots of some pages")
    p.add_argument("--most", type=int, default=1 << 20, help="pages to visit; default: all")
    args = p.parse_args()
    base = serve(args.folder)
    shown = [
        *("index.html", "guide/training.html", "reference/gluon.nn.html"),
        *("reference/operators/Convolution.html", "design/spine.html", "examples/index.html"),
        *("performance.html", "source/gluon/trainer.py.html", "reference/operators/index.html"),
        *(["zh/index.html"] if (args.folder / "zh").is_dir() else []),
    ]
    with tempfile.TemporaryDirectory() as profile:
        browser = start(profile)
        try:
            problems = crawl(browser, base, args.most)
            problems += search(browser, base, "Conv2D", "reference/gluon.nn.html")
            problems += search(browser, base, "memory_report", "hybridize")
            if (args.folder / "zh").is_dir():
                problems += search(browser, base, "神经网络", "zh/")
            problems += dark(browser, base, shown)
            if args.pictures:
                photograph(browser, base, shown, args.pictures)
        finally:
            browser.quit()
    print("\n".join(dict.fromkeys(problems)) or "the site is as it should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
