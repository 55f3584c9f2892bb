/* All mini-batches of an update of PPO in one call. See ppo.py, which compiles this file, and
 * `PPO.learn`, whose loop it equals.
 *
 * The rows of a mini-batch are split into the parts of perceptron.c, one per thread. A thread takes
 * its rows through both networks.
 *
 * Legend: S samples, B rows of a mini-batch, A action width.
 */

#include "gradient_step.c"

typedef struct {
    Network actor, critic; /* with room for the rows of a mini-batch */
    Gradients of_actor, of_critic;
    Learner actor_learner, critic_learner;
    long epochs, batches, samples;
    const long *order; /* of the samples, [epochs, S] */
    const float *actor_x, *critic_x; /* normalised observations, [S, ...] */
    const float *actions; /* [S, A] */
    const float *distributions; /* when the actions were chosen: means, then deviations, [S, 2 A] */
    const float *log_probs, *values, *returns, *advantages; /* [S] */
    float *spread; /* the deviations, or their logarithms, [A] */
    float *of_spread; /* sums of its gradient, [PARTS, A] */
    float *rate; /* the learning rate */
    float *sums; /* [PARTS, NUM_SUMS] */
    float *metrics; /* sums over all mini-batches, [NUM_SUMS] */
    float low_spread, high_spread, clip, entropy_coef, value_coef, max_norm;
    float desired_kl, low_rate, high_rate;
    long is_log, clips_value, normalizes, adapts;
} Update;

enum { SURROGATE, VALUE_LOSS, ENTROPY, KL, CLIPPED, NUM_SUMS };

/* A mini-batch: its samples, and how its advantages are normalised. */
typedef struct { const long *samples; long rows; float mean, scale; } Batch;

static Batch batch_of(const Update *job, long epoch, long index)
{
    long size = job->samples / job->batches, longer = job->samples % job->batches;
    long first = index * size + minimum(index, longer);
    Batch batch = {job->order + epoch * job->samples + first, size + (index < longer), 0, 1};
    if (!job->normalizes) return batch;
    double sum = 0, squares = 0;
    for (long r = 0; r < batch.rows; r++) sum += job->advantages[batch.samples[r]];
    double mean = sum / batch.rows;
    for (long r = 0; r < batch.rows; r++) {
        double error = job->advantages[batch.samples[r]] - mean;
        squares += error * error;
    }
    batch.mean = mean;
    batch.scale = 1 / (sqrt(squares / (batch.rows - 1)) + 1e-8);
    return batch;
}

/* The gradients of the policy from one row. */
static void improve(const Update *job, const Batch *batch, long row, float *of_spread, float *sums)
{
    long width = job->actor.widths[job->actor.layers], sample = batch->samples[row];
    const float *means = job->actor.outputs[job->actor.layers - 1] + row * width;
    const float *actions = job->actions + sample * width;
    const float *before = job->distributions + 2 * width * sample;
    float *of_means = (float *)job->of_actor.outputs + row * width;
    float log_prob = 0, kl = 0, entropy = 0;
    for (long a = 0; a < width; a++) {
        float std = job->is_log ? expf(job->spread[a]) : job->spread[a], log_std = logf(std);
        float error = (actions[a] - means[a]) / std, moved = (before[a] - means[a]) / std;
        float wider = before[width + a] / std;
        log_prob -= 0.5f * error * error + log_std + 0.91893853f;
        kl += 0.5f * (wider * wider + moved * moved - 1) - logf(wider);
        entropy += log_std + 1.41893853f;
    }
    float advantage = (job->advantages[sample] - batch->mean) * batch->scale;
    float ratio = expf(log_prob - job->log_probs[sample]);
    float near = fminf(fmaxf(ratio, 1 - job->clip), 1 + job->clip);
    float free = -advantage * ratio, clipped = -advantage * near;
    float of_log_prob = free < clipped ? 0 : free / batch->rows; /* keeps NaN */
    for (long a = 0; a < width; a++) {
        float std = job->is_log ? expf(job->spread[a]) : job->spread[a];
        float error = (actions[a] - means[a]) / std;
        of_means[a] = of_log_prob * error / std;
        float of_log_std = of_log_prob * (error * error - 1) - job->entropy_coef / batch->rows;
        of_spread[a] += job->is_log ? of_log_std : of_log_std / std;
    }
    sums[SURROGATE] += (free < clipped ? clipped : free) / batch->rows;
    sums[KL] += kl / batch->rows;
    sums[ENTROPY] += entropy / batch->rows;
    sums[CLIPPED] += (fabsf(ratio - 1) > job->clip) / (float)batch->rows;
}

/* The gradient of the value of one row. */
static void value(const Update *job, const Batch *batch, long row, float *sums)
{
    long sample = batch->samples[row];
    float given = job->critic.outputs[job->critic.layers - 1][row];
    float error = given - job->returns[sample], loss = error * error, of_value = 2 * error;
    if (job->clips_value) {
        float moved = given - job->values[sample];
        float near = job->values[sample] + fminf(fmaxf(moved, -job->clip), job->clip);
        float other = (near - job->returns[sample]) * (near - job->returns[sample]);
        if (loss < other) { /* keeps NaN */
            loss = other;
            if (fabsf(moved) > job->clip) of_value = 0;
        }
    }
    ((float *)job->of_critic.outputs)[row] = job->value_coef * of_value / batch->rows;
    sums[VALUE_LOSS] += loss / batch->rows;
}

/* All gradients from the rows of a part. */
static void gradients(const Update *job, const Batch *batch, long part)
{
    Network actor = job->actor, critic = job->critic;
    actor.rows = critic.rows = batch->rows;
    long first = part * rows_per_part(&actor);
    long end = minimum(first + rows_per_part(&actor), batch->rows);
    long width = actor.widths[actor.layers], actor_in = actor.widths[0], critic_in = critic.widths[0];
    float *sums = job->sums + part * NUM_SUMS, *of_spread = job->of_spread + part * width;
    for (long r = first; r < end; r++) {
        long sample = batch->samples[r];
        memcpy((float *)actor.x + r * actor_in, job->actor_x + sample * actor_in, actor_in * 4);
        memcpy((float *)critic.x + r * critic_in, job->critic_x + sample * critic_in, critic_in * 4);
    }
    all_copies(&actor, first, end - first);
    all_copies(&critic, first, end - first);
    memset(sums, 0, NUM_SUMS * 4);
    memset(of_spread, 0, width * 4);
    for (long r = first; r < end; r++) {
        improve(job, batch, r, of_spread, sums);
        value(job, batch, r, sums);
    }
    backward_part(&actor, &job->of_actor, 0, part);
    backward_part(&critic, &job->of_critic, 0, part);
}

/* By what to multiply a gradient so that its norm is at most `largest`. */
static float shortened(const Learner *learner, float largest)
{
    double squares = 0;
    for (long t = 0; t < learner->count; t++) {
        const Learned *of = learner->tensors + t;
        float sums[LANES] = {0}; /* in vectors */
        for (long i = 0; i < of->count; i += LANES)
            for (long lane = 0; lane < minimum(LANES, of->count - i); lane++) {
                float gradient = of->first[i + lane] + of->second[i + lane];
                sums[lane] += gradient * gradient;
            }
        for (long lane = 0; lane < LANES; lane++) squares += sums[lane];
    }
    float scale = largest / (sqrt(squares) + 1e-6);
    return scale > 1 ? 1 : scale; /* keeps NaN */
}

/* See `adapted_learning_rate` in losses.py. */
static float adapted(const Update *job, float rate, float kl)
{
    float slower = fmaxf(rate / 1.5f, job->low_rate), faster = fminf(rate * 1.5f, job->high_rate);
    if (kl > job->desired_kl * 2) return slower;
    return kl < job->desired_kl / 2 && kl > 0 ? faster : rate;
}

void update(const Update *job)
{
    long width = job->actor.widths[job->actor.layers];
    Learner actor = job->actor_learner, critic = job->critic_learner;
    memset(job->metrics, 0, NUM_SUMS * 4);
#pragma omp parallel num_threads(job->actor.threads)
    for (long index = 0; index < job->epochs * job->batches; index++) {
        Batch batch = batch_of(job, index / job->batches, index % job->batches);
#pragma omp for schedule(static)
        for (long part = 0; part < PARTS; part++) gradients(job, &batch, part);
#pragma omp single
        {
            add_sums(job->sums, NUM_SUMS);
            for (long i = 0; i < NUM_SUMS; i++) job->metrics[i] += job->sums[i];
            if (job->adapts) *job->rate = adapted(job, *job->rate, job->sums[KL]);
            actor.rate = critic.rate = *job->rate;
            actor.scale = shortened(&actor, job->max_norm);
            critic.scale = shortened(&critic, job->max_norm);
        }
        learn(&actor, 0);
        learn(&critic, 0);
#pragma omp single
        {
            actor.step++;
            critic.step++;
            for (long a = 0; a < width; a++) {
                if (job->spread[a] < job->low_spread) job->spread[a] = job->low_spread;
                if (job->spread[a] > job->high_spread) job->spread[a] = job->high_spread;
            }
        }
    }
}
