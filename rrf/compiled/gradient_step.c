/* What the compiled gradient steps share: several networks in one call, and Adam. The rows of the
 * batch are split into the parts of perceptron.c, one per thread.
 */

#include "perceptron.c"

typedef struct {
    long count;
    float *weights, *mean, *square; /* Adam's moments */
    const float *first, *second; /* sums of the gradient's two parts */
    float *slow; /* the slow copy; or NULL */
} Learned;

typedef struct {
    long count; /* of tensors */
    const Learned *tensors;
    long step; /* number of this gradient step, from 1 */
    float rate, epsilon;
    float scale; /* by which gradients are multiplied */
} Learner;

static const double BETA1 = 0.9, BETA2 = 0.999;

static float lowest(const Network *critic, const float *values, long row)
{
    float least = values[row];
    for (long k = 1; k < critic->copies; k++) {
        float value = values[k * critic->rows + row];
        if (!(value >= least)) least = value; /* keeps NaN */
    }
    return least;
}

/* A network with K copies on the rows of a part. */
static void all_copies(const Network *net, long first, long rows)
{
    for (long k = 0; k < net->copies; k++)
        for (long at = 0; at < rows; at += BLOCK)
            forward_rows(net, k, first + at, minimum(BLOCK, rows - at));
}

/* The gradients of K critics whose values of a row should be `target`, the error and the value. */
static void regress(const Network *critic, const Gradients *to, long row, float target, float *loss,
                    float *mean)
{
    const float *values = critic->outputs[critic->layers - 1];
    for (long k = 0; k < critic->copies; k++) {
        float value = values[k * critic->rows + row], error = value - target;
        ((float *)to->outputs)[k * critic->rows + row] = error / critic->rows;
        *loss += 0.5f * error * error / critic->rows;
        *mean += value / (critic->rows * critic->copies);
    }
}

/* Adam (arXiv:1412.6980) and then Polyak's average, on the numbers from `begin` to `end`. */
static void adam(const Learner *learner, const Learned *of, long begin, long end, float tau)
{
    float by_mean = learner->rate / (1 - pow(BETA1, learner->step));
    float by_square = 1 / sqrt(1 - pow(BETA2, learner->step));
    const float mean_rate = 1 - BETA1, square_rate = 1 - BETA2, beta2 = BETA2;
    const float epsilon = learner->epsilon, scale = learner->scale;
    float *restrict weights = of->weights, *restrict mean = of->mean, *restrict square = of->square;
    float *restrict slow = of->slow;
    for (long i = begin; i < end; i++) {
        float gradient = scale * (of->first[i] + (of->second ? of->second[i] : 0));
        mean[i] += mean_rate * (gradient - mean[i]);
        square[i] = beta2 * square[i] + square_rate * gradient * gradient;
        weights[i] -= by_mean * mean[i] / (sqrtf(square[i]) * by_square + epsilon);
        if (slow) slow[i] += tau * (weights[i] - slow[i]);
    }
}

/* A step of all tensors. Called by all threads. */
static void learn(const Learner *learner, float tau)
{
    for (long t = 0; t < learner->count; t++) {
        const Learned *tensor = learner->tensors + t;
#pragma omp for schedule(static) nowait
        for (long begin = 0; begin < tensor->count; begin += 1024)
            adam(learner, tensor, begin, minimum(begin + 1024, tensor->count), tau);
    }
#pragma omp barrier
}

/* Add the sums of the other parts, [PARTS, count], to those of the first. */
static void add_sums(float *sums, long count)
{
    for (long i = count; i < PARTS * count; i++) sums[i % count] += sums[i];
}
