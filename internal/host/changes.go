package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coracle-io/coracle/internal/flagvalue"
)

// Change is a difference that a flag would make to an existing cluster.
type Change struct {
	Flag     string // name of a flag, or of an argument: apiserver-arg=anonymous-auth
	Field    bool   // Flag is the path of a field of the configuration file
	From, To string // values; "" for none
	Refused  string // why it is impossible, or ""
}

func (c Change) String() string {
	if c.From == "" {
		c.From = "(nothing)"
	}
	if c.To == "" {
		c.To = "(nothing)"
	}
	dashes := "--"
	if c.Field {
		dashes = ""
	}
	return fmt.Sprintf("%s%s: %s → %s", dashes, c.Flag, c.From, c.To)
}

// fixed returns why a value cannot change from one to another, or "".
type fixed func(kept *Settings, from, to string) string

func always(reason string) fixed { return func(*Settings, string, string) string { return reason } }

// withNode is for values that cannot change once the cluster has a node on this
// machine.
func withNode(reason string) fixed {
	return func(kept *Settings, _, _ string) string {
		if kept.Nodes > 0 {
			return reason
		}
		return ""
	}
}

// withFurtherNodes is for values that cannot change once the cluster has several
// nodes on this machine.
func withFurtherNodes(reason string) fixed {
	return func(kept *Settings, _, _ string) string {
		if kept.Several() {
			return reason
		}
		return ""
	}
}

// onlyIfSet is for values that can be replaced by others, but cannot be added or
// removed.
func onlyIfSet(reason string) fixed {
	return func(_ *Settings, from, to string) string {
		if from == "" || to == "" {
			return reason
		}
		return ""
	}
}

// noFewer is for a number that can only grow.
func noFewer(reason string) fixed {
	return func(_ *Settings, from, to string) string {
		before, err := strconv.Atoi(from)
		now, nowErr := strconv.Atoi(to)
		if err != nil || nowErr != nil || before > now {
			return reason
		}
		return ""
	}
}

// Why values cannot change that a flag of up and arguments of components set.
const (
	servicesHaveIt = "the Services have their addresses from it"
	nodesHaveIt    = "the nodes have their pod ranges from it, which cannot change"
	objectsAreIn   = "the objects are in the etcd that the cluster was started with"
	nodeHasName    = "the pods and volumes here are those of the node of that name"
	runtimeHasThem = "its containers would run on in the runtime that has them"
)

// fixedArguments returns the arguments of components that cannot change, by
// flag and name.
func fixedArguments() map[string]fixed {
	services := always(servicesHaveIt)
	pods := always(nodesHaveIt)
	members := onlyIfSet("the data says whether this etcd is alone or a member of several")
	return map[string]fixed{
		"apiserver-arg=etcd-prefix":                                 always("the objects are stored below it"),
		"apiserver-arg=cert-dir":                                    always("the keys that all components trust are there"),
		"apiserver-arg=service-cluster-ip-range":                    services,
		"controller-manager-arg=service-cluster-ip-range":           services,
		"controller-manager-arg=cluster-cidr":                       pods,
		"proxy-arg=cluster-cidr":                                    pods,
		"proxy-arg=nftables-table":                                  withNode("the rules in it would stay behind"),
		"kubelet-arg=hostname-override":                             withNode(nodeHasName),
		"kubelet-arg=root-dir":                                      withNode("the pods' volumes are there"),
		"kubelet-arg=cgroup-root":                                   withNode("the pods' processes are below it"),
		"kubelet-arg=container-runtime-endpoint":                    withNode(runtimeHasThem),
		"etcd-arg=initial-advertise-peer-urls":                      members,
		"etcd-arg=initial-cluster":                                  members,
		"controller-manager-arg=node-cidr-mask-size":                pods,
		"controller-manager-arg=node-cidr-mask-size-ipv4":           pods,
		"controller-manager-arg=node-cidr-mask-size-ipv6":           pods,
		"controller-manager-arg=secondary-service-cluster-ip-range": services,
		"apiserver-arg=etcd-servers":                                onlyIfSet(objectsAreIn),
	}
}

// With returns s with the values of the flags whose names are in set, and what
// that changes. An argument of a component replaces those with the same name and
// leaves the others; NAME- removes NAME. With does not change s.
func (s Settings) With(values Settings, set []string) (Settings, []Change) {
	now := s
	now.SetFlags = slices.Clone(s.SetFlags)
	var changes []Change
	nowFlags, newFlags := now.flags(), values.flags()
	for i, f := range (&s).flags() {
		if f.selects || !slices.Contains(set, f.name) {
			continue
		}
		now.SetFlags = append(now.SetFlags, f.name)
		if f.args != nil {
			var argumentChanges []Change
			*nowFlags[i].args, argumentChanges = mergeArguments(&s, f.name, *f.args, *newFlags[i].args)
			changes = append(changes, argumentChanges...)
			continue
		}
		from, to := f.value(), newFlags[i].value()
		nowFlags[i].set(newFlags[i])
		if from == to {
			continue
		}
		if f.shown != nil {
			from, to = f.shown(from), f.shown(to)
		}
		changes = append(changes, changeOf(&s, f.name, f.fixed, from, to))
	}
	if slices.Contains(set, nodesFlag) {
		changes = append(changes, now.arrangeNodes(&s, nodeOf(values.Options).Each)...)
	}
	now.SetFlags = slices.Compact(slices.Sorted(slices.Values(now.SetFlags)))
	return now, changes
}

func changeOf(kept *Settings, name string, fixed fixed, from, to string) Change {
	c := Change{Flag: name, From: from, To: to}
	if fixed != nil {
		c.Refused = fixed(kept, from, to)
	}
	return c
}

// mergeArguments returns the stored arguments of a component, changed by those
// that the user has set with a flag.
func mergeArguments(s *Settings, flag string, kept, set []string) (merged []string, changes []Change) {
	fixed := fixedArguments()
	var names []string
	added := map[string][]string{}
	for _, argument := range set {
		a := flagvalue.ParseArgument(argument)
		if !slices.Contains(names, a.Name) {
			names = append(names, a.Name)
		}
		if !a.Removes {
			added[a.Name] = append(added[a.Name], argument)
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

// argumentName returns the name of the flag that an argument sets or removes.
func argumentName(argument string) string { return flagvalue.ParseArgument(argument).Name }

// argumentValues returns the values of arguments with the same name, joined by
// commas.
func argumentValues(arguments []string) string {
	var values []string
	for _, argument := range arguments {
		a := flagvalue.ParseArgument(argument)
		if !a.HasValue {
			a.Value = "true"
		}
		values = append(values, a.Value)
	}
	return strings.Join(values, ",")
}
