/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the hooks put into the kernel's net.c, which includes this behind its
 * own headers.
 */
#ifndef VNT_HOOKS_H
#define VNT_HOOKS_H

#ifdef VNT_LIVEPATCH
/*
 * The livepatch is made of all of net.c. None of its names may be one of the
 * running module's: every probe on a bare name would become ambiguous.
 */
#include "vnt_names.h"

/* What makes net.c a module of its own is left out. */
#undef module_init
#undef module_exit
#undef module_param
#undef MODULE_PARM_DESC
#undef MODULE_VERSION
#undef MODULE_LICENSE
#undef MODULE_AUTHOR
#undef MODULE_DESCRIPTION
#undef MODULE_ALIAS
#undef MODULE_ALIAS_MISCDEV
#define module_init(...)
#define module_exit(...)
#define module_param(...)
#define MODULE_PARM_DESC(...)
#define MODULE_VERSION(...)
#define MODULE_LICENSE(...)
#define MODULE_AUTHOR(...)
#define MODULE_DESCRIPTION(...)
#define MODULE_ALIAS(...)
#define MODULE_ALIAS_MISCDEV(...)
#endif

#include "vnt_count.h"
#include "vnt_ioctl.h"
#include "vnt_poll.h"
#include "vnt_state.h"

struct vhost_net;

/*
 * Stands for the kernel's function of this name, which steps aside. It is kept
 * whole, as that is, for probes on it.
 */
static noinline __noclone void vhost_net_busy_poll(struct vhost_net *net,
						   struct vhost_virtqueue *rvq,
						   struct vhost_virtqueue *tvq,
						   bool *busyloop_intr, bool poll_rx)
{
	vnt_busy_poll(rvq->dev, rvq, tvq, busyloop_intr, poll_rx);
}

/* True once so many packets wait that they have to be handed over. */
static inline bool vnt_tx_full(const struct vnt_state *state, int waiting)
{
	return waiting >= (int)vnt_cap(state);
}

/*
 * Whether a packet may tell the socket that more will follow (MSG_MORE), which
 * may hold it back until then. With the kernel's own cap the answer is the
 * kernel's own.
 */
static inline bool vnt_tx_may_wait(struct vnt_state *state, bool more)
{
	u32 cap = vnt_cap(state);

	if (!more || cap >= VNT_TX_BATCHED_MAX || unlikely(!state)) {
		if (likely(state))
			state->waiting = 0;
		return more && cap >= VNT_TX_BATCHED_MAX;
	}
	if (state->waiting + 1 >= cap) {
		state->waiting = 0;
		return false;
	}
	state->waiting++;
	return true;
}

/* What waits, if anything does, makes way for a packet that has to go alone. */
static inline void vnt_tx_alone(struct vnt_state *state, int waiting)
{
	if (likely(state))
		state->ring[VNT_TX].single = waiting > 0;
}

/* Passes on whether a run has reached its weight, having noted it. */
static inline bool vnt_weighed(struct vhost_dev *dev, unsigned int index, bool reached)
{
	if (unlikely(reached))
		vnt_reached_weight(dev, index);
	return reached;
}

#endif
