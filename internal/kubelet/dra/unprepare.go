package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Unprepare ends the use of claims by a pod, all of whose containers have ended.
// The drivers unprepare the claims that no other pod uses. After an error, it must
// be called again.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) error {
	claims := m.state.of(pod)
	if len(claims) == 0 {
		m.mu.Lock()
		m.waiting.Delete(pod)
		m.mu.Unlock()
		return nil
	}
	began := time.Now()
	err := m.unprepare(ctx, pod, claims)
	m.ended("UnprepareResources", pod, began, err)
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) unprepare(ctx context.Context, pod types.UID, claims []key) error {
	unlock, err := m.locks.lock(ctx, claims)
	if err != nil {
		return err
	}
	defer unlock()
	done := make(map[key]*claim)
	todo := make(map[string][]*claim)
	for _, k := range claims {
		c := m.state.get(k)
		if c == nil || !c.uses(pod) { // another call was faster
			continue
		}
		done[k] = nil
		if c.PodUIDs.Len() > 1 {
			done[k] = c.clone()
			done[k].PodUIDs.Delete(string(pod))
			continue
		}
		for _, driver := range c.drivers() {
			todo[driver] = append(todo[driver], c)
		}
	}
	m.state.unready(todo)
	var failed []error
	for _, driver := range slices.Sorted(maps.Keys(todo)) {
		unprepared, err := m.drivers.unprepare(ctx, driver, todo[driver])
		failed = append(failed, err)
		for _, c := range todo[driver] {
			if !unprepared.Has(c.ClaimUID) {
				delete(done, c.key())
			}
		}
	}
	if len(done) > 0 {
		failed = append(failed, m.state.change(done))
	}
	return errors.Join(failed...)
}

// unprepare calls NodeUnprepareResources. It returns the claims that are
// unprepared, also with an error.
func (r *Registry) unprepare(ctx context.Context, driver string, claims []*claim) (sets.Set[types.UID], error) {
	p, err := r.plugin(driver)
	if err != nil {
		return nil, err
	}
	answer, err := call(ctx, r.timeout, p.client.NodeUnprepareResources, &drapb.NodeUnprepareResourcesRequest{Claims: messages(claims)})
	if err != nil {
		return nil, fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	unprepared := sets.Set[types.UID]{}
	err = settle("NodeUnprepareResources", claims, answer.GetClaims(), func(c *claim, _ *drapb.NodeUnprepareResourceResponse) error {
		unprepared.Insert(c.ClaimUID)
		return nil
	})
	return unprepared, err
}
