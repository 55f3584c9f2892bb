/* A gradient step of IQL in one call. See iql.py, which compiles this file, and `IQL.learn`, which it
 * equals. All losses are of the networks before the step, so each thread takes its rows through all
 * of them, and the threads wait for each other only once.
 *
 * Legend: B rows of the batch, K critics, A action width.
 */

#include "gradient_step.c"

typedef struct {
    Network value, next_value, target, critic, actor;
    Gradients of_value, of_critic, of_actor;
    Learner value_learner, critic_learner, actor_learner;
    const float *actions; /* [B, A] */
    const float *rewards, *discounts; /* [B] */
    const float *log_std; /* [A], not yet bounded; NULL for a deterministic actor */
    float *of_log_std; /* sums of its gradient, [PARTS, A] */
    float *sums; /* [PARTS, NUM_SUMS] */
    float *metrics; /* [NUM_SUMS] */
    float expectile, beta, max_weight, limit, min_log_std, max_log_std, tau;
} Update;

enum { VALUE_LOSS, CRITIC_LOSS, ACTOR_LOSS, VALUE, ADVANTAGE, CRITIC_MEAN, NUM_SUMS };

/* The actor's gradients from a row whose action is imitated with `weight`, and its loss; see
 * offline_policies.py. */
static float imitated(const Update *job, long row, float weight, float *of_log_std)
{
    long width = job->actor.widths[job->actor.layers];
    const float *outputs = job->actor.outputs[job->actor.layers - 1] + row * width;
    float *of_outputs = (float *)job->of_actor.outputs + row * width, loss = 0;
    for (long a = 0; a < width; a++) {
        float squashed = tanhf(outputs[a]);
        float error = job->actions[row * width + a] - job->limit * squashed, of_error;
        if (job->log_std) {
            float given = job->log_std[a];
            float log_std = fminf(fmaxf(given, job->min_log_std), job->max_log_std);
            float scaled = error * expf(-log_std);
            loss += 0.5f * scaled * scaled + log_std + 0.91893853f;
            of_error = scaled * expf(-log_std);
            if (given >= job->min_log_std && given <= job->max_log_std)
                of_log_std[a] += weight * (1 - scaled * scaled);
        } else {
            loss += error * error;
            of_error = 2 * error;
        }
        of_outputs[a] = -weight * of_error * job->limit * (1 - squashed * squashed);
    }
    return weight * loss;
}

/* All gradients from the rows of a part. */
static void gradients(const Update *job, long part)
{
    const Network *critic = &job->critic;
    long batch = critic->rows, first = part * rows_per_part(critic);
    long rows = minimum(rows_per_part(critic), batch - first);
    long width = job->actor.widths[job->actor.layers];
    float *sums = job->sums + part * NUM_SUMS;
    const Network *networks[] = {&job->value, &job->next_value, &job->target, critic, &job->actor};
    for (int i = 0; i < 5; i++) all_copies(networks[i], first, rows);
    const float *values = job->value.outputs[job->value.layers - 1];
    const float *next_values = job->next_value.outputs[job->next_value.layers - 1];
    const float *recorded = job->target.outputs[job->target.layers - 1];
    for (long r = first; r < first + rows; r++) {
        float error = lowest(critic, recorded, r) - values[r];
        float slope = error < 0 ? 1 - job->expectile : job->expectile;
        ((float *)job->of_value.outputs)[r] = -2 * slope * error / batch;
        sums[VALUE_LOSS] += slope * error * error / batch;
        sums[VALUE] += values[r] / batch;
        sums[ADVANTAGE] += error / batch;
        float target = job->rewards[r] + job->discounts[r] * next_values[r];
        regress(critic, &job->of_critic, r, target, sums + CRITIC_LOSS, sums + CRITIC_MEAN);
        float weight = expf(job->beta * error);
        if (weight > job->max_weight) weight = job->max_weight; /* keeps NaN */
        sums[ACTOR_LOSS] += imitated(job, r, weight / batch, job->of_log_std + part * width);
    }
    backward_part(&job->value, &job->of_value, 0, part);
    for (long k = 0; k < critic->copies; k++) backward_part(critic, &job->of_critic, k, part);
    backward_part(&job->actor, &job->of_actor, 0, part);
}

void update(const Update *job)
{
    memset(job->sums, 0, PARTS * NUM_SUMS * 4);
    memset(job->of_log_std, 0, PARTS * job->actor.widths[job->actor.layers] * 4);
#pragma omp parallel num_threads(job->critic.threads)
    {
#pragma omp for schedule(static)
        for (long part = 0; part < PARTS; part++) gradients(job, part);
        learn(&job->value_learner, 0);
        learn(&job->critic_learner, job->tau);
        learn(&job->actor_learner, 0);
    }
    add_sums(job->sums, NUM_SUMS);
    memcpy(job->metrics, job->sums, NUM_SUMS * 4);
}
