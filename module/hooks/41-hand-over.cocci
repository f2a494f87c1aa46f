// SPDX-License-Identifier: GPL-2.0-only
// Counts hand-overs of used buffers, in both directions.
// Expect: vnt_handing_over 1
@@
identifier nvq, vq, dev;
@@
 vhost_net_signal_used(struct vhost_net_virtqueue *nvq, ...)
 {
 	<+...
+	vnt_handing_over(dev, vq, nvq->done_idx);
 	vhost_add_used_and_signal_n(dev, vq, ...);
 	...+>
 }
