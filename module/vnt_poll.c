// SPDX-License-Identifier: GPL-2.0-only
/*
 * The busy poll: a ring that has run dry spins for a while before its worker
 * sleeps, and while it spins watches the other direction too, for that is
 * served by the same worker and would otherwise need a wake-up of its own.
 */
#include <linux/ktime.h>
#include <linux/preempt.h>
#include <linux/sched/clock.h>
#include <linux/sched/signal.h>
#include <net/sock.h>

#include "vhost.h"
#include "vnt_count.h"
#include "vnt_poll.h"
#include "vnt_state.h"
/* Written by `prepare`: what the kernel's vhost.h has. */
#include "vnt_target.h"

/**
 * struct vnt_spin - one poll
 * @dev: the device
 * @rvq: its receive ring
 * @tvq: its transmit ring
 * @own: the ring that has run dry, one of these two; its mutex is held
 * @peer: the other one
 * @rx: the receive ring has run dry
 * @end: why the loop ended
 * @peer_queued: work was queued for @peer
 */
struct vnt_spin {
	struct vhost_dev *dev;
	struct vhost_virtqueue *rvq;
	struct vhost_virtqueue *tvq;
	struct vhost_virtqueue *own;
	struct vhost_virtqueue *peer;
	bool rx;
	enum vnt_poll end;
	bool peer_queued;
};

/* The unit of vhost_virtqueue.busyloop_timeout: 1.024 us. */
static unsigned long vnt_clock(void)
{
	return (unsigned long)(local_clock() >> 10);
}

static bool vnt_work_waits(struct vnt_spin *spin)
{
#ifdef VNT_WORK_BY_RING
	return vhost_vq_has_work(spin->peer);
#else
	return vhost_has_work(spin->dev);
#endif
}

static bool vnt_sock_has_data(struct socket *sock)
{
	if (unlikely(!sock))
		return false;
	if (sock->ops->peek_len)
		return sock->ops->peek_len(sock) > 0;
	return !skb_queue_empty_lockless(&sock->sk->sk_receive_queue);
}

/* A packet from the host, and a buffer of the guest's to put it in. */
static bool vnt_can_receive(struct vnt_spin *spin, struct socket *sock)
{
	return vnt_sock_has_data(sock) && !vhost_vq_avail_empty(spin->dev, spin->rvq);
}

static bool vnt_can_send(struct vnt_spin *spin)
{
	return !vhost_vq_avail_empty(spin->dev, spin->tvq);
}

/*
 * Looking into a ring may fault, and a fault may sleep: so the task is kept on
 * its CPU, whose clock is being read, but may be preempted.
 */
static enum vnt_poll vnt_spin(struct vnt_spin *spin, struct socket *sock, bool receive, bool send)
{
	enum vnt_poll end;
	unsigned long until;

	migrate_disable();
	until = vnt_clock() + READ_ONCE(spin->own->busyloop_timeout);
	for (;;) {
		if (need_resched()) {
			end = VNT_POLL_RESCHED;
			break;
		}
		if (time_after(vnt_clock(), until)) {
			end = VNT_POLL_MISS;
			break;
		}
		if (signal_pending(current)) {
			end = VNT_POLL_RESCHED;
			break;
		}
		if (vnt_work_waits(spin)) {
			end = VNT_POLL_INTERRUPTED;
			break;
		}
		if ((receive && vnt_can_receive(spin, sock)) || (send && vnt_can_send(spin))) {
			end = VNT_POLL_OWN_HIT;
			break;
		}
		cpu_relax();
	}
	migrate_enable();
	return end;
}

/*
 * Gives the other ring back: with work queued for it, or with the guest's
 * notifications on and nothing left that came before they were.
 */
static bool vnt_hand_peer_back(struct vnt_spin *spin, bool concerned)
{
	struct vhost_virtqueue *peer = spin->peer;

	if (concerned && !vhost_vq_avail_empty(spin->dev, peer)) {
		vhost_poll_queue(&peer->poll);
		return true;
	}
	if (!vhost_enable_notify(spin->dev, peer) || !concerned)
		return false;
	vhost_disable_notify(spin->dev, peer);
	vhost_poll_queue(&peer->poll);
	return true;
}

static void vnt_poll_both_sides(struct vnt_spin *spin)
{
	struct socket *sock;

	/* The other handler takes its own mutex first: waiting could deadlock. */
	if (!mutex_trylock(&spin->peer->mutex)) {
		spin->end = VNT_POLL_SKIPPED;
		return;
	}
	/* The backend may change as long as neither mutex is held. */
	sock = vhost_vq_get_backend(spin->rvq);
	vhost_disable_notify(spin->dev, spin->peer);

	spin->end = vnt_spin(spin, sock, true, true);

	/* Buffers to receive into are of no interest without a packet. */
	spin->peer_queued = vnt_hand_peer_back(spin, spin->rx || vnt_sock_has_data(sock));
	mutex_unlock(&spin->peer->mutex);
}

/**
 * vnt_poll_own_side() - polls without a look at the other direction
 * @spin: the poll
 *
 * A function of its own so that a probe can tell that the other ring was left
 * alone on purpose, rather than because it was locked.
 */
noinline void vnt_poll_own_side(struct vnt_spin *spin)
{
	struct socket *sock = spin->rx ? vhost_vq_get_backend(spin->rvq) : NULL;

	spin->end = vnt_spin(spin, sock, spin->rx, !spin->rx);
}

/**
 * vnt_busy_poll() - spins on a dry ring for its busyloop timeout at most
 * @dev: the device
 * @rvq: its receive ring
 * @tvq: its transmit ring
 * @interrupted: set if the worker has other work; the caller then queues itself
 * @rx: the receive ring has run dry; else the transmit ring has
 *
 * Does what vhost_net_busy_poll() does (drivers/vhost/net.c), and counts it.
 * Batched packets must have been handed over.
 *
 * Context: the worker, with the mutex of the dry ring held. May sleep.
 */
void vnt_busy_poll(struct vhost_dev *dev, struct vhost_virtqueue *rvq,
		   struct vhost_virtqueue *tvq, bool *interrupted, bool rx)
{
	struct vnt_state *state = vnt_state_find(dev);
	struct vnt_spin spin = {
		.dev = dev,
		.rvq = rvq,
		.tvq = tvq,
		.own = rx ? rvq : tvq,
		.peer = rx ? tvq : rvq,
		.rx = rx,
	};
	u16 index = spin.own->last_avail_idx;
	u64 began = ktime_get_ns();
	struct vnt_ring *ring;

	if (vnt_polls_peer(state))
		vnt_poll_both_sides(&spin);
	else
		vnt_poll_own_side(&spin);
	if (spin.end == VNT_POLL_INTERRUPTED)
		*interrupted = true;

	if (unlikely(!state))
		return;
	ring = &state->ring[rx ? VNT_RX : VNT_TX];
	vnt_settle_poll(ring, index, false);
	ring->poll_open = true;
	ring->poll_index = index;
	ring->poll_end = spin.end;
	ring->peer_queued = spin.peer_queued;
	ring->poll_ns = ktime_get_ns() - began;
}
