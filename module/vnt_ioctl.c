// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two ioctls for whoever manages the host: they ask for a capability, not for
 * ownership of the device, and take no lock that a worker holds, so a spinning
 * worker does not keep them waiting and they do not keep it.
 */
#include <linux/capability.h>
#include <linux/uaccess.h>

#include "vhost.h"
#include "vnt_ioctl.h"
#include "vnt_state.h"

static int vnt_check_head(u32 size, u32 expected, u32 version)
{
	if (size != expected)
		return -EINVAL;
	return version == VNT_VERSION ? 0 : -EOPNOTSUPP;
}

static int vnt_check_knobs(const struct vnt_knobs *asked)
{
	if (asked->set & ~VNT_SET_ALL)
		return -EINVAL;
	if (asked->set & VNT_SET_TX_BATCHED && asked->tx_batched > VNT_TX_BATCHED_MAX)
		return -EINVAL;
	if (asked->set & VNT_SET_POLL_PEER && asked->poll_peer > VNT_FOLLOW_POLL_PEER)
		return -EINVAL;
	return 0;
}

static u32 *vnt_timeout(struct vhost_dev *dev, unsigned int index)
{
	return &dev->vqs[index]->busyloop_timeout;
}

static long vnt_do_knobs(struct vhost_dev *dev, struct vnt_knobs __user *arg)
{
	struct vnt_knobs knobs;
	struct vnt_knobs after;
	struct vnt_state *state;
	unsigned int index;
	int err;

	if (copy_from_user(&knobs, arg, sizeof(knobs)))
		return -EFAULT;
	err = vnt_check_head(knobs.size, sizeof(knobs), knobs.version);
	if (!err)
		err = vnt_check_knobs(&knobs);
	if (err)
		return err;
	state = vnt_state_make(dev);
	if (!state)
		return -ENOMEM;

	after = knobs;
	for (index = 0; index < VNT_RINGS; index++) {
		if (!(knobs.set & (VNT_SET_BUSYLOOP_RX << index)))
			after.busyloop[index] = READ_ONCE(*vnt_timeout(dev, index));
	}
	if (!(knobs.set & VNT_SET_TX_BATCHED))
		after.tx_batched = READ_ONCE(state->tx_batched);
	if (!(knobs.set & VNT_SET_POLL_PEER))
		after.poll_peer = READ_ONCE(state->poll_peer);
	after.tx_batched_now = vnt_cap_with(after.tx_batched);
	after.poll_peer_now = vnt_polls_peer_with(after.poll_peer);
	after.states = vnt_state_count();

	/*
	 * The answer goes out before anything is changed: a caller whose memory
	 * cannot be written to is told so and has changed nothing.
	 */
	if (copy_to_user(arg, &after, sizeof(after)))
		return -EFAULT;

	/* The worker reads each of them once for each poll or packet. */
	for (index = 0; index < VNT_RINGS; index++) {
		if (knobs.set & (VNT_SET_BUSYLOOP_RX << index))
			WRITE_ONCE(*vnt_timeout(dev, index), after.busyloop[index]);
	}
	if (knobs.set & VNT_SET_TX_BATCHED)
		WRITE_ONCE(state->tx_batched, after.tx_batched);
	if (knobs.set & VNT_SET_POLL_PEER)
		WRITE_ONCE(state->poll_peer, after.poll_peer);
	return 0;
}

/* Where the counting begins in struct vnt_counters. */
#define VNT_COUNTED offsetof(struct vnt_counters, runs)

static long vnt_do_counters(struct vhost_dev *dev, struct vnt_counters __user *arg)
{
	struct vnt_counters answer;
	const struct vnt_counters *counters;
	struct vnt_state *state;
	size_t at;
	int err;

	if (copy_from_user(&answer, arg, VNT_COUNTED))
		return -EFAULT;
	err = vnt_check_head(answer.size, sizeof(answer), answer.version);
	if (err)
		return err;
	if (answer.index >= VNT_RINGS)
		return -ENOBUFS;
	if (answer.zero)
		return -EINVAL;
	state = vnt_state_make(dev);
	if (!state)
		return -ENOMEM;

	/* Word by word: the worker goes on counting, but no word is torn. */
	counters = &state->ring[answer.index].counters;
	for (at = VNT_COUNTED; at < sizeof(answer); at += sizeof(u64))
		*(u64 *)((u8 *)&answer + at) = READ_ONCE(*(const u64 *)((const u8 *)counters + at));
	return copy_to_user(arg, &answer, sizeof(answer)) ? -EFAULT : 0;
}

/**
 * vnt_is_ours() - whether an ioctl is for us
 * @cmd: its number
 *
 * Return: true also for one of ours with a structure of another size, which
 * must not get as far as vhost_net: that would flush the workers.
 */
bool vnt_is_ours(unsigned int cmd)
{
	return _IOC_TYPE(cmd) == _IOC_TYPE(VNT_KNOBS) &&
	       (_IOC_NR(cmd) == _IOC_NR(VNT_KNOBS) || _IOC_NR(cmd) == _IOC_NR(VNT_COUNTERS));
}

/**
 * vnt_ioctl() - serves one of our ioctls
 * @dev: the device
 * @cmd: a number that vnt_is_ours()
 * @arg: address of the caller's structure
 *
 * Return: 0, or -EPERM without CAP_NET_ADMIN, -EFAULT for memory that cannot be
 * used, -EINVAL for a size, bit or value that is not known, -EOPNOTSUPP for
 * another version, -ENOBUFS for a ring that is not there, -ENOMEM. Nothing has
 * changed unless it is 0.
 */
long vnt_ioctl(struct vhost_dev *dev, unsigned int cmd, unsigned long arg)
{
	void __user *argp = (void __user *)arg;

	if (!capable(CAP_NET_ADMIN))
		return -EPERM;
	switch (cmd) {
	case VNT_KNOBS:
		return vnt_do_knobs(dev, argp);
	case VNT_COUNTERS:
		return vnt_do_counters(dev, argp);
	default:
		return -EINVAL;
	}
}
