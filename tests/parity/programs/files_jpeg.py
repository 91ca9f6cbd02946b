"""JPEG files decoded: every pixel."""

import base64
import zlib

import numpy as np
import tensorflow as tf
from _facts import error, show

FILES = {
    "colours at half the size": (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV01XKW3knDg3knMk4h;_zAQcl55)&sJ9v2`kDKRiEDJ?8BI!Zn>HbyrrEkIX6ModmpQ&KWM"
        "T47pHU`kO^PygEhLjevB4iga*CKVMXPc<zyPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPft%zPf!2A"
        "01*fP4FD1Y0U`hb5di}c0sq7R9{>OW1pxs80RaI300000000010s{mE1_uZU3Jd?l0JRVR0s#X90t5pE1q1{D00Dgg0s{a95d{(<"
        "F+m0sQDFxnaTGFvk)a49Lb1UWQqk}vGh%Xr2?`b$7#SKRCMPH<Dl|1VH#j*uLqtVJM@UIZQ&d$}S6EqEV`OD!XJ~0^b98lfcX)Yv"
        "gM@{Khlq)al9QB`mY0~BnxdnmrKYE-sj9NGw6(UkxVgH*!^FkL$H>Xb($mz{*4NnC+Tr5k<mKk)=;`Y5^7Hid_V@Vt`v1fL9{~UZ"
        "0RaI40RaI40RR91000010s{mE1_uZU3Jd?l0JRYS0s#U91Oo&I1q1{D0Rndb0RjUN1O*{61`<J02Vrp&A~Jyp6he`qvB3!=Gg9ys"
        "Vsg<679=#`CGi&+85$-hC@Cs6Ha9pqIzvQ7Mn_0VN>fx-R##YAT4Q8oW@l(=YIAgTc6WGrdV+(5g@%WSiHeewl$Dm3n3<ZQqok##"
        "r>Lo_va__cwzs&sy28W6#m2|T$;#5x)YaD4*xB0R<K*S$=jiF`^7Hid_V@Vt`v2Mh3<CiG0ucid06zffZ8dZjcq1HVKd<xcSl4>m"
        "dD}8RY=8j&0QKgpTPQY|IsX7T{{RZayC1v^3Cl4ZdR0@v)%w(Z<I=%8GUm|eMz%0HPsI*su5e0m_fzrB73jROz4tP_JD>mA"
    ),
    "progressive": (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV00smF1_cBL1_cHO2L=cV5DE$j2?`Vr4-60&6c`v66c!d59VH(c8zUSR79cDjBPJ&)Dk&Ks"
        "Eif%8FeNA{DF534LjeZ|2MP!Z6AB6wC>j<TC@3f>C@3f>C@3f>C@3f>C@3f>C@3f>C@3f>C@3f>C@3f>C@3f>C@3f>C@3f>C@BBJ"
        "01*fP4FD1Y0TBQK5di}c0sq7R7XSbQ0RR910000000000000651qT1b02ToO0RaF20000000000000051Oxxt01N{G00IyL5C8xH"
        ")I+>Y7+q$j*x_pMBya!302~ki0R#g9000000000000003009IN6BHvc|Jncu0RaF31p*AV!fCC2)F$L_Y`_1+03Z<n0RsXD00000"
        "000000000100IO9@DURsA|qj;|Jncu0RsU6KLKog=tkq!7WL|EmxGH_YMiudU4{R|038tk0s;a90RR9100000000000|5dA1rZ@J"
        ";s4qI2mt~C0Y3rAb)tr~ma#1F==3fZ;jP7_6M()?|HJ?s5C8!K1poj500000000000003H5ivngagqPp00;pA00ut-BPF=oD2M;V"
        "02vSf0|5a60000000000000000TCfV!T;I-2mt{A0Y4$md6eTgN(m>jhp{sDv@AdW+5ij#0RRF30{{R35HhoW|HJ?x5dZ-M0Rsg9"
        "00000000000096IAu&-wq3~gGvC-lG+5iXv0|5a)5F{+Vub;Z*JXSpE40c2WfDOh~M6PU}`_4>6`*kIFPyfUK9}xin0RsdB00000"
        "000000003I05L%!QDK3Rp~3&!00;pB0RcY{oCKD}(e61omW+@@jP;$QXH6-TtKm-50Q>gd>S{y9rXKsJrM-Xu!~h-;0RRF600RL5"
        "00000000000TCepF+ovrfwAHL+5iXv0RRC%5C9%j80sOqYBn?Taj686zhlxov)m8|UaR%<keO{ril#X=839=m%EZ$D04Tx&-(tVH"
        "|Je"
    ),
    "gray": (
        "|JeWF01!$>Nk#wx0RR9200961|JwjV015{O2nPlV2nYxZ3JMDj7!VE(4GtX@77-XDA0;FrA0i<pD>pADDKse|A}~QQG&wsyK0YNb"
        "L`g$DNH;w`JO97{3kU!W01^QK5di<h03QGV0R;g80RaI400000000000RjUA1qKHQ2?`7U!~nGr00IF60|EpC1qB2I0004f0RjU6"
        "1Q7)iAu&M)6H#FYB5@QlfsvsIBSNvk6;jdgBr{@if(Z&17Z@2DB_<~*DJnEIHa9pqIzvQ7Mn_0VN>fx-R##YAT4Q8oW@l(=YIAgT"
        "c6WGrdV_?8hKGoWijtF*m6n&7nVO=bq@|{(sHv*5v$VCgx45~w!o$SH#>dFX%F@%+)z;V8+1laa<K*S$=jiF`@$&QZ_4fDp`TGCb"
        "00;pA002J#@3gD539*-Rf*3Py<YznrJx(xvYW>yhX4R3(w2zP!44uGs>N?jjd_Yl(tPlkU0B-I1)&`lYTnl2+A1H7@UfoCj$@<pB"
        "_p*Oy?;T!7Mq+Zr6+P>jI>E`r36F56{{UsL|Je"
    ),
}
pixels = lambda decoded: [decoded.dtype.name, decoded.shape.as_list(), zlib.crc32(np.asarray(decoded).tobytes())]

for name, text in FILES.items():
    file = base64.b85decode(text)
    for channels in (0, 1, 3):
        show(f"{name}, {channels} channels", pixels(tf.io.decode_jpeg(file, channels)))
    show(f"{name}, accurate", pixels(tf.io.decode_jpeg(file, dct_method="INTEGER_ACCURATE")))
    show(f"{name}, not smoothed", pixels(tf.io.decode_jpeg(file, fancy_upscaling=False)))
    show(f"{name}, as an image", pixels(tf.io.decode_image(file, 3)))
    show(f"{name}, as floats", np.asarray(tf.io.decode_image(file, dtype=tf.float32)).sum())
    show(f"{name}, as PNG", pixels(tf.io.decode_png(file, 3)))
    if name != "colours at half the size":  # TensorFlow smooths them otherwise at the edges of a part.
        show(f"{name}, a part", pixels(tf.io.decode_and_crop_jpeg(file, [2, 3, 7, 9])))
    show(f"{name}, shape", tf.io.extract_jpeg_shape(file))

files = [base64.b85decode(text) for text in FILES.values()]
for calls in (None, 2):
    images = tf.data.Dataset.from_tensor_slices(files * 3).map(lambda file: tf.io.decode_jpeg(file, 3), calls)
    show(f"batches, {calls} calls", [pixels(batch) for batch in images.batch(2)])
    halves = images.map(lambda image: tf.image.convert_image_dtype(image, tf.float32) / 2, calls).batch(4)
    show(f"floats, {calls} calls", [tf.reduce_mean(batch) for batch in halves])
file = files[0]
error("no file", lambda: tf.io.decode_jpeg(b"text"))
error("only its head", lambda: tf.io.decode_jpeg(file[:200]))
error("channels", lambda: tf.io.decode_jpeg(file, 2))
error("ratio", lambda: tf.io.decode_jpeg(file, ratio=3))
