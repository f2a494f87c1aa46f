/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is kept for a device, beside its struct vhost_net rather than in it:
 * so the same code serves a module that replaces vhost_net and a livepatch
 * whose devices were opened long before.
 */
#ifndef VNT_STATE_H
#define VNT_STATE_H

#include <linux/compiler.h>
#include <linux/types.h>

#include "vnt_uapi.h"

struct vhost_dev;

/**
 * struct vnt_ring - one ring's counters, and what lies between two events
 * @counters: what VNT_COUNTERS hands out
 * @run_index: last_avail_idx when the present run began
 * @poll_index: last_avail_idx when the last poll began
 * @running: a run is going on that was seen to begin
 * @poll_open: a poll has ended whose outcome is not settled
 * @peer_queued: that poll queued work for the other ring
 * @poll_end: why that poll's loop ended
 * @poll_ns: how long it took
 * @weight: the present run has reached its weight
 * @single: the next hand-over makes room for a packet that goes alone
 *
 * Only the worker that runs the ring writes it, under the ring's mutex.
 * Counters are read by anyone, a word at a time.
 */
struct vnt_ring {
	struct vnt_counters counters;
	u16 run_index;
	u16 poll_index;
	bool running;
	bool poll_open;
	bool peer_queued;
	enum vnt_poll poll_end;
	u64 poll_ns;
	bool weight;
	bool single;
};

/**
 * struct vnt_state - what is kept for one device
 * @node: place in the table
 * @rcu: for freeing it after the table's readers
 * @dev: the device
 * @tx_batched: its own cap, or VNT_FOLLOW_TX_BATCHED
 * @poll_peer: its own choice, or VNT_FOLLOW_POLL_PEER
 * @waiting: packets sent with MSG_MORE that the socket may be holding back;
 *	of the TX worker
 * @ring: by VNT_RX and VNT_TX
 */
struct vnt_state {
	struct hlist_node node;
	struct rcu_head rcu;
	const struct vhost_dev *dev;
	u32 tx_batched;
	u32 poll_peer;
	u32 waiting;
	struct vnt_ring ring[VNT_RINGS];
};

extern unsigned int vnt_tx_batched;
extern bool vnt_poll_peer;

struct vnt_state *vnt_state_find(const struct vhost_dev *dev);
struct vnt_state *vnt_state_make(const struct vhost_dev *dev);
void vnt_state_drop(const struct vhost_dev *dev);
void vnt_state_drop_all(void);
unsigned int vnt_state_count(void);

/* The cap in effect where a device has this of its own. */
static inline u32 vnt_cap_with(u32 own)
{
	return own != VNT_FOLLOW_TX_BATCHED ? own : READ_ONCE(vnt_tx_batched);
}

/* The choice in effect where a device has this of its own. */
static inline bool vnt_polls_peer_with(u32 own)
{
	return own != VNT_FOLLOW_POLL_PEER ? own : READ_ONCE(vnt_poll_peer);
}

/* Cap in effect; a device without state follows the parameter. */
static inline u32 vnt_cap(const struct vnt_state *state)
{
	return vnt_cap_with(state ? READ_ONCE(state->tx_batched) : VNT_FOLLOW_TX_BATCHED);
}

/* True if a spinning ring watches its peer as well. */
static inline bool vnt_polls_peer(const struct vnt_state *state)
{
	return vnt_polls_peer_with(state ? READ_ONCE(state->poll_peer) : VNT_FOLLOW_POLL_PEER);
}

#endif
