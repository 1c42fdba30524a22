package dns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/client"
)

// Keys of the ConfigMap kube-system/kube-dns.
const (
	stubDomains         = "stubDomains"
	upstreamNameservers = "upstreamNameservers"
)

// settingsPatience is how long a start waits for the ConfigMap.
const settingsPatience = 5 * time.Second

// maxNameservers bounds the servers of a list, as upstream's kube-dns does.
const maxNameservers = 3

// settings are read from the ConfigMap kube-system/kube-dns, which has the form of
// upstream's kube-dns. The zero value has no settings.
type settings struct {
	// stubDomains are the resolvers, with ports, of domains, which are in lower
	// case and end in a dot.
	stubDomains map[string][]string
	// nameservers replace the host's resolvers if there are any.
	nameservers []string
}

// parseSettings parses a ConfigMap's data. An error names every bad value. No
// server may be one of own, the servers of the cluster's DNS.
func parseSettings(data map[string]string, clusterDomain string, own []string) (*settings, error) {
	s := &settings{}
	var all []error
	for _, key := range slices.Sorted(maps.Keys(data)) {
		var err error
		switch key {
		case stubDomains:
			s.stubDomains, err = parseStubDomains(data[key], clusterDomain, own)
		case upstreamNameservers:
			var list []string
			if err = json.Unmarshal([]byte(data[key]), &list); err != nil {
				err = fmt.Errorf(`%s: want a list such as ["192.0.2.53"]: %w`, key, err)
			} else {
				s.nameservers, err = parseServers(key, list, own)
			}
		default:
			err = fmt.Errorf("%s: unknown, want %s or %s", key, stubDomains, upstreamNameservers)
		}
		all = append(all, err)
	}
	return s, errors.Join(all...)
}

func parseStubDomains(text, clusterDomain string, own []string) (map[string][]string, error) {
	var lists map[string][]string
	if err := json.Unmarshal([]byte(text), &lists); err != nil {
		return nil, fmt.Errorf(`%s: want lists by domain such as {"example.com": ["192.0.2.53"]}: %w`, stubDomains, err)
	}
	domains := map[string][]string{}
	var all []error
	for _, domain := range slices.Sorted(maps.Keys(lists)) {
		path, name := fmt.Sprintf("%s[%s]", stubDomains, domain), dns.CanonicalName(domain)
		_, valid := dns.IsDomainName(domain)
		switch {
		case !valid || domain == "" || name == ".":
			all = append(all, fmt.Errorf("%s: not a domain", path))
		case dns.IsSubDomain(clusterDomain, name):
			all = append(all, fmt.Errorf("%s: the cluster itself answers for %s", path, clusterDomain))
		case len(lists[domain]) == 0:
			all = append(all, fmt.Errorf("%s: names no server", path))
		default:
			servers, err := parseServers(path, lists[domain], own)
			domains[name], all = servers, append(all, err)
		}
	}
	return domains, errors.Join(all...)
}

// parseServers returns the addresses and ports of servers.
func parseServers(path string, list, own []string) (servers []string, err error) {
	if len(list) > maxNameservers {
		return nil, fmt.Errorf("%s: %d servers, want at most %d", path, len(list), maxNameservers)
	}
	var all []error
	for i, text := range list {
		at, err := netip.ParseAddrPort(text)
		if address, failed := netip.ParseAddr(text); failed == nil {
			at, err = netip.AddrPortFrom(address, 53), nil
		}
		if err != nil || at.Port() == 0 {
			all = append(all, fmt.Errorf("%s[%d]: %q is not an address such as 192.0.2.53 or 192.0.2.53:5353", path, i, text))
			continue
		}
		if slices.Contains(own, at.String()) {
			all = append(all, fmt.Errorf("%s[%d]: %s is the cluster's own DNS, which would ask itself", path, i, text))
			continue
		}
		servers = append(servers, at.String())
	}
	return servers, errors.Join(all...)
}

// resolvers returns those for a name, which is in lower case, or nil for the
// host's. The longest domain that the name is in wins.
func (s *settings) resolvers(name string) []string {
	for offset, end := 0, false; !end; offset, end = dns.NextLabel(name, offset) {
		if servers, ok := s.stubDomains[name[offset:]]; ok {
			return servers
		}
	}
	if len(s.nameservers) > 0 {
		return s.nameservers
	}
	return nil
}

// followSettings applies the ConfigMap kube-system/kube-dns until ctx ends, and
// returns once it was read or settingsPatience is over. A ConfigMap with an error
// changes nothing.
func (s *Server) followSettings(ctx context.Context) error {
	own := s.forward.own
	set := func(c *v1.ConfigMap) {
		parsed, err := parseSettings(c.Data, s.zone.Domain, own)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The ConfigMap has errors: names are forwarded as before", "configMap", klog.KObj(c))
			return
		}
		s.forward.set(parsed)
	}
	informer := s.config.Client.Watch(v1.SchemeGroupVersion.WithResource("configmaps"), serviceNamespace, fields.OneTermEqualSelector(metav1.ObjectNameField, serviceName))
	read, err := client.Follow(ctx, informer, client.SetHandler(set, func(*v1.ConfigMap) { s.forward.set(&settings{}) }))
	if err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, settingsPatience)
	defer cancel()
	if !cache.WaitFor(patience, "", read) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("The ConfigMap cannot be read: names outside of the cluster are asked of the host's resolvers", "configMap", klog.KRef(serviceNamespace, serviceName))
	}
	return nil
}
