"""`tf.strings.unicode_script`: which script characters belong to."""

import functools
from typing import Any

import numpy as np
import re2

from tfdist_jax.compat.tensorflow._ops._host_operation import numbers_of
from tfdist_jax.compat.tensorflow._tensors import _dtypes
from tfdist_jax.compat.tensorflow._tensors._host_part import computes_rows
from tfdist_jax.compat.tensorflow._tensors._tensor import convert_to_tensor

# By the numbers of ICU's `UScriptCode`, "-" where it has one for a script without characters of its own.
_NAMES = (
    "Common Inherited Arabic Armenian Bengali Bopomofo Cherokee Coptic Cyrillic Deseret Devanagari Ethiopic Georgian Gothic "
    "Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Ogham "
    "Old_Italic Oriya Runic Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Canadian_Aboriginal Yi Tagalog Hanunoo Buhid "
    "Tagbanwa Braille Cypriot Limbu Linear_B Osmanya Shavian Tai_Le Ugaritic - Buginese Glagolitic Kharoshthi Syloti_Nagri "
    "New_Tai_Lue Tifinagh Old_Persian Balinese Batak - Brahmi Cham - - - - Egyptian_Hieroglyphs - - - Pahawh_Hmong "
    "Old_Hungarian - Javanese Kayah_Li - - Lepcha Linear_A Mandaic - Meroitic_Hieroglyphs Nko Old_Turkic Old_Permic Phags_Pa "
    "Phoenician Miao - - - - - - Vai - Cuneiform - - Carian - Tai_Tham Lycian Lydian Ol_Chiki Rejang Saurashtra SignWriting "
    "Sundanese - Meetei_Mayek Imperial_Aramaic Avestan Chakma - Kaithi Manichaean Inscriptional_Pahlavi Psalter_Pahlavi - "
    "Inscriptional_Parthian Samaritan Tai_Viet - - Bamum Lisu - Old_South_Arabian Bassa_Vah Duployan Elbasan Grantha - - "
    "Mende_Kikakui Meroitic_Cursive Old_North_Arabian Nabataean Palmyrene Khudawadi Warang_Citi - - Mro Nushu Sharada "
    "Sora_Sompeng Takri Tangut - Anatolian_Hieroglyphs Khojki Tirhuta Caucasian_Albanian Mahajani Ahom Hatran Modi Multani "
    "Pau_Cin_Hau Siddham Adlam Bhaiksuki Marchen Newa Osage - - - Masaram_Gondi Soyombo Zanabazar_Square Dogra Gunjala_Gondi "
    "Makasar Medefaidrin Hanifi_Rohingya Sogdian Old_Sogdian Elymaic Nyiakeng_Puachue_Hmong Nandinagari Wancho Chorasmian "
    "Dives_Akuru Khitan_Small_Script Yezidi"
)
_SCRIPTS = [(number, name) for number, name in enumerate(_NAMES.split()) if name != "-"]
_UNKNOWN, _NONE = 103, -1
_SURROGATES, _END = range(0xD800, 0xE000), 0x110000


@computes_rows
def unicode_script(input: Any, name: str | None = None) -> Any:
    """Return which script characters belong to, by the numbers of ICU's `UScriptCode`.

    Args:
        input: Unicode code points `[...]`, int32.
        name: Unused.

    Returns:
        int32 of the same shape; 103 for a code point without a script, -1 for a number that is none.
    """
    codes = numbers_of(input, _dtypes.int32)
    distinct, places = np.unique(codes, return_inverse=True)
    scripts = np.array([_find_script(code) for code in distinct.tolist()], np.int32)
    return convert_to_tensor(scripts[places].reshape(codes.shape))


@functools.lru_cache(maxsize=4096)
def _find_script(code: int) -> int:
    if not 0 <= code < _END:
        return _NONE
    found = None if code in _SURROGATES else _any_script().match(chr(code))
    return _UNKNOWN if found is None else _SCRIPTS[found.lastindex - 1][0]


@functools.cache
def _any_script() -> Any:
    """Return a pattern with a group for each script."""
    return re2.compile("|".join(rf"(\p{{{name}}})" for _, name in _SCRIPTS))
