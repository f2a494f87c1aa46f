// SPDX-License-Identifier: GPL-2.0-only
// The cap on TX batches is read anew for each packet, and may have been
// lowered below what waits already.
// Expect: vnt_tx_full 1
@@
identifier net, sock, nvq, vq, index;
type T1, T2;
@@
 handle_tx_copy(struct vhost_net *net, struct socket *sock)
 {
 	T1 nvq = &net->vqs[index];
 	T2 vq = &nvq->vq;
+	struct vnt_state *vnt = vnt_state_find(&net->dev);
 	<+...
-	nvq->done_idx == VHOST_NET_BATCH
+	vnt_tx_full(vnt, nvq->done_idx)
 	...+>
 }
