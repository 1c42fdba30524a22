package legacytokencleaner

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/legacytoken"
)

type action int

const (
	keep action = iota
	invalidate
	remove
)

// rule decides what to do with tokens at a time, which is in UTC.
type rule struct {
	now    time.Time
	period time.Duration
}

func (r rule) today() string { return r.now.Format(time.DateOnly) }

// limit returns the first date that counts as recent.
func (r rule) limit() string { return r.now.Add(-r.period).Format(time.DateOnly) }

// recent reports whether a token was created or used within the period.
func (r rule) recent(secret *v1.Secret) bool {
	return !secret.CreationTimestamp.Time.Before(r.now.Add(-r.period)) || secret.Labels[legacytoken.LastUsed] >= r.limit()
}

// actionFor returns the action for an unused token.
func (r rule) actionFor(secret *v1.Secret) action {
	since := secret.Labels[legacytoken.InvalidSince]
	if _, err := time.Parse(time.DateOnly, since); err != nil {
		return invalidate
	}
	if since >= r.limit() {
		return keep
	}
	return remove
}

// usedByAny reports whether a pod uses a secret in a volume or an environment variable.
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
