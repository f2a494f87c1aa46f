// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table of devices. Looked up by workers once or twice in a batch, changed
 * when a device comes or goes.
 */
#include <linux/hashtable.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "vnt_state.h"

#if BITS_PER_LONG != 64
#error "The counters are read without a lock, which takes 64-bit loads."
#endif

/* 1024 heads: chains stay short with thousands of devices. */
static DEFINE_HASHTABLE(vnt_states, 10);
/* Held to change the table. Readers are under RCU. */
static DEFINE_SPINLOCK(vnt_states_lock);
static unsigned int vnt_states_kept;

/**
 * vnt_state_find() - the state of a device
 * @dev: the device, which must stay open meanwhile: its release drops the state
 *
 * Return: the state, or NULL where there is none (yet).
 */
struct vnt_state *vnt_state_find(const struct vhost_dev *dev)
{
	struct vnt_state *state;

	rcu_read_lock();
	hash_for_each_possible_rcu(vnt_states, state, node, (unsigned long)dev) {
		if (state->dev == dev)
			break;
	}
	rcu_read_unlock();
	return state;
}

/**
 * vnt_state_make() - the state of a device, made if there is none
 * @dev: as for vnt_state_find()
 *
 * Context: may sleep.
 * Return: the state, or NULL without memory: the device then follows the
 * parameters and is not counted, which is better than not serving it.
 */
struct vnt_state *vnt_state_make(const struct vhost_dev *dev)
{
	struct vnt_state *state, *made;

	state = vnt_state_find(dev);
	if (likely(state))
		return state;

	made = kzalloc(sizeof(*made), GFP_KERNEL);
	if (!made)
		return NULL;
	made->dev = dev;
	made->tx_batched = VNT_FOLLOW_TX_BATCHED;
	made->poll_peer = VNT_FOLLOW_POLL_PEER;

	spin_lock(&vnt_states_lock);
	/* The worker and an ioctl may both be the first. */
	state = vnt_state_find(dev);
	if (!state) {
		hash_add_rcu(vnt_states, &made->node, (unsigned long)dev);
		vnt_states_kept++;
		state = made;
		made = NULL;
	}
	spin_unlock(&vnt_states_lock);

	kfree(made);
	return state;
}

static void vnt_state_unhash(struct vnt_state *state)
{
	lockdep_assert_held(&vnt_states_lock);
	hash_del_rcu(&state->node);
	vnt_states_kept--;
	kfree_rcu(state, rcu);
}

/**
 * vnt_state_drop() - forgets a device that is being released
 * @dev: the device, whose worker has stopped
 */
void vnt_state_drop(const struct vhost_dev *dev)
{
	struct vnt_state *state;

	spin_lock(&vnt_states_lock);
	state = vnt_state_find(dev);
	if (state)
		vnt_state_unhash(state);
	spin_unlock(&vnt_states_lock);
}

/**
 * vnt_state_drop_all() - forgets every device
 *
 * For when nobody runs our code any more.
 */
void vnt_state_drop_all(void)
{
	struct hlist_node *next;
	struct vnt_state *state;
	int bucket;

	spin_lock(&vnt_states_lock);
	hash_for_each_safe(vnt_states, bucket, next, state, node)
		vnt_state_unhash(state);
	spin_unlock(&vnt_states_lock);
}

/**
 * vnt_state_count() - how many devices have state
 *
 * Return: their number, which is out of date at once.
 */
unsigned int vnt_state_count(void)
{
	return READ_ONCE(vnt_states_kept);
}
