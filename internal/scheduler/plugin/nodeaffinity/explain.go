package nodeaffinity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/coracle-io/coracle/internal/scheduler/framework"
)

// Explain implements framework.Explainer: it lists the labels that the node
// has not, or has and should not have.
func (p *plugin) Explain(_ *framework.CycleState, pod *framework.PodInfo, n *framework.NodeInfo) (out []framework.Obstacle) {
	if p.addedRequired != nil && !p.addedRequired.Match(n.Node) {
		out = append(out, framework.Obstacle{Text: "the scheduler's addedAffinity does not match the node"})
	}
	selector := pod.Pod.Spec.NodeSelector
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if has, ok := n.Node.Labels[key]; !ok || has != selector[key] {
			out = append(out, unmet(n.Node, "nodeSelector", v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{selector[key]}}))
		}
	}
	affinity := pod.Pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return out
	}
	return append(out, unmetTerms(n.Node, affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)...)
}

// unmetTerms explains why no term matches. One would be enough.
func unmetTerms(node *v1.Node, terms []v1.NodeSelectorTerm) []framework.Obstacle {
	one := framework.Obstacle{}
	var texts []string
	for i := range terms {
		if matches(node, terms[i]) {
			return nil
		}
		var of, how []string
		single := []framework.Obstacle{}
		for _, r := range terms[i].MatchExpressions {
			if matches(node, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{r}}) {
				continue
			}
			o := unmet(node, "node affinity", r)
			single, of = append(single, o), append(of, strings.TrimPrefix(o.Text, "node affinity: "))
			if len(o.Remedies) > 0 {
				how = append(how, o.Remedies[0])
			}
		}
		for _, r := range terms[i].MatchFields {
			if !matches(node, v1.NodeSelectorTerm{MatchFields: []v1.NodeSelectorRequirement{r}}) {
				o := framework.Obstacle{Text: fmt.Sprintf("node affinity: field %s is not %s", r.Key, described(r))}
				single, of = append(single, o), append(of, strings.TrimPrefix(o.Text, "node affinity: "))
			}
		}
		if len(terms) == 1 && len(single) > 0 {
			return single
		}
		texts = append(texts, strings.Join(of, " and "))
		if len(of) > 0 && len(how) == len(of) {
			one.Remedies = append(one.Remedies, strings.Join(how, " && "))
		}
	}
	one.Text = "node affinity: " + strings.Join(texts, "; or ")
	return []framework.Obstacle{one}
}

func matches(node *v1.Node, term v1.NodeSelectorTerm) bool {
	selector, err := nodeaffinity.NewNodeSelector(&v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}})
	return err == nil && selector.Match(node)
}

// unmet explains a requirement on a label that the node does not meet.
func unmet(node *v1.Node, of string, r v1.NodeSelectorRequirement) framework.Obstacle {
	has, ok := node.Labels[r.Key]
	is := "is missing"
	if ok {
		is = "is " + has
		if has == "" {
			is = `is ""`
		}
	}
	o := framework.Obstacle{Text: fmt.Sprintf("%s: label %s %s, want %s", of, r.Key, is, described(r))}
	if r.Key == v1.LabelHostname || r.Key == v1.LabelArchStable || r.Key == v1.LabelOSStable {
		return o // the kubelet sets them
	}
	switch r.Operator {
	case v1.NodeSelectorOpIn:
		// An API server may accept values that no label can have. They must not
		// get into a command for a shell.
		valid := func(value string) bool { return len(validation.IsValidLabelValue(value)) == 0 }
		if i := slices.IndexFunc(r.Values, valid); i >= 0 {
			o.Remedies = []string{labelCommand(node.Name, r.Key+"="+r.Values[i], ok)}
		}
	case v1.NodeSelectorOpExists:
		o.Remedies = []string{labelCommand(node.Name, r.Key+"=", false)}
	case v1.NodeSelectorOpNotIn, v1.NodeSelectorOpDoesNotExist:
		o.Remedies = []string{labelCommand(node.Name, r.Key+"-", false)}
	}
	return o
}

func labelCommand(node, change string, overwrite bool) string {
	command := "kubectl label node " + node + " " + change
	if overwrite {
		command += " --overwrite"
	}
	return command
}

// described describes the values that satisfy a requirement.
func described(r v1.NodeSelectorRequirement) string {
	values := strings.Join(r.Values, ", ")
	switch r.Operator {
	case v1.NodeSelectorOpIn:
		if len(r.Values) == 1 {
			return values
		}
		return "one of " + values
	case v1.NodeSelectorOpNotIn:
		return "none of " + values
	case v1.NodeSelectorOpExists:
		return "any value"
	case v1.NodeSelectorOpDoesNotExist:
		return "no such label"
	case v1.NodeSelectorOpGt:
		return "more than " + values
	case v1.NodeSelectorOpLt:
		return "less than " + values
	}
	return strings.TrimSpace(string(r.Operator) + " " + values)
}
