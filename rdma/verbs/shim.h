/*
 * The C side of the provider: what Go cannot do well because of macros, unions or
 * the cost of a call. Only shim_queue_new allocates. No Go pointer stays here after
 * a call.
 */
#ifndef PMNBD_VERBS_SHIM_H
#define PMNBD_VERBS_SHIM_H

#include <rdma/rdma_cma.h>
#include <stdint.h>

enum {
	SHIM_BATCH = 64,  /* requests per post, completions per poll */
	SHIM_INLINE = 64, /* bytes of payload that a descriptor carries */
};

/* What the provider needs to know about a device. */
struct shim_caps {
	int iwarp;
	int max_qp_wr;
	int max_reads_in, max_reads_out;
	int odp;              /* on-demand paging for RC Writes and Reads */
	int flush_persistent; /* it takes persistent memory for FLUSH */
};

enum shim_op { SHIM_WRITE, SHIM_READ, SHIM_SEND, SHIM_FLUSH };

/* A work request, written by Go. */
struct shim_wr {
	uint64_t id;
	uint64_t addr, remote_addr;
	uint32_t len, lkey, rkey;
	uint8_t op;
	uint8_t signaled;
	uint8_t inlined; /* the payload is in inl, not at addr */
	uint8_t inl[SHIM_INLINE];
};

/* A completion, read by Go. */
struct shim_wc {
	uint64_t id;
	uint32_t len, status, vendor_err;
};

/* A queue pair with its completion queue and the memory that calls need. */
struct shim_queue {
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	unsigned int events; /* taken and not yet acknowledged */
	int can_flush;       /* OpFlush can be posted */
	int posted;          /* how many the last shim_post took */
	struct shim_wr wr[SHIM_BATCH];
	struct shim_wc wc[SHIM_BATCH];

	/* Scratch of the functions below. */
	struct ibv_send_wr send[SHIM_BATCH];
	struct ibv_recv_wr recv[SHIM_BATCH];
	struct ibv_sge sge[SHIM_BATCH];
	struct ibv_wc raw[SHIM_BATCH];
};

/* All of these return 0 or an errno. */
int shim_query(struct ibv_context *ctx, struct shim_caps *caps);
int shim_register(struct ibv_pd *pd, void *mem, size_t len, unsigned int access, struct ibv_mr **mr);
int shim_connect(struct rdma_cm_id *id, const void *private_data, uint8_t len, uint8_t reads_in, uint8_t reads_out);
int shim_accept(struct rdma_cm_id *id, uint8_t reads_in, uint8_t reads_out);
int shim_queue_new(struct rdma_cm_id *id, struct ibv_pd *pd, int sends, int recvs, struct shim_queue **out);
int shim_queue_free(struct shim_queue *q);

/* Posts the first n descriptors. After shim_post, posted says how many it took. */
int shim_post(struct shim_queue *q, int n);
int shim_post_recv(struct shim_queue *q, int n);

/* Fills wc, and returns how many completions it took, or -1. */
int shim_poll(struct shim_queue *q);
/* Asks for an event when the next completion comes. */
int shim_arm(struct shim_queue *q);
/* Takes an event. EAGAIN means that there is none. */
int shim_event(struct shim_queue *q);

static inline const struct rdma_conn_param *shim_conn_param(const struct rdma_cm_event *e)
{
	return &e->param.conn;
}

static inline struct ibv_qp *shim_event_qp(const struct ibv_async_event *e)
{
	return e->element.qp;
}

static inline struct ibv_cq *shim_event_cq(const struct ibv_async_event *e)
{
	return e->element.cq;
}

#endif
