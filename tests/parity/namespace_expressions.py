"""Expressions, as in `expressions.py`, of the namespaces beside the arithmetic ones."""

SETUP = """
wave = tf.constant(r.normal(size=(2, 50)).astype("float32"))
cube = tf.constant((r.normal(size=(2, 4, 5, 6)) + 1j * r.normal(size=(2, 4, 5, 6))).astype("complex64"))
seq = tf.reshape(tf.range(24), [2, 3, 4])
def parts(s):
    return [s.indices, s.values, s.dense_shape] if hasattr(s, "dense_shape") else [parts(one) if hasattr(one, "dense_shape") else one for one in s]
sp = tf.SparseTensor([[0, 1], [1, 0], [1, 2]], [5.0, -2.0, 3.0], [2, 3])
ints = tf.SparseTensor(indices=[[0, 0], [2, 3]], values=[7, 8], dense_shape=[3, 4])
mixed = tf.SparseTensor([[1, 2], [0, 1], [1, 0]], [3.0, 5.0, -2.0], [2, 3])
texts = tf.SparseTensor([[0, 1]], ["a"], [1, 3])
hole = tf.SparseTensor([[0, 1], [3, 0]], [1, 2], [5, 2])
ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 0, 1], tf.int64), [4, 2])
sp_weights = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [2.0, 0.5, -1.0], [4, 2])
negative = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, -1, -1], tf.int64), [4, 2])
def parts(s):
    return [s.indices, s.values, s.dense_shape] if hasattr(s, "dense_shape") else [parts(one) if hasattr(one, "dense_shape") else one for one in s]
frames = tf.constant(r.normal(size=(6, 2, 4)).astype("float32"))
spoken = tf.constant([[1, 2, 2], [3, 1, 0]])
spoken_sparse = tf.SparseTensor([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]], [1, 2, 2, 3, 1], [2, 3])
table, bias = tf.constant(r.normal(size=(7, 3)).astype("float32")), tf.constant(r.normal(size=7).astype("float32"))
drawn = (tf.constant([2, 0, 5], tf.int64), tf.constant([[0.5], [0.3]]), tf.constant([0.9, 1.5, 0.1]))
depth = tf.constant(r.normal(size=(2, 2, 3)).astype("float32"))
grad4 = tf.constant(r.normal(size=(2, 5, 6, 6)).astype("float32"))
pair = tf.constant(r.uniform(size=(2, 2, 24, 26, 3)).astype("float32"))
large = tf.constant(r.uniform(size=(2, 1, 181, 190, 1)).astype("float32"))
boxes = tf.constant(r.uniform(size=(12, 4)).astype("float32"))
hits = tf.constant(r.uniform(size=12).astype("float32"))
upright = tf.concat([boxes[:, :2] * 0.8, boxes[:, :2] * 0.8 + 0.1 + boxes[:, 2:] * 0.3], 1)
many = tf.constant(r.uniform(size=(2, 9, 3, 4)).astype("float32"))
many_hits = tf.constant(r.uniform(size=(2, 9, 3)).astype("float32"))
square = tf.constant(r.normal(size=(2, 4, 4)).astype("float32")) + 3.0 * tf.eye(4)
right = tf.constant(r.normal(size=(2, 4, 3)).astype("float32"))
three = tf.constant(r.normal(size=(3, 4)).astype("float32"))
L = tf.linalg
full, triangle = L.LinearOperatorFullMatrix(square), L.LinearOperatorLowerTriangular(square)
diag, same = L.LinearOperatorDiag([1.0, -2.0, 4.0, 0.5]), L.LinearOperatorIdentity(4)
scaled = L.LinearOperatorScaledIdentity(4, multiplier=[2.0, -3.0])
np_ = tf.experimental.numpy
said = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [3, 0]], [1, 2, 5, 6], [4, 2])
meant = tf.SparseTensor([[0, 0], [0, 1], [0, 2], [1, 0], [2, 0]], [1, 3, 2, 5, 7], [4, 3])
"""

SIGNAL = """
tf.signal.fft(z) | tf.signal.fft(x) | tf.signal.fft([1.0, 2.0]) | tf.signal.fft(tf.cast(d, tf.complex128)) | tf.signal.ifft(tf.signal.fft(cube)) | tf.signal.fft2d(cube) | tf.signal.ifft2d(cube) | tf.signal.fft3d(cube) |
tf.signal.ifft3d(cube) | tf.signal.fft2d(z) | tf.signal.rfft(wave) | tf.signal.rfft(wave, [64]) | tf.signal.rfft(wave, [16]) | tf.signal.rfft(d) | tf.signal.rfft(i) | tf.signal.rfft([1, 2, 3]) | tf.signal.irfft(cube) |
tf.signal.irfft(cube, [9]) | tf.signal.irfft(cube, [20]) | tf.signal.irfft(x) | tf.signal.rfft2d(x) | tf.signal.rfft2d(x, [4, 4]) | tf.signal.rfft2d(d) | tf.signal.irfft2d(cube) | tf.signal.irfft2d(cube, [5, 9]) |
tf.signal.rfft3d(tf.math.real(cube)) | tf.signal.irfft3d(cube) | tf.signal.rfft(x, [2, 2]) | tf.signal.fftshift(x) | tf.signal.fftshift(x, 1) | tf.signal.ifftshift(x, axes=[1]) | tf.signal.ifftshift(i) |
tf.signal.fftshift([1, 2, 3]) | tf.signal.hann_window(8) | tf.signal.hann_window(7) | tf.signal.hann_window(8, periodic=False) | tf.signal.hann_window(1) | tf.signal.hann_window(8, dtype=tf.int32) |
tf.signal.hann_window(8, dtype=tf.float64) | tf.signal.hamming_window(8) | tf.signal.hamming_window(5, False) | tf.signal.kaiser_window(9) | tf.signal.kaiser_window(6, 4.0) | tf.signal.kaiser_window(1) |
tf.signal.kaiser_bessel_derived_window(8) | tf.signal.vorbis_window(8) | tf.signal.vorbis_window(6, tf.float64) | tf.signal.hann_window(6, dtype=tf.float16) | tf.signal.frame(i, 2, 1) | tf.signal.frame(wave, 12, 5) |
tf.signal.frame(wave, 12, 5, pad_end=True) | tf.signal.frame(wave, 60, 5) | tf.signal.frame(wave, 60, 5, pad_end=True, pad_value=7) | tf.signal.frame(tf.transpose(wave), 12, 5, axis=0) | tf.signal.frame(x, 2, 2, axis=0) |
tf.signal.frame(1.0, 2, 1) | tf.signal.overlap_and_add(x, 2) | tf.signal.overlap_and_add(x, 3) | tf.signal.overlap_and_add(image[:, :, :, 0], 1) | tf.signal.overlap_and_add(x, 2.0) | tf.signal.overlap_and_add(i, 2) |
tf.signal.overlap_and_add([[1, 2], [3, 4]], 1) | tf.signal.stft(wave, 10, 4) | tf.signal.stft(wave, 16, 8, fft_length=20, pad_end=True) | tf.signal.stft(wave, 16, 8, window_fn=None) |
tf.signal.stft(wave, 16, 8, window_fn=tf.signal.hamming_window) | tf.signal.inverse_stft(tf.signal.stft(wave, 16, 8), 16, 8) |
tf.signal.inverse_stft(tf.signal.stft(wave, 16, 8), 16, 8, window_fn=tf.signal.inverse_stft_window_fn(8)) | tf.signal.inverse_stft(tf.signal.stft(wave, 12, 6), 12, 6, window_fn=None) |
tf.signal.inverse_stft(tf.signal.stft(wave, 12, 6, 8), 12, 6, 8) | tf.signal.inverse_stft_window_fn(4)(10, dtype=tf.float32) | tf.signal.mdct(wave, 8) | tf.signal.mdct(wave, 8, window_fn=None, norm="ortho", pad_end=True) |
tf.signal.mdct(wave, 6) | tf.signal.inverse_mdct(tf.signal.mdct(wave, 8)) | tf.signal.inverse_mdct(tf.signal.mdct(wave, 8, norm="ortho"), norm="ortho") |
tf.signal.inverse_mdct(tf.signal.mdct(wave, 8, window_fn=None), window_fn=None) | tf.signal.dct(x) | tf.signal.dct(x, norm="ortho") | tf.signal.dct(x, 1) | tf.signal.dct(x, 3) | tf.signal.dct(x, 3, norm="ortho") |
tf.signal.dct(x, 4) | tf.signal.dct(x, 4, norm="ortho") | tf.signal.dct(d) | tf.signal.dct(x, n=2) | tf.signal.dct(x, n=5) | tf.signal.dct(x, 5) | tf.signal.dct(x, 1, norm="ortho") | tf.signal.dct(x, axis=0) |
tf.signal.dct(x, norm="other") | tf.signal.idct(x) | tf.signal.idct(x, norm="ortho") | tf.signal.idct(x, 1) | tf.signal.idct(x, 3) | tf.signal.idct(x, 4, norm="ortho") | tf.signal.linear_to_mel_weight_matrix(dtype=tf.float64) |
tf.signal.linear_to_mel_weight_matrix(10, 33, 16000.0, 80.0, 7600.0) | tf.signal.linear_to_mel_weight_matrix(10, 33, 16000, 80.0, 7600.0, tf.float64) | tf.signal.linear_to_mel_weight_matrix(10, upper_edge_hertz=5000.0) |
tf.signal.linear_to_mel_weight_matrix(0) | tf.signal.linear_to_mel_weight_matrix(5, 17, tf.constant(8000)) | tf.signal.mfccs_from_log_mel_spectrograms(x) | tf.signal.mfccs_from_log_mel_spectrograms(d) |
tf.signal.mfccs_from_log_mel_spectrograms(tf.zeros([2, 0]))
"""

BLOCKS = """
tf.zeros_initializer()([2]) | tf.zeros_initializer()([2], tf.int32) | tf.zeros_initializer()([2], dtype=tf.string) | tf.ones_initializer()((2, 2), tf.bool) | tf.ones_initializer()([3], partition_shape=[1], partition_offset=[0]) |
tf.zeros_initializer()([2], other=3) | tf.constant_initializer(3.0)([2]) | tf.constant_initializer(3)([2], tf.float32) | tf.constant_initializer([1, 2, 3, 4])([2, 2]) | tf.constant_initializer([1, 2])([3]) |
tf.constant_initializer(x) | tf.constant_initializer()([1]) | tf.constant_initializer(True)([1]) | tf.constant_initializer(2.0).get_config() | tf.random_normal_initializer(1.0, 2.0, 3).get_config() |
tf.random_uniform_initializer().get_config() | tf.zeros_initializer().get_config() | tf.ones_initializer.from_config({"dtype": "x"})([1]) |
tf.random_uniform_initializer.from_config({"minval": 2, "maxval": 3, "seed": 1})([2], tf.int32) | tf.random_normal_initializer()([2], tf.int32) | tf.random_uniform_initializer()([2], tf.bool) |
tf.random_normal_initializer(seed=1)([2, 3], tf.float64).dtype.name | tf.reduce_all(tf.random_normal_initializer(seed=1)([2]) == tf.random_normal_initializer(seed=1)([2])) |
tf.random_uniform_initializer(0, 5)([2], tf.int64).dtype.name | tf.Variable(tf.random_normal_initializer(5.0, 0.0)([2])) * 1.0 | tf.constant_initializer([1, 2])([2], partition_shape=[1]) | tf.unravel_index([2, 5, 7], [3, 3]) |
tf.unravel_index(5, [2, 2, 2]) | tf.unravel_index([9], [3, 3]) | tf.unravel_index(tf.constant([7], tf.int64), tf.constant([3, 3], tf.int64)) | tf.reverse_sequence(seq, [3, 1], seq_axis=1) |
tf.reverse_sequence(seq, [1, 2, 4], seq_axis=2, batch_axis=1) | tf.reverse_sequence(seq, [2, 0, 1], seq_axis=0, batch_axis=1) | tf.reverse_sequence(seq, [3], seq_axis=1) | tf.reverse_sequence(x, [2, 3], 1, 0) |
tf.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15], [0.0, 5.0], 5) | tf.histogram_fixed_width_bins([-1.0, 0.0, 1.5, 2.0, 5.0, 15], [0.0, 5.0], 5) | tf.histogram_fixed_width(i, [0, 10], 4, tf.int64) |
tf.histogram_fixed_width_bins(x, [-1.0, 1.0], nbins=7) | tf.histogram_fixed_width(d, tf.constant([0.0, 1.0], tf.float64)) | tf.histogram_fixed_width([1.0], [2.0, 1.0]) | tf.histogram_fixed_width([1.0], [0.0, 1.0], 0) |
tf.space_to_batch(tf.reshape(tf.range(16), [1, 4, 4, 1]), [2, 2], [[0, 0], [0, 0]]) | tf.space_to_batch(image, [2, 3], [[1, 0], [0, 0]]) | tf.space_to_batch_nd(image[..., 0], [5], [[0, 0]]) |
tf.space_to_batch(image, [2, 2], [[0, 0], [0, 0]]) | tf.batch_to_space(tf.space_to_batch(image, [2, 3], [[1, 0], [0, 0]]), [2, 3], [[1, 0], [0, 0]]) |
tf.batch_to_space(tf.reshape(tf.range(16), [4, 2, 2, 1]), [2, 2], [[0, 1], [1, 0]]) | tf.batch_to_space(seq, [3], [[0, 0]]) | tf.required_space_to_batch_paddings([5, 6], [2, 4]) |
tf.required_space_to_batch_paddings([5, 6], [2, 4], [[1, 0], [2, 1]]) | tf.extract_volume_patches(image[None], [1, 1, 2, 3, 1], [1, 1, 2, 1, 1], "VALID") |
tf.extract_volume_patches(image[None], [1, 2, 2, 2, 1], [1, 1, 2, 2, 1], "SAME") | tf.matrix_square_root(m) | tf.nn.space_to_batch(image[:, :4], [2, 3], [[0, 0], [0, 0]])
"""

SPARSE = """
parts(sp) | sp.shape.as_list() | sp.get_shape().as_list() | sp.dtype.name | sp.values.dtype.name | sp.indices.dtype.name | tf.SparseTensor([[0]], [1.0], [2, 3]) | tf.SparseTensor([0], [1.0], [2]) |
tf.SparseTensor([[0]], [1.0, 2.0], [2]) | tf.SparseTensor([[0]], [[1.0]], [2]) | tf.sparse.to_dense(sp) | tf.sparse.to_dense(ints, 9) | tf.sparse.to_dense(texts) | tf.sparse.to_dense(texts, "-") | tf.sparse.to_dense(mixed) |
tf.sparse.to_dense(mixed, validate_indices=False) | tf.sparse.to_dense(tf.SparseTensor([[0], [0]], [1, 2], [3])) | tf.sparse.to_dense(tf.SparseTensor([[5]], [1], [3])) | tf.sparse.to_dense(x) |
parts(tf.sparse.from_dense([[0, 3], [4, 0]])) | parts(tf.sparse.from_dense(x)) | parts(tf.sparse.from_dense(["", "a"])) | parts(tf.sparse.from_dense(tf.zeros([2, 2]))) | parts(tf.sparse.eye(2)) |
parts(tf.sparse.eye(2, 3, tf.int64)) | parts(tf.sparse.reorder(mixed)) | parts(tf.sparse.transpose(sp)) | parts(tf.sparse.transpose(ints, [0, 1])) | parts(tf.sparse.expand_dims(sp, 0)) | parts(tf.sparse.expand_dims(sp)) |
parts(tf.sparse.expand_dims(sp, 1)) | parts(tf.sparse.expand_dims(sp, 5)) | parts(tf.sparse.reshape(sp, [3, 2])) | parts(tf.sparse.reshape(ints, [-1])) | parts(tf.sparse.reshape(ints, [2, -1])) |
parts(tf.sparse.reshape(sp, [4])) | parts(tf.sparse.concat(0, [sp, sp])) | parts(tf.sparse.concat(1, [sp, mixed])) | parts(tf.sparse.concat(-1, [sp, tf.SparseTensor([[2, 0]], [1.0], [3, 1])], expand_nonconcat_dims=True)) |
parts(tf.sparse.concat(1, [sp, tf.SparseTensor([[2, 0]], [1.0], [3, 1])])) | tf.sparse.sparse_dense_matmul(sp, tf.transpose(x)) | tf.sparse.sparse_dense_matmul(sp, x, adjoint_b=True) |
tf.sparse.sparse_dense_matmul(sp, x, adjoint_a=True) | tf.sparse.sparse_dense_matmul(x, sp, adjoint_b=True) | tf.sparse.sparse_dense_matmul(tf.transpose(x), sp) | tf.sparse.sparse_dense_matmul(sp, x) |
tf.sparse.sparse_dense_matmul(sp, tf.ones([3, 1], tf.float64)) | parts(tf.sparse.map_values(tf.square, sp)) | parts(tf.sparse.map_values(tf.add, ints, 5)) | parts(tf.sparse.map_values(tf.multiply, sp, sp)) |
tf.sparse.map_values(tf.square, x) | parts(tf.sparse.softmax(sp)) | tf.sparse.to_indicator(ints, 9) | tf.sparse.reduce_sum(sp) | tf.sparse.reduce_sum(sp, 0) | tf.sparse.reduce_sum(sp, [0, 1]) |
tf.sparse.reduce_sum(sp, -1, keepdims=True) | tf.sparse.reduce_sum(ints, 1) | parts(tf.sparse.reduce_sum(sp, 1, output_is_sparse=True)) | tf.sparse.reduce_max(sp) | tf.sparse.reduce_max(sp, 0) | tf.sparse.reduce_max(ints, 1) |
tf.sparse.reduce_max(tf.SparseTensor([[0, 0]], [-3.0], [2, 2]), 1) | parts(tf.sparse.reduce_max(ints, 0, output_is_sparse=True)) | parts(tf.sparse.retain(sp, [True, False, True])) | parts(tf.sparse.retain(sp, [True])) |
parts(tf.sparse.slice(sp, [0, 1], [2, 1])) | parts(tf.sparse.slice(ints, [1, 1], [9, 9])) | parts(tf.sparse.split(sp, 2, 1)) | parts(tf.sparse.split(sp_input=ints, num_split=2, axis=0)) | parts(tf.sparse.split(sp, 4, 1)) |
parts(tf.sparse.reset_shape(ints)) | parts(tf.sparse.reset_shape(hole)) | parts(tf.sparse.reset_shape(sp, [4, 5])) | parts(tf.sparse.reset_shape(sp, [1, 5])) | parts(tf.sparse.reset_shape(sp, [4])) |
parts(tf.sparse.fill_empty_rows(hole, 9)) | parts(tf.sparse.fill_empty_rows(sp, 0.5)) | parts(tf.sparse.add(sp, sp)) | parts(tf.sparse.add(sp, tf.sparse.eye(2, 3))) |
parts(tf.sparse.add(sp, tf.SparseTensor([[0, 1]], [-5.0], [2, 3]))) | parts(tf.sparse.add(sp, tf.sparse.eye(2, 3), threshold=2.5)) | tf.sparse.add(sp, x) | tf.sparse.add(x, sp) | tf.sparse.add(x, x) | tf.sparse.add(sp, ints) |
parts(tf.sparse.maximum(sp, tf.sparse.eye(2, 3))) | parts(tf.sparse.minimum(sp, tf.sparse.eye(2, 3))) | tf.sparse.mask(tf.IndexedSlices(x, [3, 5]), [5]).indices | tf.sparse.mask(tf.IndexedSlices(x, [3, 5]), [5]).values |
parts(tf.sparse.bincount([[1, 1, 3]])) | parts(tf.sparse.bincount([1, 1, 3], minlength=6)) | parts(tf.sparse.bincount([[1, 1, 3], [0, 0, 9]], axis=-1, maxlength=4)) | parts(tf.sparse.bincount(ints)) |
parts(tf.sparse.bincount([1, 1, 3], binary_output=True)) | parts(tf.sparse.bincount([1, 1, 3], weights=[0.5, 1.0, 2.0])) | tf.sparse.segment_sum(x, [0, 1, 1], [0, 0, 1]) | tf.sparse.segment_mean(x, [0, 1, 1], [0, 0, 2]) |
tf.sparse.segment_sqrt_n(x, [0, 1], [0, 0]) | tf.sparse.segment_sum(x, [0, 1], [0, 2], num_segments=5) | tf.sparse.segment_sum(x, [4], [0]) | parts(sp * x) | parts(sp * 2.0) | parts(sp / [[1.0], [2.0]]) |
parts(sp.with_values([1, 2, 3])) | sp.with_values([1]) | parts(tf.cast(sp, tf.int32)) | tf.SparseTensorSpec([2, None], tf.int32) == tf.SparseTensorSpec([2, None], tf.int32) |
tf.SparseTensorSpec([2, None]).is_compatible_with(sp) | repr(tf.SparseTensorSpec([2, None], tf.int32)) | tf.SparseTensorSpec([2]).shape.as_list() | tf.is_tensor(sp) | isinstance(sp, tf.SparseTensor) |
isinstance(sp, tf.sparse.SparseTensor) | tf.convert_to_tensor(sp) | tf.nest.flatten([sp, 1])[1] | len(tf.nest.flatten(sp)) | len(tf.nest.flatten(sp, expand_composites=True)) |
tf.sparse.sampled_addmm([[0, 1], [1, 0]], [1.0, 2.0], [2, 2], x, tf.transpose(y), alpha=2.0)[1] | tf.SparseTensor.from_value(sp) is sp
"""

EMBEDDINGS = """
tf.nn.embedding_lookup_sparse(x, ids, None) | tf.nn.embedding_lookup_sparse(x, ids, None, combiner="sum") | tf.nn.embedding_lookup_sparse(x, ids, None, combiner="sqrtn") | tf.nn.embedding_lookup_sparse(x, ids, sp_weights) |
tf.nn.embedding_lookup_sparse(x, ids, sp_weights, "sqrtn") | tf.nn.embedding_lookup_sparse(x, ids, sp_weights, "sum") | tf.nn.embedding_lookup_sparse(x, ids, None, "max") |
tf.nn.embedding_lookup_sparse(x, ids, None, max_norm=0.1) | tf.nn.safe_embedding_lookup_sparse(x, ids) | tf.nn.safe_embedding_lookup_sparse(x, ids, sp_weights) | tf.nn.safe_embedding_lookup_sparse(x, negative) |
tf.nn.safe_embedding_lookup_sparse(x, negative, default_id=1) | tf.nn.safe_embedding_lookup_sparse(x, ids, combiner="sum", max_norm=0.2)
"""

CTC = """
tf.nn.ctc_loss(spoken, frames, [3, 2], [6, 5]) | tf.nn.ctc_loss(spoken, tf.transpose(frames, [1, 0, 2]), [3, 2], [6, 5], logits_time_major=False) | tf.nn.ctc_loss(spoken - 1, frames, [3, 2], [6, 6], blank_index=3) |
tf.nn.ctc_loss(spoken - 1, frames, [3, 2], [6, 6], blank_index=-1) | tf.nn.ctc_loss(spoken_sparse, frames, None, [6, 5]) | tf.nn.ctc_loss(tf.cast(spoken_sparse, tf.int32), frames, None, [6, 5], blank_index=0) |
tf.nn.ctc_loss(spoken, frames, [0, 1], [6, 4]) | tf.nn.ctc_loss(labels=spoken, logits=frames, label_length=[3, 2], logit_length=[6, 5], unique=tf.nn.ctc_unique_labels(spoken)) |
parts(tf.nn.ctc_greedy_decoder(frames, [6, 3])[0]) | tf.nn.ctc_greedy_decoder(frames, [6, 3])[1] | parts(tf.nn.ctc_greedy_decoder(frames, [6, 6], merge_repeated=False, blank_index=0)[0]) |
tf.nn.ctc_greedy_decoder(frames, [7, 3]) | tf.nn.ctc_unique_labels([[1, 2, 2, 1], [3, 3, 0, 0]]) | tf.nn.collapse_repeated([[1, 1, 2, 2, 1], [3, 3, 0, 0, 0]], [5, 2]) |
tf.nn.compute_accidental_hits([[0, 1], [2, 3]], [3, 1, 0], 2) | tf.nn.sampled_softmax_loss(table, bias, tf.constant([[2], [4]]), x, 3, 7, sampled_values=drawn) |
tf.nn.sampled_softmax_loss(table, bias, tf.constant([[2], [4]]), x, 3, 7, sampled_values=drawn, remove_accidental_hits=False) | tf.nn.nce_loss(table, bias, tf.constant([[2], [4]]), x, 3, 7, sampled_values=drawn) |
tf.nn.nce_loss(table, bias, tf.constant([[2, 1], [4, 0]]), x, 3, 7, num_true=2, sampled_values=(drawn[0], tf.ones([2, 2]), drawn[2]), remove_accidental_hits=True) |
tf.nn.sampled_softmax_loss([table[:4], table[4:]], bias, tf.constant([[2], [6]]), x, 3, 7, sampled_values=drawn) | tf.random.all_candidate_sampler([[1], [2]], 1, 4, True)[1:] |
tf.random.uniform_candidate_sampler([[1], [2]], 1, 4, False, 10)[1:] | tf.random.log_uniform_candidate_sampler([[1], [2]], 1, 4, False, 10)[1] |
tf.nn.fixed_unigram_candidate_sampler([[1], [2]], 1, 4, False, 3, unigrams=[1.0, 2.0, 5.0])[1] | tf.nn.fixed_unigram_candidate_sampler([[1], [2]], 1, 4, False, 4, unigrams=[1.0, 2.0, 5.0], num_reserved_ids=1, distortion=0.5)[1] |
tf.random.uniform_candidate_sampler([[1]], 1, 5, True, 5)[0].dtype.name | tf.random.uniform_candidate_sampler([[1]], 1, 6, True, 5) | tf.random.uniform_candidate_sampler([[1]], 2, 4, True, 5) |
tf.random.uniform_candidate_sampler([1], 1, 4, True, 5) | tf.sort(tf.random.log_uniform_candidate_sampler([[1]], 1, 5, True, 5).sampled_candidates)
"""

WINDOWS = """
tf.nn.max_pool_with_argmax(image, 2, 2, "SAME") | tf.nn.max_pool_with_argmax(image, [3, 2], [2, 1], "VALID", include_batch_in_index=True) |
tf.nn.max_pool_with_argmax(image, [1, 2, 2, 1], [1, 1, 1, 1], "SAME", output_dtype=tf.int32) | tf.nn.max_pool_with_argmax(image, 2, 2, "SAME", data_format="NCHW") |
tf.nn.dilation2d(image, depth, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]) | tf.nn.dilation2d(image, depth, [1, 2, 1, 1], "VALID", "NHWC", [1, 2, 2, 1]) |
tf.nn.erosion2d(image, depth, [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]) | tf.nn.erosion2d(image, depth, [1, 2, 2, 1], "VALID", "NHWC", [1, 1, 2, 1]) |
tf.nn.dilation2d(image, depth[..., :2], [1, 1, 1, 1], "SAME", "NHWC", [1, 1, 1, 1]) | tf.nn.dilation2d(image, depth, [1, 1, 1, 1], "SAME", "NCHW", [1, 1, 1, 1]) |
tf.nn.atrous_conv2d_transpose(image, tf.reshape(kernel, [3, 3, 4, 3]), [2, 5, 6, 4], 2, "SAME") | tf.nn.depthwise_conv2d_backprop_input([2, 5, 6, 3], kernel[..., :2], grad4, [1, 1, 1, 1], "SAME") |
tf.nn.depthwise_conv2d_backprop_filter(image, [3, 3, 3, 2], grad4, [1, 1, 1, 1], "SAME") | tf.nn.batch_norm_with_global_normalization(image, tf.zeros([3]), tf.ones([3]), tf.ones([3]), tf.fill([3], 2.0), 0.1, True) |
tf.nn.batch_norm_with_global_normalization(image, tf.zeros([3]), tf.ones([3]), tf.ones([3]), tf.fill([3], 2.0), 0.1, False) | tf.math.lbeta(tf.abs(x)) | tf.math.lbeta([1.0, 2.0, 3.0]) | tf.math.polygamma([1.0, 2.0], [1.5, 2.5]) |
tf.math.special.dawsn([0.5, 2.0, -1.0]) | tf.math.special.expint([0.5, 2.0, 9.0]) | tf.math.special.fresnel_cos([0.5, 2.0]) | tf.math.special.fresnel_sin([0.5, 2.0]) | tf.math.special.spence([0.5, 2.0]) |
tf.math.special.bessel_i0([1.0]) | tf.math.approx_max_k(x, 2) | tf.math.approx_max_k(i, 2) | tf.nn.experimental.stateless_dropout(x, 0.0, [1, 2]) |
tf.nn.experimental.stateless_dropout(x, 0.5, [1, 2]).shape.as_list() | tf.nn.experimental.stateless_dropout(i, 0.5, [1, 2])
"""

IMAGES = """
tf.image.ssim(pair[0], pair[1], 1.0) | tf.image.ssim(pair[0], pair[0] * 0.9, max_val=1.0, filter_size=7, filter_sigma=1.0, k1=0.02) | tf.reduce_mean(tf.image.ssim(pair[0], pair[1], 1.0, return_index_map=True), 1) |
tf.image.ssim(tf.cast(pair[0] * 255.0, tf.uint8), tf.cast(pair[1] * 255.0, tf.uint8), 255) | tf.image.ssim(pair[0], pair[1, :, :20], 1.0) | tf.image.ssim(image, image, 1.0) |
tf.image.ssim_multiscale(large[0], large[0] * 0.9 + 0.1 * large[1], 1.0) | tf.image.ssim_multiscale(pair[0], pair[0] * 0.8, 1.0, power_factors=(0.4, 0.6), filter_size=5) | tf.image.ssim_multiscale(pair[0], pair[1], 1.0) |
tf.image.sobel_edges(image) | tf.image.rgb_to_yuv(image) | tf.image.yuv_to_rgb(image) | tf.image.rgb_to_yiq(image) | tf.image.yiq_to_rgb(image) | tf.image.extract_patches(image, [1, 2, 3, 1], [1, 2, 1, 1], [1, 1, 2, 1], "SAME") |
tf.image.extract_patches(image, [1, 3, 3, 1], [1, 1, 1, 1], [1, 1, 1, 1], "VALID") | tf.image.extract_patches(tf.cast(image * 10.0, tf.int32), [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], padding="VALID") |
tf.image.non_max_suppression(boxes, hits, 5) | tf.image.non_max_suppression(boxes, hits, 20, 0.2, 0.3) | tf.image.non_max_suppression(boxes, hits[:3], 5) | tf.image.non_max_suppression_with_scores(boxes, hits, 12, 0.3) |
tf.image.non_max_suppression_with_scores(boxes, hits, 12, iou_threshold=1.0, score_threshold=0.1, soft_nms_sigma=0.5) | tf.image.non_max_suppression_overlaps(tf.random.stateless_uniform([12, 12], [1, 2]) * 0.0, hits, 4) |
tf.image.non_max_suppression_padded(upright, hits, 20, 0.2, pad_to_max_output_size=True) | tf.image.non_max_suppression_padded(upright, hits, 20, 0.2) | tf.image.non_max_suppression(upright, hits, 20, 0.2) |
tf.image.non_max_suppression_padded(tf.stack([upright, 0.5 * upright]), tf.stack([hits, 1.0 - hits]), 6, 0.3, pad_to_max_output_size=True) | tf.image.combined_non_max_suppression(many, many_hits, 4, 8, 0.2) |
tf.image.combined_non_max_suppression(many[:, :, :1], many_hits, 4, 8, 0.2, 0.5) | tf.image.combined_non_max_suppression(many * 1.5, many_hits, 2, 20, pad_per_class=True) |
tf.image.combined_non_max_suppression(many * 1.5, many_hits, 2, 20, clip_boxes=False) | tf.image.combined_non_max_suppression(many[:, :, :2], many_hits, 2, 20) |
tf.image.draw_bounding_boxes(image, [[[0.0, 0.1, 0.5, 0.9], [0.3, 0.3, 1.0, 1.0]]] * 2, None) | tf.image.draw_bounding_boxes(image, [[[0.0, 0.1, 0.5, 0.9]]] * 2, [[0.5, 0.25, 0.0]]) |
tf.image.draw_bounding_boxes(image[..., :1], [[[0.2, -0.5, 1.5, 0.7]]] * 2, None) | tf.image.draw_bounding_boxes(image, [[[0.8, 0.8, 0.2, 0.2]]] * 2, None)
"""

OPERATORS = """
tf.linalg.lu_reconstruct(*tf.linalg.lu(square)) | tf.linalg.lu_solve(*tf.linalg.lu(square), right) | tf.linalg.lu_solve(*tf.linalg.lu(square[0]), right[0]) | tf.linalg.lu_matrix_inverse(*tf.linalg.lu(square)) |
tf.linalg.tridiagonal_solve(three + [[0.0], [5.0], [0.0]], right[0]) | tf.linalg.tridiagonal_solve(three + [[0.0], [5.0], [0.0]], right[0, :, 0]) |
tf.linalg.tridiagonal_solve((three[0, :3], three[1] + 5.0, three[2, 1:]), right[0], "sequence") | tf.linalg.tridiagonal_solve(tf.linalg.band_part(square + 5.0 * tf.eye(4), 1, 1), right, diagonals_format="matrix") |
tf.linalg.tridiagonal_solve(three + [[0.0], [5.0], [0.0]], tf.transpose(right[0]), transpose_rhs=True) | tf.linalg.tridiagonal_solve(three, right[0], "other") | tf.linalg.tridiagonal_matmul(three, right[0]) |
tf.linalg.tridiagonal_matmul((three[0], three[1], three[2]), right[0], diagonals_format="sequence") | tf.linalg.eigh_tridiagonal(three[0], three[1, :3]) |
tf.linalg.eigh_tridiagonal(three[0], three[1, :3], select="i", select_range=(1, 2)) | tf.linalg.eigh_tridiagonal(three[0], three[1, :3], select="v", select_range=(0.0, 10.0)) |
tf.abs(tf.linalg.eigh_tridiagonal(three[0], three[1, :3], eigvals_only=False)[1]) | tf.linalg.banded_triangular_solve(three[:2] + [[3.0], [0.0]], right[0]) |
tf.linalg.banded_triangular_solve(three[:2] + [[0.0], [3.0]], right[0], lower=False) | tf.linalg.banded_triangular_solve(three[:2] + [[3.0], [0.0]], right, adjoint=True) | tf.linalg.logm(tf.cast(m, tf.complex64)) |
tf.linalg.logm(m) | full.matmul(right) | full.matmul(right, adjoint=True) | full.matvec(right[..., 0]) | full.solve(right) | full.solvevec(right[..., 0], adjoint=True) | full.determinant() | full.log_abs_determinant() |
full.trace() | full.diag_part() | full.to_dense() | full.shape.as_list() | full.shape_tensor() | full.inverse().to_dense() | full.adjoint().to_dense() | full.H.to_dense() | full.dtype.name | full.is_square | full.tensor_rank |
full.batch_shape.as_list() | L.LinearOperatorFullMatrix(m, is_self_adjoint=True, is_positive_definite=True).cholesky().to_dense() | L.LinearOperatorFullMatrix(m, is_self_adjoint=True).eigvals() |
L.LinearOperatorFullMatrix(m).cond() | L.LinearOperatorFullMatrix([1.0]) | L.LinearOperatorFullMatrix(x).solve(x) | L.LinearOperatorFullMatrix(x).is_square | full.add_to_tensor(square) |
full.matmul(tf.linalg.matrix_transpose(right), adjoint_arg=True) | full @ right | triangle.to_dense() | triangle.matmul(right) | triangle.solve(right) | triangle.solve(right, adjoint=True) | triangle.determinant() |
triangle.log_abs_determinant() | triangle.solve(right[0]) | diag.to_dense() | diag.matmul(right) | diag.solve(right) | diag.matvec([1.0, 2.0, 3.0, 4.0]) | diag.determinant() | diag.log_abs_determinant() |
diag.inverse().diag_part() | diag.trace() | diag.is_self_adjoint | L.LinearOperatorDiag([1.0, 4.0], is_positive_definite=True).cholesky().to_dense() | L.LinearOperatorDiag(1.0) | diag.shape.as_list() | diag.name |
diag.is_non_singular | L.LinearOperatorDiag([1.0], is_positive_definite=True).is_non_singular | diag.add_to_tensor(square) | same.to_dense() | same.matmul(right) | same.solve(right) | same.determinant() | same.dtype.name |
same.trace() | L.LinearOperatorIdentity(3, batch_shape=[2], dtype=tf.float64).to_dense() | L.LinearOperatorIdentity(3, is_square=False) | same.log_abs_determinant() | scaled.to_dense() | scaled.matmul(right) |
scaled.solve(right) | scaled.determinant() | scaled.trace() | scaled.shape.as_list() | scaled.log_abs_determinant() | scaled.diag_part() | scaled.adjoint().to_dense()
"""

NUMPY = """
np_.array([1.0, 2.0]) | np_.array([1, 2]) | np_.array([1, 2], dtype=np_.float32) | np_.array(x) | np_.asarray([[1], [2]]) | np_.ones(3) | np_.zeros((2, 2), dtype=np_.int32) | np_.arange(3) | np_.arange(1.0, 2.0, 0.25) |
np_.linspace(0, 1, 3) | np_.eye(2) | np_.full((2,), 7) | np_.full((2,), 7.5) | np_.add(i, [1.5, 2.5, 3.5, 4.5]) | np_.add(x, 1) | np_.add(x, 1.5) | np_.add(i, 1) | np_.add(tf.constant([1]), tf.constant([1.0])) |
np_.multiply([1, 2], [3, 4]) | np_.true_divide(i, 2) | np_.divide(i, j) | np_.floor_divide(i, 2) | np_.mod(i, 3) | np_.power(x, 2) | np_.sum(i) | np_.sum(x, axis=0) | np_.sum([1.0, 2.0]) | np_.prod(i) | np_.cumsum(i) |
np_.mean(i) | np_.mean(x, axis=1, keepdims=True) | np_.var([1, 2, 3]) | np_.std(x) | np_.max(i) | np_.min(x, axis=0) | np_.argmax([1, 3, 2]) | np_.argmin(x, axis=1) | np_.any(b) | np_.all(b) | np_.sin(x) | np_.exp([1.0]) |
np_.abs(i) | np_.sign(x) | np_.floor(x) | np_.square(i) | np_.maximum(x, 0) | np_.minimum(i, 2) | np_.clip(x, -0.5, 0.5) | np_.isnan([np.nan, 1.0]) | np_.logical_and(b, [True, True, False]) | np_.logical_not(b) |
np_.equal(i, 3) | np_.greater(x, 0) | np_.isclose(x, x) | np_.allclose(x, x) | np_.array_equal(x, x) | np_.reshape(x, (3, 2)) | np_.transpose(x) | np_.transpose(x, (1, 0)) | np_.expand_dims(x, 0) | np_.squeeze([[1], [2]]) |
np_.ravel(x) | np_.concatenate([x, y]) | np_.concatenate([[1], [2.5]]) | np_.concatenate([tf.constant([1]), tf.constant([1.0])]) | np_.stack([x, y], axis=1) | np_.vstack([x, y]) | np_.hstack((x, y)) | np_.split(x, 3, axis=1) |
np_.tile(x, (2, 1)) | np_.repeat(i, 2) | np_.flip(x, 1) | np_.roll(i, 1) | np_.broadcast_to(i, (2, 4)) | np_.matmul(x, np_.transpose(y)) | np_.dot(x, [1.0, 2.0, 3.0]) | np_.tensordot(x, y, 2) | np_.einsum("ij,kj->ik", x, y) |
np_.outer([1, 2], [3.0, 4.0]) | np_.trace(m) | np_.tril(m) | np_.diag([1, 2]) | np_.cross([1, 0, 0], [0, 1, 0]) | np_.inner([1, 2], [3, 4]) | np_.kron([1, 2], [1, 1]) | np_.where(b, 1, 2.0) | np_.where(x > 0, x, 0) |
np_.where([True, False]) | np_.nonzero([0, 1, 2]) | np_.take(i, [0, 2]) | np_.sort(i) | np_.argsort([3, 1, 2]) | np_.count_nonzero([0, 1]) | np_.diff(i) | np_.zeros_like(i) | np_.ones_like(x, dtype=np_.int64) |
np_.full_like(x, 2) | np_.moveaxis(image, -1, 1) | np_.swapaxes(x, 0, 1) | np_.ndim(x) | np_.average(x, axis=0) | np_.pi | np_.newaxis is None | np_.float32 is np.float32 | np_.iinfo(np_.int32).max |
np_.result_type(np_.int32, np_.float32).name | np_.promote_types(np_.int8, np_.uint8).name | isinstance(np_.ones(2), np_.ndarray) | np_.logspace(0, 2, 3) | np_.geomspace(1.0, 100.0, 3) | np_.identity(2) |
np_.select([b], [[1, 2, 3]], 9) | np_.polyval([1.0, 2.0], x) | np_.vander([1, 2]) | np_.hypot(3.0, 4.0) | np_.deg2rad([180.0]) | np_.real(z) | np_.angle(z) | np_.conj(z) | np_.log2([8.0]) | np_.nansum([np.nan, 1.0]) |
np_.random.randn(2, 3).dtype.name | np_.random.rand(2).shape.as_list() | np_.random.uniform(size=(2, 2)).shape.as_list() | np_.random.randint(5, size=[3]).dtype.name | np_.random.standard_normal([2]).dtype.name |
np_.random.poisson(3.0, size=[2]).dtype.name | np_.random.random([2]).shape.as_list() | np_.random.seed(3) | np_.atleast_2d([1, 2]) | np_.gcd([4, 6], 2) | np_.nextafter([1.0], [2.0]) | np_.tri(2) | np_.rot90(x) |
np_.bitwise_and(i, 3) | np_.heaviside([-1.0, 0.0, 2.0], 0.5) | np_.add(x, [1.0, 2.0, 3.0]) | np_.add(x, np.array([1.0, 2.0, 3.0])) | np_.add(i, [1, 2, 3, 4]) | np_.where(b, d, [1, 2, 3]) | np_.stack([x[0], [1.0, 2.0, 3.0]]) |
np_.array([x[0], [1.0, 2.0, 3.0]]) | np_.power(i, -1.0) | np_.var(i) | np_.maximum(x, [0.0, 0.0, 0.0])
"""

DISTANCES = """
tf.edit_distance(said, meant) | tf.edit_distance(said, meant, normalize=False) | tf.edit_distance(meant, said, normalize=False) |
tf.edit_distance(tf.SparseTensor([[0, 0, 0], [1, 0, 0]], ["a", "b"], [2, 1, 1]), tf.SparseTensor([[0, 1, 0], [1, 0, 0], [1, 0, 1], [1, 1, 0]], ["a", "b", "c", "a"], [2, 2, 2])) |
tf.edit_distance(said, tf.SparseTensor([[0, 0]], [1.0], [4, 1])) | tf.edit_distance(said, [1])
"""

GROUPS = {
    "signal": SIGNAL,
    "blocks": BLOCKS,
    "sparse": SPARSE,
    "embeddings": EMBEDDINGS,
    "ctc": CTC,
    "windows": WINDOWS,
    "images": IMAGES,
    "operators": OPERATORS,
    "numpy": NUMPY,
    "distances": DISTANCES,
}
