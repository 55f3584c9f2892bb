/* The exponential function, in a form that compilers turn into vector instructions. */

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
