/* Perceptrons with ReLU, tanh or ELU between their layers: all layers forward, and all layers
 * backward, in one call each. See perceptron.py, which compiles this file.
 *
 * Rows are processed in blocks that stay in the processor's cache through all layers. The blocks
 * that are summed into a gradient, and their order, do not depend on the number of threads, so
 * neither do the results.
 *
 * With bfloat16 (only where the processor has products for it), the factors of each product are
 * rounded to 16 bits, two per 32-bit word; sums and all that is stored are float32.
 */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 16 /* numbers in a vector */
#define VECTORS 4 /* vectors in a row of a tile */
#else
#define LANES 8
#define VECTORS 2
#endif
#define ALWAYS_INLINE inline __attribute__((always_inline)) /* with constants as arguments */
#define TILE_ROWS 6
#define BLOCK 128 /* rows that pass through all layers together */
#define PARTS 2 /* partial sums of a gradient, for as many threads */

typedef float Vector __attribute__((vector_size(LANES * 4)));
typedef union { float number; uint32_t bits; } Word; /* a float32, or two bfloat16 */

typedef struct {
    long copies, rows, layers;
    const long *widths; /* layers + 1 */
    const float *x; /* [rows, widths[0]], or one of these per copy */
    long x_stride; /* from copy to copy; 0 if all copies share x */
    float *const *weights; /* per layer, [copies, ...] */
    const long *in_strides, *out_strides; /* per layer, from input to input, output to output */
    float *const *biases; /* per layer, [copies, width] */
    float *const *outputs; /* per layer, [copies, rows, width] */
    long half; /* whether to multiply in bfloat16 */
    long activation; /* between the layers */
    long threads;
} Network;

typedef struct {
    const float *outputs; /* [copies, rows, last width] */
    float *x; /* [copies, rows, widths[0]], or NULL */
    float *const *weights, *const *biases; /* like those of the network; or NULL */
    float *scratch; /* as many numbers as weights and biases have together */
} Gradients;

typedef struct { const float *at; long row, column; } Matrix; /* a number, and the strides */

enum { NONE, LINEAR, RELU, TANH, ELU }; /* activations, as in perceptron.py */

/* What happens to a sum before it is stored: bias and activation; or the product with the slope at
 * an activation's output (with a stride from row to row); or addition to what is there. */
typedef struct {
    const float *bias;
    int activation, slope;
    const float *activated;
    long stride;
    int add;
} Finish;

int multiplies_half(void)
{
#ifdef __AVX512BF16__
    return 1;
#else
    return 0;
#endif
}

#ifdef __AVX512BF16__

static inline __mmask16 lanes(long count) { return count < 16 ? (1u << count) - 1 : 0xffff; }

/* Words of two numbers that follow one another, from `count` numbers. */
static void pairs_along(const float *from, long count, Word *to)
{
    for (long k = 0; k < count; k += 32) {
        __m512 low = _mm512_maskz_loadu_ps(lanes(count - k), from + k), high = _mm512_setzero_ps();
        if (count - k > 16) high = _mm512_maskz_loadu_ps(lanes(count - k - 16), from + k + 16);
        __m512i words = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        _mm512_mask_storeu_epi32(to + k / 2, lanes((count - k + 1) / 2), words);
    }
}

/* Words of two numbers, one of each row; there may be no second row. */
static void pairs_across(const float *first, const float *second, long count, Word *to)
{
    for (long q = 0; q < count; q += 16) {
        __mmask16 here = lanes(count - q);
        __m512 high = second ? _mm512_maskz_loadu_ps(here, second + q) : _mm512_setzero_ps();
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high, _mm512_maskz_loadu_ps(here, first + q));
        __m512i words = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
        words = _mm512_slli_epi32(words, 16);
        words |= _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 0));
        _mm512_mask_storeu_epi32(to + q, here, words);
    }
}

#endif

static long minimum(long a, long b) { return a < b ? a : b; }

/* Memory of this thread for one product, enough for `count` words. */
static float *workspace(int which, long count)
{
    static __thread struct { float *memory; long room; } kept[3];
    if (kept[which].room < count) {
        free(kept[which].memory);
        kept[which].memory = aligned_alloc(64, (count * 4 + 63) / 64 * 64);
        kept[which].room = count;
    }
    return kept[which].memory;
}

/* Copy `n` columns of `b` from column `j` on, `width` words per row, filled up with zeros. */
static void pack(Matrix b, long depth, long j, long n, long width, Word *restrict to)
{
    const float *from = b.at + j * b.column;
    if (n < width) memset(to, 0, depth * width * 4);
    if (b.column == 1)
        for (long k = 0; k < depth; k++) memcpy(to + k * width, from + k * b.row, n * 4);
    else
        for (long block = 0; block < depth; block += 16)
            for (long q = 0; q < n; q++)
                for (long k = block; k < minimum(block + 16, depth); k++)
                    to[k * width + q].number = from[k * b.row + q * b.column];
}

#ifdef __AVX512BF16__
/* The same in pairs along the depth. */
static void pack_pairs(Matrix b, long depth, long j, long n, long width, Word *restrict to)
{
    const float *from = b.at + j * b.column;
    Word words[16];
    if (n < width) memset(to, 0, (depth + 1) / 2 * width * 4);
    if (b.column == 1)
        for (long k = 0; k < depth; k += 2, from += 2 * b.row, to += width)
            pairs_across(from, k + 1 < depth ? from + b.row : NULL, n, to);
    else
        for (long block = 0; block < depth; block += 32)
            for (long q = 0; q < n; q++) {
                long count = minimum(32, depth - block);
                pairs_along(from + block + q * b.column, count, words);
                for (long k = 0; k < (count + 1) / 2; k++) to[(block / 2 + k) * width + q] = words[k];
            }
}
#endif

static ALWAYS_INLINE Vector
multiply_add(Vector sum, Word a, Vector b, int half)
{
#ifdef __AVX512BF16__
    if (half)
        return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(a.bits), (__m512bh)b);
#endif
    return sum + a.number * b;
}

/* exp(x) for x <= 0 and NaN, with a relative error below 1e-7, in operations that the compiler turns
 * into vectors. The polynomial was fitted to 2^x in [-0.5, 0.5]. */
static ALWAYS_INLINE float exp_of(float x)
{
    float power = (x < -80 ? -80 : x) * 1.44269504f, whole = rintf(power), part = power - whole;
    float sum = 1.54780178e-4f;
    sum = sum * part + 1.34004317e-3f;
    sum = sum * part + 9.61799453e-3f;
    sum = sum * part + 5.55032722e-2f;
    sum = sum * part + 2.40226515e-1f;
    sum = sum * part + 6.93147207e-1f;
    sum = sum * part + 1;
    Word scale = {.bits = (uint32_t)((int32_t)whole + 127) << 23};
    return sum * scale.number;
}

/* tanh with an error below 2e-7; near 0 by x + x^3 p(x^2), where p was fitted. */
static ALWAYS_INLINE float tanh_of(float x)
{
    float size = fabsf(x), square = x * x;
    float near = -6.28246801e-3f;
    near = near * square + 2.10777516e-2f;
    near = near * square - 5.38538585e-2f;
    near = near * square + 1.33326021e-1f;
    near = near * square - 3.33333182e-1f;
    near = x + x * square * near;
    float small = exp_of(-2 * size), far = copysignf((1 - small) / (1 + small), x);
    return size < 0.55f || x != x ? near : far;
}

/* `store` with constants in place of the finish's. */
static ALWAYS_INLINE void
store_as(int rows, long stride, const float *sums, long n, float *c, long c_stride, Finish finish,
         int activation, int slope, int add)
{
    for (int r = 0; r < rows; r++, sums += stride, c += c_stride, finish.activated += finish.stride) {
        float *restrict to = c;
        for (long q = 0; q < n; q++) {
            float sum = activation ? sums[q] + finish.bias[q] : sums[q];
            if (activation == RELU && sum < 0) sum = 0; /* keeps NaN */
            if (activation == TANH) sum = tanh_of(sum);
            if (activation == ELU) sum = sum > 0 ? sum : exp_of(sum) - 1;
            if (slope == RELU && !(finish.activated[q] > 0)) sum = 0;
            if (slope == TANH) sum *= 1 - finish.activated[q] * finish.activated[q];
            if (slope == ELU) sum *= finish.activated[q] > 0 ? 1 : 1 + finish.activated[q];
            to[q] = add ? to[q] + sum : sum;
        }
    }
}

/* Store the first `n` of each row of sums. */
static __attribute__((noinline)) void
store(int rows, long stride, const float *sums, long n, float *c, long c_stride, Finish finish)
{
#define AS(activation, slope, add)                                                                 \
    store_as(rows, stride, sums, n, c, c_stride, finish, activation, slope, add)
    if (finish.activation == LINEAR) AS(LINEAR, NONE, 0);
    else if (finish.activation == RELU) AS(RELU, NONE, 0);
    else if (finish.activation == TANH) AS(TANH, NONE, 0);
    else if (finish.activation == ELU) AS(ELU, NONE, 0);
    else if (finish.slope == RELU) AS(NONE, RELU, 0);
    else if (finish.slope == TANH) AS(NONE, TANH, 0);
    else if (finish.slope == ELU) AS(NONE, ELU, 0);
    else if (finish.add) AS(NONE, NONE, 1);
    else AS(NONE, NONE, 0);
#undef AS
}

/* `rows` x `n` sums. `rows`, `vectors` and `half` are constants wherever this is called. */
static ALWAYS_INLINE void
tile(int rows, int vectors, int half, long n, long depth, const Word *a, long a_row, long a_column,
     const float *b, float *c, long c_stride, Finish finish)
{
    Vector sums[TILE_ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = (Vector){0};
    for (long k = 0; k < depth; k++) {
        Vector of_b[VECTORS];
        for (int v = 0; v < vectors; v++) of_b[v] = ((const Vector *)b)[k * vectors + v];
        for (int r = 0; r < rows; r++) {
            Word of_a = a[r * a_row + k * a_column];
            for (int v = 0; v < vectors; v++)
                sums[r][v] = multiply_add(sums[r][v], of_a, of_b[v], half);
        }
    }
    Vector kept[TILE_ROWS][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vectors; v++) kept[r][v] = sums[r][v];
    store(rows, VECTORS * LANES, (const float *)kept, n, c, c_stride, finish);
}

/* c[m, n] = finish(a[m, depth] b[depth, n]) */
static ALWAYS_INLINE void
product_in(int half, long m, long n, long depth, Matrix a, Matrix b, float *c, long c_stride, Finish finish)
{
    const Word *words = (const Word *)a.at;
    long words_deep = half ? (depth + 1) / 2 : depth;
#ifdef __AVX512BF16__
    if (half) {
        Word *to = (Word *)workspace(1, words_deep * m);
        words = to;
        if (a.row == 1) {
            pack_pairs((Matrix){a.at, a.column, 1}, depth, 0, m, m, to);
            a.column = m;
        } else {
            for (long i = 0; i < m; i++) pairs_along(a.at + i * a.row, depth, to + i * words_deep);
            a.row = words_deep;
        }
    }
#endif
    Word *packed = (Word *)workspace(0, words_deep * VECTORS * LANES);
    for (long j = 0, columns; j < n; j += columns) {
        int is_wide = n - j > LANES;
        long width = is_wide ? VECTORS * LANES : LANES;
        columns = n - j < width ? n - j : width;
#ifdef __AVX512BF16__
        if (half) pack_pairs(b, depth, j, columns, width, packed);
        else
#endif
            pack(b, depth, j, columns, width, packed);
        Finish here = finish;
        if (here.bias) here.bias += j;
        if (here.stride) here.activated += j;
        long i = 0;
#define TILES(rows, vectors)                                                                       \
    for (; i + rows <= m; i += rows) {                                                             \
        tile(rows, vectors, half, columns, words_deep, words + i * a.row, a.row, a.column,         \
             (const float *)packed, c + i * c_stride + j, c_stride, here);                         \
        here.activated += rows * here.stride;                                                       \
    }
        if (is_wide) { TILES(TILE_ROWS, VECTORS) TILES(2, VECTORS) TILES(1, VECTORS) }
        else { TILES(TILE_ROWS, 1) TILES(2, 1) TILES(1, 1) }
#undef TILES
    }
}

/* A product of layer `l`; those of the output layer are exact. */
static void product(const Network *net, long l, long m, long n, long depth, Matrix a, Matrix b,
                    float *c, long c_stride, Finish finish)
{
    if (net->half && l + 1 < net->layers) product_in(1, m, n, depth, a, b, c, c_stride, finish);
    else product_in(0, m, n, depth, a, b, c, c_stride, finish);
}

static void add_columns(const float *restrict rows, long count, long width, float *restrict to)
{
    for (long r = 0; r < count; r++)
        for (long j = 0; j < width; j++) to[j] += rows[r * width + j];
}

static Matrix weight(const Network *net, long layer, long copy)
{
    const float *at = net->weights[layer] + copy * net->widths[layer] * net->widths[layer + 1];
    return (Matrix){at, net->in_strides[layer], net->out_strides[layer]};
}

/* All layers for some rows of a copy. */
static void forward_rows(const Network *net, long copy, long first, long rows)
{
    const long *widths = net->widths;
    const float *in = net->x + copy * net->x_stride + first * widths[0];
    for (long l = 0; l < net->layers; l++) {
        long width = widths[l + 1];
        float *out = net->outputs[l] + (copy * net->rows + first) * width;
        Finish finish = {.bias = net->biases[l] + copy * width,
                         .activation = l + 1 < net->layers ? net->activation : LINEAR};
        product(net, l, rows, width, widths[l], (Matrix){in, widths[l], 1}, weight(net, l, copy),
                out, width, finish);
        in = out;
    }
}

/* The gradients of the weights of layer `l` from some rows; `in` and `of_out` begin at the first. */
static void add_weights(const Network *net, long l, long rows, const float *in, const float *of_out,
                        float *weights, float *biases, int add)
{
    long fan_in = net->widths[l], fan_out = net->widths[l + 1];
    Finish finish = {.add = add};
    if (net->out_strides[l] == 1)
        product(net, l, fan_in, fan_out, rows, (Matrix){in, 1, fan_in},
                (Matrix){of_out, fan_out, 1}, weights, fan_out, finish);
    else
        product(net, l, fan_out, fan_in, rows, (Matrix){of_out, 1, fan_out},
                (Matrix){in, fan_in, 1}, weights, fan_in, finish);
    if (!add) memset(biases, 0, fan_out * 4);
    add_columns(of_out, rows, fan_out, biases);
}

static long rows_per_part(const Network *net) { return (net->rows + PARTS - 1) / PARTS; }

/* Numbers of the weights and biases of a copy. */
static long size_of_copy(const Network *net)
{
    long size = 0;
    for (long l = 0; l < net->layers; l++) size += (net->widths[l] + 1) * net->widths[l + 1];
    return size;
}

/* All layers backward for the rows of a part of a copy. */
static void backward_part(const Network *net, const Gradients *to, long copy, long part)
{
    const long *widths = net->widths;
    long begin = part * rows_per_part(net), end = minimum(begin + rows_per_part(net), net->rows);
    long widest = 0;
    for (long l = 0; l < net->layers; l++)
        if (widths[l] > widest) widest = widths[l];
    for (long first = begin; first < end; first += BLOCK) {
        long rows = minimum(BLOCK, end - first), row = copy * net->rows + first;
        const float *of_out = to->outputs + row * widths[net->layers];
        float *other = to->scratch + copy * size_of_copy(net); /* the sums of the second part */
        for (long l = net->layers - 1; l >= 0; l--) {
            long fan_in = widths[l], fan_out = widths[l + 1];
            const float *in = l ? net->outputs[l - 1] + row * fan_in
                                : net->x + copy * net->x_stride + first * fan_in;
            if (to->weights) {
                float *weights = part ? other : to->weights[l] + copy * fan_in * fan_out;
                float *biases = part ? other + fan_in * fan_out : to->biases[l] + copy * fan_out;
                add_weights(net, l, rows, in, of_out, weights, biases, first > begin);
                other += (fan_in + 1) * fan_out;
            }
            if (l == 0 && !to->x) break;
            Matrix transposed = weight(net, l, copy);
            transposed = (Matrix){transposed.at, transposed.column, transposed.row};
            Finish finish = {.activated = in, .stride = l ? fan_in : 0,
                             .slope = l ? net->activation : NONE};
            float *of_in = l ? workspace(2, 2 * BLOCK * widest) + l % 2 * BLOCK * widest
                             : to->x + row * fan_in;
            product(net, l, rows, fan_in, fan_out, (Matrix){of_out, fan_out, 1}, transposed, of_in,
                    fan_in, finish);
            of_out = of_in;
        }
    }
}

/* Add the sums of the second part to those of the first. */
static void add_parts(const Network *net, const Gradients *to, long copy)
{
    const float *other = to->scratch + copy * size_of_copy(net);
    if (rows_per_part(net) >= net->rows) return;
    for (long l = net->layers - 1; l >= 0; l--) {
        long count = net->widths[l] * net->widths[l + 1], width = net->widths[l + 1];
        add_columns(other, 1, count, to->weights[l] + copy * count);
        add_columns(other + count, 1, width, to->biases[l] + copy * width);
        other += count + width;
    }
}

void forward(const Network *net)
{
    const long blocks = (net->rows + BLOCK - 1) / BLOCK, tasks = net->copies * blocks;
#pragma omp parallel for num_threads(minimum(net->threads, tasks)) schedule(static) if (tasks > 1)
    for (long task = 0; task < tasks; task++) {
        long first = task % blocks * BLOCK;
        forward_rows(net, task / blocks, first, minimum(BLOCK, net->rows - first));
    }
}

void backward(const Network *net, const Gradients *to)
{
#pragma omp parallel num_threads(net->threads)
    {
#pragma omp for schedule(static)
        for (long task = 0; task < net->copies * PARTS; task++)
            backward_part(net, to, task / PARTS, task % PARTS);
        if (to->weights)
#pragma omp for schedule(static)
            for (long copy = 0; copy < net->copies; copy++) add_parts(net, to, copy);
    }
}
