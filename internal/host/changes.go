package host

import (
	"fmt"
	"slices"
	"strings"
)

// Change is what a flag would make different about a cluster that is there.
type Change struct {
	Flag     string // with the name of an argument: apiserver-arg=anonymous-auth
	From, To string // "" is nothing
	Refused  string // why it cannot be; "" if it can
}

func (c Change) String() string {
	if c.From == "" {
		c.From = "(nothing)"
	}
	if c.To == "" {
		c.To = "(nothing)"
	}
	return fmt.Sprintf("--%s: %s → %s", c.Flag, c.From, c.To)
}

// flag is a setting that a flag of up sets: a string, a number, a list, or
// arguments of a component, each a name=value.
type flag struct {
	name  string
	text  *string
	num   *int
	list  *[]string
	args  *[]string
	fixed fixed
}

// fixed says why a value cannot become another; "" if it can.
type fixed func(kept *Settings, from, to string) string

func always(reason string) fixed { return func(*Settings, string, string) string { return reason } }

// withNode is for what cannot change once the cluster has a node here.
func withNode(reason string) fixed {
	return func(kept *Settings, _, _ string) string {
		if kept.Nodes > 0 {
			return reason
		}
		return ""
	}
}

// betweenNothing is for what can change but neither begin nor end to be there.
func betweenNothing(reason string) fixed {
	return func(_ *Settings, from, to string) string {
		if from == "" || to == "" {
			return reason
		}
		return ""
	}
}

// flags is the table of all settings that flags of up set. The data directory
// and the name are not among them: they say which cluster is meant.
func (s *Settings) flags() []flag {
	return []flag{
		{name: "kubeconfig", text: &s.Kubeconfig},
		{name: "bundle", text: &s.Bundle},
		{name: "v", text: &s.LogLevels},
		{name: "bind-address", text: &s.BindAddress},
		{name: "secure-port", num: &s.Ports.Secure},
		{name: "service-cidr", text: &s.ServiceCIDR, fixed: always("the Services have their addresses from it")},
		{name: "cluster-cidr", text: &s.ClusterCIDR, fixed: always("the nodes have their pod ranges from it, which cannot change")},
		{name: "etcd-servers", list: &s.EtcdServers, fixed: betweenNothing("the objects are in the etcd that the cluster was started with")},
		{name: "nodes", num: &s.Nodes, fixed: func(_ *Settings, from, to string) string {
			if from > to {
				return "its containers would run on with nobody to look after them"
			}
			return ""
		}},
		{name: "node-name", text: &s.NodeName, fixed: withNode("the pods and volumes here are those of the node of that name")},
		{name: "container-runtime-endpoint", text: &s.ContainerRuntimeEndpoint, fixed: withNode("its containers would run on in the runtime that has them")},
		{name: "cni-conf-dir", text: &s.CNIConfDir, fixed: withNode("the pods are connected by the configuration that is there")},
		{name: "apiserver-arg", args: &s.APIServerArgs},
		{name: "controller-manager-arg", args: &s.ControllerManagerArgs},
		{name: "scheduler-arg", args: &s.SchedulerArgs},
		{name: "kubelet-arg", args: &s.KubeletArgs},
		{name: "proxy-arg", args: &s.ProxyArgs},
		{name: "etcd-arg", args: &s.EtcdArgs},
	}
}

// fixedArguments are the arguments of components that cannot change, by flag
// and name.
func fixedArguments() map[string]fixed {
	services := always("the Services have their addresses from it")
	pods := always("the nodes have their pod ranges from it, which cannot change")
	members := betweenNothing("the data says whether this etcd is alone or a member of several")
	return map[string]fixed{
		"apiserver-arg=etcd-prefix":                                 always("the objects are stored below it"),
		"apiserver-arg=cert-dir":                                    always("the keys that everybody trusts are there"),
		"apiserver-arg=service-cluster-ip-range":                    services,
		"controller-manager-arg=service-cluster-ip-range":           services,
		"controller-manager-arg=cluster-cidr":                       pods,
		"proxy-arg=cluster-cidr":                                    pods,
		"proxy-arg=nftables-table":                                  withNode("the rules in it would stay behind"),
		"kubelet-arg=hostname-override":                             withNode("the pods and volumes here are those of the node of that name"),
		"kubelet-arg=root-dir":                                      withNode("the pods' volumes are there"),
		"kubelet-arg=cgroup-root":                                   withNode("the pods' processes are below it"),
		"kubelet-arg=container-runtime-endpoint":                    withNode("its containers would run on in the runtime that has them"),
		"etcd-arg=initial-advertise-peer-urls":                      members,
		"etcd-arg=initial-cluster":                                  members,
		"controller-manager-arg=node-cidr-mask-size":                pods,
		"controller-manager-arg=node-cidr-mask-size-ipv4":           pods,
		"controller-manager-arg=node-cidr-mask-size-ipv6":           pods,
		"controller-manager-arg=secondary-service-cluster-ip-range": services,
		"apiserver-arg=etcd-servers":                                betweenNothing("the objects are in the etcd that the cluster was started with"),
	}
}

// With returns the settings with the values of the flags that were given, and
// what that changes. Arguments of a component take the place of those with the
// same name and leave the others; NAME- takes NAME away.
func (s Settings) With(told Settings, given []string) (Settings, []Change) {
	now := s
	now.Told = slices.Clone(s.Told)
	var changes []Change
	nowFlags, toldFlags := now.flags(), told.flags()
	for i, f := range (&s).flags() {
		if !slices.Contains(given, f.name) {
			continue
		}
		now.Told = append(now.Told, f.name)
		if f.args != nil {
			var argumentChanges []Change
			*nowFlags[i].args, argumentChanges = mergeArguments(&s, f.name, *f.args, *toldFlags[i].args)
			changes = append(changes, argumentChanges...)
			continue
		}
		from, to := f.value(), toldFlags[i].value()
		nowFlags[i].set(toldFlags[i])
		if from != to {
			changes = append(changes, changeOf(&s, f.name, f.fixed, from, to))
		}
	}
	now.Told = slices.Compact(slices.Sorted(slices.Values(now.Told)))
	return now, changes
}

func changeOf(kept *Settings, name string, fixed fixed, from, to string) Change {
	c := Change{Flag: name, From: from, To: to}
	if fixed != nil {
		c.Refused = fixed(kept, from, to)
	}
	return c
}

func (f flag) value() string {
	switch {
	case f.text != nil:
		return *f.text
	case f.num != nil:
		return fmt.Sprint(*f.num)
	}
	return strings.Join(*f.list, ",")
}

func (f flag) set(to flag) {
	switch {
	case f.text != nil:
		*f.text = *to.text
	case f.num != nil:
		*f.num = *to.num
	default:
		*f.list = slices.Clone(*to.list)
	}
}

// mergeArguments puts told arguments among kept ones.
func mergeArguments(s *Settings, flag string, kept, told []string) (merged []string, changes []Change) {
	fixed := fixedArguments()
	var names []string
	added := map[string][]string{}
	for _, argument := range told {
		name, removed := strings.CutSuffix(argument, "-")
		if removed = removed && !strings.Contains(name, "="); !removed {
			name = argumentName(argument)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		if !removed {
			added[name] = append(added[name], argument)
		}
	}
	was := map[string][]string{}
	for _, argument := range kept {
		name := argumentName(argument)
		if slices.Contains(names, name) {
			was[name] = append(was[name], argument)
			continue
		}
		merged = append(merged, argument)
	}
	for _, name := range names {
		merged = append(merged, added[name]...)
		if slices.Equal(was[name], added[name]) {
			continue
		}
		full := flag + "=" + name
		changes = append(changes, changeOf(s, full, fixed[full], argumentValues(was[name]), argumentValues(added[name])))
	}
	return merged, changes
}

// argumentName is the name in name=value or --name=value.
func argumentName(argument string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
	return name
}

// argumentValues are the values of arguments with the same name.
func argumentValues(arguments []string) string {
	var values []string
	for _, argument := range arguments {
		_, value, has := strings.Cut(argument, "=")
		if !has {
			value = "true"
		}
		values = append(values, value)
	}
	return strings.Join(values, ",")
}
