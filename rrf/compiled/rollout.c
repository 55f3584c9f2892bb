/* N environments of one model advance by all substeps of a control step, or are measured where they
 * are. See rollout.py, which compiles this file with MuJoCo's headers and library.
 *
 * It computes what `mujoco.rollout` does, bit for bit, in less time: a thread has one model, into
 * which it writes the few words in which an environment's model is another (a model of its own for
 * each environment would come from memory again and again), and in all substeps but the last only
 * the sensors that somebody reads are computed.
 */

#include <mujoco/mujoco.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    mjModel *model; /* of this thread, as its data */
    mjData *data;
    uint32_t **words; /* where in the model the words are in which environments differ */
} Worker;

typedef struct {
    long rows, substeps, num_words, spec;
    long states, controls, sensors; /* widths */
    const mjModel *base;
    const long *envs; /* the environment of each row */
    const uint32_t *words; /* of each environment, [N, num_words] */
    const double *state, *warmstart; /* of each environment, [N, states] and [N, nv] */
    const double *control; /* of each row, [rows, controls] */
    double *states_out, *sensors_out; /* [rows, substeps, ...] */
    int *all_stages, *few_stages; /* when sensors are computed: all of them; those read in between */
    long next; /* the first row that no thread has taken */
} Job;

enum { CHUNK = 8 }; /* rows that a thread takes at once */

/* A model as 32-bit words: its options, its statistics, and its arrays. */
static const long OF_OPTIONS = sizeof(mjOption) / 4, OF_STATISTICS = sizeof(mjStatistic) / 4;

long num_words(const mjModel *model) { return OF_OPTIONS + OF_STATISTICS + model->nbuffer / 4; }

uint32_t *word(mjModel *model, long index)
{
    if (index < OF_OPTIONS) return (uint32_t *)&model->opt + index;
    index -= OF_OPTIONS;
    if (index < OF_STATISTICS) return (uint32_t *)&model->stat + index;
    return (uint32_t *)model->buffer + index - OF_STATISTICS;
}

/* Note the words in which two models of the same sizes differ. */
void compare(mjModel *base, mjModel *other, uint8_t *differs)
{
    for (long i = 0; i < num_words(base); i++)
        if (*word(base, i) != *word(other, i)) differs[i] = 1;
}

void read_words(mjModel *model, const long *indices, long count, uint32_t *to)
{
    for (long k = 0; k < count; k++) to[k] = *word(model, indices[k]);
}

/* Make the thread's model and data those of an environment. */
static void enter(const Job *job, const Worker *worker, long row)
{
    mjModel *m = worker->model;
    mjData *d = worker->data;
    long env = job->envs[row];
    const uint32_t *words = job->words + env * job->num_words;
    for (long k = 0; k < job->num_words; k++) *worker->words[k] = words[k];
    if (!(job->spec & mjSTATE_QFRC_APPLIED)) mju_zero(d->qfrc_applied, m->nv);
    if (!(job->spec & mjSTATE_XFRC_APPLIED)) mju_zero(d->xfrc_applied, 6 * m->nbody);
    for (long i = 0; i < m->neq; i++) d->eq_active[i] = m->eq_active0[i];
    mj_setState(m, d, job->state + env * job->states, mjSTATE_FULLPHYSICS);
    mju_copy(d->qacc_warmstart, job->warmstart + env * m->nv, m->nv);
    for (long i = 0; i < mjNWARNING; i++) d->warning[i].number = 0;
    mj_setState(m, d, job->control + row * job->controls, job->spec);
}

static int warned(const mjData *data)
{
    for (long i = 0; i < mjNWARNING; i++)
        if (data->warning[i].number) return 1;
    return 0;
}

/* All substeps of a row; 0 if MuJoCo warned while only a few sensors were computed. After a warning
 * the environment stays where it is. */
static int advance(const Job *job, const Worker *worker, long row, int *between)
{
    mjModel *m = worker->model;
    mjData *d = worker->data;
    enter(job, worker, row);
    for (long step = 0; step < job->substeps; step++) {
        int stays = warned(d), is_last = step == job->substeps - 1;
        if (stays && between != job->all_stages) return 0;
        m->sensor_needstage = is_last ? job->all_stages : between;
        if (!stays) mj_step(m, d);
        long at = row * job->substeps + step;
        mj_getState(m, d, job->states_out + at * job->states, mjSTATE_FULLPHYSICS);
        mju_copy(job->sensors_out + at * job->sensors, d->sensordata, job->sensors);
    }
    return 1;
}

static void measure(const Job *job, const Worker *worker, long row, int is_cheap)
{
    mjModel *m = worker->model;
    mjData *d = worker->data;
    enter(job, worker, row);
    if (is_cheap) { /* mj_forward without contacts, constraints and accelerations */
        mj_fwdPosition(m, d);
        mj_sensorPos(m, d);
        mj_fwdVelocity(m, d);
        mj_sensorVel(m, d);
        mj_fwdActuation(m, d);
        mj_sensorAcc(m, d);
    } else
        mj_forward(m, d);
    mju_copy(job->sensors_out + row * job->sensors, d->sensordata, job->sensors);
}

enum { STEP, MEASURE, MEASURE_CHEAPLY };

/* Called by every thread with a worker of its own, until no row is left. */
void work(Job *job, const Worker *worker, long kind)
{
    mjModel *m = worker->model;
    int *stages = m->sensor_needstage;
    m->opt = job->base->opt;
    if (kind == MEASURE_CHEAPLY) {
        m->opt.disableflags |= mjDSBL_CONTACT | mjDSBL_CONSTRAINT;
        m->sensor_needstage = job->few_stages;
    }
    for (;;) {
        long begin = __atomic_fetch_add(&job->next, CHUNK, __ATOMIC_RELAXED), end = begin + CHUNK;
        if (begin >= job->rows) break;
        if (end > job->rows) end = job->rows;
        for (long row = begin; row < end; row++) {
            if (kind != STEP) measure(job, worker, row, kind == MEASURE_CHEAPLY);
            else if (!advance(job, worker, row, job->few_stages))
                advance(job, worker, row, job->all_stages);
        }
    }
    m->sensor_needstage = stages;
}
