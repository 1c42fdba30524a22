package spec

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/podquery"
)

// ReferenceKind is the kind of an object that pods refer to.
type ReferenceKind int

// The kinds that the kubelet reads for pods.
const (
	ConfigMapReference ReferenceKind = iota
	SecretReference
	TrustBundlesReference // all cluster trust bundles
)

// Reference is an object in the pod's namespace that the pod refers to.
type Reference struct {
	Kind ReferenceKind
	Name string
}

// maxReferences is how many objects a pod may refer to. The kubelet reads, and as
// far as it has room watches, each of them.
const maxReferences = 1024

// CheckReferences returns an error for a pod that refers to too many objects.
func CheckReferences(pod *v1.Pod) error {
	if n := len(References(pod)); n > maxReferences {
		return fmt.Errorf("the pod refers to %d config maps and secrets, in volumes, environments and imagePullSecrets; a node reads at most %d for a pod", n, maxReferences)
	}
	return nil
}

// References returns the objects that a pod refers to, each once: those of its
// volumes, of its environments, and its pull secrets.
func References(pod *v1.Pod) []Reference {
	r := &references{seen: map[Reference]bool{}}
	for i := range pod.Spec.Volumes {
		r.volume(&pod.Spec.Volumes[i])
	}
	for c := range podquery.Containers(&pod.Spec) {
		r.environment(c)
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		r.add(SecretReference, s.Name)
	}
	return r.list
}

// references collects objects without repetition.
type references struct {
	list []Reference
	seen map[Reference]bool
}

func (r *references) add(kind ReferenceKind, name string) {
	of := Reference{kind, name}
	if name == "" && kind != TrustBundlesReference || r.seen[of] {
		return
	}
	r.seen[of] = true
	r.list = append(r.list, of)
}

func (r *references) volume(vol *v1.Volume) {
	switch {
	case vol.ConfigMap != nil:
		r.add(ConfigMapReference, vol.ConfigMap.Name)
	case vol.Secret != nil:
		r.add(SecretReference, vol.Secret.SecretName)
	case vol.Projected != nil:
		for _, source := range vol.Projected.Sources {
			if source.ConfigMap != nil {
				r.add(ConfigMapReference, source.ConfigMap.Name)
			}
			if source.Secret != nil {
				r.add(SecretReference, source.Secret.Name)
			}
			if source.ClusterTrustBundle != nil {
				r.add(TrustBundlesReference, "")
			}
		}
	}
}

func (r *references) environment(c *v1.Container) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			r.add(ConfigMapReference, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			r.add(SecretReference, from.SecretRef.Name)
		}
	}
	for _, env := range c.Env {
		if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
			r.add(ConfigMapReference, env.ValueFrom.ConfigMapKeyRef.Name)
		}
		if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
			r.add(SecretReference, env.ValueFrom.SecretKeyRef.Name)
		}
	}
}
