package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/applyloop"
	"github.com/coracle-io/coracle/internal/nodestatus"
	"github.com/coracle-io/coracle/internal/podnet"
	"github.com/coracle-io/coracle/internal/supervise"
)

// networkPeriod is the interval at which the pod network is checked. Other
// programs flush nftables and remove interfaces.
const networkPeriod = 3 * time.Second

// noNetwork is the NodeOptions.Network with which another CNI plugin connects the pods.
const noNetwork = "none"

// Where other CNI plugins put their configurations and programs on a machine.
const (
	otherCNIConfDir = "/etc/cni/net.d"
	otherCNIBinDir  = "/opt/cni/bin"
)

// checkNetwork returns an error if the options of the pod network contradict each
// other.
func (o *settings) checkNetwork() error {
	n := o.Node
	switch {
	case n.Network != "" && n.Network != noNetwork:
		return wrong("Node.Network", n.Network, "want none, or leave it out for the cluster's own network")
	case n.Network == noNetwork && n.ContainerRuntimeEndpoint != "" && n.CNIConfDir != "":
		return wrong("Node.CNIConfDir", n.CNIConfDir, "the network of the pods is not this cluster's, and the runtime knows where its configuration is: leave it out")
	case o.Encrypt && !o.ownNetwork():
		return wrong("Encrypt", "true", "another network connects the pods of this machine, and the cluster does not encrypt that: leave it out, or let the cluster connect the pods")
	}
	return nil
}

// ownNetwork reports whether the cluster connects the pods of the node itself. Otherwise
// the addresses of pods are unknown.
func (o *settings) ownNetwork() bool {
	return o.Node.Network == "" && (o.Node.ContainerRuntimeEndpoint == "" || o.Node.CNIConfDir != "")
}

// hasStarted reports whether a kubelet has reported, at the given time or after it,
// that the node is Ready, or that it lacks only a network which is not the cluster's.
func (n *Node) hasStarted(node *v1.Node, since time.Time) bool {
	c := nodestatus.Condition(node, v1.NodeReady)
	if c == nil || c.LastHeartbeatTime.Time.Before(since) {
		return false
	}
	return c.Status == v1.ConditionTrue || n.lacksOtherNetwork(node)
}

// lacksOtherNetwork reports whether the node has no CNI configuration yet, and another
// program brings that.
func (n *Node) lacksOtherNetwork(node *v1.Node) bool {
	return n.network == nil && n.settings.Node.Network == noNetwork && nodestatus.LacksNetwork(node)
}

// leaveNetwork sets the kernel up for Services between pods that another CNI plugin
// connects, and waits until ctx ends.
func (n *Node) leaveNetwork(ctx context.Context) {
	for n.settings.Node.Network == noNetwork {
		err := podnet.New(networkConfig(n.settings)).Forward(prefixes(n.settings.ClusterCIDR))
		supervise.Report(ctx, "PodNetwork", err)
		if err == nil {
			break
		}
		klog.FromContext(ctx).Error(err, "Setting the kernel up for the traffic of pods failed, will try again", "in", networkPeriod)
		if !supervise.Pause(ctx, networkPeriod) {
			return
		}
	}
	<-ctx.Done()
}

// keepNetwork sets up the pod network for the newest pod CIDRs, and again when
// a part of it is missing, until ctx ends.
func (n *Node) keepNetwork(ctx context.Context, podCIDRs <-chan []string) error {
	log := klog.FromContext(ctx)
	check := time.NewTicker(networkPeriod)
	defer check.Stop()
	var wanted, configured []string
	n.shareNetwork(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case wanted = <-podCIDRs:
			if slices.Equal(wanted, configured) {
				continue
			}
		case <-check.C:
			if wanted == nil {
				n.shareNetwork(ctx)
				continue
			}
			if configured != nil {
				missing, err := n.network.Missing(wanted)
				if err == nil && missing == "" {
					continue
				}
				log.Error(err, "The pod network is not as it was set up; setting it up again", "missing", missing)
			}
		}
		if !n.awaitRoutes(ctx) {
			return nil
		}
		err := n.network.Configure(wanted)
		supervise.Report(ctx, "PodNetwork", err)
		if err != nil {
			log.Error(err, "Setting the pod network up failed, will try again", "in", networkPeriod)
			configured = nil
			continue
		}
		if !slices.Equal(wanted, configured) {
			n.settings.Progress("pod network is " + strings.Join(wanted, ", "))
		}
		configured = wanted
	}
}

// awaitRoutes waits until this node has routed the pods of others once: a tunnel to
// them takes a part of the MTU of pods. It returns false if ctx ends before.
func (n *Node) awaitRoutes(ctx context.Context) bool {
	select {
	case <-n.routed.done:
		return true
	default:
	}
	supervise.Report(ctx, "Routes", errors.New("waiting for the component routes to route the pods of other nodes"))
	defer supervise.Report(ctx, "Routes", nil)
	select {
	case <-n.routed.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// shareNetwork sets up what further nodes, and an encrypted network, need before this node
// has pod CIDRs.
func (n *Node) shareNetwork(ctx context.Context) {
	err := n.network.ShareNodes()
	supervise.Report(ctx, "PodNetwork", err)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Setting up what the pod network needs before its pod CIDRs failed, will try again", "in", networkPeriod)
	}
}

// pinAddresses keeps pods from using the addresses of others, until ctx ends.
func (n *Node) pinAddresses(ctx context.Context) {
	pins := n.network.Pins()
	changed, stop := pins.Watch()
	defer stop()
	apply := func() error {
		err := pins.Apply()
		supervise.Report(ctx, "PodAddresses", err)
		return err
	}
	if err := pins.Apply(); errors.Is(err, errors.ErrUnsupported) {
		klog.FromContext(ctx).Error(err, "Pods with the capability NET_RAW can use the addresses of others: the kernel has no nftables for bridges")
		return
	}
	applyloop.Loop{
		Name: "addresses of pods", Changed: changed, Apply: apply, Intact: pins.Intact, CheckPeriod: networkPeriod, RetryPeriod: networkPeriod,
	}.Run(ctx)
}

// routerPeriod is the least time between two looks at the interfaces of the machine. The
// kernel asks for router advertisements about a second after an interface is up.
const routerPeriod = 200 * time.Millisecond

// acceptRouters makes the machine accept router advertisements on hardware that comes while
// it forwards IPv6 for clusters, until ctx ends.
func (n *Node) acceptRouters(ctx context.Context) {
	changed, err := podnet.WatchInterfaces(ctx)
	if err != nil {
		supervise.Report(ctx, "RouterAdvertisements", fmt.Errorf("watch the interfaces of this machine: %w", err))
		return
	}
	network := podnet.New(networkConfig(n.settings))
	failed := false // each report wakes who shows the status of components
	apply := func() error {
		err := network.AcceptRouters()
		if err != nil || failed {
			supervise.Report(ctx, "RouterAdvertisements", err)
		}
		failed = err != nil
		return err
	}
	applyloop.Loop{
		Name: "router advertisements", Changed: changed, Apply: apply, Intact: func() (bool, error) { return true, nil },
		CheckPeriod: networkPeriod, RetryPeriod: networkPeriod, MinPeriod: routerPeriod,
	}.Run(ctx)
}

// addressPeriod is the interval at which the addresses of lost sandboxes are
// released.
const addressPeriod = 10 * time.Second

// releaseAddresses releases the addresses of sandboxes that the runtime has
// lost, until ctx ends.
func (n *Node) releaseAddresses(ctx context.Context) {
	log := klog.FromContext(ctx)
	supervise.Every(ctx, addressPeriod, func() {
		holders, err := n.network.Sandboxes()
		var lost []string
		if err == nil {
			lost, err = n.runtime.Lost(ctx, holders)
		}
		for _, sandbox := range lost {
			log.Info("Releasing the addresses of a sandbox that the runtime has lost", "sandbox", sandbox)
			err = errors.Join(err, n.network.Release(sandbox))
		}
		if err != nil && ctx.Err() == nil {
			log.Error(err, "Releasing the addresses of lost sandboxes failed, will try again", "in", addressPeriod)
		}
	})
}
