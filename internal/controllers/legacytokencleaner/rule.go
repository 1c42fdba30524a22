package legacytokencleaner

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Labels of secrets that hold tokens; their values are dates (RFC 3339) in UTC,
// which sort as text.
const (
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

type verdict int

const (
	keep verdict = iota
	invalidate
	remove
)

// rule says what becomes of a token at a time (in UTC).
type rule struct {
	now    time.Time
	period time.Duration
}

func (r rule) today() string { return r.now.Format(time.DateOnly) }

// limit is the first day that counts as recent.
func (r rule) limit() string { return r.now.Add(-r.period).Format(time.DateOnly) }

// recent says that a token was made or used within the period.
func (r rule) recent(secret *v1.Secret) bool {
	return !secret.CreationTimestamp.Time.Before(r.now.Add(-r.period)) || secret.Labels[lastUsed] >= r.limit()
}

// verdict is what becomes of a token that is not used.
func (r rule) verdict(secret *v1.Secret) verdict {
	since := secret.Labels[invalidSince]
	if _, err := time.Parse(time.DateOnly, since); err != nil {
		return invalidate
	}
	if since >= r.limit() {
		return keep
	}
	return remove
}

// usedByAny says whether a pod takes files or variables from a secret.
func usedByAny(pods []*v1.Pod, secret string) bool {
	inVolume := func(v v1.Volume) bool {
		return v.Secret != nil && v.Secret.SecretName == secret ||
			v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool {
				return s.Secret != nil && s.Secret.Name == secret
			})
	}
	inVariables := func(env []v1.EnvVar, from []v1.EnvFromSource) bool {
		return slices.ContainsFunc(env, func(e v1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == secret
		}) || slices.ContainsFunc(from, func(f v1.EnvFromSource) bool {
			return f.SecretRef != nil && f.SecretRef.Name == secret
		})
	}
	inContainer := func(c v1.Container) bool { return inVariables(c.Env, c.EnvFrom) }
	return slices.ContainsFunc(pods, func(p *v1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Volumes, inVolume) ||
			slices.ContainsFunc(p.Spec.InitContainers, inContainer) ||
			slices.ContainsFunc(p.Spec.Containers, inContainer) ||
			slices.ContainsFunc(p.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return inVariables(c.Env, c.EnvFrom) })
	})
}
