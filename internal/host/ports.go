package host

import (
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-io/coracle/cluster"
)

// portsOf returns the ports on which a cluster with these options listens:
// arguments of its components override the options.
func portsOf(o cluster.Options) cluster.Ports {
	p := o.Ports
	for _, component := range []struct {
		arguments []string
		flags     map[string]*int
	}{
		{o.APIServerArgs, map[string]*int{"secure-port": &p.Secure}},
		{o.ControllerManagerArgs, map[string]*int{"secure-port": &p.Manager}},
		{o.SchedulerArgs, map[string]*int{"secure-port": &p.Scheduler}},
		{o.KubeletArgs, map[string]*int{"port": &p.Kubelet, "healthz-port": &p.KubeletHealthz}},
		{o.ProxyArgs, map[string]*int{"healthz-bind-address": &p.ProxyHealthz, "metrics-bind-address": &p.ProxyMetrics}},
	} {
		for _, a := range component.arguments {
			port := component.flags[argumentName(a)]
			if port == nil {
				continue
			}
			value := argumentValues([]string{a})
			value = value[strings.LastIndexByte(value, ':')+1:] // of address:port
			// The component reports malformed values. Without a server there is none.
			if *port, _ = strconv.Atoi(value); *port < 0 {
				*port = 0
			}
		}
	}
	return p
}

// NeighbourPorts returns the ports on which other clusters than the one called name
// listen, by their records: also those of clusters that are stopped. It reads only
// small files in the directory of the records.
func (r Registry) NeighbourPorts(name string) []int {
	names, err := r.Names()
	if err != nil {
		return nil // what runs is found without records
	}
	var ports []int
	for _, other := range names {
		rec, err := r.Get(other)
		if err != nil || other == name {
			continue
		}
		p := rec.Ports
		ports = append(ports, p.Secure, p.Manager, p.Scheduler)
		if rec.Nodes > 0 {
			ports = append(ports, p.Kubelet, p.KubeletHealthz, p.ProxyHealthz, p.ProxyMetrics, p.DNS, p.DNSMetrics, p.WireGuard)
		}
	}
	return slices.DeleteFunc(ports, func(port int) bool { return port <= 0 })
}
