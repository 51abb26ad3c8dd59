// Where ends share the one processor of a counted guest: who polls and finds nothing gives way, as
// on hardware the other end's processor would go on meanwhile. For perftest and ours alike.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <sched.h>

// Polls in a row that find nothing before that: a turn of ours looks at two queues.
#define EMPTY_MAX 3

typedef struct ibv_cq *create_cq(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);

static int (*driver_poll)(struct ibv_cq *, int, struct ibv_wc *);
static int empty;

static int poll_or_yield(struct ibv_cq *cq, int entries, struct ibv_wc *wc) {
    int found = driver_poll(cq, entries, wc);
    if (found != 0)
        empty = 0;
    else if (++empty >= EMPTY_MAX)
        sched_yield();
    return found;
}

// Of libibverbs, with polling exchanged in the context: all devices of a program have one driver.
struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int comp_vector) {
    create_cq *create = (create_cq *)dlsym(RTLD_NEXT, "ibv_create_cq");
    struct ibv_cq *cq = create(context, cqe, cq_context, channel, comp_vector);
    if (cq && cq->context->ops.poll_cq != poll_or_yield) {
        driver_poll = cq->context->ops.poll_cq;
        cq->context->ops.poll_cq = poll_or_yield;
    }
    return cq;
}
