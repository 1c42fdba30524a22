package proxy

import (
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// changes counts the changes of one kind of object: all, and which Services have one that
// is in no rules yet.
type changes struct {
	total   int
	pending map[types.NamespacedName]bool
}

func (c *changes) note(service types.NamespacedName) {
	c.total++
	c.pending[service] = true
}

// endpointChange is a change of endpoints that has not reached the kernel yet.
type endpointChange struct {
	service types.NamespacedName
	family  string
	at      time.Time // when the pod or the Service changed, by the slice's annotation
}

// endpointChanges are the first changes of slices since the last Apply, by slice.
type endpointChanges map[types.NamespacedName]endpointChange

func nameOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
}

// note adds the change that made a slice what it is. before is the slice that it
// replaces, or nil. Changes before began did not wait for this proxy.
func (c endpointChanges) note(before, slice *discoveryv1.EndpointSlice, began time.Time) {
	said := slice.Annotations[v1.EndpointsLastChangeTriggerTime]
	if before != nil && before.Annotations[v1.EndpointsLastChangeTriggerTime] == said {
		return
	}
	at, err := time.Parse(time.RFC3339Nano, said)
	if err != nil || !at.After(began) {
		return
	}
	if _, waits := c[nameOf(slice)]; !waits {
		c[nameOf(slice)] = endpointChange{serviceOf(slice), string(slice.AddressType), at}
	}
}

// takeChanges returns the noted changes of Services that this proxy handles, and
// notes none any more.
func (s *state) takeChanges() endpointChanges {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.changes
	s.changes = endpointChanges{}
	for name, change := range taken {
		if service := s.services[change.service]; service == nil || !proxied(service) {
			delete(taken, name)
		}
	}
	return taken
}

// keepChanges notes changes again that did not reach the kernel.
func (s *state) keepChanges(changes endpointChanges) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, change := range changes {
		if s.slices[change.service][name.Name] != nil {
			s.changes[name] = change
		}
	}
}
