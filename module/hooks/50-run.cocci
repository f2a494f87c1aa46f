// SPDX-License-Identifier: GPL-2.0-only
// Frames each run, while its ring is locked. A handler has one way in and one
// way out.
// Expect: vnt_run_begins 2
// Expect: vnt_run_ends 2
@@
identifier net, vq, index, f = {handle_rx, handle_tx};
@@
 f(struct vhost_net *net)
 {
 	<+...
 	mutex_lock_nested(&vq->mutex, index);
+	vnt_run_begins(&net->dev, index);
 	...
+	vnt_run_ends(&net->dev, index, net->poll[index].wqh);
 	mutex_unlock(&vq->mutex);
 	...+>
 }
