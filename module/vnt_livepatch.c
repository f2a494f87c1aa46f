// SPDX-License-Identifier: GPL-2.0-only
/*
 * The livepatch itself: puts our functions in the place of the running
 * vhost_net's, task by task, and takes them away again.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/livepatch.h>
#include <linux/module.h>
#include <linux/string.h>

#include "vnt_livepatch.h"
#include "vnt_state.h"

static const struct kernel_param *vnt_find_param(const struct module *module, const char *name)
{
	unsigned int i;

	for (i = 0; i < module->num_kp; i++) {
		if (!strcmp(module->kp[i].name, name))
			return &module->kp[i];
	}
	return NULL;
}

/*
 * With zero copy, packets in flight carry the address of a function to call
 * when they are done; ours may be gone by then. Not with that.
 */
static int vnt_pre_patch(struct klp_object *object)
{
	const struct kernel_param *zero_copy;

	if (vnt_find_param(object->mod, "tx_batched")) {
		pr_err("this vhost_net has what the livepatch brings: nothing to patch\n");
		return -EEXIST;
	}
	zero_copy = vnt_find_param(object->mod, "experimental_zcopytx");
	if (!zero_copy) {
		pr_err("vhost_net has no parameter experimental_zcopytx: is it another one?\n");
		return -EINVAL;
	}
	if (*(const int *)zero_copy->arg) {
		pr_err("vhost_net runs with experimental_zcopytx, which cannot be patched\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

static void vnt_post_unpatch(struct klp_object *object)
{
	/* The transition is over: nobody is in our functions any more. */
	vnt_state_drop_all();
}

static struct klp_object vnt_objects[] = {
	{
		.name = "vhost_net",
		.funcs = vnt_funcs,
		.callbacks = {
			.pre_patch = vnt_pre_patch,
			.post_unpatch = vnt_post_unpatch,
		},
	},
	{ }
};

static struct klp_patch vnt_patch = {
	.mod = THIS_MODULE,
	.objs = vnt_objects,
};

static int __init vnt_livepatch_init(void)
{
	return klp_enable_patch(&vnt_patch);
}
module_init(vnt_livepatch_init);

static void __exit vnt_livepatch_exit(void)
{
	vnt_state_drop_all();
}
module_exit(vnt_livepatch_exit);

MODULE_LICENSE("GPL");
MODULE_INFO(livepatch, "Y");
