/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * What user space and the module agree on: two ioctls on a descriptor of
 * /dev/vhost-net, for callers with CAP_NET_ADMIN, whoever owns the device.
 */
#ifndef VNT_UAPI_H
#define VNT_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Of both structures; another one is refused. */
#define VNT_VERSION 1

/* Rings, numbered as vhost_net numbers them. */
#define VNT_RX 0
#define VNT_TX 1
#define VNT_RINGS 2

/* Most packets that are handed over together: the kernel's own constant. */
#define VNT_TX_BATCHED_MAX 64

/* vnt_knobs.set: which fields are taken over. All of them or none. */
#define VNT_SET_BUSYLOOP_RX 0x1U
#define VNT_SET_BUSYLOOP_TX 0x2U
#define VNT_SET_TX_BATCHED 0x4U
#define VNT_SET_POLL_PEER 0x8U
#define VNT_SET_ALL 0xFU

/* vnt_knobs.tx_batched and .poll_peer: what the module's parameter says. */
#define VNT_FOLLOW_TX_BATCHED 0
#define VNT_FOLLOW_POLL_PEER 2

/**
 * struct vnt_knobs - what can be turned on one device
 * @size: bytes in this structure, for the caller to set
 * @version: VNT_VERSION, for the caller to set
 * @set: VNT_SET_* bits of the fields to take over; 0 only reads
 * @busyloop: timeout of each ring, in 1.024 us, as in
 *	VHOST_SET_VRING_BUSYLOOP_TIMEOUT
 * @tx_batched: the device's own cap, 1 to VNT_TX_BATCHED_MAX, or
 *	VNT_FOLLOW_TX_BATCHED
 * @poll_peer: the device's own choice, 0 or 1, or VNT_FOLLOW_POLL_PEER
 * @tx_batched_now: the cap in effect; written by the kernel
 * @poll_peer_now: the choice in effect; written by the kernel
 * @states: how many devices the module keeps state for; written by the kernel
 *
 * On return every field holds what is set now.
 */
struct vnt_knobs {
	__u32 size;
	__u32 version;
	__u32 set;
	__u32 busyloop[VNT_RINGS];
	__u32 tx_batched;
	__u32 poll_peer;
	__u32 tx_batched_now;
	__u32 poll_peer_now;
	__u32 states;
};

/* How a busy poll ended; exactly one for each. */
enum vnt_poll {
	/* The run went on with packets of its own ring. */
	VNT_POLL_OWN_HIT,
	/* Work for the other ring was found and queued. */
	VNT_POLL_PEER_HIT,
	/* The timeout passed. */
	VNT_POLL_MISS,
	/* Other work was waiting for the worker. */
	VNT_POLL_INTERRUPTED,
	/* The other ring was locked, so nothing was polled. */
	VNT_POLL_SKIPPED,
	/* The CPU was wanted by another task, or a signal was pending. */
	VNT_POLL_RESCHED,
	VNT_POLL_COUNT
};

/* Why a batch of used buffers was handed over. */
enum vnt_flush {
	/* It had reached the cap. */
	VNT_FLUSH_CAP,
	/* The queue had run dry. */
	VNT_FLUSH_DRY,
	/* The run had reached its weight. */
	VNT_FLUSH_WEIGHT,
	/* A packet came that has to go alone. */
	VNT_FLUSH_SINGLE,
	VNT_FLUSH_COUNT
};

/**
 * struct vnt_counters - what was counted for one ring since it has state
 * @size: bytes in this structure, for the caller to set
 * @version: VNT_VERSION, for the caller to set
 * @index: VNT_RX or VNT_TX, for the caller to set
 * @zero: must be 0
 * @runs: runs of the handler that have ended
 * @packets: ring entries that these runs took
 * @batches: hand-overs of used buffers
 * @batch_packets: ring entries in these
 * @flushes: hand-overs by cause
 * @polls: busy polls by how they ended
 * @spin_ns: time in these, in nanoseconds of CLOCK_MONOTONIC
 *
 * Counters only grow. Each is exact; together they are a picture taken while
 * the worker goes on.
 */
struct vnt_counters {
	__u32 size;
	__u32 version;
	__u32 index;
	__u32 zero;
	__u64 runs;
	__u64 packets;
	__u64 batches;
	__u64 batch_packets;
	__u64 flushes[VNT_FLUSH_COUNT];
	__u64 polls[VNT_POLL_COUNT];
	__u64 spin_ns[VNT_POLL_COUNT];
};

#define VNT_KNOBS _IOWR(0xAF, 0xE0, struct vnt_knobs)
#define VNT_COUNTERS _IOWR(0xAF, 0xE1, struct vnt_counters)

#endif
