// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exact counts of what vhost_net does, from inside it: what figures that come
 * from probes are held against.
 *
 * Everything here runs in the worker, under the mutex of the ring in question.
 */
#include "vhost.h"
#include "vnt_count.h"
#include "vnt_state.h"

/**
 * vnt_run_begins() - a handler has taken its ring's mutex
 * @dev: the device
 * @index: VNT_RX or VNT_TX
 */
void vnt_run_begins(struct vhost_dev *dev, unsigned int index)
{
	struct vnt_state *state = vnt_state_make(dev);
	struct vnt_ring *ring;

	if (unlikely(!state))
		return;
	ring = &state->ring[index];
	ring->run_index = dev->vqs[index]->last_avail_idx;
	ring->running = true;
	ring->poll_open = false;
	ring->weight = false;
	ring->single = false;
}

/**
 * vnt_run_ends() - a handler is about to give its ring's mutex back
 * @dev: the device
 * @index: VNT_RX or VNT_TX
 * @waits: the ring waits for its socket: to have room, if it is TX
 */
void vnt_run_ends(struct vhost_dev *dev, unsigned int index, bool waits)
{
	u16 now = dev->vqs[index]->last_avail_idx;
	struct vnt_state *state = vnt_state_find(dev);
	struct vnt_ring *ring;

	if (unlikely(!state || !state->ring[index].running))
		return;
	ring = &state->ring[index];
	ring->running = false;
	/*
	 * A packet that the socket had no room for is put back into the ring,
	 * whose index then hides that the poll had found it.
	 */
	vnt_settle_poll(ring, now, index == VNT_TX && waits);
	ring->counters.runs++;
	ring->counters.packets += (u16)(now - ring->run_index);
}

/**
 * vnt_reached_weight() - the present run stops for others' sake
 * @dev: the device
 * @index: VNT_RX or VNT_TX
 */
void vnt_reached_weight(struct vhost_dev *dev, unsigned int index)
{
	struct vnt_state *state = vnt_state_find(dev);

	if (likely(state))
		state->ring[index].weight = true;
}

/**
 * vnt_cap_reached() - the batch that is being handed over has reached its cap
 *
 * Does nothing. It is a function of its own so that a probe can tell such a
 * hand-over from others, whatever the cap is at the time.
 */
noinline void vnt_cap_reached(void)
{
	barrier();
}

/**
 * vnt_handing_over() - used buffers are about to be given back to the guest
 * @dev: the device
 * @vq: the ring
 * @count: their number
 */
void vnt_handing_over(struct vhost_dev *dev, struct vhost_virtqueue *vq, u32 count)
{
	unsigned int index = vq == dev->vqs[VNT_TX] ? VNT_TX : VNT_RX;
	struct vnt_state *state = vnt_state_find(dev);
	bool full = count >= (index == VNT_TX ? vnt_cap(state) : VNT_TX_BATCHED_MAX);
	struct vnt_ring *ring;
	enum vnt_flush why;

	if (full && index == VNT_TX)
		vnt_cap_reached();
	if (unlikely(!state))
		return;

	ring = &state->ring[index];
	if (full)
		why = VNT_FLUSH_CAP;
	else if (ring->single)
		why = VNT_FLUSH_SINGLE;
	else if (ring->weight)
		why = VNT_FLUSH_WEIGHT;
	else
		why = VNT_FLUSH_DRY;
	ring->single = false;
	ring->counters.batches++;
	ring->counters.batch_packets += count;
	ring->counters.flushes[why]++;
}

/**
 * vnt_settle_poll() - decides how the last poll ended, now that it is known
 * whether the run got any further after it
 * @ring: the ring that polled
 * @index: its last_avail_idx
 * @found: the poll had found a packet, whatever the index says
 */
void vnt_settle_poll(struct vnt_ring *ring, u16 index, bool found)
{
	enum vnt_poll how = ring->poll_end;

	if (!ring->poll_open)
		return;
	ring->poll_open = false;
	if (how != VNT_POLL_SKIPPED) {
		if (found || index != ring->poll_index)
			how = VNT_POLL_OWN_HIT;
		else if (ring->peer_queued)
			how = VNT_POLL_PEER_HIT;
		else if (how == VNT_POLL_OWN_HIT)
			/* It saw something that was not there after all. */
			how = VNT_POLL_RESCHED;
	}
	ring->counters.polls[how]++;
	ring->counters.spin_ns[how] += ring->poll_ns;
}
