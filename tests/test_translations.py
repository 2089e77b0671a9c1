"""The Chinese pages are in step with the English ones, and tests/translations.py sees each way in
which they could part."""

import subprocess

import pytest
import typesetting
from translations import ROOT, Translations, facts, main, parse

REAL = Translations()
PAGES = REAL.pages()
HELP = "make translations  prints what changed in English beside the Chinese text"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_is_in_step(page):
    stale = [f'"{a.title}"' if a else f'no "{b.title}"' for a, b in REAL.stale(page)]
    assert not stale, f"{REAL.name(page)}: out of date: {', '.join(stale)}\n  fix: {HELP}"
    assert not [*REAL.differences(page), *REAL.typography(page)]


def test_start_page_is_translated_and_each_guide_page_has_an_english_one():
    assert REAL.zh / "README.md" in PAGES
    guide = [*(REAL.zh / "guide").glob("*.md")]
    assert len(guide) > 10 and not {*guide} - {*PAGES}


def test_glossary_has_each_word_once_in_order():
    (section,) = parse((ROOT / "docs/zh/glossary.md").read_text())
    words, translations = zip(*section.rows[2:])
    assert len(words) > 100
    assert sorted(words, key=str.lower) == list(words)
    assert len({*words}) == len(words) and len({*translations}) == len(translations)
    assert not [*REAL.typography(REAL.zh / "glossary.md")]


ENGLISH = """# Arrays

An array has 2 axes, see [more](other.md#the-end). `x.shape`
is a tuple.

```python
x = 1
```

## Kinds

- one
- two

| a | b |
|---|---|
| `int8` | whole |
| 1 | 2 |
"""
CHINESE = """# 数组

数组有2个轴，见[更多](other.md#the-end)。`x.shape`
是元组。

```
```

## 种类

- 一
- 二

| 甲 | 乙 |
|---|---|
| `int8` | 整数 |
| 1 | 2 |
"""


@pytest.fixture
def site(tmp_path):
    """A page with its translation, which is done, and an English page without one."""
    for folder in ("docs/guide", "docs/zh/guide"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "docs/guide/arrays.md").write_text(ENGLISH)
    (tmp_path / "docs/guide/other.md").write_text("# Other\n\nText.\n\n## The end\n")
    (tmp_path / "docs/zh/guide/arrays.md").write_text(CHINESE)
    site = Translations(tmp_path)
    site.done(tmp_path / "docs/zh/guide/arrays.md")
    return site


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def problems(site):
    (page,) = [p for p in site.pages() if p.stem == "arrays"]
    return [*site.report(page), *site.differences(page), *site.typography(page)]


def test_done_copies_code_sets_links_and_spaces_and_may_be_repeated(site):
    page = site.zh / "guide/arrays.md"
    assert problems(site) == []
    text = page.read_text()
    assert "```python\nx = 1\n```\n" in text
    assert "数组有 2 个轴，见[更多](../../guide/other.md#the-end)。`x.shape` 是元组。" in text
    site.done(page)
    assert page.read_text() == text


def test_links_lead_to_the_translation_once_there_is_one(site):
    (site.zh / "guide/other.md").write_text("# 其他\n\n文字。\n\n## 结尾\n")
    assert "lacks ['other.md#结尾']" in problems(site)[0]
    site.done(site.zh / "guide/arrays.md")
    assert "(other.md#结尾)" in (site.zh / "guide/arrays.md").read_text()
    assert problems(site) == []


@pytest.mark.parametrize(
    "old, new, wanted",
    [
        ("数组有", "数组没有。有", None),
        ("数组有 2 个", "数组有两个", "text: lacks ['2'], has []"),
        ("`x.shape`", "形状", "text: lacks ['`x.shape`'], has []"),
        ("[更多](../../guide/other.md#the-end)", "后面", "links: lacks"),
        ("x = 1", "x = 2", "code is not the English page's"),
        ("- 二\n", "", "lists have 1 items, not 2"),
        ("| 1 | 2 |\n", "", "other rows or columns"),
        ("| 1 | 2 |\n", "| 2 | 1 |\n", "a table has | 2 | for | 1 |"),
        ("| `int8` | 整数 |", "| `int8` | whole number |", "a table has | whole number |"),
        ("有 2 个", "有2 个", "no space between Chinese and Latin: 有2"),
        ("轴，", "轴,", "punctuation of half width: 轴,"),
        ("轴，见", "轴，\n见", None),
        ("个轴，", "个\n轴，", "the line break would be shown as a space: 个轴"),
    ],
)
def test_each_difference_is_found(site, old, new, wanted):
    change(site.zh / "guide/arrays.md", old, new)
    found = problems(site)
    assert any(wanted in line for line in found) if wanted else found == []


def test_changed_english_text_is_shown_beside_the_chinese(site):
    def git(*words):
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", site.root, *name, *words], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    change(site.root / "docs/guide/arrays.md", "is a tuple.", "is a list. It is short.")
    text = "\n".join(problems(site))
    assert '=== docs/guide/arrays.md:1 "Arrays"' in text and "Kinds" not in text
    assert "- `x.shape` is a tuple.\n" in text
    assert "+ `x.shape` is a list.\n" in text and "+ It is short.\n" in text
    assert "--- docs/zh/guide/arrays.md:1\n数组" in text


def test_lines_broken_elsewhere_and_other_code_need_no_translation(site):
    page = site.root / "docs/guide/arrays.md"
    change(page, "`x.shape`\nis", "`x.shape` is")
    assert problems(site) == []
    change(page, "x = 1", "x = 3")
    assert len(problems(site)) == 1
    site.done(site.zh / "guide/arrays.md")
    assert problems(site) == [] and "x = 3" in (site.zh / "guide/arrays.md").read_text()


def test_new_and_removed_sections(site):
    page = site.zh / "guide/arrays.md"
    change(site.root / "docs/guide/arrays.md", "## Kinds", "## News\n\nText.\n\n## Kinds")
    assert 'guide/arrays.md:10 "News"' in problems(site)[0]
    with pytest.raises(ValueError, match="headings must be those of:\n  # Arrays\n  ## News\n"):
        site.done(page)
    change(page, "## 种类", "## 新闻\n\n文字。\n\n## 种类")
    site.done(page)
    assert problems(site) == []
    (site.root / "docs/guide/arrays.md").write_text(ENGLISH)
    assert '"新闻": no such section in English' in problems(site)[0]


def test_a_page_in_which_nothing_is_recorded_is_stale(site):
    (site.zh / "guide/arrays.md").write_text(CHINESE)
    assert len(site.stale(site.zh / "guide/arrays.md")) == 2
    assert "(git has no text" in "\n".join(problems(site))


def test_a_page_must_begin_with_a_heading():
    with pytest.raises(ValueError, match="the page must begin with its heading, not with 'text"):
        parse("text\n# Heading\n")


def test_command(capsys):
    for arguments, said in (
        (["--done"], "name the pages that you translated"),
        ([str(ROOT / "docs/guide/data.md")], "no translation; those of docs/guide/X.md are"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert said in capsys.readouterr().err
    assert main([str(PAGES[0])]) == 0
    assert capsys.readouterr().out == "translations: ok (1 pages)\n"


def test_facts():
    assert facts("`a b`, `a\nb` 1 and 2.5, [3](x4.md)") == ["1", "2.5", "3", "`a b`"]


def test_lines_break_after_punctuation_or_at_a_space():
    wide = "宽" * 50
    assert typesetting.wrap(f"- {wide}，{wide} x{wide}", "  ") == [
        f"- {wide}，",
        f"  {wide}",
        f"  x{wide}",
    ]
    assert typesetting.wrap(f"{wide}[a b]({'x' * 99})") == [f"{wide}[a b]({'x' * 99})"]
    assert typesetting.joined(["甲", "乙，", "a", "b", "丙"]) == "甲乙，a b 丙"
    assert typesetting.spaced("用`x`和**Y**，100%的2") == "用 `x` 和 **Y**，100% 的 2"
    assert typesetting.columns("a宽，") == 5
