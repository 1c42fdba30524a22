package spec

import (
	"bufio"
	"bytes"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The resolver's limits.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// dns returns the content of the pod's resolv.conf, from the pod's DNS policy,
// the cluster's DNS servers and the host's resolv.conf, and warnings about what the
// resolver's limits leave out.
func dns(pod *v1.Pod, node *Node) (*runtimeapi.DNSConfig, []string) {
	servers, searches, options := parseResolvConf(node.ResolvConf)
	out := &runtimeapi.DNSConfig{Servers: servers, Searches: searches, Options: options}
	policy := pod.Spec.DNSPolicy
	cluster := policy == v1.DNSClusterFirstWithHostNet || ((policy == v1.DNSClusterFirst || policy == "") && !pod.Spec.HostNetwork)
	switch {
	case policy == v1.DNSNone:
		out = &runtimeapi.DNSConfig{}
	case cluster && len(node.Configuration.ClusterDNS) > 0:
		out.Servers = node.Configuration.ClusterDNS
		out.Options = []string{"ndots:5"}
		if node.Configuration.ClusterDomain != "" {
			domain := node.Configuration.ClusterDomain
			out.Searches = unique(append([]string{pod.Namespace + ".svc." + domain, "svc." + domain, domain}, searches...))
		}
	case len(servers) == 0:
		out.Servers = []string{"127.0.0.1"}
		out.Searches = []string{"."}
	}
	if extra := pod.Spec.DNSConfig; extra != nil {
		out.Servers = unique(append(slices.Clone(out.Servers), extra.Nameservers...))
		out.Searches = unique(append(slices.Clone(out.Searches), extra.Searches...))
		out.Options = mergeOptions(out.Options, extra.Options)
	}
	return out, limit(out)
}

// DNSWarnings returns what the resolver's limits leave out of the pod's resolv.conf,
// in upstream's words.
func DNSWarnings(pod *v1.Pod, node *Node) []string {
	_, warnings := dns(pod, node)
	return warnings
}

// ClusterDNSMissing reports whether the pod asks for cluster DNS but the node
// has no cluster DNS server, so that the pod gets the host's.
func ClusterDNSMissing(pod *v1.Pod, node *Node) bool {
	policy := pod.Spec.DNSPolicy
	return len(node.Configuration.ClusterDNS) == 0 && (policy == v1.DNSClusterFirstWithHostNet || (policy == v1.DNSClusterFirst && !pod.Spec.HostNetwork))
}

// limit leaves out what exceeds the resolver's limits, and says so.
func limit(c *runtimeapi.DNSConfig) (warnings []string) {
	if len(c.Servers) > maxNameservers {
		c.Servers = c.Servers[:maxNameservers]
		warnings = append(warnings, "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: "+strings.Join(c.Servers, " "))
	}
	before := len(c.Searches)
	if before > maxSearches {
		c.Searches = c.Searches[:maxSearches]
	}
	c.Searches = slices.DeleteFunc(slices.Clone(c.Searches), func(domain string) bool { return len(domain) > validation.DNS1123SubdomainMaxLength })
	for len(strings.Join(c.Searches, " ")) > maxSearchChars {
		c.Searches = c.Searches[:len(c.Searches)-1]
	}
	if len(c.Searches) < before {
		warnings = append(warnings, "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: "+strings.Join(c.Searches, " "))
	}
	return warnings
}

func unique(list []string) []string {
	out, seen := make([]string, 0, len(list)), make(map[string]bool, len(list))
	for _, s := range list {
		if !seen[s] {
			out, seen[s] = append(out, s), true
		}
	}
	return out
}

// mergeOptions merges resolver options. An option of the pod replaces one of the
// same name.
func mergeOptions(base []string, extra []v1.PodDNSConfigOption) []string {
	out, index := slices.Clone(base), make(map[string]int, len(base)+len(extra))
	for i, option := range base {
		name, _, _ := strings.Cut(option, ":")
		if _, known := index[name]; !known {
			index[name] = i
		}
	}
	for _, o := range extra {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		if at, known := index[o.Name]; known {
			out[at] = text
		} else {
			index[o.Name] = len(out)
			out = append(out, text)
		}
	}
	return out
}

// withOption adds a resolver option, in the place of one of the same name.
func withOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	at := slices.IndexFunc(options, func(have string) bool {
		same, _, _ := strings.Cut(have, ":")
		return same == name
	})
	if at < 0 {
		return append(options, option)
	}
	options[at] = option
	return options
}

func parseResolvConf(raw []byte) (servers, searches, options []string) {
	scanner := bufio.NewScanner(bytes.NewReader(raw))
	for scanner.Scan() {
		f := strings.Fields(scanner.Text())
		if len(f) < 2 || strings.HasPrefix(f[0], "#") || strings.HasPrefix(f[0], ";") {
			continue
		}
		switch f[0] {
		case "nameserver":
			servers = append(servers, f[1])
		case "search":
			searches = nil
			for _, s := range f[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				searches = append(searches, s)
			}
		case "options":
			for _, option := range f[1:] {
				options = withOption(options, option)
			}
		}
	}
	return servers, searches, options
}
