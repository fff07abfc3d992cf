"""The words that generated histories are made of: Zipf draws, identifiers, several scripts.

Everything is invented here or drawn from short lists of everyday words; no corpus is copied. No
word holds the letters `qx`, which are kept for needles (see `needles.py`).
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Sequence
from typing import Final

SLOTS: Final = 1 << 16

COMMON: Final = """
the to a of and in is it that for this we on with not be as are but can from so if at or which
there was now have by an all one no will should when then does into only first also same use test
file run line code error name value path has them their each after before more still both call
than why what how where here its out up let need new old add fix check make see read write set
get list key type data time case change result return default field found find look works work
because instead without between inside every other some any most last next two three yes just
already again back down over under keep drop move split join start stop open close wait build
function method class module package branch commit merge table index query search cache store
record entry session message user client server request response header body token state event
queue worker thread lock buffer stream parser format schema column row page cursor limit offset
range order filter match count total size length width bytes memory disk folder config option flag
setting version release update refresh retry timeout failure exception warning message log trace
""".split()

ONSETS: Final = "b br c ch cl d dr f fl g gr h j k kl l m n p pl r s sh sk st t tr v w y z".split()
VOWELS: Final = "a e i o u ai ea io ou".split()
SYLLABLES: Final = [onset + vowel for onset in ONSETS for vowel in VOWELS]
CODAS: Final = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "ck", "rt"]

SCRIPTS: Final[dict[str, tuple[str, Sequence[str]]]] = {
    "chinese": (
        "",
        "我们 需要 检查 这个 文件 测试 失败 因为 缓存 没有 更新 请 看 一下 日志 然后"
        " 修改 配置 函数 返回 错误 数据 索引 搜索 结果 不对 可以 先 运行 再 提交 代码"
        " 已经 合并 问题 在于 时区 处理 列表 为空 的 了 是 和 ， 。 ："
        " 性能 提高 内存 太大 接口 参数 默认 值".split(),
    ),
    "japanese": (
        "",
        "この テスト が 失敗 する 原因 を 調べて ください ファイル は 更新 されて いません"
        " キャッシュ の 設定 確認 しました 関数 戻り値 エラー ログ 検索 結果 に 修正 コード"
        " ブランチ 統合 時刻 処理 で した 。 、 まず 実行 して から 次に 一覧"
        " 空 です ます データ 索引 保存".split(),
    ),
    "korean": (
        " ",
        "테스트가 실패하는 이유를 확인해 주세요 파일은 아직 갱신되지 않았습니다 캐시 설정을"
        " 바꾸고 다시 실행하면 됩니다 함수 반환값이 비어 있어서 오류 로그를 보고 검색 결과"
        " 수정 코드를 병합 시간대 처리 목록 데이터 색인 저장 그리고 먼저 그래서 문제는".split(),
    ),
    "cyrillic": (
        " ",
        "проверь почему тест падает файл не обновился кэш нужно исправить функция возвращает пустой"
        " список ошибка в журнале поиск нашёл строку перед запуском сервера ветка уже слита потом"
        " настройка времени данные индекс сохранить и на это для если снова".split(),
    ),
    "accents": (
        " ",
        "le fichier n'a pas été modifié après la dernière exécution vérifie où la requête échoue"
        " die Prüfung schlägt fehl weil größere Einträge übersprungen werden für jede Änderung"
        " la función devolvió un número vacío según el año también señala más días"
        " naïve façade crème straße über déjà".split(),
    ),
    "emoji": (
        " ",
        "done ✅ fixed 🚀 careful ⚠️ looking 👀 great 🎉 broken 🔥 idea 💡 slow 🐢".split(),
    ),
}


def zipf_table(words: Sequence[str]) -> list[str]:
    """A table of `SLOTS` slots in which the n-th word has a share of about 1 / (n + 3)."""
    words = words[: SLOTS // 2]
    weights = [1.0 / (rank + 3.0) for rank in range(len(words))]
    # One slot for each word; the rest is shared out by weight.
    scale = (SLOTS - len(words)) / sum(weights)
    table: list[str] = []
    for word, weight in zip(words, weights, strict=True):
        table += [word] * (1 + int(weight * scale))
    return (table + list(words[: SLOTS - len(table)]) * 2 + table)[:SLOTS]


def draw(rng: random.Random, table: Sequence[str], count: int) -> list[str]:
    """Draws that many words from a table of `SLOTS` slots; about 40 ns a word."""
    codes = array("H")
    codes.frombytes(rng.randbytes(2 * count))
    if sys.byteorder == "big":
        codes.byteswap()
    return list(map(table.__getitem__, codes))


def make_words(rng: random.Random, count: int) -> list[str]:
    """Pronounceable invented words, all different."""
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = rng.choices(SYLLABLES, k=4 * count)
        lengths = rng.choices((1, 2, 3, 4), (1, 6, 5, 2), k=count)
        ends = rng.choices(CODAS, k=count)
        for number, (length, end) in enumerate(zip(lengths, ends, strict=True)):
            words["".join(syllables[4 * number : 4 * number + length]) + end] = None
    return list(words)[:count]


def foreign_sentence(rng: random.Random, script: str, words: int) -> str:
    """A run of words in one of `SCRIPTS`, joined as that script joins them."""
    separator, vocabulary = SCRIPTS[script]
    return separator.join(rng.choices(vocabulary, k=words))


def camel(words: Sequence[str]) -> str:
    """The words as `camelCase`."""
    return words[0] + "".join(word.capitalize() for word in words[1:])
