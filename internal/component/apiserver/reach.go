package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	netutils "k8s.io/utils/net"

	"github.com/coracle-io/coracle/internal/apiserver/connect"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/selfservice"
	"github.com/coracle-io/coracle/internal/apiserver/services"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/core"
	"github.com/coracle-io/coracle/internal/store"
	"github.com/coracle-io/coracle/internal/watchcache"
)

// newAllocator makes what allocates cluster IPs and node ports.
func (f *Flags) newAllocator(s store.Store, cache *watchcache.Cache, resources []*resource.Resource) (*services.Allocator, error) {
	ranges, err := f.ServiceRanges()
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
	ports := f.ServiceNodePortRange
	return services.New(services.Config{
		CIDRs:     prefixes,
		NodePorts: services.PortRange{First: int32(ports.Base), Last: int32(ports.Base + ports.Size - 1)},
		Store:     s, Clock: clock.RealClock{},
		Services: kind("", "services"), Addresses: kind("networking.k8s.io", "ipaddresses"), Ranges: kind("networking.k8s.io", "servicecidrs"),
	}, core.CheckedServiceFamilies)
}

// newConnector makes what reaches kubelets, and never an API server at an
// address that is own.
func (f *Flags) newConnector(keys *pki.Directory, source objects.Source, own func(netip.AddrPort) bool) (*connect.Connector, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.KubeletCAFile == ""} //nolint:gosec // as upstream: kubelets sign their own certificates unless told otherwise
	if f.KubeletCAFile != "" {
		pool, err := base.ReadAuthorities("kubelet-certificate-authority", f.KubeletCAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if f.KubeletCertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.KubeletCertFile, f.KubeletKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-client-certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	} else {
		own, err := keys.Issue(pki.APIServerKubeletClient())
		if err != nil {
			return nil, err
		}
		config.GetClientCertificate = own.GetClientCertificate
	}
	features, err := feature.Parse(f.FeatureGates)
	if err != nil {
		return nil, err
	}
	return connect.New(connect.Config{KubeletTLS: config, AddressTypes: addressTypes(f.KubeletAddressTypes), Objects: source, Features: features, Own: own}), nil
}

func addressTypes(names []string) []corev1.NodeAddressType {
	types := make([]corev1.NodeAddressType, len(names))
	for i, name := range names {
		types[i] = corev1.NodeAddressType(name)
	}
	return types
}

// keepSelfService keeps the Service through which pods reach this server.
func (a *Server) keepSelfService(ctx context.Context) error {
	ranges, err := a.flags.ServiceRanges()
	if err != nil {
		return err
	}
	first, err := netutils.GetIndexedIP(ranges[0], 1)
	if err != nil {
		return fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	advertised, err := a.flags.Advertised()
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
	return selfservice.Run(ctx, selfservice.Config{
		Client: own, Store: a.storage.store, Hostname: host,
		Address: address.Unmap(), Port: int32(a.flags.SecurePort), ServiceAddress: service.Unmap(),
		// no Endpoints have a loopback address, and no pod could use it
		WithoutEndpoints: a.flags.EndpointReconciler == "none" || address.IsLoopback(),
	})
}
