package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/clusterdefaults"
	"github.com/coracle-io/coracle/internal/component"
	"github.com/coracle-io/coracle/internal/component/base"
)

// NodeFields collects what a configuration file, or the flags of coracle node add, say
// about a node. Its methods check a value, and return an error that begins with path,
// which is the field or flag that has it.
type NodeFields struct{ node cluster.EachNode }

// Node returns the configuration of the node.
func (f *NodeFields) Node() cluster.EachNode { return f.node }

// SetName sets the name of the node.
func (f *NodeFields) SetName(path, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s: %s: %s", path, name, strings.Join(problems, "; "))
	}
	f.node.Name = name
	return nil
}

// SetLabels sets the labels of the node, which must be such as a kubelet may give to
// its node.
func (f *NodeFields) SetLabels(path string, labels map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(labels[key])...)
		if len(problems) == 0 && ofKubernetes(key) && !kubeletapis.IsKubeletLabel(key) {
			problems = []string{"a kubelet may not give this label of Kubernetes to its node: use kubectl label"}
		}
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s[%q]: %s", path, key, strings.Join(problems, "; ")))
		}
	}
	if len(labels) > 0 {
		f.node.Labels = maps.Clone(labels)
	}
	return errors.Join(errs...)
}

// ofKubernetes reports whether a label is in a domain of Kubernetes' own.
func ofKubernetes(key string) bool {
	domain, _, qualified := strings.Cut(key, "/")
	within := func(of string) bool { return domain == of || strings.HasSuffix(domain, "."+of) }
	return qualified && (within("kubernetes.io") || within("k8s.io"))
}

// SetTopology sets a label that says where the node is, such as the zone.
func (f *NodeFields) SetTopology(path, label, value string) error {
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return fmt.Errorf("%s: %s: %s", path, value, strings.Join(problems, "; "))
	}
	if other, taken := f.node.Labels[label]; taken && other != value {
		return fmt.Errorf("%s: %s: the label %s says %s: leave one of them out", path, value, label, other)
	}
	if f.node.Labels == nil {
		f.node.Labels = map[string]string{}
	}
	f.node.Labels[label] = value
	return nil
}

// SetTaints sets the taints of the node, in the form KEY=VALUE:EFFECT or KEY:EFFECT.
func (f *NodeFields) SetTaints(path string, taints []string) error {
	var errs []error
	seen := map[string]bool{}
	for i, taint := range taints {
		keyValue, effect, _ := strings.Cut(taint, ":")
		key, value, _ := strings.Cut(keyValue, "=")
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		switch v1.TaintEffect(effect) {
		case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		default:
			problems = append(problems, "want KEY=VALUE:EFFECT, with the effect NoSchedule, PreferNoSchedule or NoExecute")
		}
		if seen[key+":"+effect] {
			problems = append(problems, "a taint before has the same key and effect")
		}
		seen[key+":"+effect] = true
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s[%d]: %s: %s", path, i, taint, strings.Join(problems, "; ")))
		}
	}
	if len(taints) > 0 {
		f.node.Taints = slices.Clone(taints)
	}
	return errors.Join(errs...)
}

// SetKubeletArgs sets the arguments of the node's kubelet. Paths in them become
// absolute, and begin in dir.
func (f *NodeFields) SetKubeletArgs(path string, arguments []string, dir string) error {
	var errs []error
	for i, argument := range arguments {
		given, err := component.Given("kubelet", []string{argument}, dir)
		if err == nil {
			err = component.CheckKubelet(given)
		}
		switch name := argumentName(argument); {
		case err != nil:
		case name == "node-labels":
			err = errors.New("say labels in place of it")
		case name == "register-with-taints":
			err = errors.New("say taints in place of it")
		case slices.Contains(clusterdefaults.OneNodeKubeletFlags(), name):
			err = errors.New("the cluster sets it for each node: leave it out")
		default:
			f.node.KubeletArgs = append(f.node.KubeletArgs, given...)
		}
		if wrong := (*base.ArgumentError)(nil); errors.As(err, &wrong) {
			err = wrong.Err
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %s: %w", path, i, argument, err))
		}
	}
	return errors.Join(errs...)
}

// setNodes reads a list of nodes.
func (c *Config) setNodes(path string, list []any) error {
	switch {
	case len(list) == 0:
		return fmt.Errorf("%s: is empty: say %s: 0 for a control plane alone", path, path)
	case len(list) > clusterdefaults.MaxNodes:
		return fmt.Errorf("%s: want at most %d nodes", path, clusterdefaults.MaxNodes)
	}
	each, errs := make([]cluster.EachNode, len(list)), []error(nil)
	c.NodeImages = make([][]string, len(list))
	for i, item := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		object, ok := item.(map[string]any)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: want fields such as labels, or {} for none", at))
			continue
		}
		f := &NodeFields{}
		errs = append(errs, walk(c.nodeFields(f, at, i), at+".", object))
		each[i] = f.node
	}
	if name := each[0].Name; name != "" {
		errs = append(errs, c.nameFirst(path+"[0].name", name))
		each[0].Name = ""
	}
	c.values.Nodes, c.values.Options.Node.Each = len(list), each
	return errors.Join(errs...)
}

// nodeFields returns the fields of a node of a list, whose path is at and whose place
// is i.
func (c *Config) nodeFields(f *NodeFields, at string, i int) map[string]setField {
	ofText := func(set func(path, value string) error) setField {
		return func(path string, value any) error {
			text, err := textOf(path, value)
			if err != nil {
				return err
			}
			return set(path, text)
		}
	}
	ofTexts := func(set func(path string, values []string) error) setField {
		return func(path string, value any) error {
			texts, err := textsOf(path, value)
			if err != nil {
				return err
			}
			return set(path, texts)
		}
	}
	topology := func(label string) setField {
		return ofText(func(path, value string) error { return f.SetTopology(path, label, value) })
	}
	fields := map[string]setField{
		"name": ofText(f.SetName),
		"role": ofText(func(path, role string) error { return checkRole(path, role, i) }),
		"labels": func(path string, value any) error {
			labels, err := pairsOf(path, value, false)
			if err != nil {
				return err
			}
			return f.SetLabels(path, labels)
		},
		"taints": ofTexts(f.SetTaints),
		"zone":   topology(v1.LabelTopologyZone),
		"region": topology(v1.LabelTopologyRegion),
		"kubeletArgs": ofTexts(func(path string, arguments []string) error {
			return f.SetKubeletArgs(path, arguments, c.dir)
		}),
		"images": func(path string, value any) (err error) {
			c.NodeImages[i], err = c.archives(path, value)
			return err
		},
	}
	below := make(map[string]setField, len(fields))
	for name, set := range fields {
		below[at+"."+name] = set
	}
	return below
}

// checkRole returns an error for a role, in kind's words, that the node in place i of
// the list does not have.
func checkRole(path, role string, i int) error {
	const controlPlane, worker = "control-plane", "worker"
	switch {
	case role != controlPlane && role != worker:
		return fmt.Errorf("%s: %s: want %s or %s", path, role, controlPlane, worker)
	case role == worker && i == 0:
		return fmt.Errorf("%s: %s: the first node is the machine, with the control plane: want %s, or leave it out", path, role, controlPlane)
	case role == controlPlane && i > 0:
		return fmt.Errorf("%s: %s: the control plane is on the machine, which is the first node: want %s, or leave it out", path, role, worker)
	}
	return nil
}

// nameFirst sets the name of the first node, which has a field of its own as well.
func (c *Config) nameFirst(path, name string) error {
	const nameFlag = "node-name"
	if given := c.values.Options.NodeName; slices.Contains(c.set, nameFlag) && given != name {
		return fmt.Errorf("%s: %s: nodeName says %s: leave one of them out", path, name, given)
	}
	c.values.Options.NodeName, c.set = name, append(c.set, nameFlag)
	return nil
}

// ListedNodes returns how many nodes the configuration lists; 0 if it has no list.
func (c *Config) ListedNodes() int { return len(nodeOf(c.values.Options).Each) }
