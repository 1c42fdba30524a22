package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/apiserver/kubernetesservice"
	"github.com/coracle-io/coracle/internal/apiserver/services"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// ServiceOptions say which addresses and ports Services get, and who maintains
// the endpoints of the Service kubernetes.
type ServiceOptions struct {
	ClusterIPRange     string // one CIDR, or two of different families
	NodePortRange      utilnet.PortRange
	EndpointReconciler string // lease or none
}

func newServiceOptions() ServiceOptions {
	return ServiceOptions{
		ClusterIPRange: "10.0.0.0/24", NodePortRange: utilnet.PortRange{Base: 30000, Size: 2768}, EndpointReconciler: "lease",
	}
}

func (o *ServiceOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ClusterIPRange, "service-cluster-ip-range", o.ClusterIPRange, "range of the Services' cluster IPs; two, separated by a comma, for dual stack")
	fs.Var(&o.NodePortRange, "service-node-port-range", "ports for Services of type NodePort")
	fs.StringVar(&o.EndpointReconciler, "endpoint-reconciler-type", o.EndpointReconciler, "what maintains the endpoints of the Service kubernetes: lease, which every server renews, or none")
	flagvalue.Is(fs, flagvalue.Ranges, "service-cluster-ip-range")
}

func (o *ServiceOptions) validate() []error {
	var errs []error
	if _, err := o.Ranges(); err != nil {
		errs = append(errs, err)
	}
	if o.EndpointReconciler != "lease" && o.EndpointReconciler != "none" {
		errs = append(errs, fmt.Errorf("--endpoint-reconciler-type=%s: want lease or none", o.EndpointReconciler))
	}
	return errs
}

// Ranges parses --service-cluster-ip-range.
func (o *ServiceOptions) Ranges() ([]*net.IPNet, error) {
	var ranges []*net.IPNet
	for _, s := range strings.Split(o.ClusterIPRange, ",") {
		_, r, err := net.ParseCIDR(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("--service-cluster-ip-range=%s: want a range such as 10.96.0.0/16, or two of different families", o.ClusterIPRange)
		}
		ranges = append(ranges, r)
	}
	if len(ranges) > 2 {
		return nil, fmt.Errorf("--service-cluster-ip-range=%s: at most two ranges", o.ClusterIPRange)
	}
	return ranges, nil
}

// newAllocator returns the allocator of cluster IPs and node ports.
func (o *ServiceOptions) newAllocator(s store.Store, cache *watchcache.Cache, resources []*resource.Resource) (*services.Allocator, error) {
	ranges, err := o.Ranges()
	if err != nil {
		return nil, err
	}
	var prefixes []netip.Prefix
	for _, r := range ranges {
		p, err := netip.ParsePrefix(r.String())
		if err != nil {
			return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		prefixes = append(prefixes, p)
	}
	kind := func(group, plural string) *watchcache.Kind {
		for _, r := range resources {
			if r.Group == group && r.Plural == plural {
				return cache.Kind(r)
			}
		}
		return nil
	}
	ports := o.NodePortRange
	return services.New(services.Config{
		CIDRs:     prefixes,
		NodePorts: services.PortRange{First: int32(ports.Base), Last: int32(ports.Base + ports.Size - 1)},
		Store:     s, Clock: clock.RealClock{},
		Services: kind("", "services"), Endpoints: kind("", "endpoints"),
		Addresses: kind("networking.k8s.io", "ipaddresses"), Ranges: kind("networking.k8s.io", "servicecidrs"),
	}, core.AssignServiceFamilies)
}

// keepKubernetesService runs the controller of the Service kubernetes.
func (a *Server) keepKubernetesService(ctx context.Context) error {
	ranges, err := a.options.Services.Ranges()
	if err != nil {
		return err
	}
	first, err := netutils.GetIndexedIP(ranges[0], 1)
	if err != nil {
		return fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	advertised, err := a.options.Advertised()
	if err != nil {
		return err
	}
	c, err := a.Provider.As("system:apiserver", "system:masters")
	if err != nil {
		return err
	}
	service, _ := netip.AddrFromSlice(first)
	address, _ := netip.AddrFromSlice(advertised)
	// The server knows that v1 Endpoints are deprecated.
	quiet := rest.CopyConfig(c.Config)
	quiet.WarningHandler = rest.NoWarnings{}
	own, err := kubernetes.NewForConfig(quiet)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return kubernetesservice.Run(ctx, kubernetesservice.Config{
		Client: own, Store: a.storage.store, Hostname: host,
		Address: address.Unmap(), Port: int32(a.options.Serving.Port), ServiceAddress: service.Unmap(),
		// Endpoints cannot have a loopback address.
		WithoutEndpoints: a.options.Services.EndpointReconciler == "none" || address.IsLoopback(),
	})
}
