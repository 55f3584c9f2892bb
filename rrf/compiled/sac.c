/* A gradient step of SAC in one call: critics, policy, temperature, slow copies. See sac.py,
 * which compiles this file, and `SAC.learn`, which it equals.
 *
 * The rows of the batch are split into the parts of perceptron.c, one per thread. A thread takes its
 * rows through all networks, and waits for the other one only before weights change.
 *
 * Legend: B rows of the batch, K critics, O observation width, A action width.
 */

#include "gradient_step.c"

typedef struct {
    Network actor, next_actor, target, critic, judge; /* judge: the critics on the policy's actions */
    Gradients of_actor, of_critic, of_judge;
    Learner actor_learner, critic_learner, alpha_learner; /* the last without a gradient */
    const float *noise, *next_noise; /* [B, A] */
    const float *rewards, *discounts; /* [B] */
    float *log_probs; /* [B] */
    float *sums; /* [PARTS, NUM_SUMS] */
    float *metrics; /* see the end of `update` */
    float target_entropy, limit, min_log_std, max_log_std, tau;
    long learns_alpha;
} Update;

enum { CRITIC_LOSS, VALUE, ACTOR_LOSS, LOG_PROB, NUM_SUMS };

/* The policy's action in a state, from its outputs: means, then logarithms of standard deviations.
 * Returns the logarithm of the action's probability; see off_policy_actors.py. */
static float sampled(const Update *job, const float *outputs, const float *noise, long width,
                     float *action)
{
    float sum = 0;
    for (long a = 0; a < width; a++) {
        float log_std = fminf(fmaxf(outputs[width + a], job->min_log_std), job->max_log_std);
        float u = outputs[a] + expf(log_std) * noise[a], twice = -2 * u;
        float softplus = twice > 20 ? twice : log1pf(expf(twice));
        sum += 0.5f * noise[a] * noise[a] + log_std + 2 * (0.6931472f - u - softplus);
        action[a] = job->limit * tanhf(u);
    }
    return -sum - width * (0.91893853f + logf(job->limit));
}

/* From the gradient of an action and of its log-probability to that of the policy's outputs. */
static void through_sample(const Update *job, const float *outputs, const float *noise, long width,
                           const float *of_action, float of_log_prob, float *of_outputs)
{
    for (long a = 0; a < width; a++) {
        float given = outputs[width + a];
        float std = expf(fminf(fmaxf(given, job->min_log_std), job->max_log_std));
        float squashed = tanhf(outputs[a] + std * noise[a]);
        float of_u = 2 * squashed * of_log_prob + of_action[a] * job->limit * (1 - squashed * squashed);
        int is_free = given >= job->min_log_std && given <= job->max_log_std;
        of_outputs[a] = of_u;
        of_outputs[width + a] = is_free ? of_u * std * noise[a] - of_log_prob : 0;
    }
}

/* The critics' gradients from the rows of a part. */
static void critic_part(const Update *job, long part, float alpha)
{
    const Network *critic = &job->critic;
    long first = part * rows_per_part(critic);
    long rows = minimum(rows_per_part(critic), critic->rows - first);
    long inputs = critic->widths[0], width = job->actor.widths[job->actor.layers] / 2;
    float *sums = job->sums + part * NUM_SUMS;
    all_copies(&job->next_actor, first, rows);
    const float *outputs = job->next_actor.outputs[job->next_actor.layers - 1];
    for (long r = first; r < first + rows; r++)
        job->log_probs[r] = sampled(job, outputs + 2 * width * r, job->next_noise + width * r,
                                    width, (float *)job->target.x + inputs * (r + 1) - width);
    all_copies(&job->target, first, rows);
    all_copies(critic, first, rows);
    const float *next = job->target.outputs[job->target.layers - 1];
    for (long r = first; r < first + rows; r++) {
        float value = lowest(critic, next, r) - alpha * job->log_probs[r];
        float target = job->rewards[r] + job->discounts[r] * value;
        regress(critic, &job->of_critic, r, target, sums + CRITIC_LOSS, sums + VALUE);
    }
    for (long k = 0; k < critic->copies; k++) backward_part(critic, &job->of_critic, k, part);
}

/* The policy's gradient from the rows of a part. */
static void actor_part(const Update *job, long part, float alpha)
{
    const Network *judge = &job->judge, *actor = &job->actor;
    long batch = judge->rows, first = part * rows_per_part(judge);
    long rows = minimum(rows_per_part(judge), batch - first);
    long inputs = judge->widths[0], width = actor->widths[actor->layers] / 2;
    float *sums = job->sums + part * NUM_SUMS;
    all_copies(actor, first, rows);
    const float *outputs = actor->outputs[actor->layers - 1];
    for (long r = first; r < first + rows; r++)
        job->log_probs[r] = sampled(job, outputs + 2 * width * r, job->noise + width * r, width,
                                    (float *)judge->x + inputs * (r + 1) - width);
    all_copies(judge, first, rows);
    const float *values = judge->outputs[judge->layers - 1];
    for (long r = first; r < first + rows; r++) {
        float least = lowest(judge, values, r);
        long ties = 0;
        for (long k = 0; k < judge->copies; k++) ties += values[k * batch + r] == least;
        for (long k = 0; k < judge->copies; k++)
            ((float *)job->of_judge.outputs)[k * batch + r] =
                values[k * batch + r] == least ? -1.0f / (batch * ties) : 0;
        sums[ACTOR_LOSS] += (alpha * job->log_probs[r] - least) / batch;
        sums[LOG_PROB] += job->log_probs[r] / batch;
    }
    for (long k = 0; k < judge->copies; k++) backward_part(judge, &job->of_judge, k, part);
    for (long r = first; r < first + rows; r++) {
        float of_action[width];
        memset(of_action, 0, width * 4);
        for (long k = 0; k < judge->copies; k++)
            for (long a = 0; a < width; a++)
                of_action[a] += job->of_judge.x[(k * batch + r + 1) * inputs - width + a];
        through_sample(job, outputs + 2 * width * r, job->noise + width * r, width, of_action,
                       alpha / batch, (float *)job->of_actor.outputs + 2 * width * r);
    }
    backward_part(actor, &job->of_actor, 0, part);
}

void update(const Update *job)
{
    Learned temperature = job->alpha_learner.tensors[0];
    float log_alpha = temperature.weights[0], alpha = expf(log_alpha);
    memset(job->sums, 0, PARTS * NUM_SUMS * 4);
#pragma omp parallel num_threads(job->critic.threads)
    {
#pragma omp for schedule(static)
        for (long part = 0; part < PARTS; part++) critic_part(job, part, alpha);
        learn(&job->critic_learner, job->tau);
#pragma omp for schedule(static)
        for (long part = 0; part < PARTS; part++) actor_part(job, part, alpha);
        learn(&job->actor_learner, job->tau);
    }
    add_sums(job->sums, NUM_SUMS);
    float of_log_alpha = -(job->sums[LOG_PROB] + job->target_entropy);
    temperature.first = &of_log_alpha;
    if (job->learns_alpha) adam(&job->alpha_learner, &temperature, 0, 1, 0);
    float metrics[] = {job->sums[CRITIC_LOSS], job->sums[VALUE], job->sums[ACTOR_LOSS],
                       -job->sums[LOG_PROB], log_alpha * of_log_alpha, alpha};
    memcpy(job->metrics, metrics, sizeof metrics);
}
