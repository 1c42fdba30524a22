package inmemory

import (
	"fmt"
	"net/netip"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultPodCIDR has the addresses of pods until the runtime gets a pod CIDR.
const defaultPodCIDR = "10.99.0.0/16"

// addresses gives sandboxes addresses of pod CIDRs. An address is free again
// when its sandbox is removed. Recently used ones are given last. As with the
// bridge of a real node, the first address of a CIDR is the gateway's.
type addresses struct {
	used map[netip.Addr]bool
	last map[netip.Prefix]netip.Addr
}

// take returns an address of each CIDR in a list that is separated by commas.
func (a *addresses) take(podCIDRs string) (*runtimeapi.PodSandboxNetworkStatus, error) {
	if podCIDRs == "" {
		podCIDRs = defaultPodCIDR
	}
	var taken []netip.Addr
	for text := range strings.SplitSeq(podCIDRs, ",") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("pod CIDR: %w", err)
		}
		ip, ok := a.next(prefix.Masked())
		if !ok {
			a.release(taken)
			return nil, fmt.Errorf("no addresses are left in %s", prefix)
		}
		a.used[ip], a.last[prefix.Masked()] = true, ip
		taken = append(taken, ip)
	}
	status := &runtimeapi.PodSandboxNetworkStatus{Ip: taken[0].String()}
	for _, ip := range taken[1:] {
		status.AdditionalIps = append(status.AdditionalIps, &runtimeapi.PodIP{Ip: ip.String()})
	}
	return status, nil
}

// next returns the first free address after the one that was given last.
func (a *addresses) next(prefix netip.Prefix) (netip.Addr, bool) {
	gateway := prefix.Addr().Next()
	last, ok := a.last[prefix]
	if !ok {
		last = gateway
	}
	for ip := last.Next(); ; ip = ip.Next() {
		if !prefix.Contains(ip) || prefix.Addr().Is4() && !prefix.Contains(ip.Next()) { // the last one of IPv4 is for broadcasts
			ip = gateway.Next()
		}
		if prefix.Contains(ip) && !a.used[ip] {
			return ip, true
		}
		if ip == last || !prefix.Contains(ip) {
			return netip.Addr{}, false
		}
	}
}

func (a *addresses) release(ips []netip.Addr) {
	for _, ip := range ips {
		delete(a.used, ip)
	}
}

// free releases the addresses of a sandbox.
func (a *addresses) free(status *runtimeapi.PodSandboxNetworkStatus) {
	texts := []string{status.GetIp()}
	for _, ip := range status.GetAdditionalIps() {
		texts = append(texts, ip.GetIp())
	}
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			a.release([]netip.Addr{ip})
		}
	}
}
