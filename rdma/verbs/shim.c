//go:build verbs && cgo

#include "shim.h"

#include <errno.h>
#include <stdlib.h>

/*
 * IB_UVERBS_DEVICE_FLUSH_PERSISTENT of the kernel's uverbs ABI (ib_user_verbs.h).
 * libibverbs 44 passes the bit on and has no name for it.
 */
#define DEVICE_FLUSH_PERSISTENT (1ULL << 39)

/*
 * How often the adapter repeats what the peer does not acknowledge. 7 would mean
 * for ever with some devices (rxe), and a dead peer would never be an error.
 */
#define RETRY_COUNT 6

/*
 * When an adapter is unplugged or reset, the kernel destroys what a process has on it,
 * and a later destroy fails with EIO. libibverbs treats that as success only if this
 * variable is set before its first use.
 */
__attribute__((constructor)) static void gone_is_destroyed(void)
{
	setenv("RDMAV_ALLOW_DISASSOC_DESTROY", "1", 0);
}

static int fail(void) { return errno ? errno : EIO; }

int shim_query(struct ibv_context *ctx, struct shim_caps *caps)
{
	struct ibv_device_attr_ex attr = {0};
	const uint32_t odp = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
	int err = ibv_query_device_ex(ctx, NULL, &attr);

	if (err)
		return err;
	caps->iwarp = ctx->device->transport_type == IBV_TRANSPORT_IWARP;
	caps->max_qp_wr = attr.orig_attr.max_qp_wr;
	caps->max_reads_in = attr.orig_attr.max_qp_rd_atom;
	caps->max_reads_out = attr.orig_attr.max_qp_init_rd_atom;
	caps->odp = (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) &&
		    (attr.odp_caps.per_transport_caps.rc_odp_caps & odp) == odp;
	caps->flush_persistent = (attr.device_cap_flags_ex & DEVICE_FLUSH_PERSISTENT) != 0;
	return 0;
}

int shim_register(struct ibv_pd *pd, void *mem, size_t len, unsigned int access, struct ibv_mr **mr)
{
	errno = 0;
	*mr = ibv_reg_mr(pd, mem, len, access);
	return *mr ? 0 : fail();
}

static struct rdma_conn_param conn_param(const void *private_data, uint8_t len, uint8_t reads_in, uint8_t reads_out)
{
	return (struct rdma_conn_param){
		.private_data = len ? private_data : NULL,
		.private_data_len = len,
		.responder_resources = reads_in,
		.initiator_depth = reads_out,
		.flow_control = 1,
		.retry_count = RETRY_COUNT,
		.rnr_retry_count = 0, /* a Send that meets no receive is an error */
	};
}

int shim_connect(struct rdma_cm_id *id, const void *private_data, uint8_t len, uint8_t reads_in, uint8_t reads_out)
{
	struct rdma_conn_param p = conn_param(private_data, len, reads_in, reads_out);

	return rdma_connect(id, &p) ? fail() : 0;
}

int shim_accept(struct rdma_cm_id *id, uint8_t reads_in, uint8_t reads_out)
{
	struct rdma_conn_param p = conn_param(NULL, 0, reads_in, reads_out);

	return rdma_accept(id, &p) ? fail() : 0;
}

static int create_qp(struct shim_queue *q, struct ibv_pd *pd, struct ibv_qp_cap cap)
{
#ifdef SHIM_NATIVE_FLUSH
	struct shim_caps caps;

	if (shim_query(pd->context, &caps) == 0 && caps.flush_persistent) {
		struct ibv_qp_init_attr_ex ex = {
			.send_cq = q->cq, .recv_cq = q->cq, .cap = cap, .qp_type = IBV_QPT_RC,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
			.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
					  IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_FLUSH,
		};

		q->can_flush = rdma_create_qp_ex(q->id, &ex) == 0;
		if (q->can_flush)
			return 0; /* otherwise the device's library cannot post FLUSH */
	}
#endif
	struct ibv_qp_init_attr attr = {.send_cq = q->cq, .recv_cq = q->cq, .cap = cap, .qp_type = IBV_QPT_RC};

	return rdma_create_qp(q->id, pd, &attr) ? fail() : 0;
}

int shim_queue_new(struct rdma_cm_id *id, struct ibv_pd *pd, int sends, int recvs, struct shim_queue **out)
{
	struct ibv_qp_cap cap = {
		.max_send_wr = sends, .max_recv_wr = recvs,
		.max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = SHIM_INLINE,
	};
	struct shim_queue *q = calloc(1, sizeof(*q));
	int err;

	if (!q)
		return ENOMEM;
	q->id = id;
	errno = 0;
	if (!(q->channel = ibv_create_comp_channel(id->verbs)) ||
	    !(q->cq = ibv_create_cq(id->verbs, sends + recvs, NULL, q->channel, 0)))
		err = fail();
	else
		err = create_qp(q, pd, cap);
	if (err) {
		shim_queue_free(q);
		return err;
	}
	*out = q;
	return 0;
}

/*
 * A queue pair that cannot be destroyed may still use memory, so everything under it
 * stays and the caller hears of it. Once the queue pair is gone nothing uses memory,
 * and what else cannot be destroyed is leaked in silence.
 */
int shim_queue_free(struct shim_queue *q)
{
	int err = q->id->qp ? ibv_destroy_qp(q->id->qp) : 0;

	if (err)
		return err;
	q->id->qp = NULL;
	if (q->cq) {
		ibv_ack_cq_events(q->cq, q->events);
		q->events = 0;
		if (ibv_destroy_cq(q->cq))
			return 0;
	}
	if (!q->channel || !ibv_destroy_comp_channel(q->channel))
		free(q);
	return 0;
}

/* Translates descriptor i into a request of the library's. */
static void describe(struct shim_queue *q, int i)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[SHIM_WRITE] = IBV_WR_RDMA_WRITE, [SHIM_READ] = IBV_WR_RDMA_READ, [SHIM_SEND] = IBV_WR_SEND,
	};
	struct shim_wr *wr = &q->wr[i];

	q->sge[i] = (struct ibv_sge){
		.addr = wr->inlined ? (uintptr_t)wr->inl : wr->addr, .length = wr->len, .lkey = wr->lkey,
	};
	q->send[i] = (struct ibv_send_wr){
		.wr_id = wr->id, .sg_list = &q->sge[i], .num_sge = wr->len != 0, .opcode = opcodes[wr->op],
		.send_flags = (wr->signaled ? IBV_SEND_SIGNALED : 0) | (wr->inlined ? IBV_SEND_INLINE : 0),
		.wr.rdma = {.remote_addr = wr->remote_addr, .rkey = wr->rkey},
	};
}

static int post_flush(struct shim_queue *q, const struct shim_wr *wr)
{
#ifdef SHIM_NATIVE_FLUSH
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(q->id->qp);

	ibv_wr_start(qp);
	qp->wr_id = wr->id;
	qp->wr_flags = wr->signaled ? IBV_SEND_SIGNALED : 0;
	ibv_wr_flush(qp, wr->rkey, wr->remote_addr, wr->len, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
	return ibv_wr_complete(qp);
#else
	(void)q;
	(void)wr;
	return EOPNOTSUPP;
#endif
}

int shim_post(struct shim_queue *q, int n)
{
	int i = 0;

	q->posted = 0;
	while (i < n) {
		struct ibv_send_wr *bad;
		int from = i, err;

		if (q->wr[i].op == SHIM_FLUSH) {
			if ((err = post_flush(q, &q->wr[i])))
				return err;
			q->posted = ++i;
			continue;
		}
		for (; i < n && q->wr[i].op != SHIM_FLUSH; i++) {
			describe(q, i);
			if (i > from)
				q->send[i - 1].next = &q->send[i];
		}
		if ((err = ibv_post_send(q->id->qp, &q->send[from], &bad))) {
			q->posted = bad - q->send; /* the requests before bad went out */
			return err;
		}
		q->posted = i;
	}
	return 0;
}

int shim_post_recv(struct shim_queue *q, int n)
{
	struct ibv_recv_wr *bad;
	int i;

	for (i = 0; i < n; i++) {
		struct shim_wr *wr = &q->wr[i];

		q->sge[i] = (struct ibv_sge){.addr = wr->addr, .length = wr->len, .lkey = wr->lkey};
		q->recv[i] = (struct ibv_recv_wr){
			.wr_id = wr->id, .sg_list = &q->sge[i],
			.num_sge = 1, /* siw's library refuses 0 */
			.next = i + 1 < n ? &q->recv[i + 1] : NULL,
		};
	}
	return ibv_post_recv(q->id->qp, q->recv, &bad);
}

int shim_poll(struct shim_queue *q)
{
	int n = ibv_poll_cq(q->cq, SHIM_BATCH, q->raw);
	int i;

	for (i = 0; i < n; i++) {
		struct ibv_wc *wc = &q->raw[i];

		q->wc[i] = (struct shim_wc){
			.id = wc->wr_id, .len = wc->byte_len, .status = wc->status, .vendor_err = wc->vendor_err,
		};
	}
	return n;
}

int shim_arm(struct shim_queue *q) { return ibv_req_notify_cq(q->cq, 0); }

int shim_event(struct shim_queue *q)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(q->channel, &cq, &context))
		return fail();
	q->events++; /* acknowledged all together at the end, because that takes a lock */
	return 0;
}
