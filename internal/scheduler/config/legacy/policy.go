// Package legacy reads the older configurations of the scheduler and writes
// them as KubeSchedulerConfiguration v1: Policy (--policy-config-file and
// --policy-configmap) and the algorithmSource form of
// KubeSchedulerConfiguration v1alpha1.
//
//	Policy:  predicates ─┐                         ┌─► plugins enabled and disabled by point
//	         priorities ─┼─► table of names ─► Set ┼─► weights of multiPoint
//	         arguments ──┘                         └─► pluginConfig
package legacy

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubescheduler "k8s.io/kube-scheduler/config/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// ConfigMapKey is the key of a policy in the ConfigMap of --policy-configmap.
const ConfigMapKey = "policy.cfg"

// Policy is kind Policy of version v1.
type Policy struct {
	metav1.TypeMeta `json:",inline"`
	// Predicates replace the default ones if there is a list, even an empty one.
	Predicates []Predicate `json:"predicates"`
	// Priorities likewise.
	Priorities []Priority `json:"priorities"`
	Extenders  []Extender `json:"extenders,omitempty"`
	// HardPodAffinitySymmetricWeight is hardPodAffinityWeight of
	// InterPodAffinityArgs; nil is its default.
	HardPodAffinitySymmetricWeight *int32 `json:"hardPodAffinitySymmetricWeight,omitempty"`
	// AlwaysCheckAllPredicates reports all reasons of a node, not only the first.
	AlwaysCheckAllPredicates bool `json:"alwaysCheckAllPredicates,omitempty"`
}

// Predicate is a filter by its name, with an argument if it is a custom one.
type Predicate struct {
	Name     string             `json:"name"`
	Argument *PredicateArgument `json:"argument,omitempty"`
}

// PredicateArgument is the argument of a custom predicate: exactly one.
type PredicateArgument struct {
	ServiceAffinity *struct {
		Labels []string `json:"labels"`
	} `json:"serviceAffinity,omitempty"`
	LabelsPresence *struct {
		Labels   []string `json:"labels"`
		Presence bool     `json:"presence"`
	} `json:"labelsPresence,omitempty"`
}

// Priority is a score by its name with its weight.
type Priority struct {
	Name     string            `json:"name"`
	Weight   int64             `json:"weight"`
	Argument *PriorityArgument `json:"argument,omitempty"`
}

// PriorityArgument is the argument of a custom priority: exactly one.
type PriorityArgument struct {
	ServiceAntiAffinity *struct {
		Label string `json:"label"`
	} `json:"serviceAntiAffinity,omitempty"`
	LabelPreference *struct {
		Label    string `json:"label"`
		Presence bool   `json:"presence"`
	} `json:"labelPreference,omitempty"`
	RequestedToCapacityRatio *struct {
		Shape     []kubescheduler.UtilizationShapePoint `json:"shape"`
		Resources []kubescheduler.ResourceSpec          `json:"resources,omitempty"`
	} `json:"requestedToCapacityRatioArguments,omitempty"`
}

// Extender is kubescheduler.Extender under Policy's names. httpTimeout is a
// number of nanoseconds or a duration.
type Extender struct {
	kubescheduler.Extender `json:",inline"`
	EnableHTTPS            *bool                            `json:"enableHttps,omitempty"`
	TLSConfig              *kubescheduler.ExtenderTLSConfig `json:"tlsConfig,omitempty"`
	HTTPTimeout            any                              `json:"httpTimeout,omitempty"`
	// APIVersion has no effect. The first policies with extenders, whose examples
	// are still in use, had to give it.
	APIVersion string `json:"apiVersion,omitempty"`
}

// DecodePolicy reads a policy in JSON or YAML.
func DecodePolicy(data []byte) (*Policy, error) {
	p := &Policy{}
	if err := decode(data, p); err != nil {
		return nil, fmt.Errorf("invalid policy: %w", err)
	}
	if p.Kind != "Policy" || p.APIVersion != "v1" {
		return nil, fmt.Errorf("invalid policy: want kind: Policy and apiVersion: v1, got kind %q and apiVersion %q", p.Kind, p.APIVersion)
	}
	if w := p.HardPodAffinitySymmetricWeight; w != nil && *w == 0 {
		p.HardPodAffinitySymmetricWeight = nil // 0 is the default in a policy
	}
	return p, nil
}

// decode refuses fields that do not exist, and lists all of them.
func decode(data []byte, into any) error {
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(raw, into)
	return errors.Join(append(strict, err)...)
}
