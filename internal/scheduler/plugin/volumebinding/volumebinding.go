// Package volumebinding finds volumes for the claims of a pod together with the
// node: volumes that exist, and nodes where volumes can be provisioned.
//
//	PreFilter   claims ─► bound: its volume       ─┐
//	                   ─► the scheduler's choice:  ├─► podClaims
//	                        volumes of its class   ─┘
//	                   ─► another's: the pod waits
//	Filter      podClaims, node ─► node affinity of bound volumes, a volume for each
//	                               claim or else room to provision it ─► podVolumes
//	Reserve     podVolumes ─► assumed, so that the next pod does not get the same
//	PreBind     volume.spec.claimRef, claim's annotation selected-node ─► API;
//	            wait until the binder controller has bound all claims
//
// The scheduler chooses for claims of a class with volumeBindingMode
// WaitForFirstConsumer. It sets one side of a binding; the PersistentVolume
// binder controller completes it, and the class's provisioner makes volumes.
package volumebinding

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"
	kubescheduler "k8s.io/kube-scheduler/config/v1"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/scheduler/framework"
	"github.com/coracle-io/coracle/internal/scheduler/plugin/utilization"
	"github.com/coracle-io/coracle/internal/timespan"
)

// Name is the plugin's name in configurations.
const Name = "VolumeBinding"

// Factory describes the plugin.
func Factory() framework.Factory {
	return framework.WithArguments(Name, setDefaults, validate, newPlugin)
}

// byClass is the index of volumes and of capacities by their storage class.
const byClass = "scheduler.storageclass"

type plugin struct {
	api      kubernetes.Interface
	nodes    corelisters.NodeLister
	claims   corelisters.PersistentVolumeClaimLister
	volumes  corelisters.PersistentVolumeLister
	classes  storagelisters.StorageClassLister
	drivers  storagelisters.CSIDriverLister
	csiNodes storagelisters.CSINodeLister
	isWanted func(pod types.UID) bool // nil: always
	// observeError is framework.Handle.ObserveVolumeError.
	observeError func(operation string)

	volumesByClass    cache.Indexer
	capacitiesByClass cache.Indexer

	*assumptions

	state   framework.StateKey[*state]
	timeout time.Duration
	// score rates how much of a storage's capacity is used; nil: nodes are not scored.
	score func(used, capacity int64) int64
}

// assumptions holds the volumes and claims that were decided for pods of all
// profiles.
type assumptions struct {
	assumedVolumes assumed[*v1.PersistentVolume]
	assumedClaims  assumed[*v1.PersistentVolumeClaim]
}

// state holds what the extension points of one attempt share.
type state struct {
	claims podClaims
	// found are the volumes on each node that passed Filter; they are kept even
	// if there are none.
	found map[string]*podVolumes
	// reserved are the volumes on the node that was chosen; nil if nothing is to be
	// done.
	reserved *podVolumes
}

func newPlugin(ctx context.Context, a *kubescheduler.VolumeBindingArgs, h *framework.Handle) (framework.Plugin, error) {
	core, storage := h.Informers.Core().V1(), h.Informers.Storage().V1()
	volumes, capacities := core.PersistentVolumes().Informer(), storage.CSIStorageCapacities().Informer()
	p := &plugin{
		api: h.Client, nodes: core.Nodes().Lister(), claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		classes: storage.StorageClasses().Lister(), drivers: storage.CSIDrivers().Lister(), csiNodes: storage.CSINodes().Lister(), isWanted: h.IsWanted, observeError: h.ObserveVolumeError,
		volumesByClass: volumes.GetIndexer(), capacitiesByClass: capacities.GetIndexer(),
		assumptions: framework.Share(h, Name, func() *assumptions { return &assumptions{} }),
		state:       framework.NewStateKey[*state](h), timeout: timespan.Seconds(*a.BindTimeoutSeconds),
	}
	switch {
	case h.Features.Enabled(feature.StorageCapacityScoring):
		p.score = utilization.Line(a.Shape)
	case !slices.Equal(a.Shape, utilization.LeastFirst()):
		return nil, field.Invalid(field.NewPath("shape"), a.Shape, "unexpected field `shape`, feature StorageCapacityScoring is disabled")
	}
	err := client.Index(ctx, volumes, byClass, func(obj any) ([]string, error) {
		if v, ok := obj.(*v1.PersistentVolume); ok {
			return []string{volume.GetPersistentVolumeClass(v)}, nil
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return p, client.Index(ctx, capacities, byClass, func(obj any) ([]string, error) {
		if c, ok := obj.(*storagev1.CSIStorageCapacity); ok {
			return []string{c.StorageClassName}, nil
		}
		return nil, nil
	})
}

// Name implements framework.Plugin.
func (*plugin) Name() string { return Name }

// PreFilter implements framework.PreFilterPlugin.
func (p *plugin) PreFilter(_ context.Context, cycle *framework.CycleState, pod *framework.PodInfo, _ *framework.Snapshot) (*framework.PreFilterResult, *framework.Status) {
	if len(pod.Claims) == 0 {
		return nil, framework.NewStatus(framework.Skip, Name)
	}
	if err := p.usable(pod.Pod); err != nil {
		return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, err.Error())
	}
	claims, immediate, err := p.claimsOf(pod.Pod)
	if err != nil {
		return nil, framework.AsStatus(Name, err)
	}
	if immediate {
		return nil, framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, "pod has unbound immediate PersistentVolumeClaims")
	}
	p.state.Put(cycle, &state{claims: claims, found: map[string]*podVolumes{}})
	return nil, nil
}

// Filter implements framework.FilterPlugin.
func (p *plugin) Filter(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) *framework.Status {
	s, _ := p.state.Get(cycle)
	delete(s.found, n.Name)
	found, reasons, err := p.on(n.Node, &s.claims)
	if err != nil {
		return p.failed("predicate", err)
	}
	if len(reasons) > 0 {
		return framework.NewStatus(framework.UnschedulableAndUnresolvable, Name, reasons...)
	}
	s.found[n.Name] = found
	return nil
}

// PreScore implements framework.PreScorePlugin. All nodes are the same to a pod
// for which nothing is bound or provisioned.
func (p *plugin) PreScore(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, _ *framework.Snapshot, nodes []*framework.NodeInfo) *framework.Status {
	if s, ok := p.state.Get(cycle); ok && p.score != nil {
		for _, n := range nodes {
			if !s.found[n.Name].isEmpty() {
				return nil
			}
		}
	}
	return framework.NewStatus(framework.Skip, Name)
}

// Score implements framework.ScorePlugin (KEP-4049).
func (p *plugin) Score(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, n *framework.NodeInfo) (int64, *framework.Status) {
	s, _ := p.state.Get(cycle)
	return s.found[n.Name].rate(p.score), nil
}

// Reserve implements framework.ReservePlugin.
func (p *plugin) Reserve(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, node string) *framework.Status {
	s, ok := p.state.Get(cycle)
	if !ok || s.found[node].isEmpty() {
		return nil
	}
	s.reserved = s.found[node]
	return p.failed("assume", p.assume(s.reserved, node))
}

// failed tells the metrics of the failure of an operation, if err is one, and returns
// its status.
func (p *plugin) failed(operation string, err error) *framework.Status {
	if err != nil && p.observeError != nil {
		p.observeError(operation)
	}
	return framework.AsStatus(Name, err)
}

// Unreserve implements framework.ReservePlugin.
func (p *plugin) Unreserve(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, _ string) {
	if s, ok := p.state.Get(cycle); ok && s.reserved != nil {
		p.forget(s.reserved)
	}
}

// PreBindPreFlight implements framework.PreBindPlugin.
func (p *plugin) PreBindPreFlight(_ context.Context, cycle *framework.CycleState, _ *framework.PodInfo, _ string) *framework.Status {
	if s, ok := p.state.Get(cycle); !ok || s.reserved == nil {
		return framework.NewStatus(framework.Skip, Name)
	}
	return nil
}

// PreBind implements framework.PreBindPlugin.
func (p *plugin) PreBind(ctx context.Context, cycle *framework.CycleState, pod *framework.PodInfo, node string) *framework.Status {
	s, _ := p.state.Get(cycle)
	if err := p.bind(ctx, pod.Pod, node, s.reserved); err != nil {
		return p.failed("bind", err)
	}
	p.forget(s.reserved) // the informers have what was assumed
	return nil
}
