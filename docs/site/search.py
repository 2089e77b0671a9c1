"""How the site's search cuts text into terms: English words by their stems, Chinese and Japanese
text into pairs of characters.

Chinese has no spaces. Pairs need no dictionary, and a query is cut as the text was, so each part of
a longer word is found: 卷积 in 卷积神经网络.
"""

from __future__ import annotations

import re

from sphinx.search.en import SearchEnglish

HAN = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
TERM = re.compile(rf"[{HAN}]+|[^\W{HAN}]+")


def terms(text: str) -> list[str]:
    """Words, and of runs of Han characters all pairs; a single one is a term by itself."""
    found: list[str] = []
    for term in TERM.findall(text):
        if re.match(f"[{HAN}]", term) and len(term) > 2:
            found += [term[i : i + 2] for i in range(len(term) - 1)]
        else:
            found.append(term)
    return found


class SearchBoth(SearchEnglish):
    """English and Chinese in one index: readers of either look names up in the same reference."""

    lang = "plait"
    language_name = "English"  # whose stemmer it is
    js_splitter_code = f"""
function splitQuery(query) {{
  const found = [];
  for (const term of query.match(/[{HAN}]+|[\\p{{L}}\\p{{N}}_]+/gu) || []) {{
    if (/[{HAN}]/.test(term) && term.length > 2)
      for (let i = 0; i + 1 < term.length; i++) found.push(term.slice(i, i + 2));
    else found.push(term);
  }}
  return found;
}}
"""

    def split(self, input: str) -> list[str]:
        return terms(input)
