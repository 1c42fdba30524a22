// Package attachdetach is the attach/detach controller for volumes of CSI
// drivers. It creates a VolumeAttachment for each volume that the pods of a node
// need, and deletes it when none does. An external attacher, which belongs to
// the driver, carries that out.
//
//	pod bound ─► VolumeAttachment ─► attached ─► in volumesAttached of the node ─► kubelet mounts
//	pod gone ─► not in volumesInUse of the node ─► not in volumesAttached ─► VolumeAttachment deleted
//
// The kubelet writes volumesInUse before it looks for the volume in
// volumesAttached, and mounts only what one version of the Node has in both.
// The controller removes the volume from volumesAttached before it looks at
// volumesInUse in the answer. So no volume is detached that is being mounted.
package attachdetach

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/pods"
	"github.com/coracle-io/coracle/internal/csivolume"
	"github.com/coracle-io/coracle/internal/nodestatus"
)

// options are the controller's flags.
type options struct {
	syncPeriod    time.Duration
	disableSync   bool
	neverByForce  bool
	maxUnmounting time.Duration // not a flag
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.syncPeriod, "attach-detach-reconcile-sync-period", o.syncPeriod, "how often the volumes of each node are compared with its pods, at least 1s")
	fs.BoolVar(&o.disableSync, "disable-attach-detach-reconcile-sync", o.disableSync, "compare the volumes of nodes with pods only when something changes")
	fs.BoolVar(&o.neverByForce, "disable-force-detach-on-timeout", o.neverByForce, "never detach a volume that an unhealthy node has not unmounted, unless the node is tainted as out of service")
}

func (o *options) validate() error {
	if o.syncPeriod < time.Second {
		return fmt.Errorf("--attach-detach-reconcile-sync-period must not be less than 1s, but got %s", o.syncPeriod)
	}
	return nil
}

// Descriptor describes the controller.
func Descriptor() controller.Descriptor {
	o, forced := options{syncPeriod: time.Minute, maxUnmounting: 6 * time.Minute}, newForcedDetaches()
	return controller.Descriptor{
		Name:           "persistentvolume-attach-detach-controller",
		Aliases:        []string{"attachdetach"},
		ServiceAccount: "attachdetach-controller",
		EventSource:    "attachdetach-controller",
		AddFlags:       o.addFlags,
		Validate:       o.validate,
		New:            func(env *controller.Env) (controller.Controller, error) { return newController(env, o, forced) },
	}
}

// newForcedDetaches returns the metric of volumes that were detached although their
// nodes had not unmounted them, by upstream's name.
func newForcedDetaches() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Subsystem: "attach_detach_controller", Name: "attachdetach_controller_forced_detaches",
		Help: "[ALPHA] Number of times the A/D Controller performed a forced detach",
	}, []string{"reason"})
}

// byNode is the name of the index of VolumeAttachments by node.
const byNode = "node"

func nodeOf(o any) ([]string, error) {
	if a, ok := o.(*storagev1.VolumeAttachment); ok {
		return []string{a.Spec.NodeName}, nil
	}
	return nil, nil
}

type attacher struct {
	options
	env         *controller.Env
	pods        cache.SharedIndexInformer
	attachments cache.SharedIndexInformer
	nodes       corelisters.NodeLister
	claims      corelisters.PersistentVolumeClaimLister
	volumes     corelisters.PersistentVolumeLister
	drivers     storagelisters.CSIDriverLister
	queue       *controller.Queue[string] // of nodes
	forced      *prometheus.CounterVec    // detaches, by reason

	// Used by the only worker.
	progress map[string]*progress // by name of the VolumeAttachment
	existing *attachments
	gone     *goneNodes
}

// progress is the controller's state of an attachment, collected since the
// controller started.
type progress struct {
	node      string
	volume    v1.UniqueVolumeName
	attaching bool // this controller has created it
	failed    time.Time
	blocked   bool // another node has the volume
	unwanted  time.Time
}

func newController(env *controller.Env, o options, forced *prometheus.CounterVec) (controller.Controller, error) {
	if err := env.Expose(forced); err != nil {
		return nil, err
	}
	core, storage := env.Client.Informers.Core().V1(), env.Client.Informers.Storage().V1()
	c := &attacher{
		options: o, env: env, pods: core.Pods().Informer(), attachments: storage.VolumeAttachments().Informer(),
		nodes: core.Nodes().Lister(), claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		drivers: storage.CSIDrivers().Lister(), progress: make(map[string]*progress), gone: &goneNodes{}, forced: forced,
	}
	c.existing = &attachments{api: env.Client.Kubernetes.StorageV1().VolumeAttachments(), cache: c.attachments.GetIndexer()}
	c.queue = controller.NewQueueWithMaxDelay(env.Queues, "attachdetach", time.Minute, c.sync)
	if err := env.Index(c.attachments, byNode, nodeOf); err != nil {
		return nil, err
	}
	if err := env.Index(c.pods, pods.ByNode, pods.NodeKeys); err != nil {
		return nil, err
	}
	return c, env.Expose(c)
}

// Run implements controller.Controller. One worker decides about all nodes, so
// that an exclusive volume is attached to one node only.
func (c *attacher) Run(ctx context.Context) error {
	core, storage := c.env.Client.Informers.Core().V1(), c.env.Client.Informers.Storage().V1()
	return controller.Serve(ctx, []controller.Source{
		controller.Reads(core.PersistentVolumeClaims().Informer()),
		controller.Reads(core.PersistentVolumes().Informer()),
		controller.On(storage.CSIDrivers().Informer(), func(_, _ *storagev1.CSIDriver) { c.addAll() }),
		controller.On(core.Nodes().Informer(), c.nodeChanged),
		controller.On(c.pods, c.podChanged),
		controller.On(c.attachments, func(old, new *storagev1.VolumeAttachment) {
			if new == nil {
				c.queue.Add(old.Spec.NodeName)
				c.addAll() // another node may have waited for the volume
				return
			}
			c.queue.Add(new.Spec.NodeName)
		}),
	}, c.queue.Workers(1))
}

// addAll enqueues the nodes with pods or attachments.
func (c *attacher) addAll() {
	for _, informer := range []struct {
		indexer cache.Indexer
		index   string
	}{{c.pods.GetIndexer(), pods.ByNode}, {c.attachments.GetIndexer(), byNode}} {
		for _, name := range informer.indexer.ListIndexFuncValues(informer.index) {
			if name != "" {
				c.queue.Add(name)
			}
		}
	}
}

func (c *attacher) nodeChanged(old, new *v1.Node) {
	switch {
	case new == nil:
		c.gone.add(old)
		c.queue.Add(old.Name)
	case old == nil:
		c.gone.remove(new.Name)
		c.queue.Add(new.Name)
	case !slices.Equal(old.Status.VolumesInUse, new.Status.VolumesInUse),
		!slices.Equal(old.Status.VolumesAttached, new.Status.VolumesAttached),
		old.Annotations[csivolume.ControllerManagedAttachAnnotation] != new.Annotations[csivolume.ControllerManagedAttachAnnotation],
		nodestatus.Ready(old) != nodestatus.Ready(new), nodestatus.IsOutOfService(old) != nodestatus.IsOutOfService(new):
		c.queue.Add(new.Name)
	}
}

func (c *attacher) podChanged(old, new *v1.Pod) {
	if new == nil {
		if len(old.Spec.Volumes) > 0 && old.Spec.NodeName != "" {
			c.queue.Add(old.Spec.NodeName)
		}
		return
	}
	if new.Spec.NodeName == "" || !hasClaims(new) {
		return
	}
	if old == nil || old.Spec.NodeName == "" || isOver(old) != isOver(new) {
		c.queue.Add(new.Spec.NodeName)
	}
}
