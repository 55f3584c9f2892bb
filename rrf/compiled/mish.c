/* Mish and its derivative, elementwise, and layer normalisation followed by Mish. See mish.py, which
 * compiles this file.
 */

#include <math.h>
#include <stdint.h>
#include <string.h>

/* exp(x) for -87 <= x <= 87 with a relative error below 3e-7, as exp(f) 2^k with |f| <= log(2)/2. */
static inline float exponential(float x)
{
    float scaled = x * 1.44269504f, whole = __builtin_rintf(scaled);
    float f = x - whole * 0.693359375f + whole * 2.12194440e-4f; /* log(2) in two parts */
    float sum = 1 / 5040.0f;
    sum = sum * f + 1 / 720.0f;
    sum = sum * f + 1 / 120.0f;
    sum = sum * f + 1 / 24.0f;
    sum = sum * f + 1 / 6.0f;
    sum = sum * f + 0.5f;
    sum = sum * f + 1;
    sum = sum * f + 1;
    int32_t bits = ((int32_t)whole + 127) << 23;
    float power;
    memcpy(&power, &bits, 4);
    return sum * power;
}

/* tanh(softplus(x)); `e` becomes exp(x), bounded. */
static inline float gate(float x, float *e)
{
    float bounded = x < -87 ? -87 : x; /* keeps NaN */
    *e = exponential(bounded > 20 ? 20 : bounded);
    float n = *e * (*e + 2);
    return n / (n + 2);
}

/* `slopes` may be NULL. */
void mish(const float *restrict x, float *restrict values, float *restrict slopes, long count)
{
    float e;
    if (!slopes)
        for (long i = 0; i < count; i++) values[i] = x[i] * gate(x[i], &e);
    else
        for (long i = 0; i < count; i++) {
            float t = gate(x[i], &e);
            values[i] = x[i] * t;
            slopes[i] = t + x[i] * (1 - t * t) * (e / (1 + e));
        }
}

/* Numbers from float32, or from bfloat16 if `half`. */
static void widen(const void *from, long at, int half, float *restrict to, long count)
{
    if (!half) {
        memcpy(to, (const float *)from + at, count * 4);
        return;
    }
    for (long i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)((const uint16_t *)from)[at + i] << 16;
        memcpy(to + i, &bits, 4);
    }
}

/* To bfloat16: rounds to the nearest number, to the even one of two. */
static void narrow(const float *from, uint16_t *restrict to, long count)
{
    for (long i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, from + i, 4);
        to[i] = from[i] != from[i] ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
}

/* Normalises each row of [copies, rows, width], then scales and shifts it with the numbers of its
 * copy, [copies, width]; then Mish. `half_...`: whether they are bfloat16 instead of float32. */
void normed_mish(const void *x, const void *scales, const void *shifts, void *values, long copies,
                 long rows, long width, float epsilon, long half_x, long half_scales,
                 long half_values)
{
    float scale[width], shift[width], row[width], e;
    for (long at = 0; at < copies * rows; at++) {
        if (at % rows == 0) {
            widen(scales, at / rows * width, half_scales, scale, width);
            widen(shifts, at / rows * width, half_scales, shift, width);
        }
        widen(x, at * width, half_x, row, width);
        float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < width; i++) sum += row[i];
        float mean = sum / width;
#pragma omp simd reduction(+ : squares)
        for (long i = 0; i < width; i++) squares += (row[i] - mean) * (row[i] - mean);
        float rate = 1 / sqrtf(squares / width + epsilon);
        float *to = half_values ? row : (float *)values + at * width;
        for (long i = 0; i < width; i++) {
            float normal = (row[i] - mean) * rate * scale[i] + shift[i];
            to[i] = normal * gate(normal, &e);
        }
        if (half_values) narrow(row, (uint16_t *)values + at * width, width);
    }
}
