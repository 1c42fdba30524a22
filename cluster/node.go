package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/internal/kubelet"
	"github.com/coracle-io/coracle/internal/podnet"
)

// node is the part of a cluster that runs containers.
type node struct {
	cluster *Cluster
	kubelet *component.Kubelet
	runtime *containerd.Runtime // nil: one that others run
	network *podnet.Network     // nil: a runtime of others that brings its own
	proxy   *component.Proxy
	dns     *component.DNS
	ready   sync.Once // the node has been Ready
}

func newNode(c *Cluster) (*node, error) {
	o := &c.options
	n := &node{cluster: c, kubelet: component.NewKubelet()}
	k := n.kubelet
	k.NodeName = o.NodeName
	k.RootDir = filepath.Join(o.DataDir, "kubelet")
	address, err := c.api.Advertised()
	if err != nil {
		return nil, err
	}
	k.NodeIPs = []string{address.String()}
	k.HealthzPort = int32(o.Ports.KubeletHealthz)
	k.FailSwapOn = false
	k.Configuration.Port = int32(o.Ports.Kubelet)
	k.Configuration.CgroupRoot = o.CgroupRoot
	k.Configuration.PodLogsDir = filepath.Join(o.DataDir, "logs", "pods")
	protectDisk(&k.Configuration, diskSize(o.DataDir))
	if k.Configuration.ClusterDNS, err = clusterDNS(o.ServiceCIDR); err != nil {
		return nil, err
	}
	k.Configuration.ContainerRuntimeEndpoint = o.ContainerRuntimeEndpoint
	if o.ContainerRuntimeEndpoint == "" {
		if n.runtime, err = containerd.New(runtimeConfig(o.BundleDir, o.DataDir, o.RunDir, o.CgroupRoot)); err != nil {
			return nil, err
		}
		k.Configuration.ContainerRuntimeEndpoint = n.runtime.Endpoint()
	}
	if n.runtime != nil || o.CNIConfDir != "" {
		n.network = podnet.New(networkConfig(o))
	}
	n.proxy = component.NewProxy()
	n.proxy.Table = o.NFTable
	n.proxy.NodeName = o.NodeName
	n.proxy.HealthzPort, n.proxy.MetricsPort = o.Ports.ProxyHealthz, o.Ports.ProxyMetrics
	n.proxy.ClusterCIDR = o.ClusterCIDR
	n.dns = component.NewDNS()
	n.dns.ClusterDNS, n.dns.ClusterCIDR = k.Configuration.ClusterDNS, o.ClusterCIDR
	n.dns.Addresses, n.dns.Port, n.dns.NodeName = k.NodeIPs, o.Ports.DNS, o.NodeName
	err = errors.Join(
		parse("kubelet", k.AddFlags, o.KubeletArgs),
		parse("proxy", n.proxy.AddFlags, o.ProxyArgs),
	)
	n.proxy.Reserved = []int{
		c.api.SecurePort, c.manager.Serving.Port, c.scheduler.Serving.Port, int(k.Configuration.Port), int(k.HealthzPort), n.dns.Port,
	}
	return n, err
}

func runtimeConfig(bundle, dataDir, runDir, cgroupRoot string) containerd.Config {
	return containerd.Config{
		BundleDir: bundle, DataDir: filepath.Join(dataDir, "containerd"), RunDir: filepath.Join(runDir, "containerd"),
		CNIConfDir: filepath.Join(dataDir, "cni", "conf"), RegistryDir: filepath.Join(dataDir, "registries"), CgroupRoot: cgroupRoot,
	}
}

func networkConfig(o *Options) podnet.Config {
	c := podnet.Config{
		Name: o.Name, CNIConfDir: filepath.Join(o.DataDir, "cni", "conf"), LeaseDir: filepath.Join(o.DataDir, "cni", "leases"),
	}
	if o.CNIConfDir != "" {
		c.CNIConfDir = o.CNIConfDir
	}
	c.ClusterCIDRs, c.ServiceCIDRs = prefixes(o.ClusterCIDR), prefixes(o.ServiceCIDR)
	return c
}

// prefixes are the ranges of a list with commas between, as far as they are
// ranges.
func prefixes(list string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range strings.Split(list, ",") {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Purge ends the containers of a cluster whose process has ended, and takes
// its pod network, Service rules and mounts away.
func Purge(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	purge := func(ctx context.Context, o Options) error {
		runtime, err := containerd.New(runtimeConfig(o.BundleDir, o.DataDir, o.RunDir, o.CgroupRoot))
		if err != nil {
			return err
		}
		return runtime.Purge(ctx)
	}
	if o.ContainerRuntimeEndpoint != "" {
		purge = purgeOutside
	}
	if err := purge(ctx, o); err != nil {
		return fmt.Errorf("remove the containers: %w", err)
	}
	return errors.Join(
		podnet.New(networkConfig(&o)).Remove(),
		(&component.Proxy{Mode: "nftables", Table: o.NFTable, ClusterCIDR: o.ClusterCIDR}).RemoveRules(),
	)
}

// start runs the node's components and returns; Ready follows when the node is.
func (n *node) start(ctx context.Context) {
	c := n.cluster
	c.group.Go(ctx, "podnet", c.servers.with(n.follow))
	c.group.Go(ctx, "kubelet", c.servers.with(n.runKubelet))
	c.group.Go(ctx, "proxy", c.servers.with(n.proxy.RunWith))
	c.group.Go(ctx, "dns", c.servers.with(n.dns.RunWith))
}

func (n *node) runKubelet(ctx context.Context, provider client.Provider) error {
	if n.runtime != nil {
		select {
		case <-n.runtime.Ready():
			n.cluster.options.Progress("containerd is up")
		case <-ctx.Done():
			return nil
		}
	}
	config, err := n.kubelet.Config(ctx, provider)
	if err != nil {
		return err
	}
	keys := n.cluster.keys
	serving, err := keys.Issue(component.KubeletServing(config.NodeName, config.NodeIPs))
	if err != nil {
		return err
	}
	config.GetCertificate = serving.GetCertificate
	config.ClientCAs = func() *x509.CertPool { return keys.Cluster().Pool() }
	k, err := kubelet.New(config)
	if err != nil {
		return err
	}
	return k.Run(ctx)
}

// follow watches the node's own object: it sets up the pod network once the
// pod CIDRs are assigned, and tells when the node is Ready.
func (n *node) follow(ctx context.Context, provider client.Provider) error {
	own, err := provider.As("system:node:"+n.kubelet.NodeName, "system:nodes", "system:authenticated")
	if err != nil {
		return err
	}
	informer := own.Watch(v1.SchemeGroupVersion.WithResource("nodes"), "", fields.OneTermEqualSelector("metadata.name", n.kubelet.NodeName))
	var configured []string
	take := func(obj any) {
		nd := obj.(*v1.Node)
		if n.network != nil && len(nd.Spec.PodCIDRs) > 0 && !slices.Equal(configured, nd.Spec.PodCIDRs) {
			if err := n.network.Configure(nd.Spec.PodCIDRs); err != nil {
				klog.FromContext(ctx).Error(err, "Setting up the pod network failed; it is tried again with the node's next status")
			} else {
				configured = nd.Spec.PodCIDRs
				n.cluster.options.Progress("pod network is " + strings.Join(configured, ", "))
			}
		}
		for _, c := range nd.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				n.ready.Do(func() {
					n.cluster.options.Progress("node " + nd.Name + " is Ready")
					close(n.cluster.ready)
				})
			}
		}
	}
	if _, err := client.Follow(ctx, informer, cache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, obj any) { take(obj) },
	}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
